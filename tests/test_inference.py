"""Sequences of layers give the same values when they run faster, and are left as they were."""

import pytest
import torch
from torch import nn
from torch.func import jvp, vmap

import zscope as zs
from zscope.autoencoder import evaluation
from zscope.inference import faster_layers
from zscope.models.layers import Crop


def norm(channels: int, **options) -> nn.BatchNorm2d:
    layer = nn.BatchNorm2d(channels, **options)
    with torch.no_grad():
        layer.running_mean.normal_()
        layer.running_var.uniform_(0.2, 3)
        for weights in layer.parameters():
            weights.normal_()
    return layer


class Flipped(nn.Module):
    """A layer that is not known, and that needs plain order."""

    def forward(self, x):
        return x.view(len(x), -1).flip(1).view(x.shape)


def up(inputs, outputs, kernel=4, stride=2, padding=1, **options):
    return nn.ConvTranspose2d(inputs, outputs, kernel, stride, padding, **options)


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def sequences() -> dict[str, list[nn.Module]]:
    return {
        "convolutions": [nn.Conv2d(3, 8, 4, 2, 1), nn.ReLU(), nn.Conv2d(8, 5, 3), nn.Sigmoid()],
        "one colour": [nn.Conv2d(3, 1, 3), nn.Tanh(), nn.Conv2d(1, 4, 3), nn.ELU()],
        "norms": [nn.Conv2d(3, 8, 3), norm(8), nn.LeakyReLU(0.3), up(8, 8), norm(8), nn.ReLU()],
        "plain norm": [nn.Conv2d(3, 8, 3, bias=False), norm(8, affine=False), nn.GELU()],
        "norm of groups": [
            nn.Conv2d(3, 8, 3), up(8, 12, groups=4, bias=False), norm(12), nn.ReLU(),
        ],
        "norm first": [norm(3), nn.Conv2d(3, 2, 3)],
        "kernel of 4": [nn.Conv2d(3, 8, 3), up(8, 3), nn.Sigmoid()],
        "kernel of 3": [up(3, 1, 3, output_padding=1), norm(1), nn.Sigmoid()],
        "four channels": [up(3, 4), nn.ReLU(), up(4, 2, bias=False)],
        "other strides": [up(3, 2, 4, 1), up(2, 2, 3), up(2, 3, 5, 2, 2), up(3, 2, 4, 2, 0)],
        "dilated": [up(3, 2, 4, 2, 1, dilation=2), nn.Conv2d(2, 2, 3, padding_mode="reflect")],
        "pooling": [nn.MaxPool2d(2), nn.ReLU(), nn.Upsample(scale_factor=2), nn.Conv2d(3, 2, 1)],
        "unknown": [nn.Conv2d(3, 8, 3), Flipped(), nn.ReLU(), nn.Conv2d(8, 2, 3), Flipped()],
        "nested": [nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), nn.Sequential(up(8, 1))],
        "flat": [nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 6), nn.ReLU()],
        "views": [nn.Identity(), nn.Dropout(), nn.ReLU(), nn.Flatten(), nn.Tanh()],
        "nothing known": [Flipped(), nn.Softmax(1)],
    }  # fmt: skip


with torch.random.fork_rng():
    NAMES = list(sequences())


@pytest.mark.parametrize("name", NAMES)
def test_the_values_are_those_of_the_layers(name):
    model = nn.Sequential(*sequences()[name]).eval()
    x = torch.randn(5, 3, 10, 10)
    given, state = x.clone(), {key: part.clone() for key, part in model.state_dict().items()}
    with torch.no_grad():
        expected = model(x)
        with faster_layers(model):
            output = model(x)
            one = model(x[:1])
    torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(one, expected[:1], rtol=1e-5, atol=1e-5)
    assert output.stride() == expected.stride()
    assert output.is_contiguous()
    assert torch.equal(x, given)
    assert all(torch.equal(part, state[key]) for key, part in model.state_dict().items())
    assert not any("forward" in vars(part) for part in model.modules())


def test_a_transposed_convolution_puts_each_weight_where_it_belongs():
    layer = up(1, 1, bias=False)
    model = nn.Sequential(layer, nn.Identity())
    x = torch.zeros(1, 1, 3, 3)
    x[0, 0, 1, 1] = 1
    with torch.no_grad(), faster_layers(model):
        output = model(x)
    # The pixel at (1, 1) is spread over the 4 x 4 kernel from row 2 * 1 - 1 on.
    expected = torch.zeros(6, 6)
    expected[1:5, 1:5] = layer.weight[0, 0].detach()
    assert torch.equal(output[0, 0], expected)


def test_the_faster_way_is_taken_and_left():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    seen = []
    model[0].forward = lambda x: seen.append("forward" in vars(model)) or x
    with faster_layers(model), torch.no_grad():
        model(torch.ones(1, 3))
    model(torch.ones(1, 3))
    assert seen == [True, False]


def test_a_sequence_with_a_forward_of_its_own_keeps_it():
    inner = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    inner.forward = lambda x: x + 1
    model = nn.Sequential(nn.Identity(), inner)
    with faster_layers(model), torch.no_grad():
        assert torch.equal(model(torch.ones(1, 3)), torch.full((1, 3), 2.0))
    assert "forward" in vars(inner)


def test_it_is_left_when_the_model_raises_and_when_blocks_are_nested():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    with pytest.raises(RuntimeError), evaluation(model), evaluation(model):
        model(torch.ones(1, 4))
    assert "forward" not in vars(model)


def test_changed_weights_are_seen():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), norm(4), up(4, 1)).eval()
    x = torch.randn(2, 1, 8, 8)
    with torch.no_grad(), faster_layers(model):
        before = model(x)
        for part in (*model.parameters(), model[1].running_mean):
            part.add_(0.5)
        after = model(x)
    with torch.no_grad():
        torch.testing.assert_close(after, model(x), rtol=1e-5, atol=1e-5)
    assert (after - before).abs().max() > 0.1


def test_hooks_are_called_with_what_the_layers_get():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3)).eval()
    x = torch.randn(2, 3, 8, 8)
    seen = []
    handle = model[1].register_forward_hook(
        lambda _, inputs, output: seen.append((*inputs, output))
    )
    with torch.no_grad():
        model(x)
        with faster_layers(model):
            model(x)
    handle.remove()
    for plain, faster in zip(*seen, strict=True):
        torch.testing.assert_close(faster, plain)
        assert faster.is_contiguous()
    assert (seen[1][0] < 0).any()  # not overwritten by the activation


def test_a_hook_for_all_modules_is_called():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    seen = []
    hook = torch.nn.modules.module.register_module_forward_hook(
        lambda layer, *_: seen.append(type(layer))
    )
    with hook, torch.no_grad(), faster_layers(model):
        model(torch.ones(1, 3))
    assert seen == [nn.Linear, nn.ReLU, nn.Sequential]


def test_statistics_of_a_batch_are_those_of_the_batch():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), norm(4), nn.ReLU())  # in training mode
    x, before = torch.randn(4, 1, 8, 8), model[1].running_mean.clone()
    with torch.no_grad(), faster_layers(model):
        output = model(x)
    assert not torch.equal(before, model[1].running_mean)
    with torch.no_grad():
        torch.testing.assert_close(output, model(x))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_precisions_run_as_they_are(dtype):
    model = nn.Sequential(nn.Conv2d(1, 4, 3), norm(4), nn.ReLU(), up(4, 1)).to(dtype).eval()
    x = torch.randn(2, 1, 8, 8, dtype=dtype)
    with torch.no_grad():
        expected = model(x)
        with faster_layers(model):
            assert torch.equal(model(x), expected)


def test_automatic_precision_is_that_of_the_layers():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), norm(4), nn.ReLU(), up(4, 1)).eval()
    x = torch.randn(2, 1, 8, 8)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        expected = model(x)
        with faster_layers(model):
            output = model(x)
    assert output.dtype == expected.dtype == torch.bfloat16
    assert torch.equal(output, expected)


def test_derivatives_are_those_of_the_layers():
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Unflatten(1, (2, 2, 2)), up(2, 1)).eval()
    z, step = torch.randn(4, 3), torch.randn(4, 3)
    expected = jvp(model, (z,), (step,))
    rows = vmap(lambda row: model(row[None])[0])(z)
    with evaluation(model):
        for got, plain in zip(jvp(model, (z,), (step,)), expected, strict=True):
            torch.testing.assert_close(got, plain)
        torch.testing.assert_close(vmap(lambda row: model(row[None])[0])(z), rows)
    with evaluation(model, gradients=True):
        z.requires_grad_()
        model(z).sum().backward()
    assert z.grad is not None
    assert z.grad.abs().sum() > 0


def test_layers_of_a_derived_class_and_with_parametrisations_run_as_they_are():
    class Doubled(nn.Conv2d):
        def forward(self, x):
            return 2 * super().forward(x)

    spectral = nn.utils.parametrizations.spectral_norm(nn.Conv2d(4, 4, 3))
    model = nn.Sequential(Doubled(1, 4, 3), norm(4), spectral, nn.ReLU()).eval()
    x = torch.randn(2, 1, 8, 8)
    with torch.no_grad():
        expected = model(x)
        with faster_layers(model):
            torch.testing.assert_close(model(x), expected)


def test_what_a_layer_keeps_is_not_overwritten():
    class Kept(nn.Module):
        def forward(self, x):
            self.kept = x - 1
            return self.kept

    model = nn.Sequential(nn.Linear(3, 3), Kept(), nn.ReLU())
    with torch.no_grad(), faster_layers(model):
        model(torch.randn(9, 3))
    assert (model[1].kept < 0).any()


class Rows(nn.Module):
    """Takes a row of each sample by a view, as most networks do, which needs plain order."""

    def forward(self, x):
        return x.view(len(x), -1)


@pytest.mark.parametrize(
    "layers",
    [
        [nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(2)],
        [nn.Conv2d(2, 4, 3), nn.Unflatten(1, (2, 2)), nn.ReLU()],
        [nn.Conv2d(2, 4, 3), nn.Flatten(2), Rows(), nn.ReLU()],
        [nn.Conv2d(2, 4, 3), nn.ReLU(), Rows()],
        [nn.ReLU(), nn.MaxPool2d(2)],
    ],
    ids=["flat", "five axes", "inside", "pictures", "pooled"],
)
def test_results_can_be_viewed_where_those_of_the_layers_can(layers):
    model = nn.Sequential(*layers).eval()
    whole = torch.randn(4, 4, 12, 12)
    parts = {
        "contiguous": whole[:, :2].contiguous(),
        "colours": whole[:, 1:3],
        "columns": whole[:, :2].chunk(2, 3)[0],
        "pixels": whole[:, :2, ::2, ::2],
        "turned": whole[:, :2].transpose(2, 3),
        "channels last": whole[:, :2].contiguous(memory_format=torch.channels_last),
    }
    for name, x in parts.items():
        with torch.no_grad():
            try:
                expected = model(x)
                expected.view(len(x), -1)
            except RuntimeError:
                assert name == "channels last" or isinstance(layers[0], nn.ReLU), name
                continue
            with faster_layers(model):
                output = model(x)
        torch.testing.assert_close(output.view(len(x), -1), expected.view(len(x), -1))


@pytest.mark.parametrize(
    "layers",
    [
        [nn.ReLU(inplace=True), nn.Tanh()],
        [nn.SiLU(inplace=True), nn.Sigmoid()],
        [Crop((5, 5)), nn.ReLU()],
        [Crop((8, 8)), nn.ReLU(inplace=True), nn.Tanh()],
        [nn.ReLU(), nn.Tanh()],
    ],
    ids=["relu", "silu", "crop", "crop in place", "neither"],
)
def test_what_is_given_is_overwritten_only_by_layers_that_do_so(layers):
    model = nn.Sequential(*layers)
    x = torch.randn(3, 2, 8, 8)
    plain, faster = x.clone(), x.clone()
    with torch.no_grad():
        expected = model(plain)
        with faster_layers(model):
            output = model(faster)
    torch.testing.assert_close(output, expected)
    assert torch.equal(plain, faster)


def test_what_a_hook_is_given_is_not_overwritten_after_a_crop():
    model = nn.Sequential(up(2, 2), Crop((7, 7)), nn.ReLU())
    seen = []
    model[0].register_forward_hook(lambda *given: seen.append(given[2]))
    with torch.no_grad(), faster_layers(model):
        model(torch.randn(3, 2, 4, 4))
    assert (seen[0] < 0).any()


def test_places_of_a_pooling_layer_are_returned_too():
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.MaxPool2d(2, return_indices=True))
    x = torch.randn(2, 2, 10, 10)
    with torch.no_grad():
        expected = model(x)
        with faster_layers(model):
            output = model(x)
    for got, plain in zip(output, expected, strict=True):
        torch.testing.assert_close(got, plain)
        assert got.is_contiguous()


def test_the_input_may_be_given_by_name():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    with torch.no_grad(), faster_layers(model):
        assert torch.equal(model(input=torch.ones(1, 3)), model(torch.ones(1, 3)))


def test_wrong_shapes_raise_what_the_layer_raises():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), up(4, 1))
    with torch.no_grad():
        for x in (torch.ones(2, 4, 8, 8), torch.ones(5), torch.ones(2, 3, 1, 1)):
            with pytest.raises(RuntimeError) as plain:
                model(x)
            with faster_layers(model), pytest.raises(RuntimeError) as faster:
                model(x)
            assert str(faster.value) == str(plain.value)
        single = torch.randn(3, 8, 8)  # a picture without a batch
        with faster_layers(model):
            output = model(single)
        torch.testing.assert_close(output, model(single))


@pytest.mark.parametrize("backbone", ["locatello", "responses", "mlp", "consistency"])
def test_models_of_our_own_give_the_same_values(backbone):
    model = zs.models.build("beta-vae", shape=(3, 32, 32), latents=4, backbone=backbone).eval()
    z = torch.randn(7, 4)
    with torch.no_grad():
        expected = model.encode(model.decode(z))
    with evaluation(model):
        got = model.encode(model.decode(z))
    torch.testing.assert_close(got.mean, expected.mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(got.std, expected.std, rtol=1e-5, atol=1e-6)
