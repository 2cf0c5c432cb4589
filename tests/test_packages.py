"""What is released is whole: the source distribution, the wheel, and the recipes of others."""

import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import zscope
from zscope.site import SITE

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
BUILD = "import setuptools.build_meta as b, sys; getattr(b, sys.argv[1])(sys.argv[2])"


def build(what: str, folder: Path, out: Path) -> None:
    """Build a package offline, with the setuptools that is here."""
    command = [sys.executable, "-c", BUILD, what, str(out)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def tracked():
    """The files of the repository."""
    if not (ROOT / ".git").exists():
        pytest.skip("needs the repository, to know what is in it")
    command = ["git", "ls-files", "-z"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {name for name in listing.split("\0") if name and (ROOT / name).is_file()}


@pytest.fixture(scope="module")
def packages(tracked, tmp_path_factory):
    """The source distribution, unpacked, and the wheel that is built from it."""
    work = tmp_path_factory.mktemp("packages")
    for name in tracked:
        target = work / "repository" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
    build("build_sdist", work / "repository", work)
    (sdist,) = work.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(work / "unpacked", filter="data")
    (unpacked,) = (work / "unpacked").iterdir()
    source = {f.relative_to(unpacked).as_posix() for f in unpacked.rglob("*") if f.is_file()}
    build("build_wheel", unpacked, work)
    (wheel,) = work.glob("*.whl")
    return source, zipfile.ZipFile(wheel)


@pytest.fixture(scope="module")
def metadata(packages):
    _, wheel = packages
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return message_from_string(wheel.read(name).decode())


def test_the_source_distribution_is_the_repository(packages, tracked):
    source, _ = packages
    added = {"PKG-INFO", "setup.cfg"}
    assert not tracked - source
    assert not {n for n in source - tracked - added if ".egg-info/" not in n}


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(packages, tracked):
    _, wheel = packages
    ours = {name.removeprefix("src/") for name in tracked if name.startswith("src/")}
    inside = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert inside == ours
    assert {Path(name).suffix for name in inside} >= {".py", ".html", ".css", ".js", ".svg"}


def test_the_metadata_say_who_what_and_where(metadata):
    assert (metadata["Name"], metadata["Version"]) == ("zscope", zscope.__version__)
    assert metadata["Author"] == "zscope developers"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["License-File"] == "LICENSE"
    assert f"Documentation, {SITE}" in metadata.get_all("Project-URL")
    assert metadata["Requires-Python"] == ">=3.11"
    assert set(metadata.get_all("Classifier")) == set(PROJECT["classifiers"])
    assert not [line for line in metadata.get_all("Classifier") if line.startswith("License ::")]
    extras = set(PROJECT["optional-dependencies"])
    assert set(metadata.get_all("Provides-Extra")) == extras


def test_the_long_description_works_outside_the_repository(metadata):
    assert metadata["Description-Content-Type"] == "text/markdown"
    text, readme = metadata.get_payload(), (ROOT / "README.md").read_text()
    assert "<!--" not in text
    places = re.findall(r"\]\(([^)\s]+)\)|(?:src|href|srcset)=\"([^\"]+)\"", text)
    places = [first or second for first, second in places]
    assert places
    assert not [place for place in places if not place.startswith(("https://", "#"))]
    pictures = re.findall(r"docs/assets/[\w./-]+", readme)
    assert pictures
    for picture in pictures:
        assert (ROOT / picture).is_file()
        assert SITE + picture.removeprefix("docs/") in places
    for place in places:  # each is the address of a page or a picture of docs/
        page = place.partition("#")[0].removeprefix(SITE).rstrip("/")
        if place.startswith(SITE) and page and page != "commands":
            path = ROOT / "docs" / page
            generated = page.partition("/")[0] in ("assays", "models", "data", "gallery", "api")
            assert path.exists() or path.with_suffix(".md").is_file() or generated, place


setup = runpy.run_path(str(ROOT / "setup.py"))


@pytest.mark.parametrize(
    ("readme", "expected"),
    [
        ("![a\nb](docs/assets/a.png)", f"![a\nb]({SITE}assets/a.png)"),
        ("[a](docs/guide/maps.md)", f"[a]({SITE}guide/maps/)"),
        ("[a](docs/guide/maps.md#channels)", f"[a]({SITE}guide/maps/#channels)"),
        ("[a](docs/decisions)", f"[a]({SITE}decisions/)"),
        ("[a](docs/index.md)", f"[a]({SITE})"),
        ("[a](https://arxiv.org/abs/1)", "[a](https://arxiv.org/abs/1)"),
        ("[a](#below)", "[a](#below)"),
        ("see [CONTRIBUTING](CONTRIBUTING.md).", "see CONTRIBUTING."),
        ("[![a](docs/a.svg)](docs/b.md)", f"[![a]({SITE}a.svg)]({SITE}b/)"),
        ('<img src="docs/a.png" width="3">', f'<img src="{SITE}a.png" width="3">'),
        ("a\n<!-- run:\nx = 1\n-->\nb", "a\nb"),
        ("```python\nx = f[0](y)\n```\n[a](b.md)", "```python\nx = f[0](y)\n```\na"),
    ],
)
def test_links_of_the_readme_become_addresses(readme, expected):
    assert setup["long_description"](readme) == expected


def test_the_citation_has_what_is_required_and_this_version():
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == zscope.__version__
    assert citation["license"] == PROJECT["license"]
    assert citation["authors"] == [{"name": each["name"]} for each in PROJECT["authors"]]
    assert citation["url"] == SITE
    assert set(citation["keywords"]) <= set(PROJECT["keywords"])


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, each with its arguments."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n", " ", text).splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines) if word]


def test_the_dockerfile_names_files_that_exist_and_the_same_torch():
    words = [word for word, _ in instructions()]
    assert words[0] == "FROM"
    assert set(words) <= {
        "FROM", "RUN", "ARG", "WORKDIR", "COPY", "ENV", "USER", "ENTRYPOINT", "CMD",
    }  # fmt: skip
    copied = [name for word, rest in instructions() if word == "COPY" for name in rest.split()[:-1]]
    assert all((ROOT / name).exists() for name in copied)
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in ignored
    assert {line[1:] for line in ignored if line.startswith("!")} == set(copied)
    pins = PYPROJECT["tool"]["uv"]["constraint-dependencies"]
    torch = next(pin for pin in pins if pin.startswith("torch=="))
    assert ("ARG", f'TORCH="{torch}"') in instructions()
    runs = [rest for word, rest in instructions() if word == "RUN"]
    steps = ("${TORCH}", "-r requirements.lock", "--no-build-isolation .")
    order = [next(k for k, run in enumerate(runs) if step in run) for step in steps]
    assert order == sorted(order)


def test_the_container_runs_zscope_as_nobody_special():
    words = dict(instructions())
    assert words["ENTRYPOINT"] == '["zscope"]'
    assert "zscope" in PROJECT["scripts"]
    assert words["USER"] == "1000"
    version = re.fullmatch(r"python:(\d+\.\d+)-slim", words["FROM"])[1]
    assert f"Programming Language :: Python :: {version}" in PROJECT["classifiers"]


IN_CONDA = {
    "torch": "pytorch",
    "matplotlib": "matplotlib-base",
    "huggingface-hub": "huggingface_hub",
}


def in_conda(lines):
    """Requirements as the recipe writes them."""
    found = [Requirement(line) for line in lines if not line.startswith("zscope[")]
    return {f"{IN_CONDA.get(each.name, each.name)} {each.specifier}" for each in found}


def test_the_conda_recipe_has_the_same_requirements():
    yaml = pytest.importorskip("yaml")
    recipe = yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text())
    assert recipe["context"]["version"] == zscope.__version__
    needs = recipe["requirements"]
    python = f"python {PROJECT['requires-python']}"
    assert set(needs["run"]) == in_conda(PROJECT["dependencies"]) | {python}
    extras = {line for extra in PROJECT["optional-dependencies"].values() for line in extra}
    assert set(needs["run_constraints"]) == in_conda(extras)
    backend = {canonicalize_name(Requirement(line).name)
               for line in PYPROJECT["build-system"]["requires"]}  # fmt: skip
    assert backend <= {line.split()[0] for line in needs["host"]}
    scripts = [f"{name} = {place}" for name, place in PROJECT["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == scripts
    assert recipe["about"]["license"] == PROJECT["license"]
    assert recipe["about"]["summary"] == PROJECT["description"]
    assert (ROOT / recipe["about"]["license_file"]).is_file()


def test_make_release_check_does_what_it_says():
    lines = subprocess.run(
        ["make", "--dry-run", "--always-make", "release-check"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    steps = ["pyproject-build", "twine check --strict dist/*", "pip install --quiet torch==",
             "--require-hashes -r requirements.lock", "dist/*.whl", "pip check",
             "zscope --version", "zscope demo"]  # fmt: skip
    places = [next(k for k, line in enumerate(lines) if step in line) for step in steps]
    assert places == sorted(places)
