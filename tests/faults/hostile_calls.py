"""Hostile calls of every public function: (function, values, options), drawn by hypothesis."""

import inspect
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hostile_arguments import (
    COLUMNS,
    ROWS,
    SCALES,
    USUAL,
    VALUES,
    Call,
    arrays,
    datasets,
    healthy,
    healthy_maps,
    map_recordings,
    models,
    options,
    recordings,
    tables,
)  # fmt: skip
from hostile_runs import RUNS
from hypothesis import strategies as st

import zscope as zs
from zscope.assays import _FUNCTIONS, CATALOGUE, arguments


@st.composite
def assay_calls(draw: Any, name: str) -> Call:
    entry = CATALOGUE[name]
    function = entry.load()
    names = arguments.option_names(entry)
    if not entry.compares and draw(st.integers(0, 7)) == 0:
        chosen = {option: USUAL[option] for option in names if option in USUAL}
        if "layout" in entry.needs:
            return function, (healthy_maps(draw(st.booleans())),), chosen
        return function, (healthy("causal block" in entry.needs, draw(st.booleans())),), chosen
    chosen = draw(options(names))
    if entry.compares:
        return function, draw(compared(name)), chosen
    if "layout" in entry.needs and draw(st.integers(0, 3)):
        return function, (draw(map_recordings()),), chosen
    if draw(st.booleans()):
        return function, (draw(recordings()),), chosen
    codes, factors, variances = draw(tables())
    columns = np.shape(codes)[1] if np.ndim(codes) == 2 and np.shape(codes)[1] else None  # type: ignore[arg-type]
    parts = arguments._places(inspect.signature(function), entry)
    makers: dict[str, Callable[[], Any]] = {
        "codes": lambda: codes,
        "recording": lambda: draw(st.sampled_from((posterior(codes, variances), codes))),
        "recording_or_codes": lambda: codes,
        "maps": lambda: draw(st.sampled_from((posterior(codes, variances), codes))),
        "posterior": lambda: posterior(codes, variances),
        "relative": lambda: posterior(codes, variances),
        "factors": lambda: factors,
        "variances": lambda: variances,
        "usage": lambda: variances,
        "autoencoder": lambda: draw(models(latents=columns)),
        "decoder": lambda: draw(models(latents=columns)),
        "observations": lambda: draw(arrays(len(codes) if columns else None, 4)),
        "data": lambda: draw(datasets()),
        "start_code": lambda: draw(arrays(1, 3)),
        "end_code": lambda: draw(arrays(1, 3)),
        "base": lambda: draw(arrays(1, 3)),
        "some_codes": lambda: codes,
        "plane": lambda: draw(st.sampled_from(((0, 1), (1, 0), (0, 0), (0, 9), "x", None))),
    }
    places = {place: makers[part]() for place, part in parts.items() if part in makers}
    return function, (), {**places, **chosen}


def posterior(mean: Any, variance: Any) -> Any:
    """May raise, as the user's own call would."""
    if variance is None:
        return zs.Posterior(mean)
    return zs.Posterior(mean, np.sqrt(variance) if isinstance(variance, np.ndarray) else variance)


@st.composite
def compared(draw: Any, name: str) -> tuple[Any, ...]:
    rows = draw(st.sampled_from(ROWS))
    if name == "udr" and draw(st.booleans()):
        same = np.random.default_rng(rows).standard_normal((rows, 3))
        return ([same, same[:, ::-1] * draw(st.sampled_from(SCALES)), same + 1],)
    pair = [draw(arrays(rows)), draw(arrays(draw(st.sampled_from((rows,) * 5 + ROWS))))]
    if name != "similarity-heatmap" and draw(st.integers(0, 3)) == 0:
        pair = [zs.Recording.from_arrays(each) for each in pair]
    if name == "similarity-heatmap":
        return {"a": pair[0], "b": pair[1]}, {"a": pair[1]}
    return (pair,) if name == "udr" else tuple(pair)


def evaluation(value: Any) -> Callable[[Any], Any]:
    return lambda latents: value


@st.composite
def function_calls(draw: Any, name: str) -> Call:
    """The public functions of zs.assays that are no assays of one recording."""
    function = getattr(zs.assays, name)
    some, rows = arrays(tame=1), draw(st.sampled_from(ROWS))
    x, y = draw(arrays(rows, tame=1)), draw(arrays(rows, tame=1))
    first: dict[str, Callable[[], tuple[Any, ...]]] = {
        "activations": lambda: (draw(models()), draw(arrays(rows, 4, 1))),
        "carried_information": lambda: (posterior(x, draw(st.sampled_from((None, x, y)))),),
        "column_product": lambda: (x,),
        "correlation_tracking": lambda: ([x, y],),
        "decoder_jacobian": lambda: (draw(models(latents=3)), draw(arrays(2, 3, 1))),
        "gaussian_kl": lambda: (x, y),
        "hole_score": lambda: (draw(models(latents=3)), draw(arrays(5, 3)), draw(arrays(24, 3))),
        "information_gap": lambda: (x, y, draw(some)),
        "nearest_neighbours": lambda: (x, draw(st.sampled_from((3, 20, 0, -1, 2.5, "x")))),
        "nearest_signed_permutation": lambda: (
            draw(st.sampled_from((np.ones((2, 3, 3)), np.eye(3), np.full((1, 2, 2), np.nan), x))),
        ),
        "pair_traversal": lambda: (
            draw(models(latents=3)), draw(arrays(24, 3, 1)),
            draw(st.sampled_from(((0, 1), (0, 0), (0, 9)))),
        ),
        "renyi_entropy": lambda: (x,),
        "respond": lambda: (draw(models(latents=3)), draw(arrays(5, 3, 1))),
        "respond_posterior": lambda: (draw(models(latents=3)), draw(arrays(5, 3, 1))),
        "rotation_excess": lambda: (x,),
        "settled_fraction": lambda: (draw(st.sampled_from(([0.1, 0.0], [], [math.nan], x, "x"))),),
        "variable_types_by_kl": lambda: (x,),
    }  # fmt: skip
    named = [each for each in inspect.signature(function).parameters if each not in
             ("generator", "extractor", "auxiliary", "source", "name")]  # fmt: skip
    chosen = draw(options([each for each in named if each in OPTIONS]))
    if name in SEARCHES:
        return function, SEARCHES[name](draw), chosen
    values = first.get(name, lambda: (x, y))()
    if name == "nearest_neighbours" and draw(st.integers(0, 3)) == 0:
        values = draw(arrays(24, 3, 9)), 3
    if name == "rotation_excess":
        chosen.setdefault("beta", 1.0)
    return function, values, chosen


OPTIONS = {
    "variance", "biased", "permutations", "tolerance", "order", "batch", "bandwidth", "neighbours",
    "alpha", "margin", "limit", "threshold", "start", "low", "high", "keep", "steps", "rounds",
    "reach", "samples", "quantile", "method", "debiased", "decode", "beta", "learn_mean",
}  # fmt: skip
GAPS = (0.0, 5.0, -1.0, math.nan, math.inf, None, "x", (1.0, 0.0))


def _searching(draw: Any) -> tuple[Any, ...]:
    types = zs.assays.variable_types(np.array([[0.1, 1.0]] * 9))
    gap = draw(st.sampled_from((types, *GAPS)))
    kind = draw(st.integers(0, 2))
    if kind == 0:
        return (lambda latents: (latents > 4) * 9.0,)
    return (evaluation(gap),) if kind == 1 else (draw(st.sampled_from((None, "x", 3))),)


def found() -> Any:
    return zs.assays.fondue(lambda latents: (latents > 4) * 9.0, start=2)


def _repeated(draw: Any) -> tuple[Any, ...]:
    return (
        evaluation(draw(st.sampled_from((found(), found(), *GAPS)))),
        draw(st.sampled_from(([0, 1], [], None, "x"))),
    )


def _replayed(draw: Any) -> tuple[Any, ...]:
    good = {n: 0.3 * n for n in range(1, 9)}
    odd = {**good, draw(st.integers(1, 8)): draw(st.sampled_from(GAPS))}
    return (draw(st.sampled_from((good, good, odd, {}, {0: 0.5}, {"x": 0.5}, None))),)


def _curve(draw: Any) -> tuple[Any, ...]:
    columns = [[1.0, 2, 4], [3.0, 2, 1], [1.0, 2, 5]]
    odd = draw(st.sampled_from((None, None, [], [1.0, math.nan, 2], [-1.0, 2, 3], "x", [[1.0, 2]])))
    place = draw(st.integers(0, 2))
    return tuple(odd if k == place and odd is not None else c for k, c in enumerate(columns))


def _curves(draw: Any) -> tuple[Any, ...]:
    curves = [
        zs.assays.rate_distortion_curve([1, 2, 4], [rate + 2, rate + 1, rate], [1, 2, 5])
        for rate in draw(st.sampled_from(((0, 0.5), (0, 0), (0, 9))))
    ]
    return draw(st.sampled_from((tuple(curves), (curves[0], None), ("x", curves[1]))))


SEARCHES: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    **dict.fromkeys(("fondue", "binary_fondue", "fondue_beta", "fondue_types"), _searching),
    "stable_fondue": lambda draw: (evaluation(draw(st.sampled_from((found(), *GAPS)))),),
    "repeat_fondue": _repeated,
    "replay_fondue": _replayed,
    "area_between": _curves,
    "rate_distortion_curve": _curve,
}
CLASSES = {"StreamingCKA", "VarianceMoments"}


@st.composite
def other_calls(draw: Any, name: str) -> Call:
    """Everything else of design.md."""
    return OTHERS[name](draw)


def _posterior(draw: Any) -> Call:
    rows, latents = draw(st.sampled_from(ROWS)), draw(st.sampled_from(COLUMNS))
    mean, spread = draw(arrays(rows, latents, 1)), draw(arrays(rows, latents, 1))

    def use(*values: Any, **parts: Any) -> Any:
        made = zs.Posterior(*values, **parts)
        drawn = made.sample(torch.Generator().manual_seed(0))
        # It holds what it was given, also infinity and NaN, which `record` and the assays refuse.
        given_ = [each for each in (made.mean, made.std, made.scale_tril) if each is not None]
        finite = all(bool(each.isfinite().all()) for each in given_)
        return [repr(made), len(made), *((made.variance, drawn) if finite else ())]

    if draw(st.integers(0, 4)) == 0:
        return use, (mean,), {"scale_tril": draw(arrays(rows, latents, 0))}
    return use, (mean, spread)[: draw(st.sampled_from((1, 2)))], {}


def _wrap(draw: Any) -> Call:
    model = draw(models())
    outputs = draw(st.sampled_from(("posterior", "mean", "tuple", "dict", "none")))

    def encoder(x: Any) -> Any:
        q = model.encode(x)
        mean = getattr(q, "mean", q)
        kinds = {"posterior": q, "mean": mean, "none": None, "dict": {"latent": mean}}
        return kinds[outputs] if outputs != "tuple" else (mean, mean)

    def use(*values: Any, **chosen: Any) -> Any:
        made = zs.wrap(*values, **chosen)
        return made.encode(torch.zeros(5, 4)).mean

    odd = draw(st.sampled_from((None,) * 6 + ("x", 3)))
    chosen = draw(options(["latents", "prior", "example"]))
    return use, (odd or encoder, model.decode), chosen


def _record(draw: Any) -> Call:
    chosen = draw(options(["samples", "seed"]))
    data = draw(st.one_of(arrays(None, 4, 2), datasets()))
    return zs.record, (draw(models()), data), chosen


def _from_arrays(draw: Any) -> Call:
    codes, factors, variances = draw(tables(1))
    chosen = draw(options(["kinds", "names", "labels", "seed"]))
    return zs.Recording.from_arrays, (codes, factors), {"variances": variances, **chosen}


def _assay(draw: Any) -> Call:
    names = draw(st.lists(st.sampled_from(QUICK), min_size=1, max_size=3))
    odd = (None, {}, {"mig": 3}, {"mig": {"x": 1}}, {"effective-rank": {}}, "x", [1], {"x": {}})
    chosen: dict[str, Any] = {"names": names, "progress": False}
    if draw(st.integers(0, 3)) == 0:
        chosen["options"] = draw(st.sampled_from(odd))
    if draw(st.integers(0, 5)) == 0:
        chosen["names"] = draw(st.sampled_from(("x", [], "", ["mig", "mig"], [3], 3, "regime")))
    chosen |= draw(options(["samples", "resamples", "seed"]))
    chosen.pop("samples", None) if draw(st.booleans()) else None
    if draw(st.booleans()):
        return zs.assay, (draw(recordings()),), chosen
    return zs.assay, (draw(models()), draw(arrays(None, 4, 3))), chosen


QUICK = ["mig", "effective-rank", "variable-types", "response-matrix", "intrinsic-dimension",
         "latent-divergence", "total-correlation", "jemmig", "feature-effects"]  # fmt: skip


def _save(draw: Any) -> Call:
    path = draw(st.sampled_from(("r.json", "r.csv", "r.tex", "r", "r.xyz", "no/r.csv", "", "a" * 300
                                 + ".csv", "\0.csv", "r.parquet", ".csv")))  # fmt: skip
    codes, factors, _ = draw(tables())
    recording = zs.Recording.from_arrays(codes, factors)

    def use(name: str) -> Any:
        report = zs.assay(recording, names=["effective-rank", "mig"], progress=False)
        with tempfile.TemporaryDirectory() as folder:
            return report.save(Path(folder) / name).name

    return use, (path,), {}


def _sampling(name: str) -> Callable[[Any], Call]:
    def make_call(draw: Any) -> Call:
        function = getattr(zs.sampling, name)
        samples = draw(st.sampled_from((5, 5, 5, *VALUES)))
        codes = draw(arrays(tame=1))
        if name == "prior":
            return function, (draw(st.one_of(models(), st.sampled_from(VALUES))), samples), {}
        if name == "posterior" or draw(st.integers(0, 3)) == 0:
            codes = posterior(codes, None)
        if draw(st.integers(0, 3)) == 0:
            return function, (zs.Posterior(np.eye(3)), 5), {}
        extra = ["groups", "store", "base", "vary"] if name == "hybrid" else []
        return function, (codes, samples), draw(options(extra))

    return make_call


def _linear_vae(draw: Any) -> Call:
    chosen = draw(options(["bias", "beta", "diagonal"]))
    gamma = draw(st.sampled_from((0.5, 0.5, 0.5, *VALUES)))

    def use(weights: Any, **chosen: Any) -> Any:
        return zs.theory.linear_vae(weights, **chosen).variance

    return use, (draw(arrays(5, 3, 2)),), {"gamma": gamma, **chosen}


def _prune(draw: Any) -> Call:
    keep = draw(st.sampled_from(([0], [0, 1], [], [0, 0], [99], [-1], "x", None, 3, [0.5], ["a"])))

    def use(model: Any, keep: Any, **chosen: Any) -> Any:
        return zs.prune(model, keep, **chosen).latents

    return use, (draw(models()), keep), draw(options(["fill"]))


def _rotate(draw: Any) -> Call:
    U = draw(st.one_of(arrays(3, 3, 0), st.just(torch.eye(3)), st.just(np.eye(3))))

    def use(*values: Any, **chosen: Any) -> Any:
        return zs.rotate_latents(*values, **chosen).latents

    return use, (draw(models()), U), draw(options(["diagonal"]))


def _dataset(draw: Any) -> Call:
    rows = draw(st.sampled_from(ROWS))
    factors = draw(st.one_of(st.none(), arrays(rows, 2, 1)))
    chosen = draw(options(["factor_names", "factor_kinds", "feature_names", "name"]))

    def use(*values: Any, **chosen: Any) -> Any:
        made = zs.data.from_arrays(*values, **chosen)
        return [len(made), made.shape, made.batch(slice(0, 2))]

    return use, (draw(arrays(rows, 4, 1)), factors), chosen


def _build(draw: Any) -> Call:
    name = draw(st.sampled_from((*zs.models.names(), "vae", "x", "", None, 3)))
    shape = draw(st.sampled_from(((4,), (4,), (4,), (1, 8, 8), (0,), (-1,), (), (4, 4), "x", None,
                                  (10**13,), (2.5,))))  # fmt: skip
    latents = draw(st.sampled_from((2, 3, 3, *VALUES)))
    known = ["hidden", "beta", "activation", "likelihood", "posterior", "gamma", "seed", "weights"]

    def use(name: Any, **chosen: Any) -> Any:
        return zs.models.build(name, **chosen).latents

    return use, (name,), {"shape": shape, "latents": latents, **draw(options(known))}


def _train(draw: Any) -> Call:
    name = draw(st.sampled_from(("vae", "ae", "beta-vae", "dip-vae-i")))
    data = draw(arrays(draw(st.sampled_from((24, 24, 5, 1, 0))), 4, 2))
    known = ["steps", "batch", "rate", "seed", "clip", "warmup", "log_every"]
    chosen = {"steps": 2, "batch": 8, "progress": False, **draw(options(known))}
    chosen["steps"] = 2 if chosen["steps"] in (10**13, 10**30, 1e30) else chosen["steps"]

    def use(data: Any, **chosen: Any) -> Any:
        model = zs.models.build(name, shape=(4,), latents=2, hidden=(4,))
        return len(zs.train(model, data, **chosen).history)

    return use, (data,), chosen


def _ensemble(draw: Any) -> Call:
    data = draw(arrays(draw(st.sampled_from((24, 24, 5, 1, 0))), 4, 2))
    seeds = draw(st.sampled_from(([0, 1], [0], [], [0, 0], [-1], ["x"], None, 3, [math.nan])))

    def use(data: Any, **chosen: Any) -> Any:
        def build(seed: Any) -> Any:
            return zs.models.build("vae", shape=(4,), latents=2, hidden=(4,), seed=seed)

        return len(zs.train_ensemble(build, data, **chosen))

    known = ["batch", "rate"]
    return use, (data,), {"seeds": seeds, "steps": 2, "batch": 8, **draw(options(known))}


def _compare(draw: Any) -> Call:
    chosen = {"samples": 20, "control": False, "extractor": None}
    chosen |= draw(options(["samples", "seed", "debiased", "control"]))
    data = draw(arrays(draw(st.sampled_from((24, 24, 24, 5, 1, 0))), 4, 3))
    return zs.compare, (draw(models()), draw(models()), data), chosen


def _perturb(draw: Any) -> Call:
    tiny = {"epsilon": 0.1, "restarts": 1, "steps": 1, "rounds": 1, "batch": 8, "progress": False}
    chosen = {
        **tiny,
        "latents": 2,
        **draw(options(["epsilon", "latents", "pairs", "seed", "rate"])),
    }

    def use(data: Any, **chosen: Any) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            made = zs.perturb(data, out=Path(folder) / "out", **chosen)
        return [made.scores, made.largest]

    kind = draw(st.integers(0, 9))
    if kind == 0:  # two factors as the coordinates of a point in a square
        points = np.stack([np.arange(24) % 4, np.arange(24) // 4], 1)
        noise = np.random.default_rng(0).random((24, 2))
        data = zs.data.from_arrays(np.hstack([points / 6, noise]).astype(np.float32), points)
    else:
        data = draw(st.one_of(datasets(), arrays(None, 4, 1)))
    if kind <= 1:
        chosen = {**chosen, "restarts": 2, "steps": 2, "options": {"hidden": (4,)}}
    return use, (data,), chosen


def _search(draw: Any) -> Call:
    tiny = {"steps": 2, "limit": 2, "seeds": 1, "batch": 8, "start": 1}
    chosen = {**tiny, **draw(options(["start", "threshold", "seed", "samples", "rate", "latents"]))}
    chosen["steps"] = 2
    return zs.fondue, (draw(arrays(draw(st.sampled_from((24, 24, 5, 1, 0))), 4, 1)),), chosen


OTHERS: dict[str, Callable[[Any], Call]] = {
    "Posterior": _posterior,
    "wrap": _wrap,
    "record": _record,
    "Recording.from_arrays": _from_arrays,
    "assay": _assay,
    "Report.save": _save,
    **{f"sampling.{n}": _sampling(n) for n in ("prior", "posterior", "hybrid", "uniform")},
    "theory.linear_vae": _linear_vae,
    "prune": _prune,
    "rotate_latents": _rotate,
    "data.from_arrays": _dataset,
    "models.build": _build,
    "train": _train,
    "train_ensemble": _ensemble,
    "compare": _compare,
    "fondue": _search,
    "perturb": _perturb,
    **RUNS,
}


def callables() -> dict[str, st.SearchStrategy[Call]]:
    """Every public callable by its name, with its calls."""
    functions = [name for name in _FUNCTIONS if name not in CLASSES]
    return {
        **{f"assays.{name.replace('-', '_')}": assay_calls(name) for name in CATALOGUE},
        **{f"assays.{name}": function_calls(name) for name in functions},
        **{name: other_calls(name) for name in OTHERS},
    }
