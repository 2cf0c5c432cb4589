"""zscope demo: train a model, measure it and write its report, in under two minutes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from zscope.cli.options import AsJson, Quiet, Seed

if TYPE_CHECKING:
    from zscope.recording import Recording
    from zscope.report.build import Report

__all__ = ["demo"]

STEPS, BETA = 5000, 0.5
# Large shapes, each turned by less than a quarter: a square turned by a quarter is the same
# picture. With β = 1, or with more places, squares and hearts become discs in so few steps.
GRID: dict[str, Any] = {
    "scale": [3, 4, 5],
    "orientation": [0, 2, 4, 6, 8],
    "position_x": 5,
    "position_y": 5,
}
NUMBERS = ("kl", "variance", "response")
GROUPS = ["responses", "disentanglement"]


def demo(
    out: Annotated[Path, Option(help="The folder for run, figure and report.")] = Path(
        "zscope-demo"
    ),
    steps: Annotated[int, Option(help="Training steps.")] = STEPS,
    seed: Seed = 0,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Train a small β-VAE on built-in pictures, describe its latents, and write a report.

    Run again, it resumes training, or shows the same results.
    """
    from zscope import data, models
    from zscope.cli.assay import finish
    from zscope.cli.outputs import try_folder
    from zscope.experiments.training import train
    from zscope.explorer.session import SAMPLES
    from zscope.recording import record

    try_folder("demo: --out", out)
    pictures = data.load("sprites", resolution=32, antialias=True, **GRID)
    model = models.build(
        "beta-vae",
        shape=pictures.shape,
        latents=10,
        beta=BETA,
        seed=seed,
        backbone="mlp",
        hidden=(512, 256),
    )
    if not quiet and not json:
        size = f"{len(pictures)} pictures, {steps} steps"
        print(f"Training a β-VAE (β = {BETA:g}, 10 latents) on {size}.")
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
    recording = record(model, pictures, samples=SAMPLES, seed=seed)
    report = measure(recording, out, quiet=quiet or json)
    page = report.save(out / "report.html")
    figure = draw(recording, report.latents, out / "traversals.png")
    if json:
        from json import dumps

        rows = report.to_dict(pictures=False)["latents"]
        content = {"run": str(out), "figure": str(figure), "report": str(page), "latents": rows}
        print(dumps(content))
    else:
        print_table(report.latents)
        print(summary(report.latents))
        print("\n".join(map(str, report.findings)))
        for name, failure in report.failed.items():
            print(f"{name}: {failure.message}")
        print(f"Look next at {page} (in a browser) and {figure}, then: zscope explore {out}")
    finish(report.measurements, [])


def measure(recording: "Recording", out: Path, *, quiet: bool) -> "Report":
    """The report of two groups, which take half a minute; their results are stored with the run."""
    from zscope.cli.targets import command_line, config_of, say_not_kept
    from zscope.kept import results_of
    from zscope.loading import run_history
    from zscope.report.build import build
    from zscope.report.progress import show_progress

    resamples = 5
    settings = {"samples": len(recording), "resamples": resamples, "seed": recording.seed}
    with show_progress(False if quiet else None) as watch:
        report = build(
            recording,
            GROUPS,
            resamples=resamples,
            progress=watch,
            kept=results_of(out, recording.model, own_data=True),
            title=str(out),
            command=command_line("report", str(out), GROUPS, settings),
            config=config_of(str(out)),
            history=run_history(str(out)),
        )
    say_not_kept(report)
    return report


def draw(recording: Any, rows: list[dict[str, Any]], file: Path) -> Path:
    """The figure of latent traversals, most informative latent first."""
    from zscope.plots import save, traversals

    labels = [f"{row['latent']}  {row['type']}  {row['kl']:.2f} nats" for row in rows]
    figure = traversals(
        recording.autoencoder,
        recording.codes[0],
        order=[row["latent"] for row in rows],
        labels=labels,
    )
    save(figure, file, dpi="figure")
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
        numbers = (f"{row[key]:.2f}" if key in row else "" for key in NUMBERS)
        table.add_row(str(row["latent"]), row["type"], *numbers)
    Console().print(table)


def summary(rows: list[dict[str, Any]]) -> str:
    """How many latents are used, in words."""
    used = sum(row["used"] for row in rows)
    return (
        f"{used} of {len(rows)} latents carry information. The pictures vary in 5 factors: shape, "
        "scale, orientation, x and y."
    )
