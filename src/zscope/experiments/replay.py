"""Trials of FONDUE from stored runs, on which any search can be replayed without training.

    trials = zs.experiments.stored_trials("runs")["model vae"]          # {seed: {latents: …}}
    zs.assays.replay_fondue(trials[0], start=5, trace=True)             # of one seed
    zs.assays.repeat_fondue(lambda seed: zs.assays.replay_fondue(trials[seed], start=5), trials)

A sweep trains every size once with every seed; searches with other starts, other thresholds or by
bisection then differ in the sizes they need and in nothing else. With `step`, models are taken at
that checkpoint, so that one run serves several lengths of training.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from zscope import store
from zscope.assays.dimension.fondue import Use
from zscope.autoencoder import Autoencoder
from zscope.data.dataset import Dataset, as_dataset
from zscope.errors import ConfigError, Undefined
from zscope.experiments.families import Member, families, find_members
from zscope.experiments.records import Clock, Watch
from zscope.experiments.trials import BANDWIDTHS, check_criterion, measure_gap
from zscope.loading import load, run_data
from zscope.recording import SAMPLES, record
from zscope.sampling import whole

__all__ = ["stored_trials"]

WHO = "stored_trials"
FREE = ("latents", "seed")

Trials = dict[int, dict[int, tuple[float, Use]]]
"""By seed and number of latents: the gap, and the use of the latents."""


def stored_trials(
    runs: Any,
    data: Any = None,
    *,
    criterion: str = "trace",
    bandwidth: str | None = None,
    step: int | None = None,
    samples: int = SAMPLES,
    seed: int = 0,
    root: str | Path | None = None,
    progress: Watch | None = None,
) -> dict[str, Trials]:
    """The gaps of stored runs, {family: {seed: {latents: (gap, use)}}}.

    Runs that agree in everything but the latents and the seed are one family, which is called by
    what tells it from the others ("" if there is one). Gaps are measured on up to `samples`
    observations of `data`, by default those of the run, held out if it was trained on a part.
    `step` takes the models as they were at that checkpoint.
    """
    check_criterion(criterion, bandwidth)
    whole(WHO, samples=samples, seed=seed)
    members, _ = find_members(WHO, runs)
    given = None if data is None else as_dataset(data)
    clock = Clock(len(members), progress)
    trials: dict[str, Trials] = {}
    for family in families(members, FREE):
        observed: Dataset | None = given
        own = trials.setdefault(family.label, {})
        for member in family.members:
            clock(member.name)
            latents, number = int(member.fields["latents"]), member.fields["seed"]
            if not isinstance(number, int) or latents in own.get(number, {}):
                raise ConfigError(
                    f"{WHO}: {member.name} has {latents} latents and seed {number}, as another run "
                    "of its family, or seeds of weights and batches that differ. Give the runs of "
                    "one sweep, each size once with each seed."
                )
            observed = observed or run_data(member.path, root=root)
            model = _loader(member, step)()
            recording = record(model, observed, samples=samples, seed=seed)
            if recording.posterior.deterministic:
                raise Undefined(
                    f"{WHO}: the encoder of {member.name} is deterministic, so its samples and "
                    "means are the same and there is no gap. Leave such runs out."
                )
            gap, use, _ = measure_gap(recording, criterion, bandwidth or BANDWIDTHS[0])
            own.setdefault(number, {})[latents] = gap, use
    return {
        label: {number: dict(sorted(sizes.items())) for number, sizes in sorted(own.items())}
        for label, own in trials.items()
    }


def _loader(member: Member, step: int | None) -> Callable[[], Autoencoder]:
    """How to load the model at the end, or at a checkpoint."""
    final = store.open_run(member.path).step
    if step is None or step == final:
        return lambda: load(member.path)
    files = dict(store.checkpoints(member.path))
    if step not in files:
        steps = ", ".join(map(str, sorted({*files, final})))
        raise ConfigError(
            f"{WHO}: {member.name} has no checkpoint at step {step}, but at {steps}. Train with "
            "--snapshot STEP, or choose one of these."
        )
    return lambda: load(files[step])
