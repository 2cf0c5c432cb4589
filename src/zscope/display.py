"""How models, posteriors and losses look in a notebook: small tables, in its own colours."""

from html import escape
from typing import TYPE_CHECKING

from zscope.errors import InterfaceError
from zscope.results import html_table

if TYPE_CHECKING:
    from zscope.autoencoder import Autoencoder, Losses, Posterior

__all__ = ["losses_html", "model_html", "posterior_html"]

SHOWN = 16
"""Latents that get a row."""


def model_html(model: "Autoencoder") -> str:
    """What is known of a model, a line each; its layers are what `print` shows."""
    lines = [["model", model.title]]
    for name in ("latents", "prior", "layout"):
        try:
            value = getattr(model, name)
        except InterfaceError:
            value = "not known before its first use"
        if value is not None or name == "prior":
            lines.append([name, "none" if value is None else f"{value}"])
    count = sum(each.numel() for each in model.parameters())
    return html_table([*lines, ["parameters", f"{count:,}"]], left=2, header=False)


def posterior_html(posterior: "Posterior") -> str:
    """Mean and spread of each latent over the samples; of maps the shape alone."""
    title = f"<code>{escape(repr(posterior))}</code>"
    if posterior.layout is not None or not len(posterior):
        return title
    mean, variance = posterior.mean.detach().double(), posterior.variance.detach().double()
    names = ["latent", "mean", "standard deviation of the means", "mean variance"]
    columns = [mean.mean(0), mean.std(0, correction=0), variance.mean(0)]
    columns = columns[:2] if posterior.deterministic else columns
    rows = [
        [str(latent), *(f"{float(column[latent]):.3g}" for column in columns)]
        for latent in range(min(SHOWN, posterior.latents))
    ]
    if posterior.latents > SHOWN:
        rows.append([f"and {posterior.latents - SHOWN} more", *[""] * len(columns)])
    return f"<div>{title}{html_table([names[: 1 + len(columns)], *rows])}</div>"


def losses_html(losses: "Losses") -> str:
    """The terms and their sum."""
    terms = {**losses.terms, "total": losses.total}
    rows = [[name, f"{float(value.detach()):.4g}"] for name, value in terms.items()]
    return html_table([["loss", "nats per sample"], *rows])
