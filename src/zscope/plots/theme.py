"""The theme of all figures: sizes, fonts and colours. The user's settings are not changed.

`themed` wraps a drawing function, so that the theme applies inside it only. Text is
sans-serif, 8 points at the printed size (a column is 3.4 inches wide, a page 7), and colours
can be distinguished with any colour vision and in greyscale: categories by Okabe & Ito (up
to 7) or Petroff (up to 10), amounts from light to dark, signed amounts in blue and red with
white at 0.

Okabe & Ito, "Color universal design", 2008. Petroff, "Accessible color sequences for data
visualization", arXiv:2107.02270. Lightness and chroma are spaced evenly in Oklab (Ottosson,
"A perceptual color space for image processing", 2020).
"""

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, wraps
from pathlib import Path
from textwrap import wrap
from typing import Any, ParamSpec, TypeVar

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.figure import Figure

from zscope.errors import ConfigError
from zscope.files import write_whole

__all__ = ["categories", "diverging", "save", "sequential", "theme", "themed"]

P = ParamSpec("P")
T = TypeVar("T")

COLUMN, PAGE = 3.4, 7.0  # inches

INK = "#222222"
GREY = "#8a8a8a"
FAINT = "#d9d9d9"
BLUE, RED, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, YELLOW = "#E69F00", "#56B4E9", "#F0E442"

OKABE_ITO = (BLUE, RED, GREEN, PURPLE, ORANGE, SKY, YELLOW)
PETROFF = (
    *("#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6"),
    *("#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd"),
)

SMALL, NORMAL, LARGE = 7.1, 8.0, 9.0  # points


@cache
def settings() -> dict[str, Any]:
    return {
        "figure.facecolor": "white",
        "figure.dpi": 150,
        "figure.max_open_warning": 0,
        "savefig.dpi": 300,
        "savefig.facecolor": "white",
        "savefig.bbox": None,
        "pdf.fonttype": 42,  # text stays text, in font types that journals accept
        "ps.fonttype": 42,
        "svg.fonttype": "path",
        "font.family": list(_fonts()),
        "font.size": NORMAL,
        "mathtext.fontset": "dejavusans",
        "text.color": INK,
        "text.usetex": False,
        "axes.titlesize": LARGE,
        "axes.titleweight": "normal",
        "axes.titlelocation": "left",
        "axes.titlepad": 5.0,
        "axes.labelsize": NORMAL,
        "axes.labelcolor": INK,
        "axes.labelpad": 3.0,
        "axes.edgecolor": INK,
        "axes.facecolor": "white",
        "axes.linewidth": 0.6,
        "axes.grid": False,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.unicode_minus": True,
        "axes.axisbelow": True,
        "axes.prop_cycle": mpl.rcsetup.cycler(color=OKABE_ITO),
        "xtick.labelsize": NORMAL,
        "ytick.labelsize": NORMAL,
        "xtick.color": INK,
        "ytick.color": INK,
        "xtick.direction": "out",
        "ytick.direction": "out",
        "xtick.major.size": 2.5,
        "ytick.major.size": 2.5,
        "xtick.major.width": 0.6,
        "ytick.major.width": 0.6,
        "xtick.major.pad": 2.5,
        "ytick.major.pad": 2.5,
        "xtick.minor.visible": False,
        "ytick.minor.visible": False,
        "legend.frameon": False,
        "legend.fontsize": NORMAL,
        "legend.handlelength": 1.4,
        "legend.borderaxespad": 0.2,
        "lines.linewidth": 1.3,
        "lines.markersize": 4.0,
        "lines.solid_capstyle": "round",
        "patch.linewidth": 0.6,
        "image.interpolation": "nearest",
        "image.origin": "upper",
        "image.aspect": "equal",
        "hatch.linewidth": 0.5,
        "hatch.color": GREY,
    }


@cache
def _load_backend() -> None:
    """Load the backend before the settings change.

    That of notebooks switches `interactive` on, which would be lost with the settings: figures
    would then no longer be shown below their cells.
    """
    plt.draw_if_interactive()  # type: ignore[no-untyped-call]


@contextmanager
def theme() -> Iterator[None]:
    """Apply the theme within a block."""
    _load_backend()
    values: Any = settings()
    with mpl.rc_context(values):
        yield


def themed(draw: Callable[P, T]) -> Callable[P, T]:
    """Apply the theme within a drawing function."""

    @wraps(draw)
    def wrapper(*args: P.args, **options: P.kwargs) -> T:
        with theme():
            return draw(*args, **options)

    return wrapper


def axes(ax: Axes | None, width: float = COLUMN, height: float = 2.4) -> Axes:
    """The given axes, or those of a new figure of this size in inches."""
    if ax is None:
        _, ax = plt.subplots(figsize=(width, height), layout="constrained")
    # Ticks are created when they are first drawn, where the theme no longer applies: their
    # style is therefore stored in the axes.
    parameters: Any = mpl.rcParams
    sides: list[Any] = ["x", "y"]
    for side in sides:
        name = f"{side}tick"
        ax.tick_params(
            axis=side,
            labelsize=parameters[f"{name}.labelsize"],
            labelfontfamily=parameters["font.family"],
            size=parameters[f"{name}.major.size"],
            width=parameters[f"{name}.major.width"],
            pad=parameters[f"{name}.major.pad"],
            color=INK,
            labelcolor=INK,
            direction="out",
        )
    return ax


def figure_of(ax: Axes) -> Figure:
    """The whole figure that the axes belong to."""
    figure = ax.get_figure(root=True)
    assert isinstance(figure, Figure)
    return figure


def title(ax: Axes, text: str, size: float = LARGE) -> None:
    """A title, wrapped to the width of the axes."""
    width = ax.get_position().width * figure_of(ax).get_size_inches()[0]
    ax.set_title("\n".join(wrap(text, max(24, int(width * 125 / size)))), fontsize=size)


def resize(ax: Axes, width: float, height: float) -> None:
    """Give the only axes of a figure this size in inches; `fit` then finds room for the rest."""
    figure = figure_of(ax)
    figure.set_layout_engine("none")
    whole = figure.get_size_inches()
    ax.set_position((0.0, 0.0, width / whole[0], height / whole[1]))


def fit(ax: Axes) -> None:
    """Shrink or widen the figure of a single `ax` to its content; the axes keep their size."""
    figure = figure_of(ax)
    if (engine := figure.get_layout_engine()) is not None:
        engine.execute(figure)
    figure.set_layout_engine("none")  # it would change the size of the axes
    content = figure.get_tightbbox()
    left, bottom, width, height = ax.get_position(original=True).bounds
    across, down = figure.get_size_inches()
    new_across, new_down = content.width + 0.1, content.height + 0.1
    figure.set_size_inches(new_across, new_down)
    ax.set_position(
        (
            (left * across - content.x0 + 0.05) / new_across,
            (bottom * down - content.y0 + 0.05) / new_down,
            width * across / new_across,
            height * down / new_down,
        )
    )


def panels(
    rows: int, columns: int, width: float = PAGE, height: float = 2.4, **options: Any
) -> tuple[Figure, np.ndarray]:
    """A figure with rows x columns axes, as a 2-D array."""
    figure, grid = plt.subplots(
        rows, columns, figsize=(width, height), layout="constrained", squeeze=False, **options
    )
    for ax in grid.flat:
        axes(ax)
    return figure, grid


def colorbar(
    image: Any, ax: Axes, label: str = "", *, share: float = 1.0, at: float = 1.03, **options: Any
) -> Any:
    """A slim colour bar beside `ax`: its height is `share` of that of the axes."""
    from matplotlib.ticker import MaxNLocator

    figure = figure_of(ax)
    if figure.get_layout_engine() is not None:
        # An inset of the axes, so that it has their height whatever their aspect.
        slim = 0.13 / max(0.5, ax.get_position().width * figure.get_size_inches()[0])
        options["cax"] = ax.inset_axes((at, (1 - share) / 2, slim, share))
    else:
        options["ax"] = ax
    bar = figure.colorbar(image, ticks=MaxNLocator(4), **options)
    bar.outline.set_visible(False)
    axes(bar.ax)
    bar.ax.tick_params(length=2, labelsize=SMALL)
    bar.set_label(label)
    return bar


def light_bar(image: Any, ax: Axes, label: str = "", *, share: float = 1.0) -> None:
    """A colour bar as part of `ax`: a gradient and a few numbers.

    Axes of its own, as those of `colorbar`, take nearly as long to draw as a whole heatmap.
    """
    from matplotlib.image import AxesImage
    from matplotlib.ticker import MaxNLocator, ScalarFormatter

    inch = 1 / max(0.5, ax.get_position(original=True).width * figure_of(ax).get_size_inches()[0])
    left, width, low = 1 + 0.06 * inch, 0.13 * inch, (1 - share) / 2
    place = (left, left + width, low, low + share)
    gradient = AxesImage(ax, cmap=image.cmap, norm=image.norm, origin="lower", extent=place)
    smallest, largest = image.get_clim()
    gradient.set_data(np.linspace(smallest, largest, 128)[:, None])
    gradient.set_transform(ax.transAxes)
    gradient.set_clip_on(False)
    ax.add_artist(gradient)
    rounding = 1e-9 * (largest - smallest)
    ticks = [
        float(tick)
        for tick in MaxNLocator(4).tick_values(smallest, largest)
        if smallest - rounding <= tick <= largest + rounding
    ]
    numbers = ScalarFormatter()
    numbers.create_dummy_axis()
    axis: Any = numbers.axis
    axis.set_view_interval(smallest, largest)
    axis.set_data_interval(smallest, largest)
    words = numbers.format_ticks(ticks)
    style: Any = {"transform": ax.transAxes, "va": "center", "color": INK, "gid": "colour bar"}
    beside = left + width + 0.04 * inch
    for tick, word in zip(ticks, words, strict=True):
        height = low + share * (tick - smallest) / (largest - smallest)
        ax.text(beside, height, word, fontsize=SMALL, **style)
    if note := " ".join(part for part in (label, numbers.get_offset()) if part):
        beyond = beside + (0.62 * SMALL * max(map(len, words), default=0) / 72 + 0.04) * inch
        ax.text(beyond, 0.5, note, rotation=90, fontsize=NORMAL, **style)


def save(figure: Figure | Axes, path: str | Path, **options: Any) -> Path:
    """Save a figure in the format of the suffix of `path` (.png, .pdf, .svg)."""
    path = Path(path)
    check_format(path)
    figure = figure if isinstance(figure, Figure) else figure_of(figure)
    memory = io.BytesIO()
    with theme():
        figure.savefig(memory, **{"format": path.suffix[1:].lower(), **options})
    write_whole(path, memory.getvalue())
    return path


def check_format(path: Path) -> None:
    """Refuse the name of a figure that is in no known format."""
    known = FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in known:
        raise ConfigError(
            f"plots: {path} ends in {path.suffix or 'nothing'}; figures are saved as "
            f"{', '.join(sorted(known))}. Name the file figure.png, .pdf or .svg."
        )


def categories(count: int) -> list[Any]:
    """`count` distinct colours; more than ten are taken from a colour map."""
    if count <= len(OKABE_ITO):
        return list(OKABE_ITO[:count])
    if count <= len(PETROFF):
        return list(PETROFF[:count])
    return [mpl.colormaps["viridis"](share) for share in np.linspace(0, 1, count)]


@cache
def sequential() -> Colormap:
    """Light to dark blue for amounts: 0 is nearly white, and lightness falls evenly."""
    return _map("zscope-amount", [_oklch(share, 250, 0.14) for share in np.linspace(0, 1, 65)])


@cache
def diverging() -> Colormap:
    """Blue below 0, white at 0, red above: equally dark at equal distances from 0."""
    below = [_oklch(share, 250, 0.15) for share in np.linspace(1, 0, 65)]
    above = [_oklch(share, 25, 0.19) for share in np.linspace(0, 1, 65)]
    return _map("zscope-signed", below + above[1:])


def symmetric_limit(values: Any, share: float = 1.0) -> float:
    """A limit (never 0) that a fraction `share` of |values| does not exceed."""
    size = np.abs(np.asarray(values, dtype=float)).ravel()
    return float(np.quantile(size, share)) or float(size.max(initial=0)) or 1.0


def is_dark(colour: Any) -> bool:
    """Whether white text has more contrast with this colour than black text."""
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in mpl.colors.to_rgb(colour)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.3


def number(value: float, digits: int = 2) -> str:
    """A number with fixed digits, a true minus sign, and no minus sign before zero."""
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return text.replace("-", "\u2212")


def labels(count: int, names: Sequence[Any] | None) -> list[str]:
    """The names as texts, or the numbers from 0 if there are none."""
    return [str(name) for name in (range(count) if names is None else names)]


def array(values: Any) -> np.ndarray:
    """A tensor, array or list as a NumPy array."""
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)


def _fonts() -> tuple[str, ...]:
    """The installed sans-serif fonts, best first; DejaVu Sans comes with matplotlib."""
    from matplotlib.font_manager import fontManager

    wanted = ("Helvetica Neue", "Helvetica", "Arial", "Liberation Sans")
    installed = set(fontManager.get_font_names())
    return (*(name for name in wanted if name in installed), "DejaVu Sans")


def _map(name: str, colours: list[tuple[float, ...]]) -> Colormap:
    return LinearSegmentedColormap.from_list(name, colours, N=257)


def _oklch(share: float, hue: float, chroma: float) -> tuple[float, ...]:
    """A colour of this hue in sRGB (0 to 1): nearly white at share 0, dark at 1."""
    lightness = 0.985 - 0.585 * share
    # Chroma rises quickly and falls off towards the dark end, where sRGB has less of it.
    chroma = chroma * np.sin(np.pi / 2 * min(1.0, 1.25 * share) ** 1.1) * (1 - 0.2 * share**2)
    a, b = chroma * np.cos(np.radians(hue)), chroma * np.sin(np.radians(hue))
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    middle = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * middle + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * middle - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * middle + 1.7076147010 * short,
    )
    return tuple(
        float(np.clip(12.92 * c if c <= 0.0031308 else 1.055 * c ** (1 / 2.4) - 0.055, 0, 1))
        for c in linear
    )
