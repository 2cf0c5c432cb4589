"""The decoder near a code: what does a small step of each latent do to the observation?

    decode(z + dz) = decode(z) + J dz + …,      J: pixels x latents, column c_j for latent j

Every question about alignment is about lengths and angles of the columns, that is about
J^T J. So J is kept as the triangle R of J = Q R: latents x latents numbers a code instead of
pixels x latents, with R^T R = J^T J, and singular values and V those of J. Forming J^T J
itself would square the condition number and drown the small singular values.

J comes from forward differentiation (torch.func): one product J e_j for each latent, all
latents of a few codes at once, in chunks that fit the memory budget and the caches. A
decoder that cannot be differentiated so (it leaves torch, or detaches its input) is
measured by central differences,

    J e_j = (decode(z + h e_j) - decode(z - h e_j)) / 2h,      h = eps^(1/3) std(z_j)

and the result says so. `likelihood="bernoulli"` measures the pixels in units of their own
standard deviation sqrt(p (1 - p)): then J^T J is the Fisher information of the code, the
Hessian of a Bernoulli log-likelihood at its best, where |x - decoded|^2 has J^T J.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import jvp, vmap

from zscope.assays.engine import memory_budget
from zscope.autoencoder import Autoencoder, evaluation
from zscope.errors import ConfigError, InterfaceError, Undefined, did_you_mean
from zscope.types import Codes

LIKELIHOODS = ("gaussian", "bernoulli")
METHODS = ("auto", "forward", "differences")
PerSample = Float[Tensor, " samples"]
Spectra = Float[Tensor, "samples directions"]
Squares = Float[Tensor, "samples directions directions"]

# What one processor core works through fast: less leaves it waiting for instructions, four
# times as much comes from memory and takes a fifth longer (convolutions at 64 x 64).
_CACHED = 48 * 2**20
# Alive at once: input and output of a layer and the copies that convolutions make.
_ALIVE = 4
# Without modules to look into: a wide layer against an observation.
_UNSEEN = 32


@dataclass(frozen=True, eq=False)
class Linearised:
    """The decoder near some codes: the triangles R of its Jacobians, in float64."""

    triangle: Squares  # samples x latents x latents
    latents: list[int]  # the columns, as numbered in the model
    method: str  # "forward" or "central differences"
    precision: float  # relative accuracy of the Jacobians
    batch: int  # how many codes can be decoded at once within the budget
    flags: list[str]

    @cached_property
    def lengths(self) -> Spectra:
        """|c_j| of each column."""
        lengths: Spectra = self.triangle.norm(dim=1)
        return lengths

    @cached_property
    def _svd(self) -> tuple[Tensor, Tensor]:
        _, values, transposed = torch.linalg.svd(self.triangle)
        return values, transposed.mT

    @property
    def spectra(self) -> Spectra:
        """Singular values, largest first."""
        return self._svd[0]

    @property
    def directions(self) -> Squares:
        """V of J = U S V^T: column k is the step in latent space that is stretched by s_k."""
        return self._svd[1]


def linearise(
    autoencoder: Autoencoder,
    codes: Codes,
    *,
    latents: Sequence[int] | None = None,
    likelihood: str = "gaussian",
    method: str = "auto",
) -> Linearised:
    """The decoder's Jacobian at each code, as its triangle; `latents` chooses columns."""
    one_of("likelihood", likelihood, LIKELIHOODS)
    chosen = list(range(codes.shape[1])) if latents is None else [int(j) for j in latents]
    if len(codes) == 0 or not chosen:
        raise Undefined(
            f"jacobian: {len(codes)} codes and {len(chosen)} latents leave nothing to "
            "differentiate. Give at least one code and one latent."
        )
    parts: list[Tensor] = []
    walk = Walk(autoencoder, codes, chosen, method=method)
    for _, x, J in walk:
        scaled = J / _pixel_spread(x) if likelihood == "bernoulli" else J
        upper = torch.linalg.qr(scaled.mT, mode="r").R.double().cpu()
        if upper.shape[1] < len(chosen):  # fewer pixels than latents
            upper = torch.nn.functional.pad(upper, (0, 0, 0, len(chosen) - upper.shape[1]))
        parts.append(upper)
    triangle = torch.cat(parts)
    if not triangle.any():
        raise Undefined(
            f"jacobian: the derivative of the decoder is zero for {len(chosen)} latents at all "
            f"{len(codes)} codes ({walk.method}). It detaches its input (no_grad, .detach(), "
            "NumPy), rounds its output, or ignores the latents. Decode with gradients, or try "
            "method='differences'."
        )
    batch = walk.size * (len(chosen) + 1)
    return Linearised(triangle, chosen, walk.method, walk.precision, batch, walk.flags)


def decoder_jacobian(
    autoencoder: Autoencoder,
    codes: Codes,
    *,
    method: str = "auto",
) -> Float[Tensor, "samples pixels latents"]:
    """J at each code, whole: samples x pixels x latents, in the precision of the decoder."""
    latents = list(range(codes.shape[1]))
    walk = Walk(autoencoder, codes, latents, method=method)
    return torch.cat([J.cpu() for _, _, J in walk]).mT


Piece = tuple[slice, Tensor, Tensor]


class Walk:
    """Jacobians chunk by chunk: (rows, decoded, J transposed: codes x latents x pixels)."""

    def __init__(
        self,
        autoencoder: Autoencoder,
        codes: Codes,
        latents: list[int],
        *,
        method: str,
    ) -> None:
        one_of("method", method, METHODS)
        if not codes.isfinite().all():
            raise Undefined(
                "jacobian: some codes hold NaN or infinite numbers. Has training diverged, or were "
                "the data not scaled as in training?"
            )
        self.autoencoder, self.latents = autoencoder, latents
        device, dtype = _place(autoencoder, codes)
        self.codes = codes.detach().to(device, dtype)
        self.flags: list[str] = []
        with evaluation(autoencoder):
            decoded, largest = self._look(self.codes[:2])
            self.precision = max(torch.finfo(dtype).eps, torch.finfo(decoded.dtype).eps)
            self.step = self.precision ** (1 / 3) * self._scale()
            self._ways: dict[str, Callable[[Tensor], tuple[Tensor, Tensor]]] = {
                "forward": self._forward,
                "forward, latent by latent": self._one_by_one,
                "central differences": self._differences,
            }
            self.method = self._choose(method)
        if self.method == "central differences":
            self.precision **= 2 / 3
        allowed = memory_budget()
        if device.type == "cpu":
            allowed = min(allowed, _CACHED * torch.get_num_threads())
        self.size = max(1, int(allowed // (largest * (len(latents) + 1))))

    def __iter__(self) -> Iterator[Piece]:
        way = self._ways[self.method]
        with evaluation(self.autoencoder):
            for start in range(0, len(self.codes), self.size):
                rows = slice(start, min(start + self.size, len(self.codes)))
                x, J = way(self.codes[rows])
                if not J.sum().isfinite() and not J.isfinite().all():
                    bad = ~J.flatten(1).isfinite().all(1)
                    raise InterfaceError(
                        "jacobian: the decoder's derivative is NaN or infinite at "
                        f"{int(bad.sum())} of {len(bad)} codes, first at row "
                        f"{start + int(bad.nonzero()[0, 0])}. A square root or norm at 0, or "
                        "weights that are not finite, are the usual causes."
                    )
                yield rows, x, J

    def _look(self, example: Codes) -> tuple[Tensor, float]:
        """What the decoder says of two codes, and the bytes of its largest layer, per code."""
        seen: list[int] = []

        def note(module: nn.Module, given: object, came: object) -> None:
            for tensors in (given, came):
                group = tensors if isinstance(tensors, tuple | list) else (tensors,)
                seen.extend(tensor.nbytes for tensor in group if isinstance(tensor, Tensor))

        hooks = [module.register_forward_hook(note) for module in self.autoencoder.modules()]
        try:
            decoded = self.autoencoder.decode(example)
        finally:
            for hook in hooks:
                hook.remove()
        alone = self.autoencoder.decode(example[:1])
        if len(decoded) != len(example) or not torch.allclose(
            alone[0], decoded[0], rtol=1e-3, atol=1e-4 * float(decoded.abs().max())
        ):
            raise InterfaceError(
                f"jacobian: {len(example)} codes were decoded to shape {tuple(decoded.shape)}, and "
                "a code decoded alone differs from the same code in a batch. The derivative of "
                "one code is then not defined: does the decoder normalise over its batch, squeeze "
                "it, or draw random numbers?"
            )
        width = max(seen) if seen else _UNSEEN // _ALIVE * decoded.nbytes
        return decoded, _ALIVE * max(width, decoded.nbytes) / len(example)

    def _scale(self) -> Float[Tensor, " latents"]:
        """The spread of each latent, 1 where it has none: what counts as a small step."""
        spread = self.codes.double().std(0, correction=0).to(self.codes)
        return torch.where(spread > 0, spread, torch.ones_like(spread))

    def _choose(self, asked: str) -> str:
        if asked == "differences":
            return "central differences"
        example = self.codes[:2]
        # A direction that moves every latent at once, so that a part of the decoder that hides
        # its derivative shows, whichever latents it looks at.
        signs = torch.ones(len(self.latents), dtype=example.dtype, device=example.device)
        signs[1::2] = -1
        reasons = []
        for name in ("forward", "forward, latent by latent"):
            try:
                _, J = self._ways[name](example)
            except Exception as error:  # whatever a foreign decoder raises
                said = (str(error).strip().splitlines() or ["(no text)"])[0]
                reasons.append(f"{type(error).__name__}: {said[:160]}")
                continue
            if asked == "forward" or (reason := self._contradicted(example, J, signs)) is None:
                return name
            reasons.append(reason)
            break
        if asked == "forward":
            raise InterfaceError(
                f"jacobian: the decoder cannot be differentiated by torch.func ({reasons[-1]}). "
                "Use torch operations alone in it, or measure it with method='differences'."
            )
        self.flags.append(
            "Measured by central differences: the decoder has no derivative of its own "
            f"({reasons[-1]})."
        )
        return "central differences"

    def _contradicted(self, example: Codes, J: Tensor, signs: Tensor) -> str | None:
        """How the derivative differs from what the decoder does; None if it does not."""
        move = torch.zeros_like(example)
        move[:, self.latents] = signs * self.step[self.latents]
        decode = self.autoencoder.decode
        above, below = decode(example + move), decode(example - move)
        seen = (above - below).flatten(1) / 2
        said = torch.einsum("nkp,k->np", J, signs * self.step[self.latents])
        error, size = (seen - said).norm(), seen.norm()
        rounding = self.precision * above.norm()
        if error <= 0.1 * size + 4 * rounding:
            return None
        return (
            f"a small step changes what is decoded by {float(size):.3g}, and the derivative "
            f"misses {float(error):.3g} of it: the decoder detaches its input, or part of it"
        )

    def _tangents(self, part: Codes) -> Float[Tensor, "active codes latents"]:
        eye = torch.eye(part.shape[1], dtype=part.dtype, device=part.device)
        return eye[self.latents][:, None].expand(-1, len(part), -1)

    def _forward(self, part: Codes) -> tuple[Tensor, Tensor]:
        # The batch goes through the decoder as a batch, and only the tangents are mapped:
        # convolutions over (latents x codes) pictures, nothing is decoded twice.
        x, J = vmap(
            lambda tangent: jvp(self.autoencoder.decode, (part,), (tangent,))[:2],
            out_dims=(None, 0),  # type: ignore[arg-type]
        )(self._tangents(part))
        return x, J.flatten(2).transpose(0, 1)

    def _one_by_one(self, part: Codes) -> tuple[Tensor, Tensor]:
        columns = []
        for tangent in self._tangents(part):
            x, column = jvp(self.autoencoder.decode, (part,), (tangent.contiguous(),))[:2]
            columns.append(column.flatten(1))
        return x, torch.stack(columns, 1)

    def _differences(self, part: Codes) -> tuple[Tensor, Tensor]:
        steps = torch.diag(self.step)[self.latents][None]
        ends = [(part[:, None] + sign * steps).flatten(0, 1) for sign in (1, -1)]
        above, below = (self.autoencoder.decode(end).flatten(1) for end in ends)
        # What was really added, after rounding of the codes.
        width = (ends[0] - ends[1]).sum(1, keepdim=True)
        J = ((above - below) / width.to(above)).unflatten(0, (len(part), len(self.latents)))
        return self.autoencoder.decode(part), J


def decode(autoencoder: Autoencoder, codes: Codes, *, batch: int = 64) -> Tensor:
    """What is decoded, without gradients, `batch` codes at a time; on the CPU."""
    device, dtype = _place(autoencoder, codes)
    with evaluation(autoencoder):
        parts = [autoencoder.decode(p.detach().to(device, dtype)) for p in codes.split(batch)]
    return torch.cat([part.cpu() for part in parts])


def _place(autoencoder: Autoencoder, codes: Codes) -> tuple[torch.device, torch.dtype]:
    """Where the weights are; a model without weights takes the codes as they come."""
    if any(parameter.is_floating_point() for parameter in autoencoder.parameters()):
        return autoencoder.place
    return codes.device, codes.dtype


def likelihood_of(autoencoder: Autoencoder, codes: Codes) -> str:
    """The likelihood a model was trained with, as far as can be seen.

    What the model states (`likelihood_name`); otherwise Bernoulli for pictures that are
    decoded to values from 0 to 1, Gaussian for everything else.
    """
    if autoencoder.likelihood_name is not None:
        return "bernoulli" if autoencoder.likelihood_name.lower() == "bernoulli" else "gaussian"
    x = decode(autoencoder, codes[:16])
    inside = x.ndim == 4 and float(x.min()) >= 0 and float(x.max()) <= 1
    return "bernoulli" if inside else "gaussian"


def one_of(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(f"jacobian: {option}={value!r}. {did_you_mean(value, known)}")


def _pixel_spread(x: Tensor) -> Tensor:
    """sqrt(p (1 - p)) of each decoded pixel, codes x 1 x pixels."""
    p = x.flatten(1)[:, None]
    low, high = float(p.min()), float(p.max())
    if low < -1e-6 or high > 1 + 1e-6:
        raise Undefined(
            f"jacobian: likelihood='bernoulli', but decoded values go from {low:.3g} to {high:.3g} "
            "and are no probabilities. Is this another likelihood, or does the decoder return "
            "logits?"
        )
    # A pixel that is surely black has a derivative below this floor, and no weight with it.
    return (p * (1 - p)).clamp(min=1e-6).sqrt()
