"""The arrows of the design: who may import whom."""

import ast
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest

import zscope
from zscope import adapters
from zscope.adapters import MissingPackage

ROOT = Path(zscope.__file__).parent

# What each home may import of zscope, besides itself: every folder and module has a line.
# Imports inside functions count too, except in `plot` methods, where a result asks a figure
# of itself, and where a run publishes itself with a report.
FOUNDATION = {
    "types",
    "errors",
    "results",
    "inference",
    "randomness",
    "seeds",
    "declared",
    "lazy",
    "groups",
    "factors",
    "scaling",
    "presets",
    "files",
    "interrupts",
    "documents",
    "layout",
    "site",
    "notebook",
    "display",
}
MODEL = FOUNDATION | {"autoencoder"}
LIBRARY = MODEL | {
    *("determinism", "wrapping", "derived", "sampling", "theory"),
    *("data", "models", "store", "kept", "adapters", "hub", "loading", "training"),
    *("map_summary", "usage", "recording", "assays", "monitor"),
}
MANY = {"collection", "tables"}
PRESENTING = ("plot", "_plot", "save_for_hub", "push_to_hub")
ARROWS = {
    "__init__": set(),
    "types": {"errors"},
    "errors": set(),
    "files": {"errors"},
    "interrupts": {"errors"},
    "documents": {"errors", "files"},
    "results": {"errors"},
    "randomness": {"seeds"},
    "seeds": set(),
    "declared": set(),
    "lazy": set(),
    "groups": {"errors", "types"},
    "factors": {"errors"},
    "scaling": {"errors"},
    "presets": {"errors"},
    "layout": {"errors"},
    "site": set(),
    "notebook": set(),
    "display": {"errors", "results"},
    "inference": set(),
    "autoencoder": FOUNDATION,
    "determinism": MODEL,
    "wrapping": MODEL,
    "derived": MODEL,
    "sampling": MODEL,
    "theory": MODEL,
    "data": FOUNDATION,
    "models": MODEL,
    "store": FOUNDATION,
    "kept": MODEL | {"store"},
    # Some models need the batch of each observation: their adapter makes the Dataset too.
    "adapters": MODEL | {"wrapping", "data", "models", "store"},
    "hub": FOUNDATION,
    "loading": MODEL | {"wrapping", "data", "models", "store", "adapters", "hub"},
    "training": MODEL | {"models", "data", "store"},
    "map_summary": MODEL,
    "usage": MODEL | {"map_summary"},
    "recording": MODEL | {"data", "determinism", "map_summary", "usage", "sampling"},
    # Views of latents with channels and places are models made of another model.
    "assays": MODEL | {"sampling", "derived", "map_summary", "usage", "recording"},
    "monitor": MODEL
    | {"data", "loading", "usage", "recording", "assays"},  # it takes any model that loads
    "collection": FOUNDATION | {"store"},
    "tables": FOUNDATION | {"collection"},
    "experiments": LIBRARY | MANY,
    "plots": MODEL | MANY | {"recording", "assays"},
    "report": LIBRARY | MANY | {"experiments", "plots"},
    "explorer": LIBRARY | {"experiments", "plots", "report"},
    "cli": LIBRARY | MANY | {"experiments", "plots", "report", "explorer"},
}


def public_names() -> dict[str, str]:
    """The home of each name that `zscope` itself offers, from the imports in its __init__.py."""
    tree = ast.parse((ROOT / "__init__.py").read_text())
    return {
        alias.name: node.module.split(".")[1]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module.startswith("zscope.")
        for alias in node.names
    }


def imports(file: Path) -> set[str]:
    """The homes of zscope that a file imports."""
    tree = ast.parse(file.read_text())
    drawing = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith(PRESENTING)
    ]
    typing_only = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    exempt = {id(inner) for node in [*drawing, *typing_only] for inner in ast.walk(node)}
    nodes = [node for node in ast.walk(tree) if id(node) not in exempt]
    modules: list[str] = []
    names: list[str] = []  # of the package itself: from zscope import NAME, zs.NAME
    aliases = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.level:
            modules.append(f"zscope.(relative import, line {node.lineno})")
        elif isinstance(node, ast.ImportFrom) and node.module == "zscope":
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules.append(node.module)
        elif isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
            aliases |= {alias.asname or "zscope" for alias in node.names if alias.name == "zscope"}
    names += [
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in aliases
    ]
    homes = {module.split(".")[1] for module in modules if module.startswith("zscope.")}
    names = [name for name in names if not name.startswith("__")]  # as __version__
    return homes | {public_names().get(name, name) for name in names}


def files_of(home: str) -> list[Path]:
    single = ROOT / f"{home}.py"
    return [single] if single.exists() else sorted((ROOT / home).rglob("*.py"))


def homes(root: Path) -> set[str]:
    """Every module and folder with Python code right below a package."""
    return {file.relative_to(root).parts[0].removesuffix(".py") for file in root.rglob("*.py")}


@pytest.mark.parametrize("home", ARROWS)
def test_imports_follow_the_arrows(home):
    files = files_of(home)
    assert files, f"there is no {home} in zscope any more: remove its line from ARROWS"
    for file in files:
        path = file.relative_to(ROOT).as_posix()
        wrong = imports(file) - ARROWS[home] - {home}
        assert not wrong, f"{path} imports {', '.join(sorted(wrong))}"


def test_names_are_loaded_from_above_only_to_keep_their_public_address():
    """A name that is loaded on demand is no import, so the arrows do not see it."""
    # The other homes are modules of the package itself, see zscope.lazy.
    leading_up = {name for name, home in adapters._HOMES.items() if home.startswith("zscope.")}
    assert leading_up == {"LatentMonitor"}


TRAINERS = {"train", "train_ensemble", "train_together"}


def test_everybody_trains_with_the_monitor():
    """`zscope.training.train` measures nothing: the history would have no types of latents."""
    for file in FILES:
        path = file.relative_to(ROOT).as_posix()
        if path.startswith("training/"):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("zscope.training"):
                taken = {alias.name for alias in node.names} & TRAINERS
                assert not taken, f"{path}: import it from zscope.experiments.training"


def test_every_home_has_its_arrows():
    missing = homes(ROOT) - set(ARROWS)
    assert not missing, f"what may {', '.join(sorted(missing))} import? Add a line to ARROWS"


def test_a_new_module_or_folder_is_a_home(tmp_path):
    (tmp_path / "folder" / "deeper").mkdir(parents=True)
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "page.css").touch()
    (tmp_path / "module.py").touch()
    (tmp_path / "folder" / "deeper" / "inner.py").touch()
    assert homes(tmp_path) == {"module", "folder"}


def test_arrows_only_name_homes():
    assert set().union(*ARROWS.values()) <= set(ARROWS)


def test_arrows_make_no_circle():
    left = {home: set(others) for home, others in ARROWS.items()}
    while free := {home for home, others in left.items() if not others & set(left)}:
        left = {home: others for home, others in left.items() if home not in free}
    assert not left


def test_stored_results_depend_on_every_home_that_assays_may_reach():
    from zscope.assays.run import PRESENTATION

    assert set(ARROWS) - LIBRARY - {"__init__"} == PRESENTATION


def test_the_test_sees_an_import_that_breaks_an_arrow(tmp_path):
    file = tmp_path / "bad.py"
    file.write_text("def f():\n    from zscope.store import Run\n    import zscope.plots.theme\n")
    assert imports(file) == {"store", "plots"}


def test_the_test_sees_what_is_taken_from_the_package_itself(tmp_path):
    file = tmp_path / "bad.py"
    file.write_text(
        "import zscope as zs\nfrom zscope import __version__, models, train\nzs.record(zs.Run)\n"
    )
    assert imports(file) == {"models", "experiments", "recording", "store"}


def test_a_plot_method_may_draw(tmp_path):
    file = tmp_path / "good.py"
    file.write_text("class R:\n    def plot(self):\n        from zscope.plots import bars\n")
    assert imports(file) == set()


def test_no_file_has_a_name_that_says_nothing():
    names = {file.stem for file in ROOT.rglob("*.py")}
    assert not names & {"utils", "util", "common", "base", "helpers", "misc"}


FILES = sorted(ROOT.rglob("*.py"))
# They load names on demand.
LAZY = {"__init__.py", "models/__init__.py", "assays/__init__.py", "plots/__init__.py",
        "experiments/__init__.py", "experiments/studies/__init__.py",
        "training/__init__.py"}  # fmt: skip


def public(file: Path) -> tuple[ast.expr | None, set[str]]:
    """What a file assigns to `__all__`, and the names that it defines or imports."""
    names, assigned = set(), None
    for node in ast.parse(file.read_text()).body:
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        for target in targets:
            names |= {each.id for each in ast.walk(target) if isinstance(each, ast.Name)}
            if isinstance(target, ast.Name) and target.id == "__all__":
                assigned = node.value
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        names |= {getattr(node, "name", "")}
    return assigned, names


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_every_file_says_what_is_public(file):
    assigned, names = public(file)
    assert assigned is not None, "add __all__ after the imports"
    if file.relative_to(ROOT).as_posix() not in LAZY:
        offered = ast.literal_eval(assigned)
        assert set(offered) <= names
        assert not [name for name in offered if name.startswith("_")]


def test_type_checkers_see_every_public_name():
    tree = ast.parse((ROOT / "__init__.py").read_text())
    declared = [
        f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module.startswith("zscope")
        for alias in node.names
    ]
    assert {name.rpartition(".")[2] for name in declared} == set(zscope.__all__) - {"__version__"}
    for name, home in zscope._HOMES.items():
        assert any(each.startswith(home) and each.endswith(f".{name}") for each in declared)


@pytest.mark.parametrize("name", ["", *zscope._MODULES])
def test_tab_completion_shows_public_names_alone(name):
    module = import_module(f"zscope.{name}".rstrip("."))
    shown = dir(module)
    assert set(shown) == set(module.__all__)
    for each in shown:
        with suppress(MissingPackage):  # of a library that is not installed
            getattr(module, each)


def test_commands_name_no_assay():
    """A list of names in a command would miss an assay that is added later."""
    from zscope.assays import CATALOGUE

    for file in (Path(zscope.__file__).parent / "cli").glob("*.py"):
        constants = {
            node.value
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        named = constants & set(CATALOGUE) - {"response"}  # also a column of the table of latents
        assert not named, file.name
