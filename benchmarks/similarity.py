"""How fast is a heatmap of layers, compared with Gram matrices computed for every pair?

    python benchmarks/similarity.py [--samples 4000] [--turns 3]

16 x 16 layers of two models at 4,000 samples, with the widths of a convolutional VAE for
64 x 64 pictures (a quarter of the spatial ones, to keep the comparison short). It is compared
with CKA as it is usually written: for each pair the two centred Gram matrices and their inner
products, in float32. That is timed on 16 of the 256 pairs, in which every width occurs once on
each side, and scaled up. Values must agree to 1e-4 on the timed pairs.
"""

import argparse
import sys

import torch
from ratios import Ratio, agreement, finish, released, turns

from zscope.assays import similarity_heatmap

SPEEDUP = 10.0
WIDTHS = (1024, 2048, 512, 256, 64, 256, 10, 10, 10, 256, 256, 64, 256, 512, 2048, 1024)


def layers(samples: int, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shared = torch.randn(samples, 20, generator=torch.Generator().manual_seed(99))
    return {
        f"layer {k}": torch.relu(
            shared @ torch.randn(20, width, generator=generator)
            + torch.randn(samples, width, generator=generator)
        )
        for k, width in enumerate(WIDTHS)
    }


def pairwise(x: torch.Tensor, y: torch.Tensor) -> float:
    """Plain CKA by centred Gram matrices."""
    grams = []
    for rows in (x, y):
        centred = rows - rows.mean(0)
        grams.append(centred @ centred.T)
    K, L = grams
    # Sums in float64: torch's float32 norm of 25 million numbers is off by thousandths.
    cross, own_x, own_y = ((p * q).sum(dtype=torch.float64) for p, q in ((K, L), (K, K), (L, L)))
    return float(cross / (own_x * own_y).sqrt())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=4000)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    first, second = layers(options.samples, 1), layers(options.samples, 2)
    names = list(first)
    # The cost of a pair grows with the sum of its widths. With every width once on each side, the
    # mean over these pairs is the mean over all.
    timed = [(k, (k + 5) % len(names)) for k in range(len(names))]

    outputs = {}

    def heatmap() -> None:
        outputs["ours"] = similarity_heatmap(first, second, debiased=False).matrix

    def pairs() -> None:
        outputs["pairs"] = [pairwise(first[names[i]], second[names[j]]) for i, j in timed]

    seconds = turns({"heatmap": heatmap, "pairs": pairs}, options.turns, warm=False)
    ours = [outputs["ours"][i, j] for i, j in timed]
    ratio = Ratio(
        f"similarity of {len(names)} x {len(names)} layers", "scores",
        seconds["heatmap"], [len(names) * each for each in seconds["pairs"]],
        baseline=f"Gram matrices of every pair, timed on {len(timed)} of them",
        version=released("torch"), at_most=1 / SPEEDUP,
        agreement=agreement(f"CKA of {len(timed)} pairs", ours, outputs["pairs"], 1e-4),
    )  # fmt: skip
    return finish("similarity", [ratio])


if __name__ == "__main__":
    sys.exit(main())
