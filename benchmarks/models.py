"""How much does a training step of a model cost, compared with a plain one and with pythae?

    python benchmarks/models.py [--turns 3] [--part consistency|pythae]

consistency   a step with a consistency penalty decodes and encodes T (1 + nJ) rows in
              addition to those of the batch. Required: at most 1.2 times what that many more
              rows cost the same model without the penalty
pythae        FactorVAE, β-TCVAE and WAE with the trainer of pythae 0.1.2, same networks and
              batches. Required: zs.train is at least as fast. pythae's FactorVAE uses half
              of each batch for shuffled codes only: with batches of 64 it reconstructs 32
              pictures where zscope reconstructs 64. Both are shown, equal batches and equal
              numbers of reconstructed pictures; the latter is required

Processor time of one thread, in turn; pythae has an environment of its own, which is made on first
use under .bench/.
"""

import argparse
import json
import sys
import tempfile
import time

from ratios import Agreement, Ratio, agreement, command, finish, peer, released, turns
from training import BATCH, CASES, LATENTS, networks, pictures

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

    shape = CASES[case]
    model = zs.models.build(name, shape=shape, latents=LATENTS, **zscope_options(case, name))
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/x.npy", pictures(shape))
        data = zs.data.load(f"{folder}/x.npy")
        start = time.process_time()
        zs.train(model, data, steps=steps, batch=batch, out=f"{folder}/run")
        return time.process_time() - start


def pythae_model(case: str, name: str, encoder, decoder):
    """A model of pythae around given layers."""
    import logging

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

    logging.disable(logging.CRITICAL)

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

    shape = CASES[case]
    common = {"input_dim": shape, "latent_dim": LATENTS}
    kinds = {
        "factor-vae": (FactorVAE, FactorVAEConfig, {"reconstruction_loss": "bce", "gamma": 35}),
        "beta-tcvae": (BetaTCVAE, BetaTCVAEConfig, {"reconstruction_loss": "bce", "beta": 6}),
        "wae": (WAE_MMD, WAE_MMD_Config, {"reg_weight": 10.0}),
    }
    model_class, config_class, more = kinds[name]
    return model_class(config_class(**common, **more), encoder=Encoder(), decoder=Decoder())


def pythae(case: str, name: str, steps: int, batch: int = BATCH) -> float:
    import torch
    from pythae.data.datasets import BaseDataset
    from pythae.trainers import (
        AdversarialTrainer,
        AdversarialTrainerConfig,
        BaseTrainer,
        BaseTrainerConfig,
    )

    encoder, decoder = networks(case)
    if name == "wae":
        encoder[-1] = torch.nn.Linear(encoder[-1].in_features, LATENTS)
    x = torch.from_numpy(pictures(CASES[case])).float().div_(255)[: steps * batch]
    settings = {
        "num_epochs": max(1, steps * batch // len(x)), "per_device_train_batch_size": batch,
        "no_cuda": True,
    }  # fmt: skip
    trainer_class, training_config = BaseTrainer, BaseTrainerConfig
    if name == "factor-vae":
        trainer_class, training_config = AdversarialTrainer, AdversarialTrainerConfig
    else:
        settings["learning_rate"] = 1e-4
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_class(
            model=pythae_model(case, name, encoder, decoder),
            train_dataset=BaseDataset(x, torch.zeros(len(x))),
            training_config=training_config(output_dir=folder, **settings),
        )
        start = time.process_time()
        trainer.train()
        return time.process_time() - start


def terms(contender: str, case: str, name: str) -> float:
    """The reconstruction loss per sample of a batch, with weights that are equal on both sides.

    Posteriors are so narrow that what is drawn from them does not matter.
    """
    import torch

    torch.manual_seed(0)
    encoder, decoder = networks(case)
    narrow = encoder[-1]
    if name == "wae":
        encoder[-1] = torch.nn.Linear(narrow.in_features, LATENTS)
    else:
        with torch.no_grad():
            narrow.weight[LATENTS:] = 0
            narrow.bias[LATENTS:] = -30
    x = torch.from_numpy(pictures(CASES[case])[:BATCH]).float().div_(255)
    if name == "factor-vae":
        x = x[:1].repeat(BATCH, 1, 1, 1)  # pythae reconstructs half of them, drawn at random
    weights = [*encoder.parameters(), *decoder.parameters()]
    if contender == "pythae":
        model = pythae_model(case, name, encoder, decoder)
        from pythae.data.datasets import BaseDataset

        return float(model(BaseDataset(x, torch.zeros(len(x)))[:]).recon_loss)
    import zscope as zs

    model = zs.models.build(name, shape=CASES[case], latents=LATENTS, **zscope_options(case, name))
    own = [*model.encoder.parameters(), *model.decoder.parameters()]
    with torch.no_grad():
        for old, new in zip(own, weights, strict=True):
            old.copy_(new.reshape(old.shape))
    return float(model.losses(x, torch.Generator().manual_seed(0)).terms["reconstruction"])


def worker(contender: str, case: str) -> dict[str, list[float]]:
    """One turn of all models: the milliseconds of a step, and a term of the loss."""
    import torch

    torch.set_num_threads(1)
    # Whole passes over the data, or parts of one: pythae counts in passes.
    short, long = (5, 20) if case == "conv" else (25, 75)
    run = {"ours": ours, "pythae": pythae}[contender]
    answer = {}
    for name in PEERS:
        sizes = {name: BATCH}
        if (contender, name) == ("pythae", "factor-vae"):
            sizes["factor-vae, half"], sizes[name] = BATCH, 2 * BATCH
        for key, batch in sizes.items():
            run(case, name, short, batch)  # warm up
            seconds = run(case, name, long, batch) - run(case, name, short, batch)
            answer[key] = [1000 * seconds / (long - short), terms(contender, case, name)]
    return answer


def stepper(
    name: str, backbone: str, latents: int = 12, batch: int = 64, steps: int = 5, **options
):
    """A function that runs a few steps of a model, and one that counts what a step decodes."""
    import torch

    import zscope as zs
    from zscope.training.config import TrainConfig
    from zscope.training.loop import advance, backward, make_optimisers

    if backbone == "mlp":
        options["hidden"] = (400, 400)
    model = zs.models.build(
        name, shape=(1, 28, 28), latents=latents, backbone=backbone, **options
    ).train()
    config = TrainConfig(steps=10**6, batch=batch)
    optimisers = make_optimisers(model, config)
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(batch, 1, 28, 28, generator=generator)

    def run() -> None:
        for _ in range(steps):
            backward(optimisers, model.losses(x, generator).whole)
            advance(optimisers, config, 0)

    def rows() -> int:
        counts = []
        hook = model.decoder.register_forward_pre_hook(
            lambda _, given: counts.append(len(given[0]))
        )
        model.losses(x, generator)
        hook.remove()
        return sum(counts)

    return run, rows


def compare_consistency(repeats: int) -> list[Ratio]:
    ratios = []
    vectors, interventions, batch = 16, 2, 64
    for backbone, latents in (("mlp", 12), ("locatello", 12), ("consistency", 6)):
        for with_penalty in ("cae-i", "cvae-i", "xcae-e"):
            plain = with_penalty[:-2].replace("c", "")
            size = {"latents": latents, **({"depth": 6} if backbone == "consistency" else {})}
            penalty = {"vectors": vectors, "interventions": interventions}
            work = (batch + vectors * (1 + latents * interventions)) / batch
            run_plain, rows_plain = stepper(plain, backbone, **size)
            run_penalised, rows = stepper(with_penalty, backbone, **size, **penalty)
            seconds = turns({"penalised": run_penalised, "plain": run_plain}, repeats + 2)
            ratios.append(
                Ratio(
                    f"a step of {with_penalty}, {backbone}",
                    "training",
                    seconds["penalised"],
                    [work * each for each in seconds["plain"]],
                    baseline=f"{work:.2f} steps of {plain}, for as many rows",
                    version=released("torch"),
                    at_most=LIMIT,
                    agreement=Agreement(
                        f"rows decoded, as a multiple of those of {plain}, less {work:.2f}",
                        abs(rows() / rows_plain() - work),
                        1e-9,
                    ),
                )
            )
    return ratios


def compare_pythae(repeats: int) -> list[Ratio]:
    interpreters = {"ours": sys.executable, "pythae": peer("pythae")}
    ratios = []
    for case in CASES:
        rows: dict[str, list[dict]] = {side: [] for side in interpreters}
        for number in range(repeats):
            for side in list(interpreters)[:: -1 if number % 2 else 1]:
                output = command(interpreters[side], __file__, "--worker", side, case)
                rows[side].append(json.loads(output.splitlines()[-1]))
        for key in rows["pythae"][0]:
            name = key.removesuffix(", half")
            ratios.append(
                Ratio(
                    f"a step of {key}, {case}",
                    "peers",
                    [row[name][0] for row in rows["ours"]],
                    [row[key][0] for row in rows["pythae"]],
                    baseline=BASELINES.get(key, "pythae's trainer"),
                    version="pythae 0.1.2",
                    at_most=None if key != name else 1.0,
                    unit="ms",
                    agreement=agreement(
                        "reconstruction loss of a batch, weights equal",
                        rows["ours"][0][name][1],
                        rows["pythae"][0][key][1],
                        1e-4,
                        relative=True,
                    ),
                )
            )
    return ratios


BASELINES = {
    "factor-vae": "pythae's trainer, as many reconstructed pictures",
    "factor-vae, half": "pythae's trainer, equal batches, of which it reconstructs half",
}
PARTS = {"consistency": compare_consistency, "pythae": compare_pythae}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--worker", nargs=2, metavar=("CONTENDER", "CASE"))
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(worker(*options.worker)))
        return 0
    import torch

    torch.set_num_threads(1)
    return finish(
        "models", [each for part in options.part or PARTS for each in PARTS[part](options.turns)]
    )


if __name__ == "__main__":
    sys.exit(main())
