"""`wrap`: make an `Autoencoder` of any encoder and decoder, two functions or modules."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from zscope.autoencoder import Autoencoder, Posterior, Prior, evaluation, plain_copy
from zscope.errors import InterfaceError
from zscope.layout import Layout
from zscope.types import Codes, Observations, array_of, as_tensor, needs_gradients

__all__ = ["LayoutOption", "Wrapped", "wrap"]

LayoutOption = Layout | str | None
"""A layout, "auto", "channels first" or "channels last", or None for a vector."""


class Wrapped(Autoencoder):
    """An encoder and a decoder of one's own as an `Autoencoder`; made by `wrap`."""

    safe_inputs = True  # copies them itself, see `_call`

    def __init__(
        self,
        encoder: Any,
        decoder: Any,
        *,
        latents: int | None = None,
        prior: str | None = "auto",
        layout: LayoutOption = "auto",
    ) -> None:
        super().__init__()
        for role, part in (("encoder", encoder), ("decoder", decoder)):
            if not callable(part):
                raise InterfaceError(
                    f"wrap: the {role} is a {type(part).__name__}, which cannot be called. "
                    f"Give a function or a module, for instance model.{role} or model.{role[:-1]}."
                )
        if prior not in ("normal", "auto", None):
            raise InterfaceError(
                f"wrap: prior={prior!r} is not known. Use 'normal' for N(0, I), None for no prior, "
                "or 'auto', which means 'normal' if the encoder returns variances."
            )
        words = ("auto", "channels first", "channels last")
        if layout is not None and layout not in words and not isinstance(layout, Layout):
            raise InterfaceError(
                f"wrap: layout={layout!r} is not known. Use 'auto', 'channels first', 'channels "
                "last', zs.Layout(channels, places), or None to treat the latents as a vector."
            )
        self.encoder, self.decoder = encoder, decoder
        # A bound method such as model.encode hides its module: register that too, so that its
        # parameters, device and mode are found.
        self.owners = nn.ModuleList(
            {id(o): o for o in map(_owner, (encoder, decoder)) if o}.values()
        )
        self._latents = latents
        self._prior = prior
        self._variational: bool | None = None
        self._code_shape: tuple[int, ...] | None = None
        self._x_shape: tuple[int, ...] | None = None
        self._asked_layout = layout
        self._channels_last = False
        self._foreign: dict[str, bool] = {}
        """The parts that are not written in torch, and whether they are given arrays."""

    @property
    def title(self) -> str:
        """The names of the encoder and the decoder, where they have any."""
        if self.name is not None:
            return self.name
        parts = [self.encoder, self.decoder]
        names = [getattr(each, "__name__", type(each).__name__) for each in parts]
        known = [name for name in dict.fromkeys(names) if name.isidentifier()]
        return " and ".join(known) or "Autoencoder"

    @property
    def latents(self) -> int:  # type: ignore[override]
        if self._latents is None:
            raise InterfaceError(
                "wrap: the number of latents is not known before the encoder has been used "
                "once. Encode a batch first, or wrap with latents=N or example=a_batch."
            )
        return self._latents

    @property
    def prior(self) -> Prior:  # type: ignore[override]
        if self._prior != "auto":
            return "normal" if self._prior == "normal" else None
        if self._variational is None:
            raise InterfaceError(
                "wrap: prior='auto' depends on what the encoder returns, and it has not been used "
                "yet. Encode a batch first, or wrap with prior='normal', prior=None or "
                "example=a_batch."
            )
        return "normal" if self._variational else None

    def encode(self, x: Tensor | np.ndarray, auxiliary: Tensor | None = None) -> Posterior:
        x = _as_tensor(x, "wrap: the input of encode")
        device, dtype = _place(self.encoder)
        with _evaluating(self.encoder, x):
            x = x.to(device, dtype if x.is_floating_point() else None)
            output = self._call("encoder", self.encoder, x, auxiliary)
        mean, std, scale_tril = _read_posterior(output, len(x))
        shape = tuple(mean.shape[1:])
        if self._code_shape not in (None, shape):
            raise InterfaceError(
                f"wrap: the encoder returned latents of shape {shape}, earlier {self._code_shape}. "
                "The number of latents must not depend on the input: use observations of one size."
            )
        count = int(np.prod(shape))
        if self._latents not in (None, count):
            raise InterfaceError(
                f"wrap: the encoder returned {count} latents (shape {shape}), but latents="
                f"{self._latents} was given. Leave latents= out, or check that the encoder returns "
                "(mean, log-variance) and not both in one tensor."
            )
        if self._code_shape is None:
            own = output.layout if isinstance(output, Posterior) else None
            self._arrange(shape, x, scale_tril is not None, own)
        self._latents, self._code_shape, self._x_shape = count, shape, tuple(x.shape[1:])
        self._variational = std is not None or scale_tril is not None
        if self._channels_last:
            mean, std = mean.movedim(-1, 1), None if std is None else std.movedim(-1, 1)
        flat = None if std is None else std.flatten(1)
        return Posterior(mean.flatten(1), flat, scale_tril=scale_tril, layout=self.layout)

    def decode(self, z: Codes | np.ndarray) -> Tensor:
        z = _as_tensor(z, "wrap: the input of decode")
        if self._latents is not None and z.shape[1:].numel() != self._latents:
            raise InterfaceError(
                f"wrap: decode got {tuple(z.shape)}, but this model has {self._latents} latents. "
                "Give one row of latents for each sample."
            )
        shape = self._code_shape or tuple(z.shape[1:])
        device, dtype = _place(self.decoder)
        with _evaluating(self.decoder, z):
            codes = z.to(device, dtype)
            if self._channels_last:
                codes = codes.reshape(len(z), shape[-1], *shape[:-1]).movedim(1, -1)
            codes = codes.reshape(len(z), *shape)
            x = self._call("decoder", self.decoder, codes, None)
        x = _as_tensor(_unwrap(x), "wrap: the output of the decoder")
        if x.ndim < 2 or len(x) != len(z):
            raise InterfaceError(
                f"wrap: the decoder got {len(z)} codes and returned shape {tuple(x.shape)}; it "
                "must return one observation for each code. Does it squeeze or sum its batch?"
            )
        if self._x_shape is not None and tuple(x.shape[1:]) != self._x_shape:
            decoded = tuple(x.shape[1:])
            advice = "reshape or resize in a small function around the decoder"
            if self._leaves_a_rest(decoded):
                advice = f"crop or resize the data to {' x '.join(map(str, decoded))}"
            raise InterfaceError(
                f"wrap: the decoder returned observations of shape {decoded}, but the encoder "
                f"takes {self._x_shape}. zscope encodes decoded observations again, so the two "
                f"must agree: {advice}."
            )
        if not x.is_floating_point():
            raise InterfaceError(
                f"wrap: the decoder returned {x.dtype}, but zscope measures small changes and "
                "needs floats. Return the decoded mean before any rounding or argmax."
            )
        return x

    def encode_any_size(self, x: Tensor) -> Tensor:
        output = self._call("encoder", self.encoder, x, None)
        mean = _read_posterior(output, len(x))[0]
        return mean.movedim(-1, 1) if self._channels_last else mean

    def decode_any_size(self, maps: Tensor) -> Tensor:
        codes = maps.movedim(1, -1) if self._channels_last else maps
        x = _unwrap(self._call("decoder", self.decoder, codes, None))
        return _as_tensor(x, "wrap: the output of the decoder")

    def check(self, example: Tensor | np.ndarray) -> None:
        """Encode and decode one batch now, so that errors are raised here."""
        example = _as_tensor(example, "wrap: example")
        with torch.no_grad():
            self.decode(self.encode(example).mean)

    def _arrange(
        self, shape: tuple[int, ...], x: Tensor, full_covariance: bool, own: Layout | None
    ) -> None:
        """Decide which axis of the latents has the channels, once; `own` is what a posterior says.

        A posterior has flattened maps, whose order no other layout can change.
        """
        asked = self._asked_layout
        if own is not None and asked == "auto":
            asked = own
        if asked is None or (asked == "auto" and (len(shape) < 2 or full_covariance)):
            return
        if own is not None and (not isinstance(asked, Layout) or asked.shape != own.shape):
            raise InterfaceError(
                f"wrap: the encoder's Posterior has the layout {own}, and layout={str(asked)!r} "
                "was given. Leave layout= out, or give the Posterior the right one."
            )
        if isinstance(asked, Layout):
            ways = {asked.shape: False, (asked.latents,): False}
            ways |= {(*asked.places, asked.channels): True} if shape != asked.shape else {}
            if shape not in ways:
                raise InterfaceError(
                    f"wrap: the encoder returned latents of shape {shape}, and layout={asked} was "
                    f"given ({asked.latents:,} latents). Leave layout= out to have it read from "
                    "the shape, or give channels and places of this model."
                )
            if asked.positions > 1:  # else the channels are a vector
                self.layout, self._channels_last = asked, ways[shape]
            return
        if len(shape) < 2:
            raise InterfaceError(
                f"wrap: layout={asked!r}, but the encoder returned latents of shape {shape}, "
                "which have no axis of places. Give zs.Layout(channels, places) if each row is a "
                "flattened map, or leave layout= out."
            )
        last = asked == "channels last"
        if asked == "auto" and len(shape) == 2:
            last = self._places_come_first(shape, x)
        sizes = (shape[-1], *shape[:-1]) if last else shape
        layout = Layout(sizes[0], sizes[1:])
        if layout.positions > 1:
            self.layout, self._channels_last = layout, last

    def _places_come_first(self, shape: tuple[int, ...], x: Tensor) -> bool:
        """Whether the first of two axes becomes shorter with the observation.

        The observation is cut to half its length along its last axis; where the encoder refuses
        that, or nothing becomes shorter, along the one before. Half of the colours would tell
        nothing about places: of pictures and video the first axis stays whole. With two axes it
        may be the length (time x features), which is cut after the features were refused.
        """
        first = 1 if x.ndim <= 3 else 2
        for axis in range(x.ndim - 1, first - 1, -1):
            shorter = self._code_shape_of(x[:2].narrow(axis, 0, max(1, x.shape[axis] // 2)))
            if len(shorter) == 2 and (shorter[0] < shape[0]) != (shorter[1] < shape[1]):
                return shorter[0] < shape[0]
        self.layout_note = (
            f"Latents of shape {shape[0]} x {shape[1]} were read as {shape[0]} channels with "
            f"{shape[1]} places: observations of half the length did not tell which axis is "
            "which. If it is the other way round, wrap the model with layout='channels last'."
        )
        return False

    def _leaves_a_rest(self, decoded: tuple[int, ...]) -> bool:
        """Whether the sides of observations are a little longer than a multiple of the stride."""
        assert self._x_shape is not None
        places = self.layout.places if self.layout is not None else ()
        if len(places) + 1 != len(decoded) or (len(decoded), decoded[0]) != (
            len(self._x_shape), self._x_shape[0],
        ):  # fmt: skip
            return False
        sides = zip(self._x_shape[1:], decoded[1:], places, strict=True)
        return all(0 <= own - side < max(1, own // count) for own, side, count in sides)

    def _code_shape_of(self, x: Tensor) -> tuple[int, ...]:
        """The shape of the latents of observations of another size; empty if they are refused."""
        try:
            with _evaluating(self.encoder, x), torch.no_grad():
                output = self._call("encoder", self.encoder, x, None)
            return tuple(_read_posterior(output, len(x))[0].shape[1:])
        except InterfaceError:
            return ()

    def _call(self, role: str, part: Any, batch: Tensor, auxiliary: Any) -> Any:
        who = f"wrap: the {role}"
        values = [value for value in (batch, auxiliary) if value is not None]
        arrays = [array_of(value, who) for value in values] if role in self._foreign else []
        try:
            if self._foreign.get(role):
                return part(*arrays)
            # Foreign code may write to its input, or rely on its strides.
            output = part(*map(plain_copy, values))
        except InterfaceError:
            raise
        except Exception as error:
            if role not in self._foreign and _takes_arrays(part, values):
                self._foreign[role] = True
                return self._call(role, part, batch, auxiliary)
            message = (str(error).strip().splitlines() or ["(no message)"])[0]
            raise InterfaceError(
                f"wrap: the {role} raised {type(error).__name__} on a {batch.dtype} tensor of "
                f"shape {tuple(batch.shape)} on {batch.device}: {message}. "
                "Is this the shape, dtype and scale it was trained on? Convert the data, or do it "
                f"in a small function around the {role}."
            ) from error
        if role not in self._foreign and _has_arrays(output):
            self._foreign[role] = False
        return output


def wrap(
    encoder: Any,
    decoder: Any,
    *,
    latents: int | None = None,
    prior: str | None = "auto",
    layout: LayoutOption = "auto",
    example: Observations | np.ndarray | None = None,
) -> Autoencoder:
    """Make an `Autoencoder` of any encoder and decoder.

    The encoder may return codes, a pair (mean, log-variance), a `Posterior`, or a torch
    distribution (Normal, Independent Normal, MultivariateNormal). `prior="auto"` means N(0, I)
    for an encoder that returns variances, and no prior for one that does not.

    Latents with further axes are maps: they are flattened for zscope, channel by channel, and
    restored for the decoder. `layout="auto"` takes the first axis for the channels; of two axes
    the one that becomes shorter when the observation does has the places. Say "channels last"
    for tokens x channels, `zs.Layout(4, (8, 8))` for an encoder that flattens its maps itself
    (unless it returns a `Posterior` with a layout), and None to treat the latents as a vector.

    Functions of other libraries (JAX, Keras, NumPy) are given arrays if they refuse tensors, and
    may return arrays of their own. They have no gradients here: assays that need these say so.

    Shapes, dtypes and devices are checked at first use, or at once on `example`. Modules
    are given copies in plain memory order, so that they cannot change the data. They are
    called in evaluation mode and then put back into their previous mode; gradients are
    tracked only for inputs that require them.
    """
    wrapped = Wrapped(encoder, decoder, latents=latents, prior=prior, layout=layout)
    if example is not None:
        wrapped.check(example)
    return wrapped


def _place(part: Any) -> tuple[torch.device | None, torch.dtype | None]:
    """Device and dtype of a module's weights; (None, None) leaves the input unchanged."""
    owner = _owner(part)
    for parameter in () if owner is None else owner.parameters():
        if parameter.is_floating_point():
            return parameter.device, parameter.dtype
    return None, None


def _owner(part: Any) -> nn.Module | None:
    """The module that `part` is, or whose method it is."""
    owner = part if isinstance(part, nn.Module) else getattr(part, "__self__", None)
    return owner if isinstance(owner, nn.Module) else None


@contextmanager
def _evaluating(part: Any, batch: Tensor) -> Iterator[None]:
    """Evaluation mode for the module of `part`; gradients only if `batch` requires them."""
    gradients = torch.is_grad_enabled() and (
        batch.requires_grad or torch._C._functorch.is_functorch_wrapped_tensor(batch)
    )
    with evaluation(_owner(part) or nn.Module(), gradients=gradients):
        yield


def _takes_arrays(part: Any, values: list[Tensor]) -> bool:
    """Whether a function that raised an error on tensors works with arrays instead."""
    if _owner(part) is not None:
        return False
    if any(map(needs_gradients, values)):  # which may be what it refused
        shapes = [tuple(value.shape) for value in values]
        try:
            return _has_arrays(part(*map(torch.zeros, shapes)))
        except Exception:  # the next attempt tells
            arrays = [np.zeros(shape, np.float32) for shape in shapes]
    else:
        arrays = [value.detach().cpu().numpy() for value in values]
    try:
        return _has_arrays(part(*arrays))
    except Exception:  # it fails either way, and its first error is raised
        return False


def _has_arrays(output: Any) -> bool:
    """Whether an output is an array, or has arrays for its parts."""
    parts = output if isinstance(output, tuple | list) else [output]
    return any(_is_array(part) for part in parts)


def _is_array(value: Any) -> bool:
    """An array of NumPy or of a library that converts its own, as JAX and TensorFlow do."""
    return not isinstance(value, Tensor) and hasattr(value, "__array__")


def _as_tensor(value: Any, who: str) -> Tensor:
    if isinstance(value, Tensor):
        return value
    if _is_array(value):
        return as_tensor(np.ascontiguousarray(value), who)
    raise InterfaceError(
        f"{who} is {_describe(value)}; expected a tensor or an array. "
        "Return or pass the numbers themselves."
    )


def _unwrap(value: Any) -> Any:
    """A decoder's output without the tuple or distribution that some libraries return."""
    if isinstance(value, tuple | list) and len(value) == 1:
        return value[0]
    if isinstance(value, torch.distributions.Distribution):
        return value.mean
    return value


def _read_posterior(output: Any, count: int) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """(mean, std, scale_tril) of an encoder's output, checked against the size of the batch."""
    std = scale_tril = None
    if isinstance(output, tuple | list) and len(output) == 1:
        output = output[0]
    if isinstance(output, torch.distributions.Independent):
        output = output.base_dist
    if isinstance(output, Posterior):
        mean, std, scale_tril = output.mean, output.std, output.scale_tril
    elif isinstance(output, torch.distributions.Normal):
        mean, std = output.loc, output.scale
    elif isinstance(output, torch.distributions.MultivariateNormal):
        mean, scale_tril = output.loc, output.scale_tril
    elif isinstance(output, tuple | list) and len(output) == 2:
        mean = _as_tensor(output[0], "wrap: the encoder's mean")
        log_variance = _as_tensor(output[1], "wrap: the encoder's log-variance")
        if mean.shape != log_variance.shape:
            raise InterfaceError(
                f"wrap: the encoder returned a pair of shapes {tuple(mean.shape)} and "
                f"{tuple(log_variance.shape)}; a pair is read as (mean, log-variance) of equal "
                "shape. If the second part is something else, return the first alone."
            )
        std = (log_variance / 2).exp()
    elif isinstance(output, Tensor) or _is_array(output):
        mean = _as_tensor(output, "wrap: the encoder's output")
    else:
        raise InterfaceError(
            f"wrap: the encoder returned {_describe(output)}. It must return codes (a tensor), a "
            "pair (mean, log-variance), a zs.Posterior or a torch Normal: write a small function "
            "around it that returns one of these."
        )
    if mean.ndim < 2 or len(mean) != count:
        raise InterfaceError(
            f"wrap: the encoder got {count} observations and returned shape "
            f"{tuple(mean.shape)}; it must return one row of latents for each observation. "
            "Does it squeeze or average its batch?"
        )
    if not mean.is_floating_point():
        raise InterfaceError(
            f"wrap: the encoder returned {mean.dtype} codes; zscope measures continuous latents. "
            "For discrete codes (VQ), return the vectors before quantisation."
        )
    return mean, std, scale_tril


def _describe(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)} ({', '.join(map(_describe, value[:4]))})"
    if isinstance(value, dict):
        return f"a dict with the keys {', '.join(map(repr, list(value)[:6]))}"
    if isinstance(value, Tensor):
        return f"a tensor {tuple(value.shape)}"
    return f"a {type(value).__module__}.{type(value).__qualname__}"
