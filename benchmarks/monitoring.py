"""What does zs.Monitor cost in a training loop?

Of `zs.train` with all its defaults, and of a monitor with its own: the processor time of one
measurement over that of the 1,000 steps between two of them. Goal: at most 2 %, on small pictures,
whose steps are the cheapest, and on larger ones. Both runs must end with the same weights.

    python benchmarks/monitoring.py [--steps 100] [--turns 7]
"""

import argparse
import sys

import torch
from ratios import Ratio, agreement, finish, released, turns

import zscope as zs

WARM_UP = 300
"""Steps, at a high rate, so that some latents are in use: else the hole share costs nothing."""
DATA = ("digits", "sprites")


def model_of(data: zs.Dataset) -> zs.Trainable:
    return zs.models.build_for("vae", data, latents=10)


def weights(data: zs.Dataset, *, monitored: bool) -> torch.Tensor:
    """The final weights of a short run, which a monitor watches or not."""
    model = model_of(data)
    monitor = zs.Monitor(model, data, every=2, samples=64)
    log = (lambda _, step: monitor(step)) if monitored else None
    zs.train(model, data, steps=6, log_every=1, log=log, progress=False)
    return torch.cat([part.detach().flatten().double() for part in model.state_dict().values()])


def measure(name: str, data: zs.Dataset, steps: int, repeats: int) -> Ratio:
    model = model_of(data)
    zs.train(model, data, steps=WARM_UP, rate=1e-3, progress=False)
    monitor = zs.Monitor(model, data)
    values = monitor.measure()
    if "hole_share" not in values:
        raise SystemExit(f"{name}: no latent is in use after {WARM_UP} steps, so a part is missing")
    seconds = turns(
        {
            "monitor": monitor.measure,
            "loop": lambda: zs.train(model, data, steps=steps, progress=False),
        },
        repeats,
    )
    between = [each * monitor.every / steps for each in seconds["loop"]]
    return Ratio(
        f"a monitor of 10 latents, {name} ({monitor.passes:,} passes)",
        "training",
        seconds["monitor"],
        between,
        baseline=f"the {monitor.every:,} default steps between two measurements",
        version=released("zscope"),
        agreement=agreement(
            "weights after 6 steps with and without a monitor",
            weights(data, monitored=True),
            weights(data, monitored=False),
            0,
        ),
        at_most=0.02,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--turns", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    ratios = []
    for name in DATA:
        data = zs.data.load(name)
        data = data.subset(range(0, len(data), max(1, len(data) // 4000)))
        ratios.append(measure(name, data, options.steps, options.turns))
    return finish("monitoring", ratios)


if __name__ == "__main__":
    sys.exit(main())
