"""Runs of "structure by architecture" (Leeb et al., ICLR 2023).

At 16 x 16 pixels the reconstruction term of the variational models counts (64 / 16)² = 16 times,
so that their published strengths act as they do at 64 x 64. SAE-6 with 6 latents and 6 blocks is
the small counterpart of SAE-12 with 12; it is not the published SAE-6, which has 12 latents.

Extrapolation: 800 steps without some values of a factor, then branches of 200 steps on all values
at half the rate, with one half frozen or none; and a sham branch, as many steps on the old values.
The room has one colour and objects have two, so that form is most of what there is to encode.
"""

from dataclasses import replace
from typing import Any

from zscope.experiments.studies.grid import Block, Grid, runs
from zscope.experiments.studies.grids.consistency import DIGIT_CLASSIFIER
from zscope.experiments.studies.grids.responses import HOLD_OUT, PERCEPTRON, ROOM_DATA, ROOM_SPLIT

__all__ = [
    "ANGLES_LEFT_OUT",
    "DIGIT_READER",
    "FACES",
    "GENERATION",
    "MPI3D",
    "ONE_FACE_MODEL",
    "ORDER",
    "ROOM_CLASSIFIERS",
    "SCORES",
    "SHAPE_LEFT_OUT",
    "STRUCTURED",
    "STRUCTURED_LARGE",
    "printed_name",
]

PUBLISHED = {"preset": "structural-2023", "seeds": (0, 1, 2, 3, 4)}
MPI3D = ("mpi3d-toy", "mpi3d-sim", "mpi3d-real")
COUNTERPARTS = {
    "sae-6": "sae-12", "sae-3": "sae-6", "vlae-6": "vlae-12", "adaae-6": "adaae-12",
}  # fmt: skip
"""Small models with 6 latents, and published ones with 12 and as many latents a variable."""
PRINTED = {
    "adaae-12": "AdaAE-12", "beta-vae": "βVAE", "beta-tcvae": "βTCVAE", "factor-vae": "FVAE",
}  # fmt: skip


def printed_name(model: str, scale: str) -> str:
    """The model of the paper that runs of a model stand for."""
    name = model if scale == "paper" else COUNTERPARTS.get(model, model)
    return PRINTED.get(name, name.upper())


NETWORK = {"backbone": "structural", "depth": 6, "filters": 16}
_rooms = {
    "data": ROOM_DATA, "split": ROOM_SPLIT, "latents": 6, **NETWORK, "steps": 1_500, "batch": 16,
    "rate": 2e-3, "schedule": "cosine", "seeds": 4,
}  # fmt: skip

SCORES = Grid(
    small=runs(model=["sae-6", "sae-3", "adaae-6", "ae", "wae"], **_rooms)
    + runs(model=["vae", "vlae-6"], reconstruction_weight=16, **_rooms)
    + runs(model="beta-tcvae", beta=4, reconstruction_weight=16, **_rooms),
    paper=runs(model=["sae-2", "sae-3", "sae-4", "sae-6", "sae-12", "vlae-2", "vlae-3", "vlae-4",
                      "vlae-6", "vlae-12", "adaae-12", "ae", "wae", "vae"],
               data=["shapes3d", *MPI3D], **PUBLISHED)
    + runs(model="beta-vae", beta=2, data=["shapes3d", *MPI3D], **PUBLISHED)
    + runs(model="beta-tcvae", beta=4, data=["shapes3d", *MPI3D], **PUBLISHED)
    + runs(model="factor-vae", alpha=40, discriminator="published",
           data=["shapes3d", *MPI3D], **PUBLISHED),
    small_notes="β-VAE 2 and FactorVAE 40 only at scale paper.",
    tiny={"data": "rooms?resolution=16&pictures=460"},
)  # fmt: skip

ORDER = Grid(
    small=runs(model=["sae-4", "adaae-4"], data="mnist", split=HOLD_OUT, latents=8,
               backbone="structural", depth=4, filters=16, steps=400, batch=64, rate=1e-3,
               schedule="cosine", seeds=4),
    notes="Ours, at scale small only: the paper has no MNIST.",
)  # fmt: skip

GENERATION = Grid(
    small=runs(model=["vae", "wae", "ae"], data="mnist", split=HOLD_OUT, latents=10, steps=3_000,
               batch=64, rate=1e-3, schedule="cosine", seeds=4, **PERCEPTRON)
    + runs(model="beta-vae", beta=2, data="mnist", split=HOLD_OUT, latents=10, steps=3_000,
           batch=64, rate=1e-3, schedule="cosine", seeds=4, **PERCEPTRON)
    + runs(model="beta-tcvae", beta=4, data="mnist", split=HOLD_OUT, latents=10, steps=3_000,
           batch=64, rate=1e-3, schedule="cosine", seeds=4, **PERCEPTRON),
    notes="Ours, at scale small only: the paper has no MNIST.",
)  # fmt: skip

DIGIT_READER = replace(DIGIT_CLASSIFIER, paper=())
"""The classifiers of digits for these two."""

STRUCTURED = Grid(
    small=runs(model=["sae-6", "sae-3", "adaae-6"], **_rooms)
    + runs(model="vlae-6", reconstruction_weight=16, **_rooms),
    paper=runs(model=["sae-12", "sae-3", "vlae-12", "adaae-12"], data=["shapes3d", *MPI3D],
               **PUBLISHED),
    notes="Runs of SCORES.",
    tiny={"data": "rooms?resolution=16&pictures=460"},
)  # fmt: skip

_faces = {
    "data": "celeba?resolution=128", "preset": "structural-2023-celeba", "seeds": (0,),
}  # fmt: skip
FACES = Grid(
    paper=runs(model=["sae-16", "adaae-16", "vlae-16", "vae", "wae", "ae"], **_faces)
    + runs(model="beta-vae", beta=2, **_faces)
    + runs(model="beta-tcvae", beta=4, **_faces),
    paper_only="needs CelebA; one seed, for pictures",
)

ONE_FACE_MODEL = replace(FACES, paper=runs(model="sae-16", **_faces))

LARGE_OBJECTS = "rooms?resolution=16&scale=5,6,7&floor_hue=5&wall_hue=5&object_hue=5"
"""22,500 pictures."""
STRUCTURED_LARGE = Grid(
    small=runs(model=["sae-6", "adaae-6"], **{**_rooms, "data": LARGE_OBJECTS}),
    notes="Ours, at scale small only: large objects, whose shape and orientation are worth "
    "encoding.",
    tiny={"data": f"{LARGE_OBJECTS}&pictures=460"},
)
ONE_ROOM = "rooms?resolution=16&floor_hue=1&wall_hue=1&object_hue=2"
"""960 pictures of objects in two colours, one of them the room's: most that varies is form."""
Phases = tuple[Block, Block]
"""Fields of the runs without some values, and of their branches."""
_phases: Phases = {"steps": 800, "rate": 2e-3}, {"steps": 200, "rate": 1e-3}
_published_phases: Phases = {"steps": 80_000}, {"steps": 20_000}
_extrapolation = {
    **{key: value for key, value in _rooms.items() if key not in ("steps", "rate")},
    "data": ONE_ROOM,
}
_sphere, _angles = {"shape": (2,)}, {"orientation": (0, 1, 13, 14)}


def _branches(phases: Phases, leave_out: dict[str, Any], **fields: Any) -> tuple[Block, ...]:
    """Runs without some values, and their branches: encoder, decoder, both, sham."""
    first = {**phases[0], "leave_out": leave_out}
    branch = {**fields, **phases[1], "start": first}
    return (
        runs(**fields, **first)
        + runs(**branch, freeze=["decoder", "encoder", "none"])
        + runs(**branch, leave_out=leave_out)
    )


SHAPE_LEFT_OUT = Grid(
    small=_branches(_phases, _sphere, model=["sae-6", "ae"], **_extrapolation)
    + _branches(_phases, _sphere, model=["vlae-6", "vae"], reconstruction_weight=16,
                **_extrapolation),
    paper=_branches(_published_phases, _sphere, data="shapes3d",
                    model=["sae-12", "sae-6", "vlae-12", "vae", "ae", "wae"], **PUBLISHED)
    + _branches(_published_phases, _sphere, data="shapes3d", model="beta-vae", beta=2, **PUBLISHED),
    notes="The sham branches are ours. The seeds of figure 7 are not printed.",
    tiny={"data": f"{ONE_ROOM}&pictures=460"},
)  # fmt: skip

ANGLES_LEFT_OUT = Grid(
    small=_branches(_phases, _angles, model=["sae-6", "ae"], **_extrapolation)
    + _branches(_phases, _angles, model="vae", reconstruction_weight=16, **_extrapolation),
    paper=_branches(_published_phases, _angles, data="shapes3d",
                    model=["sae-12", "vlae-12", "adaae-12", "ae", "wae", "vae"], **PUBLISHED)
    + _branches(_published_phases, _angles, data="shapes3d", model="beta-vae", beta=2, **PUBLISHED),
    small_notes="VLAE, AdaAE and WAE only at scale paper.",
    tiny={"data": f"{ONE_ROOM}&pictures=460"},
)  # fmt: skip

_classifier = {
    "model": "classifier", "data": ROOM_DATA, "split": ROOM_SPLIT, "backbone": "consistency",
    "depth": 4, "filters": 32, "pools": 2, "head": (64, 16), "steps": 1_000, "batch": 64,
    "rate": 2e-3, "schedule": "cosine", "seeds": 1,
}  # fmt: skip
_published_classifier = {**_classifier, "pools": 4, "steps": 20_000}
VALUES = {
    "floor_hue": 10, "wall_hue": 10, "object_hue": 10, "scale": 8, "shape": 4, "orientation": 15,
}  # fmt: skip
"""Factors of rooms and of 3D Shapes, and how many values each has."""
MPI3D_VALUES = (6, 6, 2, 3, 3, 40, 40)

ROOM_CLASSIFIERS = Grid(
    small=sum((runs(latents=count, factor=k, **_classifier)
               for k, count in enumerate(VALUES.values())), ()),
    paper=sum((runs(latents=count, factor=k, **{**_published_classifier, "data": data})
               for data, counts in (("shapes3d", VALUES.values()), ([*MPI3D], MPI3D_VALUES))
               for k, count in enumerate(counts)), ()),
    notes="A classifier of each factor; their last hidden layers together are the one feature "
    "extractor for all models of the same data.",
    tiny={"data": "rooms?resolution=16&pictures=460"},
)  # fmt: skip
