"""What does training cost, compared with loops of one's own, with pythae, and with less of itself?

- One model: `zs.train` over bytes in a memory map, a bare loop with the fastest settings (fused
  Adam, channels last), the bare loop that people write (Adam and layout as they come), both over
  float batches in memory, and the trainer of pythae 0.1.2, in its own environment, which is
  created on first use under .bench/, or given by ZSCOPE_PYTHAE=path/to/python. Layers, data and
  batch sizes are the same: the network of Locatello et al. on 64x64, a perceptron on 28x28.
- Many: ten β-VAEs of a helix with five values of β, and eight perceptrons of 2 x 128 units on
  16x16, which have more arithmetic, trained together (`zs.train_ensemble`), compared with one.
- FactorVAE on 16x16, with the discriminator that it has there and with the published one,
  compared with a VAE.

The time of a step is the difference between a long and a short run, divided by the difference in
steps, so that starting and saving do not count: processor time of one thread. All of one case share
a process in each turn, except for pythae.

    python benchmarks/training.py [--turns 3] [--only one|together|factor-vae]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SAMPLES, BATCH, LATENTS = 6400, 64, 10
CASES = {"conv": (1, 64, 64), "mlp": (1, 28, 28)}
STEPS = {"conv": (25, 75), "mlp": (200, 1000), "helix": (200, 1200), "pictures": (200, 1200),
         "factor-vae": (20, 120)}  # fmt: skip
FASTEST = {"conv": 1.05, "mlp": 1.10}  # zs.train over the fastest loop
TOGETHER = {"helix": (10, 2.2), "pictures": (8, 4.0)}  # members, and their time over that of one
COMPARED = 10  # steps after which losses are compared


def networks(case: str) -> Any:
    """The same layers as zscope's, in plain PyTorch."""
    from torch import nn

    if case == "mlp":
        encoder = nn.Sequential(
            nn.Flatten(), nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(),
            nn.Linear(400, 2 * LATENTS),
        )  # fmt: skip
        decoder = nn.Sequential(
            nn.Linear(LATENTS, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(),
            nn.Linear(400, 784), nn.Unflatten(1, (1, 28, 28)),
        )  # fmt: skip
        return nn.ModuleList([encoder, decoder])
    widths = [(1, 32), (32, 32), (32, 64), (64, 64)]
    convolutions = [
        part for a, b in widths for part in (nn.Conv2d(a, b, 4, 2, padding=1), nn.ReLU())
    ]
    encoder = nn.Sequential(
        *convolutions, nn.Flatten(), nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 2 * LATENTS)
    )
    back = [(64, 64), (64, 32), (32, 32), (32, 1)]
    transposed = [
        part for a, b in back for part in (nn.ConvTranspose2d(a, b, 4, 2, padding=1), nn.ReLU())
    ]
    decoder = nn.Sequential(
        nn.Linear(LATENTS, 256), nn.ReLU(), nn.Linear(256, 1024), nn.ReLU(),
        nn.Unflatten(1, (64, 4, 4)), *transposed[:-1],
    )  # fmt: skip
    return nn.ModuleList([encoder, decoder])


def pictures(shape: tuple[int, ...]) -> Any:
    import numpy as np

    return np.random.default_rng(0).integers(0, 256, (SAMPLES, *shape), dtype=np.uint8)


class Loop:
    """A plain training loop over float batches."""

    def __init__(self, case: str, *, fastest: bool):
        import torch

        self.networks = networks(case)
        if fastest:
            self.networks = self.networks.to(memory_format=torch.channels_last)
        parameters = self.networks.parameters()
        self.optimiser = torch.optim.Adam(parameters, lr=1e-4, fused=fastest or None)

    def loss(self, x: Any, noise: Any) -> Any:
        from torch.nn import functional

        encoder, decoder = self.networks
        mean, log_variance = encoder(x).chunk(2, 1)
        z = mean + (log_variance / 2).exp() * noise
        reconstruction = functional.binary_cross_entropy_with_logits(decoder(z), x, reduction="sum")
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum()
        return (reconstruction + divergence) / BATCH

    def step(self, x: Any, noise: Any) -> Any:
        loss = self.loss(x, noise)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()
        return loss


def bare(case: str, steps: int, *, fastest: bool) -> float:
    import torch

    torch.manual_seed(0)
    loop = Loop(case, fastest=fastest)
    x_all = torch.from_numpy(pictures(CASES[case])).float().div_(255)
    start = time.process_time()
    for step in range(steps):
        if step % (SAMPLES // BATCH) == 0:
            order = torch.randperm(SAMPLES)
        place = step % (SAMPLES // BATCH) * BATCH
        loop.step(x_all[order[place : place + BATCH]], torch.randn(BATCH, LATENTS))
    return time.process_time() - start


def build(case: str) -> Any:
    import zscope as zs

    options = {"backbone": "mlp", "hidden": (400, 400)} if case == "mlp" else {}
    return zs.models.build("vae", shape=CASES[case], latents=LATENTS, **options)


def ours(case: str, steps: int, **settings: Any) -> Any:
    """Seconds, and the run."""
    import numpy as np

    import zscope as zs

    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/x.npy", pictures(CASES[case]))
        data, model = zs.data.load(f"{folder}/x.npy"), build(case)
        start = time.process_time()
        run = zs.train(
            model, data, steps=steps, batch=BATCH, out=f"{folder}/run", progress=False, **settings
        )
        seconds = time.process_time() - start
        return seconds, [row["loss"] for row in run.history]


def losses(case: str) -> dict[str, list[float]]:
    """The loss at the first steps, of both loops with our first weights, batches and noise."""
    import torch

    from zscope.seeds import seed_of
    from zscope.training import TrainConfig
    from zscope.training.feeding import batch_rows

    by_trainer = {"ours": ours(case, COMPARED, log_every=1)[1]}
    config = TrainConfig(steps=COMPARED, batch=BATCH)
    x_all = torch.from_numpy(pictures(CASES[case])).float().div_(255)
    for name, fastest in (("fastest", True), ("written", False)):
        loop = Loop(case, fastest=fastest)
        copy_weights(build(case), loop.networks)
        by_trainer[name] = []
        for step in range(COMPARED + 1):
            x = x_all[torch.from_numpy(batch_rows(config, SAMPLES, step))]
            generator = torch.Generator().manual_seed(seed_of(config.seed, step, 0))
            noise = torch.randn(BATCH, LATENTS, generator=generator)
            by_trainer[name].append(loop.step(x, noise).item())
    return by_trainer


def copy_weights(source: Any, target: Any) -> None:
    import torch

    with torch.no_grad():
        for own, other in zip(source.parameters(), target.parameters(), strict=True):
            other.copy_(own)


def first_loss(case: str, file: str) -> float:
    """Our loss of the first rows with the noise of global seed 0; the weights go to a file."""
    import torch

    from zscope.randomness import Tape

    model = build(case)
    torch.save([p.detach().contiguous() for p in model.parameters()], file)
    torch.manual_seed(0)
    x = torch.from_numpy(pictures(CASES[case])[:BATCH]).float().div_(255)
    loss: float = model.losses(x, Tape([torch.randn(BATCH, LATENTS)])).total.item()
    return loss


def pythae_model(case: str, encoder: Any, decoder: Any) -> Any:
    """A VAE of pythae around given layers."""
    from pythae.models import VAE, VAEConfig
    from pythae.models.base.base_utils import ModelOutput
    from pythae.models.nn import BaseDecoder, BaseEncoder

    class Encoder(BaseEncoder):
        def __init__(self):
            BaseEncoder.__init__(self)
            self.layers = encoder

        def forward(self, x):
            mean, log_variance = self.layers(x).chunk(2, 1)
            return ModelOutput(embedding=mean, log_covariance=log_variance)

    class Decoder(BaseDecoder):
        def __init__(self):
            BaseDecoder.__init__(self)
            self.layers = decoder

        def forward(self, z):
            return ModelOutput(reconstruction=self.layers(z).sigmoid())

    config = VAEConfig(input_dim=CASES[case], latent_dim=LATENTS, reconstruction_loss="bce")
    return VAE(config, encoder=Encoder(), decoder=Decoder())


def pythae(case: str, steps: int) -> float:
    import logging

    import torch
    from pythae.data.datasets import BaseDataset
    from pythae.trainers import BaseTrainer, BaseTrainerConfig

    logging.disable(logging.CRITICAL)
    x = torch.from_numpy(pictures(CASES[case])).float().div_(255)[: steps * BATCH]
    with tempfile.TemporaryDirectory() as folder:
        trainer = BaseTrainer(
            model=pythae_model(case, *networks(case)),
            train_dataset=BaseDataset(x, torch.zeros(len(x))),
            training_config=BaseTrainerConfig(
                output_dir=folder,
                num_epochs=max(1, steps * BATCH // len(x)),
                per_device_train_batch_size=BATCH,
                learning_rate=1e-4,
                no_cuda=True,
            ),
        )
        start = time.process_time()
        trainer.train()
        return time.process_time() - start


def pythae_loss(case: str, file: str) -> float:
    import torch
    from pythae.data.datasets import DatasetOutput

    model = pythae_model(case, *networks(case))
    own = [*model.encoder.parameters(), *model.decoder.parameters()]
    with torch.no_grad():
        for weights, other in zip(own, torch.load(file), strict=True):
            weights.copy_(other)
        torch.manual_seed(0)
        x = torch.from_numpy(pictures(CASES[case])[:BATCH]).float().div_(255)
        loss: float = model(DatasetOutput(data=x)).loss.item()
        return loss


def many(case: str, count: int, steps: int, member: int = 0) -> Any:
    """Seconds and the last losses of `count` models, or of one of them trained alone."""
    import torch

    import zscope as zs

    if case == "helix":
        data, options = zs.data.load("helix"), {"latents": 2, "hidden": (32, 32, 32, 32)}
    else:
        x = torch.rand(SAMPLES, 1, 16, 16, generator=torch.Generator().manual_seed(0))
        data, options = zs.data.from_arrays(x), {"latents": LATENTS, "hidden": (128, 128)}

    def make(seed: int) -> Any:
        own = {"beta": (0.001, 0.01, 0.1, 0.5, 1.0)[seed % 5], "seed": seed}
        return zs.models.build("beta-vae", shape=data.shape, backbone="mlp", **own, **options)

    settings: dict[str, Any] = {"steps": steps, "rate": 1e-3, "progress": False}
    start = time.process_time()
    if count == 1:
        runs = [zs.train(make(member), data, seed=member, **settings)]
    else:
        runs = zs.train_ensemble(make, data, seeds=range(count), **settings)
    return time.process_time() - start, [run.history[-1]["loss"] for run in runs]


def factor(discriminator: str, steps: int) -> Any:
    """Seconds, and the first reconstruction and divergence."""
    import torch

    import zscope as zs

    x = torch.rand(SAMPLES, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    options: dict[str, Any] = {"shape": (1, 16, 16), "latents": LATENTS, "hidden": (128, 128)}
    if discriminator == "none":
        model = zs.models.build("vae", **options)
    else:
        given = {} if discriminator == "default" else {"discriminator": discriminator}
        model = zs.models.build("factor-vae", **options, **given)
    start = time.process_time()
    run = zs.train(model, zs.data.from_arrays(x), steps=steps, progress=False)
    row = run.history[0]
    return time.process_time() - start, [row["reconstruction"], row["divergence"]]


def worker(case: str, contenders: list[str]) -> list[float]:
    """One turn of each contender in one process: the seconds of a step of each."""
    short, long = STEPS[case]
    works = {
        "ours": lambda steps: ours(case, steps)[0],
        "fastest": lambda steps: bare(case, steps, fastest=True),
        "written": lambda steps: bare(case, steps, fastest=False),
        "pythae": lambda steps: pythae(case, steps),
        "one": lambda steps: many(case, 1, steps)[0],
        "together": lambda steps: many(case, TOGETHER[case][0], steps)[0],
        "none": lambda steps: factor("none", steps)[0],
        "default": lambda steps: factor("default", steps)[0],
        "published": lambda steps: factor("published", steps)[0],
    }
    for name in contenders:
        works[name](short)  # warm up
    return [(works[name](long) - works[name](short)) / (long - short) for name in contenders]


def values(case: str, file: str) -> dict[str, list[float]]:
    """What the contenders of a case compute, for comparison."""
    if case in CASES:
        return {**losses(case), "first": [first_loss(case, file)]}
    if case == "factor-vae":
        return {name: factor(name, 1)[1] for name in ("none", "default", "published")}
    count = TOGETHER[case][0]
    alone = [many(case, 1, COMPARED, member)[1][0] for member in range(count)]
    return {"one": alone, "together": many(case, count, COMPARED)[1]}


def peer_python() -> str:
    """An interpreter with pythae, installed on first use."""
    if path := os.environ.get("ZSCOPE_PYTHAE"):
        return path
    folder = Path(__file__).resolve().parents[1] / ".bench" / "pythae"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        print("Setting up pythae 0.1.2 in .bench/pythae …", flush=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        # torch first and alone, so that no other build of it is installed
        for package in ("torch==2.13.0", "pythae==0.1.2"):
            subprocess.run([python, "-m", "pip", "install", "--quiet", package], check=True)
        (folder / "ready").touch()
    return str(python)


def child(python: str, *words: str) -> Any:
    process = subprocess.run(
        [python, __file__, "--worker", *words],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    if process.returncode:
        sys.exit(f"{' '.join(words)} failed:\n{process.stderr[-2000:]}")
    return json.loads(process.stdout.splitlines()[-1])


def measure(case: str, contenders: list[str], turns: int) -> dict[str, list[float]]:
    """Seconds of a step of each contender in each turn, in an order that is reversed each time."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    own = [name for name in contenders if name != "pythae"]
    for number in range(turns):
        order = own[:: -1 if number % 2 else 1]
        found = child(sys.executable, "turn", case, *order)
        for name, value in zip(order, found, strict=True):
            seconds[name].append(value)
        if "pythae" in contenders:
            seconds["pythae"] += child(peer_python(), "turn", case, "pythae")
    return seconds


def one_model(turns: int) -> Any:
    from ratios import Ratio, agreement, released

    torch_version = released("torch")
    for case, limit in FASTEST.items():
        with tempfile.NamedTemporaryFile(suffix=".pt") as file:
            found = child(sys.executable, "values", case, file.name)
            theirs = child(peer_python(), "first", case, file.name)
        seconds = measure(case, ["ours", "fastest", "written", "pythae"], turns)
        words = f"losses of {COMPARED + 1} steps from the same weights, batches and noise"
        for name, goal, about in (
            ("fastest", limit, "a bare loop with fused Adam, channels last, float batches"),
            ("written", 1.0, "a bare loop with Adam and layout as they come, float batches"),
        ):
            same = agreement(words, found["ours"], found[name], 1e-5, relative=True)
            yield Ratio(
                f"step of zs.train, {case}, {name} loop", "training", seconds["ours"],
                seconds[name], about, torch_version, same, at_most=goal,
            )  # fmt: skip
        yield Ratio(
            f"step of zs.train, {case}", "peers", seconds["ours"], seconds["pythae"],
            "pythae's trainer", "pythae 0.1.2",
            agreement("the first loss, same weights, batch and noise", found["first"], theirs,
                      1e-5, relative=True), at_most=1.0,
        )  # fmt: skip


def together(turns: int) -> Any:
    from ratios import Ratio, agreement

    import zscope

    for case, (count, limit) in TOGETHER.items():
        found = child(sys.executable, "values", case, "-")
        seconds = measure(case, ["one", "together"], turns)
        words = f"losses after {COMPARED} steps of {count} models with 5 values of β, and of each"
        yield Ratio(
            f"step of {count} models together, {case}", "training", seconds["together"],
            seconds["one"], "one of them, trained alone", f"zscope {zscope.__version__}",
            agreement(words + " alone", found["together"], found["one"], 1e-4, relative=True),
            at_most=limit,
        )  # fmt: skip


def factor_vae(turns: int) -> Any:
    from ratios import Ratio, agreement

    import zscope

    found = child(sys.executable, "values", "factor-vae", "-")
    seconds = measure("factor-vae", ["none", "default", "published"], turns)
    for name, goal in (("default", 3.0), ("published", None)):
        yield Ratio(
            f"step of FactorVAE on 16x16, {name} discriminator", "training", seconds[name],
            seconds["none"], "a VAE with the same networks", f"zscope {zscope.__version__}",
            agreement("first reconstruction and divergence", found[name], found["none"], 1e-6,
                      relative=True), at_most=goal,
        )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=3)
    parts = {"one": one_model, "together": together, "factor-vae": factor_vae}
    parser.add_argument("--only", choices=parts, help="a part of it, which is not written down")
    parser.add_argument("--worker", nargs="+", metavar="WORD", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        import torch

        torch.set_num_threads(1)
        job, case, *rest = options.worker
        jobs = {"turn": lambda: worker(case, rest), "values": lambda: values(case, *rest),
                "first": lambda: [pythae_loss(case, *rest)]}  # fmt: skip
        print(json.dumps(jobs[job]()))
        return 0
    from ratios import finish

    if options.only:
        missed = False
        for ratio in parts[options.only](options.turns):
            print(ratio, flush=True)
            missed |= ratio.missed
        return int(missed)
    return finish("training", [r for part in parts.values() for r in part(options.turns)])


if __name__ == "__main__":
    sys.exit(main())
