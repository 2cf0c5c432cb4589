"""The arrows of the design: who may import whom."""

import ast
from pathlib import Path

import pytest

import zscope

ROOT = Path(zscope.__file__).parent

# What each home may import of zscope, besides itself. Imports inside functions count too,
# except in `plot` methods, where a result asks a figure of itself.
FOUNDATION = {"types", "errors", "results", "randomness", "groups"}
ARROWS = {
    "types": set(),
    "errors": set(),
    "results": {"errors"},
    "randomness": set(),
    "groups": {"errors", "types"},
    "autoencoder": FOUNDATION,
    "wrapping": FOUNDATION | {"autoencoder"},
    "derived": FOUNDATION | {"autoencoder"},
    "data": FOUNDATION,
    "sampling": FOUNDATION | {"autoencoder"},
    "assays": FOUNDATION | {"autoencoder", "sampling"},
    "models": FOUNDATION | {"autoencoder"},
    "store": FOUNDATION | {"autoencoder"},
    "recording": FOUNDATION | {"autoencoder", "data"},
    "plots": FOUNDATION | {"autoencoder", "assays"},
}


def imports(file: Path) -> set[str]:
    """The homes of zscope that a file imports."""
    tree = ast.parse(file.read_text())
    drawing = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith(("plot", "_plot"))
    ]
    typing_only = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    allowed = {id(inner) for node in [*drawing, *typing_only] for inner in ast.walk(node)}
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in allowed:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("zscope."):
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.ImportFrom) and node.module == "zscope":
            found |= {alias.name for alias in node.names if alias.name != "__version__"}
        elif isinstance(node, ast.Import):
            found |= {
                alias.name.split(".")[1] for alias in node.names if alias.name.startswith("zscope.")
            }
    return found


def files_of(home: str) -> list[Path]:
    single = ROOT / f"{home}.py"
    return [single] if single.exists() else sorted((ROOT / home).rglob("*.py"))


@pytest.mark.parametrize("home", ARROWS)
def test_imports_follow_the_arrows(home):
    files = files_of(home)
    assert files, f"nothing is at home in {home}"
    for file in files:
        strange = imports(file) - ARROWS[home] - {home}
        assert not strange, f"{file.relative_to(ROOT)} imports {', '.join(sorted(strange))}"


def test_the_test_sees_an_import_that_breaks_an_arrow(tmp_path):
    file = tmp_path / "bad.py"
    file.write_text("def f():\n    from zscope.store import Run\n    import zscope.plots.theme\n")
    assert imports(file) == {"store", "plots"}


def test_a_plot_method_may_draw(tmp_path):
    file = tmp_path / "good.py"
    file.write_text("class R:\n    def plot(self):\n        from zscope.plots import bars\n")
    assert imports(file) == set()


def test_no_file_has_a_name_that_says_nothing():
    names = {file.stem for file in ROOT.rglob("*.py")}
    assert not names & {"utils", "util", "common", "base", "helpers", "misc"}
