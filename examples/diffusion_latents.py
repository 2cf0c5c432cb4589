"""The latents of an autoencoder for latent diffusion: channels that are pictures themselves.

With diffusers installed this takes an AutoencoderKL as Stable Diffusion has one, but tiny and
not trained, and the findings say so; for a real one give its folder instead,
zs.load("stable-diffusion/vae"). Without diffusers two convolutions show the same.
"""

import torch
from torch import nn

import zscope as zs

torch.manual_seed(0)
pictures = torch.rand(500, 3, 8, 8)

try:
    from diffusers import AutoencoderKL
except ImportError:
    print("diffusers is not installed: two convolutions stand in for its autoencoder.")
    into, back = nn.Conv2d(3, 2, 4, 4), nn.ConvTranspose2d(2, 3, 4, 4)
    model = zs.wrap(lambda x: (into(x), into(x) * 0 - 4), back)
else:
    blocks = {"down_block_types": ["DownEncoderBlock2D"] * 3, "block_out_channels": [4] * 3}
    blocks |= {"up_block_types": ["UpDecoderBlock2D"] * 3, "norm_num_groups": 2}
    model = zs.load(AutoencoderKL(latent_channels=2, sample_size=8, **blocks))

recording = zs.record(model, pictures)
channels = torch.arange(model.latents).reshape(2, -1).tolist()  # one variable for each channel
responses = zs.assays.response_matrix(model, recording.posterior, groups=channels)
print(f"{model.latents} latents in 2 channels; a change of a whole channel comes back by")
print(responses.relative.diagonal().numpy().round(2))
report = zs.assay(model, pictures, names=["response-matrix", "variable-types", "holes"])
print(report)
report.save("report.html")
