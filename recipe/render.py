"""Render the recipe of the conda package, which is then known to be valid: make release-check."""

from pathlib import Path

from rattler_build import RenderConfig, Stage0Recipe, VariantConfig

for variant in Stage0Recipe.from_file(Path(__file__).with_name("recipe.yaml")).render(
    VariantConfig(), RenderConfig()
):
    recipe = variant.recipe
    print(f"conda recipe: {recipe.package.name} {recipe.package.version} is valid")
