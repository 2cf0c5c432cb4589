"""Activations: what every layer of a model makes of the same observations.

Hooks read the output of each innermost module while the model encodes and decodes once;
nothing about the model need be known. An activation function counts as part of the layer
before it, and modules that only reshape or do nothing are left out. With them come
"input", "mean", "variance" (with a spread), "sampled" and "output", in the order in
which the numbers flow. For plain functions without modules only these are seen.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

import torch
from torch import Generator, Tensor, nn

from zscope.autoencoder import Autoencoder, evaluation
from zscope.errors import Undefined
from zscope.randomness import seed_of
from zscope.types import Observations

PASSED_OVER = (nn.Identity, nn.Flatten, nn.Unflatten, nn.Dropout, nn.Dropout1d, nn.Dropout2d)
POINTWISE = (
    nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish,
    nn.Softplus, nn.Sigmoid, nn.Tanh, nn.Hardtanh, nn.ReLU6, nn.Hardswish,
)  # fmt: skip


def activations(
    autoencoder: Autoencoder,
    observations: Observations,
    *,
    auxiliary: Tensor | None = None,
    batch: int = 256,
    generator: Generator | None = None,
) -> dict[str, Tensor]:
    """Layer name -> samples x features (float32, on the CPU), in the order of the flow.

    `auxiliary` is a row for each observation, for models whose encoder must be told (iVAE).
    The decoder is fed a draw from the posterior, as in training. Without a generator the
    noise follows from the model's own means: the same model gives the same numbers again,
    and two models never share their noise. Shared noise would make the samples of two
    models that learned nothing look alike (CKA .99 of pure noise).
    """
    if len(observations) == 0:
        raise Undefined("activations: no observations were given.")
    source = generator
    device, dtype = autoencoder.place
    total = len(observations)
    gathered: dict[str, Tensor] = {}
    with evaluation(autoencoder), _hooks(autoencoder) as seen:
        for start in range(0, len(observations), batch):
            x = observations[start : start + batch].to(device, dtype)
            seen.clear()
            if auxiliary is None:
                posterior = autoencoder.encode(x)
            else:
                told = auxiliary[start : start + batch].to(device, dtype)
                posterior = autoencoder.encode(x, told)
            encoder = list(seen)
            seen.clear()
            if source is None:
                source = Generator().manual_seed(_fingerprint(posterior.mean))
            z = posterior.sample(source)
            decoded = autoencoder.decode(z)
            parts = [("input", x), *encoder, ("mean", posterior.mean)]
            if not posterior.deterministic:
                parts += [("variance", posterior.variance), ("sampled", z)]
            parts += [*seen, ("output", decoded)]
            for name, values in _named(parts, len(x)).items():
                if name not in gathered:  # filled in place: pictures have large layers
                    gathered[name] = torch.empty(total, values.shape[1])
                gathered[name][start : start + len(x)] = values
    return gathered


@contextmanager
def _hooks(model: nn.Module) -> Iterator[list[tuple[str, Any]]]:
    """Collect (name, output) of each innermost module, until the block is left."""
    seen: list[tuple[str, Any]] = []
    handles = []

    def watch(name: str, module: nn.Module) -> None:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            if isinstance(module, POINTWISE) and seen and isinstance(output, Tensor):
                # The same layer, now after its activation.
                seen[-1] = (seen[-1][0], output.detach().clone())
            elif isinstance(output := _first_tensor(output), Tensor):
                # A copy: an activation in place would overwrite it.
                seen.append((name, output.detach().clone()))

        handles.append(module.register_forward_hook(hook))

    try:
        for name, module in model.named_modules():
            innermost = next(module.children(), None) is None
            if innermost and not isinstance(module, PASSED_OVER) and module is not model:
                watch(name, module)
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _first_tensor(output: Any) -> Any:
    while isinstance(output, tuple | list) and len(output):
        output = output[0]
    return output


def _named(parts: list[tuple[str, Any]], count: int) -> dict[str, Tensor]:
    """Flattened to samples x features; a module used twice gets a number.

    What has no row for each sample (a module on the side) is left out.
    """
    named: dict[str, Tensor] = {}
    times: dict[str, int] = {}
    for name, values in parts:
        if values.ndim == 0 or len(values) != count or not values.is_floating_point():
            continue
        times[name] = times.get(name, 0) + 1
        label = name if times[name] == 1 else f"{name}#{times[name]}"
        named[label] = values.detach().reshape(count, -1)
    return named


def _fingerprint(means: Tensor) -> int:
    """A seed that differs from model to model."""
    written = means.detach().double().cpu().contiguous().numpy().tobytes()
    return seed_of(5, int.from_bytes(sha256(written).digest()[:4]))
