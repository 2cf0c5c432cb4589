"""Choice of β: how strong may the prior be before a latent gives up?

β is raised step by step, and for each the mean posterior variance of every latent,
E_x[σ_j^2(x)], is watched. Two answers:

    onset    the first β at which some latent's mean variance reaches 1 (here: 0.95). There
             the model enters the polarised regime, and good values are of this order of
             magnitude; the search stops there.
    chosen   of the β tried so far whose model still has `needed` active latents (mean variance
             below 0.8), the one with the highest score if scores were given, with the lowest
             distance to orthogonality otherwise; with neither, the largest such β.

Too small a β does not align the latents, too large a one prunes them, in discrete steps.
For a linear decoder latent j gives up at β = λ_j / γ, twice the j-th eigenvalue of the data
for |x - x̂|^2.

Zietlow, PhD thesis, Tübingen 2022, section 3.3.6. The threshold 0.95 is ours ("approximately
1" in the source); 0.8 is that of chapter 4.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from zscope.autoencoder import Posterior
from zscope.errors import ConfigError, Undefined
from zscope.results import Result


@dataclass(frozen=True, eq=False)
class Trial:
    """What training with one β gave. `score`: higher is better; `distance`: lower is better."""

    posterior: Posterior
    score: float | None = None
    distance: float | None = None


@dataclass(frozen=True, eq=False)
class ChoiceOfBeta(Result):
    chosen: float
    onset: float | None  # None: every latent stayed below the threshold
    betas: list[float]  # those tried, ascending
    counts: list[int]  # how many latents were active at each
    variances: Float[Tensor, "betas latents"]
    scores: list[float] | None
    distances: list[float] | None
    flags: list[str]

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import lines

        series = {f"latent {j}": self.variances[:, j] for j in range(self.variances.shape[1])}
        drawn = lines(series, at=self.betas, x="β", y="mean variance", markers=True, ax=ax)
        drawn.set_xscale("log")
        drawn.axvline(self.chosen, color="0.5", linewidth=0.8, linestyle=(0, (4, 2)))
        return drawn


def choice_of_beta(
    evaluate: Callable[[float], Posterior | Trial],
    betas: Sequence[float],
    *,
    needed: int | None = None,
    threshold: float = 0.95,
    beyond: int = 0,
) -> ChoiceOfBeta:
    """Try the betas in ascending order until a latent gives up.

    `evaluate(beta)` trains (or loads) a model and returns the posterior of some data, alone
    or in a `Trial` with a disentanglement score or a distance to orthogonality. `needed` is
    the number of factors; by default as many latents as were active at the first β. `beyond`
    goes on for so many steps after the onset.
    """
    ordered = sorted(float(beta) for beta in betas)
    if not ordered or ordered[0] <= 0 or not all(map(math.isfinite, ordered)):
        raise ConfigError(
            f"choice_of_beta: betas={list(betas)}; positive numbers are needed, for instance "
            "10.0 ** np.arange(-5, 2)."
        )
    if not 0 < threshold <= 1:
        raise ConfigError(f"choice_of_beta: threshold={threshold}; variances lie between 0 and 1.")
    tried: list[Trial] = []
    onset: float | None = None
    left = beyond
    for beta in ordered:
        came = evaluate(beta)
        trial = Trial(came) if isinstance(came, Posterior) else came
        if trial.posterior.deterministic:
            raise Undefined(
                f"choice_of_beta: at β={beta:g} the posterior has no variance. β weighs the noise "
                "of a variational model: use vae or beta-vae."
            )
        tried.append(trial)
        if onset is None and bool((_variances(trial) >= threshold).any()):
            onset = beta
        elif onset is not None:
            left -= 1
        if onset is not None and left <= 0:
            break
    variances = torch.stack([_variances(trial) for trial in tried])
    counts = (variances < 0.8).sum(1).tolist()
    seen = ordered[: len(tried)]
    wanted = counts[0] if needed is None else needed
    flags = []
    if onset is None:
        flags.append(
            f"No latent reached a mean variance of {threshold:g} up to β={seen[-1]:g}: try larger "
            "β, or the model has no more latents than it needs."
        )
    usable = [k for k, count in enumerate(counts) if count >= wanted]
    if not usable:
        raise Undefined(
            f"choice_of_beta: at most {max(counts)} latents are active at any β from {seen[0]:g} "
            f"to {seen[-1]:g}, and {wanted} are needed. Try smaller β, or more latents."
        )
    scores = _listed([trial.score for trial in tried])
    distances = _listed([trial.distance for trial in tried])
    if scores is not None:
        best = max(usable, key=lambda k: scores[k])
    elif distances is not None:
        best = min(usable, key=lambda k: distances[k])
    else:
        best = usable[-1]
    return ChoiceOfBeta(
        chosen=seen[best],
        onset=onset,
        betas=seen,
        counts=counts,
        variances=variances,
        scores=scores,
        distances=distances,
        flags=flags,
    )


def _variances(trial: Trial) -> Tensor:
    return trial.posterior.variance.detach().double().mean(0).cpu()


def _listed(values: list[float | None]) -> list[float] | None:
    """The numbers if every trial has one."""
    return None if any(v is None for v in values) else [float(v) for v in values if v is not None]
