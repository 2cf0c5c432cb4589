"""AE: an autoencoder without noise and without a prior.

    loss = -log p(x | z),      z = encoder(x)

The codes only have to allow reconstruction, so any invertible change of the latents that
the networks can express leaves the loss unchanged. With linear networks and squared error
the latents span the first principal directions, in no particular basis. Rumelhart, Hinton &
Williams, Nature 323, 1986; Baldi & Hornik, Neural Networks 2, 1989.
"""

from zscope.autoencoder import Losses
from zscope.models.composed import Batch
from zscope.models.entry import Entry

__all__ = ["autoencoder"]


def autoencoder(batch: Batch) -> Losses:
    return Losses(batch.reconstruction, {"reconstruction": batch.reconstruction})


NO_COST = "nothing in this loss keeps the posterior variance from shrinking to 0"

ENTRY = Entry(
    name="ae",
    title="AE: an autoencoder without noise and without a prior",
    formula="-log p(x | z), z = encoder(x)",
    paper="Rumelhart, Hinton & Williams, Nature 323, 1986",
    summary=__doc__ or "",
    objective=autoencoder,
    posterior="point",
    refuses={"gaussian": NO_COST, "full": NO_COST},
    prior=None,
    options={},
)
