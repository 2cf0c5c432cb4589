"""Model selection: which of many trained models is the most disentangled?

Without factors there are two criteria. UDR: models that differ in their seed alone and agree with
each other are disentangled, the others are entangled each in its own way; the UDR of a model is
the median over the other models of its group. Distance to orthogonality: the decoder stretches
space along the latent axes; as a share of chance, so that numbers of active latents may differ.
Where the data have factors, the scores that use them stand beside, with the rank correlation
(Spearman) of each criterion with each score. A positive one means that the criterion prefers what
the score prefers, also for distances, of which the smallest is best.

Of each model only its codes are kept; one model is loaded at a time.

Duan et al., "Unsupervised model selection for variational disentangled representation learning",
ICLR 2020; Zietlow 2022, section 3.3.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from zscope.assays import CATALOGUE
from zscope.assays.choosing import choose
from zscope.assays.run import Measurements, Options, lower_is_better, measure
from zscope.assays.run import compare as compare_recordings
from zscope.autoencoder import Autoencoder
from zscope.collection.columns import data_names, score_name
from zscope.data.dataset import Dataset
from zscope.errors import ConfigError, RunError, Undefined
from zscope.experiments.comparison_of_runs import DataOf
from zscope.experiments.families import Member, families, find_members
from zscope.experiments.records import Clock, Tabular, Watch
from zscope.kept import results_of
from zscope.loading import load
from zscope.recording import SAMPLES, Recording, record
from zscope.results import Scored, counted, frame_of, listed, text_table
from zscope.sampling import whole
from zscope.tables.statistics import ENOUGH, rank_test

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CRITERIA", "SCORES", "Selection", "select_models"]

UDR, DISTANCE = "udr", "distance-to-orthogonality"
CRITERIA = (UDR, DISTANCE)
"""What needs no factors, the first one ranking unless another is named."""
SCORES = ("mig", "dci", "sap", "factor-vae-score")
DIGITS = 9
"""Models whose values differ by rounding errors alone have the same rank."""


@dataclass(frozen=True, eq=False)
class Selection(Tabular):
    """The models, best first, with all criteria and scores; None where there is no value."""

    # rank, run, group, seed, latents in use, then a value for each criterion and score
    table: list[dict[str, Any]]
    ranked_by: str
    criteria: list[str]
    scores: list[str]
    lower: list[str]  # the criteria and scores of which the smallest value is best
    agreement: list[dict[str, Any]]  # criterion, score, correlation, p of chance, models
    missing: dict[str, str] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)
    samples: int = 0

    @property
    def best(self) -> str:
        """The run that is ranked first."""
        return str(self.table[0]["run"])

    def records(self) -> list[dict[str, Any]]:
        return list(self.table)

    def to_frame(self, assay: str = "") -> "pd.DataFrame":
        """The table as a pandas DataFrame."""
        return frame_of(self.table, list(self.table[0]))

    def correlation(self, criterion: str, score: str) -> float:
        """The rank correlation of a criterion with a score."""
        for each in self.agreement:
            if (each["criterion"], each["score"]) == (criterion, score):
                return float(each["correlation"])
        pair = f"{criterion} with {score}"
        reason = self.missing.get(pair, "Those there are: .agreement")
        raise Undefined(f"select: there is no rank correlation of {pair}: {reason}")

    def plot(self, ax: Any = None) -> Any:
        """The rank correlations of the criteria with the scores."""
        from zscope.plots import heatmap

        rows = self.criteria
        columns = list(dict.fromkeys(each["score"] for each in self.agreement))
        if not self.agreement:
            raise Undefined(f"select: there is no rank correlation to draw. {self._why_none()}")
        known = {(each["criterion"], each["score"]): each["correlation"] for each in self.agreement}
        matrix = [[known.get((row, column)) for column in columns] for row in rows]
        counts = [each["models"] for each in self.agreement]
        models = f"{min(counts)} to {max(counts)}" if len(set(counts)) > 1 else f"{counts[0]}"
        return heatmap(
            matrix,
            rows=[_title(name) for name in rows],
            columns=[_title(name) for name in columns],
            x=f"{models} models; positive: criterion and score agree",
            label="Spearman's ρ",
            limit=1.0,
            diverging=True,
            empty="too few models, or constant",
            ax=ax,
        )

    def _why_none(self) -> str:
        """Why there is no rank correlation at all."""
        places = [
            f"{criterion} with {score}" for score in self.scores[:1] for criterion in CRITERIA
        ]
        if not self.scores:
            places = [p for p in self.missing if p.partition(" of ")[0] not in CRITERIA][:1]
        reasons = [f"{place}: {self.missing[place]}" for place in places]
        return " ".join(reasons) or "No scores were asked for. Name some, such as mig."

    def __repr__(self) -> str:
        names = list(self.table[0])
        rows = [[_cell(row[name]) for name in names] for row in self.table]
        shown = [k for k, name in enumerate(names) if any(row[k] for row in rows)]
        table = [[names[k] for k in shown], *([row[k] for k in shown] for row in rows)]
        parts = [text_table(table, left=3)]
        if self.agreement:
            lines = [["rank correlation", "with", "Spearman", "p", "models"]]
            for each in self.agreement:
                numbers = (f"{each['correlation']:+.2f}", f"{each['p']:.2g}", str(each["models"]))
                lines.append([each["criterion"], each["score"], *numbers])
            parts.append(text_table(lines, left=2))
        reasons: dict[str, list[str]] = {}
        for place, reason in self.missing.items():
            reasons.setdefault(reason, []).append(place)
        notes = [f"ranked by {self.ranked_by}, {self.samples:,} samples; used: latents in use"]
        low = [name for name in self.lower if any(row[name] is not None for row in self.table)]
        if low:
            notes.append(f"the smallest is best: {', '.join(low)}")
        if DISTANCE in low:
            notes.append(f"{DISTANCE}: in units of chance")
        if self.agreement:
            notes.append("positive rank correlation: criterion and score prefer the same models")
        notes += self.flags
        notes += [f"none for {_first(places)}: {reason}" for reason, places in reasons.items()]
        return "\n\n".join([*parts, "\n".join(notes)])


class _Model(NamedTuple):
    name: str
    group: str
    seed: Any
    target: Any
    load: Callable[[], Autoencoder]


def select_models(
    runs: Any,
    data: Any = None,
    *,
    rank: str | None = None,
    scores: Sequence[str] | None = None,
    options: Options | None = None,
    samples: int = SAMPLES,
    seed: int = 0,
    root: str | Path | None = None,
    progress: Watch | None = None,
) -> Selection:
    """Rank models by UDR and distance to orthogonality, beside the scores that use factors.

    `runs` is a folder of runs, several runs, or models of one's own by group: {"beta 4": [model,
    model]}. Runs that agree in everything but the seed are a group. `rank` is the column that
    orders the table, by default UDR; `scores` are further assays by which models can be ranked,
    by default some that use factors. `options` are by assay: {"udr": {"similarity": "spearman"}}.
    `data` are by default those of the runs, which must be the same; `root` is where datasets are
    kept.
    """
    whole("select", samples=samples, seed=seed)
    chosen = [entry.name for entry in choose(SCORES if scores is None else scores)]
    wanted = [name for name in chosen if name not in CRITERIA]  # these are measured anyway
    low = {name: lower_is_better("select", name) for name in (*CRITERIA, *wanted)}
    options = dict(options or {})
    unknown = [name for name in options if name not in {*CRITERIA, *wanted}]
    if unknown:
        raise ConfigError(
            f"select: {unknown[0]} has options, but is not measured; measured: "
            f"{', '.join([*CRITERIA, *wanted])}. Add it to the scores, or leave its options out."
        )
    groups, flags = _groups(runs, one_dataset=data is None)
    own_data = DataOf(data, root)
    clock = Clock(sum(len(group) for group in groups), progress)
    table: list[dict[str, Any]] = []
    missing: dict[str, str] = {}
    columns: dict[str, bool] = {name: low[name] for name in CRITERIA}  # the smallest is best
    counts: set[int] = set()
    for group in groups:
        measured: list[_Model] = []
        recordings: list[Recording] = []
        rows = []
        for model in group:
            clock(model.name)
            dataset = own_data(model.target)
            try:
                autoencoder = model.load()
            except RunError as error:
                flags.append(f"{model.name} is left out: {error}")
                continue
            recording, used, outcome = _measure(
                autoencoder, model.target, dataset, wanted, options, samples, seed
            )
            del autoencoder  # one is in memory at a time
            row = {"rank": 0, "run": model.name, "group": model.group, "seed": model.seed}
            row |= {"used": used}
            values = _values(outcome)
            columns |= {key: low[key.partition(".")[0]] for key in values}
            measured.append(model)
            rows.append(row | values)
            recordings.append(recording)
            missing |= {f"{name} of {model.name}": why for name, why in _reasons(outcome).items()}
            flags += [warning for warning in outcome.warnings if warning not in flags]
            counts.add(len(recording))
        if measured:
            missing |= _agreement_of_seeds(measured, recordings, rows, options.get(UDR, {}))
        table += rows
    if not table:
        raise RunError(f"select: no model can be used. {' '.join(flags[:3])}")
    if len(counts) > 1:
        flags.append(
            f"Models were measured on {min(counts):,} to {max(counts):,} samples, because their "
            "data have different sizes."
        )
    ranked_by = _ranking(rank, columns, table)
    table = _sorted(table, ranked_by, columns)
    flags += _collapsed(table)
    agreement, reasons = _correlations(table, columns)
    return Selection(
        table=table,
        ranked_by=ranked_by,
        criteria=list(CRITERIA),
        scores=[name for name in columns if name not in CRITERIA],
        lower=[name for name in columns if columns[name]],
        agreement=agreement,
        missing=missing | reasons,
        flags=flags,
        samples=min(counts),
    )


def _groups(runs: Any, *, one_dataset: bool) -> tuple[list[list[_Model]], list[str]]:
    """The models of each group, and what is left out; `one_dataset`: they are to have the same."""
    if isinstance(runs, Mapping):
        for name, own in runs.items():
            if not isinstance(own, Sequence) or isinstance(own, str | bytes):
                raise ConfigError(
                    f"select: the group {name!r:.60} is {own!r:.60}; expected a list of models, "
                    'such as {"beta 4": [model, model]}.'
                )
        groups = [
            [
                _Model(f"{name} {k}", str(name), k, None, partial(load, each))
                for k, each in enumerate(own)
            ]
            for name, own in runs.items()
        ]
        if not any(groups):
            raise ConfigError("select: got no models. Give a folder of runs, or models by group.")
        return [group for group in groups if group], []
    members, notes = find_members("select", runs)
    if one_dataset:
        _check_data(members)
    groups = []
    for family in families(members, ["seed"]):
        seeds = [(each, each.fields.get("seed")) for each in family.members]
        groups.append(
            [
                _Model(each.name, family.label, seed, each.path, partial(load, each.path))
                for each, seed in seeds
            ]
        )
    return groups, notes


def _check_data(members: Sequence[Member]) -> None:
    """Refuse runs of several datasets: neither their scores nor their ranks can be compared."""
    counts = Counter(data_names([member.fields for member in members]))
    if len(counts) > 1:
        first = next(iter(counts))
        raise ConfigError(
            f"select: the runs are of {len(counts)} datasets, whose scores cannot be compared: "
            f"{listed(counts, 6)}. Select one, for instance with --where 'data={first}' (in Python "
            f"zs.runs(FOLDER).select(data={first!r}).paths)."
        )


def _measure(
    autoencoder: Autoencoder,
    target: Any,
    data: Dataset,
    scores: list[str],
    options: Options,
    samples: int,
    seed: int,
) -> tuple[Recording, int, Measurements]:
    """The codes of a model, without it and the data; its latents in use; and its scores."""
    recording = record(autoencoder, data, samples=samples, seed=seed)
    names = [DISTANCE, *scores]
    outcome = measure(
        recording,
        names,
        options={name: own for name, own in options.items() if name in names},
        kept=None if target is None else results_of(target, autoencoder),
    )
    return Recording(None, recording.posterior, seed=seed), len(recording.used), outcome


def _values(outcome: Measurements) -> dict[str, float]:
    """The scores by column: an assay, or an assay and its measure. Distances in units of chance."""
    values: dict[str, float] = {}
    for name, result in outcome.results.items():
        for each in result.measures():
            value = each.value
            if name == DISTANCE and isinstance(each.chance, float):
                value /= each.chance
            values[score_name(name, each.name)] = round(float(value), DIGITS)
    return values


def _reasons(outcome: Measurements) -> dict[str, str]:
    failed = {name: failure.message for name, failure in outcome.failed.items()}
    return outcome.missing | failed


def _agreement_of_seeds(
    group: list[_Model],
    recordings: list[Recording],
    rows: list[dict[str, Any]],
    options: Mapping[str, Any],
) -> dict[str, str]:
    """Write the UDR of each model of a group into its row; why there is none."""
    label = group[0].group or group[0].name
    if len(group) < 2:
        return {
            f"{UDR} of {group[0].name}": f"{group[0].group or 'its group'} has one run, and UDR "
            "compares runs that differ in their seed alone. Train at least two seeds."
        }
    outcome = compare_recordings(recordings, [UDR], options={UDR: options} if options else None)
    result = outcome.results.get(UDR)
    if isinstance(result, Scored):
        for row, value in zip(rows, getattr(result, "scores"), strict=True):  # noqa: B009
            row[UDR] = round(float(value), DIGITS)
    return {f"{name} of {label}": reason for name, reason in _reasons(outcome).items()}


def _ranking(rank: str | None, columns: Mapping[str, bool], table: list[dict[str, Any]]) -> str:
    """The column that orders the table: the one that is named, or the first that has values."""
    known = [name for name in columns if any(name in row for row in table)]
    if rank is None:
        if not known:
            raise Undefined(
                f"select: {counted(len(table), 'model')} without a value of any criterion. Do they "
                "use their latents, and are there two seeds of each? See: zscope assay RUN"
            )
        return known[0]
    matches = [name for name in known if name == rank or name.startswith(f"{rank}.")]
    if not matches:
        raise ConfigError(
            f"select: no model has a value of {rank!r} to rank by. Choose one of "
            f"{', '.join(known) or 'none'}."
        )
    return matches[0]


def _sorted(
    table: list[dict[str, Any]], ranked_by: str, columns: Mapping[str, bool]
) -> list[dict[str, Any]]:
    """Best first, those without a value last; all rows with the same columns."""
    names = ["rank", "run", "group", "seed", "used", *columns]
    sign = 1 if columns[ranked_by] else -1

    def order(row: dict[str, Any]) -> tuple[bool, float]:
        value = row.get(ranked_by)
        return value is None, 0.0 if value is None else sign * value

    rows = [{name: row.get(name) for name in names} for row in sorted(table, key=order)]
    values = [row[ranked_by] for row in rows]
    for row in rows:  # models with the same value share a rank
        value = row[ranked_by]
        row["rank"] = None if value is None else values.index(value) + 1
    return rows


def _collapsed(table: list[dict[str, Any]]) -> list[str]:
    """A warning if a model that has nothing to disentangle is ranked first."""
    first = [row for row in table if row["rank"] == 1 and row["used"] < 2]
    if not first:
        return []
    amount = "one latent" if first[0]["used"] else "no latents"
    return [
        f"{first[0]['run']} is ranked first and uses {amount}: runs that have collapsed may agree "
        "with each other, and are not disentangled. See the column used, and leave such runs out."
    ]


def _correlations(
    table: list[dict[str, Any]], columns: Mapping[str, bool]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The rank correlation of each criterion with each score; why there is none."""
    agreement, missing = [], {}
    for criterion in CRITERIA:
        for score in columns:
            if score in CRITERIA:
                continue
            sign = 1 if columns[criterion] == columns[score] else -1
            both = [(row[criterion], row[score]) for row in table]
            pairs = [pair for pair in both if None not in pair]
            result = rank_test(*zip(*pairs, strict=True)) if pairs else None
            if result is None:
                seen = f"{counted(len(pairs), 'model')} {'has' if len(pairs) == 1 else 'have'} both"
                both_columns = zip((criterion, score), zip(*pairs, strict=True), strict=False)
                same = [name for name, values in both_columns if len(set(values)) == 1]
                if len(pairs) >= ENOUGH and same:
                    seen += f", all with the same {' and '.join(same)}"
                missing[f"{criterion} with {score}"] = (
                    f"a rank correlation needs {ENOUGH} models with different values; {seen}."
                )
                continue
            value, p = result
            numbers = {
                "correlation": round(sign * value, DIGITS) + 0.0,
                "p": p,
                "models": len(pairs),
            }
            agreement.append({"criterion": criterion, "score": score, **numbers})
    return agreement, missing


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _title(column: str) -> str:
    """A criterion or score as people write it: DCI completeness."""
    assay, _, measure = column.partition(".")
    return f"{CATALOGUE[assay].title} {measure.replace('-', ' ')}".strip()


def _first(places: list[str]) -> str:
    more = f" and {len(places) - 3} more" if len(places) > 3 else ""
    return f"{', '.join(places[:3])}{more}"
