"""Figures and small pictures as data URLs, so that the page needs no other files."""

import base64
import io
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch.nn.functional as F
from torch import Tensor

__all__ = ["Drawing", "coloured", "draw", "lines", "row", "sheet", "strip"]

INCH = 112
"""CSS pixels for an inch of a figure: its smallest letters (`theme.SMALL`) have 11 pixels."""
LARGE = 400_000
"""Figures whose SVG has more bytes are saved as PNG, at a lower resolution if necessary."""
POINTS = 120
"""The largest number of features of a vector to draw."""
FEW = 7
"""Vectors with at most this many features are drawn as one line per feature."""
FONTS = re.compile(rb"(font-family: [^;\"]+)")
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a8a8a")


class Drawing(NamedTuple):
    """A figure as a data URL, with its size in CSS pixels."""

    address: str
    width: int
    height: int


def draw(drawing: Any, name: str) -> Drawing:
    """A matplotlib figure (or its axes), without a background, for light and dark pages."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    whole = drawing if hasattr(drawing, "savefig") else drawing.get_figure()
    try:
        style = DARK_PICTURES if whole.findobj(_is_picture) else DARK
        width, height = (round(INCH * side) for side in whole.get_size_inches())
        for part in (whole, *whole.axes):
            part.patch.set_visible(False)
        # With a fixed salt, the same figure gives the same bytes. Letters as text, not as outlines:
        # less than half the bytes, and a sixth less to draw.
        settings: Any = {"svg.hashsalt": name, "svg.fonttype": "none"}
        with mpl.rc_context(settings):
            content = _as_svg(whole)
        for dpi in (240, 120, 72):
            if len(content) <= LARGE:
                break
            content = _add_frame(_save(whole, format="png", dpi=dpi), width, height)
        # After the first tag, <svg ...>, so that the style is part of the figure wherever it goes.
        content = re.sub(rb"(<svg\b[^>]*>)", rb"\1" + style.encode(), content, count=1)
        return Drawing(address(content, "svg+xml"), width, height)
    finally:
        plt.close(whole)


DARK = (
    "<style>@media (prefers-color-scheme:dark){svg{filter:invert(.9) hue-rotate(180deg)}}</style>"
)
"""In the dark, colours keep their hue, and light ones become dark."""
DARK_PICTURES = (
    "<style>@media (prefers-color-scheme:dark){"
    "text{fill:#e8e6e1!important}[style*='stroke: #222222']{stroke:#e8e6e1!important}"
    "[style*='fill: #222222']{fill:#e8e6e1!important}}</style>"
)
"""Pictures of data keep their colours: only letters and lines become light."""


def _is_picture(artist: Any) -> bool:
    return bool(artist.get_gid() == "pictures")


def _as_svg(figure: Any) -> bytes:
    """The canvas draws once; `savefig` would draw twice, the first time to no effect here.

    Where the page is read, the fonts of this machine may be missing: others like them follow.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    memory = io.BytesIO()
    canvas: Any = FigureCanvasSVG(figure)
    canvas.print_svg(memory, metadata={"Date": None})
    return FONTS.sub(rb"\1, Arial, Helvetica, sans-serif", memory.getvalue())


def _save(figure: Any, **options: Any) -> bytes:
    memory = io.BytesIO()
    figure.savefig(memory, **{"transparent": True, **options})
    return memory.getvalue()


def _add_frame(png: bytes, width: int, height: int) -> bytes:
    """A PNG inside an SVG, which follows the colours of the page too."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">'
        f'<image width="{width}" height="{height}" href="{address(png, "png")}"/></svg>'
    ).encode()


def address(content: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def strip(observations: Tensor) -> str:
    """Pictures side by side as one PNG; vectors as lines.

    Vectors with few features are drawn as one line per feature, from the first vector to the
    last; longer ones as one line per vector, all in one chart.
    """
    values = observations.detach().numpy().astype(float)
    if values.ndim == 4:
        return sheet(values[None])
    values = values.reshape(len(values), -1)
    return lines(values.T, COLOURS) if values.shape[1] <= FEW else lines(values)


def sheet(pictures: np.ndarray) -> str:
    """Pictures (rows x columns x channels x height x width) as one PNG with narrow gaps.

    What is not a number is drawn as 0.
    """
    pictures = np.where(np.isfinite(pictures), pictures, 0.0)
    low, high = float(pictures.min()), float(pictures.max())
    if low < -0.05 or high > 1.05:
        pictures = (pictures - low) / ((high - low) or 1.0)
    channels = pictures.shape[2]
    if channels not in (1, 3, 4):
        pictures = pictures.mean(2, keepdims=True)
    pictures = np.moveaxis(pictures[:, :, :3], 2, -1)
    down, across, height, width, _ = pictures.shape
    # The page shows pictures small: large ones are subsampled.
    every = max(1, -(-max(height, width) // 96))
    pictures = pictures[:, :, ::every, ::every]
    height, width = pictures.shape[2:4]
    gap = max(1, width // 16)
    paper = np.zeros((down * (height + gap) - gap, across * (width + gap) - gap, 4), np.uint8)
    pixels = (255 * pictures.clip(0, 1)).astype(np.uint8)
    for row in range(down):
        for column in range(across):
            top, left = row * (height + gap), column * (width + gap)
            cell = paper[top : top + height, left : left + width]
            cell[..., :3], cell[..., 3] = pixels[row, column], 255
    return address(_png(paper), "png")


def coloured(maps: Tensor, *, signed: bool = True) -> Tensor:
    """Maps (... x height x width) of values from -1 to 1, or 0 to 1, in colours (... x 3 x ...).

    Few shades, since a page has many maps and each shade makes its files larger.
    """
    from zscope.plots import theme

    shades = 48
    share = (maps + 1) / 2 if signed else maps
    number = (share.clamp(0, 1) * shades).round().long()
    colours = theme.diverging() if signed else theme.sequential()
    palette = np.array([colours(k / shades)[:3] for k in range(shades + 1)])
    return Tensor(palette)[number].movedim(-1, -3)


def row(pictures: Tensor, side: int) -> str:
    """Pictures (n x colours x height x width, from 0 to 1) side by side, as one PNG.

    All have the same size, the longer side as given, so that rows of pictures and of smaller maps
    line up on a page.
    """
    height, width = pictures.shape[2:]
    scale = side / max(height, width)
    sizes = max(1, round(scale * height)), max(1, round(scale * width))
    if scale < 1:
        pictures = F.adaptive_avg_pool2d(pictures, sizes)
    else:
        pictures = F.interpolate(pictures, sizes, mode="nearest")
    if pictures.shape[1] not in (1, 3):
        pictures = pictures.mean(1, keepdim=True)
    cells = pictures.expand(-1, 3, -1, -1).clamp(0, 1).permute(0, 2, 3, 1).numpy()
    gap = side // 16
    paper = np.zeros((sizes[0], len(cells) * (sizes[1] + gap) - gap, 4), np.uint8)
    for k, cell in enumerate(cells):
        left = k * (sizes[1] + gap)
        paper[:, left : left + sizes[1], :3] = (255 * cell).round()
        paper[:, left : left + sizes[1], 3] = 255
    return address(_png(paper), "png")


def _png(paper: np.ndarray) -> bytes:
    """Pixels (height x width x red, green, blue, opacity) as a PNG, with a palette if that will do.

    Maps have few colours, and take a quarter of the bytes with a palette.
    """
    from PIL import Image  # matplotlib needs it too

    packed = np.ascontiguousarray(paper).view(np.uint32)[:, :, 0]
    colours, number = np.unique(packed, return_inverse=True)
    memory = io.BytesIO()
    if len(colours) > 256:
        Image.fromarray(paper).save(memory, "png")
        return memory.getvalue()
    palette = colours.view(np.uint8).reshape(-1, 4)
    size = packed.shape[1], packed.shape[0]
    picture = Image.frombytes("P", size, number.astype(np.uint8).tobytes())
    picture.putpalette(palette[:, :3].tobytes())
    picture.save(memory, "png", transparency=palette[:, 3].tobytes())
    return memory.getvalue()


def lines(
    vectors: np.ndarray, colours: Sequence[str] = (), width: int = 240, height: int = 56
) -> str:
    """Vectors as lines in one chart, in these colours or from blue (first) to red (last)."""
    features = vectors.shape[1]
    columns = np.unique(np.linspace(0, features - 1, min(features, POINTS)).round().astype(int))
    vectors = vectors[:, columns]
    low, high = float(vectors.min()), float(vectors.max())
    y = height - 4 - (height - 8) * (vectors - low) / ((high - low) or 1.0)
    x = np.linspace(4, width - 4, len(columns))
    polylines = []
    for row, colour in zip(y, colours or blue_to_red(len(y)), strict=False):
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, row, strict=True))
        polylines.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.4"/>'
        )
    content = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}">{"".join(polylines)}</svg>'
    )
    return address(content.encode(), "svg+xml")


def blue_to_red(count: int) -> list[str]:
    first, last = np.array([0x2B, 0x83, 0xBA]), np.array([0xD5, 0x5E, 0x00])
    shades = first + np.linspace(0, 1, count)[:, None] * (last - first)
    return ["#" + "".join(f"{round(part):02x}" for part in shade) for shade in shades]
