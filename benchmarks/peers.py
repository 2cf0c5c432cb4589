"""How fast is what other libraries do too, and do the values agree?

    python benchmarks/peers.py [--only latentverse|pythae|stochman]

Each peer runs at its released version in an environment of its own, which is made on first use
under .bench/, on the same inputs and one thread, in turn with zscope. Times are processor times
around the work alone: no imports, no compilation, no reading of inputs.

latentverse 0.3.5   run_disentanglement on codes and factors, against DCI, MIG, SAP and total
                    correlation with their chance levels
pythae 0.1.2        embedding and reconstructing pictures, same weights, posteriors so narrow that
                    the draws of pythae do not matter. (Training: benchmarks/training.py, models.py)
stochman 0.3.0      the path between two codes of a helix, over a grid and with all latents

scikit-dimension is in benchmarks/dimension.py, scikit-learn in benchmarks/disentanglement.py.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ratios import Ratio, agreement, command, finish, peer

TURNS = 3


def timed(work: Callable[[], object]) -> tuple[float, object]:
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def in_turn(name: str, file: Path, ours: Callable[[], dict], repeats: int) -> tuple[dict, dict]:
    """Seconds of each piece of work of both sides, and what they have computed, turn by turn."""
    rows: dict[str, list[dict]] = {"ours": [], "theirs": []}
    for number in range(repeats):
        for side in ("ours", "theirs")[:: -1 if number % 2 else 1]:
            if side == "ours":
                rows[side].append(ours())
            else:
                output = command(peer(name), "-W", "ignore", __file__, "--worker", name, str(file))
                rows[side].append(json.loads(output.splitlines()[-1]))
    return tuple({key: [row[key] for row in rows[side]] for key in rows[side][0]} for side in rows)  # type: ignore[return-value]


# latentverse

ROWS = 3000


def latentverse_worker(file: Path) -> dict:
    import contextlib
    import io

    import numpy as np
    from latentverse.evaluations.disentanglement import run_disentanglement

    arrays = np.load(file)
    codes, factors = arrays["codes"], arrays["factors"]
    with contextlib.redirect_stdout(io.StringIO()):
        run_disentanglement(codes[:200], factors[:200])  # compiles
        seconds, result = timed(lambda: run_disentanglement(codes, factors))
    scores = result["metrics"]
    return {"seconds": seconds, **{name: scores[name] for name in ("SAP", "MIG", "TC")},
            "DCI": scores["DCI"]["Disentanglement"]}  # fmt: skip


def latentverse() -> tuple[list[Ratio], list[str]]:
    import numpy as np
    from disentanglement import make_data

    import zscope as zs

    codes, factors = make_data(ROWS)

    def measure() -> dict:
        a = zs.assays
        values = {
            name: score(codes, factors, kinds="ordinal").score
            for name, score in (("SAP", a.sap), ("MIG", a.mig), ("DCI", a.dci))
        }
        return {**values, "TC": a.total_correlation(codes).score}

    measure()  # imports

    def ours() -> dict:
        seconds, values = timed(measure)
        return {"seconds": seconds, **values}

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "codes.npz"
        np.savez(file, codes=codes, factors=factors.astype(float))
        mine, theirs = in_turn("latentverse", file, ours, TURNS)
    names = ("SAP", "MIG", "TC")
    ratio = Ratio(
        f"DCI, MIG, SAP, total correlation of {ROWS:,} codes", "peers",
        mine["seconds"], theirs["seconds"], baseline="run_disentanglement",
        version="latentverse 0.3.5", at_most=1,
        agreement=agreement(
            "SAP, MIG and total correlation", [mine[name][0] for name in names],
            [theirs[name][0] for name in names], 0.05,
        ),
    )  # fmt: skip
    notes = [
        "latentverse's DCI is computed from mutual information rather than from the importances of "
        f"a predictor, so it is not the same score ({theirs['DCI'][0]:.2f}; zscope "
        f"{mine['DCI'][0]:.2f}) and is left out of the agreement; so is informativeness, which it "
        "takes from a neural network. It estimates information by nearest neighbours, where zscope "
        "counts bins, which is most of the difference of MIG.",
        "latentverse's clustering, expressiveness, robustness and probing (k-means against labels, "
        "and classifiers on codes with latents removed or noise added) have no counterpart in "
        "zscope, and zscope's assays of models have none in latentverse, which takes arrays only.",
    ]
    return [ratio], notes


# pythae

PICTURES, BATCH = 2048, 64


def narrow_networks(case: str):
    """The layers of benchmarks/training.py, with posteriors of almost no width."""
    import torch
    from training import LATENTS, networks

    torch.manual_seed(0)
    encoder, decoder = networks(case)
    with torch.no_grad():
        encoder[-1].weight[LATENTS:] = 0
        encoder[-1].bias[LATENTS:] = -30
    return encoder.eval(), decoder.eval()


def some_pictures(case: str):
    import torch
    from training import CASES, pictures

    return torch.from_numpy(pictures(CASES[case])[:PICTURES]).float().div_(255)


def pythae_worker(file: Path) -> dict:
    import logging

    import torch
    from training import pythae_model

    logging.disable(logging.CRITICAL)
    case = json.loads(file.read_text())
    model = pythae_model(case, *narrow_networks(case)).eval()
    batches = some_pictures(case).split(BATCH)
    with torch.no_grad():
        model.embed(batches[0]), model.reconstruct(batches[0])
        embed, codes = timed(lambda: torch.cat([model.embed(x) for x in batches]))
        reconstruct, again = timed(lambda: torch.cat([model.reconstruct(x) for x in batches]))
    few = [codes[:20].flatten().tolist(), again[:20].flatten(1)[:, ::97].flatten().tolist()]
    return {"embed": embed, "reconstruct": reconstruct, "codes": few[0], "pictures": few[1]}


def pythae() -> tuple[list[Ratio], list[str]]:
    import torch
    from training import CASES, LATENTS

    import zscope as zs
    from zscope.assays.engine import decode

    ratios = []
    for case in CASES:
        encoder, decoder = narrow_networks(case)
        model = zs.wrap(
            lambda x, encoder=encoder: encoder(x).chunk(2, 1),
            lambda z, decoder=decoder: decoder(z).sigmoid(),
            latents=LATENTS,
        )
        x = some_pictures(case)
        data = zs.data.from_arrays(x)

        def reconstruct(model=model, data=data) -> torch.Tensor:
            return decode(model, zs.record(model, data).codes)

        def ours(model=model, data=data, reconstruct=reconstruct) -> dict:
            embed, recording = timed(lambda: zs.record(model, data))
            whole, again = timed(reconstruct)
            few = recording.codes[:20].flatten(), again[:20].flatten(1)[:, ::97].flatten()
            return {"embed": embed, "reconstruct": whole, "codes": few[0].tolist(),
                    "pictures": few[1].tolist()}  # fmt: skip

        ours()
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "case.json"
            file.write_text(json.dumps(case))
            mine, theirs = in_turn("pythae", file, ours, TURNS)
        for what, name, values in (
            ("embed", f"codes of {PICTURES:,} pictures, {case}", "codes"),
            ("reconstruct", f"reconstructions of {PICTURES:,} pictures, {case}", "pictures"),
        ):
            ratios.append(
                Ratio(
                    name,
                    "peers",
                    mine[what],
                    theirs[what],
                    baseline=f"{what}, batches of {BATCH}",
                    version="pythae 0.1.2",
                    at_most=1,
                    agreement=agreement(
                        f"{values} of 20 samples", mine[values][0], theirs[values][0], 1e-5
                    ),
                )
            )
    note = (
        "pythae has no measurements of latent spaces. Its embed and reconstruct run the whole "
        "model with its losses, whichever part is asked for, and return one draw of the posterior."
    )
    return ratios, [note]


# stochman

GRID = 50


def stochman_worker(file: Path) -> dict:
    import numpy as np
    import torch
    from stochman.discretized_manifold import DiscretizedManifold
    from stochman.manifold import EmbeddedManifold
    from torch import nn

    arrays = {name: torch.from_numpy(values) for name, values in np.load(file).items()}
    layers: list[nn.Module] = []
    count = sum(name.startswith("weight") for name in arrays)
    for k in range(count):
        weight, bias = arrays[f"weight{k}"], arrays[f"bias{k}"]
        layer = nn.Linear(weight.shape[1], weight.shape[0])
        layer.weight.data, layer.bias.data = weight, bias
        layers += [layer, *([nn.ELU()] if k < count - 1 else [])]
    decoder = nn.Sequential(*layers).requires_grad_(False)

    class Decoded(EmbeddedManifold):
        def embed(self, points, jacobian=False):
            if not jacobian:
                return decoder(points)
            one = points.reshape(-1, points.shape[-1])
            derivative = torch.func.vmap(torch.func.jacrev(decoder))(one)
            return decoder(one), derivative

    manifold, (start, end) = Decoded(), arrays["ends"]
    low, high = arrays["extent"]
    axes = [torch.linspace(float(a), float(b), GRID) for a, b in zip(low, high, strict=True)]
    share = torch.linspace(0, 1, 101)[:, None]
    straight = float(manifold.curve_length(start.lerp(end, share)).sum())

    def over_a_grid():
        grid = DiscretizedManifold()
        grid.fit(manifold, axes, batch_size=1024)
        return grid.connecting_geodesic(start, end)[0]

    def direct():
        return manifold.connecting_geodesic(start[None], end[None])[0]

    answer = {"straight": straight}
    for name, work in (("grid", over_a_grid), ("direct", direct)):
        seconds, curve = timed(work)
        points = curve(share[:, 0]).detach().reshape(-1, 2)
        answer[name], answer[f"{name}_points"] = seconds, points.tolist()
    return answer


def stochman() -> tuple[list[Ratio], list[str]]:
    import numpy as np
    import torch
    from torch import nn

    import zscope as zs

    data = zs.data.load("helix", seed=10)
    model = zs.models.build(
        "beta-vae", shape=data.shape, latents=2, beta=0.02, likelihood="mse", hidden=(32,) * 4,
        activation="elu", seed=10,
    )  # fmt: skip
    zs.train(model, data, steps=3000, batch=64, rate=1e-3, seed=10, progress=False)
    codes = zs.record(model, data).codes
    position, side = torch.from_numpy(data.factors).T
    starts = (
        ((side == 0) & (position < -0.8)).nonzero()[0],
        ((side == 0) & (position > 0.8)).nonzero()[0],
    )
    start, end = (codes[int(row)] for row in starts)
    low, high = codes.amin(0) - 0.1, codes.amax(0) + 0.1
    linear = [layer for layer in model.decoder.modules() if isinstance(layer, nn.Linear)]
    extent = (float(low[0]), float(high[0]), float(low[1]), float(high[1]))

    def over_a_grid():
        plane = zs.assays.response_map(
            model, codes[0], (0, 1), codes=codes, extent=extent, grid=GRID
        )
        return zs.assays.manifold_path(plane, start, end)

    def direct():
        return zs.assays.manifold_path(model, start, end, codes=codes)

    def ours() -> dict:
        answer = {}
        for name, work in (("grid", over_a_grid), ("direct", direct)):
            answer[name], answer[f"{name}_path"] = timed(work)
        return answer

    ours()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "decoder.npz"
        weights = {f"weight{k}": layer.weight.detach().numpy() for k, layer in enumerate(linear)}
        biases = {f"bias{k}": layer.bias.detach().numpy() for k, layer in enumerate(linear)}
        np.savez(
            file, ends=torch.stack([start, end]).numpy(),
            extent=torch.stack([low, high]).numpy(), **weights, **biases,
        )  # fmt: skip
        mine, theirs = in_turn("stochman", file, ours, TURNS)
    paths = {name: mine[f"{name}_path"][0] for name in ("grid", "direct")}
    same = agreement(
        "decoded length of the straight line between the same two codes",
        paths["grid"].straight_decoded_length, theirs["straight"][0], 1e-4, relative=True,
    )  # fmt: skip
    ratios = [
        Ratio(
            f"a path {words}", "peers", mine[name], theirs[name], baseline=baseline,
            version="stochman 0.3.0", agreement=same, at_most=1,
        )
        for name, words, baseline in (
            ("grid", f"over a map of {GRID} x {GRID}", "DiscretizedManifold, fit and geodesic"),
            ("direct", "in all latents", "connecting_geodesic, 150 steps"),
        )
    ]  # fmt: skip
    nearest = torch.cdist(codes, codes).topk(2, largest=False).values[:, 1].median()
    lines = []
    for name, path in paths.items():
        theirs_points = torch.tensor(theirs[f"{name}_points"][0])
        both = []
        for points in (path.points.float(), theirs_points):
            with torch.no_grad():
                length = model.decode(points).diff(dim=0).norm(dim=1).sum()
            farthest = torch.cdist(points, codes).amin(1).max() / nearest
            both.append(f"{length:.2f} decoded, {farthest:.0f} spacings from the nearest code")
        lines.append(f"{name}: zscope {both[0]} at most; stochman {both[1]} at most")
    note = (
        "Paths of stochman are the shortest after decoding; zscope's keep to the codes of data. So "
        "the paths themselves differ, and what agrees is the length that both measure of the same "
        f"line. {'. '.join(lines).capitalize()}. stochman's shooting geodesics do not run: they "
        "call torch.solve, which PyTorch has removed."
    )
    return ratios, [note]


PARTS = {"latentverse": latentverse, "pythae": pythae, "stochman": stochman}
WORKERS = {
    "latentverse": latentverse_worker, "pythae": pythae_worker, "stochman": stochman_worker,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--worker", nargs=2, metavar=("PEER", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        name, file = options.worker
        print(json.dumps(WORKERS[name](Path(file))))
        return 0
    import torch

    torch.set_num_threads(1)
    results = [part() for name, part in PARTS.items() if options.only in (None, name)]
    return finish(
        "peers",
        [ratio for ratios, _ in results for ratio in ratios],
        [note for _, notes in results for note in notes],
    )


if __name__ == "__main__":
    sys.exit(main())
