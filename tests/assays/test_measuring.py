import inspect
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from worlds import grid, identity
from zscope.assays.measuring import NEEDS, run, unmet

import zscope as zs
from zscope.assays import CATALOGUE, Entry, measure
from zscope.data.dataset import from_arrays
from zscope.errors import ConfigError, Undefined
from zscope.results import Result


@dataclass(frozen=True, eq=False)
class Draws(Result):
    numbers: torch.Tensor
    option: int


def drawing(codes, *, generator=None, option=0):
    return Draws(torch.rand(3, generator=generator), option)


def failing(codes):
    raise Undefined("failing: these codes have no answer.")


@pytest.fixture
def two_assays(monkeypatch):
    for name in list(CATALOGUE):
        monkeypatch.delitem(CATALOGUE, name)
    entries = [
        Entry("drawing", "?", f"{__name__}:drawing", ("codes",), options={"option": 5}),
        Entry("failing", "?", f"{__name__}:failing", ("codes",)),
        Entry("again", "?", f"{__name__}:drawing", ("codes",)),
        Entry("factored", "?", f"{__name__}:drawing", ("factors",)),
        Entry("spread", "?", f"{__name__}:drawing", ("codes",), needs=("spread",)),
    ]
    for entry in entries:
        monkeypatch.setitem(CATALOGUE, entry.name, entry)


def recorded(*, factors=None, std=None, prior=None):
    data = from_arrays(torch.randn(50, 2, generator=torch.Generator().manual_seed(0)), factors)
    return zs.record(identity(2, std=std, prior=prior), data)


@pytest.mark.usefixtures("two_assays")
def test_asked_for_all_every_assay_has_a_result_or_a_reason():
    results = measure(recorded())
    assert list(results) == ["drawing", "failing", "again", "factored", "spread"]
    assert isinstance(results["drawing"], Draws)
    assert results["drawing"].option == 5
    assert "no answer" in str(results["failing"])
    assert "no factors were recorded" in str(results["factored"])
    assert "gives no spread" in str(results["spread"])


@pytest.mark.usefixtures("two_assays")
@pytest.mark.parametrize("name", ["failing", "factored", "spread"])
def test_asked_for_by_name_an_assay_that_does_not_apply_raises(name):
    with pytest.raises(Undefined, match=name):
        measure(recorded(), [name])


@pytest.mark.usefixtures("two_assays")
def test_the_seed_and_the_name_alone_decide_the_draws():
    alone = measure(recorded(), ["again"])["again"].numbers
    together = measure(recorded(), ["drawing", "again"])
    assert torch.equal(alone, together["again"].numbers)
    assert not torch.equal(alone, together["drawing"].numbers)
    assert not torch.equal(alone, measure(recorded(), ["again"], seed=1)["again"].numbers)


@pytest.mark.usefixtures("two_assays")
def test_progress_names_each_assay_before_it_runs():
    said = []
    measure(recorded(), ["again", "drawing"], progress=lambda *now: said.append(now))
    assert said == [("again", 0, 2), ("drawing", 1, 2)]


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"'response-matric'.*response-matrix"):
        measure(recorded(), ["response-matric"])


def test_every_entry_can_be_loaded_asks_a_question_and_takes_what_it_says():
    for name, entry in CATALOGUE.items():
        assert name == entry.name
        assert entry.question.endswith("?"), name
        assert set(entry.needs) <= set(NEEDS), name
        function = entry.load()
        assert getattr(zs.assays, entry.attribute) is function
        assert entry.cite.strip(), name
        positional = [taken for taken in entry.takes if "=" not in taken]
        keywords = {taken.split("=")[0] for taken in entry.takes if "=" in taken}
        if not {"a call", "two models"} & set(entry.needs):
            bound = inspect.signature(function).bind(
                *positional, **dict.fromkeys(keywords | set(entry.options))
            )
            assert bound.args


def test_scores_take_the_kinds_of_factors_from_the_data_where_these_know_them():
    factors = grid(10, 6).repeat(2, 0)
    x = factors.astype("float32")
    told = from_arrays(x, factors, factor_kinds=("ordinal", "categorical"))
    silent = from_arrays(x, factors)
    for data, kinds in ((told, ["ordinal", "categorical"]), (silent, ["categorical"] * 2)):
        recording = zs.record(zs.wrap(lambda x: x, lambda z: z, latents=2), data)
        assert measure(recording, ["sap"])["sap"].kinds == kinds
    half = zs.record(zs.wrap(lambda x: x, lambda z: z, latents=2), told, samples=60)
    assert measure(half, ["mig"])["mig"].kinds == ["ordinal", "categorical"]


def test_unmet_needs_are_told_from_met_ones():
    entry = Entry("x", "?", "x:x", ("codes",), needs=("two factors", "prior", "two latents"))
    rich = recorded(factors=grid(10, 5), prior="normal")
    assert unmet(entry, rich) is None
    assert "fewer than two" in unmet(entry, recorded(factors=grid(50, 1)[:, :1], prior="normal"))
    assert "no prior" in unmet(entry, recorded(factors=grid(10, 5)))
    with pytest.raises(Undefined, match="x: the model has no prior"):
        run(entry, recorded(factors=grid(10, 5)))


RESPONSES = [name for name, entry in CATALOGUE.items() if ".responses." in entry.function]


class Pictures(zs.Autoencoder):
    """A small variational autoencoder of 8 x 8 pictures, not trained."""

    latents = 3

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, 6))
            self.decoder = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Unflatten(1, (1, 8, 8)))

    def encode(self, x, auxiliary=None):
        mean, log_variance = self.encoder(x).chunk(2, 1)
        return zs.Posterior(3 * mean, (log_variance / 2).exp())

    def decode(self, z):
        return self.decoder(z)


def pictures_with_factors():
    generator = torch.Generator().manual_seed(1)
    factors = grid(6, 5, 4)
    mix = torch.randn(3, 64, generator=generator)
    values = torch.from_numpy(factors).float()
    return from_arrays((values @ mix).tanh().reshape(-1, 1, 8, 8).numpy(), factors)


@pytest.mark.parametrize("kind", ["variational", "deterministic", "foreign"])
def test_every_response_assay_runs_saves_and_draws_for_every_kind_of_model(kind):
    import matplotlib.pyplot as plt

    model = Pictures()
    if kind == "deterministic":
        model.prior = None
        model.encode = lambda x, auxiliary=None: zs.Posterior(3 * model.encoder(x)[:, :3])
    if kind == "foreign":
        inner = model
        model = zs.wrap(lambda x: 3 * inner.encoder(x)[:, :3], inner.decoder)
    recording = zs.record(model, pictures_with_factors())
    results = {name: run(CATALOGUE[name], recording) for name in RESPONSES}
    assert results["structure-score"].distribution == (
        "prior" if kind == "variational" else "hybrid"
    )
    for result in results.values():
        assert result.summary()
        assert result.to_dict()["kind"] == type(result).__name__
        if kind == "variational":  # the others draw the same figures
            assert result.plot() is not None
            plt.close("all")


def test_scores_call_factors_by_the_names_that_the_data_give_them():
    x = torch.randn(300, 2, generator=torch.Generator().manual_seed(0))
    factors = torch.stack([x[:, 0] > 0, torch.zeros(300), x[:, 1] > 0.5], 1).long().numpy()
    data = from_arrays(x, factors, factor_names=("left", "still", "right"))
    found = measure(zs.record(identity(2), data), ["mig"])["mig"]
    assert found.factors == [0, 2]  # what does not vary is left out
    assert found.factor_names == ["left", "right"]
    drawn = found.plot().get_xticklabels()
    assert [label.get_text() for label in drawn] == ["left", "right"]
    assert zs.assays.mig(x, factors).factor_names is None
