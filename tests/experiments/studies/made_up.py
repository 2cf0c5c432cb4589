"""Made-up measurements: the planned runs of a study, invented values, and what they lead to.

A test describes a world in which every claim of a study holds, changes one thing in it, and says
which claims no longer hold:

    assert exceptions(helix(converging_excess=-0.1)) == {"A-F2 c1": FAILS}
"""

from functools import cache

import numpy as np

from zscope.experiments import studies
from zscope.experiments.studies.grid import settings_of
from zscope.experiments.studies.judging import HOLDS
from zscope.experiments.studies.study import Results

__all__ = ["claims_of", "control_fails", "control_untried", "exceptions", "noisy", "planned",
           "results_of"]  # fmt: skip


@cache
def planned(name):
    """The runs of a study at scale small, with made-up names."""
    plan = enumerate(studies.load(name).plan("small"))
    return [{"run": f"r{k}", "group": group, **settings_of(run)} for k, (group, run) in plan]


def results_of(name, measure, **more):
    """Results with what `measure` makes up of each run; of None a run is not measured."""
    runs = planned(name)
    values = {run["run"]: own for run in runs if (own := measure(run)) is not None}
    return Results(name, "small", runs, {"measure": values, **more})


def noisy(values, run, size=0.005):
    """The same values, a little different in each run. Whole numbers and texts stay exact."""
    rng = np.random.default_rng(int(run["run"].removeprefix("r")))

    def change(value):
        if isinstance(value, dict):
            return {key: change(each) for key, each in value.items()}
        if isinstance(value, list):
            return [change(each) for each in value]
        return value + size * rng.uniform(-1, 1) if isinstance(value, float) else value

    return change(values)


def claims_of(results):
    """The claims of a study by row and name: "A-F2 c1"."""
    claims = studies.load(results.study).claims(results)
    return {f"{claim.row} {claim.name}": claim for claim in claims}


def exceptions(results):
    """The verdicts, with reasons, of the claims that do not hold, and of their parts."""
    answer = {}
    for name, claim in claims_of(results).items():
        if claim.verdict != HOLDS:
            answer[name] = claim.verdict if claim.parts else claim.verdict_text
        answer |= {f"{name}, {part.name}": part.verdict_text
                   for part in claim.parts if part.verdict != HOLDS}  # fmt: skip
    return answer


def control_fails(words):
    return f"undecided (control failed; expected: {words})"


def control_untried(words):
    return f"undecided (control could not be tried: {words})"
