"""PCL: an encoder that tells true neighbours from random pairs.

    loss = 1/2 softplus( -r(x, y) ) + 1/2 softplus( r(x, y') )
    r(x, y) = - sum_j |a_j h_j(x) + b_j h_j(y) + c_j|  +  sum_j h_j(x)²  +  d

y is the partner of x, y' that of another observation of the batch; h is the encoder, and a,
b, c, d are learned with it (starting at 1, -1, 0, 0). Guessing costs log 2 nats. The best r
is the logarithm of p(x, y) / p(x) p(y), so that for sources whose changes are Laplacian h
finds the sources, up to order and scale. There is no decoder and no prior. Hyvärinen &
Morioka, AISTATS 2017, arXiv:1605.09028; this r is the one of Klindt et al., ICLR 2021.
"""

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from zscope.autoencoder import Losses
from zscope.models.composed import Batch
from zscope.models.entry import Entry
from zscope.models.slow_vae import partner_of
from zscope.randomness import normal
from zscope.types import Codes

__all__ = ["PCL"]


class PCL(nn.Module):
    """The objective, with the parameters that compare two codes."""

    def __init__(self, *, latents: int) -> None:
        super().__init__()
        self.now = nn.Parameter(torch.empty(latents))
        self.before = nn.Parameter(torch.empty(latents))
        self.shift = nn.Parameter(torch.empty(latents))
        self.level = nn.Parameter(torch.empty(()))

    @torch.no_grad()
    def initialise(self, generator: Generator) -> None:
        for parameter, value in ((self.now, 1), (self.before, -1), (self.shift, 0)):
            parameter.fill_(value)
        self.level.zero_()

    def forward(self, batch: Batch) -> Losses:
        both = torch.cat([batch.x, partner_of(batch, "pcl")])
        codes, partners = batch.model.encode(both).mean.chunk(2)
        order = normal(codes[:, 0], batch.generator).argsort(0)
        true = F.softplus(-self.ratio(codes, partners)).mean()
        false = F.softplus(self.ratio(codes, partners[order])).mean()
        total = 0.5 * (true + false)
        return Losses(total, {"contrast": total})

    def ratio(self, codes: Codes, partners: Codes) -> Tensor:
        """r, for each pair."""
        distance = (self.now * codes + self.before * partners + self.shift).abs().sum(1)
        return codes.square().sum(1) - distance + self.level


ENTRY = Entry(
    name="pcl",
    title="PCL: an encoder that tells true neighbours from random pairs",
    formula="1/2 softplus(-r(x, y)) + 1/2 softplus(r(x, y')), a logistic regression on pairs",
    paper="Hyvärinen & Morioka, AISTATS 2017, arXiv:1605.09028",
    summary=__doc__ or "",
    objective=PCL,
    posterior="point",
    refuses={
        **dict.fromkeys(["gaussian", "full"], "it compares codes without noise"),
        "maps": "it compares whole observations, one number for each latent",
    },
    needs=frozenset({"partner"}),
    prior=None,
    decodes=False,
    options={},
)
