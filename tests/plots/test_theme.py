"""The theme: colours with the promised properties, files that can be used, nothing leaked."""

import subprocess
import sys

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

from zscope import plots
from zscope.plots import theme


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def lightness(colours):
    """CIE L* of sRGB colours, 0 to 100."""
    rgb = np.asarray(colours)[:, :3]
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    luminance = linear @ [0.2126, 0.7152, 0.0722]
    return np.where(luminance > 0.008856, 116 * np.cbrt(luminance) - 16, 903.3 * luminance)


def test_amounts_darken_evenly():
    light = lightness(theme.sequential()(np.linspace(0, 1, 101)))
    steps = -np.diff(light)
    assert light[0] > 95
    assert light[-1] < 40
    assert (steps > 0).all()
    assert steps.max() < 1.6 * steps.mean()


def test_signed_amounts_are_white_at_zero_and_equally_dark_on_both_sides():
    colours = theme.diverging()(np.linspace(0, 1, 101))
    light = lightness(colours)
    assert light[50] > 95
    assert light.argmax() == 50
    assert np.abs(light - light[::-1]).max() < 4
    blue, red = colours[5], colours[95]
    assert blue[2] > blue[0] + 0.3
    assert red[0] > red[2] + 0.3


def test_blue_and_red_stay_apart_without_red_or_green_cones():
    """Simulated with the matrices of Viénot, Brettel & Mollon (1999) on linear RGB."""
    blue, red = theme.diverging()(0.1)[:3], theme.diverging()(0.9)[:3]
    for matrix in (
        [[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]],
        [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]],
    ):
        simulated = [np.array(matrix) @ np.array(c) ** 2.2 for c in (blue, red)]
        assert (
            np.abs(np.clip(simulated[0], 0, 1) ** 0.45 - np.clip(simulated[1], 0, 1) ** 0.45).max()
            > 0.3
        )


@pytest.mark.parametrize("count", [1, 2, 7, 8, 10, 30])
def test_categories_are_all_different(count):
    colours = [mpl.colors.to_rgb(c) for c in theme.categories(count)]
    assert len(set(colours)) == count


def test_text_is_light_on_dark_colours_only():
    assert theme.is_dark("#00457c")
    assert not theme.is_dark("white")
    assert not theme.is_dark("#bcd4f0")


def test_numbers_have_a_true_minus_and_no_negative_zero():
    assert theme.number(-1.234) == "\u22121.23"
    assert theme.number(-0.001) == "0.00"
    assert theme.number(12.345, 1) == "12.3"


def test_drawing_leaves_the_settings_of_the_user_alone():
    before = dict(mpl.rcParams)
    for draw in (
        lambda: plots.heatmap(np.eye(3)),
        lambda: plots.bars([1, 2]),
        lambda: plots.lines({"a": [1, 2]}),
        lambda: plots.image_grid(np.zeros((2, 2, 1, 4, 4))),
    ):
        draw()
    with pytest.raises(plots_error()):
        plots.bars([])
    assert dict(mpl.rcParams) == before


def plots_error():
    from zscope.errors import ConfigError

    return ConfigError


def test_the_settings_of_the_user_do_not_change_our_figures():
    with mpl.rc_context({"font.size": 30, "axes.spines.top": True, "xtick.labelsize": 40}):
        ax = plots.bars([1, 2, 3], x="latent")
    ax.figure.canvas.draw()
    assert ax.xaxis.label.get_fontsize() == theme.NORMAL
    assert {text.get_fontsize() for text in ax.get_xticklabels()} == {theme.NORMAL}
    assert not ax.spines["top"].get_visible()


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_figures_are_saved_in_every_usual_format(tmp_path, ending):
    ax = plots.heatmap([[1.0, -0.5], [0.2, 0.3]], title="σ and β ≤ 1", rows="from", columns="to")
    file = plots.save(ax, tmp_path / "deep" / f"figure.{ending}")
    start = file.read_bytes()[:300]
    assert {"png": b"\x89PNG", "svg": b"<svg", "pdf": b"%PDF"}[ending] in start or b"<?xml" in start
    assert file.stat().st_size > 1000


def test_pdf_text_is_kept_as_type_that_journals_accept(tmp_path):
    file = plots.save(plots.bars([1, 2], x="latent"), tmp_path / "a.pdf")
    assert b"/Type3" not in file.read_bytes()


def test_many_open_figures_give_no_warning():
    for _ in range(25):
        plots.bars([1.0])


def test_axes_of_the_user_are_drawn_into_and_returned():
    _, axes = plt.subplots(1, 2)
    assert plots.bars([1, 2], ax=axes[1]) is axes[1]
    assert plots.heatmap(np.eye(2), ax=axes[0]) is axes[0]
    assert len(plt.get_fignums()) == 1
    assert len(axes[1].patches) == 2


def test_importing_the_package_of_plots_loads_no_plot_library():
    code = "import sys, zscope.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_listed_figure_exists_and_unknown_ones_are_named():
    for name in plots.__all__:
        assert callable(getattr(plots, name))
    with pytest.raises(AttributeError, match="pie"):
        _ = plots.pie
