"""How long does one wait until something is shown?

Processor seconds of new processes, in turn with one that only imports torch. Required: lists, the
help of every command and completion under 0.4 s; one assay of a small run under 1.5 times the
import of torch; the first picture of the explorer within twice the import of torch.

    python benchmarks/starting.py [--repeats 7]
"""

import argparse
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.request import HTTPCookieProcessor, build_opener

import torch
from ratios import Agreement, Ratio, agreement, children, finish, quantile, released

import zscope as zs
from zscope.assays import CATALOGUE
from zscope.experiments import studies

LIMIT = 0.4
"""Seconds until a list, help or the names that Tab offers are there."""
ASSAY, EXPLORER = 1.5, 2.0
"""Times the import of torch."""
PROGRAM = [
    sys.executable,
    "-c",
    "import sys; sys.argv[0] = 'zscope'; from zscope.cli import main; main()",
]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
ENVIRONMENT.pop("PYTHONDONTWRITEBYTECODE", None)  # as installed: compiled once, not each time


@dataclass
class Work:
    """Processes that are started in turn, of which the slowest counts in each turn."""

    starts: list[Callable[[], bool]]  # each starts one, and returns whether its output is right
    seconds: list[float] = field(default_factory=list)  # of the processor
    waited: list[float] = field(default_factory=list)  # by the clock on the wall
    wrong: int = 0

    def turn(self) -> None:
        used, waited = [], []
        for start in self.starts:
            before, begun = children(), time.perf_counter()
            right = start()
            waited.append(time.perf_counter() - begun)
            used.append(children() - before)
            self.wrong += not right
        self.seconds.append(max(used))
        self.waited.append(max(waited))

    def agreement(self, what: str) -> Agreement:
        return Agreement(f"wrong outputs or exit codes, {what}", float(self.wrong), 0.0)


def zscope(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *words],
        capture_output=True,
        text=True,
        check=False,
        env={**ENVIRONMENT, **variables},
    )


def shows(words: Iterable[str], names: Iterable[str]) -> Callable[[], bool]:
    """Runs a command, which must print all these names."""

    def start() -> bool:
        done = zscope(*words)
        return done.returncode == 0 and all(name in done.stdout for name in names)

    return start


def completes(line: str, name: str) -> Callable[[], bool]:
    """Presses Tab at the end of a line, where the name must be offered."""
    count = str(len(line.split(" ")) - 1)

    def start() -> bool:
        done = zscope(_ZSCOPE_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=count)
        return done.returncode == 0 and name in done.stdout.split()

    return start


def commands() -> list[tuple[str, ...]]:
    """Every command and subcommand, as the docs list them."""
    file = Path(__file__).resolve().parents[1] / "docs" / "pages.py"
    description = importlib.util.spec_from_file_location("pages", file)
    assert description is not None
    assert description.loader is not None
    pages = importlib.util.module_from_spec(description)
    description.loader.exec_module(pages)
    found: list[tuple[str, ...]] = pages.commands()
    return found


def import_torch() -> bool:
    done = subprocess.run([sys.executable, "-c", "import torch"], check=False, env=ENVIRONMENT)
    return done.returncode == 0


class Assay:
    """`zscope assay RUN variable-types`, whose types must be those of the library."""

    def __init__(self, run: Path) -> None:
        self.run, self.printed = run, {}
        kinds = zs.assays.variable_types(zs.record(zs.load(run), zs.data.load("digits")))
        self.expected = dict(enumerate(kinds.labels))

    def __call__(self) -> bool:
        done = zscope("assay", str(self.run), "variable-types", "--fresh", "--quiet")
        _, _, details = done.stdout.partition("\nvariable-types\n")
        for kind, text in re.findall(r"^(active|mixed|passive) +(.+)$", details, re.M):
            self.printed |= {int(latent): kind for latent in re.findall(r"\d+", text)}
        return done.returncode == 0 and self.printed == self.expected


class Explorer:
    """`zscope explore RUN` until its first picture, which must be what the model decodes."""

    def __init__(self, run: Path) -> None:
        self.run, self.model = run, zs.load(run)
        self.difference, self.waited = float("inf"), []

    def __call__(self) -> bool:
        begun = time.perf_counter()
        process = subprocess.Popen(
            [*PROGRAM, "explore", str(self.run), "--no-browser"],
            stdout=subprocess.PIPE,
            text=True,
            env={**ENVIRONMENT, "PYTHONUNBUFFERED": "1"},
        )
        assert process.stdout is not None
        address = next(m[0] for m in (re.search(r"http://\S+", s) for s in process.stdout) if m)
        browser = build_opener(HTTPCookieProcessor(CookieJar()))
        root = address.partition("?")[0]
        page = browser.open(address).read().decode()
        about = json.load(browser.open(f"{root}api/session"))
        picture = json.load(browser.open(f"{root}api/latents"))["decoded"]
        self.waited.append(time.perf_counter() - begun)
        exact = json.load(browser.open(f"{root}api/latents?exact=true"))
        process.send_signal(signal.SIGINT)
        code = process.wait()
        with torch.no_grad():
            decoded = self.model.decode(torch.tensor([exact["z"]]))
        given = torch.tensor(exact["decoded"]["values"])
        self.difference = float((decoded.flatten() - given).abs().max())
        shape = [picture["channels"], picture["height"], picture["width"]]
        right = "<title>" in page and shape == about["observation"]["shape"]
        return right and code == 0


def train(folder: Path) -> Path:
    """A small run: a perceptron on 1,797 pictures of 8 x 8 pixels."""
    data = zs.data.load("digits")
    model = zs.models.build("vae", shape=data.shape, latents=10)
    zs.train(model, data, steps=200, rate=1e-3, out=folder / "run", progress=False)
    return folder / "run"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    every = [(), *commands()]
    models = [name.replace("-2", "-G") for name in zs.models.names()]
    lines = {
        "zscope ": "train", "zscope train ": "beta-vae", "zscope train vae ": "sprites",
        "zscope assay runs/x ": "mig", "zscope study run ": "regime-types",
        "zscope train vae sprites --pre": "--preset",
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as temporary:
        run = train(Path(temporary))
        assay, explorer = Assay(run), Explorer(run)
        works = {
            "import torch": Work([import_torch]),
            "zscope data list": Work([shows(["data", "list"], zs.data.names())]),
            "zscope models list": Work([shows(["models", "list"], models)]),
            "zscope study list": Work([shows(["study", "list"], studies.names())]),
            "zscope assay --list": Work([shows(["assay", "--list"], CATALOGUE)]),
            f"--help, slowest of {len(every)}": Work(
                [shows([*words, "--help"], [" ".join(["zscope", *words])]) for words in every]
            ),
            f"completion, slowest of {len(lines)} lines": Work(
                [completes(line, name) for line, name in lines.items()]
            ),
            "zscope assay RUN variable-types": Work([assay]),
            "zscope explore RUN, first picture": Work([explorer]),
        }
        for name, work in works.items():  # once before, so that everything is compiled
            Work(work.starts).turn()
            print(f"{name}: ready", flush=True)
        explorer.waited.clear()
        for number in range(repeats):
            for work in list(works.values())[:: -1 if number % 2 else 1]:
                work.turn()
    baseline, *limited = works
    ratios = [
        Ratio(
            name, "starting", works[name].seconds, [LIMIT], baseline=f"{LIMIT} s",
            version="a limit", agreement=works[name].agreement("all names listed"), at_most=1.0,
        )
        for name in limited[:-2]
    ]  # fmt: skip
    torch_seconds, version = works[baseline].seconds, released("torch")
    labels = sorted(assay.expected)
    kinds = sorted(set(assay.expected.values()) | set(assay.printed.values()))
    agreements = [
        agreement(
            f"types of {len(labels)} latents, printed and measured in the library",
            [kinds.index(assay.printed[latent]) for latent in labels],
            [kinds.index(assay.expected[latent]) for latent in labels],
            tolerance=0.0,
        ),
        Agreement("first picture, and what the model decodes", explorer.difference, 1e-5),
    ]
    ratios += [
        Ratio(
            name, "starting", works[name].seconds, torch_seconds, baseline="import torch",
            version=version, agreement=same, at_most=goal,
        )
        for name, goal, same in zip(limited[-2:], (ASSAY, EXPLORER), agreements, strict=True)
    ]  # fmt: skip
    works[limited[-1]].waited[:] = explorer.waited
    notes = ["Median seconds of the processor, and by the clock on the wall with what else ran:"]
    notes += [
        f"  {name}: {quantile(work.seconds, 0.5):.2f}, {quantile(work.waited, 0.5):.2f}"
        for name, work in works.items()
    ]
    wrong = sum(work.wrong for work in works.values())
    notes += [f"{wrong} processes ended or printed otherwise than they should."] * bool(wrong)
    return max(finish("starting", ratios, notes), int(wrong > 0))


if __name__ == "__main__":
    sys.exit(main())
