"""Every Python block of the documents runs: those of a page in order, in an empty folder.

What a block needs to be small enough is said in a comment before it, which no reader sees:

    <!-- run:
    data = zs.data.load("digits")
    steps=20_000 => steps=10
    -->

Lines with ` => ` are replacements in the block, the others run before it. A block that cannot run
here says why, `<!-- not run: needs a GPU -->`, and is compiled; one that another test takes from
the page and runs names it, `<!-- run by tests/test_recipes.py -->`.
"""

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import zscope as zs

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
BLOCK = re.compile(
    r"(?:^[ ]*<!--[ ]*(?P<kind>run:|not run:|run by )(?P<said>.*?)-->[ ]*\n\s*)?"
    r"^(?P<indent>[ ]*)```python[^\n]*\n(?P<code>.*?)^(?P=indent)```[ ]*$",
    re.MULTILINE | re.DOTALL,
)


@dataclass
class Block:
    """A block of code, and what the comment before it says."""

    code: str
    line: int
    before: str = ""
    changes: tuple[tuple[str, str], ...] = ()
    not_run: str = ""
    run_by: str = ""
    has_comment: bool = False

    @property
    def small(self) -> str:
        """The code with the replacements, each of which must occur in it."""
        code = self.code
        for old, new in self.changes:
            assert old in code, f"line {self.line}: there is no {old!r} to replace"
            code = code.replace(old, new)
        return code


def blocks(text: str) -> list[Block]:
    found = []
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("code")) + 1
        block = Block(textwrap.dedent(match["code"]), line, has_comment=bool(match["kind"]))
        said = textwrap.dedent(match["said"] or "").strip("\n ")
        if match["kind"] == "run:":
            lines = said.splitlines()
            pairs = [each.split(" => ") for each in lines if " => " in each]
            block.changes = tuple((old.strip(), new.strip()) for old, new in pairs)
            block.before = "\n".join(each for each in lines if " => " not in each)
        elif match["kind"] == "not run:":
            block.not_run = said
            assert len(said.split()) > 1, f"line {line}: say why it is not run"
        elif match["kind"]:
            block.run_by = said
        found.append(block)
    return found


def run(text: str, name: str) -> dict:
    """The names that the blocks of a page leave behind."""
    names: dict = {"zs": zs, "__name__": "__main__"}
    with torch.random.fork_rng(devices=[]):  # a reader's own code may draw from the global state
        torch.manual_seed(0)
        for block in blocks(text):
            if block.run_by:
                continue
            exec(compile(block.before, f"{name}, before line {block.line}", "exec"), names)
            # Errors name the line of the page.
            code = "\n" * (block.line - 1) + block.small
            compiled = compile(code, name, "exec")
            if not block.not_run:
                exec(compiled, names)
    return names


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if "```python" in page.read_text()],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(page.read_text(), str(page.relative_to(ROOT)))


def test_every_fence_and_every_comment_is_found():
    """Also fences within lists, and none is swallowed by the comment of another."""
    for page in PAGES:
        text = page.read_text()
        found = blocks(text)
        assert len(found) == len(re.findall(r"^ *```python", text, re.MULTILINE)), page
        comments = re.findall(r"^<!-- *(?:run|not run)\b", text, re.MULTILINE)
        assert len(comments) <= sum(block.has_comment for block in found), page


def test_what_another_test_runs_is_taken_from_the_page_by_it():
    for page in PAGES:
        for block in blocks(page.read_text()):
            if block.run_by:
                assert page.name in (ROOT / block.run_by).read_text()


PAGE = """
<!-- run:
start = 1
steps=20_000 => steps=2
-->
```python
def train(steps):
    return start + steps

made = train(steps=20_000)
```

- In a list:

    <!-- not run: needs a machine of another kind -->
    ```python
    made = 0
    ```

<!-- run by tests/test_recipes.py -->
```python
"a": "not a statement",
```
"""


def test_comments_make_blocks_small():
    first, second, third = blocks(PAGE)
    assert first.changes == (("steps=20_000", "steps=2"),)
    assert second.code == "made = 0\n"
    assert third.run_by == "tests/test_recipes.py"
    assert run(PAGE, "page")["made"] == 3


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (PAGE.replace("start + steps", "start + stops"), NameError, "stops"),
        (PAGE.replace("steps=20_000 =>", "steps=30_000 =>"), AssertionError, "steps=30_000"),
        (PAGE.replace("made = 0", "made ="), SyntaxError, "page, line 17"),
        (PAGE.replace("needs a machine of another kind", ""), AssertionError, "say why"),
    ],
)
def test_a_page_that_is_wrong_is_refused(wrong, error, message):
    with pytest.raises(error, match=message):
        run(wrong, "page")
