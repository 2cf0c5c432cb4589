"""Structural decoders on MNIST: are early variables non-linear and late ones linear?

Trained: autoencoders of 8 latents in 4 variables on 28 x 28 digits, with a structural
decoder (SAE-4: variable U_i enters before convolution i, and sees no other) and, as the
control, an adaptive one (AdaAE-4: the same networks, every layer sees all latents), three
seeds each. Networks are the published ones made small (4 blocks of 16 filters), Adam 1e-3
falling to 0, batches of 64.

Variable i of each held-out code a is exchanged for that of another, which gives b, and

    non-linearity_i   E ||D((a + b)/2) - (D(a) + D(b))/2|| / E ||(D(b) - D(a))/2||
    digit_i           how often a classifier reads another digit in D(b) than in D(a)

where D decodes to pixels: the first is 0 if pixels follow the variable linearly. The order
of a model is the mean over its first two variables less that over its last two, so that a
model without an order has about 0.

Leeb et al., "Structure by architecture", ICLR 2023, section 4.1 and fig. 4, who show it
in traversals of 3D-Shapes (shape and orientation first, colours last) and print no number
for it. The order is one of convolutions, in which late variables act on all pixels alike;
fully connected decoders of this size put most into the last variable, and are not asked.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

import zscope as zs
from zscope.autoencoder import Autoencoder, evaluation
from zscope.experiments.studies import Claim, Tell, keep, trained

NAME = "structural"
SUMMARY = "Structural decoders put non-linear information first and linear information last."

VARIABLES, LATENTS = 4, 8
SEEDS = (0, 1, 2)
STEPS = {"small": 400, "paper": 10_000}
SIZE = {"small": {"depth": 4, "filters": 16}, "paper": {"depth": 12, "filters": 64}}
CONTROL = f"adaae-{VARIABLES}"
STRUCTURAL = f"sae-{VARIABLES}"
LEAST = 0.05  # an order below this is none
SHARE = 0.5  # of the order of the structural models, that the control may have


@dataclass(frozen=True)
class Order:
    """What exchanging each variable of one model does."""

    nonlinearity: list[float]
    digit: list[float]

    def of(self, what: str) -> float:
        """Early half less late half."""
        values = torch.tensor(getattr(self, what), dtype=torch.float64)
        early, late = values.chunk(2)
        return float(early.mean() - late.mean())


def run(
    out: str | Path | None = None, *, scale: str = "small", progress: Tell = print
) -> list[Claim]:
    """Train, measure, and say what holds; the claims are also written to OUT/claims.json."""
    train, held_out = zs.data.load("mnist"), zs.data.load("mnist", part="test")
    progress("training a classifier of the digits")
    reader = classifier(train)
    right = accuracy(reader, held_out)
    found: dict[str, list[Order]] = {}
    for name in (STRUCTURAL, CONTROL):
        found[name] = []
        for seed in SEEDS:
            progress(f"training {name}, seed {seed}, {STEPS[scale]} steps")
            own = {"latents": LATENTS, "backbone": "structural", **SIZE[scale]}
            model = trained(name, train, steps=STEPS[scale], seed=seed, **own)
            found[name].append(order(model, held_out.batch(slice(0, 2000)), reader))
    claims = claims_of(found, right)
    keep(out, claims)
    return claims


def classifier(data: zs.Dataset, steps: int = 1500) -> Autoencoder:
    """Two fully connected layers that read digits."""
    model = zs.models.build(
        "classifier", shape=data.shape, latents=10, backbone="mlp", hidden=(256, 128)
    )
    run = zs.train(
        model, data, steps=steps, batch=128, rate=1e-3, schedule="cosine", progress=False
    )
    assert run.model is not None
    return run.model


def accuracy(reader: Autoencoder, data: zs.Dataset) -> float:
    assert data.factors is not None
    labels = torch.as_tensor(data.factors[:, 0])
    return float((digits(reader, data.batch(slice(0, len(data)))) == labels).double().mean())


def digits(reader: Autoencoder, pictures: Tensor) -> Tensor:
    """The digit that a classifier reads in each picture."""
    with evaluation(reader):
        return reader.encode(pictures).mean.argmax(1)


def order(model: Autoencoder, observations: Tensor, reader: Autoencoder) -> Order:
    """What exchanging each variable changes, by the definitions above."""
    generator = torch.Generator().manual_seed(0)
    segments = torch.arange(LATENTS).chunk(VARIABLES)
    bends, swaps = [], []
    with evaluation(model):
        codes = model.encode(observations).mean
        before = model.decode(codes)
        read = digits(reader, before)
        for segment in segments:
            others = codes[torch.randperm(len(codes), generator=generator)]
            mixed = codes.clone()
            mixed[:, segment] = others[:, segment]
            after, between = model.decode(mixed), model.decode((codes + mixed) / 2)
            bend = (between - (before + after) / 2).double().flatten(1).norm(dim=1).mean()
            half = ((after - before) / 2).double().flatten(1).norm(dim=1).mean()
            # A variable that changes nothing bends nothing: 0/0 is 0.
            bends.append(float(bend / half) if half > 0 else 0.0)
            swaps.append(float((digits(reader, after) != read).double().mean()))
    return Order(bends, swaps)


def claims_of(found: dict[str, list[Order]], right: float) -> list[Claim]:
    """The claims, from the orders of both kinds of model over the seeds."""
    said = {
        "nonlinearity": "pixels follow late variables more linearly than early ones",
        "digit": "exchanging an early variable changes the digit more often than a late one",
    }
    claims = []
    for number, (what, sentence) in enumerate(said.items(), 1):
        orders = [each.of(what) for each in found[STRUCTURAL]]
        reading = f"; the classifier reads {right:.1%} rightly" if what == "digit" else ""
        claims.append(
            Claim(
                f"S{number}",
                f"in a structural decoder {sentence}, by more than {LEAST} in every seed",
                "seen in traversals; no number",
                f"{_listed(found[STRUCTURAL], what)}; early less late "
                + " ".join(f"{value:+.2f}" for value in orders)
                + reading,
                # A classifier that reads nothing would tell nothing.
                min(orders) > LEAST and (what != "digit" or right > 0.9),
            )
        )
    means = {
        what: [sum(each.of(what) for each in found[name]) / len(found[name]) for name in found]
        for what in said
    }
    claims.append(
        Claim(
            "S3",
            "without the structure (adaptive: the same layers see all latents) there is no such "
            f"order: at most {SHARE:g} of it in the mean over seeds",
            "AdaAE is the control of the paper; no number",
            "; ".join(
                f"{what}: structural {structural:+.2f}, adaptive {adaptive:+.2f}"
                for what, (structural, adaptive) in means.items()
            ),
            all(
                structural > LEAST and abs(adaptive) <= SHARE * structural
                for structural, adaptive in means.values()
            ),
        )
    )
    return claims


def _listed(found: list[Order], what: str) -> str:
    """The values of U_1, U_2, …, averaged over the seeds."""
    values = torch.tensor([getattr(each, what) for each in found]).mean(0)
    return f"{what} of U_1 to U_{len(values)}: " + " ".join(f"{float(v):.2f}" for v in values)
