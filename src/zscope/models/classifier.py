"""Classifier: an encoder trained on a label, to compare representations with.

    loss = -log softmax(logits)_y

The latents are the logits, one for each class, so `latents` must be the number of classes.
All layers but the last are those of an autoencoder with the same backbone. There is no
decoder and no prior. `model.features(x)` gives the last hidden layer, for instance for
`frechet_distance`. Bonheme 2023, appendix C.3.
"""

import torch.nn.functional as F
from torch import Tensor

from zscope.autoencoder import Losses
from zscope.errors import ConfigError, InterfaceError
from zscope.models.composed import Batch, StatefulObjective
from zscope.models.entry import Entry, Option, whole

__all__ = ["Classifier"]


class Classifier(StatefulObjective):
    """The objective: cross-entropy of one factor, whose values number the classes from 0."""

    def __init__(self, *, latents: int, factor: int) -> None:
        self.classes, self.factor = latents, factor

    def __call__(self, batch: Batch) -> Losses:
        if batch.factors is None:
            raise InterfaceError(
                "classifier: no labels were given. zs.train takes them from the data's factors; "
                "otherwise: model.losses(x, factors=labels), a row for each observation."
            )
        labels = batch.factors[:, self.factor].long()
        logits = batch.posterior.mean
        loss = F.cross_entropy(logits, labels)
        wrong = (logits.argmax(1) != labels).to(logits.dtype).mean()
        return Losses(loss, {"cross_entropy": loss, "error": wrong})

    def check_factors(self, factors: Tensor) -> None:
        if self.factor >= factors.shape[1]:
            raise ConfigError(
                f"classifier: factor={self.factor}, but the data have {factors.shape[1]} factors "
                "(counted from 0). Choose another."
            )
        labels = factors[:, self.factor]
        if (labels != labels.round()).any() or labels.min() < 0:
            raise ConfigError(
                f"classifier: factor {self.factor} has values such as {float(labels[0]):.4g}, but "
                "classes are numbered 0, 1, 2, …. Choose a factor with discrete values."
            )
        if labels.max() >= self.classes:
            needed = int(labels.max()) + 1
            raise ConfigError(
                f"classifier: the labels go up to {needed - 1}, but there are {self.classes} "
                f"logits. Build it with latents={needed}, one for each class."
            )


ENTRY = Entry(
    name="classifier",
    title="Classifier: an encoder trained on a label, to compare representations with",
    formula="-log softmax(logits)_y",
    paper="Bonheme, PhD thesis, Kent 2023, appendix C.3",
    summary=__doc__ or "",
    objective=Classifier,
    posterior="point",
    refuses={
        **dict.fromkeys(["gaussian", "full"], "its latents are logits, which have no variance"),
        "maps": "its latents are logits, which have no places",
    },
    needs=frozenset({"factors"}),
    prior=None,
    decodes=False,
    options={"factor": Option(0, "Which factor of the data is the label, from 0.", whole(0))},
)
