"""Operations that were recorded and shortened still do what the function does."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import zscope as zs
from zscope.training.stacking import clip_each
from zscope.training.tracing import trace


def operations(plain):
    return [node.target for node in plain.__self__.graph.nodes if node.op == "call_function"]


def layers(x, weight, bias):
    """What vmap makes of a linear layer: views as the same shape, a product with 1, and a sum."""
    product = torch.bmm(x.expand(x.shape).view(x.shape), weight.mT.mT)
    hidden = product.view(product.shape) + (bias * 1).view(len(bias), 1, -1)
    scale = torch.ones_like(hidden) / 4  # the same for all arguments
    return [hidden.relu() * scale, hidden.relu().sum(1)]


def arguments(seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in ((3, 5, 4), (3, 4, 2), (3, 2))]


def test_what_changes_nothing_is_left_out():
    plain = trace(layers, arguments(0))
    names = [str(target).removeprefix("aten.") for target in operations(plain)]
    assert names == ["view.default", "baddbmm.default", "relu.default", "mul.Tensor",
                     "sum.dim_IntList"]  # fmt: skip


@given(seed=st.integers(1, 10**6))
def test_other_arguments_give_what_the_function_gives(seed):
    plain = trace(layers, arguments(0))
    for mine, expected in zip(plain(*arguments(seed)), layers(*arguments(seed)), strict=True):
        assert torch.allclose(mine, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: [x / 2, x * -1, x.abs() ** 1.5, x.expand(2, 3, 3), x.view(9)],
        lambda x: [x.transpose(0, 1).transpose(0, 1), x.mT, x.unsqueeze(0).mT.transpose(0, 1)],
        lambda x: [torch.add(torch.bmm(x[None], x[None]), x[None], alpha=2)],
        lambda x: [torch.bmm(x[None], x[None]) + torch.ones(2, 3, 3), torch.bmm(x[None], x[None])],
        lambda x: [(p := torch.bmm(x[None], x[None])) + 1, p + x, p * p],
        lambda x: [x.clone().mul_(2), x + 1, x.clone().mul_(2).add_(x)],
        lambda x: [(x > 0) * 1, (x > 0).float() * 1.0, (x > 0) * 1.0],
        lambda x: [torch.zeros_like(x), torch.full_like(x, 3.0) + x, torch.arange(3.0)],
    ],
    ids=["near misses", "transpositions", "alpha", "larger bias", "used twice", "in place", "types",
         "constants"],
)  # fmt: skip
def test_what_changes_something_stays(function):
    first, other = (torch.randn(3, 3, generator=torch.Generator().manual_seed(k)) for k in (0, 1))
    plain = trace(function, [first])
    for mine, expected in zip(plain(other), function(other), strict=True):
        assert mine.dtype == expected.dtype
        assert mine.shape == expected.shape
        assert torch.allclose(mine, expected, rtol=1e-6, atol=1e-6)
    assert torch.equal(other, torch.randn(3, 3, generator=torch.Generator().manual_seed(1)))


def test_a_gradient_that_two_weights_share_is_clipped_once():
    shared = torch.full((2, 3), 4.0)
    weights = [torch.zeros(2, 3, requires_grad=True) for _ in range(2)]
    for each in weights:
        each.grad = shared
    clip_each(weights, 1.0)
    for each in weights:
        assert each.grad == pytest.approx(4 / (16 * 6) ** 0.5, rel=1e-5)
    assert (shared == 4).all()


def test_constants_of_the_gradient_survive_clipping():
    """The gradient of a sum of weights depends on nothing, so a trace has it as a constant."""

    class Sum(zs.Trainable):
        latents = 1

        def __init__(self, seed):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))
            self.bias = torch.nn.Parameter(torch.ones(3))

        def losses(self, x, generator=None):
            return zs.Losses((self.weight + self.bias).sum() + 0 * x.sum(), {})

    rows = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)).numpy()
    settings = {"steps": 5, "batch": 4, "rate": 0.1, "clip": 0.5}
    together = zs.train_ensemble(Sum, rows, seeds=[0, 1], optimiser="adagrad", **settings)
    alone = zs.train(Sum(0), rows, optimiser="adagrad", **settings)
    assert torch.allclose(together[0].model.weight, alone.model.weight)
    assert torch.allclose(together[0].model.bias, alone.model.bias)
