"""Activations: the outputs of every layer of a model for the same observations.

Hooks read the output of each innermost module while the model encodes and decodes once, so
any module can be used. An activation function counts as part of the layer before it, and
modules that only reshape or do nothing are left out. Added to them are "input", "mean",
"variance" and "sampled" (for Gaussian posteriors) and "output", in the order of the forward
pass. For plain functions without modules only these are available.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor, nn

from zscope.autoencoder import Autoencoder, evaluation
from zscope.errors import InterfaceError, Undefined
from zscope.sampling import whole
from zscope.seeds import seed_of
from zscope.types import Observations, as_tensor

__all__ = ["activations"]

SKIPPED = (nn.Identity, nn.Flatten, nn.Unflatten, nn.Dropout, nn.Dropout1d, nn.Dropout2d)
POINTWISE = (
    nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish,
    nn.Softplus, nn.Sigmoid, nn.Tanh, nn.Hardtanh, nn.ReLU6, nn.Hardswish,
)  # fmt: skip


def activations(
    autoencoder: Autoencoder,
    observations: Observations | np.ndarray,
    *,
    auxiliary: Tensor | np.ndarray | None = None,
    decode: bool = True,
    batch: int = 256,
    draw: int = 0,
    generator: Generator | None = None,
) -> dict[str, Tensor]:
    """Layer name -> samples x features (float32, on the CPU), in the order of the forward pass.

    `auxiliary` has a row for each observation, for models whose encoder takes one (iVAE).
    With `decode=False`, and for models without a decoder, the layers of the encoder alone.
    The decoder gets a sample of the posterior, as in training. Without a generator the noise
    is seeded by the model's own means and by `draw`: the same call gives the same numbers again,
    and two models never share their noise. Shared noise would make the samples of two models
    that learned nothing look similar (CKA .99 of pure noise). So would a model next to itself:
    give both another `draw`. Their similarity is then below 1, and the most that any other model
    can reach: of two pure noises it is about 0.
    """
    observations = as_tensor(observations, "activations")
    if observations.ndim < 2 or len(observations) == 0 or observations.is_complex():
        raise Undefined(
            f"activations: got observations of shape {tuple(observations.shape)} and type "
            f"{observations.dtype}; expected real numbers, a row for each of at least one sample."
        )
    whole("activations", 1, batch=batch)
    whole("activations", 0, draw=draw)
    auxiliary = None if auxiliary is None else as_tensor(auxiliary)
    source = generator
    decode = decode and autoencoder.decodes
    device, dtype = autoencoder.place
    total = len(observations)
    layers: dict[str, Tensor] = {}
    with evaluation(autoencoder), _hooks(autoencoder) as outputs:
        for start in range(0, len(observations), batch):
            x = observations[start : start + batch].to(device, dtype)
            outputs.clear()
            if auxiliary is None:
                posterior = autoencoder.encode(x)
            else:
                part = auxiliary[start : start + batch].to(device, dtype)
                posterior = autoencoder.encode(x, part)
            if len(posterior.mean) != len(x):
                raise InterfaceError(
                    f"activations: encode of {autoencoder.title} returned {len(posterior.mean)} "
                    f"means for {len(x)} observations. Does it keep the batch?"
                )
            encoder = list(outputs)
            outputs.clear()
            if source is None:
                source = Generator().manual_seed(_seed_of_noise(posterior.mean, draw))
            z = posterior.sample(source)
            decoded = [("output", autoencoder.decode(z))] if decode else []
            parts = [("input", x), *encoder, ("mean", posterior.mean)]
            if not posterior.deterministic:
                parts += [("variance", posterior.variance), ("sampled", z)]
            parts += [*outputs, *decoded]
            for name, values in _by_name(parts, len(x)).items():
                if name not in layers:  # filled in place: layers of images are large
                    layers[name] = torch.empty(total, values.shape[1])
                layers[name][start : start + len(x)] = values
    for name, values in layers.items():
        if not (fine := values.isfinite().all(1)).all():
            raise Undefined(
                f"activations: {name} of {autoencoder.title} contains NaN or infinite numbers for "
                f"{int((~fine).sum())} of {total} observations. Has training diverged, or were the "
                "data not scaled as in training?"
            )
    return layers


@contextmanager
def _hooks(model: nn.Module) -> Iterator[list[tuple[str, Any]]]:
    """Collect (name, output) of each innermost module, until the end of the block."""
    outputs: list[tuple[str, Any]] = []
    handles = []

    def watch(name: str, module: nn.Module) -> None:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            if isinstance(module, POINTWISE) and outputs and isinstance(output, Tensor):
                # The same layer, now after its activation.
                outputs[-1] = (outputs[-1][0], output.detach().clone())
            elif isinstance(output := _first_tensor(output), Tensor):
                # A copy: an activation in place would overwrite it.
                outputs.append((name, output.detach().clone()))

        handles.append(module.register_forward_hook(hook))

    try:
        for name, module in model.named_modules():
            innermost = next(module.children(), None) is None
            if innermost and not isinstance(module, SKIPPED) and module is not model:
                watch(name, module)
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def _first_tensor(output: Any) -> Any:
    while isinstance(output, tuple | list) and len(output):
        output = output[0]
    return output


def _by_name(parts: list[tuple[str, Any]], count: int) -> dict[str, Tensor]:
    """Flattened to samples x features; a module used twice gets a number.

    Outputs without a row for each sample (of auxiliary modules) are left out.
    """
    layers: dict[str, Tensor] = {}
    times: dict[str, int] = {}
    for name, values in parts:
        if values.ndim == 0 or len(values) != count or not values.is_floating_point():
            continue
        times[name] = times.get(name, 0) + 1
        label = name if times[name] == 1 else f"{name}#{times[name]}"
        layers[label] = values.detach().reshape(count, -1)
    return layers


def _seed_of_noise(means: Tensor, draw: int) -> int:
    """A seed that differs from model to model and from draw to draw."""
    content = means.detach().double().cpu().contiguous().numpy().tobytes()
    return seed_of(5, int(draw) << 32 | int.from_bytes(sha256(content).digest()[:4]))
