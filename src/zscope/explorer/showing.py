"""How observations travel to the page: pictures as bytes, rows as numbers."""

from base64 import b64encode
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zscope.data.dataset import Dataset

SMALL, LARGE = 96, 512
"""Pixels along the longer side of a picture in a sheet, and of one shown alone."""


class Look:
    """What observations of some data look like: their kind, and the range of their values.

    Bytes and numbers from 0 to 1 are shown as they are, numbers from -1 to 1 with 0 as
    grey, any other range between the extremes of the data. One range for the whole
    session: what looks brighter is brighter.
    """

    def __init__(self, data: Dataset) -> None:
        self.shape = data.shape
        self.picture = len(data.shape) == 3
        rows = np.unique(np.linspace(0, len(data) - 1, min(256, len(data))).astype(int))
        seen = data.batch(rows)
        self.low, self.high = float(seen.min()), float(seen.max())
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
            "low": self.low,
            "high": self.high,
        }

    def show(self, x: Tensor, *, most: int = SMALL, exact: bool = False) -> list[dict[str, Any]]:
        """One entry for each observation.

        A picture is {width, height, channels, bytes}: base64 of rows of pixels, 1 byte (grey)
        or 3 (red, green, blue) each, pixels averaged so that no side is longer than `most`.
        A row is {values}. `exact` gives {values} as the decoder returned them, with {shape}.
        """
        x = x.detach().cpu().float()
        if exact or not self.picture:
            return [
                {"shape": list(one.shape), "values": one.flatten().tolist()} if exact
                else {"values": one.flatten().tolist()}
                for one in x
            ]  # fmt: skip
        if x.shape[1] not in (1, 3):
            # Channels without a colour of their own stand side by side.
            x = torch.cat(x.split(1, dim=1), dim=3)
        if (factor := -(-max(x.shape[2:]) // most)) > 1:
            x = torch.nn.functional.avg_pool2d(x, factor, ceil_mode=True)
        share = (x - self.low) / (self.high - self.low)
        pixels = (share.clamp(0, 1) * 255).round().to(torch.uint8).permute(0, 2, 3, 1)
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
