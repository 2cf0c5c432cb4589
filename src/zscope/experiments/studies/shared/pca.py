"""What the studies of PCA directions share: how alignment is measured, compared and printed."""

from collections.abc import Mapping, Sequence
from typing import Any

from zscope.autoencoder import Autoencoder
from zscope.errors import Undefined
from zscope.experiments.studies.rows import Rows
from zscope.experiments.studies.trained import Trained
from zscope.recording import Recording

__all__ = ["DS_NOTE", "counts", "equal_pairs", "measure_alignment", "mig_of_factors", "printed"]

DS_NOTE = (
    "DS is zscope's: the mean over five splits where the source has one, of the latents in use; "
    "for a factor without order, what a constant prediction gets is subtracted."
)


def measure_alignment(
    run: Trained,
    model: Autoencoder | None = None,
    *,
    recording: Recording | None = None,
    samples: int = 256,
    scores: Sequence[str] = (),
) -> dict[str, Any]:
    """DtO, DtO over chance, alignment gap, latents in use, and scores, of held-out data.

    All are None for a model with fewer than two latents in use, since angles need two.
    """
    if recording is None:
        recording = run.recording(model, samples=400 if run.tiny else 5_000)
    used = recording.used
    posterior = recording.posterior
    answer: dict[str, Any] = {
        "dto": None,
        "relative": None,
        "gap": None,
        "active": len(used),
        "variances": None if posterior.deterministic else posterior.variance.mean(0).tolist(),
    }
    try:
        result: Any = run.assay(
            "distance-to-orthogonality", recording, samples=16 if run.tiny else samples
        )
        answer |= {
            "dto": result.distance,
            "relative": result.relative,
            "gap": result.alignment_gap,
            "degenerate": result.degenerate / result.samples,
        }
    except Undefined:
        pass
    return answer | run.scores(*scores, recording=recording)


def mig_of_factors(run: Trained, recording: Recording) -> tuple[float | None, dict[str, float]]:
    """MIG of disentanglement_lib, and that of each factor by its name; None if it has none."""
    try:
        result: Any = run.assay("mig", recording, flavour="dlib")
    except Undefined:
        return None, {}
    names = result.factor_names or [str(k) for k in result.factors]
    return result.score, dict(zip(names, map(float, result.per_factor), strict=True))


def equal_pairs(first: Rows, second: Rows, key: str) -> dict[int, float]:
    """First minus second for each seed with equally many latents in use.

    An unused latent is a direction of its own and looks aligned, so that models which differ in
    this cannot be compared.
    """
    one, two = ({row["seed"]: row for row in rows} for rows in (first, second))
    return {
        seed: one[seed][key] - two[seed][key]
        for seed in one
        if seed in two
        and one[seed].get("active") == two[seed].get("active")
        and one[seed].get(key) is not None
        and two[seed].get(key) is not None
    }


def printed(pair: tuple[float, float] | None) -> str:
    """A published mean and standard deviation; "" if there is none."""
    return "" if pair is None else f"{pair[0]:.2f} ± {pair[1]:.2f}"


def counts(rows: Sequence[Mapping[str, Any]], key: str = "active") -> str:
    """Which counts the rows have, and how often if they differ: "5 (×4), 4 (×2)"."""
    values = [row[key] for row in rows if row.get(key) is not None]
    numbers = sorted(set(values), reverse=True)
    if len(numbers) == 1:
        return str(numbers[0])
    return ", ".join(f"{number} (×{values.count(number)})" for number in numbers)
