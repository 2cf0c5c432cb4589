"""Faster passes where no gradients are needed: the same layers, in another order of work.

`faster_layers(model)` is part of `evaluation`. Within it, every plain `nn.Sequential` of the model
runs its layers as follows, with values equal to about 1e-6 of their size:

- pictures are kept in channels-last order from the first convolution to the last;
- batch normalisation after a convolution is folded into the kernel;
- activations overwrite what the layer before them has made;
- a transposed convolution of stride 2 with few output channels, such as the last one of a decoder,
  is one convolution with 2 x 2 kernels, four times the channels and the results interleaved:
  PyTorch's own takes three times as long.

Nothing is kept: kernels are arranged anew in each pass, which takes far less time than the pass, so
that changed weights are always seen. A layer that is not known, has hooks, or is on another device
or in another precision runs as it is, on tensors in plain order; layers of our own say with
`any_order = True` that they take any. What was tried, and what each part
gains: docs/decisions/0017.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.modules import module as modules

__all__ = ["faster_layers"]

CHANNELS = 4
"""Transposed convolutions with more output channels are fast as they are."""

_IN_PLACE: dict[type[nn.Module], Callable[[nn.Module, Tensor], Tensor]] = {
    nn.ReLU: lambda _, x: torch.relu_(x),
    nn.LeakyReLU: lambda layer, x: F.leaky_relu_(x, layer.negative_slope),  # type: ignore[arg-type]
    nn.ELU: lambda layer, x: F.elu_(x, layer.alpha),  # type: ignore[arg-type]
    nn.Sigmoid: lambda _, x: torch.sigmoid_(x),
    nn.Tanh: lambda _, x: torch.tanh_(x),
}
# Layers that take pictures in any order of memory, and return something new unless in place.
_ANY_ORDER = frozenset(
    {nn.MaxPool2d, nn.AvgPool2d, nn.Upsample, nn.ZeroPad2d, nn.GELU, nn.SiLU, nn.Mish, nn.Softplus}
)
# Layers that return what they are given, a view of it, or a copy.
_VIEWS = frozenset({nn.Identity, nn.Dropout, nn.Dropout2d, nn.Flatten, nn.Unflatten})
_CONVOLUTIONS = frozenset({nn.Conv2d, nn.ConvTranspose2d})
_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)


Norm = nn.BatchNorm2d | None
Convolution = nn.Conv2d | nn.ConvTranspose2d


@contextmanager
def faster_layers(model: nn.Module) -> Iterator[None]:
    """Within this block, the sequences of layers in `model` run faster, without gradients."""
    parts = list(model.modules())
    found = [part for part in parts if type(part) is nn.Sequential and len(part) > 1]
    # A compiled model has read its layers, and would read them again.
    if any(type(part).__name__ == "OptimizedModule" for part in parts):
        found = []
    found = [part for part in found if "forward" not in vars(part)]
    for part in found:
        vars(part)["forward"] = partial(_forward, part)
    try:
        yield
    finally:
        for part in found:
            vars(part).pop("forward", None)


def _forward(sequence: nn.Sequential, input: Any) -> Any:
    if not _applies(input):
        return nn.Sequential.forward(sequence, input)  # type: ignore[no-untyped-call]
    output = _run(list(_layers(sequence)), input)
    # Channels last only if it was given such pictures, which may come from such a sequence.
    last = input.ndim == 4 and input.is_contiguous(memory_format=torch.channels_last)
    return output if last and not input.is_contiguous() else _plain(output)


def _applies(x: object) -> bool:
    """Whether x is an ordinary tensor of single precision on the CPU, and needs no derivative."""
    return (
        type(x) is Tensor
        and x.dtype is torch.float32
        and x.device.type == "cpu"
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
        and forward_ad._current_level < 0
        and torch._C._functorch.peek_interpreter_stack() is None
    )


def _layers(sequence: nn.Sequential) -> Iterator[nn.Module]:
    """The layers, with those of plain sequences inside in their place."""
    for layer in sequence:
        own = vars(layer).get("forward")
        plain = own is None or getattr(own, "func", None) is _forward
        if type(layer) is nn.Sequential and plain and not _has_hooks(layer):
            yield from _layers(layer)
        else:
            yield layer


def _has_hooks(layer: nn.Module) -> bool:
    return any(getattr(layer, name) for name in _HOOKS) or _anywhere()


def _anywhere() -> bool:
    """Whether there are hooks for all modules."""
    return bool(modules._global_forward_hooks or modules._global_forward_pre_hooks)


def _run(layers: list[nn.Module], x: Any) -> Any:
    ours = False  # whether a layer here has made x, which may then be overwritten
    place = 0
    while place < len(layers):
        layer = layers[place]
        place += 1
        kind = type(layer)
        if "forward" in vars(layer) or _has_hooks(layer):
            x, ours = layer(_plain(x)), False
        elif kind in _IN_PLACE:
            x = _IN_PLACE[kind](layer, x) if ours else layer.forward(x)
            ours = ours or not getattr(layer, "inplace", False)
        elif isinstance(layer, Convolution) and kind in _CONVOLUTIONS:
            norm = _norm_after(layers, place, layer, x)
            x, ours = _convolve(layer, _channels_last(x), norm), True
            place += norm is not None
        elif kind is nn.Linear or (kind in _ANY_ORDER and not _more_than_one(layer)):
            x, ours = layer.forward(x), ours or not getattr(layer, "inplace", False)
        elif kind in _VIEWS or getattr(layer, "any_order", False):
            x = layer.forward(x)
        else:
            x, ours = layer(_plain(x)), False
    return x


def _more_than_one(layer: nn.Module) -> bool:
    """Whether it returns places besides pictures."""
    return bool(getattr(layer, "return_indices", False))


def _plain(x: Any) -> Any:
    """The same in the order that other code expects: of pictures, channel after channel."""
    if not isinstance(x, Tensor):
        return x
    if x.ndim == 4 and x.shape[1] == 1 and x.is_contiguous():
        height, width = x.shape[2:]
        return x.as_strided(x.shape, (height * width, height * width, width, 1))
    return x.contiguous()


def _channels_last(x: Tensor) -> Tensor:
    if x.ndim != 4:  # a picture without a batch, or what a convolution refuses
        return x
    height, width = x.shape[2:]
    if x.shape[1] == 1 and x.is_contiguous():  # its strides fit both orders: say which
        return x.as_strided(x.shape, (height * width, 1, width, 1))
    return x.contiguous(memory_format=torch.channels_last)


def _norm_after(layers: list[nn.Module], place: int, layer: Convolution, x: Tensor) -> Norm:
    """The batch normalisation that follows a convolution, if it can be folded into the kernel.

    That pays where the pictures have more numbers than the kernel.
    """
    norm = layers[place] if place < len(layers) else None
    if type(norm) is not nn.BatchNorm2d or "forward" in vars(norm) or _has_hooks(norm):
        return None
    usable = not norm.training and norm.running_mean is not None
    fits = x.ndim == 4 and norm.num_features == layer.out_channels
    return norm if usable and fits and x.numel() > layer.weight.numel() else None


def _convolve(layer: Convolution, x: Tensor, norm: Norm) -> Tensor:
    phases = _by_phases(layer, x)
    if norm is None and not phases:
        return layer.forward(x)
    weight, bias = layer.weight, layer.bias
    if norm is not None:
        weight, bias = _fold(layer, norm)
    if isinstance(layer, nn.Conv2d):
        output: Tensor = layer._conv_forward(x, weight, bias)
        return output
    if phases:
        return _transposed(x, weight, bias)
    padding = [int(side) for side in layer.padding]
    settings = (layer.output_padding, layer.groups, layer.dilation)
    return F.conv_transpose2d(x, weight, bias, layer.stride, padding, *settings)


def _fold(layer: Convolution, norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """Kernel and bias of the convolution and the normalisation that follows, in one."""
    mean, variance = norm.running_mean, norm.running_var
    assert mean is not None
    assert variance is not None
    scale = (variance + norm.eps).rsqrt()
    if norm.weight is not None:
        scale = scale * norm.weight
    bias = -mean * scale if layer.bias is None else (layer.bias - mean) * scale
    if norm.bias is not None:
        bias = bias + norm.bias
    if isinstance(layer, nn.Conv2d):
        return layer.weight * scale[:, None, None, None], bias
    # The kernel of a transposed one: inputs, outputs of a group, rows, columns.
    of_inputs = scale.reshape(layer.groups, -1).repeat_interleave(
        layer.in_channels // layer.groups, 0
    )
    return layer.weight * of_inputs[:, :, None, None], bias


def _by_phases(layer: nn.Module, x: Tensor) -> bool:
    """Whether it doubles the size of pictures to few channels, with a kernel of 3 or 4."""
    return (
        isinstance(layer, nn.ConvTranspose2d)
        and layer.out_channels <= CHANNELS
        and layer.stride == (2, 2)
        and layer.padding == (1, 1)
        and (layer.kernel_size, layer.output_padding) in (((4, 4), (0, 0)), ((3, 3), (1, 1)))
        and layer.dilation == (1, 1)
        and layer.groups == 1
        and x.ndim == 4
    )


def _transposed(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A transposed convolution of stride 2 and padding 1, a quarter of the pixels at a time.

    The output at row 2 j + a is the sum of w[k] x[i] over 2 i - 1 + k = 2 j + a, that is of

        i = j - 1 + a + t,      k = 3 - a - 2 t,      t = 0, 1

    so each of the four phases (a, b) is a convolution with a 2 x 2 kernel, and all four are one.
    A kernel of 3 is one of 4 whose last weights are 0.
    """
    if weight.shape[2] == 3:
        weight = F.pad(weight, (0, 1, 0, 1))
    inputs, outputs = weight.shape[:2]
    samples, _, height, width = x.shape
    # Outputs first, and of the kernel: phase and step, of rows and of columns.
    parts = weight.flip(2, 3).reshape(inputs, outputs, 2, 2, 2, 2).permute(3, 5, 1, 0, 2, 4)
    kernel = parts.reshape(4 * outputs, inputs, 2, 2).contiguous(memory_format=torch.channels_last)
    quarters = F.conv2d(x, kernel, None if bias is None else bias.repeat(4), padding=1)
    whole = x.new_empty(samples, outputs, height, 2, width, 2)
    for phase, quarter in enumerate(quarters.chunk(4, 1)):
        a, b = divmod(phase, 2)
        whole[:, :, :, a, :, b] = quarter[:, :, a : a + height, b : b + width]
    return whole.reshape(samples, outputs, 2 * height, 2 * width)
