"""The gallery: one page for each question, figures first, with the code that made each of them.

`keep.py` runs this code and stores the figures in `docs/kept`, so that nothing is trained or
measured when the documentation is built, and the code shown is the code that ran.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from zscope.assays import CATALOGUE

__all__ = ["KEPT", "QUESTIONS", "WORLDS", "Picture", "Question", "figures", "gallery_pages"]

HERE = Path(__file__).parent
KEPT = HERE / "kept"
LARGER = 4 / 3

WORLDS = {
    "sprites": (
        "a β-VAE with 8 latents, trained on small pictures of three shapes that differ in size, "
        "angle and place",
        """\
import zscope as zs

sprites = zs.data.load(
    "sprites", resolution=32, scale=3, orientation=10, position_x=12, position_y=12, antialias=True
)
model = zs.models.build("beta-vae", shape=sprites.shape, latents=8, beta=1.0)
run = zs.train(model, sprites, steps=2000, rate=1e-3, snapshot_every=250, out="runs/sprites")
recording = zs.record(run.model, sprites, samples=2000)
""",
    ),
    "seeds": (
        "three VAEs of these pictures that differ in their seed alone",
        """\
import zscope as zs

sprites = zs.data.load(
    "sprites", resolution=32, scale=3, orientation=10, position_x=12, position_y=12, antialias=True
)
recordings = []
for seed in range(3):
    model = zs.models.build("vae", shape=sprites.shape, latents=6, backbone="mlp", seed=seed)
    run = zs.train(model, sprites, steps=1500, rate=2e-3, seed=seed)
    recordings.append(zs.record(run.model, sprites, samples=1000))
first, second, third = recordings
""",
    ),
    "causal": (
        "a VAE with a causal block, trained on the same pictures",
        """\
import zscope as zs

sprites = zs.data.load(
    "sprites", resolution=32, scale=3, orientation=10, position_x=12, position_y=12, antialias=True
)
model = zs.models.build("xvae", shape=sprites.shape, latents=6)
run = zs.train(model, sprites, steps=1000, rate=1e-3)
recording = zs.record(run.model, sprites, samples=2000)
""",
    ),
    "structural": (
        "an autoencoder with a structural decoder, which its 4 variables enter one after another",
        """\
import zscope as zs

sprites = zs.data.load(
    "sprites", resolution=16, scale=3, orientation=10, position_x=6, position_y=6, antialias=True
)
model = zs.models.build("sae-4", shape=sprites.shape, latents=8)
run = zs.train(model, sprites, steps=250, rate=2e-3)
recording = zs.record(run.model, sprites, samples=2000)
""",
    ),
    "maps": (
        "an autoencoder of rooms whose latents are maps, 4 channels of 8 × 8 places",
        """\
import zscope as zs

rooms = zs.data.load("rooms", resolution=32, pictures=5000)
model = zs.models.build("spatial-vae", shape=rooms.shape, channels=4)
run = zs.train(model, rooms, steps=300, batch=32, rate=2e-3)
recording = zs.record(run.model, rooms, samples=1000)
""",
    ),
    "wine": (
        "a VAE of a table, the chemical analyses of 178 wines",
        """\
import zscope as zs
from sklearn.datasets import load_wine

table = load_wine(as_frame=True)
wine = zs.data.from_arrays(table.data, table.target, name="wine", standardise=True)
model = zs.models.build("vae", shape=wine.shape, latents=4, backbone="mlp", hidden=(32,))
run = zs.train(model, wine, steps=2000, rate=2e-3)
recording = zs.record(run.model, wine)
""",
    ),
}
"""Name -> what it is, in words and as code."""

SPECIAL_WORLDS = {
    "masks": "causal",
    "factor-place": "structural",
    "variable-nonlinearity": "structural",
    "feature-effects": "wine",
    "udr": "seeds",
    "cka": "maps",
}
SPECIAL_CODE = {
    "udr": "zs.assays.udr(recordings).plot()",
    "similarity-heatmap": "zs.compare(first.autoencoder, second.autoencoder, sprites, samples=500)"
    ".heatmap.plot()",
    "cka": """\
other = zs.models.build("spatial-vae", shape=rooms.shape, channels=4, seed=1)
second = zs.train(other, rooms, steps=300, batch=32, rate=2e-3, seed=1)
zs.assays.cka(recording, zs.record(second.model, rooms, samples=1000)).plot()""",
}


OF_DATA = {"hybridisation", "manifold-path", "nonlinear-eigenfaces", "response-map"}
"""Figures that contain pictures of data, whose colours are the same on dark pages."""


@dataclass(frozen=True)
class Picture:
    """A kept figure: what it shows, the code that draws it and the world it is about."""

    name: str
    title: str
    reading: str
    code: str
    world: str = "sprites"
    assay: str = ""

    @property
    def file(self) -> Path | None:
        files = [KEPT / f"{self.name}.{kind}" for kind in ("svg", "png")]
        return next((file for file in files if file.is_file()), None)

    @property
    def kind(self) -> str:
        """Its class in the pages: what is drawn is inverted on dark ones, pictures are not."""
        return "pictures" if self.name in OF_DATA else "drawn"


@dataclass(frozen=True)
class Question:
    """A page of the gallery. `pictures` are names of figures, `studies` files of figures."""

    name: str
    title: str
    answer: str
    pictures: tuple[str, ...]
    studies: tuple[tuple[str, str], ...] = ()
    guides: tuple[str, ...] = ()


FURTHER = (
    Picture(
        "dynamics-types",
        "Types of latents over training",
        "How many latents are active, mixed and passive at each checkpoint: most are decided early "
        "in training.",
        'zs.dynamics("runs/sprites", "types").results["types"].plot()',
    ),
    Picture(
        "dynamics-similarity",
        "When is each layer what it will be?",
        "How alike (CKA, 1 for the same arrangement) each layer is at two moments of training: "
        "where a block is near 1, the layer has stopped changing.",
        'zs.dynamics("runs/sprites", "similarity", samples=300).results["similarity"].plot()',
    ),
)
"""Figures that are not of one assay."""

QUESTIONS = (
    Question(
        "used",
        "Which latents are used?",
        "A latent that the decoder ignores keeps the variance of the prior and carries no nats. "
        "These figures show it, and need no pass of the model.",
        ("variable-types", "latent-divergence", "latent-histograms", "latent-ranking"),
        (("regime-types", "figure-6.5"), ("regime-types", "figure-6.2")),
        ("searches",),
    ),
    Question(
        "effects",
        "What does each latent do?",
        "Move one latent, or take it from another sample, and look at what the decoder makes of "
        "it.",
        ("nonlinear-eigenfaces", "hybridisation", "feature-effects", "variable-nonlinearity"),
        (("pca-alignment", "eigenfaces"), ("structural-order", "traversals-rooms")),
        ("looking",),
    ),
    Question(
        "dependence",
        "Which latents depend on which?",
        "Correlations say which latents vary together in the data; responses say which of them the "
        "decoder ties together.",
        ("response-matrix", "independence", "mutual-information", "masks", "truncation"),
        (("responses-disentanglement", "matrices"), ("regime-mean-sampled", "figure-6.9")),
    ),
    Question(
        "holes",
        "Where are the holes?",
        "A hole is a region of the prior that no code of data is near: what is decoded from it is "
        "encoded somewhere else.",
        ("holes", "structure-score", "response-map", "manifold-path", "response", "drift"),
        (
            ("responses-helix", "map"),
            ("responses-helix", "path"),
            ("responses-plane", "mnist-near"),
        ),
        ("interpolate",),
    ),
    Question(
        "interventions",
        "Does a change to a latent survive?",
        "Set a latent, decode, encode again: the change should still be there, and the other "
        "latents should be where they were.",
        ("interventional-consistency", "traversal-responses", "response-matrix"),
        (("consistency", "self-consistency"), ("consistency", "traversal-errors")),
    ),
    Question(
        "how-many",
        "How many latents?",
        "The number of dimensions of the data, the number of directions of the codes, and the "
        "number of latents that a model of this kind can use.",
        ("intrinsic-dimension", "effective-rank", "variable-types"),
        (("fondue", "gaps"), ("fondue", "figure-8.1"), ("fondue-elbows", "figure-8.5")),
        ("searches",),
    ),
    Question(
        "disentanglement",
        "How disentangled are the codes?",
        "Each score draws the table that it is computed from, of latents and factors: look at "
        "the table before the number.",
        ("mig", "dci", "sap", "irs", "modularity", "explicitness", "predictability-gap", "mcc",
         "factor-vae-score", "beta-vae-score", "conditioned-response-matrix",
         "cartesian-or-polar", "udr"),
        (("responses-disentanglement", "scores"), ("structural-scores", "scores")),
        ("scores",),
    ),
    Question(
        "aligned",
        "Are the axes aligned?",
        "In a VAE the latents tend towards the principal directions of what the decoder does; "
        "these figures show how far a model went.",
        ("distance-to-orthogonality", "alignment-gap", "codes-against-pca", "predicted-variance",
         "optimal-noise", "loss-decomposition", "ima-curve"),
        (("pca-alignment", "dto"), ("pca-degenerate", "squares")),
    ),
    Question(
        "compare",
        "How do two models compare?",
        "Layer by layer, latent by latent, or by the directions that they share; here models that "
        "differ in their seed alone.",
        ("similarity-heatmap", "cka", "svcca", "udr"),
        (("regime-dynamics", "figure-7.4"), ("regime-classifier", "figure-C.1")),
    ),
    Question(
        "samples",
        "How good are reconstructions and samples?",
        "The distance of decoded observations to real ones, beside what equally many other real "
        "ones have.",
        ("sample-quality", "loss-decomposition"),
        (("hybrid-sampling", "distances"), ("hybrid-sampling", "samples-digits")),
        ("interpolate",),
    ),
    Question(
        "diffusion",
        "Are latents ready for diffusion?",
        "For latents with channels and places: their scale, their smoothness, and what the decoder "
        "does with the errors that a diffusion model makes.",
        ("latent-statistics", "latent-spectrum", "equivariance", "noise-robustness", "locality",
         "unit-importance", "reconstruction-quality"),
        (),
        ("maps",),
    ),
    Question(
        "training",
        "What changes during training?",
        "The same measurements at every checkpoint of a run.",
        ("dynamics-types", "dynamics-similarity"),
        (("regime-correlations", "figure-6.10"), ("ide-over-training", "figure-8.11")),
        ("training",),
    ),
    Question(
        "order",
        "Does the order of the decoder matter?",
        "In a structural decoder the variables enter one after another: which factors end up in "
        "which of them?",
        ("factor-place", "structure-panel"),
        (("structural-order", "places"), ("structural-order", "traversals-digits")),
    ),
)  # fmt: skip


@cache
def figures() -> dict[str, Picture]:
    """The figures to keep by name: of each assay that has one, and the further ones."""
    pictures = {}
    for name, entry in CATALOGUE.items():
        if not entry.figure:
            continue
        code = f"zs.assays.{entry.attribute}(recording).plot()"
        world = "maps" if entry.group == "diffusion" else "sprites"
        if entry.compares:
            code, world = f"zs.assays.{entry.attribute}(first, second).plot()", "seeds"
        pictures[name] = Picture(
            name,
            entry.title or name,
            entry.figure,
            SPECIAL_CODE.get(name, code),
            SPECIAL_WORLDS.get(name, world),
            name,
        )
    return pictures | {picture.name: picture for picture in FURTHER}


def gallery_pages() -> dict[str, str]:
    """The index with thumbnails, and a page for each question."""
    pages = {f"gallery/{question.name}.md": question_page(question) for question in QUESTIONS}
    cards = [card(question) for question in QUESTIONS]
    pages["gallery/index.md"] = "\n\n".join(
        [
            "# Gallery",
            "What zscope draws, by question. Each page has the figures first, the sentence that "
            "says how to read them, and the code that made them.",
            f'<div class="thumbnails">{"".join(cards)}</div>',
        ]
    )
    return pages


def card(question: Question) -> str:
    """A question with its first figure, as a link; plain HTML, so in terms of addresses."""
    picture = next(p for p in map(figures().get, question.pictures) if p and p.file)
    image = f'<img src="../kept/{picture.file.name}" alt="" loading="lazy">'
    return (
        f'<a href="{question.name}/"><span class="thumbnail {picture.kind}">{image}</span>'
        f"<span>{question.title}</span></a>"
    )


def question_page(question: Question) -> str:
    """Figures first, code beside, then figures of studies and what else there is to read."""
    shown = [figures()[name] for name in question.pictures]
    text = [f"# {question.title}", question.answer]
    text += [exhibit(picture) for picture in shown if picture.file]
    if question.studies:
        text.append("## From studies")
        text += [study_figure(*study) for study in question.studies]
    text.append("## The models of these figures")
    for world in dict.fromkeys(picture.world for picture in shown):
        about, code = WORLDS[world]
        text.append(f"{about[:1].upper()}{about[1:]}:\n\n```python\n{code}```")
    if more := [guide_link(name) for name in question.guides if guide_file(name).is_file()]:
        text.append(f"More in the guide: {', '.join(more)}.")
    return "\n\n".join(text) + "\n"


def exhibit(picture: Picture) -> str:
    """A figure with how to read it and the code that drew it."""
    beside = [f"```python\n{picture.code}\n```"]
    if picture.assay:
        question = CATALOGUE[picture.assay].question
        page = f"[{picture.assay}](../assays/{picture.assay}.md)"
        beside.insert(0, f"{question} Its definition: {page}")
    return "\n\n".join(
        [
            f"## {picture.title} {{: #{picture.name} }}",
            '<div class="exhibit" markdown>',
            figure(picture, "../kept"),
            "<div markdown>",
            *beside,
            "</div>\n</div>",
        ]
    )


def figure(picture: Picture, folder: str) -> str:
    """The kept figure, and beneath it the sentence on how to read it."""
    file = picture.file
    if file is None:
        return ""
    width, height = size_of(file)
    image = f"![{picture.title}]({folder}/{file.name})"
    return (
        f'<figure markdown>\n{image}{{ .{picture.kind} loading=lazy width="{width}" '
        f'height="{height}" }}\n<figcaption markdown>{picture.reading}</figcaption>\n</figure>'
    )


def size_of(file: Path) -> tuple[int, int]:
    """The size of a picture in CSS pixels, so that a page does not jump while it is loaded.

    A third larger than it would be printed, where letters are of 8 points.
    """
    content = file.read_bytes()
    if file.suffix == ".png":
        width, height = struct.unpack(">II", content[16:24])
        return round(LARGER * width * 96 / 150), round(LARGER * height * 96 / 150)
    head = content[:2000].decode()
    width, height = (
        float(head.split(f'{side}="')[1].split("pt")[0]) for side in ("width", "height")
    )
    return round(LARGER * width * 96 / 72), round(LARGER * height * 96 / 72)


def study_figure(study: str, name: str) -> str:
    """A figure of a reproduced study, with the caption that was stored with it."""
    folder = HERE / "reproduction" / study
    claims: dict[str, Any] = json.loads((folder / "claims.json").read_text(encoding="utf-8"))
    (caption,) = (each["caption"] for each in claims["figures"] if each["name"] == name)
    return (
        f"<figure markdown>\n![{study}: {name}](../reproduction/{study}/figures/{name}.png)"
        f"{{ loading=lazy }}\n<figcaption markdown>{caption} `zscope study run {study}`; claims: "
        f"[reproduction](../reproduction.md).</figcaption>\n</figure>"
    )


def guide_file(name: str) -> Path:
    return HERE / "guide" / f"{name}.md"


def guide_link(name: str) -> str:
    title = guide_file(name).read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
    return f"[{title}](../guide/{name}.md)"


def questions_with(name: str) -> list[Question]:
    """The pages of the gallery that show a figure."""
    return [question for question in QUESTIONS if name in question.pictures]


def kept_scores() -> Iterator[tuple[str, list[list[str]]]]:
    """The scores that belong to the kept figures, as rows of text."""
    file = KEPT / "scores.json"
    if file.is_file():
        yield from json.loads(file.read_text(encoding="utf-8")).items()
