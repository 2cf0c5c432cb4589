"""How much does zs.train cost, compared with a bare loop and with pythae's trainer?

Three trainers do the same work in turn, on one thread each: a bare PyTorch loop over float
batches in memory; `zs.train` over bytes in a memory map; the trainer of pythae 0.1.2 (in its own
environment, which is created on first use under .bench/, or given by
ZSCOPE_PYTHAE=path/to/python). Layers, data and batch sizes are the same.

The time of a step is the difference between a long and a short run, divided by the difference
in steps, so that starting and saving do not count. All times are processor times of one thread.
Each turn has a ratio of its own, with the order of the trainers reversed from turn to turn, and
the median of the ratios counts: a machine that is shared with others is faster in one minute
than in the next, so that the fastest turn of each trainer would compare different minutes.

Required: within 5 % of the bare loop for the convolutional network of Locatello et al. on
64x64, within 10 % for the perceptron on 28x28, and faster than pythae on both. Also ten
helix VAEs trained together (`zs.train_ensemble`) in less than 3x the time of one, and eight
perceptrons of 2 x 128 units on 16x16, which have more arithmetic, in less than 4x; `--only
together` measures these alone.

    python benchmarks/training.py [--turns 5] [--only together]
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

SAMPLES, BATCH, LATENTS = 6400, 64, 10
CASES = {"conv": ((1, 64, 64), 25, 75), "mlp": ((1, 28, 28), 200, 1000)}
LIMITS = {"conv": 1.05, "mlp": 1.10}
TOGETHER = {"helix": (10, 3.0), "pictures": (8, 4.0)}  # members, and their time over that of one


def networks(case: str):
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
        return encoder, decoder
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
    return encoder, decoder


def pictures(shape):
    import numpy as np

    return np.random.default_rng(0).integers(0, 256, (SAMPLES, *shape), dtype=np.uint8)


def bare(case: str, steps: int) -> float:
    """A plain training loop on float batches in memory, with the fastest settings."""
    import torch
    from torch.nn import functional

    torch.manual_seed(0)
    encoder, decoder = (part.to(memory_format=torch.channels_last) for part in networks(case))
    x_all = torch.from_numpy(pictures(CASES[case][0])).float().div_(255)
    optimiser = torch.optim.Adam(
        [*encoder.parameters(), *decoder.parameters()], lr=1e-4, fused=True
    )
    start = time.process_time()
    for step in range(steps):
        if step % (SAMPLES // BATCH) == 0:
            order = torch.randperm(SAMPLES)
        place = step % (SAMPLES // BATCH) * BATCH
        x = x_all[order[place : place + BATCH]]
        mean, log_variance = encoder(x).chunk(2, 1)
        z = mean + (log_variance / 2).exp() * torch.randn_like(mean)
        reconstruction = functional.binary_cross_entropy_with_logits(decoder(z), x, reduction="sum")
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum()
        optimiser.zero_grad(set_to_none=True)
        ((reconstruction + divergence) / BATCH).backward()
        optimiser.step()
    return time.process_time() - start


def ours(case: str, steps: int) -> float:
    import numpy as np

    import zscope as zs

    shape = CASES[case][0]
    options = {"backbone": "mlp", "hidden": (400, 400)} if case == "mlp" else {}
    model = zs.models.build("vae", shape=shape, latents=LATENTS, **options)
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/x.npy", pictures(shape))
        data = zs.data.load(f"{folder}/x.npy")
        expected = sum(p.numel() for part in networks(case) for p in part.parameters())
        assert expected == sum(p.numel() for p in model.parameters()), "not the same network"
        start = time.process_time()
        zs.train(model, data, steps=steps, batch=BATCH, out=f"{folder}/run")
        return time.process_time() - start


def pythae(case: str, steps: int) -> float:
    import logging

    import torch
    from pythae.models import VAE, VAEConfig
    from pythae.models.base.base_utils import ModelOutput
    from pythae.models.nn import BaseDecoder, BaseEncoder
    from pythae.trainers import BaseTrainer, BaseTrainerConfig

    logging.disable(logging.CRITICAL)
    encoder, decoder = networks(case)

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

    shape = CASES[case][0]
    x = torch.from_numpy(pictures(shape)).float().div_(255)[: steps * BATCH]
    epochs = max(1, steps * BATCH // len(x))
    config = VAEConfig(input_dim=shape, latent_dim=LATENTS, reconstruction_loss="bce")
    from pythae.data.datasets import BaseDataset

    with tempfile.TemporaryDirectory() as folder:
        trainer = BaseTrainer(
            model=VAE(config, encoder=Encoder(), decoder=Decoder()),
            train_dataset=BaseDataset(x, torch.zeros(len(x))),
            training_config=BaseTrainerConfig(
                output_dir=folder,
                num_epochs=epochs,
                per_device_train_batch_size=BATCH,
                learning_rate=1e-4,
                no_cuda=True,
            ),
        )
        start = time.process_time()
        trainer.train()
        return time.process_time() - start


def together(case: str, count: int, steps: int) -> float:
    import torch

    import zscope as zs

    if case == "helix":
        data, options = zs.data.load("helix"), {"latents": 2, "hidden": (32, 32, 32, 32)}
    else:
        x = torch.rand(SAMPLES, 1, 16, 16, generator=torch.Generator().manual_seed(0))
        data, options = zs.data.from_arrays(x), {"latents": 10, "hidden": (128, 128)}

    def build(seed):
        return zs.models.build("vae", shape=data.shape, backbone="mlp", seed=seed, **options)

    start = time.process_time()
    if count == 1:
        zs.train(build(0), data, steps=steps, rate=1e-3)
    else:
        zs.train_ensemble(build, data, seeds=range(count), steps=steps, rate=1e-3)
    return time.process_time() - start


def worker(contenders: str, case: str) -> None:
    """One turn of each contender in one process: prints the milliseconds of their steps.

    The bare loop and zs.train share a process, so that both have the same memory layout; pythae
    has its own interpreter.
    """
    import torch

    torch.set_num_threads(1)
    short, long = (200, 1200) if case in TOGETHER else CASES[case][1:]
    runs = {
        name: (lambda steps, name=name: together(case, int(name), steps))
        if case in TOGETHER
        else (lambda steps, name=name: globals()[name](case, steps))
        for name in contenders.split(",")
    }
    for run in runs.values():
        run(short)  # warm up
    print(*[1000 * (run(long) - run(short)) / (long - short) for run in runs.values()])


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


def turn(python: str, contender: str, case: str) -> list[float]:
    process = subprocess.run(
        [python, __file__, "--worker", contender, case],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    if process.returncode:
        sys.exit(f"{contender} failed on {case}:\n{process.stderr[-2000:]}")
    return [float(number) for number in process.stdout.splitlines()[-1].split()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--only", choices=["together"], help="ensembles alone")
    parser.add_argument("--worker", nargs=2, metavar=("CONTENDER", "CASE"))
    options = parser.parse_args()
    if options.worker:
        worker(*options.worker)
        return 0
    failed: list[str] = []
    peer = "" if options.only else peer_python()
    for case in () if options.only else CASES:
        times: dict[str, list[float]] = {"bare": [], "ours": [], "pythae": []}
        for number in range(options.turns):
            order = ["bare", "ours"][:: 1 if number % 2 else -1]
            milliseconds = turn(sys.executable, ",".join(order), case)
            for name, value in zip(order, milliseconds, strict=True):
                times[name].append(value)
            times["pythae"] += turn(peer, "pythae", case)
        typical = {name: median(values) for name, values in times.items()}
        ratio = median(a / b for a, b in zip(times["ours"], times["bare"], strict=True))
        peers = median(a / b for a, b in zip(times["pythae"], times["ours"], strict=True))
        passed = ratio <= LIMITS[case] and peers > 1
        failed += [] if passed else [case]
        verdict = "ok" if passed else "FAILED"
        print(
            f"{case:5}  bare {typical['bare']:6.2f} ms  zs.train {typical['ours']:6.2f} ms  "
            f"pythae {typical['pythae']:6.2f} ms  |  zs.train / bare {ratio:.3f} (at most "
            f"{LIMITS[case]})  pythae / zs.train {peers:.2f} (above 1)  {verdict}",
            flush=True,
        )
    for case, (count, limit) in TOGETHER.items():
        pairs = [turn(sys.executable, f"1,{count}", case) for _ in range(options.turns)]
        alone, members = (median(each) for each in zip(*pairs, strict=True))
        ratio = median(b / a for a, b in pairs)
        failed += [] if ratio < limit else [case]
        print(
            f"{case:8}  one {alone:.3f} ms  {count} together {members:.3f} ms  |  ratio "
            f"{ratio:.2f} (below {limit:g})  {'ok' if ratio < limit else 'FAILED'}",
            flush=True,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
