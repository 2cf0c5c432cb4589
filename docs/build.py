"""Build the documentation as a website in site/.

    python docs/build.py                    # or: make docs
    python docs/build.py --serve            # and show it at http://localhost:8000

The pages are those of docs/ and the generated ones (pages.py, gallery.py, reference.py), gathered
in a folder of their own, of which zensical makes the site. Nothing is trained, measured or fetched:
the figures are those that keep.py keeps in docs/kept.
"""

import argparse
import functools
import http.server
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from formulas import in_dollars
from gallery import KEPT, QUESTIONS, gallery_pages
from pages import generated_pages
from reference import MODULES, api_pages

__all__ = ["GUIDE", "build", "gather", "navigation"]

HERE = Path(__file__).parent
SITE = HERE.parent / "site"
GUIDE = (
    "start", "install", "healthy", "own-model", "data", "assays", "training", "searches",
    "interpolate", "scores", "alignment", "sweeps", "maps", "studies", "looking", "gates", "hub",
    "elsewhere", "extend",
)  # fmt: skip
"""The order of the guide. Other pages of docs/guide follow."""
PLAIN = ("correctness.md", "reliability.md", "scale.md", "reproduction.md")
"""Pages that stand beside the folders."""

Nav = list[dict[str, Any] | str]


def gather(folder: Path) -> None:
    """All sources of the site: pages, figures, what the pages look like."""
    for name in ("guide", "decisions", "reproduction", "assets"):
        shutil.copytree(
            HERE / name, folder / name, ignore=shutil.ignore_patterns("*.json", "*.json.gz")
        )
    shutil.copytree(KEPT, folder / "kept", ignore=shutil.ignore_patterns("*.json"))
    for name in PLAIN:
        shutil.copyfile(HERE / name, folder / name)
    for name, text in {**generated_pages(), **api_pages(), **gallery_pages()}.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    for file in folder.rglob("*.md"):
        text = clean(file.read_text(encoding="utf-8"))
        written = file.parent.name == "guide"
        file.write_text(in_dollars(text) if written else text, encoding="utf-8")


def clean(text: str) -> str:
    """Without the comments that say how the blocks of a page are tested."""
    return re.sub(r"^[ ]*<!--.*?-->[ ]*\n", "", text, flags=re.DOTALL | re.MULTILINE)


def navigation(folder: Path) -> Nav:
    """The contents, read from the files that are there."""
    from zscope.assays import CATALOGUE

    groups: dict[str, list[str]] = {}
    for name, entry in CATALOGUE.items():
        groups.setdefault(entry.group, []).append(f"assays/{name}.md")
    return [
        {"zscope": ["index.md"]},
        {"Guide": [f"guide/{name}.md" for name in guide_pages(folder)]},
        {"Gallery": ["gallery/index.md", *(f"gallery/{each.name}.md" for each in QUESTIONS)]},
        {
            "Assays": [
                "assays/index.md",
                "flavours.md",
                *({group.capitalize(): pages} for group, pages in groups.items()),
            ]
        },
        {
            "Models & data": [
                {"Models": listing(folder, "models")},
                {"Data": listing(folder, "data")},
            ]
        },
        {
            "Reference": [
                "api/index.md",
                "api/zscope.md",
                *(f"api/{name}.md" for name in MODULES),
                "commands.md",
            ]
        },
        {
            "Evidence": [
                "correctness.md",
                "reproduction.md",
                "reliability.md",
                "scale.md",
                {"Decisions": listing(folder, "decisions")},
            ]
        },
    ]


def guide_pages(folder: Path) -> list[str]:
    """Those of the list that exist, then all others."""
    there = sorted(file.stem for file in (folder / "guide").glob("*.md"))
    return [*(name for name in GUIDE if name in there), *(x for x in there if x not in GUIDE)]


def listing(folder: Path, name: str) -> list[str]:
    """The index of a folder, then its other pages."""
    pages = sorted(file.name for file in (folder / name).glob("*.md") if file.name != "index.md")
    return [f"{name}/{page}" for page in ["index.md", *pages]]


def toml(nav: Any) -> str:
    """Lists, tables and strings as TOML on one line."""
    if isinstance(nav, list):
        return f"[{', '.join(map(toml, nav))}]"
    if isinstance(nav, dict):
        return (
            f"{{ {', '.join(f'{json.dumps(key)} = {toml(value)}' for key, value in nav.items())} }}"
        )
    return json.dumps(nav)


def build(site: Path = SITE) -> Path:
    """The site, in place of the one before; CalledProcessError if a link is broken."""
    with tempfile.TemporaryDirectory() as name:
        project = Path(name)
        gather(project / "docs")
        settings = (HERE / "zensical.toml").read_text(encoding="utf-8")
        nav = f"[project]\nnav = {toml(navigation(project / 'docs'))}\n"
        (project / "zensical.toml").write_text(
            settings.replace("[project]\n", nav, 1), encoding="utf-8"
        )
        subprocess.run(
            [sys.executable, "-m", "zensical", "build", "--strict"], cwd=project, check=True
        )
        shutil.rmtree(site, ignore_errors=True)
        shutil.copytree(project / "site", site)
    return site


def serve(site: Path, port: int) -> None:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
    print(f"http://localhost:{port} (Ctrl-C stops it)")
    http.server.ThreadingHTTPServer(("localhost", port), handler).serve_forever()


def main(arguments: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--serve", action="store_true", help="Show the site afterwards.")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--out", type=Path, default=SITE, help="Folder of the site.")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    site = build(options.out)
    print(f"{site}: {len(list(site.rglob('*.html')))} pages in {time.monotonic() - started:.0f} s")
    if options.serve:
        serve(site, options.port)


if __name__ == "__main__":
    main()
