"""How observations are sent to the page: pictures as bytes, vectors as numbers."""

from base64 import b64encode
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zscope.data.dataset import Dataset

__all__ = ["LARGE", "SMALL", "Renderer"]

SMALL, LARGE = 96, 512
"""The largest side, in pixels, of a picture among others and of a single picture."""


class Renderer:
    """Renders the observations of a dataset, with one range of values for the whole session.

    Pictures of bytes and of numbers from 0 to 1 are shown as they are, numbers from -1 to 1
    with 0 as grey, and other numbers between the smallest and the largest of the data.
    """

    def __init__(self, data: Dataset) -> None:
        self.shape, self.features = data.shape, list(data.feature_names)
        self.picture, self.scaling = len(data.shape) == 3, data.scaling
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
            # To show the values of vectors, which are those that the model sees.
            "units": None
            if self.scaling is None
            else {"mean": list(self.scaling.mean), "scale": list(self.scaling.scale)},
        }

    def render(self, x: Tensor, *, most: int = SMALL, exact: bool = False) -> list[dict[str, Any]]:
        """One entry for each observation.

        A picture is {width, height, channels, bytes}: base64 of rows of pixels, 1 byte (grey)
        or 3 (red, green, blue) each, averaged so that no side is longer than `most` pixels.
        A vector is {values}, as the model sees them. With `exact`, every observation is {shape,
        values}, with the numbers that the decoder returned, in the units of the data.
        """
        x = x.detach().cpu().float()
        if exact:
            x = x if self.scaling is None else self.scaling.restore(x)
            return [{"shape": list(one.shape), "values": one.flatten().tolist()} for one in x]
        if not self.picture:
            return [{"values": one.flatten().tolist()} for one in x]
        if x.shape[1] not in (1, 3):
            # Neither grey nor colour: the channels are shown side by side.
            x = torch.cat(list(x.unsqueeze(2).unbind(1)), dim=3)
        if (factor := -(-max(x.shape[2:]) // most)) > 1:
            x = torch.nn.functional.avg_pool2d(x, factor, ceil_mode=True)
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
