"""The interface: what zscope asks of a model, and how any pair of functions can answer.

An `Autoencoder` encodes observations into a `Posterior` over its latents and decodes
latents into observations. Everything else in zscope knows a model only through this.

`wrap(encoder, decoder)` makes one of any two callables or modules.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from zscope.errors import InterfaceError, Undefined
from zscope.randomness import Source, normal
from zscope.types import Codes, Observations

Prior = Literal["normal"] | None


class Posterior:
    """A Gaussian over the latents of each sample: what an encoder says of its input.

    q(z | x) = N(mean, diag(std^2))            with `std`
    q(z | x) = N(mean, L L^T)                  with `scale_tril` = L, lower triangular
    q(z | x) = a point mass at the mean        with neither (a deterministic encoder)
    """

    __slots__ = ("mean", "scale_tril", "std")
    mean: Tensor
    std: Tensor | None
    scale_tril: Tensor | None

    def __init__(
        self, mean: Tensor, std: Tensor | None = None, *, scale_tril: Tensor | None = None
    ) -> None:
        if mean.ndim != 2:
            raise InterfaceError(
                f"Posterior: the mean has shape {tuple(mean.shape)}, but a row of latents for "
                "each sample is needed (samples x latents). Latents with spatial axes are "
                "flattened by zs.wrap; for your own Posterior call mean.flatten(1)."
            )
        if std is not None and scale_tril is not None:
            raise InterfaceError(
                "Posterior: both std and scale_tril were given, which would be two different "
                "covariances. Give std for a diagonal one, scale_tril for a full one."
            )
        if std is not None and std.shape != mean.shape:
            raise InterfaceError(
                f"Posterior: the mean has shape {tuple(mean.shape)} and std {tuple(std.shape)}; "
                "they must be equal. Does the encoder give one spread per latent?"
            )
        expected = (*mean.shape, mean.shape[1])
        if scale_tril is not None and tuple(scale_tril.shape) != expected:
            raise InterfaceError(
                f"Posterior: scale_tril has shape {tuple(scale_tril.shape)}, expected {expected} "
                "(samples x latents x latents). Is it the Cholesky factor of each covariance?"
            )
        self.mean, self.std, self.scale_tril = mean, std, scale_tril

    def __repr__(self) -> str:
        kind = "diagonal" if self.std is not None else "full covariance"
        kind = "deterministic" if self.deterministic else kind
        return f"Posterior({len(self)} samples x {self.latents} latents, {kind})"

    def __len__(self) -> int:
        return len(self.mean)

    def __getitem__(self, rows: Any) -> "Posterior":
        """The posterior of some of the samples: a slice, a mask or a list of indices."""
        return Posterior(
            self.mean[rows],
            None if self.std is None else self.std[rows],
            scale_tril=None if self.scale_tril is None else self.scale_tril[rows],
        )

    @property
    def latents(self) -> int:
        return self.mean.shape[1]

    @property
    def deterministic(self) -> bool:
        return self.std is None and self.scale_tril is None

    @property
    def variance(self) -> Codes:
        """The variance of each latent (the diagonal of the covariance); 0 if deterministic."""
        if self.std is not None:
            return self.std.square()
        if self.scale_tril is not None:
            return self.scale_tril.square().sum(-1)
        return torch.zeros_like(self.mean)

    def sample(self, generator: Source = None) -> Codes:
        """One draw for each sample: mean + std * noise. The mean itself if deterministic."""
        if self.std is not None:
            return self.mean + self.std * normal(self.mean, generator)
        if self.scale_tril is not None:
            noise = normal(self.mean, generator)
            return self.mean + (self.scale_tril @ noise.unsqueeze(-1)).squeeze(-1)
        return self.mean

    def kl(self) -> Codes:
        """KL(q(z|x) || N(0, I)) in nats, shared out over the latents (samples x latents).

            KL_j = 1/2 (mean_j^2 + Sigma_jj - 1 - log L_jj^2)

        With a diagonal covariance L_jj^2 is the variance and KL_j is the divergence of
        latent j alone. With a full one, L_jj^2 is the variance that latent j keeps once
        the latents before it are known; the sum over j is the whole divergence, the
        shares depend on the order of the latents. (Kingma & Welling, ICLR 2014, app. B.)
        """
        if self.std is not None:
            log_variance = 2 * self.std.log()
        elif self.scale_tril is not None:
            log_variance = self.scale_tril.diagonal(dim1=-2, dim2=-1).square().log()
        else:
            raise Undefined(
                f"Posterior.kl: the {len(self)} posteriors have no spread, so their divergence "
                "from a Gaussian prior is infinite. This encoder is deterministic: use assays "
                "that need no prior, such as the response matrix."
            )
        return 0.5 * (self.mean.square() + self.variance - 1 - log_variance)

    def detach(self) -> "Posterior":
        return self._each(lambda tensor: tensor.detach())

    def to(self, *args: Any, **options: Any) -> "Posterior":
        """As `Tensor.to`, for all parts."""
        return self._each(lambda tensor: tensor.to(*args, **options))

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Posterior":
        return Posterior(
            change(self.mean),
            None if self.std is None else change(self.std),
            scale_tril=None if self.scale_tril is None else change(self.scale_tril),
        )


class Autoencoder(nn.Module):
    """An encoder and a decoder. Derive from it, or use `wrap`.

    `latents` is the number of latents; `prior` is "normal" when the latents are meant to
    follow N(0, I), and None when there is no prior. A model with a causal block between
    noises and decoder overrides `causes`. `name` is what a page calls it, if not its class.
    """

    latents: int
    prior: Prior = "normal"
    name: str | None = None

    def encode(self, x: Tensor, auxiliary: Tensor | None = None) -> Posterior:
        raise InterfaceError(f"{type(self).__name__}: a model must define encode(x).")

    def decode(self, z: Codes) -> Tensor:
        """The mean of p(x | z): the decoded observation itself, no pixel sampling."""
        raise InterfaceError(f"{type(self).__name__}: a model must define decode(z).")

    def causes(self, noise: Codes) -> Codes:
        """The causes that the noises give rise to; the noises themselves without a causal block."""
        return noise

    @property
    def place(self) -> tuple[torch.device, torch.dtype]:
        """Device and floating type of the weights; the CPU and float32 when there are none."""
        for parameter in self.parameters():
            if parameter.is_floating_point():
                return parameter.device, parameter.dtype
        return torch.device("cpu"), torch.float32


@contextmanager
def evaluation(model: nn.Module, *, gradients: bool = False) -> Iterator[None]:
    """Measure `model` without changing it: evaluation mode, no gradients unless asked.

    Every submodule gets back the mode it was found in, also when the model raises.
    """
    modes = [(module, module.training) for module in model.modules()]
    try:
        _set((module, False) for module, _ in modes)
        with torch.set_grad_enabled(gradients):
            yield
    finally:
        _set(modes)


def _set(modes: Iterable[tuple[nn.Module, bool]]) -> None:
    for module, mode in modes:
        if module.training != mode:  # setting takes far longer than looking
            module.training = mode


class Wrapped(Autoencoder):
    """Two foreign callables seen as an `Autoencoder`; made by `wrap`."""

    def __init__(
        self,
        encoder: Any,
        decoder: Any,
        *,
        latents: int | None = None,
        prior: str | None = "auto",
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
                f"wrap: prior={prior!r} is not known. Use 'normal' for N(0, I), None for no "
                "prior, or 'auto' to decide by whether the encoder gives a spread."
            )
        self.encoder, self.decoder = encoder, decoder
        # A bound method such as model.encode hides its module: register that too, so that
        # parameters, device and mode are seen.
        self.owners = nn.ModuleList(
            {id(o): o for o in map(_owner, (encoder, decoder)) if o}.values()
        )
        self._latents = latents
        self._prior = prior
        self._spread: bool | None = None
        self._code_shape: tuple[int, ...] | None = None
        self._x_shape: tuple[int, ...] | None = None

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
        if self._spread is None:
            raise InterfaceError(
                "wrap: prior='auto' is decided by what the encoder returns, and it has not been "
                "used yet. Encode a batch first, or wrap with prior='normal', prior=None or "
                "example=a_batch."
            )
        return "normal" if self._spread else None

    def encode(self, x: Tensor, auxiliary: Tensor | None = None) -> Posterior:
        x = _as_tensor(x, "wrap: the input of encode")
        device, dtype = _place(self.encoder)
        with _measuring(self.encoder, x):
            x = x.to(device, dtype if x.is_floating_point() else None)
            came = self._call("encoder", self.encoder, x, auxiliary)
        mean, std, scale_tril = _read_posterior(came, len(x))
        shape = tuple(mean.shape[1:])
        if self._code_shape not in (None, shape):
            raise InterfaceError(
                f"wrap: the encoder gave latents of shape {shape}, earlier {self._code_shape}. "
                "The number of latents must not depend on the input: feed observations of one size."
            )
        count = int(np.prod(shape))
        if self._latents not in (None, count):
            raise InterfaceError(
                f"wrap: the encoder gave {count} latents (shape {shape}), but latents="
                f"{self._latents} was promised. Leave latents= out to take what comes, or check "
                "that the encoder returns (mean, log-variance) and not both in one tensor."
            )
        self._latents, self._code_shape = count, shape
        self._spread, self._x_shape = std is not None or scale_tril is not None, tuple(x.shape[1:])
        flat = None if std is None else std.flatten(1)
        return Posterior(mean.flatten(1), flat, scale_tril=scale_tril)

    def decode(self, z: Codes) -> Tensor:
        z = _as_tensor(z, "wrap: the input of decode")
        if self._latents is not None and z.shape[1:].numel() != self._latents:
            raise InterfaceError(
                f"wrap: decode got {tuple(z.shape)}, but this model has {self._latents} latents. "
                "Give one row of latents for each sample."
            )
        shape = self._code_shape or tuple(z.shape[1:])
        device, dtype = _place(self.decoder)
        with _measuring(self.decoder, z):
            codes = z.to(device, dtype).reshape(len(z), *shape)
            x = self._call("decoder", self.decoder, codes, None)
        x = _as_tensor(_only(x), "wrap: the output of the decoder")
        if x.ndim < 2 or len(x) != len(z):
            raise InterfaceError(
                f"wrap: the decoder was given {len(z)} codes and returned shape {tuple(x.shape)}; "
                "it must return one observation for each code. Does it squeeze or sum its batch?"
            )
        if self._x_shape is not None and tuple(x.shape[1:]) != self._x_shape:
            raise InterfaceError(
                f"wrap: the decoder returned observations of shape {tuple(x.shape[1:])}, but the "
                f"encoder takes {self._x_shape}. zscope encodes what was decoded, so the two must "
                "agree: reshape or resize in a small function around the decoder."
            )
        if not x.is_floating_point():
            raise InterfaceError(
                f"wrap: the decoder returned {x.dtype}, but real numbers are needed to measure "
                "small changes. Return the decoded mean before any rounding or argmax."
            )
        return x

    def check(self, example: Tensor) -> None:
        """Encode and decode one batch now, so that what does not fit is said here."""
        example = _as_tensor(example, "wrap: example")
        with torch.no_grad():
            self.decode(self.encode(example).mean)

    def _call(self, role: str, part: Any, given: Tensor, extra: Any) -> Any:
        try:
            return part(given) if extra is None else part(given, extra)
        except InterfaceError:
            raise
        except Exception as error:
            said = (str(error).strip().splitlines() or ["(no text)"])[0]
            raise InterfaceError(
                f"wrap: the {role} raised {type(error).__name__} on a {given.dtype} tensor of "
                f"shape {tuple(given.shape)} on {given.device}: {said}. "
                "Is this the shape, dtype and scale it was trained on? Prepare the data so, or put "
                f"the preparation into a small function around the {role}."
            ) from error


def wrap(
    encoder: Any,
    decoder: Any,
    *,
    latents: int | None = None,
    prior: str | None = "auto",
    example: Observations | None = None,
) -> Autoencoder:
    """Make an `Autoencoder` of any encoder and decoder.

    The encoder may return codes, a pair (mean, log-variance), a `Posterior`, or a torch
    distribution (Normal, Independent Normal, MultivariateNormal). Codes with spatial axes
    are flattened for zscope and restored for the decoder. `prior="auto"` takes N(0, I) for
    an encoder that gives a spread and no prior for one that does not.

    Shapes, dtypes and devices are checked at first use, or at once on `example`. Modules
    are measured in evaluation mode and left in the mode they were found in; gradients are
    tracked only for inputs that ask for them.
    """
    wrapped = Wrapped(encoder, decoder, latents=latents, prior=prior)
    if example is not None:
        wrapped.check(example)
    return wrapped


def _place(part: Any) -> tuple[torch.device | None, torch.dtype | None]:
    """Where the weights of a module are; (None, None) leaves the input as it is."""
    owner = _owner(part)
    for parameter in () if owner is None else owner.parameters():
        if parameter.is_floating_point():
            return parameter.device, parameter.dtype
    return None, None


def _owner(part: Any) -> nn.Module | None:
    """The module that `part` is, or is a method of."""
    owner = part if isinstance(part, nn.Module) else getattr(part, "__self__", None)
    return owner if isinstance(owner, nn.Module) else None


@contextmanager
def _measuring(part: Any, given: Tensor) -> Iterator[None]:
    """Evaluation mode for the module behind `part`; gradients only if `given` asks for them."""
    asked = torch.is_grad_enabled() and (
        given.requires_grad or torch._C._functorch.is_functorch_wrapped_tensor(given)
    )
    with evaluation(_owner(part) or nn.Module(), gradients=asked):
        yield


def _as_tensor(value: Any, who: str) -> Tensor:
    if isinstance(value, Tensor):
        return value
    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.ascontiguousarray(value))
    raise InterfaceError(
        f"{who} is {_describe(value)}, but a tensor or an array is needed. "
        "Return or pass the numbers themselves."
    )


def _only(value: Any) -> Any:
    """A decoder's output without the wrapping that some libraries put around it."""
    if isinstance(value, tuple | list) and len(value) == 1:
        return value[0]
    if isinstance(value, torch.distributions.Distribution):
        return value.mean
    return value


def _read_posterior(came: Any, count: int) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """(mean, std, scale_tril) of whatever an encoder returned, checked against the batch."""
    std = scale_tril = None
    if isinstance(came, tuple | list) and len(came) == 1:
        came = came[0]
    if isinstance(came, torch.distributions.Independent):
        came = came.base_dist
    if isinstance(came, Posterior):
        mean, std, scale_tril = came.mean, came.std, came.scale_tril
    elif isinstance(came, torch.distributions.Normal):
        mean, std = came.loc, came.scale
    elif isinstance(came, torch.distributions.MultivariateNormal):
        mean, scale_tril = came.loc, came.scale_tril
    elif isinstance(came, tuple | list) and len(came) == 2:
        mean = _as_tensor(came[0], "wrap: the encoder's mean")
        log_variance = _as_tensor(came[1], "wrap: the encoder's log-variance")
        if mean.shape != log_variance.shape:
            raise InterfaceError(
                f"wrap: the encoder returned a pair of shapes {tuple(mean.shape)} and "
                f"{tuple(log_variance.shape)}; a pair is read as (mean, log-variance) of equal "
                "shape. If the second part is something else, return the first alone."
            )
        std = (log_variance / 2).exp()
    elif isinstance(came, Tensor | np.ndarray):
        mean = _as_tensor(came, "wrap: the encoder's output")
    else:
        raise InterfaceError(
            f"wrap: the encoder returned {_describe(came)}. It must return codes (a tensor), a "
            "pair (mean, log-variance), a zs.Posterior or a torch Normal: put a small function "
            "around it that picks these out."
        )
    if mean.ndim < 2 or len(mean) != count:
        raise InterfaceError(
            f"wrap: the encoder was given {count} observations and returned shape "
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
