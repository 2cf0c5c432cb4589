"""The API reference: every public name of zscope, from its source and its docstring."""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from formulas import typeset

import zscope as zs
from zscope.assays import CATALOGUE
from zscope.results import Result

__all__ = ["MODULES", "api_pages", "public_names", "signature"]

MODULES: tuple[str, ...] = zs._MODULES
WIDTH = 76


def public_names(module: str = "") -> list[str]:
    """The public names of `zscope`, or of one of its modules."""
    if module:
        return list(getattr(zs, module).__all__)
    return [name for name in zs.__all__ if name not in MODULES and not name.startswith("_")]


def api_pages() -> dict[str, str]:
    """A page for `zscope` itself, one for each of its modules, and an index of all names."""
    index = [
        "# API reference",
        "`import zscope as zs`. Names are loaded when they are first used, so importing zscope "
        "costs nothing. Whatever draws takes a `generator` or a `seed`; options are keyword-only.",
    ]
    pages = {}
    for module in ("", *MODULES):
        names = public_names(module)
        prefix = f"zs.{module}." if module else "zs."
        home = getattr(zs, module) if module else zs
        about = (
            first_sentence(home.__doc__ or "") if module else "Models, recordings, reports, runs."
        )
        text = [f"# {prefix[:-1]}", about]
        rows = []
        for name in names:
            value = getattr(home, name)
            body, summary = document(prefix + name, value)
            text.append(body)
            anchor = f"{module or 'zscope'}.md#{prefix}{name}"
            rows.append(f"| [`{prefix}{name}`]({anchor}) | {summary.replace('|', '&#124;')} |")
        pages[f"api/{module or 'zscope'}.md"] = "\n\n".join(text) + "\n"
        table = "\n".join(["| name | |", "| --- | --- |", *rows])
        index += [f"## [{prefix[:-1]}]({module or 'zscope'}.md)", about, table]
    pages["api/index.md"] = "\n\n".join(index) + "\n"
    return pages


def document(name: str, value: Any) -> tuple[str, str]:
    """The entry of a name, and its first sentence."""
    short = name.removeprefix("zs.")
    heading = f"## {short} {{: #{name} }}"
    if inspect.isclass(value):
        return describe_class(heading, name, value)
    if callable(value):
        text = documentation(value)
        note = see_assay(value)
        parts = [heading, code(signature(name, value)), typeset(text), note]
        return "\n\n".join(filter(None, parts)), first_sentence(text)
    what = f"{type(value).__name__} with {len(value)} entries" if hasattr(value, "__len__") else ""
    text = constant_text(name, value) or f"A {what or type(value).__name__}."
    return f"{heading}\n\n{text}", text


def constant_text(name: str, value: Any) -> str:
    """What a constant holds."""
    if isinstance(value, dict):
        return f"A dictionary by name: {', '.join(f'`{key}`' for key in list(value)[:6])}, …"
    if isinstance(value, tuple | list | set | frozenset):
        return f"{', '.join(f'`{key}`' for key in value)}."
    return f"`{value!r}`"


def describe_class(heading: str, name: str, value: type) -> tuple[str, str]:
    text = documentation(value)
    parts = [heading, code(signature(name, value)), typeset(text)]
    if bases := [base for base in value.__mro__[1:] if is_public(base)]:
        names = ", ".join(f"[`{base.__name__}`](zscope.md#zs.{base.__name__})" for base in bases)
        parts.append(f"It has everything of {names} too.")
    if issubclass(value, Result):
        parts.append(
            "A result: it prints as a short table, and has `.to_dict()`, `.to_frame()` and "
            "`.plot()`."
        )
    for member, function in members(value):
        parts.append(f"### .{member} {{: #{name}.{member} }}")
        if not isinstance(function, property):
            parts.append(code(signature(f".{member}", function)))
        parts.append(typeset(documentation(function)))
    return "\n\n".join(filter(None, parts)), first_sentence(text)


def members(value: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties that the class, or a base that is not public, documents."""
    seen = set()
    for base in value.__mro__:
        told = base is not value and (is_public(base) or base.__module__ == Result.__module__)
        if told or not base.__module__.startswith("zscope"):
            continue
        for name, member in vars(base).items():
            plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            is_documented = isinstance(plain, property) or inspect.isfunction(plain)
            if is_documented and inspect.getdoc(plain):
                yield name, plain


def is_public(value: type) -> bool:
    return value.__module__.startswith("zscope") and value.__name__ in public_names()


def documentation(value: Any) -> str:
    text = inspect.getdoc(inspect.unwrap(value) if callable(value) else value) or ""
    written = f"{getattr(value, '__name__', '')}(" if inspect.isclass(value) else "\0"
    return "" if text.startswith(written) else text  # those that @dataclass writes say nothing


def first_sentence(text: str) -> str:
    paragraph = " ".join(text.partition("\n\n")[0].split())
    found = re.match(r"(.+?[.?])(?: [A-Z`.]|$)", paragraph)
    return (found[1] if found else paragraph).replace("<", "&lt;")


def see_assay(value: Any) -> str:
    """A link from a function to the page of its assay."""
    name = getattr(value, "__name__", "").replace("_", "-")
    module = getattr(inspect.unwrap(value), "__module__", "")
    if name in CATALOGUE and CATALOGUE[name].module == module:
        return f"{CATALOGUE[name].question} [{name}](../assays/{name}.md)"
    return ""


def code(text: str) -> str:
    """A signature, which wraps where the page is narrow."""
    return f"``` {{ .python .signature }}\n{text}\n```" if text else ""


def signature(name: str, value: Any) -> str:
    """How something is called, as its source says, with one parameter a line if it is long."""
    source = source_of(value)
    if isinstance(source, ast.ClassDef):
        parameters, result = class_parameters(value, source), ""
    elif isinstance(source, ast.FunctionDef | ast.AsyncFunctionDef):
        parameters = function_parameters(source.args)
        result = f" -> {ast.unparse(source.returns)}" if source.returns else ""
    else:
        return f"{name}(…)"
    line = f"{name}({', '.join(parameters)}){result}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {parameter}," for parameter in parameters), f"){result}"])


def source_of(value: Any) -> ast.stmt | None:
    try:
        text = textwrap.dedent(inspect.getsource(inspect.unwrap(value)))
    except (OSError, TypeError):
        return None
    return ast.parse(text).body[0]


def function_parameters(arguments: ast.arguments) -> list[str]:
    """Parameters with their types and defaults, without `self`."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    parts = [
        parameter(each, default)
        for each, default in zip(positional, [*defaults, *arguments.defaults], strict=True)
    ]
    if positional and positional[0].arg in {"self", "cls"}:
        parts = parts[1:]
    if arguments.vararg:
        parts.append("*" + parameter(arguments.vararg, None))
    elif arguments.kwonlyargs:
        parts.append("*")
    parts += [
        parameter(each, default)
        for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    if arguments.kwarg:
        parts.append("**" + parameter(arguments.kwarg, None))
    return parts


def parameter(argument: ast.arg, default: ast.expr | None) -> str:
    text = argument.arg
    if argument.annotation:
        text += f": {ast.unparse(argument.annotation)}"
    if default is not None:
        text += f" = {ast.unparse(default)}" if argument.annotation else f"={ast.unparse(default)}"
    return text


def class_parameters(value: type, source: ast.ClassDef) -> list[str]:
    """The parameters of `__init__`, or the fields of a dataclass."""
    for statement in source.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            return function_parameters(statement.args)
    fields = [each for each in source.body if isinstance(each, ast.AnnAssign)]
    if not hasattr(value, "__dataclass_fields__"):
        return []
    parts = []
    for each in fields:
        name, kind = ast.unparse(each.target), ast.unparse(each.annotation)
        if name.startswith("_") or kind.startswith("ClassVar"):
            continue
        parts.append(f"{name}: {kind}" + (f" = {ast.unparse(each.value)}" if each.value else ""))
    return parts
