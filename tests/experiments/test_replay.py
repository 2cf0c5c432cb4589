"""Searches replayed on stored runs."""

import pytest

import zscope as zs
from zscope.errors import ConfigError


@pytest.fixture(scope="module")
def sizes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sizes")
    helix = zs.data.load("helix")
    for latents in (1, 2, 3, 4):
        for seed in (0, 1):
            model = zs.models.build("beta-vae", shape=(3,), latents=latents, hidden=(16,),
                                    beta=0.02, seed=seed)  # fmt: skip
            zs.train(model, helix, steps=60, rate=2e-2, seed=seed, progress=False, snapshots=[30],
                     out=folder / f"n{latents}-s{seed}")  # fmt: skip
    return folder


def test_stored_runs_are_the_trials_of_any_search(sizes):
    (trials,) = zs.experiments.stored_trials(sizes, samples=300).values()
    assert {seed: list(own) for seed, own in trials.items()} == {0: [1, 2, 3, 4], 1: [1, 2, 3, 4]}
    recording = zs.record(zs.load(sizes / "n3-s1"), zs.data.load("helix"), samples=300)
    gap, use = trials[1][3]
    assert gap == pytest.approx(zs.assays.trace_gap(recording).score)
    assert (use.active, use.used) == (len(zs.assays.variable_types(recording).active),
                                      len(recording.used))  # fmt: skip
    result = zs.assays.repeat_fondue(
        lambda seed: zs.assays.replay_fondue(trials[seed], start=2, trace=True), trials
    )
    for seed, search in result.searches.items():
        gaps = {n: value for n, (value, _) in trials[seed].items()}
        if search.status == "found":
            assert gaps[search.latents] <= 1 < gaps[search.latents + 1]
    early = zs.experiments.stored_trials(sizes, samples=300, step=30)
    assert next(iter(early.values()))[1][3][0] != gap


def test_what_cannot_be_a_trial_is_refused(sizes):
    with pytest.raises(ConfigError, match="no checkpoint at step 31, but at 30, 60"):
        zs.experiments.stored_trials(sizes, step=31)
    with pytest.raises(ConfigError, match="no criterion is called 'tracee'"):
        zs.experiments.stored_trials(sizes, criterion="tracee")
