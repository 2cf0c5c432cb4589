"""Classifiers and VAEs: do encoders learn what classifiers learn?

CKA of the layers of classifiers and of the encoders of β-VAEs (β 1), over pairs of different seeds:
sprites (shape), Fashion-MNIST and digits (label) in place of dSprites, Cars3D and SmallNORB;
perceptrons of the same hidden layers on both sides, 2,000 steps for the classifiers.

Beware: two networks that see the same input are similar without having learned anything. So the
similarity counts only beyond that of untrained pairs, and beyond that of classifiers that were
trained on labels in an order that does not fit the pictures, which learn no feature of a class.

Bonheme, PhD thesis, Kent 2023: section C.3.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from zscope.assays.similarity.layers import blocks_of
from zscope.experiments.studies.grid import Grid
from zscope.experiments.studies.grids.regime import (
    BETA_FOLLOWED,
    CARS,
    CLASSIFIERS,
    FASHION,
    HAND_DIGITS,
    NORB,
    SPRITES,
)
from zscope.experiments.studies.judging import Claim, above, claim, claim_of_parts
from zscope.experiments.studies.rows import mean_and_sd
from zscope.experiments.studies.shared.maps import (
    LATENT,
    Sides,
    block_mean,
    compare_sides,
    named_units,
    plot_panel,
)
from zscope.experiments.studies.shared.polarised import bounded, minus
from zscope.experiments.studies.shared.sizes import all_data
from zscope.experiments.studies.study import (
    Figure,
    Measure,
    Results,
    Row,
    Study,
    Table,
    each_run,
)
from zscope.experiments.studies.trained import Trained

__all__ = ["STUDY"]

TITLES = {"sprites": "sprites, shape (for dSprites)", "fashion": "Fashion-MNIST (for SmallNORB)",
          "digits": "digits (for Cars3D)"}  # fmt: skip
PUBLISHED_TITLES = {"sprites": "dSprites, shape", "fashion": "SmallNORB, category",
                    "digits": "Cars3D, car"}  # fmt: skip
NAMES = {"sprites": [SPRITES, "dsprites"], "fashion": ["fashion-mnist", NORB],
         "digits": ["digits", CARS]}  # fmt: skip
"""The data at scale small and at scale paper."""
SHUFFLED = {
    name: [f"{each}{'&' if '?' in each else '?'}shuffled=1" for each in data]
    for name, data in NAMES.items()
}
ENCODERS: dict[str, dict[str, Any]] = {
    name: {"group": ["sprites", name], "model": "beta-vae", "beta": 1, "data": data}
    for name, data in NAMES.items()
}
"""At scale paper all are of the first grid."""
PAIRS: Sides = {
    **{name: [{"group": "classifiers", "data": data}, ENCODERS[name]]
       for name, data in NAMES.items()},
    **{f"{name}, shuffled": [{"group": "classifiers", "data": data}, ENCODERS[name]]
       for name, data in SHUFFLED.items()},
}  # fmt: skip


def measure_pairs(runs: Sequence[Trained]) -> dict[str, Any]:
    """Layers of classifiers (rows) and of encoders (columns), trained and untrained."""
    first = [run for run in runs if run["model"] == "classifier"]
    second = [run for run in runs if run["model"] != "classifier"]
    answer = compare_sides(first, second, decode=False)
    before = compare_sides(first, second, decode=False, untrained=True)
    return answer | {"untrained": before.get("seeds", {})}


def measure_accuracy(run: Trained) -> dict[str, Any]:
    """Of a classifier, on all data."""
    data = all_data(run)
    recording = run.recording(samples=200 if run.tiny else 3_000, data=data)
    assert recording.factors is not None
    labels = np.asarray(recording.factors)[:, int(run.fields.get("factor", 0))]
    guesses = recording.codes.argmax(1).numpy()
    return {"accuracy": float((guesses == labels).mean())}


# Claims


def _encoders(seeds: Mapping[str, Any]) -> dict[str, float]:
    """CKA of equal hidden layers, mean, by seed."""
    values = {seed: block_mean(own.get("diagonal"), "encoder") for seed, own in seeds.items()}
    return {seed: value for seed, value in values.items() if value is not None}


def _latents(seeds: Mapping[str, Any]) -> dict[str, float]:
    """CKA of means, variances and samples with all layers of the classifier, mean, by seed."""
    values = {seed: [v for name in LATENT if (v := (own.get("column") or {}).get(name)) is not None]
              for seed, own in seeds.items()}  # fmt: skip
    return {seed: float(np.mean(own)) for seed, own in values.items() if own}


def _unit(results: Results, name: str, key: str = "seeds") -> dict[str, Any]:
    return dict((results.units("measure_pairs").get(name) or {}).get(key) or {})


def _beyond(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    return {seed: first[seed] - second[seed] for seed in first if seed in second}


def _titles(results: Results) -> dict[str, str]:
    return PUBLISHED_TITLES if results.scale == "paper" else TITLES


def claims(results: Results) -> Iterator[Claim]:
    source = "figure C.1, section C.3"
    contrast, beyond_untrained, beyond_shuffled = [], [], []
    for name, title in _titles(results).items():
        trained = _encoders(_unit(results, name))
        more = _beyond(trained, _encoders(_unit(results, name, "untrained")))
        fitted = _beyond(trained, _encoders(_unit(results, f"{name}, shuffled")))
        contrast.append(claim(
            "D-C.1", title, "one dataset", source=source, expect=above(0),
            statistic="CKA of equal hidden layers of classifier and encoder minus CKA of the "
            "means, variances and samples with layers of the classifier",
            values=_beyond(trained, _latents(_unit(results, name))),
            controls=[
                bounded("hidden layers of classifiers and encoders are more similar than before "
                        "training", more, above(0)),
                bounded("hidden layers of encoders are more similar to those of classifiers of "
                        "true labels than of shuffled ones", fitted, above(0)),
            ],
        ))  # fmt: skip
        beyond_untrained.append(claim(
            "D-C.1", title, "one dataset", source="ours", expect=above(0), ours=True, values=more,
            statistic="CKA of equal hidden layers, trained minus untrained pairs",
            published="not in the source",
        ))  # fmt: skip
        beyond_shuffled.append(claim(
            "D-C.1", title, "one dataset", source="ours", expect=above(0), ours=True, values=fitted,
            statistic="CKA of equal hidden layers, true minus shuffled labels",
            published="not in the source",
        ))  # fmt: skip
    yield claim_of_parts(
        "D-C.1", "c1", "hidden layers of classifiers and encoders are similar, the latents differ "
        "from all layers of classifiers", contrast, source=source,
        published='"CKA stays close to 1" except mean, variance and sampled',
    )  # fmt: skip
    yield claim_of_parts(
        "D-C.1", "c2", "they are more similar than untrained networks", beyond_untrained,
        source="ours", ours=True, published="not in the source",
    )  # fmt: skip
    yield claim_of_parts(
        "D-C.1", "c3", "and more than if the labels do not fit the pictures", beyond_shuffled,
        source="ours", ours=True, published="not in the source",
    )  # fmt: skip


# Tables and figures


def tables(results: Results) -> Iterator[Table]:
    cells = [["data", "classifiers", "accuracy", "hidden layers", "mean", "variance", "samples",
              "hidden minus latents"]]  # fmt: skip
    for name, title in _titles(results).items():
        for words, unit, key, data in (
            ("trained", name, "seeds", NAMES[name]),
            ("shuffled labels", f"{name}, shuffled", "seeds", SHUFFLED[name]),
            ("untrained, both", name, "untrained", []),
        ):  # fmt: skip
            seeds = _unit(results, unit, key)
            accuracy = results.rows("classifiers", data=data).values("accuracy") if data else []
            hidden, latents = _encoders(seeds), _latents(seeds)
            cells.append([
                title, words, mean_and_sd(accuracy), mean_and_sd(hidden.values()),
                *(mean_and_sd([(own.get("column") or {}).get(part) for own in seeds.values()])
                  for part in LATENT),
                mean_and_sd([minus(hidden[s], latents.get(s)) for s in hidden]),
            ])  # fmt: skip
    yield Table(
        "figure-C.1", "CKA of classifiers and encoders of β-VAEs", cells, left=2, row="D-C.1",
        notes=["Mean over pairs of different seeds, ± standard deviation over seeds. Hidden "
               "layers: equal ones; mean, variance and samples of the VAE: with all layers of the "
               "classifier. Accuracy on all data; for shuffled labels, on the shuffled ones. The "
               "document prints no numbers."],
    )  # fmt: skip


def plot_figures(results: Results) -> Iterator[Figure]:
    from zscope.plots import heatmaps

    grid, down = [], []
    for words, suffix in (("true labels", ""), ("shuffled labels", ", shuffled")):
        line = [
            plot_panel(results, "measure_pairs", f"{name}{suffix}", "cka", title.partition(" (")[0])
            for name, title in _titles(results).items()
        ]
        known = [panel for panel in line if panel is not None]
        if known:
            grid.append(known)
            down.append(words)
    if grid:
        figure = heatmaps(grid, x="layers of the encoder of a β-VAE", y="layers of the classifier",
                          down=down, label="CKA", blocks=blocks_of)  # fmt: skip
        yield Figure(
            "figure-C.1", "CKA of the layers of classifiers and of encoders of β-VAEs (β 1), mean "
            "over pairs of different seeds; mean of a classifier: its logits. Below: classifiers "
            "of shuffled labels.", figure, row="D-C.1",
        )  # fmt: skip


ELSEWHERE = "At scale paper the grid sprites has the runs on all three datasets."

STUDY = Study(
    name="regime-classifier",
    minutes=6,
    own_minutes=3,
    document="D",
    title="Do encoders learn what classifiers learn?",
    rows=(Row("D-C.1", "figure C.1", "classifiers and β-VAEs on three datasets"),),
    grids={
        "classifiers": CLASSIFIERS, "sprites": BETA_FOLLOWED,
        "fashion": Grid(small=FASHION.small, small_notes=FASHION.small_notes, small_only=ELSEWHERE),
        "digits": Grid(small=HAND_DIGITS.small, small_notes=HAND_DIGITS.small_notes,
                       small_only=ELSEWHERE),
    },
    measures=(
        Measure(measure_pairs, named_units(PAIRS)),
        each_run(measure_accuracy, "classifiers"),
    ),
    tables=tables,
    figures=plot_figures,
    claims=claims,
    chosen="1,500 observations, each model paired with two of other seeds. Both controls were "
    "fixed before the first run that is judged.",
)  # fmt: skip
