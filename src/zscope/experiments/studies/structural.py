"""Structural decoders on MNIST: are early variables non-linear and late ones linear?

Trained: autoencoders of 8 latents in 4 variables on 28 x 28 digits, with a structural
decoder (SAE-4: variable U_i enters before convolution i, and sees no other) and, as the
control, an adaptive one (AdaAE-4: the same networks, every layer sees all latents), three
seeds each. Networks are small versions of the published ones (4 blocks of 16 filters), Adam
1e-3 decaying to 0, batches of 64.

Variable i of each held-out code a is replaced by that of another code, which gives b, and

    non-linearity_i   E ||D((a + b)/2) - (D(a) + D(b))/2|| / E ||(D(b) - D(a))/2||
    digit_i           how often a classifier predicts another digit for D(b) than for D(a)

where D decodes to pixels: the first is 0 if pixels are linear in the variable. The order of a
model is the mean over its first two variables minus that over its last two, about 0 for a
model without an order.

Leeb et al., "Structure by architecture", ICLR 2023, section 4.1 and fig. 4, who show it
in traversals of 3D-Shapes (shape and orientation first, colours last) and print no number
for it. The order is a property of convolutions, in which late variables act on all pixels in
the same way; fully connected decoders of this size put most into the last variable, and are
not tested.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

import zscope as zs
from zscope.autoencoder import Autoencoder, evaluation
from zscope.data.dataset import Dataset
from zscope.experiments.studies import Claim, Progress, save_claims, train_model
from zscope.experiments.training import train

__all__ = ["NAME", "SUMMARY", "run"]

NAME = "structural"
SUMMARY = "Structural decoders put non-linear information first and linear information last."

VARIABLES, LATENTS = 4, 8
SEEDS = (0, 1, 2)
STEPS = {"small": 400, "paper": 10_000}
SIZE = {"small": {"depth": 4, "filters": 16}, "paper": {"depth": 12, "filters": 64}}
CONTROL = f"adaae-{VARIABLES}"
STRUCTURAL = f"sae-{VARIABLES}"
LEAST = 0.05  # an order below this counts as none
SHARE = 0.5  # of the order of the structural models, that the control may have


@dataclass(frozen=True)
class Order:
    """The effects of exchanging each variable of one model."""

    nonlinearity: list[float]
    digit: list[float]

    def of(self, what: str) -> float:
        """Early half minus late half."""
        values = torch.tensor(getattr(self, what), dtype=torch.float64)
        early, late = values.chunk(2)
        return float(early.mean() - late.mean())


def run(
    out: str | Path | None = None, *, scale: str = "small", progress: Progress = print
) -> list[Claim]:
    """Train, measure and judge the claims, which are also written to OUT/claims.json."""
    training, held_out = zs.data.load("mnist"), zs.data.load("mnist", part="test")
    progress("training a classifier of the digits")
    reader = classifier(training)
    right = accuracy(reader, held_out)
    orders: dict[str, list[Order]] = {}
    for name in (STRUCTURAL, CONTROL):
        orders[name] = []
        for seed in SEEDS:
            progress(f"training {name}, seed {seed}, {STEPS[scale]} steps")
            own = {"latents": LATENTS, "backbone": "structural", **SIZE[scale]}
            model = train_model(name, training, steps=STEPS[scale], seed=seed, **own)
            orders[name].append(order(model, held_out.batch(slice(0, 2000)), reader))
    claims = claims_of(orders, right)
    save_claims(out, claims)
    return claims


def classifier(data: Dataset, steps: int = 1500) -> Autoencoder:
    """A classifier of digits with two fully connected layers."""
    model = zs.models.build(
        "classifier", shape=data.shape, latents=10, backbone="mlp", hidden=(256, 128)
    )
    run = train(model, data, steps=steps, batch=128, rate=1e-3, schedule="cosine", progress=False)
    assert run.model is not None
    return run.model


def accuracy(reader: Autoencoder, data: Dataset) -> float:
    assert data.factors is not None
    labels = torch.as_tensor(data.factors[:, 0])
    return float((digits(reader, data.batch(slice(0, len(data)))) == labels).double().mean())


def digits(reader: Autoencoder, images: Tensor) -> Tensor:
    """The digit that a classifier predicts for each image."""
    with evaluation(reader):
        return reader.encode(images).mean.argmax(1)


def order(model: Autoencoder, observations: Tensor, reader: Autoencoder) -> Order:
    """The effects of exchanging each variable, by the definitions above."""
    generator = torch.Generator().manual_seed(0)
    segments = torch.arange(LATENTS).chunk(VARIABLES)
    bends, swaps = [], []
    with evaluation(model):
        codes = model.encode(observations).mean
        before = model.decode(codes)
        predicted = digits(reader, before)
        for segment in segments:
            others = codes[torch.randperm(len(codes), generator=generator)]
            mixed = codes.clone()
            mixed[:, segment] = others[:, segment]
            after, between = model.decode(mixed), model.decode((codes + mixed) / 2)
            bend = (between - (before + after) / 2).double().flatten(1).norm(dim=1).mean()
            half = ((after - before) / 2).double().flatten(1).norm(dim=1).mean()
            # A variable without any effect has no non-linearity: 0/0 is 0.
            bends.append(float(bend / half) if half > 0 else 0.0)
            swaps.append(float((digits(reader, after) != predicted).double().mean()))
    return Order(bends, swaps)


def claims_of(results: dict[str, list[Order]], right: float) -> list[Claim]:
    """The claims, from the orders of both kinds of model over the seeds."""
    sentences = {
        "nonlinearity": "pixels depend more linearly on late variables than on early ones",
        "digit": "exchanging an early variable changes the digit more often than a late one",
    }
    claims = []
    for number, (what, sentence) in enumerate(sentences.items(), 1):
        orders = [each.of(what) for each in results[STRUCTURAL]]
        reading = f"; accuracy of the classifier {right:.1%}" if what == "digit" else ""
        claims.append(
            Claim(
                f"S{number}",
                f"in a structural decoder {sentence}, by more than {LEAST} in every seed",
                "seen in traversals; no number",
                f"{_values_text(results[STRUCTURAL], what)}; early minus late "
                + " ".join(f"{value:+.2f}" for value in orders)
                + reading,
                # A classifier that cannot classify would say nothing.
                min(orders) > LEAST and (what != "digit" or right > 0.9),
            )
        )
    means = {
        what: [
            sum(each.of(what) for each in results[name]) / len(results[name]) for name in results
        ]
        for what in sentences
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


def _values_text(orders: list[Order], what: str) -> str:
    """The values of U_1, U_2, …, averaged over the seeds."""
    values = torch.tensor([getattr(each, what) for each in orders]).mean(0)
    return f"{what} of U_1 to U_{len(values)}: " + " ".join(f"{float(v):.2f}" for v in values)
