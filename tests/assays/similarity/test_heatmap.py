"""Activations by hooks, and the layer-by-layer heatmap."""

import pytest
import torch
from torch import nn
from worlds import random_rotation

from zscope.assays.similarity.activations import activations
from zscope.assays.similarity.cka import cka
from zscope.assays.similarity.heatmap import prepare_layers, similarity_heatmap
from zscope.errors import ConfigError, Undefined
from zscope.randomness import named_generator
from zscope.wrapping import wrap


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def seeded(module: nn.Module, seed: int = 0) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.5
    return module


def linear(inputs: int, outputs: int) -> nn.Module:
    return nn.utils.skip_init(nn.Linear, inputs, outputs)


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.utils.skip_init(nn.Conv2d, 1, 3, 3)
        self.act = nn.ReLU(inplace=True)
        self.flat = nn.Flatten()
        self.mean = linear(3 * 4 * 4, 2)
        self.spread = linear(3 * 4 * 4, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.flat(self.act(self.conv(x)))
        return self.mean(h), self.spread(h).tanh()


def model(seed: int = 0):
    decoder = nn.Sequential(linear(2, 9), nn.Tanh(), linear(9, 36), nn.Unflatten(1, (1, 6, 6)))
    return wrap(seeded(Encoder(), seed), seeded(decoder, seed + 1))


def test_every_layer_of_a_foreign_model_is_read_in_the_order_of_the_flow():
    autoencoder, x = model(), normal(50, 1, 6, 6)
    layers = activations(autoencoder, x, batch=16)
    assert list(layers) == [
        "input", "encoder.conv", "encoder.mean", "encoder.spread", "mean", "variance", "sampled",
        "decoder.0", "decoder.2", "output",
    ]  # fmt: skip
    assert {name: tuple(v.shape) for name, v in layers.items()}["encoder.conv"] == (50, 48)
    # The activation is part of its layer, also when it works in place.
    assert (layers["encoder.conv"] >= 0).all()
    assert (layers["decoder.0"].abs() <= 1).all()
    with torch.no_grad():
        expected = autoencoder.encoder.conv(x).relu().flatten(1)
    torch.testing.assert_close(layers["encoder.conv"], expected)
    torch.testing.assert_close(layers["mean"], layers["encoder.mean"])
    torch.testing.assert_close(layers["output"], layers["decoder.2"])


def test_the_model_is_left_as_it_was_found():
    autoencoder = model().train()
    activations(autoencoder, normal(5, 1, 6, 6))
    assert autoencoder.training
    assert all(not m._forward_hooks for m in autoencoder.modules())


def test_a_module_used_twice_is_seen_twice_and_functions_show_their_ends():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = seeded(linear(3, 3))

        def forward(self, x):
            return self.layer(self.layer(x))

    autoencoder = wrap(Twice(), lambda z: 2 * z)
    layers = activations(autoencoder, normal(8, 3))
    assert list(layers) == ["input", "encoder.layer", "encoder.layer#2", "mean", "output"]
    torch.testing.assert_close(layers["encoder.layer#2"], layers["mean"])


def test_each_cell_is_the_cka_of_its_two_layers(monkeypatch):
    monkeypatch.setattr("zscope.assays.similarity.heatmap.BLOCK_BYTES", 1)  # many small blocks
    x = normal(60, 1, 6, 6)
    first, second = activations(model(0), x), activations(model(7), x)
    for debiased in (True, False):
        result = similarity_heatmap(first, second, debiased=debiased)
        assert result.rows == list(first)
        assert result.matrix.shape == (10, 10)
        for i, a in enumerate(result.rows):
            for j, b in enumerate(result.columns):
                expected = cka(first[a], second[b], debiased=debiased).score
                assert result.matrix[i, j].item() == pytest.approx(expected, abs=2e-6)


def test_layers_wider_than_the_samples_are_kept_as_gram_matrices():
    first = {"wide": normal(30, 400), "narrow": normal(30, 4, seed=1)}
    second = {"wide": normal(30, 300, seed=2) + first["wide"][:, :1], "narrow": first["narrow"]}
    ready = prepare_layers(second)
    assert ready["wide"].rows is None
    assert ready["wide"].gram.shape == (30, 30)
    result = similarity_heatmap(first, ready, null=True)
    for i, a in enumerate(result.rows):
        for j, b in enumerate(result.columns):
            expected = cka(first[a], second[b]).score
            assert result.matrix[i, j].item() == pytest.approx(expected, abs=2e-6)
    order = torch.randperm(30, generator=named_generator(0, "similarity-heatmap"))
    expected = cka(first["narrow"], second["wide"][order]).score
    assert result.null[1, 0].item() == pytest.approx(expected, abs=2e-6)


def test_a_model_compared_with_itself_has_ones_on_the_diagonal():
    layers = activations(model(), normal(60, 1, 6, 6))
    result = similarity_heatmap(layers)
    torch.testing.assert_close(result.matrix.diagonal(), torch.ones(10).double())
    torch.testing.assert_close(result.matrix, result.matrix.T)
    assert dict(result.summary())["mean"] == "1.000"


def test_shuffled_samples_read_zero_and_an_untrained_model_is_a_control():
    x = normal(400, 1, 6, 6)
    first, second, raw = (activations(model(s), x) for s in (0, 7, 9))
    result = similarity_heatmap(first, second, control=raw, null=True)
    assert result.null.abs().max() < 0.05
    expected = cka(first["mean"], raw["mean"]).score
    row, column = result.rows.index("mean"), list(raw).index("mean")
    assert result.control[row, column].item() == pytest.approx(expected, abs=1e-5)


def test_several_runs_are_averaged_over_all_pairs_without_a_run_and_itself():
    x = normal(80, 1, 6, 6)
    runs = [activations(model(s), x) for s in (0, 1, 2)]
    both = similarity_heatmap(runs[:2], runs[1:])
    pairs = [similarity_heatmap(a, b).matrix for a in runs[:2] for b in runs[1:]]
    torch.testing.assert_close(both.matrix, torch.stack(pairs).mean(0), atol=1e-6, rtol=0)
    alone = similarity_heatmap(runs[:2])
    expected = (similarity_heatmap(runs[0], runs[1]).matrix
                + similarity_heatmap(runs[1], runs[0]).matrix) / 2  # fmt: skip
    torch.testing.assert_close(alone.matrix, expected, atol=1e-6, rtol=0)


def test_layers_that_do_not_vary_are_left_out():
    layers = {"x": normal(20, 3), "still": torch.full((20, 2), 0.1)}
    assert similarity_heatmap(layers).rows == ["x"]
    with pytest.raises(Undefined, match="no layer that varies"):
        similarity_heatmap({"still": torch.ones(20, 2)})


def test_different_samples_are_refused():
    with pytest.raises(Undefined, match=r"\[19, 20\] samples"):
        similarity_heatmap({"a": normal(20, 3)}, {"a": normal(19, 3)})
    with pytest.raises(Undefined, match="NaN"):
        similarity_heatmap({"a": torch.full((5, 2), float("nan"))})


def test_two_models_that_learned_nothing_share_no_noise():
    class Blank(torch.nn.Module):  # every code is the prior, whatever is seen
        def __init__(self, shift):
            super().__init__()
            self.shift = torch.nn.Parameter(torch.tensor(shift))

        def forward(self, x):
            return self.shift + 1e-3 * x, torch.zeros_like(x)

    x = normal(400, 3)
    blank = [wrap(Blank(shift), torch.nn.Identity(), example=x[:2]) for shift in (0.0, 0.1)]
    first, second = (activations(one, x)["sampled"] for one in blank)
    assert abs(cka(first, second).score) < 0.05
    assert torch.equal(first, activations(blank[0], x)["sampled"])  # and is repeatable
    shared = [
        activations(one, x, generator=torch.Generator().manual_seed(1))["sampled"] for one in blank
    ]
    assert cka(*shared).score > 0.99  # what is avoided


def test_of_many_samples_some_are_drawn_and_the_result_says_so():
    x = normal(3000, 6)
    layers = {"same": x @ random_rotation(6).float(), "other": normal(3000, 5, seed=1)}
    whole = similarity_heatmap({"x": x}, layers)
    some = similarity_heatmap({"x": x}, layers, samples=500)
    assert (whole.samples, whole.flags) == (3000, [])
    assert some.samples == 500
    assert some.flags == ["Compared on 500 of 3,000 samples, drawn at random."]
    assert some.matrix[0, 0] == pytest.approx(1, abs=1e-5)
    assert some.matrix[0, 1] == pytest.approx(0, abs=0.05)
    assert "drawn at random" in repr(some)


def test_prepared_layers_are_taken_as_they_are():
    layers = prepare_layers({"x": normal(300, 6)})
    assert similarity_heatmap(layers, samples=100).samples == 300


def test_layers_of_different_lengths_are_refused_however_many_there_are():
    x = normal(300, 6)
    with pytest.raises(Undefined, match=r"layers of \[200, 300\] samples"):
        similarity_heatmap({"x": x, "y": x[:200]}, samples=100)
    with pytest.raises(ConfigError, match="samples=3"):
        similarity_heatmap({"x": x}, samples=3)
