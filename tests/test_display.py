"""What a cell of a notebook shows of each object: escaped, small, and in the notebook's colours."""

import re

import pytest
import torch

import zscope as zs

X = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))


def cells(html):
    """The texts of the cells of all tables, row by row."""
    rows = re.findall(r"<tr>(.*?)</tr>", html)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]


def model():
    return zs.models.build("vae", shape=(4,), latents=3, hidden=(8,))


def test_a_model_shows_what_is_known_of_it():
    lines = dict(cells(model()._repr_html_()))
    count = sum(each.numel() for each in model().parameters())
    assert lines == {"model": "vae", "latents": "3", "prior": "normal", "parameters": f"{count:,}"}
    with torch.random.fork_rng():
        unused = zs.wrap(torch.nn.Linear(4, 2), torch.nn.Linear(2, 4))
        halves = torch.nn.Conv2d(3, 4, 4, 4), torch.nn.ConvTranspose2d(4, 3, 4, 4)
    assert dict(cells(unused._repr_html_()))["latents"] == "not known before its first use"
    unused.encode(X)
    lines = dict(cells(unused._repr_html_()))
    assert (lines["latents"], lines["prior"], lines["parameters"]) == ("2", "none", "22")
    maps = zs.wrap(*halves, example=torch.zeros(2, 3, 8, 8))
    assert "layout" in dict(cells(maps._repr_html_()))


def test_a_posterior_shows_the_mean_and_spread_of_each_latent():
    posterior = zs.Posterior(torch.tensor([[1.0, 0.0], [3.0, 0.0]]), torch.full((2, 2), 0.5))
    header, first, second = cells(posterior._repr_html_())
    assert header == ["latent", "mean", "standard deviation of the means", "mean variance"]
    assert first == ["0", "2", "1", "0.25"]
    assert second == ["1", "0", "0", "0.25"]
    assert "2 samples x 2 latents, diagonal" in posterior._repr_html_()
    points = cells(zs.Posterior(torch.zeros(5, 40))._repr_html_())
    assert len(points) == 18
    assert points[-1][0] == "and 24 more"
    assert len(points[0]) == 3  # a deterministic one has no variance


def test_losses_show_their_terms_and_the_total():
    losses = zs.Losses(torch.tensor(3.5), {"reconstruction": torch.tensor(3.0)})
    rows = [["loss", "nats per sample"], ["reconstruction", "3"], ["total", "3.5"]]
    assert cells(losses._repr_html_()) == rows


@pytest.fixture(scope="module")
def shown():
    """Everything that a user meets."""
    data = zs.data.load("helix")
    with torch.random.fork_rng():
        run = zs.train(zs.models.build("vae", shape=(3,), latents=2, hidden=(8,)), data, steps=2)
    report = zs.assay(run.model, data, names=["variable-types", "effective-rank"], samples=64)
    monitor = zs.Monitor(run.model, data, samples=64)
    monitor(0)
    recording = zs.record(run.model, data, samples=64)
    things = [
        *(data, run, run.model, recording, recording.posterior, report, monitor),
        *(*report.findings, *report.results.values(), run.model.losses(X[:, :3])),
    ]
    return {f"{number} {type(each).__name__}": each for number, each in enumerate(things)}


def test_everything_has_a_page_in_the_colours_of_the_notebook(shown):
    for name, each in shown.items():
        html = each._repr_html_()
        assert "<" in html, name
        assert not re.search(r"color|background|#[0-9a-f]{3,6}\b", html), name


def test_a_finding_shows_its_evidence_and_escapes_what_it_quotes(shown):
    finding = next(each for name, each in shown.items() if "Finding" in name)
    assert finding.evidence.split(".")[0] in finding._repr_html_()
    from zscope.report.findings import Finding

    html = Finding("a <b> & c", "seen", "do this", table=(("latent",), ("<3>",)))._repr_html_()
    assert "a &lt;b&gt; &amp; c" in html
    assert "&lt;3&gt;" in html
    assert "worth knowing" in html
    assert "<br>seen<br>do this" in html
