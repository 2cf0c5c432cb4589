"""How much does a training step of each model cost, compared with a VAE and with pythae?

    python benchmarks/models.py [--turns 3] [--part zoo|consistency|pythae]

zoo           a step of each model, as a multiple of a step of the VAE with the same networks
              (28 x 28 pictures, batches of 64); for information
consistency   a step with a consistency penalty decodes and encodes T (1 + nJ) rows in
              addition to those of the batch. Required: at most 1.2 times what that many more
              rows cost the same model without the penalty
pythae        FactorVAE, β-TCVAE and WAE with the trainer of pythae 0.1.2, same networks and
              batches. Required: zs.train is at least as fast. pythae's FactorVAE uses half
              of each batch for shuffled codes only: with batches of 64 it reconstructs 32
              pictures where zscope reconstructs 64. Both are shown, equal batches and equal
              numbers of reconstructed pictures; the latter is required

pythae has its own environment, which is created on first use under .bench/ as in
benchmarks/training.py, or given by ZSCOPE_PYTHAE=path/to/python:

    python -m venv .bench/pythae
    .bench/pythae/bin/python -m pip install torch==2.13.0 pythae==0.1.2

Processor time of one thread; turns alternate, the fastest counts. Other programs can only make
a step look slower, so a check that fails is repeated with up to twice as many more turns. The
exit code is 1 if a check fails.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time

from training import BATCH, CASES, LATENTS, networks, peer_python, pictures

PEERS = ("factor-vae", "beta-tcvae", "wae")
LIMIT = 1.2


def zscope_options(case: str, name: str) -> dict:
    options = {"backbone": "mlp", "hidden": (400, 400)} if case == "mlp" else {}
    if name == "factor-vae":
        options["discriminator"] = [1000] * 5  # pythae's
    if name == "wae":
        options["likelihood"] = "mse"  # the only one of pythae's WAE
    return options


def ours(case: str, name: str, steps: int, batch: int = BATCH) -> float:
    import numpy as np

    import zscope as zs

    shape = CASES[case][0]
    model = zs.models.build(name, shape=shape, latents=LATENTS, **zscope_options(case, name))
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/x.npy", pictures(shape))
        data = zs.data.load(f"{folder}/x.npy")
        start = time.process_time()
        zs.train(model, data, steps=steps, batch=batch, out=f"{folder}/run")
        return time.process_time() - start


def pythae(case: str, name: str, steps: int, batch: int = BATCH) -> float:
    import logging

    import torch
    from pythae.data.datasets import BaseDataset
    from pythae.models import (
        WAE_MMD,
        BetaTCVAE,
        BetaTCVAEConfig,
        FactorVAE,
        FactorVAEConfig,
        WAE_MMD_Config,
    )
    from pythae.models.base.base_utils import ModelOutput
    from pythae.models.nn import BaseDecoder, BaseEncoder
    from pythae.trainers import (
        AdversarialTrainer,
        AdversarialTrainerConfig,
        BaseTrainer,
        BaseTrainerConfig,
    )
    from torch import nn

    logging.disable(logging.CRITICAL)
    encoder, decoder = networks(case)
    if name == "wae":
        encoder[-1] = nn.Linear(encoder[-1].in_features, LATENTS)

    class Encoder(BaseEncoder):
        def __init__(self):
            BaseEncoder.__init__(self)
            self.layers = encoder

        def forward(self, x):
            if name == "wae":
                return ModelOutput(embedding=self.layers(x))
            mean, log_variance = self.layers(x).chunk(2, 1)
            return ModelOutput(embedding=mean, log_covariance=log_variance)

    class Decoder(BaseDecoder):
        def __init__(self):
            BaseDecoder.__init__(self)
            self.layers = decoder

        def forward(self, z):
            output = self.layers(z)
            return ModelOutput(reconstruction=output if name == "wae" else output.sigmoid())

    shape = CASES[case][0]
    x = torch.from_numpy(pictures(shape)).float().div_(255)[: steps * batch]
    epochs = max(1, steps * batch // len(x))
    common = {"input_dim": shape, "latent_dim": LATENTS}
    kinds = {
        "factor-vae": (FactorVAE, FactorVAEConfig, {"reconstruction_loss": "bce", "gamma": 35}),
        "beta-tcvae": (BetaTCVAE, BetaTCVAEConfig, {"reconstruction_loss": "bce", "beta": 6}),
        "wae": (WAE_MMD, WAE_MMD_Config, {"reg_weight": 10.0}),
    }
    model_class, config_class, more = kinds[name]
    model = model_class(config_class(**common, **more), encoder=Encoder(), decoder=Decoder())
    settings = {"num_epochs": epochs, "per_device_train_batch_size": batch, "no_cuda": True}
    trainer_class, training_config = BaseTrainer, BaseTrainerConfig
    if name == "factor-vae":
        trainer_class, training_config = AdversarialTrainer, AdversarialTrainerConfig
    else:
        settings["learning_rate"] = 1e-4
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_class(
            model=model,
            train_dataset=BaseDataset(x, torch.zeros(len(x))),
            training_config=training_config(output_dir=folder, **settings),
        )
        start = time.process_time()
        trainer.train()
        return time.process_time() - start


def worker(contender: str, case: str, name: str, batch: int) -> None:
    """One turn, in its own process: prints the milliseconds of a step."""
    import torch

    torch.set_num_threads(1)
    # Whole passes over the data, or parts of one: pythae counts in passes.
    short, long = (10, 30) if case == "conv" else (25, 100)

    def run(steps):
        return globals()[contender](case, name, steps, batch)

    run(short)  # warm up
    print(1000 * (run(long) - run(short)) / (long - short))


def turn(python: str, *words: object) -> float:
    process = subprocess.run(
        [python, __file__, "--worker", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    if process.returncode:
        sys.exit(f"{words} failed:\n{process.stderr[-2000:]}")
    return float(process.stdout.splitlines()[-1])


def fastest(contenders: dict, turns: int, enough=lambda best: True) -> dict:
    """The shortest time of each; up to three rounds of turns, until `enough` is satisfied."""
    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(3):
        for _ in range(turns):
            for key, measure in contenders.items():
                best[key] = min(best[key], measure())
        if enough(best):
            break
    return best


failed = []


def check(claim: str, passed: bool) -> None:
    print(f"  {claim}  {'ok' if passed else 'FAILED'}", flush=True)
    if not passed:
        failed.append(claim)


def stepper(
    name: str, backbone: str, latents: int = 12, batch: int = 64, steps: int = 5, **options
):
    """A function that runs a few steps of a model and returns the milliseconds of one."""
    import torch

    import zscope as zs
    from zscope.training.config import TrainConfig
    from zscope.training.loop import make_optimisers, update

    if backbone == "mlp":
        options["hidden"] = (400, 400)
    if name == "ivae":
        options["auxiliary"] = 2
    model = zs.models.build(
        name, shape=(1, 28, 28), latents=latents, backbone=backbone, **options
    ).train()
    config = TrainConfig(steps=10**6, batch=batch)
    optimisers = make_optimisers(model, config)
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(batch, 1, 28, 28, generator=generator)
    extra = {
        "step": 3, "samples": 10_000, "partner": torch.rand(batch, 1, 28, 28, generator=generator),
        "factors": torch.randint(2, (batch, 2), generator=generator).float(),
    }  # fmt: skip
    extra = {key: value for key, value in extra.items() if key in model.needs}

    def measure() -> float:
        start = time.process_time()
        for _ in range(steps):
            update(optimisers, model.losses(x, generator, **extra).whole, config, 0)
        return 1000 * (time.process_time() - start) / steps

    measure()
    return measure


def compare_zoo(turns: int) -> None:
    import zscope as zs

    print("A step of each model, as a multiple of a step of the VAE (28 x 28, batches of 64)")
    prefixes = {"structural": ("sae-", "adaae-", "vlae-", "xsae-", "csae-", "xcsae-")}
    for backbone in ("mlp", "locatello", "structural"):
        names = [
            name
            for name in zs.models.names()
            if name.startswith(prefixes.get(backbone, ()) or name)
        ]
        if backbone == "locatello":  # too few blocks for structural decoders
            names = [name for name in names if "sae-" not in name and "vlae" not in name]
            names = [name for name in names if "adaae" not in name]
        steps = 1 if backbone == "structural" else 5
        best = fastest(
            {name: stepper(name, backbone, steps=steps) for name in ["vae", *names]}, turns
        )
        print(f"\n{backbone}: VAE {best['vae']:.2f} ms")
        for name in names:
            print(f"  {name:14} {best[name] / best['vae']:5.2f}", flush=True)


def compare_consistency(turns: int) -> None:
    print("A step with a penalty, as a multiple of a step of the same model without")
    for backbone, latents, batch in (
        ("mlp", 12, 64),
        ("locatello", 12, 64),
        ("consistency", 6, 64),
    ):
        for with_penalty in ("cae-i", "cae-e", "cvae-i", "xcae-i", "xcae-e"):
            plain = with_penalty[:-2].replace("c", "")
            for vectors, interventions in ((8, 1), (16, 2)):
                penalty = {"vectors": vectors, "interventions": interventions}
                small = {"depth": 6} if backbone == "consistency" else {}
                size = {"latents": latents, "batch": batch, **small}
                work = (batch + vectors * (1 + latents * interventions)) / batch
                best = fastest(
                    {
                        "plain": stepper(plain, backbone, **size),
                        "penalised": stepper(with_penalty, backbone, **size, **penalty),
                    },
                    turns + 2,
                    lambda best, work=work: best["penalised"] <= LIMIT * work * best["plain"],
                )
                ratio = best["penalised"] / best["plain"]
                check(
                    f"{backbone:11} {with_penalty:7} T={vectors:2} J={interventions}: step "
                    f"{ratio:5.2f}, rows {work:5.2f}, ratio {ratio / work:.2f} (at most {LIMIT})",
                    ratio <= LIMIT * work,
                )


def compare_pythae(turns: int) -> None:
    peer = peer_python()
    print("A step of zs.train and of pythae's trainer, in ms")
    for case in CASES:
        for name in PEERS:
            contenders = {
                "ours": lambda case=case, name=name: turn(
                    sys.executable, "ours", case, name, BATCH
                ),
                "pythae": lambda case=case, name=name: turn(peer, "pythae", case, name, BATCH),
            }
            if name == "factor-vae":
                contenders["double"] = lambda case=case, name=name: turn(
                    peer, "pythae", case, name, 2 * BATCH
                )
            best = fastest(
                contenders, turns, lambda best: best["ours"] <= best.get("double", best["pythae"])
            )
            if name == "factor-vae":
                print(
                    f"  {case:4} {name:10} equal batches, of which pythae reconstructs half: "
                    f"zscope {best['ours']:6.2f}  pythae {best['pythae']:6.2f}  ratio "
                    f"{best['ours'] / best['pythae']:.2f}"
                )
            theirs = best.get("double", best["pythae"])
            check(
                f"{case:4} {name:10} zscope {best['ours']:6.2f}  pythae {theirs:6.2f}  ratio "
                f"{best['ours'] / theirs:.2f} (at most 1)",
                best["ours"] <= theirs,
            )


PARTS = {"zoo": compare_zoo, "consistency": compare_consistency, "pythae": compare_pythae}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--worker", nargs=4, metavar=("CONTENDER", "CASE", "MODEL", "BATCH"))
    options = parser.parse_args()
    if options.worker:
        *words, batch = options.worker
        worker(*words, int(batch))
        return 0
    import torch

    torch.set_num_threads(1)
    for part in options.part or PARTS:
        PARTS[part](options.turns)
        print()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
