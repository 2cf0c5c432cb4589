"""Progress in notebooks: one line below the cell, which is updated in place."""

import sys
from types import SimpleNamespace

import pytest

import zscope as zs
from zscope.data.fetching import progress_bar
from zscope.experiments.sweeps.progress import NotebookCounts
from zscope.experiments.sweeps.progress import show as show_sweep
from zscope.experiments.whole import Whole
from zscope.notebook import Line, cell, in_notebook
from zscope.report.progress import show_progress
from zscope.training.progress import NotebookBar, show


class Shell:
    """What a kernel gives: it publishes what is displayed."""

    def __init__(self):
        self.published = []
        self.kernel = SimpleNamespace(get_parent=lambda: {"metadata": {"cellId": "b2"}})
        self.display_pub = self

    def publish(self, content, *, transient, update):
        self.published.append((content["text/plain"], transient["display_id"], update))
        self.html = content["text/html"]


@pytest.fixture
def shell(monkeypatch):
    shell = Shell()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    clock = SimpleNamespace(monotonic=lambda: next(clock.ticks), ticks=iter(range(10**6)))
    monkeypatch.setattr("zscope.notebook.time", clock)  # each look is a second later
    return shell


def texts(shell):
    """What was shown, which must be one line, displayed once and then updated."""
    assert len({name for _, name, _ in shell.published}) == 1
    assert [update for *_, update in shell.published] == [False] + [True] * (
        len(shell.published) - 1
    )
    return [text for text, *_ in shell.published]


def test_only_a_kernel_is_a_notebook(shell, monkeypatch):
    assert in_notebook()
    assert cell() == "b2"
    terminal = SimpleNamespace()  # IPython's shell in a terminal has no kernel
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: terminal))
    assert not in_notebook()
    assert cell() == ""
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert not in_notebook()
    monkeypatch.delitem(sys.modules, "IPython")
    assert not in_notebook()


def test_a_line_is_not_updated_more_often_than_can_be_read(shell, monkeypatch):
    times = iter([0.0, 0.0, 0.1, 0.5, 0.5, 0.6])
    clock = SimpleNamespace(monotonic=lambda: next(times))
    monkeypatch.setattr("zscope.notebook.time", clock)
    line = Line()
    line.show("a <b>", 0.25)
    assert "a &lt;b&gt;" in shell.html
    assert 'value="0.2500"' in shell.html
    assert "color" not in shell.html  # light or dark, as the notebook is
    line.show("too early")
    line.show("later")
    line.show("last", last=True)
    assert texts(shell) == ["a <b>", "later", "last"]


def test_training_shows_its_steps(shell, capsys):
    model = zs.models.build("vae", shape=(3,), latents=2, hidden=(8,))
    x = zs.data.load("helix").subset(range(64)).batch(slice(None))
    zs.train(model, x, steps=6, log_every=2)
    shown = texts(shell)
    assert len(shown) == 7  # with a clock that lets every step through
    assert "step 0 of 6  loss" in shown[0]
    assert "step 6 of 6" in shown[-1]
    assert "active" in shown[-1]
    assert isinstance(show(None, 5, 0, "x"), NotebookBar)
    shell.published.clear()
    zs.train(model, x, steps=2, progress=False)
    assert not shell.published


def test_assays_fetching_and_other_long_work_show_one_line_each(shell):
    zs.assay(lambda_model(), zs.data.load("helix"), names=["effective-rank", "holes"], samples=64)
    shown = texts(shell)
    assert shown[0] == "encoding the data"
    assert "(1 of 2" in shown[1]
    assert shown[-1] == "measured"
    shell.published.clear()
    with progress_bar("digits.zip", 4_000_000) as advance:
        advance(1_000_000)
        advance(3_000_000)
    assert texts(shell) == ["digits.zip: 1.0 of 4.0 MB", "digits.zip: 4.0 of 4.0 MB"]
    shell.published.clear()
    work = Whole(None, {"training": 3.0, "measuring": 1.0})
    with work.part("training") as tick:
        tick(0.5)
    assert 'value="0.7500"' in shell.html
    assert texts(shell)[-1].startswith("training")


def lambda_model():
    return zs.wrap(lambda x: x[:, :2], lambda z: z @ z.new_ones(2, 3), latents=2)


def test_a_sweep_shows_its_counts(shell):
    status = SimpleNamespace(done=["a"], total=4, counts=lambda: "1 of 4 done")
    sweep = SimpleNamespace(status=lambda: status)
    watch = show_sweep(sweep, None)
    assert isinstance(watch, NotebookCounts)
    with watch:
        watch.tick()
    assert set(texts(shell)) == {"1 of 4 done"}
    assert 'value="0.2500"' in shell.html


def test_what_is_given_or_refused_is_not_shown_as_a_line(shell):
    def own(step):
        return None

    for progress in (own, False):
        with show_progress(progress) as watch:
            assert watch is (own if progress else None)
    assert not shell.published
