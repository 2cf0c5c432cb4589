"""Presets: the settings of papers, so that nobody copies rates and batch sizes by hand.

    zs.train(model, data, preset="structural-2023")
    zscope train sae-12 shapes3d --preset structural-2023

A preset has settings of training, and the networks, number of latents and split of the data
that belong to them. `zs.train` takes the first; `zscope train` all of them. What is given as
well takes precedence. `zscope models presets` lists them.

Only what a paper prints is set; `notes` say what it leaves open. Nothing of zscope is imported
here but its errors: the help of the command line names the presets.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zscope.errors import ConfigError, did_you_mean

__all__ = ["PRESETS", "Preset", "preset"]


@dataclass(frozen=True)
class Preset:
    """`training` are settings of `zs.train` (with `halve_epochs`: epochs between halvings of
    the rate), `network` options of `zs.models.build`, `split` fractions of the data."""

    paper: str
    training: Mapping[str, Any]
    network: Mapping[str, Any]
    latents: int
    split: tuple[float, ...] | None = None
    notes: str = ""

    def settings(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of training; those that are `given` take precedence."""
        chosen = {key: value for key, value in given.items() if value is not None}
        own = dict(self.training)
        if "steps" in chosen or "epochs" in chosen:
            own = {key: value for key, value in own.items() if key not in ("steps", "epochs")}
        if "schedule" in chosen or "halve_every" in chosen:
            own.pop("halve_epochs", None)
        return {**own, **chosen}

    def options(self, model: str) -> dict[str, Any]:
        """The options of a model of this name: its networks, and parts as large as in its paper."""
        return {**self.network, **_PUBLISHED.get(model, {})}


_PUBLISHED = {"factor-vae": {"discriminator": "published"}}
_ADAM = {"optimiser": "adam"}


def _responses(batch: int, notes: str) -> Preset:
    return Preset(
        "Leeb et al., arXiv:2106.16091, A.4.2",
        {**_ADAM, "rate": 1e-4, "batch": batch, "steps": 100_000},
        {"backbone": "responses"},
        12,
        (0.7, 0.1, 0.2),
        notes,
    )


def _structural(
    steps: int, latents: int, rate: float, batch: int, notes: str = "", **network: Any
) -> Preset:
    return Preset(
        "Leeb et al., ICLR 2023, A.2",
        {**_ADAM, "rate": rate, "batch": batch, "steps": steps},
        {"backbone": "structural", **network},
        latents,
        (0.7, 0.1, 0.2),
        notes,
    )


def _consistency(steps: int, latents: int, **network: Any) -> Preset:
    return Preset(
        "On the interventional consistency of autoencoders, 2021, A.3",
        {**_ADAM, "rate": 1e-4, "halve_epochs": 30, "batch": 128, "steps": steps},
        {"backbone": "consistency", "weights": "xavier", **network},
        latents,
        notes="Seeds 11, 13, 17, 37 and 121. The temperature of the gates is not printed. An SAE "
        "as large as the printed one has a variable for each latent, start=dense, width=10,20.",
    )


def _zietlow(epochs: int, latents: int, **network: Any) -> Preset:
    return Preset(
        "Zietlow, thesis, 2022, table 3.1",
        {"optimiser": "adagrad", "rate": 1e-2, "epochs": epochs},
        {"backbone": "mlp", "activation": "relu", "decoder_activation": "tanh", **network},
        latents,
        (0.8, 0.1, 0.1),
        "The batch size is not printed.",
    )


PRESETS = {
    "locatello-2019": Preset(
        "Locatello et al., ICML 2019, arXiv:1811.12359",
        {**_ADAM, "rate": 1e-4, "batch": 64, "steps": 300_000},
        {"backbone": "locatello", "kernels": [4, 4, 2, 2]},
        10,
        notes="Kernels as in disentanglement_lib.",
    ),
    "responses-2021": _responses(
        64,
        "Section 6 prints a rate of 1e-3, the appendix 1e-4. The decoder of figure 8, with a "
        "block fewer than the published weights have, is layout=printed.",
    ),
    "responses-2021-mnist": _responses(
        128, "The number of latents is not printed. The paper enlarges 28 x 28 to 32 x 32 pixels."
    ),
    "consistency-2021": _consistency(100_000, 12, depth=12, filters=32),
    "consistency-2021-s": _consistency(100_000, 6, depth=6, filters=32),
    "consistency-2021-celeba": _consistency(200_000, 32, depth=16, filters=100),
    "pca-2022-dsprites": _zietlow(50, 5, hidden=[1200, 1200], decoder_hidden=[1200, 1200, 1200]),
    "pca-2022-mnist": _zietlow(400, 6, hidden=[400], decoder_hidden=[500, 500]),
    "structural-2023": _structural(
        100_000, 12, 5e-4, 128, "β is 2 for β-VAE and 4 for β-TCVAE, γ is 40 for FactorVAE."
    ),
    "structural-2023-celeba": _structural(200_000, 32, 5e-4, 32, depth=16, filters=128),
    "structural-2023-rfd": _structural(200_000, 32, 5e-5, 32, depth=16, filters=256),
    "polarised-2023": Preset(
        "Bonheme, thesis, University of Kent, 2023, tables C.1 and D.1",
        {**_ADAM, "rate": 1e-4, "batch": 64, "steps": 300_000},
        {"backbone": "locatello"},
        10,
        (0.9, 0.1),
        "Seeds 0 to 4. 30 latents for iVAE.",
    ),
}


def preset(name: str, who: str = "train") -> Preset:
    """The preset of that name."""
    if name not in PRESETS:
        raise ConfigError(
            f"{who}: no preset is called {name!r}. {did_you_mean(name, PRESETS)} See: zscope "
            "models presets"
        )
    return PRESETS[name]
