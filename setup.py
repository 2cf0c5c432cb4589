"""The long description of the package: the README, with links that work outside this repository.

Pages of docs/ are read on the site of the documentation, and its pictures are shown from there.
What is not on the site is named without a link. Everything else is in pyproject.toml.
"""

import re
import runpy
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent
SITE = runpy.run_path(str(HERE / "src/zscope/site.py"))["SITE"]


def address(place: str) -> str | None:
    """Where a path of this repository is read on the site; None if it is not there."""
    if re.match(r"[a-z]+:|#", place):
        return place
    if not place.startswith("docs/"):
        return None
    page, mark, anchor = place.removeprefix("docs/").partition("#")
    page = re.sub(r"(index)?\.md$", "/", page)
    if "." not in page and not page.endswith("/"):
        page += "/"  # a folder
    return SITE + page.lstrip("/") + mark + anchor


def link(found: re.Match[str]) -> str:
    """A link or a picture in Markdown."""
    mark, text, place = found.groups()
    target = address(place)
    return f"{mark}[{text}]({target})" if target else text


def attribute(found: re.Match[str]) -> str:
    """A link or a picture in HTML."""
    return f'{found[1]}="{address(found[2]) or SITE}"'


def long_description(readme: str) -> str:
    """The README as a package index shows it; code stays as it is."""
    text = re.sub(r"<!--.*?-->\n?", "", readme, flags=re.DOTALL)  # what the tests need
    parts = re.split(r"(^```.*?^```$)", text, flags=re.DOTALL | re.MULTILINE)
    for k in range(0, len(parts), 2):
        pictures = re.sub(r"(!)\[([^\[\]]*)\]\(([^()\s]+)\)", link, parts[k])
        # The text of a link may be a picture.
        links = r"(?<!!)()\[((?:[^\[\]]|!\[[^\[\]]*\]\([^()]*\))*)\]\(([^()\s]+)\)"
        parts[k] = re.sub(links, link, pictures)
        parts[k] = re.sub(r'\b(src|href|srcset)="([^"]+)"', attribute, parts[k])
    return "".join(parts)


if __name__ == "__main__":
    setup(
        long_description=long_description((HERE / "README.md").read_text("utf-8")),
        long_description_content_type="text/markdown",
    )
