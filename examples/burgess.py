"""The network of Burgess et al., "Understanding disentangling in β-VAE", 2018, for 32 x 32.

It stands for code that somebody else wrote: nothing in it depends on zscope.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import relu


class Encoder(nn.Module):
    def __init__(self, latents: int = 10):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 4, 2, 1)
        self.conv2 = nn.Conv2d(32, 32, 4, 2, 1)
        self.conv3 = nn.Conv2d(32, 32, 4, 2, 1)
        self.lin1, self.lin2 = nn.Linear(512, 256), nn.Linear(256, 256)
        self.mu_logvar_gen = nn.Linear(256, 2 * latents)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x = relu(self.conv3(relu(self.conv2(relu(self.conv1(x))))))
        x = self.mu_logvar_gen(relu(self.lin2(relu(self.lin1(x.view(x.size(0), -1))))))
        return x.view(x.size(0), -1, 2).unbind(2)  # mean, log-variance


class Decoder(nn.Module):
    def __init__(self, latents: int = 10):
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(latents, 256), nn.Linear(256, 256)
        self.lin3 = nn.Linear(256, 512)
        self.convT1 = nn.ConvTranspose2d(32, 32, 4, 2, 1)
        self.convT2 = nn.ConvTranspose2d(32, 32, 4, 2, 1)
        self.convT3 = nn.ConvTranspose2d(32, 1, 4, 2, 1)

    def forward(self, z: Tensor) -> Tensor:
        x = relu(self.lin3(relu(self.lin2(relu(self.lin1(z)))))).view(z.size(0), 32, 4, 4)
        return torch.sigmoid(self.convT3(relu(self.convT2(relu(self.convT1(x))))))


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder()
