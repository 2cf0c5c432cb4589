"""How many latents does a model need? FONDUE trains a few models for a short time to find out."""

import torch

import zscope as zs

generator = torch.Generator().manual_seed(0)
directions = torch.linalg.qr(torch.randn(12, 4, generator=generator)).Q.T
x = 5 * torch.randn(2000, 4, generator=generator) @ directions  # your data; here 4 directions in 12
x += 0.1 * torch.randn(2000, 12, generator=generator)


def gap(latents: int) -> float:
    """How much of the latent variance is noise, in a model with this many latents."""
    model = zs.models.build("vae", shape=(12,), latents=latents, hidden=(32,))
    zs.train(model, x, steps=300, rate=1e-2, progress=False)
    return zs.assays.trace_gap(zs.record(model, x)).score


start = zs.assays.intrinsic_dimension(x).dimension
answer = zs.assays.fondue(gap, start=start, threshold=0.5, limit=16)
for trial in sorted(answer.trials):
    print(f"{trial.latents:2d} latents: {trial.value:.2f} of them are noise")
print(f"The data have about {start:.1f} dimensions; use {answer.latents} latents.")
answer.plot().get_figure().savefig("how_many_latents.png")
