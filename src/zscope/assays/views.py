"""Views of maps: recordings whose columns are the channels of latents that are maps.

Most assays ask about the columns of a table of codes. Of latents with channels and places, single
numbers are not what anyone asks about; each assay says what it is given instead (`Entry.maps`):

    places     rows are places, the same number of each picture and 20,000 at most; columns are
               channels. Rows of one picture follow each other: they are not independent, so that
               intervals and chance levels keep them `together`.
    pooled     rows are pictures; columns are the means of channels over their places ("mean"), or
               means and standard deviations ("mean+std"). Where in the picture something is, is
               lost.
    offsets    a model of its own, with a latent for each channel: what is added to the channel at
               all places, in units of its standard deviation, starting from one picture.

The columns of a view are in use where the channels are (`recording.usage`).
"""

from typing import Any, Literal, cast

import torch
from torch import Tensor

from zscope.assays.entry import Entry
from zscope.assays.pictures import channel_scales, check_pictures, independent_places
from zscope.autoencoder import Autoencoder, Posterior
from zscope.derived import ChannelOffsets
from zscope.errors import ConfigError
from zscope.layout import Layout
from zscope.randomness import named_generator
from zscope.recording import Recording
from zscope.usage import Usage, usage_of_codes

__all__ = [
    "POOLS", "Pool", "check_pool", "column_names", "column_variances", "is_of_places",
    "rows_text", "rows_together", "view_of",
]  # fmt: skip

Pool = Literal["mean", "mean+std"]
POOLS = ("mean", "mean+std")
MOST_ROWS = 20_000
VIEWS = frozenset({"places", "pooled", "offsets"})


def view_of(entry: Entry, recording: Recording, pool: Pool | None = None) -> Recording:
    """What an assay is given of a recording: the recording itself, or a view of its maps."""
    if recording.layout is None or entry.map_kind not in VIEWS:
        return recording

    def make() -> Recording:
        if entry.map_kind == "pooled":
            return _pooled(recording, pool)
        if entry.map_kind == "places":
            check_pictures(len(recording), entry.attribute)
            return _places(recording)
        return _offsets(recording)

    return cast(Recording, recording.share(("view", entry.map_kind, pool), make))


def column_names(entry: Entry, layout: Layout, pool: Pool | None = None) -> list[str]:
    """What the columns of a view are called."""
    names = layout.unit_names("channel")
    if entry.map_kind != "pooled":
        return names
    means = [f"mean of {name}" for name in names]
    return [*means, *(f"std of {name}" for name in names)] if pool == "mean+std" else means


def column_variances(entry: Entry, recording: Recording) -> Tensor:
    """The posterior variance of each column of a comparison; of a channel, its mean over places.

    The mean of a channel has a smaller one, which would make a channel of noise look precise.
    """
    variance, layout = recording.posterior.variance, recording.layout
    if layout is None or entry.map_kind != "pooled":
        return variance
    return variance.reshape(len(variance), layout.channels, -1).mean(2)


def rows_text(entry: Entry, recording: Recording, pool: Pool | None = None) -> str:
    """What the rows are that an assay is given, and what those are worth that are places."""
    if recording.layout is None or entry.map_kind not in ("places", "every", "pooled"):
        return ""
    if entry.map_kind == "pooled":
        what = "means and standard deviations" if pool == "mean+std" else "means"
        return (
            f"{len(recording):,} pictures; columns are {what} of channels over their places, so "
            "that positions are lost"
        )
    pictures, each = recording.map_summary.pictures, recording.layout.positions
    if entry.map_kind == "places":
        view = view_of(entry, recording)
        each = rows_together(view)
        pictures = len(view) // each
    worth = pictures * independent_places(recording.map_summary).clamp(max=each)
    low, high = float(worth.min()), float(worth.max())
    few = f"{low:,.0f}" if f"{low:.0f}" == f"{high:.0f}" else f"{low:,.0f} to {high:,.0f}"
    return (
        f"{pictures * each:,} places of {pictures:,} pictures, worth {few} independent ones "
        "(by channel)"
    )


def check_pool(who: str, pool: Any, recording: Recording) -> None:
    """Refuse a way of pooling that there is not, and pooling of vectors."""
    layout = recording.layout
    if layout is None:
        raise ConfigError(
            f"{who}: pool={pool!r}, but the {recording.latents} latents are a vector, without "
            "places. Leave pool out, or give a layout if they are maps."
        )
    if pool not in POOLS:
        raise ConfigError(
            f"{who}: pool={pool!r}; without pooling there are {layout.latents:,} columns. Pool "
            f"places: pool='mean' ({layout.channels} columns) or pool='mean+std'."
        )


def rows_together(recording: Recording) -> int:
    """How many consecutive rows of a recording belong to one picture; 1 but in a view of places."""
    return int(recording.shared.get("rows together", 1))


def is_of_places(recording: Recording) -> bool:
    """Whether the rows of a recording are places, those of a picture one after the other."""
    return "rows together" in recording.shared


def _places(recording: Recording) -> Recording:
    layout, posterior = cast(Layout, recording.layout), recording.posterior
    pictures = torch.arange(len(posterior))
    if len(posterior) > MOST_ROWS // 2:  # at least two places of each picture
        order = torch.randperm(len(posterior), generator=_generator(recording, "pictures"))
        pictures = order[: MOST_ROWS // 2].sort().values
    each = min(layout.positions, MOST_ROWS // len(pictures))
    generator = _generator(recording, "places")
    places = torch.stack(
        [torch.randperm(layout.positions, generator=generator)[:each] for _ in pictures]
    )

    def rows(values: Tensor) -> Tensor:
        maps = values[pictures].reshape(len(pictures), layout.channels, layout.positions)
        chosen = maps.gather(2, places[:, None].expand(-1, layout.channels, -1))
        return chosen.transpose(1, 2).flatten(0, 1).contiguous()

    std = None if posterior.std is None else rows(posterior.std)
    view = _like(recording, Posterior(rows(posterior.mean), std), of_pictures=False)
    view.shared["rows together"] = each
    return view


def _pooled(recording: Recording, pool: Pool | None) -> Recording:
    layout, posterior = cast(Layout, recording.layout), recording.posterior
    shape = len(posterior), layout.channels, layout.positions
    maps = posterior.mean.double().reshape(shape)
    mean = maps.mean(2)
    if pool == "mean+std":
        both = torch.cat([mean, maps.std(2, correction=0)], 1).to(posterior.mean)
        return _like(recording, Posterior(both), usage=usage_of_codes(both))
    # Noise at different places is independent.
    std = None
    if posterior.std is not None:
        spread = posterior.variance.double().reshape(shape).sum(2).sqrt() / layout.positions
        std = spread.to(posterior.mean)
    return _like(recording, Posterior(mean.to(posterior.mean), std))


def _offsets(recording: Recording) -> Recording:
    layout = cast(Layout, recording.layout)
    mean, scale = channel_scales(recording.map_summary)
    maps = recording.codes.double().reshape(len(recording), layout.channels, layout.positions)
    nearest = int((maps - mean[:, None]).square().sum((1, 2)).argmin())
    model = ChannelOffsets(recording.autoencoder, layout, recording.codes[nearest], scale)
    return _like(recording, Posterior(model.offsets(recording.codes)), model=model)


def _like(
    recording: Recording,
    posterior: Posterior,
    *,
    model: Autoencoder | None = None,
    of_pictures: bool = True,
    usage: Usage | None = None,
) -> Recording:
    """A recording of other codes, of the same pictures or of their places."""
    view = Recording(
        model,
        posterior,
        recording.dataset if of_pictures else None,
        recording.rows if of_pictures else None,
        recording.seed,
        recording.factors if of_pictures else None,
    )
    # A column is in use where its channel is, which is not measured again.
    vars(view)["usage"] = usage or recording.usage
    return view


def _generator(recording: Recording, name: str) -> torch.Generator:
    return named_generator(recording.seed, f"view: {name}")
