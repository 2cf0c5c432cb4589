"""The pictures of the guide: python docs/pictures.py [NAME...] draws docs/assets/guide anew.

    python docs/pictures.py                    all of them
    python docs/pictures.py paths scores       some of them
    python docs/pictures.py --demo FOLDER      of a demo that was run before

They show the model of `zscope demo`, which is trained for a minute if it is not there, small
models that are trained here, and, in a browser, the pages of the demo.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FOLDER = HERE / "assets" / "guide"
CHROMIUM = "/usr/bin/chromium"
LARGEST = 150_000
"""Bytes of a picture."""


class Demo:
    """The run of `zscope demo`, trained and measured when it is first needed."""

    def __init__(self, folder: Path):
        self.folder = folder

    @cached_property
    def recording(self) -> Any:
        import zscope as zs
        from zscope.loading import run_data

        assert self.page.exists()
        return zs.record(zs.load(self.folder), run_data(self.folder))

    @cached_property
    def page(self) -> Path:
        """Its report."""
        page = self.folder / "report.html"
        if not page.exists():
            run_zscope("demo", "--out", str(self.folder))
        return page


PROGRAM = [sys.executable, "-c", "from zscope.cli import main; main()"]


def run_zscope(*words: str) -> None:
    subprocess.run([*PROGRAM, *words], check=True)


def traversals(demo: Demo) -> Any:
    """What each latent of the demo does that is in use, and one of the others."""
    import zscope as zs
    from zscope import plots

    recording = demo.recording
    ranking = zs.assays.latent_ranking(recording)
    latents = [j for j in ranking.order if j in recording.used] + ranking.order[-1:]
    labels = [f"latent {j}, σ² {float(ranking.variances[j]):.2f}" for j in latents]
    return plots.traversals(recording.autoencoder, recording.codes[0], order=latents, labels=labels)


def responses(demo: Demo) -> Any:
    """Which latents of the demo respond to which."""
    import zscope as zs

    return zs.assays.response_matrix(demo.recording).plot()


def eigenfaces(demo: Demo) -> Any:
    """What the most important latents of a small VAE do to the average digit."""
    import zscope as zs

    data = zs.data.load("digits")
    model = zs.models.build("vae", shape=data.shape, latents=8, hidden=(128,))
    zs.train(model, data, steps=3000, rate=2e-3, progress=False)
    return zs.assays.nonlinear_eigenfaces(zs.record(model, data)).plot()


def samples(demo: Demo) -> Any:
    """New pictures of the demo by four ways of sampling."""
    import torch

    import zscope as zs
    from zscope import plots
    from zscope.randomness import named_generator

    recording, count = demo.recording, 12
    model, ways = recording.autoencoder, zs.sampling
    draws = {
        "posterior": ways.posterior(recording, count, generator=named_generator(0, "posterior")),
        "hybrid": ways.hybrid(recording, count, generator=named_generator(0, "hybrid")),
        "prior": ways.prior(model, count, generator=named_generator(0, "prior")),
        "uniform": ways.uniform(recording, count, generator=named_generator(0, "uniform")),
    }
    with torch.no_grad():
        pictures = torch.stack([model.decode(codes) for codes in draws.values()])
    return plots.image_grid(pictures, rows=list(draws), size=0.5)


def paths(demo: Demo) -> Any:
    """The plane of a model of the helix: a straight line between two codes, and a path."""
    import zscope as zs

    data = zs.data.load("helix")
    model = zs.models.build("ae", shape=data.shape, latents=2, hidden=(32, 32))
    zs.train(model, data, steps=2000, rate=5e-3, progress=False)
    recording = zs.record(model, data)
    position, strand = data.factors.T
    ends = [int((abs(position - place) + strand).argmin()) for place in (-0.8, 0.8)]
    plane = zs.assays.response_map(recording, grid=80)
    return zs.assays.manifold_path(plane, *recording.codes[ends]).plot()


def scores(demo: Demo) -> Any:
    """What noise scores at each number of rows, by the definitions of zscope and of `dlib`."""
    import numpy as np

    import zscope as zs
    from zscope import plots

    sizes, a = (100, 200, 500, 1000, 2000, 5000), zs.assays
    titles = {
        "modularity": "modularity",
        "irs": "IRS",
        "jemmig": "JEMMIG",
        "sap": "SAP",
        "mig": "MIG",
    }
    of_noise: dict[str, list[float]] = {}
    for size in sizes:
        for seed in range(5):
            rng = np.random.default_rng([seed, size])
            factors = np.stack([rng.integers(0, count, size) for count in (3, 6, 10, 8, 8)], 1)
            noise = rng.normal(size=(size, 8))
            for name, title in titles.items():
                for flavour in ("dlib", "zscope"):
                    value = getattr(a, name)(noise, factors, kinds="ordinal", flavour=flavour).score
                    of_noise.setdefault(f"{title}, {flavour}", []).append(value)
    means = {name: np.reshape(values, (len(sizes), 5)).mean(1) for name, values in of_noise.items()}
    shown = {name: values for name, values in means.items() if name.endswith("dlib")}
    ours = np.max([values for name, values in means.items() if name not in shown], axis=0)
    ax = plots.lines({**shown, "all five, zscope": ours}, at=range(len(sizes)))
    ax.set_xticks(range(len(sizes)), [f"{size:,}" for size in sizes])
    ax.set(xlabel="rows", ylabel="score of pure noise")
    return ax


@contextmanager
def browser(width: int, height: int) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened.new_page(viewport={"width": width, "height": height})
        opened.close()


def report(demo: Demo) -> bytes:
    """The first screen of the report of the demo."""
    with browser(1200, 760) as page:
        page.goto(demo.page.resolve().as_uri())
        page.wait_for_timeout(500)
        return bytes(page.screenshot())


def codes(demo: Demo) -> bytes:
    """The explorer of the demo as it opens, without its introduction."""
    with explored(demo) as page:
        return bytes(page.screenshot())


def explorer(demo: Demo) -> bytes:
    """Its view of single latents, of the first observation."""
    with explored(demo) as page:
        page.get_by_role("tab", name="Latents").click()
        page.wait_for_timeout(1000)
        page.get_by_role("spinbutton", name="Data sample").fill("0")
        page.keyboard.press("Enter")
        page.wait_for_timeout(2000)
        return bytes(page.screenshot())


@contextmanager
def explored(demo: Demo) -> Iterator[Any]:
    """A page of the explorer of the demo."""
    assert demo.page.exists()
    command = [*PROGRAM, "explore", str(demo.folder), "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = next(
            word for line in server.stdout for word in line.split() if word.startswith("http")
        )
        try:
            with browser(1200, 760) as page:
                page.goto(address)
                page.wait_for_timeout(3000)
                page.keyboard.press("Escape")
                page.wait_for_timeout(1000)
                yield page
        finally:
            server.terminate()


PICTURES: dict[str, Callable[[Demo], Any]] = {
    "traversals.png": traversals,
    "report.png": report,
    "codes.png": codes,
    "explorer.png": explorer,
    "responses.svg": responses,
    "samples.png": samples,
    "paths.svg": paths,
    "eigenfaces.png": eigenfaces,
    "scores.svg": scores,
}


def draw(name: str, demo: Demo) -> Path:
    picture, path = PICTURES[name](demo), FOLDER / name
    if isinstance(picture, bytes):
        path.write_bytes(shrink(picture))
    else:
        import matplotlib.pyplot as plt

        from zscope import plots

        plots.save(picture, path, **({"dpi": 130} if path.suffix == ".png" else {}))
        plt.close("all")
    assert path.stat().st_size <= LARGEST, f"{path}: {path.stat().st_size:,} bytes"
    return path


def shrink(picture: bytes) -> bytes:
    """A screenshot with 128 colours, which takes a third of the bytes."""
    import io

    from PIL import Image

    buffer = io.BytesIO()
    with Image.open(io.BytesIO(picture)) as opened:
        opened.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(
            buffer, "PNG", optimize=True
        )
    return buffer.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="pictures to draw (default: all)")
    parser.add_argument("--demo", type=Path, default=HERE.parent / "runs" / "demo")
    arguments = parser.parse_args()
    demo = Demo(arguments.demo)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in PICTURES:
        if not arguments.names or Path(name).stem in arguments.names or name in arguments.names:
            print(draw(name, demo))


if __name__ == "__main__":
    main()
