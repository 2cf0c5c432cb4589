"""How much processor time does the default report of a model with 256 latents take?

    python benchmarks/many_latents.py

Two linear layers, 3,000 rows of 512 features, two factors, every assay that applies, intervals
from 20 resamples. The time of the slowest assays is printed, and that of drawing and saving the
page. All together may take two minutes.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from ratios import Agreement, Ratio, finish, released

import zscope as zs
from zscope.assays.run import Progress
from zscope.data.dataset import from_arrays
from zscope.report.build import build

LATENTS, FEATURES, ROWS, LIMIT = 256, 512, 3000, 120.0


def recording() -> zs.Recording:
    torch.manual_seed(0)
    encoder, decoder = torch.nn.Linear(FEATURES, 2 * LATENTS), torch.nn.Linear(LATENTS, FEATURES)
    with torch.no_grad():
        encoder.weight[LATENTS:] *= 0.1
        encoder.bias[LATENTS:] -= 2
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 20)) @ rng.normal(size=(20, FEATURES)) / 4
    factors = np.digitize(x[:, :2], [-1, 0, 1]).astype(float)
    model = zs.wrap(lambda batch: encoder(batch).chunk(2, 1), decoder)
    return zs.record(model, from_arrays(x.astype("float32"), factors))


def main() -> int:
    marks: list[tuple[str, float]] = []

    def mark(progress: Progress) -> None:
        marks.append((progress.name, time.process_time()))

    recorded = recording()
    start = time.process_time()
    report = build(recorded, resamples=20, progress=mark)
    measured = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        report.save(Path(folder) / "report.html")
    saved = time.process_time()
    ends = [*(mark for _, mark in marks[1:]), measured]
    seconds = {name: end - begin for (name, begin), end in zip(marks, ends, strict=True)}
    for name in sorted(seconds, key=lambda name: -seconds[name])[:8]:
        print(f"{seconds[name]:6.1f} s  {name}")
    print(f"{measured - start:6.1f} s  measured in all")
    print(f"{saved - measured:6.1f} s  drawn and saved")
    for name, failure in report.failed.items():
        print(f"{name}: {failure.message}")
    ratio = Ratio(
        f"report of {LATENTS} latents, {len(report.results)} assays, 20 resamples", "report",
        [saved - start], [LIMIT], baseline=f"the limit of {LIMIT:g} s", version=released("zscope"),
        at_most=1,
        agreement=Agreement("assays that failed", len(report.failed), 0),
    )  # fmt: skip
    return finish("many_latents", [ratio])


if __name__ == "__main__":
    sys.exit(main())
