"""The interface: all that zscope asks of a model.

An `Autoencoder` encodes observations into a `Posterior` over its latents and decodes latents
into observations. Everything else in zscope knows a model only through what is declared in
this file, from top to bottom: `Posterior`, `Autoencoder`, then what only some models have.

    class VAE(zs.Trainable):                      # zs.Autoencoder if it need not be trained
        def __init__(self, encoder, decoder, latents):
            super().__init__()
            self.encoder, self.decoder, self.latents = encoder, decoder, latents

        def encode(self, x, auxiliary=None):
            mean, log_variance = self.encoder(x).chunk(2, dim=1)
            return zs.Posterior(mean, (log_variance / 2).exp())

        def decode(self, z):
            return self.decoder(z)

        def losses(self, x, generator=None):
            posterior = self.encode(x)
            error = (self.decode(posterior.sample(generator)) - x).square().flatten(1).sum(1)
            terms = {"reconstruction": error.mean(), "divergence": posterior.kl().sum(1).mean()}
            return zs.Losses(sum(terms.values()), terms, posterior)

CONTRIBUTING.md has the same for a conditional model and for one with its own likelihood.
`zs.wrap(encoder, decoder)` makes an `Autoencoder` of any two functions or modules.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from zscope.display import losses_html, model_html, posterior_html
from zscope.errors import InterfaceError, Undefined
from zscope.inference import faster_layers
from zscope.layout import LatentScaling, Layout, no_layout
from zscope.randomness import Source, normal
from zscope.scaling import Scaling
from zscope.types import Codes, PerSample, Scalar, as_tensor

__all__ = [
    "Autoencoder", "Interventions", "Losses", "Posterior", "Prior", "Rival", "Trainable",
    "WithCausalBlock", "WithFeatures", "evaluation", "plain_copy",
]  # fmt: skip

Prior = Literal["normal"] | None
Interventions = Mapping[int, Tensor | float] | None
"""Causes, by their indices, and the values that they are set to."""

TAKE_TENSORS = (
    "encode",
    "decode",
    "negative_log_likelihood",
    "causes",
    "decode_causes",
    "features",
)
"""Methods of a model that are given observations or codes."""


class Posterior:
    """A Gaussian over the latents of each sample: the output of an encoder.

        q(z | x) = N(mean, diag(std^2))         with `std`
        q(z | x) = N(mean, L L^T)               with `scale_tril` = L, lower triangular
        q(z | x) = a point mass at the mean     with neither (a deterministic encoder)

    `layout` says which channel and place each latent belongs to, if the latents are maps.
    """

    __slots__ = ("layout", "mean", "scale_tril", "std")
    mean: Tensor
    std: Tensor | None
    scale_tril: Tensor | None
    layout: Layout | None

    def __init__(
        self,
        mean: Tensor | np.ndarray,
        std: Tensor | np.ndarray | None = None,
        *,
        scale_tril: Tensor | np.ndarray | None = None,
        layout: Layout | None = None,
    ) -> None:
        mean = _real(mean)
        std = None if std is None else _real(std)
        scale_tril = None if scale_tril is None else _real(scale_tril)
        if mean.ndim != 2 or mean.shape[1] == 0:
            raise InterfaceError(
                f"Posterior: the mean has shape {tuple(mean.shape)}; expected a row of latents for "
                "each sample (samples x latents). zs.wrap flattens latents with spatial axes; for "
                "your own Posterior call mean.flatten(1)."
            )
        if std is not None and scale_tril is not None:
            raise InterfaceError(
                "Posterior: both std and scale_tril were given, which would be two different "
                "covariances. Give std for a diagonal one, scale_tril for a full one."
            )
        if std is not None and std.shape != mean.shape:
            raise InterfaceError(
                f"Posterior: the mean has shape {tuple(mean.shape)} and std {tuple(std.shape)}; "
                "they must be equal. Does the encoder return one std for each latent?"
            )
        expected = (*mean.shape, mean.shape[1])
        if scale_tril is not None and tuple(scale_tril.shape) != expected:
            raise InterfaceError(
                f"Posterior: scale_tril has shape {tuple(scale_tril.shape)}, expected {expected} "
                "(samples x latents x latents). Is it the Cholesky factor of each covariance?"
            )
        if layout is not None and not isinstance(layout, Layout):
            raise InterfaceError(no_layout("Posterior", layout))
        if layout is not None and layout.latents != mean.shape[1]:
            raise InterfaceError(
                f"Posterior: the layout {layout} has {layout.latents:,} latents, and the mean has "
                f"{mean.shape[1]:,}. Are channels and places those of this model?"
            )
        if layout is not None and scale_tril is not None:
            raise InterfaceError(
                "Posterior: scale_tril and a layout were given; the covariance of maps must be "
                "diagonal. Give std, or leave the layout out to treat the latents as a vector."
            )
        self.mean, self.std, self.scale_tril, self.layout = mean, std, scale_tril, layout

    def __repr__(self) -> str:
        kind = "diagonal" if self.std is not None else "full covariance"
        kind = "deterministic" if self.deterministic else kind
        return f"Posterior({len(self)} samples x {self.latents} latents, {kind})"

    def _repr_html_(self) -> str:
        return posterior_html(self)

    def __len__(self) -> int:
        return len(self.mean)

    def __getitem__(self, rows: Any) -> "Posterior":
        """The posterior of some of the samples: a slice, a mask or a list of indices."""
        return Posterior(
            self.mean[rows],
            None if self.std is None else self.std[rows],
            scale_tril=None if self.scale_tril is None else self.scale_tril[rows],
            layout=self.layout,
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
        """KL(q(z|x) || N(0, I)) in nats, the share of each latent (samples x latents).

            KL_j = 1/2 (mean_j^2 + Sigma_jj - 1 - log L_jj^2)

        With a diagonal covariance L_jj^2 is the variance and KL_j is the divergence of
        latent j alone. With a full one, L_jj^2 is the variance of latent j given the latents
        before it; the sum over j is the divergence, and the shares depend on the order of
        the latents. (Kingma & Welling, ICLR 2014, app. B.)
        """
        if self.std is not None:
            log_variance = 2 * self.std.log()
        elif self.scale_tril is not None:
            log_variance = self.scale_tril.diagonal(dim1=-2, dim2=-1).square().log()
        else:
            raise Undefined(
                f"Posterior.kl: the {len(self)} posteriors have no variance, so their divergence "
                "from a Gaussian prior is infinite. This encoder is deterministic: use assays "
                "that need no prior, such as the response matrix."
            )
        return 0.5 * (self.mean.square() + self.variance - 1 - log_variance)

    def relative_to(self, prior: "Posterior") -> "Posterior":
        """The posterior in units of a prior N(mean, diag std^2): what equals it is N(0, I).

        Divergences do not change with the units, so `posterior.relative_to(prior).kl()` is
        KL(q || prior).
        """
        if prior.std is None:
            raise Undefined("Posterior.relative_to: the prior needs a std for each latent.")
        mean = (self.mean - prior.mean) / prior.std
        if self.scale_tril is not None:
            return Posterior(mean, scale_tril=self.scale_tril / prior.std.unsqueeze(-1))
        std = None if self.std is None else self.std / prior.std
        return Posterior(mean, std, layout=self.layout)

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
            layout=self.layout,
        )


def _real(values: Any) -> Tensor:
    """A tensor of floats; whole numbers become floats, complex ones are refused."""
    tensor = as_tensor(values, "Posterior")
    if tensor.is_complex():
        raise InterfaceError(
            f"Posterior: got complex numbers ({tensor.dtype}); expected real ones. Give real and "
            "imaginary parts as latents of their own: torch.cat([z.real, z.imag], 1)"
        )
    return tensor if tensor.is_floating_point() else tensor.float()


def plain_copy(value: Any) -> Any:
    """A copy of a tensor with the strides of a new one; anything else as it is.

    `.contiguous()` leaves an axis of length 1 with whatever stride it has, which convolutions
    take for another memory format.
    """
    if not isinstance(value, Tensor):
        return value
    return value.clone(memory_format=torch.contiguous_format)


def _guarded(method: Callable[..., Any], copy: bool) -> Callable[..., Any]:
    """The method, called with copies of its tensors if `copy`; what it raises is named."""

    @wraps(method)
    def call(self: Any, *values: Any, **options: Any) -> Any:
        if copy:
            values = tuple(map(plain_copy, values))
            options = {name: plain_copy(value) for name, value in options.items()}
        try:
            output = method(self, *values, **options)
        except (ArithmeticError, LookupError, NotImplementedError, TypeError, ValueError,
                AttributeError, AssertionError) as error:  # fmt: skip
            raise _failure(self, method.__name__, values, error) from error
        except RuntimeError as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            raise _failure(self, method.__name__, values, error) from error
        expected = {"encode": Posterior, "decode": Tensor}.get(method.__name__, object)
        if not isinstance(output, expected):
            raise InterfaceError(
                f"{self.title}: {method.__name__} returned a {type(output).__name__}; expected "
                f"{'zs.Posterior(mean, std)' if expected is Posterior else 'a tensor'}. zs.wrap "
                "takes encoders and decoders that return something else."
            )
        return output

    return call


def _failure(model: Any, method: str, values: tuple[Any, ...], error: Exception) -> InterfaceError:
    message = (str(error).strip().splitlines() or ["(no message)"])[0]
    given = [f"{v.dtype} {tuple(v.shape)}" for v in values if isinstance(v, Tensor)]
    return InterfaceError(
        f"{model.title}: {method} raised {type(error).__name__} for {', '.join(given)}: "
        f"{message[:300]}. Are these the shape, type and scale that the model was made for?"
    )


class Autoencoder(nn.Module):
    """An encoder and a decoder. Derive from it, or use `zs.wrap`.

    A model must set `latents` and define `encode` and `decode`; everything else has a
    default. `prior` is "normal" when the latents are meant to follow N(0, I), and None when
    there is no such prior. `name` is shown instead of the name of the class (see `title`).

    *A conditional model* sets `needs_auxiliary`: its `encode` is given the factors of each
    observation, and its prior may depend on them (`prior_given`).

    *A model with its own likelihood* sets `likelihood_name` and defines
    `negative_log_likelihood`. Without one, assays assume a Bernoulli or a Gaussian.

    The small classes below declare what else a model may offer: `Trainable`,
    `WithCausalBlock`, `WithFeatures`.

    The methods of a derived class are given copies in plain memory order, so that `.view` and
    in-place layers are safe in them; zscope's own classes do without (`safe_inputs`).
    """

    safe_inputs: bool = False  # takes tensors of any strides, and never writes to them
    latents: int
    prior: Prior = "normal"
    name: str | None = None
    observation_shape: tuple[int, ...] | None = None  # of one observation; None: any
    groups: list[list[int]] | None = None  # latents that form one variable together
    layout: Layout | None = None  # channels and places, if the latents are maps
    layout_note: str = ""  # what was assumed about the layout, if it could not be told
    latent_scaling: LatentScaling | None = None  # declared for diffusion models, in its config
    recipe: dict[str, Any] | None = None  # how `zs.models.from_recipe` builds it again
    needs_auxiliary: bool = False
    scaling: Scaling | None = None  # the units it sees features in; None: as they are
    decodes: bool = True  # False for an encoder alone, such as a classifier
    decodes_given: bool = False  # whether decode takes the factors too: decode(z, auxiliary)
    likelihood_name: str | None = None  # "bernoulli", "gaussian" or a name of one's own
    divergence_weight: float | None = None  # β of the loss, if it is of the form NLL + β KL

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in TAKE_TENSORS:
            if name in vars(cls):
                setattr(cls, name, _guarded(vars(cls)[name], copy=not cls.safe_inputs))

    def encode(self, x: Tensor, auxiliary: Tensor | None = None) -> Posterior:
        """q(z | x) of each observation; `auxiliary` has its factors, for a conditional model."""
        raise InterfaceError(f"{type(self).__name__}: a model must define encode(x).")

    def decode(self, z: Codes) -> Tensor:
        """The mean of p(x | z): the decoded observation itself, no pixel sampling."""
        raise InterfaceError(f"{type(self).__name__}: a model must define decode(z).")

    def _repr_html_(self) -> str:
        return model_html(self)

    def encode_any_size(self, x: Tensor) -> Tensor:
        """Maps (samples x channels x places) of pictures of another size, where that works."""
        raise InterfaceError(f"{self.title}: the model takes pictures of one size.")

    def decode_any_size(self, maps: Tensor) -> Tensor:
        """The pictures of latent maps of another size, where that works."""
        raise InterfaceError(f"{self.title}: the model takes latents of one size.")

    def prior_given(self, auxiliary: Tensor) -> Posterior | None:
        """The prior of each row of factors, a diagonal Gaussian; None if it is the same for all."""
        return None

    def negative_log_likelihood(self, z: Codes, x: Tensor) -> PerSample:
        """-log p(x | z) of each observation and its code, in nats; see `likelihood_name`."""
        raise InterfaceError(
            f"{type(self).__name__}: likelihood_name is {self.likelihood_name!r}, but "
            "negative_log_likelihood(z, x) is not defined. Define both, or leave the name None."
        )

    def causes(self, noise: Codes) -> Tensor:
        """The causes computed from the noises; the noises themselves without a causal block."""
        return noise

    @property
    def likelihood_variance(self) -> float | None:
        """That of a gaussian likelihood; None is 1/2, the squared error."""
        return None

    @property
    def title(self) -> str:
        """What reports, pages and the explorer call the model.

        Its `name`; else that of its recipe, as "beta-vae"; else that of its class.
        """
        return str(self.name or (self.recipe or {}).get("name") or type(self).__name__)

    @property
    def place(self) -> tuple[torch.device, torch.dtype]:
        """Device and floating type of the weights; the CPU and float32 when there are none."""
        for parameter in self.parameters():
            if parameter.is_floating_point():
                return parameter.device, parameter.dtype
        return torch.device("cpu"), torch.float32


@dataclass(frozen=True, eq=False)
class Losses:
    """The losses of a batch: the total to minimise, and the named terms it is the sum of.

    `posterior` is that of the batch, relative to its prior; training reports the types of
    latents from it (None for a deterministic encoder). `opponent` is the loss of the
    model's `rivals`, minimised in the same step: it has gradients for their weights alone,
    and `total` for all others.
    """

    total: Scalar
    terms: dict[str, Scalar] = field(default_factory=dict)
    posterior: Posterior | None = None
    opponent: Scalar | None = None

    @property
    def whole(self) -> Scalar:
        """The sum that a step minimises; each summand has gradients for its own weights."""
        return self.total if self.opponent is None else self.total + self.opponent

    def _repr_html_(self) -> str:
        return losses_html(self)


@dataclass(frozen=True)
class Rival:
    """A part of a model with an optimiser of its own: Adam with this rate and these decays."""

    module: nn.Module
    rate: float
    betas: tuple[float, float]


class Trainable(Autoencoder):
    """A model that `zs.train` can train: it defines `losses`.

    `needs` names the keywords that `losses` is called with besides x and generator:
    "step" (updates made so far), "samples" (size of the data), "factors" (of the batch) and
    "partner" (a neighbour of each observation). `rivals` are parts that are trained against
    the rest, each by an optimiser of its own, such as a discriminator. `halves` are the modules
    that `freeze="encoder"` and `freeze="decoder"` leave as they are. `numbers` are those in
    the losses, such as β, in which models that are trained together may differ: `losses` takes
    other values for them as `numbers=`, scalars that may be tensors.
    """

    needs: frozenset[str] = frozenset()

    @property
    def rivals(self) -> Mapping[str, Rival]:
        return {}

    @property
    def numbers(self) -> Mapping[str, float]:
        return {}

    @property
    def halves(self) -> Mapping[str, tuple[nn.Module, ...]]:
        """The modules of the "encoder" and of the "decoder", one of which may be frozen.

        By default the attributes of these names, and the causal block is a part of the decoder.
        """
        own = dict(self.named_children())
        parts = {"encoder": ("encoder",), "decoder": ("decoder", "block")}
        if not self.decodes:
            del parts["decoder"]
        return {half: tuple(own[n] for n in names if n in own) for half, names in parts.items()}

    def losses(self, x: Tensor, generator: Source = None, **extras: Any) -> Losses:
        """The losses of a batch. All noise comes from `generator`, as in `Posterior.sample`."""
        raise InterfaceError(f"{type(self).__name__}: a model that trains must define losses.")

    def check_observations(self, x: Tensor) -> None:
        """Raise if the model cannot learn from such observations; called with the first batch."""

    def check_factors(self, factors: Tensor) -> None:
        """Raise if the model cannot learn from such factors; called before training."""


class WithCausalBlock(Autoencoder):
    """A model that computes causes from independent noises and decodes the causes.

    `block` is None where a model of the class has no block after all.
    """

    block: nn.Module | None

    def causes(
        self,
        noise: Codes,
        *,
        fixed: Interventions = None,
        edges: Tensor | None = None,
    ) -> Tensor:
        """The causes of some noises; `fixed` maps causes to the values an intervention sets.

        `edges` (parents x children) are the open edges, if not those that the model has learned.
        """
        raise InterfaceError(
            f"{type(self).__name__}: a causal block needs causes(noise, fixed=, edges=)."
        )

    def edge_probabilities(self) -> Tensor:
        """How probable it is, in training, that each edge is open (parents x children)."""
        raise InterfaceError(f"{type(self).__name__}: a causal block needs edge_probabilities().")

    def decode_causes(self, causes: Tensor) -> Tensor:
        """The observations that causes, rather than noises, are decoded to."""
        raise InterfaceError(f"{type(self).__name__}: a causal block needs decode_causes(causes).")


class WithFeatures(Autoencoder):
    """A model whose last hidden layer can be read, to compare pictures by."""

    def features(self, x: Tensor) -> Tensor:
        """The activations of the encoder's last hidden layer, one row for each observation."""
        raise InterfaceError(f"{type(self).__name__}: a model with features must define them.")


@contextmanager
def evaluation(model: nn.Module, *, gradients: bool = False) -> Iterator[None]:
    """Call `model` without changing it: evaluation mode, no gradients by default.

    Every submodule is put back into its previous mode, also when the model raises.
    """
    modes = [(module, module.training) for module in model.modules()]
    try:
        _set((module, False) for module, _ in modes)
        with torch.set_grad_enabled(gradients), faster_layers(model):
            yield
    finally:
        _set(modes)


def _set(modes: Iterable[tuple[nn.Module, bool]]) -> None:
    for module, mode in modes:
        if module.training != mode:  # nn.Module makes setting far slower than reading
            module.training = mode
