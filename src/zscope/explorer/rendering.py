"""How observations are sent to the page: pictures as bytes, vectors as numbers."""

from base64 import b64encode
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zscope.data.dataset import Dataset
from zscope.errors import ConfigError
from zscope.layout import Layout

__all__ = ["LARGE", "SMALL", "Renderer"]

SMALL, LARGE = 96, 512
"""The largest side, in pixels, of a picture among others and of a single picture."""
LONG = 4096
"""Numbers of a row, of which more are not drawn one by one."""


class Renderer:
    """Renders the observations of a dataset, with one range of values for the whole session.

    Pictures of bytes and of numbers from 0 to 1 are shown as they are, numbers from -1 to 1
    with 0 as grey, and other numbers between the smallest and the largest of the data.

    Where the `layout` of latent maps has three axes of places, observations are videos, (colours x)
    frames x height x width, of which one frame is shown.
    """

    def __init__(self, data: Dataset, layout: Layout | None = None) -> None:
        self.shape, self.features = data.shape, list(data.feature_names)
        self.picture, self.scaling = len(data.shape) == 3, data.scaling
        axes = 0 if layout is None else len(layout.places)
        self.frames = data.shape[-3] if axes == 3 and len(data.shape) > 2 else 0
        if self.frames:
            self.picture, self.shape = True, (*data.shape[:-3], *data.shape[-2:])
            self.shape = self.shape if len(self.shape) == 3 else (1, *self.shape)
        rows = np.unique(np.linspace(0, len(data) - 1, min(256, len(data))).astype(int))
        x = data.batch(rows)
        self.low, self.high = float(x.min()), float(x.max())
        if self.picture:
            for low, high in ((0.0, 1.0), (-1.0, 1.0)):
                if low <= self.low and self.high <= high:
                    self.low, self.high = low, high
                    break
        if self.low == self.high:
            self.high = self.low + 1

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "picture" if self.picture else "row",
            "shape": list(self.shape),
            "features": self.features,
            "low": self.low,
            "high": self.high,
            "frames": self.frames,
            # To show the values of vectors, which are those that the model sees.
            "units": None
            if self.scaling is None
            else {"mean": list(self.scaling.mean), "scale": list(self.scaling.scale)},
        }

    def frame(self, number: int) -> int:
        """A frame of the videos, or 0 for what has none."""
        if number and number >= self.frames:
            raise ConfigError(
                f"explorer: there is no frame {number}: an observation has "
                f"{self.frames or 'no'} frames. Was the link made for other data?"
            )
        return number

    def render(
        self,
        x: Tensor,
        *,
        most: int = SMALL,
        exact: bool = False,
        frame: int = 0,
        long: bool = True,
    ) -> list[dict[str, Any]]:
        """One entry for each observation.

        A picture is {width, height, channels, bytes}: base64 of rows of pixels, 1 byte (grey)
        or 3 (red, green, blue) each, averaged so that no side is longer than `most` pixels; of a
        video it is one `frame`. A vector is {values}, as the model sees them, and of sound one
        channel after the other; unless `long` at most 4096 of each: the smallest and largest of
        each part. With `exact`, every observation is {shape, values}, with the numbers that the
        decoder returned, in the units of the data.
        """
        x = x.detach().cpu().float()
        if exact:
            x = x if self.scaling is None else self.scaling.restore(x)
            return [{"shape": list(one.shape), "values": one.flatten().tolist()} for one in x]
        if not self.picture:
            rows = x if long else _extremes(x)
            return [{"values": one.flatten().tolist()} for one in rows]
        x = self._at_frame(x, frame)
        if x.shape[1] not in (1, 3):
            # Neither grey nor colour: the channels are shown side by side.
            x = torch.cat(list(x.unsqueeze(2).unbind(1)), dim=3)
        x = _shrink(x, most)
        scaled = (x - self.low) / (self.high - self.low)
        pixels = (scaled.clamp(0, 1) * 255).round().to(torch.uint8).permute(0, 2, 3, 1)
        _, height, width, channels = pixels.shape
        return [
            {
                "width": width,
                "height": height,
                "channels": channels,
                "bytes": b64encode(one.contiguous().numpy().tobytes()).decode(),
            }
            for one in pixels
        ]

    def difference(self, x: Tensor, other: Tensor, *, most: int, frame: int = 0) -> Tensor:
        """|x - other| of two observations as a share of the range, mean over colours or channels: a
        map or a row."""
        shares = ((x - other).abs() / (self.high - self.low)).detach().cpu().float()
        if not self.picture:
            return _extremes(shares if shares.ndim == 2 else shares.mean(1))[0]
        return _shrink(self._at_frame(shares, frame).mean(1, keepdim=True), most)[0, 0]

    def _at_frame(self, x: Tensor, frame: int) -> Tensor:
        if not self.frames:
            return x
        x = x[..., frame, :, :]
        return x if x.ndim == 4 else x[:, None]


def _shrink(x: Tensor, most: int) -> Tensor:
    """Pictures averaged so that no side is longer than `most` pixels."""
    factor = -(-max(x.shape[2:]) // most)
    return x if factor <= 1 else torch.nn.functional.avg_pool2d(x, factor, ceil_mode=True)


def _extremes(rows: Tensor) -> Tensor:
    """Rows of many numbers as the smallest and largest of each part, which keeps the outline."""
    length = rows.shape[-1]
    if length <= LONG:
        return rows
    bounds = torch.linspace(0, length, LONG // 2 + 1).long().tolist()
    parts = [rows[..., a:b] for a, b in pairwise(bounds)]
    return torch.stack([end for part in parts for end in (part.amin(-1), part.amax(-1))], -1)
