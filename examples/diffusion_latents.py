"""The latents of an autoencoder for latent diffusion, which have channels and positions.

With diffusers installed this uses an AutoencoderKL like that of Stable Diffusion, but tiny and
untrained, and the findings say so; for a real one give its folder instead,
zs.load("stable-diffusion/vae"). Without diffusers, two convolutions take its place.
"""

import torch
from torch import nn

import zscope as zs

torch.manual_seed(0)
pictures = torch.rand(500, 3, 8, 8)

try:
    from diffusers import AutoencoderKL
except ImportError:
    print("diffusers is not installed: two convolutions take the place of its autoencoder.")
    encoder, decoder = nn.Conv2d(3, 2, 4, 4), nn.ConvTranspose2d(2, 3, 4, 4)
    model = zs.wrap(lambda x: (encoder(x), encoder(x) * 0 - 4), decoder)
else:
    blocks = {"down_block_types": ["DownEncoderBlock2D"] * 3, "block_out_channels": [4] * 3}
    blocks |= {"up_block_types": ["UpDecoderBlock2D"] * 3, "norm_num_groups": 2}
    model = zs.load(AutoencoderKL(latent_channels=2, sample_size=8, **blocks))

recording = zs.record(model, pictures)
channels = torch.arange(model.latents).reshape(2, -1).tolist()  # each channel is one variable
responses = zs.assays.response_matrix(recording, groups=channels)
print(f"{model.latents} latents in 2 channels; response of each channel (1 = fully preserved):")
print(responses.relative.diagonal().numpy().round(2))
report = zs.assay(recording, names=["response-matrix", "variable-types", "holes"])
print(report)
report.save("report.html")
