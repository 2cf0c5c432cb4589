"""Choice of β: how large may β be before a latent is no longer used?

β is raised step by step, and for each value the mean posterior variance of every latent,
E_x[σ_j^2(x)], is measured. Two answers:

    onset    the first β at which some latent's mean variance reaches 1 (here: 0.95). There
             the model enters the polarised regime, and good values are of this order of
             magnitude; the search stops there.
    chosen   among the β tried whose model still has `needed` active latents (mean variance
             below 0.8), the one with the highest score if scores were given, else with the
             lowest distance to orthogonality; with neither, the largest such β.

If β is too small the latents are not aligned, if it is too large they are pruned, in discrete
steps. For a linear decoder latent j is pruned at β = λ_j / γ, twice the j-th eigenvalue of the
data for |x - x̂|^2.

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

from zscope.assays.dimension.fondue import mark_place
from zscope.autoencoder import Posterior
from zscope.errors import ConfigError, Undefined
from zscope.results import Result

__all__ = ["ChoiceOfBeta", "Trial", "check_threshold", "choice_of_beta", "mark_beta"]

MOST_TICKS = 8


@dataclass(frozen=True, eq=False)
class Trial:
    """The result of training with one β; a high `score` is good, a low `distance` is good."""

    posterior: Posterior
    score: float | None = None
    distance: float | None = None


@dataclass(frozen=True, eq=False)
class ChoiceOfBeta(Result):
    chosen: float
    onset: float | None  # None: every latent stayed below the threshold
    betas: list[float]  # those tried, ascending
    counts: list[int]  # of active latents at each
    variances: Float[Tensor, "betas latents"]
    scores: list[float] | None
    distances: list[float] | None
    flags: list[str]

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import lines

        series = {f"latent {j}": self.variances[:, j] for j in range(self.variances.shape[1])}
        ax = lines(series, at=self.betas, x="β", y="mean variance", markers=True, ax=ax)
        mark_beta(ax, self.betas, self.chosen)
        return ax


def mark_beta(ax: Any, betas: Sequence[float], chosen: float) -> None:
    """A logarithmic axis with ticks at the β tried, and a labelled line at the chosen one."""
    ax.set_xscale("log")
    every = -(-len(betas) // MOST_TICKS)
    ax.set_xticks(betas[::every], [f"{beta:g}" for beta in betas[::every]])
    ax.set_xticks([], minor=True)
    low, high = ax.get_ylim()
    ax.set_ylim(low, high + 0.12 * (high - low))  # room for the label above the lines
    left = chosen > math.sqrt(betas[0] * betas[-1])
    mark_place(ax, chosen, f"chosen β = {chosen:g}", left=left)


def choice_of_beta(
    evaluate: Callable[[float], Posterior | Trial],
    betas: Sequence[float],
    *,
    needed: int | None = None,
    threshold: float = 0.95,
    beyond: int = 0,
) -> ChoiceOfBeta:
    """Try the betas in ascending order until a latent is no longer used.

    `evaluate(beta)` trains (or loads) a model and returns the posterior of some data, alone
    or in a `Trial` with a disentanglement score or a distance to orthogonality. `needed` is
    the number of factors, by default the number of latents active at the first β. `beyond`
    is the number of further steps after the onset.
    """
    ordered = sorted(float(beta) for beta in betas)
    if not ordered or ordered[0] <= 0 or not all(map(math.isfinite, ordered)):
        raise ConfigError(
            f"choice_of_beta: betas={list(betas)}; expected positive numbers, for instance "
            "10.0 ** np.arange(-5, 2)."
        )
    check_threshold("choice_of_beta", threshold)
    trials: list[Trial] = []
    onset: float | None = None
    remaining = beyond
    for beta in ordered:
        output = evaluate(beta)
        trial = Trial(output) if isinstance(output, Posterior) else output
        if trial.posterior.deterministic:
            raise Undefined(
                f"choice_of_beta: the posterior at β={beta:g} is deterministic and has no "
                "variance. Use a variational model, for instance vae or beta-vae."
            )
        trials.append(trial)
        if onset is None and bool((_variances(trial) >= threshold).any()):
            onset = beta
        elif onset is not None:
            remaining -= 1
        if onset is not None and remaining <= 0:
            break
    variances = torch.stack([_variances(trial) for trial in trials])
    # The source's rule (Zietlow 2022, chapter 4), not `recording.used`.
    counts = (variances < 0.8).sum(1).tolist()
    tried = ordered[: len(trials)]
    needed = counts[0] if needed is None else needed
    flags = []
    if onset is None:
        flags.append(
            f"No latent reached a mean variance of {threshold:g} up to β={tried[-1]:g}. Try larger "
            "β; or the model needs all its latents."
        )
    usable = [k for k, count in enumerate(counts) if count >= needed]
    if not usable:
        raise Undefined(
            f"choice_of_beta: expected {needed} active latents, got at most {max(counts)} at any β "
            f"from {tried[0]:g} to {tried[-1]:g}. Try smaller β, or more latents."
        )
    scores = _complete([trial.score for trial in trials])
    distances = _complete([trial.distance for trial in trials])
    if scores is not None:
        best = max(usable, key=lambda k: scores[k])
    elif distances is not None:
        best = min(usable, key=lambda k: distances[k])
    else:
        best = usable[-1]
    return ChoiceOfBeta(
        chosen=tried[best],
        onset=onset,
        betas=tried,
        counts=counts,
        variances=variances,
        scores=scores,
        distances=distances,
        flags=flags,
    )


def check_threshold(who: str, threshold: float) -> None:
    """Refuse what is not the variance of a latent."""
    if not 0 < threshold <= 1:
        raise ConfigError(f"{who}: threshold={threshold}; expected a variance above 0, at most 1.")


def _variances(trial: Trial) -> Tensor:
    return trial.posterior.variance.detach().double().mean(0).cpu()


def _complete(values: list[float | None]) -> list[float] | None:
    """The numbers if every trial has one."""
    return None if any(v is None for v in values) else [float(v) for v in values if v is not None]
