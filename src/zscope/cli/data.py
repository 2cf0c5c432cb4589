"""zscope data: list, describe, fetch, measure and perturb datasets."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option, Typer

from zscope.cli import completion
from zscope.cli.alignment import alignment
from zscope.cli.options import AsJson, Root, settings
from zscope.cli.perturb import perturb

__all__ = ["app"]

app = Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="List, describe, fetch, measure and perturb datasets. Start with: zscope data list",
)


@app.command("list")
def list_(root: Root = None, json: AsJson = False) -> None:
    """List all datasets and whether they are ready to use.

    STATE is "built in" (generated on your machine, no download), "here" (downloaded and
    checked), "can be fetched" (zscope data fetch NAME downloads it) or "by hand" (you
    download it yourself; zscope data info NAME says from where).

    For files of your own give the path instead of a name:

      zscope train vae ./images.npy

      zscope train vae ./cells.csv --data-option factors=dose,plate
    """
    from zscope.data import names

    entries = [_summary(name, root) for name in names()]
    if json:
        _print_json(entries)
        return
    rows = [("NAME", "STATE", "SAMPLES", "SHAPE", "")]
    for entry in entries:
        samples = "" if entry["samples"] is None else f"{entry['samples']:,}"
        rows.append(
            (entry["name"], entry["state"], samples, _by(entry["shape"]), entry["title"])
        )  # fmt: skip
    _print_columns(rows, right=[2])


@app.command()
def info(
    name: Annotated[
        str,
        Argument(
            help="A name from `zscope data list`, or a path.", autocompletion=completion.datasets
        ),
    ],
    data_option: Annotated[
        list[str] | None,
        Option(metavar="KEY=VALUE", help="How to read a file of yours, e.g. factors=dose,plate."),
    ] = None,
    root: Root = None,
    json: AsJson = False,
) -> None:
    """Describe a dataset: factors, options, files, licence and citation.

    For a file or folder of your own, show how it is read.

    Examples:

      zscope data info dsprites

      zscope data info ./images.npz

      zscope data info ./cells.csv --data-option factors=dose,plate
    """
    from zscope.data import CATALOGUE, looks_like_path
    from zscope.errors import ConfigError

    own = name not in CATALOGUE and looks_like_path(name)
    if own:
        entry = _own_data(name, settings(data_option, "--data-option"))
    elif data_option:
        raise ConfigError(
            f"data info: --data-option is for files of your own, and {name} is the name of a "
            f"dataset. Leave it out here, and use it in zscope train MODEL {name} --data-option ..."
        )
    else:
        entry = {**_summary(name, root), **_details(name, root)}
    if json:
        _print_json(entry)
        return
    print(f"{entry['name']}: {entry['title']}" if entry.get("title") else entry["name"])
    if entry.get("summary"):
        print(f"  {entry['summary']}")
    samples = "an unknown number of" if entry["samples"] is None else f"{entry['samples']:,}"
    print(f"\n{samples} samples of {_by(entry['shape'])}; {entry['state']}")
    if "made_from" in entry.get("provenance", {}):
        _print_origin(entry["provenance"])
    if entry.get("features"):
        print(f"features: {_shorten(', '.join(entry['features']), 200)}")
    _print_factors(entry["factors"])
    if entry["options"]:
        print("\noptions (--data-option KEY=VALUE)")
        _print_columns([(f"  {key}", text) for key, text in entry["options"].items()])
    if entry.get("common_options"):
        print("\noptions of any dataset, for controls")
        _print_columns([(f"  {key}", text) for key, text in entry["common_options"].items()])
    if entry.get("files"):
        _print_files(entry)
    for label in ("licence", "cite", "homepage"):
        if entry.get(label):
            print(f"\n{label}: {entry[label]}")


@app.command()
def fetch(
    name: Annotated[
        str, Argument(help="A name from `zscope data list`.", autocompletion=completion.datasets)
    ],
    from_: Annotated[
        Path | None,
        Option("--from", metavar="DIR", help="Import the files from DIR or DIR/NAME."),
    ] = None,
    root: Root = None,
    quiet: Annotated[bool, Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Download a dataset, or import its files from a folder, and verify them.

    A file whose checksum differs from the published one is refused, and nothing is stored.
    Where no checksum is published, the structure of the file is checked and its checksum
    is recorded.

    Examples:

      zscope data fetch mnist

      zscope data fetch mnist --from ~/Downloads

      zscope data fetch mpi3d-real --from /shared/datasets
    """
    from zscope.data import folder, source
    from zscope.data.fetching import fetch as get

    records = get(name, root, from_, progress=False if quiet else None)
    if quiet:
        return
    if source(name).built_in:
        print(f"{name} is built in; there is nothing to fetch.")
    for file, record in records.items():
        print(f"{file}  {_bytes(record.bytes)}  {_verdict(record.checked)}")
    if records:
        print(f"{name} is in {folder(root) / name}.")
    arguments = ("", "") if root is None else (f" --root {root}", f", root={str(root)!r}")
    print(
        f"Use it: zscope train vae {name}{arguments[0]}, or zs.data.load({name!r}{arguments[1]})."
    )


app.command()(alignment)
app.command()(perturb)


def _summary(name: str, root: Path | None) -> dict[str, Any]:
    """The entry of a dataset in the list."""
    from zscope.data import folder, source
    from zscope.data.fetching import state

    entry = source(name)
    return {
        "name": name,
        "state": state(entry, folder(root) / name),
        "samples": entry.samples,
        "shape": None if entry.shape is None else list(entry.shape),
        "title": entry.title,
    }


def _details(name: str, root: Path | None) -> dict[str, Any]:
    """What `info` shows in addition."""
    from dataclasses import asdict

    from zscope.data import folder, modified, source
    from zscope.data.fetching import records

    entry = source(name)
    saved = records(folder(root) / name)
    files = [
        {
            "name": file.name,
            "url": file.url,
            "mirrors": list(file.mirrors),
            "bytes": file.size,
            "md5": file.md5,
            "sha256": file.sha256,
            "present": (folder(root) / name / file.name).is_file(),
            "here": asdict(saved[file.name]) if file.name in saved else None,
        }
        for file in entry.files
    ]
    return {
        "summary": entry.summary,
        "factors": [asdict(factor) for factor in entry.factors],
        "options": dict(entry.options),
        "common_options": dict(modified.OPTIONS),
        "folder": str(folder(root) / name),
        "files": files,
        "licence": entry.licence,
        "cite": entry.cite,
        "homepage": entry.homepage,
    }


def _own_data(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """How a file or folder of the user is read."""
    from zscope.data import load
    from zscope.data.own import OPTIONS

    data = load(name, **options)
    factors = zip(data.factor_names, data.factor_sizes, data.factor_kinds, strict=True)
    return {
        "name": name,
        "state": f"read as {data.images.dtype}",
        "samples": len(data),
        "shape": list(data.shape),
        "features": list(data.feature_names),
        "factors": [
            {
                "name": factor,
                "size": size,
                "kind": kind,
                "guessed": factor in data.guessed_kinds,
                "values": list(data.factor_labels.get(factor, [])),
            }
            for factor, size, kind in factors
        ],
        "options": OPTIONS,
        "provenance": data.provenance,
    }


def _print_origin(provenance: dict[str, Any]) -> None:
    """Print what perturbed data were made from."""
    origin = provenance["made_from"]
    if isinstance(origin, dict):
        options = ", ".join(f"{key}={value}" for key, value in origin["options"].items())
        origin = f"{origin['name']} ({options})" if options else origin["name"]
    print(f"made from {origin}")
    facts = {key: provenance[key] for key in ("change", "epsilon", "rounds") if key in provenance}
    print("  " + ", ".join(f"{key} {value}" for key, value in facts.items()))


def _print_factors(factors: list[dict[str, Any]]) -> None:
    if not factors:
        print("no factors")
        return
    print(f"\nfactors ({len(factors)})")
    rows = []
    for factor in factors:
        values = ", ".join(str(value) for value in factor["values"])
        size = "" if factor["size"] == 0 else str(factor["size"])
        kind = f"{factor['kind']}{' (guessed)' if factor.get('guessed') else ''}"
        rows.append((f"  {factor['name']}", size, kind, _shorten(values)))
    _print_columns(rows, right=[1])


def _print_files(entry: dict[str, Any]) -> None:
    print(f"\nfiles, in {entry['folder']}")
    for file in entry["files"]:
        here, size = file["here"], file["bytes"]
        state = "here, will be checked at first use" if file["present"] else "missing"
        if here:
            state = f"here, {_verdict(here['checked'])}"
        print(f"  {file['name']}  {'' if size is None else _bytes(size) + '  '}{state}")
        if file["url"]:
            print(f"    from    {file['url']}")
        for kind in ("sha256", "md5"):
            if file[kind]:
                print(f"    {kind:7} {file[kind]}")
        if here and not file["sha256"]:
            print(f"    sha256  {here['sha256']} (recorded, not published)")
    if entry["state"] == "can be fetched":
        print(f"  download: zscope data fetch {entry['name']}")
    if entry["state"] == "by hand":
        print(
            f"  download from {entry['homepage']}, then: "
            f"zscope data fetch {entry['name']} --from DIR"
        )


def _verdict(checked: str) -> str:
    if checked == "structure":
        return "structure checked (no published checksum), sha256 recorded"
    return f"{checked} verified"


def _print_json(value: Any) -> None:
    import json

    print(json.dumps(value, indent=2))


def _print_columns(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    """Rows of text in columns; those in `right` are aligned to the right."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    for row in rows:
        cells = (
            text.rjust(width) if k in right else text.ljust(width)
            for k, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join(cells).rstrip())


def _by(shape: list[int] | None) -> str:
    return "?" if shape is None else "x".join(str(size) for size in shape)


def _bytes(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def _shorten(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
