"""Do the gates of a causal block find a known sparse dependence? (docs/decisions/0008)

Five causes: 2 depends on 0 (a square), 3 on 1 (a sine), 4 on nothing; or, as a control, all are
independent. The decoder is the identity, held fixed, or a layer or a network that learns. For
each setting: open edges by seed, how many of them are not of the world, J = share of true edges
that are open - share of others that are, error without edges over error, and the loss in nats.
More than a minute of one core for each setting; without arguments only the chosen one.

    python benchmarks/gates.py [SETTING]...
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from statistics import mean, stdev
from typing import Any

import torch
from scipy.stats import t

import zscope as zs
from zscope.assays.responses.masks import Masks

SEEDS = (40, 41, 42, 43, 44, 45)
STEPS = 4000
GAMMA = 0.02
EDGES = {"sparse": [(0, 2), (1, 3)], "independent": []}
CHOSEN = {"gate_start": 3.0, "gate_rate": 10.0, "edge_cost": 0.02}
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "chosen": CHOSEN,
    "start 0": {"gate_start": 0.0},
    "rate 10": {"gate_rate": 10.0},
    "start 0, rate 10": {"gate_start": 0.0, "gate_rate": 10.0},
    "start 3, rate 10": {"gate_start": 3.0, "gate_rate": 10.0},
    "cost .02": {"edge_cost": 0.02},
    "rate 10, cost .02": {"gate_rate": 10.0, "edge_cost": 0.02},
    "chosen, temperature .5": {**CHOSEN, "gate_temperature": 0.5},
    "chosen, temperature 1": {**CHOSEN, "gate_temperature": 1.0},
    "default, independent": {"world": "independent"},
    "chosen, independent": {**CHOSEN, "world": "independent"},
    "chosen, linear": {**CHOSEN, "decoder": "linear"},
    "chosen, network": {**CHOSEN, "decoder": "network"},
}


def causes(count: int, seed: int, world: str = "sparse") -> torch.Tensor:
    z = torch.randn(count, 5, generator=torch.Generator().manual_seed(seed))
    if world == "sparse":
        z[:, 2] = 0.9 * (z[:, 0].square() - 1) / math.sqrt(2) + 0.4 * z[:, 2]
        z[:, 3] = 1.3 * torch.sin(2 * z[:, 1]) + 0.4 * z[:, 3]
    return (z - z.mean(0)) / z.std(0)


def build(seed: int, decoder: str, options: dict[str, Any]) -> Any:
    layers: dict[str, Any] = {} if decoder == "network" else {"decoder_hidden": []}
    model = zs.models.build(
        "beta-vae", shape=(5,), latents=5, beta=1.0, likelihood="gaussian", gamma=GAMMA,
        block="causal", backbone="mlp", hidden=(64, 64), seed=seed, gate_steps=STEPS,
        **layers, **options,
    )  # fmt: skip
    if decoder == "identity":
        (layer,) = (each for each in model.decoder.modules() if isinstance(each, torch.nn.Linear))
        with torch.no_grad():
            layer.weight.copy_(torch.eye(5))
            layer.bias.zero_()
        layer.requires_grad_(False)
    return model


@dataclass(frozen=True)
class Outcome:
    """What one model has learned."""

    masks: Masks
    true: int  # open edges that are those of the world, in either direction
    loss: float

    @property
    def wrong(self) -> int:
        return len(self.masks.edges) - self.true


def matched(made: torch.Tensor, z: torch.Tensor) -> tuple[int, ...]:
    """For each true cause the unit that stands for it, by correlation."""
    correlation = torch.corrcoef(torch.cat([made, z], 1).T)[:5, 5:].abs()
    return max(
        permutations(range(5)), key=lambda units: float(correlation[list(units), range(5)].sum())
    )


def learn(name: str, seeds: Sequence[int] = SEEDS) -> list[Outcome]:
    """Train a model for each seed, and judge it on fresh rows."""
    options = dict(SETTINGS[name])
    world, decoder = options.pop("world", "sparse"), options.pop("decoder", "identity")
    mixing = torch.eye(5)
    if decoder != "identity":
        mixing = torch.linalg.qr(torch.randn(5, 5, generator=torch.Generator().manual_seed(7)))[0]
    runs = zs.train_ensemble(
        lambda seed: build(seed, decoder, options), causes(8192, 1, world) @ mixing, seeds=seeds,
        steps=STEPS, batch=128, rate=3e-3, schedule="cosine", progress=False,
    )  # fmt: skip
    fresh = causes(4096, 2, world)
    outcomes = []
    for run in runs:
        model: Any = run.model
        with torch.no_grad():
            posterior = model.encode(fresh @ mixing)
            unit = matched(model.causes(posterior.mean), fresh)
        masks = zs.assays.masks(model, posterior.mean, fresh @ mixing, samples=len(fresh))
        truth = [{unit[p], unit[c]} for p, c in EDGES[world]]
        loss = float(posterior.kl().sum(1).mean()) + masks.error / (2 * GAMMA)
        outcomes.append(Outcome(masks, sum(set(edge) in truth for edge in masks.edges), loss))
    return outcomes


def report(name: str, outcomes: list[Outcome]) -> None:
    true = len(EDGES[SETTINGS[name].get("world", "sparse")])
    line = f"{name:24} open {[len(each.masks.edges) for each in outcomes]}"
    line += f", wrong {sum(each.wrong for each in outcomes)}"
    if true:
        scores = [each.true / true - each.wrong / (10 - true) for each in outcomes]
        half = t.ppf(0.975, len(scores) - 1) * stdev(scores) / len(scores) ** 0.5
        line += f", J {mean(scores):.2f} [{mean(scores) - half:.2f}, {mean(scores) + half:.2f}]"
    ratio = mean(each.masks.error_without_edges / each.masks.error for each in outcomes)
    line += f", error without edges / error {ratio:.1f}"
    print(f"{line}, loss {mean(each.loss for each in outcomes):.2f}", flush=True)


def main() -> int:
    from ratios import Agreement, Ratio, finish, released  # tests import the rest of this file

    torch.set_num_threads(1)
    ratios = []
    for name in sys.argv[1:] or ("chosen",):
        outcomes = learn(name)
        report(name, outcomes)
        ratios.append(
            Ratio(
                f"error of a causal block, {name} setting",
                "choices",
                [each.masks.error for each in outcomes],
                [each.masks.error_without_edges for each in outcomes],
                baseline="its error without edges",
                version=released("zscope"),
                unit="error",
                at_most=None if SETTINGS[name].get("world") == "independent" else 0.5,
                agreement=Agreement(
                    f"open edges that are not of the world, {len(outcomes)} seeds",
                    sum(each.wrong for each in outcomes),
                    0,
                ),
            )
        )
    return finish("gates", ratios)


if __name__ == "__main__":
    sys.exit(main())
