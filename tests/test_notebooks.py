"""The notebooks of `examples/` run, in a kernel, and show what their text says."""

import json
from pathlib import Path

import pytest

nbclient, nbformat = map(pytest.importorskip, ("nbclient", "nbformat"))  # not in .venv-floors
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
PICTURE, PAGE, TEXT = "image/png", "text/html", "text/plain"


@pytest.fixture
def execute(tmp_path, monkeypatch):
    """Run a notebook in an empty folder; returns the outputs of its code cells."""
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")  # as in Jupyter

    def run(name):
        notebook = nbformat.read(EXAMPLES / name, 4)
        where = {"metadata": {"path": str(tmp_path)}}
        nbclient.NotebookClient(notebook, timeout=120, resources=where).execute()
        return [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]

    return run


def data(outputs, kind):
    """What the outputs of a cell show of this kind, in order."""
    return [each["data"][kind] for each in outputs if kind in each.get("data", {})]


def printed(outputs):
    return "".join(each["text"] for each in outputs if each["output_type"] == "stream")


def test_is_my_latent_space_healthy(execute):
    training, report, findings, matrix, explorer, closed = execute("my_model.ipynb")
    assert training == []
    progress, page = data(report, PAGE)  # the line of the progress stays one line
    assert "<progress" in progress
    assert "measured" in progress
    assert "<li>" in page
    told = data(findings, PAGE)
    assert len(told) == page.count("<li>")
    assert any("latents carry no information</strong>" in each for each in told)
    assert len(data(matrix, PICTURE)) == 1
    left = int(printed(explorer).split(" of 8")[0])
    assert 3 <= left < 8
    assert "<iframe" in data(explorer, PAGE)[0]
    assert closed == []


def test_disentanglement_scores_of_codes(execute):
    recording, score, figure, values, chance, flavours = execute("scores_of_codes.ipynb")
    assert "3,000 samples x 3 latents" in data(recording, TEXT)[0]
    assert "95 % interval" in data(score, PAGE)[0]
    assert len(data(figure, PICTURE)) == 1

    def table(outputs):
        lines = [line.split() for line in data(outputs, TEXT)[0].splitlines()]
        return {line[0]: list(map(float, line[1:])) for line in lines if len(line) > 2
                and line[0] in ("aligned", "rotated", "unused", "noise")}  # fmt: skip

    # mig, dci, sap, modularity, explicitness
    rows = table(values)
    pairs = list(zip(rows["rotated"], rows["aligned"], strict=True))
    assert all(now < then - 0.1 for now, then in pairs[:4])
    assert pairs[4][0] == pytest.approx(pairs[4][1], abs=0.01)
    assert rows["unused"] == pytest.approx(rows["aligned"], abs=0.02)
    assert max(rows["noise"]) < 0.05
    assert max(map(max, table(chance).values())) < 0.05
    by_flavour = table(flavours)
    assert all(by_flavour[world][1] < 0.5 * by_flavour[world][0] for world in ("aligned", "unused"))


def test_watch_the_latents_while_you_train(execute):
    _, training, curves, table, tracker = execute("watch_training.ipynb")
    lines = printed(training).splitlines()
    assert "passes of the model" in lines[0]
    assert [line.split()[0] for line in lines[1:]] == ["0", "500", "1000", "1500"]
    middle, last = (json.loads(line.partition(" ")[2].replace("'", '"')) for line in lines[2::2])
    assert middle["latents/passive"] == 0
    assert middle["explained_variance"] > 0.5
    assert last["latents/passive"] == 6
    assert last["kl/total"] < 0.1
    assert len(data(curves, PICTURE)) == 1
    assert data(table, TEXT)[0].count("\n") == 17
    progress, figure = tracker  # 300 steps are one line, updated in place
    assert "digits: step 300 of 300" in progress["data"][TEXT]
    assert PICTURE in figure["data"]


def test_every_notebook_is_run_here_and_stored_without_outputs():
    text = Path(__file__).read_text()
    files = sorted(EXAMPLES.glob("*.ipynb"))
    assert len(files) == 3
    for file in files:
        assert f'execute("{file.name}")' in text
        assert file.name in (EXAMPLES / "README.md").read_text()
        for cell in nbformat.read(file, 4).cells:
            if cell.cell_type == "code":
                assert cell.outputs == []
                assert cell.execution_count is None
