"""What is killed: each kind of work that writes files, in its smallest form.

A work is started with a folder and whether it is started again after it was stopped. It must
then end with the same files, byte for byte, as if it had never been stopped.
"""

import io
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import zscope as zs
from zscope import store
from zscope.data import arrays, own
from zscope.data.fetching import fetch_source, require_files, state
from zscope.data.source import File, Source
from zscope.data.unpacking import unpack
from zscope.experiments.perturbation import game
from zscope.report import page

DRAW = np.random.default_rng(0)
GRID = np.stack(np.unravel_index(np.arange(64), (8, 8)), 1)
ROWS = np.concatenate([GRID / 8, DRAW.normal(0, 0.1, (64, 2))], 1).astype(np.float32)
DATA = zs.data.from_arrays(ROWS, GRID, factor_kinds=["ordinal", "ordinal"])
PICTURES = DRAW.integers(0, 256, (40, 1, 4, 4), np.uint8)
MAPS = np.linspace(0, 1, 16 * 64, dtype=np.float32).reshape(16, 1, 8, 8) % 0.37
SETTINGS = {"steps": 12, "batch": 8, "rate": 1e-2, "log_every": 2, "progress": False}
KEPT = {"checkpoint_every": 3, "snapshots": [5]}


@dataclass(frozen=True)
class Work:
    start: Callable[[Path, bool], Any]
    prepare: Callable[[Path], Any] = lambda folder: None
    load: Callable[[], Any] = lambda: None  # once, before the first process is forked
    check: Callable[[Path], Any] = lambda folder: None  # of what a kill left
    both: bool = False  # whether two processes at once succeed, rather than one


def build(name: str, seed: int = 0) -> Any:
    if name == "spatial-vae":
        return zs.models.build(name, shape=(1, 8, 8), channels=1, filters=16, seed=seed)
    hidden = {"hidden": (6,)} if "-2" not in name else {"hidden": (6, 6)}
    latents = 8 if name == "classifier" else 2  # a class each
    return zs.models.build_for(name, DATA, latents=latents, seed=seed, **hidden)


def train(name: str, out: Path, again: bool) -> None:
    data = MAPS if name == "spatial-vae" else DATA
    zs.train(build(name), data, out=out / "run", resume=again, **SETTINGS, **KEPT)


def train_ensemble(out: Path, again: bool) -> None:
    def member(seed: int) -> Any:
        return zs.models.build_for(
            "beta-vae", DATA, latents=2, hidden=(6,), seed=seed, beta=1 + seed
        )

    zs.train_ensemble(member, DATA, seeds=[0, 1, 4], out=out / "runs", resume=again, **SETTINGS,
                      **KEPT)  # fmt: skip


def fondue(out: Path, again: bool) -> None:
    zs.fondue(DATA, seeds=1, steps=4, batch=8, start=1, limit=2, options={"hidden": (4,)},
              out=out / "search")  # fmt: skip


def perturb(out: Path, again: bool) -> None:
    game.CHECKPOINT_EVERY = 2
    zs.perturb(DATA, epsilon=0.1, restarts=2, steps=2, rounds=5, batch=8, options={"hidden": (4,)},
               out=out / "change", resume=again, progress=False)  # fmt: skip


def publish(folder: Path) -> None:
    folder.mkdir()
    for name, part in zip(("a.npz", "b.npz"), np.split(PICTURES, 2), strict=True):
        np.savez_compressed(folder / name, images=part)


def refuse_other_shapes(path: Path) -> None:
    with np.load(path) as content:
        assert content["images"].shape == (20, 1, 4, 4)


def load_tiny(folder: Path) -> Any:
    records = require_files(TINY, folder)
    pieces = (np.load(folder / file.name)["images"] for file in TINY.files)
    return unpack("tiny", folder, records.values(), PICTURES.shape, lambda: pieces)


FILES = (File("a.npz", refuse_other_shapes), File("b.npz", refuse_other_shapes))
TINY = Source("tiny", "Tiny", "", "", load_tiny, homepage="http://home", files=FILES)


def fetch(out: Path, again: bool) -> None:
    fetch_source(TINY, out / "data" / "tiny", out / "published", progress=False)


def check_fetched(out: Path) -> None:
    if state(TINY, out / "data" / "tiny") == "here":
        assert np.array_equal(load_tiny(out / "data" / "tiny"), PICTURES)


def load_published(out: Path, again: bool) -> None:
    assert np.array_equal(load_tiny(out / "data" / "tiny"), PICTURES)


def prepare_published(out: Path) -> None:
    (out / "data").mkdir()
    publish(out / "data" / "tiny")


def load_own(out: Path, again: bool) -> None:
    arrays.LARGE = own.LARGE = 100
    images = zs.data.load(out / "published" / "a.npz").images
    assert np.array_equal(images[:], PICTURES[:20])


@cache
def reports() -> list[Any]:
    """Two reports on one model, to be saved one after the other, with their pages drawn."""
    names = ["variable-types", "mig"]
    made = [zs.assay(build("vae"), DATA, names=names, seed=seed, progress=False) for seed in (0, 1)]
    pages = {id(report): page.page(report) for report in made}
    page.page = lambda report, progress=None: pages[id(report)]
    return made


def assay(out: Path, again: bool) -> None:
    """Results of other data are there already, and are replaced."""
    store.LARGE = 3  # so that even small results have arrays of their own
    names = ["variable-types", "response-matrix", "mig"]
    report = zs.assay(out / "run", DATA, names=names, samples=50, progress=False)
    assert not report.failed, report.failed


def prepare_assay(out: Path) -> None:
    train("vae", out, False)
    store.LARGE = 3
    zs.assay(out / "run", ROWS[:40], names=["variable-types", "response-matrix"], progress=False)


def save_reports(out: Path, again: bool) -> None:
    for report in reports():
        for name in ("report.html", "scores.csv", "scores.parquet", "scores.tex", "other.json"):
            report.save(out / name)


def check_runs(folder: Path) -> None:
    """Every run can be opened, with its history, its results and its weights."""
    for file in folder.rglob("run.json"):
        run = store.open_run(file.parent)
        steps = [row["step"] for row in run.history]
        assert steps == sorted(set(steps)), steps
        run.results()
        for _, checkpoint in store.checkpoints(file.parent):
            zs.load(checkpoint)
        if run.finished:
            zs.load(file.parent)


WORKS = {
    **{f"train {name}": Work(partial(train, name)) for name in zs.models.names()},
    "ensemble": Work(train_ensemble),
    "unpack": Work(load_published, prepare_published, both=True),
    "own array": Work(load_own, lambda out: publish(out / "published"), both=True),
    "data fetch": Work(
        fetch, lambda out: publish(out / "published"), check=check_fetched, both=True
    ),
    "perturb": Work(perturb),
    "fondue": Work(fondue),
    "report": Work(save_reports, load=reports, both=True),
    "assay": Work(assay, prepare_assay, both=True),
}


def start(work: Work, out: Path, again: bool) -> None:
    os.environ["ZSCOPE_DATA"] = str(out / "data")
    work.start(out, again)


def import_all(modules: list[str]) -> None:
    """Import here what a forked process has imported, once for all that follow."""
    for module in sorted(modules):
        with suppress(Exception):  # parts that only their own package can import
            import_module(module)


def check_complete(folder: Path) -> None:
    """Every file that has its name is complete."""
    for file in folder.rglob("*"):
        if file.is_dir() or any(part.startswith(".") for part in file.relative_to(folder).parts):
            continue
        if file.suffix == ".safetensors":
            store.read_tensors(file)
        elif file.suffix == ".json":
            json.loads(file.read_text())
        elif file.suffix == ".npz":
            with np.load(file) as content:
                dict(content)
        elif file.suffix == ".npy":
            np.load(file)
        elif file.suffix == ".html":
            assert file.read_text().rstrip().endswith("</html>")
        elif file.suffix == ".parquet":
            import pyarrow.parquet

            pyarrow.parquet.read_table(io.BytesIO(file.read_bytes()))
        elif file.suffix != ".jsonl":  # of which the last line may be torn
            assert file.read_bytes().endswith(b"\n"), f"{file.name} is torn"


def files_of(folder: Path) -> dict[str, str]:
    """The checksum of each file, without the times that are noted in some."""
    return {
        str(file.relative_to(folder)): sha256(timeless(file)).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def timeless(file: Path) -> bytes:
    content = file.read_bytes()
    if file.name == "provenance.json":
        plain = json.loads(content)
        for record in plain["files"].values():
            record.pop("date"), record.pop("modified")
        return json.dumps(plain).encode()
    return content
