"""The decoder near a code: how does a small step in each latent change the observation?

    decode(z + dz) = decode(z) + J dz + …,      J: pixels x latents, column c_j for latent j

Questions about alignment depend only on the lengths and angles of the columns, that is on
J^T J. So J is stored as the triangle R of J = Q R: latents x latents numbers per code instead
of pixels x latents, with R^T R = J^T J and the singular values and V of J. Forming J^T J
itself would square the condition number and lose the small singular values.

J comes from forward differentiation (torch.func): one product J e_j for each latent, all
latents of a few codes at once, in chunks that fit the memory budget and the caches. For a
decoder that cannot be differentiated this way (it leaves torch, or detaches its input), J is
computed by central differences,

    J e_j = (decode(z + h e_j) - decode(z - h e_j)) / 2h,      h = eps^(1/3) std(z_j)

and the result says so. `likelihood="bernoulli"` measures the pixels in units of their own
standard deviation sqrt(p (1 - p)): then J^T J is the Fisher information of the code, the
Hessian of a Bernoulli log-likelihood at its optimum, as J^T J is that of |x - decoded|^2.

Where latents are maps, J has thousands of columns. Assays then take those of one place, c columns
for c channels: `latents` may be a table, with the columns of each code in a row. What a whole
channel does is estimated with random signs e (Rademacher) on all places of channel k at once,

    |J_k|_F^2 = sum over places of |c_kp|^2 = E | J (e on channel k) |^2

(`channel_gains`): exact where places do not overlap in the decoded picture, and unbiased otherwise.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor
from torch.func import jvp, vmap

from zscope.assays.engine import (
    bytes_at_once,
    check_finite,
    layer_sizes,
    location,
    memory_budget,
)
from zscope.autoencoder import Autoencoder, evaluation
from zscope.errors import ConfigError, InterfaceError, NoGradients, Undefined, did_you_mean
from zscope.layout import Layout
from zscope.randomness import fresh
from zscope.sampling import recorded_codes, whole
from zscope.types import HALF, Codes, at_least_single

__all__ = [
    "Linearised", "PerSample", "Spectra", "Squares", "Table", "Walk", "channel_gains",
    "channel_steps", "decode", "decoder_jacobian", "likelihood_of", "linearise", "metric_of",
    "random_signs", "single_precision",
]  # fmt: skip

Likelihood = Literal["gaussian", "bernoulli"]
Method = Literal["auto", "forward", "differences"]
PerSample = Float[Tensor, " samples"]
Spectra = Float[Tensor, "samples directions"]
Squares = Float[Tensor, "samples directions directions"]
Table = Int[Tensor, "samples columns"]
"""The latents of the columns, for each code."""
Steps = Callable[[slice], Float[Tensor, "columns codes latents"]]
"""The steps in latent space whose effects are the columns, for some of the codes."""
PROBES = 8

# What fits the caches of one processor core: smaller chunks waste time on overhead, chunks
# four times as large come from memory and take a fifth longer (convolutions at 64 x 64).
_CACHE_BYTES = 48 * 2**20


@dataclass(frozen=True, eq=False)
class Linearised:
    """The decoder near some codes: the triangles R of its Jacobians, in float64."""

    triangle: Squares  # samples x latents x latents
    latents: list[int]  # the columns, as numbered in the model; those of a table from 0
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

    def part(self, columns: list[int]) -> "Linearised":
        """The same with some of the columns."""
        triangle = torch.linalg.qr(self.triangle[:, :, columns], mode="r").R
        return replace(self, triangle=triangle, latents=[self.latents[k] for k in columns])


def linearise(
    autoencoder: Autoencoder,
    codes: Codes,
    *,
    latents: Sequence[int] | Table | None = None,
    likelihood: str = "gaussian",
    method: str = "auto",
) -> Linearised:
    """The triangle R of the decoder's Jacobian at each code; `latents` selects columns.

    A table of latents selects those of each code: a row for each.
    """
    _check_choice("likelihood", likelihood, get_args(Likelihood))
    table = latents if isinstance(latents, Tensor) and latents.ndim == 2 else None
    if table is not None:
        chosen = list(range(table.shape[1]))
    else:
        chosen = list(range(codes.shape[1])) if latents is None else [int(j) for j in latents]
    if len(codes) == 0 or not chosen:
        raise Undefined(
            f"jacobian: {len(codes)} codes and {len(chosen)} latents leave nothing to "
            "differentiate. Give at least one code and one latent."
        )
    parts: list[Tensor] = []
    walk = Walk(autoencoder, codes, chosen if table is None else table, method=method)
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
    codes: Codes | np.ndarray,
    *,
    method: str = "auto",
) -> Float[Tensor, "samples pixels latents"]:
    """The whole Jacobian J at each code, in the precision of the decoder, at least float32."""
    codes = recorded_codes(codes, "decoder_jacobian")
    latents = list(range(codes.shape[1]))
    walk = Walk(autoencoder, codes, latents, method=method)
    return torch.cat([J.cpu() for _, _, J in walk]).mT


Piece = tuple[slice, Tensor, Tensor]


class Walk:
    """Jacobians chunk by chunk: (rows, decoded, J transposed: codes x columns x pixels).

    The columns are the effects of `latents`: the same for all codes (a list), of each code its own
    (a table), or of any `count` steps in latent space (a function that makes them for some codes).
    """

    def __init__(
        self,
        autoencoder: Autoencoder,
        codes: Codes,
        latents: list[int] | Table | Steps,
        *,
        method: str,
        count: int = 0,
    ) -> None:
        _check_choice("method", method, get_args(Method))
        if not codes.isfinite().all():
            raise Undefined(
                "jacobian: some codes contain NaN or infinite numbers. Has training diverged, or "
                "were the data not scaled as in training?"
            )
        autoencoder = single_precision(autoencoder)
        self.autoencoder = autoencoder
        device, dtype = location(autoencoder, codes)
        self.codes = codes.detach().to(device, dtype)
        self.count = count if callable(latents) else torch.as_tensor(latents).shape[-1]
        self._steps = self._steps_of(latents)
        self.flags: list[str] = []
        with evaluation(autoencoder):
            decoded, memory = self._try_decoder(self.codes[:2])
            self.precision = max(torch.finfo(dtype).eps, torch.finfo(decoded.dtype).eps)
            self.step = self.precision ** (1 / 3) * self._scale()
            self._methods: dict[str, Callable[[slice], tuple[Tensor, Tensor]]] = {
                "forward": self._forward,
                "forward, latent by latent": self._forward_by_latent,
                "central differences": self._differences,
            }
            self.method = self._choose(method)
        if self.method == "central differences":
            self.precision **= 2 / 3
        budget = memory_budget()
        if device.type == "cpu":
            budget = min(budget, _CACHE_BYTES * torch.get_num_threads())
        self.size = max(1, int(budget // (memory * (self.count + 1))))

    def __iter__(self) -> Iterator[Piece]:
        differentiate = self._methods[self.method]
        with evaluation(self.autoencoder):
            for start in range(0, len(self.codes), self.size):
                rows = slice(start, min(start + self.size, len(self.codes)))
                x, J = map(at_least_single, differentiate(rows))
                if not J.sum().isfinite() and not J.isfinite().all():
                    bad = ~J.flatten(1).isfinite().all(1)
                    raise InterfaceError(
                        "jacobian: the decoder's derivative is NaN or infinite at "
                        f"{int(bad.sum())} of {len(bad)} codes, first at row "
                        f"{start + int(bad.nonzero()[0, 0])}. A square root or norm at 0, or "
                        "weights that are not finite, are the usual causes."
                    )
                yield rows, x, J

    def _try_decoder(self, example: Codes) -> tuple[Tensor, float]:
        """Decode two codes; returns them and the memory of the pass, in bytes per code."""
        with layer_sizes(self.autoencoder) as layers:
            decoded = self.autoencoder.decode(example)
        single = self.autoencoder.decode(example[:1])
        check_finite("decoder", decoded, example, 0, who="jacobian")
        if len(decoded) != len(example) or not torch.allclose(
            single[0], decoded[0], rtol=1e-3, atol=1e-4 * float(decoded.abs().max())
        ):
            raise InterfaceError(
                f"jacobian: {len(example)} codes were decoded to shape {tuple(decoded.shape)}, and "
                "a code decoded alone differs from the same code in a batch. The derivative of "
                "one code is then not defined: does the decoder normalise over its batch, squeeze "
                "it, or draw random numbers?"
            )
        return decoded, bytes_at_once(layers, decoded) / len(example)

    def _scale(self) -> Float[Tensor, " latents"]:
        """The standard deviation of each latent, 1 where it is 0: the unit of a small step."""
        spread = self.codes.double().std(0, correction=0).to(self.codes)
        return torch.where(spread > 0, spread, torch.ones_like(spread))

    def _choose(self, requested: str) -> str:
        if requested == "differences":
            return "central differences"
        few = slice(0, 2)
        # A step in every latent at once reveals a part of the decoder without a derivative,
        # whichever latents it uses.
        signs = torch.ones(self.count, dtype=self.codes.dtype, device=self.codes.device)
        signs[1::2] = -1
        reasons = []
        for name in ("forward", "forward, latent by latent"):
            try:
                _, J = self._methods[name](few)
            except NoGradients:
                reasons.append("it is not written in torch")
                break
            except Exception as error:  # whatever a foreign decoder raises
                message = (str(error).strip().splitlines() or ["(no text)"])[0]
                reasons.append(f"{type(error).__name__}: {message[:160]}")
                continue
            if requested == "forward" or (reason := self._mismatch(few, J, signs)) is None:
                return name
            reasons.append(reason)
            break
        if requested == "forward":
            raise InterfaceError(
                f"jacobian: the decoder cannot be differentiated by torch.func ({reasons[-1]}). "
                "Use only torch operations in it, or call with method='differences'."
            )
        self.flags.append(
            "Measured by central differences: the decoder cannot be differentiated "
            f"({reasons[-1]})."
        )
        return "central differences"

    def _mismatch(self, few: slice, J: Tensor, signs: Tensor) -> str | None:
        """How the derivative differs from a small step of the decoder; None if it does not."""
        example, steps = self.codes[few], self._steps(few)
        sizes = signs[:, None] * self._sizes(steps)  # columns x codes
        move = (sizes[..., None] * steps).sum(0)
        decode = self.autoencoder.decode
        above, below = decode(example + move), decode(example - move)
        change = (above - below).flatten(1) / 2
        predicted = torch.einsum("nkp,kn->np", J, sizes.to(J))
        error, size = (change - predicted).norm(), change.norm()
        rounding = self.precision * above.norm()
        if error <= 0.1 * size + 4 * rounding:
            return None
        return (
            f"a small step changes the decoded observation by {float(size):.3g}, and the "
            f"derivative misses {float(error):.3g} of that: the decoder detaches its input, or "
            "part of it"
        )

    def _steps_of(self, latents: list[int] | Table | Steps) -> Steps:
        """The steps of some codes: columns x codes x latents."""
        if callable(latents):
            return lambda rows: latents(rows).to(self.codes)
        table = torch.as_tensor(latents, device=self.codes.device)

        def steps(rows: slice) -> Tensor:
            part = self.codes[rows]
            # One for all codes, where they are the same: a copy for each would be large.
            own = table[rows] if table.ndim == 2 else table[None]
            ones = part.new_zeros(self.count, len(own), part.shape[1])
            ones.scatter_(2, own.T[..., None], 1)
            return ones.expand(-1, len(part), -1)

        return steps

    def _sizes(self, steps: Tensor) -> Float[Tensor, "columns codes"]:
        """How far a small step goes: by the spread of the latents that it changes."""
        total = steps.abs().sum(2)
        return torch.where(total > 0, (steps.abs() @ self.step) / total, 1)  # 1: no step at all

    def _forward(self, rows: slice) -> tuple[Tensor, Tensor]:
        # The codes pass through the decoder as one batch and only the tangents are mapped:
        # convolutions over (latents x codes) images, and nothing is decoded twice.
        part = self.codes[rows]
        with warnings.catch_warnings():  # some activations are slower, none is less exact
            warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
            x, J = vmap(
                lambda tangent: jvp(self.autoencoder.decode, (part,), (tangent,))[:2],
                out_dims=(None, 0),  # type: ignore[arg-type]
            )(self._steps(rows))
        return x, J.flatten(2).transpose(0, 1)

    def _forward_by_latent(self, rows: slice) -> tuple[Tensor, Tensor]:
        columns = []
        for tangent in self._steps(rows):
            arguments = (self.codes[rows],), (tangent.contiguous(),)
            x, column = jvp(self.autoencoder.decode, *arguments)[:2]
            columns.append(column.flatten(1))
        return x, torch.stack(columns, 1)

    def _differences(self, rows: slice) -> tuple[Tensor, Tensor]:
        part, steps = self.codes[rows], self._steps(rows).transpose(0, 1)
        small = self._sizes(steps)[..., None] * steps
        ends = [(part[:, None] + sign * small).flatten(0, 1) for sign in (1, -1)]
        above, below = (self.autoencoder.decode(end).flatten(1) for end in ends)
        # The actual step, after rounding of the codes, in units of the one asked for.
        made = ((ends[0] - ends[1]).unflatten(0, steps.shape[:2]) * steps).sum(2)
        squares = steps.square().sum(2)
        width = torch.where(squares > 0, made / squares, 1).flatten()[:, None]
        J = ((above - below) / width.to(above)).unflatten(0, (len(part), self.count))
        return self.autoencoder.decode(part), J


def single_precision(autoencoder: Autoencoder) -> Autoencoder:
    """A model of half precision as a copy in float32, where it can be copied, to differentiate.

    The copy has the same weights, so its derivatives are those of the model without rounding.
    """
    if autoencoder.place[1] not in HALF:
        return autoencoder
    try:
        return deepcopy(autoencoder).float()
    except Exception:  # a part of foreign code cannot be copied: differentiate it as it is
        return autoencoder


def decode(autoencoder: Autoencoder, codes: Codes, *, batch: int = 64) -> Tensor:
    """Decode codes without gradients, `batch` at a time; at least float32, on the CPU."""
    device, dtype = location(autoencoder, codes)
    with evaluation(autoencoder):
        parts = [autoencoder.decode(p.detach().to(device, dtype)) for p in codes.split(batch)]
    decoded = torch.cat([at_least_single(part.cpu()) for part in parts])
    if decoded.ndim > 1 and len(decoded) == len(codes) and not decoded.sum().isfinite():
        check_finite("decoder", decoded, codes, 0)
    return decoded


def channel_gains(
    autoencoder: Autoencoder,
    codes: Codes | np.ndarray,
    *,
    layout: Layout | None = None,
    likelihood: str = "gaussian",
    probes: int = PROBES,
    method: str = "auto",
    generator: Generator | None = None,
) -> Float[Tensor, "samples channels"]:
    """|J_k|_F^2 of each channel k at each code: how much the decoder amplifies it, over all places.

    Estimated from `probes` random signs for every latent, with a derivative for each channel.
    """
    who = "channel_gains"
    codes = recorded_codes(codes, who)
    whole(who, 1, probes=probes)
    _check_choice("likelihood", likelihood, get_args(Likelihood))
    layout = autoencoder.layout if layout is None else layout
    if layout is None or layout.latents != codes.shape[1]:
        raise Undefined(
            f"{who}: {codes.shape[1]:,} latents and "
            + (f"a layout of {layout}" if layout else "no layout")
            + ". If they are maps, say so: layout=zs.Layout(channels, places)"
        )
    generator, probe = fresh(generator), torch.ones_like(codes)
    steps = channel_steps(layout, probe)
    walk = Walk(autoencoder, codes, steps, method=method, count=layout.channels)
    total = torch.zeros(len(codes), layout.channels, dtype=torch.float64)
    for _ in range(probes):
        probe.copy_(random_signs(codes, generator))
        for rows, x, J in walk:
            scaled = J / _pixel_spread(x) if likelihood == "bernoulli" else J
            total[rows] += scaled.double().square().sum(2).cpu()
    return total / probes


def random_signs(like: Tensor, generator: Generator) -> Tensor:
    """1 or -1, each with probability 1/2, in the shape of `like`."""
    coins = torch.randint(2, like.shape, generator=generator, device=generator.device)
    return (2 * coins - 1).to(like)


def channel_steps(layout: Layout, probe: Codes) -> Steps:
    """Steps along one channel at a time, at all places at once: as far as `probe` says."""
    channel = torch.arange(layout.channels)[:, None] == layout.unit_of("channel")
    return lambda rows: channel[:, None].to(probe) * probe[rows]


def metric_of(likelihood: str) -> str:
    """In which metric changes of the decoded observation are measured, in words."""
    return "Fisher information of pixels" if likelihood == "bernoulli" else "pixels"


def likelihood_of(autoencoder: Autoencoder, codes: Codes) -> Likelihood:
    """The likelihood a model was trained with, or the best guess.

    The one the model states (`likelihood_name`); otherwise Bernoulli for images decoded to
    values from 0 to 1, Gaussian for everything else.
    """
    if autoencoder.likelihood_name is not None:
        return "bernoulli" if autoencoder.likelihood_name.lower() == "bernoulli" else "gaussian"
    x = decode(autoencoder, codes[:16])
    inside = x.ndim == 4 and float(x.min()) >= 0 and float(x.max()) <= 1
    return "bernoulli" if inside else "gaussian"


def _check_choice(option: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"jacobian: {option}={value!r}. {did_you_mean(value, choices)}")


def _pixel_spread(x: Tensor) -> Tensor:
    """sqrt(p (1 - p)) of each decoded pixel, codes x 1 x pixels."""
    p = x.flatten(1)[:, None]
    low, high = float(p.min()), float(p.max())
    if low < -1e-6 or high > 1 + 1e-6:
        raise Undefined(
            f"jacobian: likelihood='bernoulli', but decoded values go from {low:.3g} to {high:.3g} "
            "and are not probabilities. Is this another likelihood, or does the decoder return "
            "logits?"
        )
    # The derivative of a pixel that is certainly black is below this floor, so that the pixel
    # gets no weight.
    return (p * (1 - p)).clamp(min=1e-6).sqrt()
