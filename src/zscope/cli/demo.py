"""zscope demo: train, measure, look and report, in under two minutes."""

from pathlib import Path
from typing import Annotated, Any

from typer import Option

from zscope.cli.options import AsJson, Quiet, Seed

STEPS = 3000
ASSAYS = ["response-matrix", "holes", "variable-types", "mig", "dci", "sap"]  # seconds in all


def demo(
    out: Annotated[Path, Option(help="Where the run, figure and report go.")] = Path("zscope-demo"),
    steps: Annotated[int, Option(help="Updates to make.")] = STEPS,
    seed: Seed = 0,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Train a small β-VAE on built-in pictures, say what its latents do, and write a report.

    Called again, it goes on where it stopped, or shows what it found.
    """
    from zscope import data, models
    from zscope.recording import record
    from zscope.report.latents import latent_table
    from zscope.training import train

    pictures = data.load(
        "sprites",
        resolution=32,
        scale=3,
        orientation=10,
        position_x=12,
        position_y=12,
        antialias=True,
    )
    model = models.build(
        "beta-vae",
        shape=pictures.shape,
        latents=10,
        beta=2.0,
        seed=seed,
        backbone="mlp",
        hidden=(512, 256),
    )
    if not quiet and not json:
        print(f"Training a β-VAE (β = 2, 10 latents) on {len(pictures)} pictures, {steps} steps.")
    train(
        model,
        pictures,
        steps=steps,
        rate=1e-3,
        seed=seed,
        out=out,
        resume=True,
        progress=not quiet,
    )
    recording = record(model, pictures, samples=4000, seed=seed)
    rows = latent_table(recording, response_diagonal(recording, seed))
    figure = draw(recording, rows, out / "traversals.png")
    page, findings = reported(recording, out, seed, quiet=quiet or json)
    if json:
        from json import dumps

        found = {"run": str(out), "figure": str(figure), "report": str(page), "latents": rows}
        print(dumps(found))
    else:
        print_table(rows)
        print(sentence(rows))
        print(findings)
        print(f"Look next at {page} (in a browser) and {figure}, then: zscope explore {out}")


def response_diagonal(recording: Any, seed: int) -> list[float]:
    """How much of a change made to each latent comes back after decoding and encoding."""
    import torch

    from zscope.assays import response_matrix

    generator = torch.Generator().manual_seed(seed)
    result = response_matrix(
        recording.autoencoder, recording.posterior, samples=500, generator=generator
    )
    return result.relative.diagonal().tolist()


def reported(recording: Any, out: Path, seed: int, *, quiet: bool) -> tuple[Path, str]:
    """The page of the assays that take seconds, and its findings in words."""
    from zscope.cli.report import config_of, repeated
    from zscope.report.build import build, catalogued, watched

    page, samples, resamples = out / "report.html", len(recording.codes), 5
    command = repeated(str(out), ASSAYS, None, None, None, samples, resamples, seed)
    with watched(False if quiet else None) as say:
        made = build(
            recording,
            catalogued(ASSAYS),
            resamples=resamples,
            seed=seed,
            progress=say,
            title=str(out),
            command=command,
            config=config_of(str(out)),
        )
        made.save(page, progress=say)
    return page, str(made)


def draw(recording: Any, rows: list[dict[str, Any]], file: Path) -> Path:
    """The figure of latent traversals, most informative latent first."""
    from zscope.plots import traversals

    labels = [f"{row['latent']}  {row['type']}  {row['kl']:.2f} nats" for row in rows]
    figure = traversals(
        recording.autoencoder,
        recording.codes[0],
        order=[row["latent"] for row in rows],
        labels=labels,
    )
    figure.savefig(file)
    return file


def print_table(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="The latents, most informative first", title_justify="left")
    table.add_column("latent", justify="right")
    table.add_column("type")
    for column in ("KL (nats)", "mean variance", "response"):
        table.add_column(column, justify="right")
    for row in rows:
        numbers = (f"{row[key]:.2f}" for key in ("kl", "variance", "response"))
        table.add_row(str(row["latent"]), row["type"], *numbers)
    Console().print(table)


def sentence(rows: list[dict[str, Any]]) -> str:
    """What was found, in words."""
    counts = {kind: sum(row["type"] == kind for row in rows) for kind in ("active", "mixed")}
    unused = len(rows) - counts["active"] - counts["mixed"]
    used = counts["active"] + counts["mixed"]
    return (
        f"{used} of {len(rows)} latents carry information ({counts['active']} active, "
        f"{counts['mixed']} mixed); {unused} carry nothing. The pictures vary in 5 ways: shape, "
        "scale, orientation, x and y."
    )
