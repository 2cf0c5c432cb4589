"""Latents with channels and places: what does a report cost beyond the passes of the model?

    python benchmarks/structured.py            all of it, about five minutes on one core
    python benchmarks/structured.py --only passes

    passes       rounds (a picture decoded and encoded) and encodings of a whole report, for 8 x 8
                 and 32 x 32 places: equal, and at most 5,500 for 4 channels, 3,000 + 700 for each
                 channel up to 16, and 15,000 for any number
    overhead     processor time of a report (page included) at 4 x 32 x 32 over that of as many bare
                 passes in the same process: at most 1.25
    statistics   recording and latent-statistics over encoding alone: at most 1.1
    memory       peak resident memory of recording 8,000 pictures with 16,384 latents: at most 64 MB
                 above that of 2,000, and, of both, at most 256 MB of codes and 128 MB besides

Bare passes: eager, contiguous, without gradients, batches of 64, one thread.
"""

import argparse
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from ratios import Agreement, Ratio, agreement, finish, released, turns
from torch import Tensor, nn

import zscope as zs
from zscope.data.dataset import from_arrays

BATCH = 64


class Counted(nn.Module):
    """A network that counts the pictures or codes it is given."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network, self.count = network, 0

    def forward(self, x: Tensor) -> Tensor:
        self.count += len(x)
        output: Tensor = self.network(x)
        return output


def networks(channels: int, width: int = 32) -> tuple[Counted, Counted]:
    """An encoder (mean and log-variance in one tensor) and a decoder, with a stride of 4."""
    generator = torch.Generator().manual_seed(0)
    encoder = nn.Sequential(
        nn.Conv2d(3, width, 3, 2, 1), nn.SiLU(),
        nn.Conv2d(width, width, 3, 1, 1), nn.SiLU(),
        nn.Conv2d(width, 2 * width, 3, 2, 1), nn.SiLU(),
        nn.Conv2d(2 * width, 2 * channels, 3, 1, 1),
    )  # fmt: skip
    decoder = nn.Sequential(
        nn.Conv2d(channels, 2 * width, 3, 1, 1), nn.SiLU(), nn.Upsample(scale_factor=2),
        nn.Conv2d(2 * width, width, 3, 1, 1), nn.SiLU(), nn.Upsample(scale_factor=2),
        nn.Conv2d(width, width, 3, 1, 1), nn.SiLU(),
        nn.Conv2d(width, 3, 3, 1, 1), nn.Sigmoid(),
    )  # fmt: skip
    for network in (encoder, decoder):
        for weight in network.parameters():
            spread = 0.0 if weight.ndim == 1 else (2 / weight[0].numel()) ** 0.5
            weight.data = spread * torch.randn(weight.shape, generator=generator)
    return Counted(encoder.eval()), Counted(decoder.eval())


def model_of(encoder: Counted, decoder: Counted) -> zs.Autoencoder:
    def encode(x: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_variance = encoder(x).chunk(2, 1)
        return mean, log_variance.clamp(-8, 0) - 3

    return zs.wrap(encode, decoder)


def pictures(count: int, side: int) -> Tensor:
    """Smooth random pictures."""
    generator = torch.Generator().manual_seed(1)
    coarse = torch.rand(count, 3, 8, 8, generator=generator)
    return nn.functional.interpolate(coarse, size=side, mode="bicubic").clamp(0, 1)


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def bare(network: Counted, shape: tuple[int, ...], count: int) -> float:
    """Processor time of bare passes of `count` inputs."""
    batch = torch.rand(BATCH, *shape, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        network.network(batch)
        parts = [batch] * (count // BATCH) + [batch[: count % BATCH]] * bool(count % BATCH)
        return seconds(lambda: [network.network(part) for part in parts])


def report_of(encoder: Counted, decoder: Counted, x: Tensor) -> None:
    report = zs.assay(model_of(encoder, decoder), from_arrays(x))
    with tempfile.TemporaryDirectory() as folder:
        report.save(Path(folder) / "report.html")
        size = (Path(folder) / "report.html").stat().st_size
    for name, failure in report.failed.items():
        print(f"  {name}: {failure.message}")
    print(f"  {len(report.results)} assays, page of {size / 1e6:.1f} MB", flush=True)


def passes() -> list[Ratio]:
    ratios = []
    for channels, limit in ((4, 5_500), (16, 3_000 + 700 * 16), (32, 15_000)):
        counts = []
        for side in (32, 128) if channels == 4 else (32,):
            encoder, decoder = networks(channels, width=4)
            report_of(encoder, decoder, pictures(300, side))
            counts.append((decoder.count, encoder.count - 300))
        print(f"{channels} channels: {counts} decoded and encoded again")
        if channels == 4:
            same = agreement("rounds for 8 x 8 places with those for 32 x 32", *counts, 0)
        ratios.append(
            Ratio(
                f"rounds of a report, {channels} channels",
                "report",
                [sum(counts[0]) / 2],
                [limit],
                baseline="the limit of its rounds",
                version=released("zscope"),
                at_most=1,
                agreement=same,
                unit="rounds",
            )
        )
    return ratios


def overhead() -> list[Ratio]:
    encoder, decoder = networks(4)
    x = pictures(512, 128)
    with torch.no_grad():
        direct = encoder.network(x[:64]).chunk(2, 1)[0]
    same = agreement(
        "means of 64 pictures, recorded, with those of the encoder",
        zs.record(model_of(encoder, decoder), x).posterior.mean[:64].flatten(),
        direct.flatten(), 1e-5,
    )  # fmt: skip
    encoder.count = decoder.count = 0
    whole = seconds(lambda: report_of(encoder, decoder, x))
    alone = bare(encoder, (3, 128, 128), encoder.count) + bare(decoder, (4, 32, 32), decoder.count)
    return [
        Ratio(
            "report of maps, 4 x 32 x 32", "report", [whole], [alone],
            baseline="as many plain eager passes", version=released("torch"), at_most=1.25,
            agreement=same,
        )
    ]  # fmt: skip


def statistics() -> list[Ratio]:
    encoder, decoder = networks(4)
    x = pictures(1024, 128)
    model = model_of(encoder, decoder)
    works = {
        "ours": lambda: zs.assays.latent_statistics(zs.record(model, x)),
        "bare": lambda: bare(encoder, (3, 128, 128), 1024),
    }
    spent = turns(works, 3)
    with torch.no_grad():
        mean, log_variance = encoder.network(x).chunk(2, 1)
    ours, variance = works["ours"](), (log_variance.clamp(-8, 0) - 3).exp()
    std = (mean.double().var((0, 2, 3), correction=0) + variance.double().mean((0, 2, 3))).sqrt()
    return [
        Ratio(
            "recording maps and their statistics", "passes", spent["ours"], spent["bare"],
            baseline="encoding them", version=released("torch"), at_most=1.1,
            agreement=agreement("standard deviations of 4 channels", ours.std, std, 1e-5),
        )
    ]  # fmt: skip


def peak_of(count: int) -> tuple[float, int, float]:
    """Megabytes that a new process needs at most to record so many pictures, those kept, theirs."""
    pool = nn.AvgPool2d(8)

    def encode(x: Tensor) -> tuple[Tensor, Tensor]:
        maps = nn.functional.interpolate(x, scale_factor=8).repeat(1, 4, 1, 1)
        return maps, torch.full_like(maps, -4)

    model = zs.wrap(encode, lambda z: pool(z[:, :1]))
    x = torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    model.encode(x[:2])
    before = peak()
    recording = zs.record(model, x)
    assert recording.map_summary.pictures == count
    posterior = recording.posterior
    assert posterior.std is not None
    codes = posterior.mean.nbytes + posterior.std.nbytes
    return peak() - before, len(recording), codes / 2**20


def peak() -> float:
    """The largest resident memory of this process so far, in megabytes.

    Not that of getrusage, which starts at the peak of the process that started this one.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**10


def memory() -> list[Ratio]:
    peaks, held = [], []
    for count in (2_000, 8_000):
        with multiprocessing.get_context("spawn").Pool(1) as process:
            most, kept, codes = process.apply(peak_of, (count,))
        print(f"{count:,} pictures: {kept:,} kept, {codes:.0f} MB; peak {most:.0f} MB", flush=True)
        peaks.append(most)
        held.append(codes)
    enough = Agreement("codes held, in MB", max(held), 256)
    return [
        Ratio(
            name, "memory", [value], [limit], baseline="the limit", version=released("zscope"),
            at_most=1, agreement=enough, unit="MB",
        )
        for name, value, limit in (
            ("peak of recording 8,000 pictures, 16,384 latents", peaks[1], 256.0 + 128),
            ("its growth from 2,000 to 8,000 pictures", max(0.1, peaks[1] - peaks[0]), 64.0),
        )
    ]  # fmt: skip


CASES = {"passes": passes, "overhead": overhead, "statistics": statistics, "memory": memory}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", choices=CASES)
    only = parser.parse_args().only
    torch.set_num_threads(1)
    ratios = [each for name, case in CASES.items() if only in (None, name) for each in case()]
    return finish("structured", ratios)


if __name__ == "__main__":
    sys.exit(main())
