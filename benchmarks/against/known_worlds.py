"""What do scores say where the answer is known?

    python benchmarks/against/known_worlds.py

Codes of three kinds are scored, with the same five factors and five seeds:

    noise      eight latents that know nothing of the factors
    perfect    five latents, each of them a factor (and 1 % noise), beside three of noise
    rotated    the same five latents, rotated: everything is encoded, but no factor in one latent

- by zscope with its defaults;
- by the reference definitions, those of the library of Locatello et al. (2019). It needs
  TensorFlow 1 and no longer installs, so this is zscope's `flavour="dlib"`, which tests compare
  with values computed by hand;
- by latentverse's own `run_disentanglement`, which takes the table of factors as it is, in an
  environment of its own that is made on first use under .bench/.

All see the same arrays. Similarity is asked of unrelated features and dimension of rows that occur
twice (scikit-dimension, in its own environment). About half an hour on one core, nearly all of it
for the gradient boosting of the reference DCI. The page RESULTS.md beside this file is written
anew; the README quotes it, and a test compares them.
"""

import argparse
import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from ratios import PEERS, command, machine, peer, released  # noqa: E402

SEEDS = range(5)
ROWS = (500, 5000)
VALUES = (3, 6, 10, 8, 8)  # of each factor
LATENTS = 8
TOOLS = ("zscope", "reference", "latentverse")
SCORES = ("mig", "sap", "dci", "modularity", "explicitness", "jemmig", "dcimig", "irs", "mcc")

TITLES = {
    "noise": "Noise: 0 is right",
    "perfect": "Perfect codes, beside noise: 1 is right",
    "rotated": "Rotated codes: encoded, but no factor in one latent",
}
REMARKS = {
    "noise": "zscope first asks of each latent whether it has more information about any factor "
    "than shuffled codes, and scores those that have. Reference explicitness is an area under a "
    "ROC curve, for which one half is chance. mcc is a mean of absolute correlations, which are "
    "above 0 for a finite number of observations; zscope prints that chance level beside the "
    "score. latentverse's DCI takes the shares of the estimated information, however little all "
    "of it is.",
    "perfect": "Not every score can be 1 here. zscope's mig, jemmig and dcimig cut each latent "
    "into 20 bins with as many observations each, whose borders do not fall between the 3, 6, 8 or "
    "10 values of a factor: some information is lost, and bins of equal width, as in the "
    "reference definitions, lose less. jemmig also counts what a latent encodes besides the "
    "factor: with few values and many bins it stays below 1, and zscope flags how far. Reference "
    "sap is a gap between accuracies of a linear classifier, which cannot separate ten values in a "
    "row; reference modularity and irs count the three latents of noise.",
    "rotated": "No single value is right, but no score should be near 1, except explicitness, "
    "which asks only whether factors are encoded, and modularity, which is high if each latent "
    "leans to one factor.",
}


def world(name: str, rows: int, seed: int):
    """Codes and factors."""
    import numpy as np

    rng = np.random.default_rng([rows, seed])
    factors = np.stack([rng.integers(0, count, rows) for count in VALUES], 1)
    noise = rng.normal(size=(rows, LATENTS))
    if name == "noise":
        return noise, factors
    scaled = (factors - factors.mean(0)) / factors.std(0)
    known = scaled + 0.01 * rng.normal(size=scaled.shape)
    if name == "rotated":
        known = known @ np.linalg.qr(rng.normal(size=(len(VALUES), len(VALUES))))[0]
    return np.concatenate([known, noise[:, len(VALUES) :]], 1), factors


def latentverse_worker(file: Path) -> list[dict]:
    import numpy as np
    from latentverse.evaluations import disentanglement

    # A neural network for each factor, for a value that is not compared: minutes for nothing.
    disentanglement.compute_informativeness_score = lambda *_, **__: 0.0
    rows = []
    for arrays in json.loads(file.read_text()):
        with np.load(arrays) as both, contextlib.redirect_stdout(io.StringIO()):
            output = disentanglement.run_disentanglement(both["codes"], both["factors"])
        scores = output["metrics"]
        dci = scores["DCI"]
        rows.append({"mig": scores["MIG"], "sap": scores["SAP"], "dci": dci["Disentanglement"]})
    return rows


def dimension_worker(file: Path) -> list[float]:
    import numpy as np
    import skdim

    return [float(skdim.id.MLE().fit(np.load(each)).dimension_) for each in
            json.loads(file.read_text())]  # fmt: skip


def by_zscope(codes, factors, flavour: str) -> dict[str, float]:
    import inspect

    import zscope as zs

    values = {}
    for name in SCORES:
        score = getattr(zs.assays, name)
        flavours = inspect.signature(score).parameters["flavour"].annotation
        if flavour == "dlib" and "dlib" not in str(flavours):
            continue
        options = {} if flavour == "zscope" else {"flavour": flavour}
        values[name] = float(score(codes, factors, kinds="ordinal", **options).score)
    return values


def measure() -> Iterator[dict]:
    """A row for each world, number of rows, seed and tool."""
    import numpy as np

    with tempfile.TemporaryDirectory() as folder:
        cases, files = [], []
        for name in TITLES:
            for rows in ROWS:
                for seed in SEEDS:
                    codes, factors = world(name, rows, seed)
                    file = Path(folder) / f"{name}-{rows}-{seed}.npz"
                    np.savez(file, codes=codes, factors=factors.astype(float))
                    cases.append({"world": name, "rows": rows, "seed": seed})
                    files.append(str(file))
                    for tool, flavour in (("zscope", "zscope"), ("reference", "dlib")):
                        yield {**cases[-1], "tool": tool, **by_zscope(codes, factors, flavour)}
        listed = Path(folder) / "files.json"
        listed.write_text(json.dumps(files))
        output = command(
            peer("latentverse"), "-W", "ignore", __file__, "--worker", "latentverse", str(listed)
        )
        for case, scores in zip(cases, json.loads(output.splitlines()[-1]), strict=True):
            yield {**case, "tool": "latentverse", **scores}


def similarity_of_noise() -> dict[str, float]:
    """CKA of 64 rows of two sets of 128 unrelated Gaussian features: 0 is right."""
    import numpy as np

    import zscope as zs

    values: dict[str, list[float]] = {"zscope": [], "reference": []}
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        x, y = rng.normal(size=(2, 64, 128))
        values["zscope"].append(zs.assays.cka(x, y).score)
        values["reference"].append(zs.assays.cka(x, y, debiased=False).score)
    return {tool: float(np.mean(each)) for tool, each in values.items()}


def dimension_of_copies() -> dict[str, float]:
    """A thousand points of eight dimensions, once and twice: a copy is no neighbour."""
    import numpy as np

    import zscope as zs

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1000, 8))
    twice = np.concatenate([rows, rows])
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for name, content in (("once", rows), ("twice", twice)):
            file = Path(folder) / f"{name}.npy"
            np.save(file, content)
            files.append(str(file))
        listed = Path(folder) / "files.json"
        listed.write_text(json.dumps(files))
        output = command(
            peer("scikit-dimension"), "-W", "ignore", __file__, "--worker", "dimension", str(listed)
        )
    theirs = json.loads(output.splitlines()[-1])
    ours = [zs.assays.intrinsic_dimension(each).score for each in (rows, twice)]
    return {"zscope": ours[0], "zscope, rows twice": ours[1],
            "scikit-dimension": theirs[0], "scikit-dimension, rows twice": theirs[1]}  # fmt: skip


def cell(values: list[float]) -> str:
    """Mean and standard deviation over seeds."""
    import numpy as np

    if not values:  # the tool has no such score
        return ""
    mean, spread = np.mean(values), np.std(values, ddof=1)
    return f"{mean:.3f} ± {spread:.3f}".replace("-", "−")


def table(rows: list[dict], name: str, count: int) -> str:
    """Scores as lines, tools as columns."""
    lines = [f"| score | zscope | reference definition | {version_of('latentverse')} |",
             "| --- | --- | --- | --- |"]  # fmt: skip
    for score in SCORES:
        cells = [
            cell([row[score] for row in rows if row["tool"] == tool and row["world"] == name
                  and row["rows"] == count and score in row])
            for tool in TOOLS
        ]  # fmt: skip
        lines.append(f"| {score} | {' | '.join(cells)} |")
    return "\n".join(lines)


def version_of(name: str) -> str:
    return PEERS[name][-1].replace("==", " ")


def page(rows: list[dict], similarity: dict[str, float], dimension: dict[str, float]) -> str:
    facts = machine()
    text = [
        "# Where the answer is known",
        "Written by `benchmarks/against/known_worlds.py`, whose first lines say what is compared. "
        f"Means and standard deviations over {len(SEEDS)} seeds; five factors of "
        f"{', '.join(map(str, VALUES))} values, all ordinal; {LATENTS} latents. "
        f"{released('zscope')}, {version_of('latentverse')}, {version_of('scikit-dimension')}, "
        f"{released('numpy', 'scikit-learn')}, Python {facts['python']}. Where a cell is empty, "
        "the tool has no such score. latentverse computes DCI from mutual information, the others "
        "from the importances of a predictor.",
    ]
    for name, title in TITLES.items():
        text.append(f"## {title}")
        for count in ROWS:
            text += [f"{count:,} observations:", table(rows, name, count)]
        text.append(REMARKS[name])
    text += [
        "## Similarity of unrelated features: 0 is right",
        "CKA of 64 observations of two sets of 128 Gaussian features. zscope: "
        f"{similarity['zscope']:.2f} (debiased, its default). Plain definition: "
        f"{similarity['reference']:.2f}.",
        "## Dimension, with rows that occur twice",
        "A thousand Gaussian points in eight dimensions, and the same points twice (maximum "
        f"likelihood, 20 neighbours for zscope). zscope: {dimension['zscope']:.2f} and "
        f"{dimension['zscope, rows twice']:.2f}. {version_of('scikit-dimension')}, "
        f"`skdim.id.MLE`: {dimension['scikit-dimension']:.2f} and "
        f"{dimension['scikit-dimension, rows twice']:.2f}.",
    ]
    return "\n\n".join(text) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worker", nargs=2, metavar=("PEER", "FILES"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        name, file = arguments.worker
        worker = {"latentverse": latentverse_worker, "dimension": dimension_worker}[name]
        print(json.dumps(worker(Path(file))))
        return 0
    content = page(list(measure()), similarity_of_noise(), dimension_of_copies())
    (HERE / "RESULTS.md").write_text(content)
    print(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
