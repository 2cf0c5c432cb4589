"""Figures: each function takes arrays or a result, and returns axes or a figure.

    from zscope import plots

    ax = plots.heatmap(matrix, rows="intervened latent", columns="observed latent")
    plots.save(ax, "matrix.pdf")

All share one theme (`zscope.plots.theme`), which applies only while they draw. The functions,
and matplotlib, are loaded when they are first used.
"""

from typing import Any

from zscope.lazy import load_attribute

_HOMES = {
    "bars": "amounts",
    "histogram": "amounts",
    "histograms": "amounts",
    "binned_panels": "amounts",
    "paired_bars": "amounts",
    "causal_graph": "graphs",
    "causal_graphs": "graphs",
    "curves_and_gap": "curves",
    "lines": "curves",
    "score_panels": "curves",
    "step_lines": "curves",
    "traversal_errors": "curves",
    "traversal_panels": "curves",
    "arrows": "planes",
    "clouds": "planes",
    "curvature_map": "maps",
    "decoded_map": "maps",
    "divergence_map": "maps",
    "drift_plane": "maps",
    "drift_steps": "maps",
    "magnitude_map": "maps",
    "map_figure": "maps",
    "heatmap": "matrices",
    "rank_correlations": "families",
    "clear_differences": "differences",
    "rate_distortion_plane": "rates",
    "score_lines": "families",
    "score_scatter": "families",
    "heatmaps": "matrices",
    "film_strip": "paths",
    "path_figure": "paths",
    "path_plane": "paths",
    "path_space": "paths",
    "hybrid_grid": "pictures",
    "image_grid": "pictures",
    "segment_grid": "pictures",
    "traversals": "pictures",
    "counted_histogram": "regime",
    "legend_below": "regime",
    "lines_and_bars": "regime",
    "lines_over": "studies",
    "panel_grid": "studies",
    "scatter_groups": "studies",
    "stacked_bars": "studies",
    "strips": "studies",
    "structure_panel": "panels",
    "training_curves": "training",
    "save": "theme",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    return load_attribute(__name__, name, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
