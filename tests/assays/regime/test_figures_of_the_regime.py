"""Every result of the regime, similarity and dimension that has a figure draws it."""

import pytest
import torch

from zscope import theory
from zscope.assays.dimension.fondue import fondue
from zscope.assays.dimension.intrinsic import intrinsic_dimension
from zscope.assays.regime.divergence import latent_divergence
from zscope.assays.regime.effective_rank import effective_rank
from zscope.assays.regime.mutual_information import mutual_information
from zscope.assays.regime.predicted_variance import predicted_variance
from zscope.assays.regime.probe import type_probe
from zscope.assays.regime.tracking import correlation_tracking
from zscope.assays.regime.truncation import truncation
from zscope.assays.regime.types import variable_types
from zscope.assays.similarity.cca import svcca
from zscope.assays.similarity.heatmap import similarity_heatmap
from zscope.autoencoder import Posterior
from zscope.errors import Undefined
from zscope.experiments.elbows import elbow


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def posterior() -> Posterior:
    std = torch.tensor([[0.1, 1.0, 0.5]], dtype=torch.float64).expand(90, 3)
    return Posterior(normal(90, 3), std)


def linear_decoder():
    return theory.linear_vae(normal(4, 3), gamma=0.5).autoencoder()


RESULTS = {
    "types": lambda: variable_types(posterior().variance),
    "divergence": lambda: latent_divergence(posterior()),
    "information": lambda: mutual_information(posterior().mean),
    "rank": lambda: effective_rank(posterior().mean),
    "probe": lambda: type_probe(posterior(), torch.arange(90) % 2, penalties=2, folds=2),
    "tracking": lambda: correlation_tracking([normal(20, 3), normal(20, 3, seed=1)]),
    "jacobian": lambda: predicted_variance(linear_decoder(), normal(5, 3)),
    "canonical": lambda: svcca(normal(50, 3), normal(50, 3, seed=1)),
    "heatmap": lambda: similarity_heatmap({"a": normal(20, 3), "b": normal(20, 2, seed=1)}),
    "dimension": lambda: intrinsic_dimension(normal(60, 3), neighbours=8),
    "fondue": lambda: fondue(lambda n: 0.3 * n, start=2),
    "elbow": lambda: elbow({1: 3.0, 2: 1.0, 3: 0.9}),
    "theory": lambda: theory.linear_vae_optimum(torch.tensor([4.0, 1.0]), gamma=0.5),
}


@pytest.mark.parametrize("name", RESULTS)
def test_the_figure_draws_itself_and_has_its_axes_named(name):
    import matplotlib.pyplot as plt

    result = RESULTS[name]()
    ax = result.plot()
    try:
        ax.get_figure(root=True).canvas.draw()
        assert ax.has_data()
        assert ax.get_xlabel() or ax.get_ylabel()
        assert result.to_dict()["kind"] == type(result).__name__
    finally:
        plt.close("all")


def test_the_figure_of_truncation_has_a_panel_for_each_measure_with_every_subset():
    import matplotlib.pyplot as plt

    result = truncation(posterior())
    panels = result.plot().axes
    assert [ax.get_title(loc="left") or ax.get_title() for ax in panels] == [
        "total correlation", "mutual information",
    ]  # fmt: skip
    for ax, measure in zip(panels, ("total correlation", "mutual information"), strict=True):
        table = result.table[measure]
        assert [label.get_text() for label in ax.get_xticklabels()] == list(table)
        means, samples = ([bar.get_height() for bar in container] for container in ax.containers)
        assert list(zip(means, samples, strict=True)) == list(table.values())
        floors = [line.get_ydata()[0] for line in ax.get_lines()]
        assert floors == pytest.approx(list(result.floors[measure].values()))
    _, own = plt.subplots()
    assert result.plot(own) is own
    assert own.has_data()
    plt.close("all")


def test_the_answer_of_fondue_is_marked():
    import matplotlib.pyplot as plt

    ax = RESULTS["fondue"]().plot()
    assert "3 latents" in [text.get_text() for text in ax.texts]
    plt.close("all")


def test_twonn_has_no_curve_to_draw():
    with pytest.raises(Undefined, match="no figure"):
        intrinsic_dimension(normal(60, 3), method="twonn").plot()
