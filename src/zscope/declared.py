"""What a module declares, read from its source without running the module.

Lists of assays, models and studies show what stands beside the code of each: a question, a
title, a grid of runs. Running that code would load torch, which takes longer than the list. So

    declared("zscope.models.beta_vae", "ENTRY", ["title", "paper"])

evaluates only these arguments of the call that is assigned to ENTRY. Names in them are looked
up in the same file, or where it imports them from.
"""

import ast
import re
from collections.abc import Collection
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

__all__ = ["declared"]

_STATEMENT = re.compile(r"\n(?=[^\s)\]}#])")  # where the next one begins
_IMPORT = re.compile(r"^(?:from [\w.]+ )?import (?:\([^)]*\)|.+)$", re.MULTILINE)


def declared(
    module: str, name: str, wanted: Collection[str] = (), *, key: str | None = None
) -> dict[str, Any]:
    """The named arguments of the call that is assigned to `name`: the `wanted` ones, or all.

    Where a dict is assigned, `key` says which of its values is the call.
    """
    source = _Source(module)
    call = source.expression(name)
    if isinstance(call, ast.Dict):
        keys = [ast.literal_eval(each) for each in call.keys if each is not None]
        call = dict(zip(keys, call.values, strict=True))[key]
    if not isinstance(call, ast.Call) or call.args:
        raise TypeError(
            f"{module}: {name} is not a call with named arguments alone, as in Entry(title=...), "
            "so it cannot be listed without running the module. See CONTRIBUTING.md."
        )
    return {
        word.arg: source.evaluate(word.value)
        for word in call.keywords
        if word.arg is not None and (not wanted or word.arg in wanted)
    }


class _Source:
    """The source of a module, of which only the statements that are asked for are parsed."""

    def __init__(self, module: str) -> None:
        spec = find_spec(module)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"{module} is in a catalogue, but it does not exist.")
        self.module = module
        self.text = "\n" + Path(spec.origin).read_text(encoding="utf-8")
        self.imports = _IMPORT.findall(self.text)

    def expression(self, name: str) -> ast.expr:
        """What is assigned to a name at the top level."""
        start = self._find(f"{name} = ", f"{name}: ")
        if start < 0:
            raise ImportError(f"{self.module} has no {name}. See CONTRIBUTING.md.")
        end = _STATEMENT.search(self.text, start)
        try:
            statement = ast.parse(self.text[start : end.start() if end else None]).body[0]
        except SyntaxError:  # a text of several lines that look like statements
            statement = ast.parse(self.text[start:]).body[0]
        value: ast.expr = statement.value  # type: ignore[attr-defined]
        return value

    def _find(self, *beginnings: str) -> int:
        """Where the first line is that begins so; -1 if there is none."""
        places = [self.text.find("\n" + each) for each in beginnings]
        return min((place + 1 for place in places if place >= 0), default=-1)

    def evaluate(self, expression: ast.expr) -> Any:
        """The value of an expression; only the names in it are looked up."""
        try:
            return ast.literal_eval(expression)
        except ValueError:  # not a literal
            words = {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}
            values = {name: value for name in sorted(words) for value in self._lookup(name)}
            return eval(compile(ast.Expression(expression), self.module, "eval"), values)

    def _lookup(self, name: str) -> list[Any]:
        """The value of a name; none if it is a builtin, or bound in the expression itself."""
        if self._find(f"{name} = ", f"{name}: ") >= 0:
            return [self.evaluate(self.expression(name))]
        for line in self.imports:
            for alias in ast.parse(line).body[0].names if name in line else ():
                if name == (alias.asname or alias.name):
                    if line.startswith("from "):
                        return [getattr(import_module(line.split()[1]), alias.name)]
                    return [import_module(alias.name)]
        if self._find(f"def {name}(", f"class {name}(", f"class {name}:") >= 0:
            return [getattr(import_module(self.module), name)]
        return []
