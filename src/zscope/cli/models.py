"""zscope models: list and describe the models that can be trained."""

from typing import Annotated, Any

from typer import Argument, Typer

from zscope.cli import completion
from zscope.cli.options import AsJson

__all__ = ["app"]

app = Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="List and describe the models that can be trained. Start with: zscope models list",
)


NEEDS = {
    "factors": "data with factors or labels",
    "partner": "data with ordinal factors, or rows in temporal order: it learns from pairs",
}


@app.command("list")
def list_(json: AsJson = False) -> None:
    """List all models.

    In a name, G stands for a number of variables, as in sae-4 or vlae-12. The number of
    latents must be a multiple of it.

    Example:

      zscope models list
    """
    from zscope import models

    entries = [_summary(name) for name in models.names()]
    if json:
        _print_json(entries)
        return
    width = max(len(_display_name(entry["name"])) for entry in entries)
    for entry in entries:
        title = entry["title"].split(": ", 1)[1].replace(" 2 variables", " G variables")
        print(f"{_display_name(entry['name']).ljust(width)}  {title}")
    print("\nDetails: zscope models info NAME.  Train: zscope train NAME DATASET")


@app.command()
def info(
    name: Annotated[
        str,
        Argument(
            help="A name from `zscope models list`, such as sae-4.",
            autocompletion=completion.models,
        ),
    ],
    json: AsJson = False,
) -> None:
    """Describe a model: its loss, its paper and all its options.

    Examples:

      zscope models info beta-tcvae

      zscope models info xcsae-4-i --json
    """
    from zscope import models

    entry = models.entry(name)
    if json:
        options = {
            key: {"default": option.default, "help": option.help}
            for key, option in entry.options.items()
        }
        _print_json({**_summary(name), "summary": entry.summary.strip(), "options": options})
        return
    print(entry.title)
    print(f"\nloss   {entry.formula}")
    print(f"paper  {entry.paper}")
    for need in sorted(entry.needs & set(NEEDS)):
        print(f"needs  {NEEDS[need]}")
    for heading, keys in _groups(entry).items():
        if keys:
            print(f"\n{heading} (--set KEY=VALUE)")
            _print_options({key: entry.options[key] for key in keys})
    print(f"\n{entry.summary.strip()}")


@app.command()
def presets(json: AsJson = False) -> None:
    """List the settings of papers, for `zscope train --preset` and zs.train(preset=).

    Example:

      zscope models presets
    """
    from zscope.presets import PRESETS

    if json:
        from dataclasses import asdict

        _print_json({name: asdict(preset) for name, preset in PRESETS.items()})
        return
    for name, preset in PRESETS.items():
        print(f"{name}  ({preset.paper})")
        chosen = {"latents": preset.latents, "split": preset.split, **preset.training}
        for settings in (chosen, preset.network):
            pairs = (f"{k}={_value(list(v) if isinstance(v, tuple) else v)}"
                     for k, v in settings.items() if v is not None)  # fmt: skip
            print(f"  {'  '.join(pairs)}")
        if preset.notes:
            print(f"  {preset.notes}")
    print("\nTrain: zscope train NAME DATASET --preset PRESET; options given as well win.")


def _summary(name: str) -> dict[str, Any]:
    from zscope import models

    about = models.about(name)
    return {
        "name": name,
        "title": about.title,
        "objective": about.formula,
        "paper": about.paper,
        "needs": sorted(about.needs & set(NEEDS)),
        "decodes": about.decodes,
    }


def _groups(entry: Any) -> dict[str, list[str]]:
    """The options of the objective, of the parts of a composed model, and of the networks."""
    from zscope.models.networks import BACKBONES
    from zscope.models.parts import PARTS

    of_networks = {key for backbone in BACKBONES.values() for key in backbone.options}
    keys = list(entry.options)
    return {
        "options of the objective": [k for k in keys if k not in PARTS and k not in of_networks],
        "parts": [key for key in keys if key in PARTS],
        "networks": [key for key in keys if key in of_networks],
    }


def _print_options(options: dict[str, Any]) -> None:
    values = {key: _value(option.default) for key, option in options.items()}
    first, second = max(map(len, values)), max(map(len, values.values()))
    for key, option in options.items():
        print(f"  {key.ljust(first)}  {values[key].ljust(second)}  {option.help}")


def _value(default: Any) -> str:
    if default is None:
        return "-"
    if isinstance(default, list):
        return ",".join(map(str, default))
    return f"{default:g}" if isinstance(default, float) else str(default)


def _display_name(name: str) -> str:
    """The name of a family in the list: sae-2 stands for sae-G."""
    return name.replace("-2", "-G")


def _print_json(value: Any) -> None:
    import json

    print(json.dumps(value, indent=2))
