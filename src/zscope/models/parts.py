"""The parts that any objective can be combined with, and which ones exclude each other.

likelihood × backbone × posterior × decoder × causal block × consistency penalty, each an
option of `zs.models.build`. A name such as `xcsae-4-i` fixes some of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from torch import nn

from zscope import files
from zscope.errors import ConfigError
from zscope.layout import Layout
from zscope.models import causal, consistency
from zscope.models.causal import HIDDEN, CausalBlock
from zscope.models.composed import Objective
from zscope.models.entry import Entry, Option, one_of, positive, positive_or_learned, whole, width
from zscope.models.ivae import ConditionalEncoder
from zscope.models.layers import Shape
from zscope.models.networks import BACKBONES, SMALLEST_SIDE, Backbone, Encoder
from zscope.models.objectives import LIKELIHOODS, POSTERIORS
from zscope.models.structural import LadderEncoder, StructuralDecoder

__all__ = [
    "BELONGS", "DECODING", "LOSS", "PARTS", "Assembly", "assemble", "check_parts",
    "layout_of", "penalty",
]  # fmt: skip

LATENTS = 10
"""Of a model whose latents are a vector, if their number is not given."""

DECODERS = ("hourglass", "structural", "adaptive", "ladder")
PENALTIES = ("none", *consistency.PENALTIES)

PARTS = {
    "backbone": Option(
        None,
        f"Networks: {', '.join(BACKBONES)}. Default: locatello for pictures above 16 x 16 "
        "(structural with a structural decoder), mlp for the rest.",
        one_of(BACKBONES),
    ),
    "likelihood": Option(
        None,
        f"p(x | z): {', '.join(LIKELIHOODS)}. Default: bernoulli for pictures, mse for rows.",
        one_of(LIKELIHOODS),
    ),
    "gamma": Option(1.0, "Variance of the gaussian likelihood, or 'learned'.", positive_or_learned),
    "reconstruction_weight": Option(
        1.0,
        "Weight of the reconstruction in the loss. With w, pictures of 1/w as many pixels keep "
        "the balance of the terms.",
        positive,
        quiet=True,
    ),
    "posterior": Option(
        None,
        f"What the encoder returns: {', '.join(POSTERIORS)}. The default depends on the objective.",
        one_of(POSTERIORS),
        quiet=True,
    ),
    "decoder": Option(
        "hourglass",
        f"How latents enter the decoder: {', '.join(DECODERS)}.",
        one_of(DECODERS),
        quiet=True,
    ),
    "variables": Option(
        None, "Number of variables that the latents are split into, for such decoders.", whole(1)
    ),
    "width": Option(
        None,
        "Units of the three hidden layers through which latents enter such decoders, or sizes "
        "of as many layers as are given; 48, or 96 from 128 pixels up.",
        width,
    ),
    "rungs": Option(
        None,
        "The same for the layers that read the latents off a ladder encoder; as width.",
        width,
        quiet=True,
    ),
    "start": Option(
        "constant",
        "What such decoders start from: constant (learned), or dense (the layers of an "
        "hourglass, which take all latents).",
        one_of(["constant", "dense"]),
        quiet=True,
    ),
    "block": Option(
        "none",
        "Between latents and decoder: none or causal.",
        one_of(["none", "causal"]),
        quiet=True,
    ),
    **causal.OPTIONS,
    "consistency": Option(
        "none", f"Penalty on inconsistent interventions: {', '.join(PENALTIES)}.",
        one_of(PENALTIES), quiet=True,
    ),
    **consistency.OPTIONS,
    "weights": Option(
        "torch", "Scheme of the initial weights: torch or xavier.", one_of(["torch", "xavier"])
    ),
    "seed": Option(0, "Seed of the initial weights.", whole(0, 2**64 - 1)),
}  # fmt: skip

# option -> (the part it belongs to, the choices of that part with which it has an effect)
BELONGS: dict[str, tuple[str, tuple[str, ...]]] = {
    "gamma": ("likelihood", ("gaussian",)),
    "variables": ("decoder", DECODERS[1:]),
    "width": ("decoder", DECODERS[1:]),
    "rungs": ("decoder", ("ladder",)),
    "start": ("decoder", DECODERS[1:]),
    **dict.fromkeys(causal.OPTIONS, ("block", ("causal",))),
    **dict.fromkeys(consistency.OPTIONS, ("consistency", PENALTIES[1:])),
    **{
        key: ("backbone", tuple(name for name, b in BACKBONES.items() if key in b.options))
        for backbone in BACKBONES.values()
        for key in backbone.options
    },
}
# Numbers that change nothing but the loss.
LOSS = ("reconstruction_weight",)
# Parts that only a model with a decoder has.
DECODING = (
    "likelihood", "gamma", "decoder", "variables", "width", "rungs", "start", "block",
    "consistency", "reconstruction_weight",
    *causal.OPTIONS, *consistency.OPTIONS,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Assembly:
    """The networks of a model and its latent variables."""

    encoder: nn.Module
    decoder: nn.Module | None
    block: CausalBlock | None
    groups: list[list[int]] | None
    layout: Layout | None = None


def assemble(
    entry: Entry,
    shape: Shape,
    latents: int,
    settings: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Assembly:
    """Networks for the chosen parts; `options` are those of the backbone."""
    options = _complete(options, latents, settings)
    backbone, kind = BACKBONES[settings["backbone"]], settings["decoder"]
    reading = POSTERIORS[settings["posterior"]]
    block = None
    if settings["block"] == "causal":
        # A function for each unit, which takes those before it.
        needed = 2 * latents**2 * settings["unit"] * HIDDEN
        files.check_memory("models", needed, f"a causal block of {latents} units")
        block = CausalBlock(
            latents,
            size=settings["unit"],
            steps=settings["gate_steps"],
            start=settings["gate_start"],
            rate=settings["gate_rate"],
            temperature=settings["gate_temperature"],
            cost=settings["edge_cost"],
        )
    inputs = latents if block is None else latents * block.size
    if not entry.decodes:
        return Assembly(_encoder(entry, shape, latents, settings, options), None, None, None)
    if kind == "hourglass":
        encoder = _encoder(entry, shape, latents, settings, options)
        decoder = backbone.decoder(shape, inputs, **options)
        layout = layout_of(entry, shape, settings)
        return Assembly(encoder, decoder, block, None, layout)
    variables = settings["variables"]
    longer = _with_layers(options, variables) if settings["backbone"] == "mlp" else dict(options)
    start, blocks, last = _decoder_blocks(entry, shape, settings, backbone, longer)
    activation = options.get("decoder_activation") or options["activation"]
    large = len(shape) == 3 and min(shape[1:]) >= 128
    hidden = _layers(settings["width"] or (96 if large else 48))
    structural = StructuralDecoder(
        inputs,
        variables,
        start,
        blocks,
        last,
        kind=kind,
        hidden=hidden,
        activation=activation,
        head=_head(backbone, shape, inputs, options) if settings["start"] == "dense" else None,
    )
    size = latents // variables
    # Every layer of an adaptive decoder gets all latents, so each of them is a variable.
    groups = None
    if kind != "adaptive":
        groups = [list(range(size * g, size * (g + 1))) for g in range(variables)]
    if kind == "ladder":
        assert backbone.encoder_blocks is not None
        encoder = LadderEncoder(
            shape,
            latents,
            variables,
            backbone.encoder_blocks(shape, **longer),
            readings=reading.outputs(latents) // latents,
            hidden=_layers(settings["rungs"]) if settings["rungs"] else hidden,
            activation=options["activation"],
        )
    else:
        encoder = _encoder(entry, shape, latents, settings, options)
    return Assembly(encoder, structural, block, groups)


def layout_of(entry: Entry, shape: Shape, settings: Mapping[str, Any]) -> Layout | None:
    """Channels and places of the latents, with a backbone whose latents are maps."""
    backbone = BACKBONES[settings["backbone"]]
    if backbone.layout is None:
        return None
    options = {key: settings[key] for key in backbone.options}
    return backbone.layout(shape, who=f"models: {entry.name}", **options)


def _layers(width: int | list[int]) -> list[int]:
    """The sizes of hidden layers, of which there are three alike if one number is given."""
    return [width] * 3 if isinstance(width, int) else width


def _head(
    backbone: Backbone, shape: Shape, inputs: int, options: Mapping[str, Any]
) -> nn.Sequential:
    """The layers of an hourglass decoder up to its first feature map."""
    layers = list(cast(nn.Sequential, backbone.decoder(shape, inputs, **options).layers))
    end = next(place for place, layer in enumerate(layers) if isinstance(layer, nn.Unflatten))
    return nn.Sequential(*layers[: end + 1])


def _complete(
    options: Mapping[str, Any], latents: int, settings: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The options of the backbone, with those that depend on the posterior filled in."""
    if "head" not in options:
        return options
    point = settings["posterior"] == "point"
    head = options["head"] or ([256, 128] if point else [128, 64])
    return {**options, "head": head, "bottleneck": None if point else latents}


def _encoder(
    entry: Entry,
    shape: Shape,
    latents: int,
    settings: Mapping[str, Any],
    options: Mapping[str, Any],
) -> nn.Module:
    outputs = POSTERIORS[settings["posterior"]].outputs(latents)
    encoder = BACKBONES[settings["backbone"]].encoder(shape, outputs, **options)
    if not entry.conditional:
        return encoder
    assert isinstance(encoder, Encoder)  # conditional models refuse maps
    return ConditionalEncoder(
        encoder, settings["auxiliary"], activation=options.get("activation", "relu")
    )


def penalty(settings: Mapping[str, Any]) -> Objective | None:
    """The consistency penalty, if one is set."""
    if settings["consistency"] == "none":
        return None
    options = {key: settings[key] for key in consistency.OPTIONS}
    return partial(consistency.PENALTIES[settings["consistency"]], **options)


def check_parts(
    entry: Entry, shape: Shape, latents: int | None, settings: Mapping[str, Any]
) -> int:
    """Raise if the chosen parts cannot be combined. Returns the number of latents.

    If it is not given, it is that of the maps, or `LATENTS`.
    """
    who, backbone = f"models: {entry.name}", settings["backbone"]
    if BACKBONES[backbone].pictures_only and (len(shape) != 3 or min(shape[1:]) < SMALLEST_SIDE):
        other = "backbone='mlp'" if "backbone" in entry.options else "another model, such as vae"
        raise ConfigError(
            f"models: the backbone {backbone} needs pictures of at least {SMALLEST_SIDE} x "
            f"{SMALLEST_SIDE}, but the observations have shape {shape}. Use {other}."
        )
    if BACKBONES[backbone].layout is not None:
        return _check_maps(entry, shape, latents, settings)
    latents = LATENTS if latents is None else latents
    _check_posterior(entry, settings)
    if entry.conditional:
        if settings.get("auxiliary") is None:
            raise ConfigError(
                f"{who} needs an auxiliary variable, and its columns are not known. Build it with "
                f"zs.models.build_for({entry.name!r}, data, latents={latents}), which takes them "
                "from the factors of the data."
            )
        if settings["decoder"] == "ladder":
            raise ConfigError(
                f"{who} concatenates the auxiliary variable to the encoder's last features, but a "
                "ladder uses features at every depth. Use decoder='structural'."
            )
        if settings["consistency"] != "none":
            raise ConfigError(
                f"{who} with consistency={settings['consistency']!r}: observations decoded from "
                "changed codes have no factors, which this encoder needs. Use another objective."
            )
    if settings["decoder"] == "ladder" and settings["posterior"] == "full":
        raise ConfigError(
            f"{who}: with decoder='ladder' every rung has a posterior of its own, so there is no "
            "full covariance. Use posterior='gaussian', or decoder='structural'."
        )
    if settings["decoder"] != "hourglass":
        _check_variables(entry, latents, settings)
    return latents


def _check_posterior(entry: Entry, settings: Mapping[str, Any]) -> None:
    if reason := entry.refuses.get(settings["posterior"]):
        raise ConfigError(
            f"models: {entry.name} with posterior={settings['posterior']!r}: {reason}. Use "
            f"posterior={entry.posterior!r}, or another objective."
        )


def _check_maps(
    entry: Entry, shape: Shape, latents: int | None, settings: Mapping[str, Any]
) -> int:
    """What goes with latents that are maps; returns how many there are."""
    who, other = f"models: {entry.name}", "another model"
    if "backbone" in entry.options:  # else the name fixes it
        who, other = f"{who} with backbone={settings['backbone']!r}", "another backbone"
    if reason := entry.refuses.get("maps"):
        raise ConfigError(f"{who}: {reason}. Use another objective, or {other}.")
    _check_posterior(entry, settings)
    if settings["posterior"] == "full":
        raise ConfigError(
            f"{who}: a full covariance of maps has the square of channels x places entries. Use "
            f"posterior='gaussian', or {other}."
        )
    if settings["decoder"] != "hourglass":
        raise ConfigError(
            f"{who}: decoder={settings['decoder']!r} takes groups of latents in turn, and maps "
            f"enter a decoder as a whole. Use decoder='hourglass', or {other}."
        )
    if settings["block"] != "none":
        raise ConfigError(
            f"{who}: the units of block={settings['block']!r} have no places, and the latents are "
            f"maps. Use block='none', or {other}."
        )
    layout = layout_of(entry, shape, settings)
    assert layout is not None
    if latents not in (None, layout.latents):
        raise ConfigError(
            f"{who} has {layout} = {layout.latents:,} latents for observations of shape {shape}, "
            f"channels x places; got latents={latents}. Leave it out, and choose channels=."
        )
    return layout.latents


def _check_variables(entry: Entry, latents: int, settings: Mapping[str, Any]) -> None:
    variables, who = settings["variables"], f"models: {entry.name}"
    if variables is None:
        raise ConfigError(
            f"{who} with decoder={settings['decoder']!r} needs variables=, the number of variables "
            "that the latents are split into. Set it, or use a name such as sae-4."
        )
    if latents % variables:
        near = max(1, round(latents / variables)) * variables
        raise ConfigError(
            f"{who}: {latents} latents cannot be split evenly into {variables} variables. Use a "
            f"multiple of {variables}, for instance latents={near}."
        )
    if BACKBONES[settings["backbone"]].decoder_blocks is None:
        raise ConfigError(
            f"{who}: latents enter this decoder between its hidden layers, but the backbone "
            f"{settings['backbone']} has none. Use backbone='mlp'."
        )
    if settings["start"] == "dense" and settings["backbone"] == "mlp":
        raise ConfigError(
            f"{who}: start='dense' puts the dense layers of an hourglass before its convolutions, "
            "but the backbone mlp has no convolutions. Use start='constant', or another backbone."
        )


def _decoder_blocks(
    entry: Entry,
    shape: Shape,
    settings: Mapping[str, Any],
    backbone: Backbone,
    options: dict[str, Any],
) -> Any:
    assert backbone.decoder_blocks is not None
    start, blocks, last = backbone.decoder_blocks(shape, **options)
    if len(blocks) < settings["variables"]:
        remedy = {
            "structural": f"depth={settings['variables']}",
            "consistency": f"depth={settings['variables']}",
            "mlp": f"{settings['variables']} sizes in decoder_hidden",
        }.get(settings["backbone"], "backbone='structural'")
        raise ConfigError(
            f"models: {entry.name}: {settings['variables']} variables need as many blocks in the "
            f"decoder, but the backbone {settings['backbone']} has {len(blocks)} for this shape. "
            f"Use {remedy}, or fewer variables."
        )
    return start, blocks, last


def _with_layers(options: Mapping[str, Any], layers: int) -> dict[str, Any]:
    """Options of an mlp with at least `layers` hidden layers, the last one repeated."""
    hidden = list(options["hidden"])
    return {**options, "hidden": hidden + hidden[-1:] * max(0, layers - len(hidden))}
