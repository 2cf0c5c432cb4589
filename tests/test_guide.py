"""The guide: each finding has its section, each picture its place, and each link its end."""

import ast
import inspect
import re
from pathlib import Path

import pytest
from scripts import docs_script

from zscope.determinism import NO_NUMBERS
from zscope.report.rules import RULES

ROOT = Path(__file__).resolve().parents[1]
GUIDE = ROOT / "docs" / "guide"
PAGES = sorted(GUIDE.glob("*.md"))
HEALTHY = (GUIDE / "healthy.md").read_text()


def plain(text):
    """Without code, where brackets and # mean something else."""
    return re.sub(r"^```.*?^```$|<!--.*?-->", "", text, flags=re.MULTILINE | re.DOTALL)


def slug(heading):
    """The end of the address of a heading, which has to be the same with every renderer."""
    return re.sub(r"[ ]", "-", re.sub(r"[^a-z0-9_\- ]", "", heading.strip().lower()))


def sections(text):
    """The text below each heading of the third level."""
    parts = re.split(r"^### (.+)\n", re.sub(r"^## .*$", "", text, flags=re.MULTILINE), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_rule_has_a_section_of_its_own_name_that_says_what_it_means_and_what_to_do():
    assert set(sections(HEALTHY)) == {rule.name.capitalize() for rule in RULES}
    for rule in RULES:
        section = sections(HEALTHY)[rule.name.capitalize()]
        assert section.strip().startswith("> "), rule.name
        assert "**Means**" in section, rule.name
        assert "**Do:**" in section, rule.name


def words(text):
    return re.findall(r"[a-z]+", text.lower())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_sentence_of_a_section_is_one_of_its_rule(rule):
    """Most of its words stand in the strings of the rule's module, so that wording cannot drift."""
    quoted = words(re.search(r"^> (.+)$", sections(HEALTHY)[rule.name.capitalize()], re.M)[1])
    tree = ast.parse(inspect.getsource(inspect.getmodule(rule.find)))
    known = {*words(NO_NUMBERS)}.union(
        *(words(node.value) for node in ast.walk(tree) if is_text(node))
    )
    long = [word for word in quoted if len(word) > 3]
    assert sum(word in known for word in long) >= 0.6 * len(long), set(long) - known


def is_text(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def test_every_picture_is_drawn_by_the_script_shown_small_and_described():
    script = docs_script("pictures")
    files = {path.name for path in script.FOLDER.iterdir()}
    assert files == set(script.PICTURES)
    text = "".join(page.read_text() for page in PAGES)
    shown = re.findall(r"!\[([^\]]+)\]\(\.\./assets/guide/([^)]+)\)", text)
    assert {name for _, name in shown} == files
    for caption, name in shown:
        assert len(caption.split()) > 10, name
        assert (script.FOLDER / name).stat().st_size <= script.LARGEST


# Pages that are made when the site is built.
MADE = re.compile(r"\.\./(assays|models|data|gallery|api|decisions|flavours|commands|index)\b")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_between_pages_of_the_guide_leads_to_a_heading(page):
    for place in re.findall(r"\]\(([^)\s]+)\)", plain(page.read_text())):
        if place.startswith("http") or MADE.match(place):
            continue
        name, _, anchor = place.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), f"{page.name}: {place}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", plain(target.read_text()), re.MULTILINE)
            assert anchor in {slug(heading) for heading in headings}, f"{page.name}: {place}"
