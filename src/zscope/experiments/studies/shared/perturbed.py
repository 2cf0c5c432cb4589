"""What the studies of changed data share: scores, published tables, claims, tables and figures.

`World` is one dataset: sprites (dSprites in the source) or rooms (Shapes3D).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zscope.assays.alignment.dataset_alignment import dataset_alignment
from zscope.data.dataset import Dataset
from zscope.data.perturbed import change_size, noise_of, perturb_rows
from zscope.errors import Undefined
from zscope.experiments.perturbation import FILE
from zscope.experiments.studies.grids.perturbed import (
    EPSILON,
    PUBLISHED_VERSIONS,
    VERSIONS,
    version_of,
)
from zscope.experiments.studies.judging import (
    Claim,
    Control,
    Expect,
    Interval,
    above,
    below,
    claim,
    claim_of_parts,
    within,
)
from zscope.experiments.studies.rows import Rows, differences, mean_and_sd
from zscope.experiments.studies.shared.pca import (
    counts,
    mig_of_factors,
    printed,
)
from zscope.experiments.studies.study import Figure, Results, Table
from zscope.experiments.studies.trained import Trained
from zscope.store import read_json

__all__ = [
    "MODELS", "PRUNED", "SCORES", "VAES", "World", "add_versions", "describe_versions",
    "judge_change", "judge_scores", "measure_scores", "plot_change", "plot_scores", "published",
    "tabulate_change", "tabulate_scores",
]  # fmt: skip

PRUNED = 0.8
"""A latent is in use where its mean posterior variance is below this (section 4.3.4)."""
DRAWS = 8
"""Noise of so many seeds is compared with the change."""
EQUIVALENT = 0.1
LOWER = below(0)
EXAMPLES = 8

MODELS = {
    "ae": "AE", "beta-vae": "β-VAE", "factor-vae": "FactorVAE", "beta-tcvae": "TC-VAE",
    "slow-vae": "SlowVAE", "pcl": "PCL",
}  # fmt: skip
VAES = ("beta-vae", "factor-vae", "beta-tcvae", "slow-vae")
SHORT = {
    "original": "original", "changed": "changed", "noise": "noise",
    "equal-noise": "equal noise", "untrained": "untrained", "aligned": "aligned",
    "turned": "turned",
}  # fmt: skip


@dataclass(frozen=True)
class Score:
    """A score of the source: its row, its place, and its name."""

    row: str
    source: str
    title: str


SCORES = {
    "mig": Score("C-T4.2", "table 4.2", "MIG"),
    "dci": Score("C-T4.3", "table 4.3", "DCI"),
    "factor-vae-score": Score("C-T4.4", "table 4.4", "FactorVAE score"),
    "sap": Score("C-T4.5", "table 4.5", "SAP"),
}
# Original / changed / noise of dSprites; the same of Shapes3D: mean ± standard deviation over 10
# seeds, as printed.
PRINTED = {
    "mig": """
        ae         .09±.06/.05±.02/.06±.03 ; .06±.03/.05±.03/.07±.03
        beta-vae   .23±.08/.07±.09/.14±.07 ; .60±.31/.09±.14/.66±.05
        factor-vae .27±.11/.20±.12/.16±.08 ; .27±.18/.07±.05/.33±.20
        beta-tcvae .25±.08/.14±.10/.20±.04 ; .58±.20/.24±.16/.60±.11
        slow-vae   .39±.08/.27±.08/.37±.09 ; .53±.19/.13±.08/.60±.10
        pcl        .21±.03/.24±.07/.24±.07 ; .44±.06/.47±.08/.40±.07
        gan        .45±.05/.36±.02/.36±.01 ; .69±.12/.66±.12/.77±.13""",
    "dci": """
        beta-vae   .11±.03/.08±.11/.14±.07 ; .73±.14/.43±.06/.56±.06
        factor-vae .37±.10/.27±.11/.24±.09 ; .39±.18/.25±.08/.57±.20
        beta-tcvae .34±.06/.19±.10/.27±.03 ; .67±.08/.41±.05/.59±.09
        slow-vae   .47±.07/.40±.07/.47±.08 ; .65±.10/.33±.08/.73±.09
        pcl        .28±.03/.30±.03/.29±.06 ; .70±.06/.67±.09/.71±.07""",
    "factor-vae-score": """
        beta-vae   .47±.07/.38±.13/.50±.10 ; .80±.17/.54±.10/.71±.06
        factor-vae .67±.11/.62±.14/.60±.11 ; .63±.15/.48±.05/.71±.15
        beta-tcvae .68±.09/.53±.15/.60±.12 ; .76±.07/.57±.07/.71±.06
        slow-vae   .77±.03/.77±.04/.76±.07 ; .87±.10/.62±.06/.85±.08
        pcl        .77±.09/.82±.05/.77±.08 ; .80±.06/.77±.07/.80±.06""",
    "sap": """
        beta-vae   .04±.01/.02±.02/.03±.03 ; .16±.08/.03±.03/.09±.02
        factor-vae .07±.03/.06±.03/.08±.01 ; .07±.04/.04±.01/.08±.03
        beta-tcvae .08±.01/.06±.03/.05±.02 ; .08±.02/.04±.02/.06±.03
        slow-vae   .08±.01/.07±.01/.07±.01 ; .09±.04/.04±.01/.09±.05
        pcl        .07±.03/.10±.03/.10±.03 ; .07±.01/.07±.01/.07±.01""",
}


def published(score: str, world: str) -> dict[str, dict[str, tuple[float, float]]]:
    """The published mean and standard deviation, by model and version."""
    answer = {}
    for line in PRINTED[score].split("\n")[1:]:
        model, _, texts = line.strip().partition(" ")
        cells = texts.split(";")[0 if world == "sprites" else 1].strip().split("/")
        pairs = [tuple(map(float, cell.split("±"))) for cell in cells]
        answer[model] = {
            version: (pair[0], pair[1])
            for version, pair in zip(PUBLISHED_VERSIONS, pairs, strict=True)
        }
    return answer


@dataclass(frozen=True)
class World:
    """A dataset of the studies."""

    name: str  # sprites or rooms
    source: str  # what the source has instead
    factors: int  # that vary, at scale small

    @property
    def epsilon(self) -> float:
        return EPSILON[self.name]


# Measurements


def measure_scores(run: Trained) -> dict[str, Any]:
    """The four scores on the training data, MIG of each factor, and the latents in use."""
    recording = run.recording(samples=300 if run.tiny else 10_000)
    posterior = recording.posterior
    mig, factors = mig_of_factors(run, recording)
    own = run.scores("mig", recording=recording)
    active = (
        len(recording.used)
        if posterior.deterministic
        else int((posterior.variance.mean(0) < PRUNED).sum())
    )
    last = run.run.history[-1]
    return {
        "mig": mig,
        "mig_of": factors,
        "own_mig": own.get("mig"),
        "active": active,
        "reconstruction": last.get("reconstruction"),
        **{
            name: run.scores(name, recording=recording).get(name)
            for name in SCORES
            if name != "mig"
        },
    }


def describe_versions(runs: Sequence[Trained]) -> dict[str, Any]:
    """The game, the size of each change, the alignment of each version, and example pictures."""
    versions: dict[str, Dataset] = {}
    for run in runs:
        name = version_of(run["data"])
        if name not in versions:
            versions[name] = run.data
    if "original" not in versions:
        return {}
    original, among = versions["original"], runs[0].among
    content = read_json(next(iter(among.made.values())) / "game" / FILE)["result"]
    names = ("gap", "gap_without_change", "intervals", "worked", "verdict", "mig", "scores",
             "active", "rounds", "flags")  # fmt: skip
    rows = np.linspace(0, len(original) - 1, EXAMPLES + 2).astype(int)[1:-1]
    noisy = versions.get("equal-noise")
    return {
        "game": {name: content.get(name) for name in names},
        "sizes": {
            name: change_size(original, data).to_dict()
            for name, data in versions.items()
            if name != "original"
        },
        "alignment": {name: _alignment(data.images, data) for name, data in versions.items()},
        "noise_draws": []
        if noisy is None
        else [
            _alignment(Noisy(original, float(noisy.provenance["amplitude"]), seed), original)
            for seed in range(100, 102 if runs[0].tiny else 100 + DRAWS)
        ],
        "pictures": {
            name: np.asarray(versions[name].images[rows])
            for name in ("original", "changed", "equal-noise")
            if name in versions
        },
    }


class Noisy:
    """Observations with uniform noise, made when they are asked for."""

    def __init__(self, data: Dataset, amplitude: float, seed: int) -> None:
        self._images, self._amplitude = data.images, amplitude
        self._noise = noise_of(data, seed)
        self.shape, self.dtype = data.images.shape, data.images.dtype

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, rows: Any) -> np.ndarray:
        change = self._amplitude * self._noise(np.asarray(rows))
        return perturb_rows(np.asarray(self._images[rows]), change, self._amplitude, fold=True)


def _alignment(images: Any, data: Dataset) -> dict[str, Any] | None:
    try:
        table = data.factors_with_kinds
        hues = [name for name in table.names if name.endswith("hue")] if table else []
        result = dataset_alignment(images, table, cyclic=hues)
    except Undefined:
        return None
    names = ("distance", "chance", "gap", "samples", "coarse", "checked")
    return {name: getattr(result, name) for name in names}


# Claims


def add_versions(rows: Rows) -> Rows:
    """The rows with the field `version`."""
    return Rows({**row, "version": version_of(row["data"])} for row in rows)


def judge_change(results: Results, world: World) -> Iterator[Claim]:
    """P0 and P1: the game does what it is meant to, and turns the directions of the data."""
    facts = results.once("describe_versions")
    game = facts.get("game") or {}
    reached = game.get("intervals") or {}
    verdict = str(game.get("verdict") or "")
    unfit = verdict.partition(". ")[0] if "cannot be judged" in verdict else ""
    without = game.get("gap_without_change")
    margin = 0.1 * max(0.0, -without) if without is not None else 0.0
    about: dict[str, Any] = {"source": "section 4.2.4", "presupposes": unfit, "needs":
                             "another game: more rounds, other restarts, a larger ε"}  # fmt: skip
    parts = [
        claim("C-F4.3", "below 0", "the entangled model is the cheaper one", expect=below(0),
              values=_of_batches(reached.get("gap")),
              statistic="L_rec(entangled) − L_rec(disentangled) in nats, the last 50 rounds of one "
              "game in 5 batches", **about),
        claim("C-F4.3", "because of the change", "more so than after the same game with ε = 0",
              expect=below(-margin), values=_of_batches(reached.get("difference")), ours=True,
              statistic="the same minus that of the game with ε = 0, round by round", **about),
    ]  # fmt: skip
    yield claim_of_parts(
        "C-F4.3", "P0", f"the change of at most {world.epsilon:g} favours the entangled model",
        parts, source="section 4.2.4", published="the objective of the change, no numbers",
    )  # fmt: skip
    alignment = facts.get("alignment") or {}
    changed, turned, original = (
        (alignment.get(name) or {}).get("distance") for name in ("changed", "turned", "original")
    )
    draws = [each["distance"] for each in facts.get("noise_draws") or [] if each]
    seen = None if turned is None or original is None else turned > original
    yield claim(
        "C-F4.3", "P1", "the change turns the local principal directions of the data away from "
        "their factors, more than noise of equal variance does", source="section 4.2.2", ours=True,
        published="the purpose of the change, no numbers", expect=above(0),
        values={} if changed is None else {k: changed - each for k, each in enumerate(draws)},
        statistic="DtO of the generator with the change minus that with noise of equal centred "
        "variance, over draws of the noise",
        controls=[Control("directions that are turned by construction are seen", seen,
                          "" if not seen else f"{original:.2f} to {turned:.2f}")],
    )  # fmt: skip


def _of_batches(ends: Sequence[float] | None) -> Interval | None:
    """Mean and interval as the verdict of the game has them, over 5 batches of rounds."""
    return None if ends is None else Interval(ends[0], ends[1], ends[2], 5)


def judge_scores(results: Results, world: World) -> Iterator[Claim]:
    """P2 to P8 for each score; P2 and P3 also for β-VAEs with a weaker β, where there are some."""
    rows, weaker = (add_versions(results.rows(group)) for group in ("versions", "weaker"))
    for key, score in SCORES.items():
        judged = Judge(rows, key, score, world)
        yield judged.parts(
            "P2", "VAEs score lower on changed than on original data", VAES, ("changed", "original")
        )
        yield judged.one(
            "P3", "lower on changed data than with noise of the same centred variance", "beta-vae",
            ("changed", "equal-noise"), same=True,
        )  # fmt: skip
        yield judged.parts(
            "P3, ε", "lower on changed data than with noise of the same ε, the control of the "
            "source", VAES, ("changed", "noise"), same=True,
        )  # fmt: skip
        yield judged.one(
            "P4", "lower on changed data than with a background that is aligned with the scale "
            "(else the fall is no evidence for turned directions)",
            "beta-vae", ("changed", "aligned"),
        )  # fmt: skip
        yield judged.one(
            "P5", "lower on changed data than with the same network before it is trained",
            "beta-vae", ("changed", "untrained"),
        )  # fmt: skip
        yield judged.one(
            "P6", "lower on data whose directions are turned by construction than on original data",
            "beta-vae", ("turned", "original"),
        )  # fmt: skip
        yield judged.parts(
            "P7", "PCL and the autoencoder score the same on changed and original data",
            ("pcl", "ae"), ("changed", "original"), within(EQUIVALENT),
        )  # fmt: skip
        yield judged.one(
            "P8", "lower on changed than on original data, although it is trained on pairs",
            "slow-vae", ("changed", "original"),
        )  # fmt: skip
        if not weaker:
            continue
        judged = Judge(weaker, key, score, world, printed=False)
        strength = f"with β {weaker[0]['beta']:g}"
        yield judged.one(
            "P2, weaker β", f"lower on changed than on original data ({strength})", "beta-vae",
            ("changed", "original"), same=True,
        )  # fmt: skip
        yield judged.one(
            "P3, weaker β", "lower on changed data than with noise of the same centred variance "
            f"({strength})", "beta-vae", ("changed", "equal-noise"), same=True,
        )  # fmt: skip
        yield judged.one(
            "P3, ε, weaker β", f"lower on changed data than with noise of the same ε ({strength})",
            "beta-vae", ("changed", "noise"), same=True,
        )  # fmt: skip


@dataclass(frozen=True)
class Judge:
    """Claims about one score."""

    rows: Rows
    key: str
    score: Score
    world: World
    printed: bool = True  # whether the source has these strengths

    def one(
        self,
        name: str,
        sentence: str,
        model: str,
        pair: tuple[str, str],
        expect: Expect = LOWER,
        *,
        same: bool = False,
        part: bool = False,
        needs: str = "",
    ) -> Claim:
        """The score on the first version against the second, paired by seed.

        With `same`, only pairs of runs that use all their latents.
        """
        first, second = (self.rows.where(model=model, version=version) for version in pair)
        every = differences(first, second, self.key)
        whole = differences(_whole(first), _whole(second), self.key)
        values = whole if same else every
        statistic = f"{self.score.title}: {SHORT[pair[0]]} minus {SHORT[pair[1]]}, same seed"
        less = f"{len(every) - len(whole)} of {len(every)} pairs have a run with unused latents"
        statistic += f"; {less}{', and are left out' if same else ''}"
        if same and len(whole) < 4 and not needs:
            needs = f"models that use all their latents on both, as with a weaker β: {less}"
        printed_pair = published(self.key, self.world.name).get(model, {}) if self.printed else {}
        texts = [_as_printed(printed_pair.get(version)) for version in pair]
        known = all(texts)
        texts = [f"{text} ({SHORT[v]})" for text, v in zip(texts, pair, strict=True)][::-1]
        return claim(
            self.score.row, MODELS[model] if part else name,
            sentence if part else f"{self.score.title} of the {MODELS[model]} is {sentence}",
            source=f"{self.score.source}, {self.world.source}" if known else "ours",
            published=f"{MODELS[model]} {' to '.join(texts)}" if known else "not published",
            expect=expect, values=values, statistic=statistic, needs=needs,
            ours=not known and not part,
            controls=[_could_fall(second.values(self.key), expect.limit)]
            if expect.kind == "within" else [],
        )  # fmt: skip

    def parts(
        self,
        name: str,
        sentence: str,
        models: Sequence[str],
        pair: tuple[str, str],
        expect: Expect = LOWER,
        *,
        same: bool = False,
    ) -> Claim:
        """The same for several models."""
        each = [
            self.one(name, sentence, model, pair, expect, same=same, part=True) for model in models
        ]
        return claim_of_parts(
            self.score.row, name, f"{self.score.title}: {sentence}", each,
            source=f"{self.score.source}, {self.world.source}",
            published="; ".join(c.published for c in each if c.published != "not published"),
        )  # fmt: skip


def _could_fall(scores: Sequence[float], margin: float) -> Control:
    """No score is below 0, so that one below the margin cannot fall by more than it."""
    mean = float(np.mean(scores)) if scores else None
    return Control(
        f"the score on original data is above {margin:g}, so that it could fall by more",
        None if mean is None else mean > margin, "" if mean is None else f"{mean:.2f}",
    )  # fmt: skip


def _whole(rows: Rows) -> Rows:
    """The runs that use all their latents."""
    return Rows(row for row in rows if row.get("active") == row["latents"])


def _as_printed(pair: tuple[float, float] | None) -> str:
    return "" if pair is None else f"{pair[0]:.2f}±{pair[1]:.2f}"


# Tables


def tabulate_scores(results: Results, world: World) -> Iterator[Table]:
    """Tables 4.2 to 4.5, with all controls and the latents in use."""
    rows, weaker = (add_versions(results.rows(group)) for group in ("versions", "weaker"))
    small = results.scale != "paper"
    for key, score in SCORES.items():
        digits = published(key, world.name)
        header = ["model", "data", "published", score.title, "latents in use", "runs"]
        if key == "mig":
            header.insert(4, "MIG of zscope")
        cells = [header]
        lines = [(title, rows.where(model=model), digits.get(model, {}))
                 for model, title in MODELS.items()]  # fmt: skip
        if weaker:
            lines.append((f"β-VAE with β {weaker[0]['beta']:g}", weaker, {}))
        for title, own, known in lines:
            for version in VERSIONS:
                part = own.where(version=version)
                if not part:
                    continue
                line = [title, SHORT[version], printed(known.get(version)),
                        mean_and_sd(part.values(key)), counts(part), str(len(part))]  # fmt: skip
                if key == "mig":
                    line.insert(4, mean_and_sd(part.values("own_mig")))
                cells.append(line)
        for version, pair in digits.get("gan", {}).items():
            cells.append(["weakly supervised GAN", SHORT[version], printed(pair), "not run"]
                         + [""] * (len(header) - 4))  # fmt: skip
        ours = (f" Ours: {world.name} of 16 x 16 pixels with {world.factors} factors, mlp 64-64, "
                "3,000 steps, Adam 1e-3.") if small else ""  # fmt: skip
        yield Table(
            score.source.replace(" ", "-"), f"{score.title} ({score.source})", cells, left=2,
            row=score.row,
            notes=[
                "Mean ± standard deviation over seeds. Noise: of the same ε, as published; equal "
                "noise, untrained and aligned have the variance of the change; turned has its ε. "
                f"Published: {world.source}, 10 seeds, "
                f"convolutional, 300,000 steps.{ours}",
                f"Latents in use: mean posterior variance below {PRUNED} (AE, PCL: as for any "
                "score). MIG: that of disentanglement_lib; that of zscope leaves out unused "
                "latents and chance." if key == "mig" else
                f"Latents in use: mean posterior variance below {PRUNED}.",
            ],
        )  # fmt: skip


def _points(alignment: Mapping[str, Any]) -> str:
    """At how many points directions were compared; there the step size could not be checked."""
    first = next((each for each in alignment.values() if each and "samples" in each), None)
    if first is None:
        return ""
    return (f" At {first['samples']} points whose neighbours along all factors are in the data; "
            f"with half the step size {first['checked']} of them can be checked.")  # fmt: skip


def tabulate_change(results: Results, world: World) -> Iterator[Table]:
    """The versions of the data: size of the change and alignment; and the course of the game."""
    facts = results.once("describe_versions")
    sizes, alignment = facts.get("sizes") or {}, facts.get("alignment") or {}
    header = ["data", "largest change", "root mean square", "variance, of that of the data",
              "in one direction", "variance of the data", "DtO", "gap in nats"]  # fmt: skip
    cells = [header]
    for version in VERSIONS:
        size, own = sizes.get(version), alignment.get(version)
        if version not in alignment:
            continue
        numbers = [""] * 5
        if size:
            numbers = [f"{size['largest']:.3f}", f"{size['rms']:.3f}"]
            numbers += [
                "" if size[name] is None else f"{100 * size[name]:{sign}.1f} %"
                for name, sign in (("relative_variance", ""), ("first_direction", ""),
                                   ("added_variance", "+"))
            ]  # fmt: skip
        cells.append([
            SHORT[version], *numbers, f"{own['distance']:.2f}" if own else "",
            f"{own['gap']:.2f}" if own else "",
        ])  # fmt: skip
    chance = next((each["chance"] for each in alignment.values() if each), None)
    yield Table(
        "versions", "The versions of the data (figure 4.3)", cells, row="C-F4.3",
        notes=["Variance: of x' − x about its mean, and by how much that of the data changes. DtO: "
               "distance of the factors to the local principal directions, 0 aligned"
               + ("." if chance is None else f", {chance:.2f} random.") + _points(alignment)],
    )  # fmt: skip
    game = facts.get("game") or {}
    if game:
        before, after = game["gap"]
        mig = ", ".join(f"{name} {value:.2f}" for name, value in (game["mig"] or {}).items())
        yield Table(
            "game", "The game that made the change", [
                ["", "value"],
                ["MIG of the restarts", ", ".join(f"{each:.2f}" for each in game["scores"])],
                ["latents in use", ", ".join(map(str, game["active"]))],
                ["MIG of the chosen ones", mig],
                ["loss entangled − disentangled, before", f"{before:+.2f} nats"],
                ["after", f"{after:+.2f} nats"],
                ["after the same game with ε = 0", f"{game['gap_without_change']:+.2f} nats"],
                ["rounds", str(game["rounds"])],
            ], left=2, row="C-F4.3",
            notes=list(dict.fromkeys([game["verdict"], *(game["flags"] or [])])),
        )  # fmt: skip


# Figures


def plot_scores(results: Results, world: World) -> Iterator[Figure]:
    """A figure for each score: a panel for each model, all versions side by side."""
    from zscope.plots import panel_grid, strips
    from zscope.plots.theme import categories

    rows = add_versions(results.rows("versions"))
    colours = dict(zip(VERSIONS, categories(len(VERSIONS)), strict=True))
    for key, score in SCORES.items():
        digits = published(key, world.name)
        figure, grid = panel_grid(2, 3, width=7.4, height=4.6, sharey=True)
        for place, (ax, (model, title)) in enumerate(zip(grid.flat, MODELS.items(), strict=True)):
            own = rows.where(model=model)
            there = [v for v in VERSIONS if own.where(version=v)] or list(PUBLISHED_VERSIONS)
            groups = {SHORT[v]: own.where(version=v).values(key) for v in there}
            known = {SHORT[v]: pair for v, pair in digits.get(model, {}).items()}
            strips(groups, y=score.title if place % 3 == 0 else "", title=title, ax=ax,
                   published=known, colours=[colours[v] for v in there])  # fmt: skip
            ax.tick_params(axis="x", labelrotation=35, labelsize=6)
            for label in ax.get_xticklabels():
                label.set_horizontalalignment("right")
        yield Figure(
            score.source.replace(" ", "-"),
            f"{score.title} on the original data, on the changed data and on their controls "
            "(noise: of the same ε; equal noise: of the same variance), a point for each seed. "
            f"Grey diamonds: published for {world.source}, mean ± standard deviation"
            + ("." if results.scale == "paper" else
               ", with other networks; only the order can be compared."),
            figure, row=score.row,
        )  # fmt: skip


def plot_change(results: Results, world: World) -> Iterator[Figure]:
    """Figure 4.3: original pictures, the change, and the changed pictures."""
    from zscope.plots import image_grid

    place = world.source if results.scale == "paper" else world.name
    pictures = results.once("describe_versions").get("pictures") or {}
    if not {"original", "changed"} <= pictures.keys():
        return
    x, y = (np.asarray(pictures[name]) / 255 for name in ("original", "changed"))
    factor = max(1, int(0.5 / world.epsilon))
    lines, names = [x, 0.5 + factor * (y - x), y], ["original", f"change × {factor}", "changed"]
    if "equal-noise" in pictures:
        noise = np.asarray(pictures["equal-noise"]) / 255
        lines.append(noise)
        names.append("equal noise")
    yield Figure(
        "figure-4.3",
        f"Example perturbations of {place}: the original pictures, the change (grey: none; "
        f"{factor} times as large as it is), the changed pictures, and noise of equal variance.",
        image_grid(np.clip(np.stack(lines), 0, 1), rows=names), row="C-F4.3",
    )  # fmt: skip
