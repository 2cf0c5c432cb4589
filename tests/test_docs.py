"""The documentation names every assay, model, dataset and command, as they are now."""

import importlib.util
import inspect
import re
import shlex
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import torch
import typer

import zscope as zs
from zscope.cli import app
from zscope.errors import ConfigError

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module", name="pages")
def _pages():
    description = importlib.util.spec_from_file_location("pages", ROOT / "docs" / "pages.py")
    module = importlib.util.module_from_spec(description)
    description.loader.exec_module(module)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZSCOPE_DOCS_FIGURES", "no")
        yield module


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


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch):
    import matplotlib.pyplot as plt

    monkeypatch.chdir(tmp_path)
    generator = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(6, 3, generator=generator)).Q
    factors = torch.randint(3, (300, 2), generator=generator)
    names = {
        "x": torch.randn(300, 6, generator=generator),
        "my_encoder": lambda x: x @ basis,
        "my_decoder": lambda z: z @ basis.T,
        "codes": factors + 0.1 * torch.randn(300, 2, generator=generator),
        "factors": factors,
    }
    text = (ROOT / "README.md").read_text()
    for long, short in (
        ("steps=20_000", "steps=10"),
        ("zs.record(run.model, sprites)", "zs.record(run.model, sprites, samples=200)"),
        ("resamples=200", "resamples=2"),
    ):
        assert long in text
        text = text.replace(long, short)
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(block, names)
    plt.close("all")
    assert {"report.html", "report.json", "runs"} == {path.name for path in tmp_path.iterdir()}
    assert names["report"].findings
    assert not names["report"].failed


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
        while hasattr(command, "commands"):
            assert words[0] in command.commands, line
            command, words = command.commands[words[0]], words[1:]
        if words:
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


def test_every_public_name_exists():
    names = (
        "response_matrix conditioned_response_matrix structure_score response_map manifold_path "
        "interventional_consistency mig dci sap irs modularity explicitness factor_vae_score "
        "beta_vae_score predictability_gap mig_sup jemmig dcimig mcc udr variable_types "
        "total_correlation mutual_information effective_rank cka procrustes svcca pwcca "
        "intrinsic_dimension fondue distance_to_orthogonality frechet_distance precision_recall"
    )
    for name in names.split():
        assert callable(getattr(zs.assays, name)), name
    names = (
        "Posterior wrap load record Recording assay train train_ensemble compare fondue perturb "
        "explore prune rotate_latents"
    )
    for name in names.split():
        assert callable(getattr(zs, name)), name
    for name in ("prior", "posterior", "hybrid", "uniform"):
        assert callable(getattr(zs.sampling, name)), name
    assert callable(zs.theory.linear_vae)
