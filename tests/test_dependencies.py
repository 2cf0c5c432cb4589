"""What is imported is declared, what is declared is locked with hashes, and nothing else is."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT, GROUPS, UV = SETTINGS["project"], SETTINGS["dependency-groups"], SETTINGS["tool"]["uv"]
EXTRAS = PROJECT["optional-dependencies"]
DECLARED = [*PROJECT["dependencies"], *(line for extra in EXTRAS.values() for line in extra)]
DEPENDENCIES = [line for line in DECLARED if not line.startswith("zscope[")]
FOR_ALL = [line for line in DEPENDENCIES if line not in EXTRAS["cluster"]]
TORCH = next(line for line in UV["constraint-dependencies"] if line.startswith("torch=="))
(OF_TORCH,) = (entry["requires-dist"] for entry in UV["dependency-metadata"])
LOCKS = {  # from what each of them follows
    "requirements.lock": [*FOR_ALL, *SETTINGS["build-system"]["requires"]],
    "requirements-develop.lock": [*DEPENDENCIES, *GROUPS["develop"]],
    "requirements-adapters.lock": GROUPS["adapters"],
    "requirements-scvi.lock": GROUPS["scvi"],
    "requirements-jax.lock": GROUPS["jax"],
}
APART = list(LOCKS)[2:]  # in environments of their own


def pins(name: str) -> dict[str, str]:
    """The locked version of every package, those for other platforms included."""
    lines = (ROOT / name).read_text().splitlines()
    found = [re.match(r"([\w.-]+)==([\w.]+)", line) for line in lines]
    return {canonicalize_name(pin[1]): pin[2] for pin in found if pin}


def imported(file: Path) -> set[str]:
    """The packages that a file imports, except where it says what to do without them."""
    tree = ast.parse(file.read_text())
    guarded = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.Try)
        and any("ImportError" in ast.unparse(handler.type or node) for handler in node.handlers)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and id(node) not in guarded:
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and id(node) not in guarded and not node.level:
            names.add(str(node.module))
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names


distributions = cache(packages_distributions)


def undeclared(files: Iterable[Path], declared: Iterable[str]) -> set[str]:
    allowed = {canonicalize_name(Requirement(line).name) for line in declared}
    homes = distributions()
    names = set().union(*map(imported, files))
    packages = {canonicalize_name(homes.get(name, [name])[0]) for name in names}
    return packages - allowed - {"zscope"}


def test_what_zscope_imports_is_declared():
    assert not undeclared((ROOT / "src").rglob("*.py"), DEPENDENCIES)


def test_what_tests_and_docs_import_is_declared():
    files = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "docs").rglob("*.py")]
    scripts = (ROOT / "benchmarks").rglob("*.py")
    ours = {file.stem for file in (*files, *scripts)} | {"tests", "usermodel"}
    everything = [*DEPENDENCIES, *(line for group in GROUPS.values() for line in group)]
    assert undeclared(files, everything) <= {canonicalize_name(name) for name in ours}


def test_an_import_that_is_not_declared_is_seen(tmp_path):
    file = tmp_path / "bad.py"
    file.write_text(
        "import os, numpy.linalg\n"
        "def f():\n    from sklearn.svm import SVC\n    import missing_here\n"
        "try:\n    import optional\nexcept ImportError:\n    optional = None\n"
    )
    assert undeclared([file], ["numpy>=2"]) == {"scikit-learn", "missing-here"}


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_has_what_is_declared_and_a_hash_for_each(lock):
    locked = pins(lock)
    for line in [*LOCKS[lock], *(OF_TORCH if lock != "requirements-jax.lock" else ())]:
        requirement = Requirement(line)
        if requirement.name != "torch":
            assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)]), line
    text = (ROOT / lock).read_text()
    assert "://" not in text
    blocks = re.split(r"^(?=\S)", re.sub(r"^\s*#.*\n?", "", text, flags=re.M), flags=re.M)
    pattern = r"[\w.-]+==[\w.]+( ; [^\\\n]+)?( \\\n    --hash=sha256:[0-9a-f]{64})+\n*"
    for block in filter(None, blocks):
        assert re.fullmatch(pattern, block), block


def closure(lines: Iterable[str]) -> set[str]:
    """These requirements and all that they require, on this machine."""
    left = set(UV["exclude-dependencies"])
    seen: set[tuple[str, str]] = set()
    todo = [Requirement(line) for line in lines]
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        for extra in ["", *requirement.extras]:
            if name in left or (name, extra) in seen:
                continue
            seen.add((name, extra))
            further = OF_TORCH if name == "torch" else requires(name) or []
            # An extra of one package is written as ">=1.0.*", which means ">=1.0".
            further = [re.sub(r"(>=[\d.]+)\.\*", r"\1", line) for line in further]
            todo += [
                other
                for other in map(Requirement, further)
                if other.marker is None or other.marker.evaluate({"extra": extra})
            ]
    return {name for name, _ in seen} - {"torch"}


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_has_nothing_but_what_is_required(lock):
    """What only tests or docs use stays out of the first, for one."""
    try:
        needed = closure(LOCKS[lock])
        others = {name for name in needed if version(name) != pins(lock).get(name, version(name))}
    except PackageNotFoundError as missing:
        needed, others = set(), {missing.name}
    if others:
        how = f"needs the versions of {lock}; missing or different: {', '.join(sorted(others))}"
        if os.environ.get("CI") and lock not in APART:
            pytest.fail(how)
        pytest.skip(how)
    elsewhere = {
        canonicalize_name(line.partition("==")[0])
        for line in (ROOT / lock).read_text().splitlines()
        if " ; " in line and not Requirement(line.rstrip(" \\")).marker.evaluate()
    }
    assert set(pins(lock)) - elsewhere == needed


def test_who_has_no_cluster_does_not_download_what_talks_to_one():
    assert not {"dask", "distributed", "dask-jobqueue"} & set(pins("requirements.lock"))
    assert EXTRAS["all"] == [f"zscope[{','.join(name for name in EXTRAS if name != 'all')}]"]


def test_locks_agree():
    run, develop = map(pins, list(LOCKS)[:2])
    assert run.items() <= develop.items()
    for apart in map(pins, APART):
        shared = set(develop) & set(apart)
        assert {name: apart[name] for name in shared} == {name: develop[name] for name in shared}


def test_no_locked_package_takes_a_name_of_the_standard_library():
    homes = distributions()
    shadowing = {canonicalize_name(d) for m in sys.stdlib_module_names for d in homes.get(m, ())}
    assert not shadowing & set().union(*map(pins, LOCKS))
    assert not {"dataclasses", "lazy-importer"} & set().union(*map(pins, LOCKS))


def test_what_every_build_of_torch_requires_is_locked():
    """Accelerator packages are part of a build; it installs them itself."""
    installed = [Requirement(line) for line in requires("torch") or []]
    common = {
        str(requirement)
        for requirement in installed
        if not (requirement.marker and "extra" in str(requirement.marker))
        and not requirement.name.startswith(("cuda", "nvidia", "triton"))
    }
    assert {str(Requirement(line)) for line in OF_TORCH} == common


@pytest.mark.parametrize(
    ("target", "locks"),
    [
        ("demo", ["requirements.lock"]),
        ("test", ["requirements.lock", "requirements-develop.lock"]),
        ("test-adapters-torch", [*list(LOCKS)[:2], "requirements-adapters.lock"]),
        ("test-adapters", list(LOCKS)),
    ],
)
def test_make_installs_locked_files_with_their_hashes(target, locks):
    recipe = ["make", "--dry-run", "--always-make", target]
    lines = subprocess.run(recipe, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    installs = [line.split("--quiet ")[1] for line in lines.splitlines() if "pip install" in line]
    hashed = "--no-deps --only-binary :all: --require-hashes -r"
    assert installs[0] == f"{hashed} requirements.lock"
    assert installs[1:3] == [TORCH, "--no-deps --no-build-isolation --editable ."]
    # One package of scvi-tools has no wheel: it is built with the locked setuptools.
    built = {"requirements-scvi.lock": " --no-binary docrep --no-build-isolation"}
    expected = [f"{hashed} {lock}{built.get(lock, '')}" for lock in locks[1:]]
    assert [line.strip() for line in installs[3:]] == expected


def release(version: str) -> list[int]:
    """Zeros at the end say nothing: 2.0 is 2.0.0."""
    numbers = [int(number) for number in version.split(".")]
    while numbers[-1] == 0:
        numbers.pop()
    return numbers


@pytest.mark.parametrize("floor", DEPENDENCIES)
def test_a_floor_is_the_version_that_is_tested(floor):
    name, version = re.fullmatch(r"([\w-]+)>=([\d.]+)", floor).groups()
    torch = {"torch": TORCH.partition("==")[2]}
    assert release(version) == release((pins("requirements-floors.lock") | torch)[name])
    assert release(version) <= release((pins("requirements-develop.lock") | torch)[name])
