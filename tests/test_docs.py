"""The documentation names every assay, model, dataset and command, as they are now."""

import inspect
import re
import shlex
from operator import attrgetter
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import torch
import typer
from scripts import docs_script

import zscope as zs
from zscope.cli import app
from zscope.errors import ConfigError

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module", name="pages")
def _pages():
    return docs_script("pages")


def test_every_assay_has_a_page_with_its_question_group_and_cost(pages):
    texts = pages.assay_pages()
    for name, entry in zs.assays.CATALOGUE.items():
        page = texts[f"assays/{name}.md"]
        assert entry.question in page
        assert (f"zs.assays.{entry.attribute}(recording)" in page) != entry.compares
        assert f"Group: {entry.group}." in page
        assert not entry.passes or f"passes of the model: `{entry.passes}`" in page
        assert not entry.most or f"at most {entry.most:,}" in page
        assert f"({name}.md)" in texts["assays/index.md"]


def test_the_table_of_flavours_is_complete(pages):
    """An unknown flavour is refused with the list of those that exist."""
    table = pages.flavours_page()
    codes = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    texts = pages.flavours()
    for name, entry in zs.assays.CATALOGUE.items():
        function = entry.load()
        if "flavour" not in inspect.signature(function).parameters:
            continue
        names = list(get_args(get_type_hints(function)["flavour"]))
        if not names:
            arguments = ([codes] * 3,) if name == "udr" else (codes, codes)
            with pytest.raises(ConfigError) as error:
                function(*arguments, flavour="no-such-flavour")
            names = re.search(r"one of: ([\w, -]+)\.", str(error.value)).group(1).split(", ")
        assert names == list(texts[name]), name
        for flavour, text in texts[name].items():
            assert len(text) > 20, (name, flavour)
            assert f"(assays/{name}.md) | `{flavour}`" in table
    assert table.count("(default)") == len(texts) >= 14


def test_every_model_has_a_page_with_its_options(pages):
    texts = pages.model_pages()
    for name in zs.models.names():
        for option in zs.models.entry(name).options:
            assert f"`{option}`" in texts[f"models/{name}.md"]


def test_every_dataset_has_a_page(pages):
    texts = pages.data_pages()
    for name in zs.data.names():
        assert zs.data.source(name).title in texts[f"data/{name}.md"]


def test_every_command_is_on_the_page_of_commands(pages):
    commands = {" ".join(words) for words in pages.commands()}
    assert {"demo", "train", "assay", "report", "explore", "data fetch", "study run"} <= commands


DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").glob("*.*")),
]


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: file.stem)
def test_every_command_in_the_documents_can_be_parsed(file):
    root = typer.main.get_command(app)
    text = file.read_text().replace("\\\n", "")
    commands = re.findall(r"^    zscope (.+)$|`zscope ([^`]+)`", text, re.MULTILINE)
    for line in filter(None, (part for pair in commands for part in pair)):
        command, words = root, shlex.split(line.replace("\n", " "), comments=True)
        while hasattr(command, "commands") and not words[0].startswith("--"):
            assert words[0] in command.commands, line
            command, words = command.commands[words[0]], words[1:]
        if hasattr(command, "commands"):  # an option of the program itself
            assert words[0] in {name for each in command.params for name in each.opts}, line
        elif words:
            command.make_context(command.name, words)


def test_every_picture_of_the_readme_exists_is_small_and_has_a_caption(pages):
    images = re.findall(r"!\[([^\]]+)\]\(([^)]+)\)", (ROOT / "README.md").read_text())
    assert {Path(place).stem for _, place in images} == {"report", "explorer"}
    for caption, place in images:
        assert len(caption.split()) > 10
        content = (ROOT / place).read_bytes()
        assert content.startswith(b"\x89PNG")
        assert len(content) <= 400_000
    index = pages.index_page()
    assert "](assets/report.png)" in index
    assert "](docs/" not in index


def test_every_decision_is_listed(pages):
    index = pages.decision_pages()["decisions/index.md"]
    for file in (ROOT / "docs" / "decisions").glob("0*.md"):
        assert file.name in index


SCORES = (
    "mig dci sap irs modularity explicitness factor_vae_score beta_vae_score predictability_gap "
    "mig_sup jemmig dcimig mcc"
)
# Names that scripts of other people rely on, with those of their arguments.
PROMISED = {
    "Posterior": "mean std scale_tril",
    "wrap": "encoder decoder latents prior example",
    "load": "target",
    "record": "autoencoder data samples seed",
    "Recording.from_arrays": "codes factors variances kinds names",
    "assay": "autoencoder data names options samples resamples seed",
    "data.load": "name root",
    "models.build": "name shape latents",
    "train": "model data steps batch rate seed out resume",
    "train_ensemble": "build data seeds out resume",
    "compare": "first second",
    "compare_runs": "targets data by checkpoints samples seed",
    "dynamics": "run parts data samples seed",
    "select_models": "runs data rank scores samples seed",
    "fondue": "data",
    "perturb": "data",
    "explore": "target",
    "prune": "autoencoder keep",
    "rotate_latents": "autoencoder U",
    "theory.linear_vae": "",
    "sampling.prior": "autoencoder samples generator",
    "sampling.posterior": "recorded samples generator",
    "sampling.hybrid": "codes samples generator",
    "sampling.uniform": "codes samples generator",
    **dict.fromkeys(
        (f"assays.{name}" for name in SCORES.split()),
        "codes factors flavour variances kinds resamples",
    ),
    "assays.udr": "codes flavour variances resamples",
    "assays.response_matrix": "autoencoder posterior",
    "assays.conditioned_response_matrix": "autoencoder data factors",
    "assays.structure_score": "autoencoder",
    "assays.response_map": "autoencoder",
    "assays.manifold_path": "",
    "assays.interventional_consistency": "autoencoder codes",
    "assays.variable_types": "variances alpha",
    "assays.total_correlation": "codes",
    "assays.mutual_information": "codes",
    "assays.effective_rank": "codes",
    **dict.fromkeys(("assays.procrustes", "assays.svcca", "assays.pwcca"), "x y"),
    "assays.cka": "x y debiased",
    "assays.intrinsic_dimension": "codes method neighbours",
    "assays.fondue": "evaluate start threshold limit",
    "assays.distance_to_orthogonality": "autoencoder codes",
    "assays.frechet_distance": "x y",
    "assays.precision_recall": "x y",
}


def parameters(name):
    found = dict(inspect.signature(inspect.unwrap(attrgetter(name)(zs))).parameters)
    found.pop("cls", None)  # of a class method that was unwrapped
    return found


@pytest.mark.parametrize("name", PROMISED)
def test_every_public_name_exists_with_its_arguments(name):
    promised, found = PROMISED[name].split(), parameters(name)
    assert set(promised) <= set(found)
    in_order = [each.name for each in found.values() if each.kind is each.POSITIONAL_OR_KEYWORD]
    assert promised[: len(in_order)] == in_order[: len(promised)]


WORDS = {
    "model": "autoencoder",
    "z": "codes",
    "rng": "generator",
    "count": "samples",
    "n": "samples",
}
NAMES_OF_MODELS = {
    "train",
    "fondue",
    "perturb",
    "elbow_curve",
    "extrapolate",
    "search_beta",
}  # the model to train, or its name
PUBLIC = {"": zs, "assays.": zs.assays, "sampling.": zs.sampling, "experiments.": zs.experiments}


def test_one_word_for_one_thing_in_signatures():
    functions = {
        prefix + name
        for prefix, module in PUBLIC.items()
        for name in module.__all__
        if inspect.isroutine(getattr(module, name))
    }
    assert len(functions) > 90
    for name in functions:
        known = {"model"} if name.rpartition(".")[2] in NAMES_OF_MODELS else set()
        wrong = set(parameters(name)) & set(WORDS) - known
        assert not wrong, f"{name}: write {', '.join(WORDS[word] for word in sorted(wrong))}"
