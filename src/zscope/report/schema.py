"""JSON schemas (draft 2020-12) of reports and results, made from their types.

    report_schema()          report.json, and what `zscope assay --json` prints
    result_schema("mig")     the result of one assay, in a report or from result.to_dict()
    comparison_schema()      several models side by side
    scores_schema()          what `zscope score --json` prints

Files name their schema and its version: "schema": "urn:zscope:schema:report:2", "format": 2.
Fields follow from the classes of results and findings, so that they cannot differ from them.
Numbers that JSON cannot hold are the strings "inf" and "-inf"; arrays that are too large for a
report are an object with their shape.
"""

import dataclasses
import types
import typing
from collections.abc import Collection, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
from torch import Tensor

from zscope.assays import CATALOGUE
from zscope.documents import REPORT_FORMAT, schema_address
from zscope.errors import ConfigError, did_you_mean
from zscope.report.card import Card
from zscope.report.findings import Check, Finding
from zscope.report.requirements import RELATIONS, VERDICTS
from zscope.results import Result

__all__ = [
    "NAMES",
    "comparison_schema",
    "report_schema",
    "result_schema",
    "schema_of",
    "scores_schema",
]

Schema = dict[str, Any]

NAMES = ("report", "comparison", "scores", "result")
DRAFT = "https://json-schema.org/draft/2020-12/schema"
NUMBER: Schema = {"$ref": "#/$defs/number"}
ARRAY: Schema = {"$ref": "#/$defs/array"}
TEXT: Schema = {"type": "string"}
TEXTS: Schema = {"type": "array", "items": TEXT}
COUNT: Schema = {"type": "integer", "minimum": 0}
PICTURE: Schema = {"type": "string", "pattern": "^data:image/"}
SIMPLE: dict[Any, Schema] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    str: TEXT,
    float: NUMBER,
    type(None): {"type": "null"},
}
DEFINITIONS: Schema = {
    "number": {"anyOf": [{"type": "number"}, {"enum": ["inf", "-inf"]}]},
    "array": {
        "anyOf": [
            NUMBER,
            {"type": "boolean"},
            {"type": "array", "items": {"anyOf": [ARRAY, {"type": "null"}]}},
            {"$ref": "#/$defs/left-out"},
        ]
    },
    "left-out": {
        "description": "An array that is too large for the file.",
        "type": "object",
        "properties": {"shape": {"type": "array", "items": COUNT}, "left_out": TEXT},
        "required": ["shape", "left_out"],
        "additionalProperties": False,
    },
}


def schema_of(name: str, assay: str = "") -> Schema:
    """The schema with this name; of a result, that of an assay."""
    if name == "report":
        return report_schema()
    if name == "comparison":
        return comparison_schema()
    if name == "scores":
        return scores_schema()
    if name == "result" and assay:
        return result_schema(assay)
    if name == "result":
        raise ConfigError(
            "schema: the schema of a result is that of an assay, and none was named. Name one: "
            "zscope schema result mig. To list them: zscope assay --list"
        )
    raise ConfigError(f"schema: there is no schema {name!r}. {did_you_mean(name, NAMES)}")


def result_schema(name: str) -> Schema:
    """The schema of the result of one assay."""
    if name not in CATALOGUE:
        raise ConfigError(
            f"schema: no assay is called {name!r}. {did_you_mean(name, CATALOGUE)} See: zscope "
            "assay --list"
        )
    definitions = dict(DEFINITIONS)
    schema = _result(name, definitions)
    about = {"title": f"The result of {name}", "description": CATALOGUE[name].question}
    return _whole(f"result:{name}", about, schema, definitions)


def report_schema() -> Schema:
    """The schema of a report."""
    definitions = dict(DEFINITIONS)
    assays = {
        name: _outcome(name, definitions) for name, entry in CATALOGUE.items() if not entry.compares
    }
    properties: Schema = {
        **_version("report"),
        "title": TEXT,
        "requirements": _requirements(),
        "card": _of_class(Card, definitions, {"title": TEXT, "counts": {"type": "object"}}),
        "findings": {"type": "array", "items": _finding(definitions)},
        "rules": {
            "type": "array",
            "items": _object({"name": TEXT, "threshold": NUMBER, "checks": TEXT}),
        },
        "explained_variance": _or_null(NUMBER),
        "reconstructions": _or_null(
            _object(
                {"count": COUNT, "picture": PICTURE, "original": ARRAY, "decoded": ARRAY},
                ["count", "picture"],
            )
        ),
        "latents": {"type": "array", "items": _latent()},
        "channels": {"type": "array", "items": _channel()},
        "maps": {"type": "object"},
        "history": {"type": "array", "items": {"type": "object"}},
        "assays": {"type": "object", "properties": assays, "additionalProperties": False},
        "faults": {
            "type": "object",
            "additionalProperties": _object({"failed": TEXT, "traceback": TEXT}),
        },
        "about": _about(),
        "figures": {"type": "object", "additionalProperties": TEXT},
    }
    required = ["format", "schema", "title", "findings", "rules", "explained_variance", "latents",
                "assays", "faults", "about"]  # fmt: skip
    about = {"title": "A report of zscope", "description": "What was measured of a model."}
    return _whole("report", about, _object(properties, required), definitions)


def comparison_schema() -> Schema:
    """The schema of several models side by side."""
    definitions = dict(DEFINITIONS)
    pair = {"first": TEXT, "second": TEXT}
    difference = _object(
        {**pair, "value": NUMBER, "interval": _interval(), "better": _or_null(TEXT), "reason": TEXT}
    )
    row = _object(
        {
            "score": TEXT,
            "assay": _or_null({"enum": list(CATALOGUE)}),
            "better": {"enum": ["higher", "lower", None]},
            "counts": {"type": "boolean"},
            "values": {"type": "array", "items": _or_null(_measure())},
            "missing": TEXTS,
            "differences": {"type": "array", "items": difference},
            "best": _or_null(TEXT),
            "verdict": TEXT,
        }
    )
    findings = {"type": "array", "items": _finding(definitions)}
    properties: Schema = {
        **_version("comparison"),
        "models": {**TEXTS, "minItems": 2},
        "verdict": TEXT,
        "reasons": {"type": "object", "additionalProperties": TEXTS},
        "requirements": {"type": "object", "additionalProperties": _requirements()},
        "scores": {"type": "array", "items": row},
        "similarity": {
            "type": "array",
            "items": _object({**pair, "cka": _or_null(NUMBER), "reason": TEXT}),
        },
        "findings": {"type": "object", "additionalProperties": findings},
        "flags": TEXTS,
        "about": {"type": "array", "items": _about()},
        "command": TEXT,
        "zscope": TEXT,
        "page": TEXT,
        "numbers": TEXT,
        "failed": TEXTS,
    }
    optional = {"requirements", "page", "numbers", "failed"}
    required = [name for name in properties if name not in optional]
    about = {"title": "Models side by side", "description": "Scores, and what is decided."}
    return _whole("comparison", about, _object(properties, required), definitions)


def scores_schema() -> Schema:
    """The schema of the scores of a table of codes."""
    definitions = dict(DEFINITIONS)
    scores = {
        name: _result(name, definitions)
        for name, entry in CATALOGUE.items()
        if entry.group == "disentanglement" and not entry.compares
    }
    texts_by_assay: Schema = {"type": "object", "additionalProperties": TEXT}
    properties: Schema = {
        **_version("scores"),
        "samples": COUNT,
        "latents": COUNT,
        "factors": TEXTS,
        "kinds": TEXTS,
        "scores": _object(scores, []),
        "missing": texts_by_assay,
        "failed": texts_by_assay,
        "tracebacks": texts_by_assay,
    }
    about = {"title": "Scores of codes", "description": "How codes encode known factors."}
    return _whole("scores", about, _object(properties), definitions)


def _whole(name: str, about: Schema, schema: Schema, definitions: Schema) -> Schema:
    """A schema with its address, and the definitions that it refers to."""
    return {
        "$schema": DRAFT, "$id": schema_address(name), **about, **schema, "$defs": definitions,
    }  # fmt: skip


def _object(properties: Schema, required: list[str] | None = None) -> Schema:
    """An object with these entries and no others; all are required unless it says which."""
    needed = list(properties) if required is None else required
    return {
        "type": "object",
        "properties": properties,
        "required": needed,
        "additionalProperties": False,
    }


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _interval() -> Schema:
    return _or_null({"type": "array", "items": NUMBER, "minItems": 2, "maxItems": 2})


def _version(name: str) -> Schema:
    return {"format": {"const": REPORT_FORMAT}, "schema": {"const": schema_address(name)}}


def _requirements() -> Schema:
    outcome = _object(
        {
            "requirement": TEXT,
            "assay": _or_null({"enum": list(CATALOGUE)}),
            "part": _or_null(TEXT),
            "relation": {"enum": list(RELATIONS)},
            "limit": NUMBER,
            "verdict": {"enum": list(VERDICTS)},
            "value": _or_null(NUMBER),
            "interval": _interval(),
            "samples": _or_null(COUNT),
            "reason": TEXT,
        }
    )
    outcomes = {"type": "array", "items": outcome}
    return _object({"verdict": {"enum": list(VERDICTS)}, "outcomes": outcomes})


def _finding(definitions: Schema) -> Schema:
    return {"anyOf": [_reference(kind, definitions) for kind in (Finding, Check)]}


def _latent() -> Schema:
    """A row of the table of latents."""
    numbers = ("spread", "low", "high", "effect", "kl", "variance", "information", "response")
    properties: Schema = {
        "latent": COUNT,
        "used": {"type": "boolean"},
        **dict.fromkeys(numbers, NUMBER),
        "type": {"enum": ["active", "mixed", "passive"]},
        "factor": TEXT,
        "factor_share": NUMBER,
        "moves": TEXT,
        "traversal": _object({"values": {"type": "array", "items": NUMBER}, "picture": PICTURE}),
    }
    return _object(properties, ["latent", "used", "spread", "low", "high"])


def _channel() -> Schema:
    """A row of the table of channels."""
    names = ("mean", "std", "kl", "response", "gain", "importance", "alone", "excess")
    properties: Schema = {
        "channel": COUNT,
        **dict.fromkeys(names, NUMBER),
        "type": {"enum": ["active", "mixed", "passive"]},
        "dead": {"type": ["boolean", "null"]},
    }
    return _object(properties, ["channel", "mean", "std", "dead"])


def _about() -> Schema:
    """How a report is reproduced. The configuration and the recipe of the data are as they are."""
    properties: Schema = {
        "command": TEXT,
        "seed": COUNT,
        "resamples": COUNT,
        "model": {"type": "object", "required": ["name", "latents", "posterior", "parameters"]},
        "data": {"type": "object", "required": ["name", "shape", "encoded", "factors"]},
        "config": {"type": "object"},
        "versions": {"type": "object", "additionalProperties": TEXT, "required": ["zscope"]},
    }
    return _object(properties, [name for name in properties if name != "config"])


def _measure() -> Schema:
    """A score with its interval and chance level, or the reasons why it has none."""
    properties: Schema = {
        "score": TEXT,
        "value": NUMBER,
        "samples": {"type": "integer", "minimum": 1},
        "interval": _interval(),
        "chance": _or_null(NUMBER),
        "no_interval": TEXT,
        "no_chance": TEXT,
    }
    return _object(properties, ["score", "value", "samples", "interval", "chance"])


def _outcome(name: str, definitions: Schema) -> Schema:
    """What a report says of an assay: its result, why there is none, or how it failed."""
    about = {"question": TEXT, "definition": TEXT}
    line = {"type": "array", "items": TEXT, "minItems": 2, "maxItems": 2}
    measured: Schema = {
        **about,
        "note": TEXT,
        "summary": {"type": "array", "items": line},
        "scores": {"type": "array", "items": _measure()},
        "result": _result(name, definitions),
    }
    return {
        "anyOf": [
            _object(measured, [*about, "summary", "scores", "result"]),
            _object({**about, "missing": TEXT}),
            _object({**about, "failed": TEXT, "traceback": TEXT}),
        ]
    }


def _result(name: str, definitions: Schema) -> Schema:
    """The result of an assay, from the type that its function returns."""
    function: Any = CATALOGUE[name].load()
    kind = _hints(getattr(function, "__wrapped__", function)).get("return", Any)
    return _of_type(kind, definitions)


def _of_type(kind: Any, definitions: Schema) -> Schema:
    """What `results.plain` makes of values of a type."""
    if kind in SIMPLE:
        return SIMPLE[kind]
    if _is_array(kind):
        return ARRAY
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _reference(kind, definitions)
    return _generic(get_origin(kind), get_args(kind), definitions)


def _generic(origin: Any, arguments: tuple[Any, ...], definitions: Schema) -> Schema:
    """A type with arguments: a choice, a dict or a list. Of others nothing is known."""
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_of_type(each, definitions) for each in arguments]}
    if _is_kind(origin, Mapping):
        return {"type": "object", "additionalProperties": _of_type(arguments[1], definitions)}
    return _list(origin, arguments, definitions) if _is_kind(origin, Collection) else {}


def _list(origin: Any, arguments: tuple[Any, ...], definitions: Schema) -> Schema:
    """A list of anything, which may be too large for a report, or a tuple of a fixed length."""
    if origin is tuple and Ellipsis not in arguments:
        parts, count = [_of_type(each, definitions) for each in arguments], len(arguments)
        return {"type": "array", "prefixItems": parts, "minItems": count, "maxItems": count}
    items = _of_type(arguments[0], definitions) if arguments else {}
    return {"anyOf": [{"type": "array", "items": items}, {"$ref": "#/$defs/left-out"}]}


def _is_array(kind: Any) -> bool:
    """Whether this is a tensor or an array, also with a stated shape."""
    kind = getattr(kind, "array_type", kind)
    kind = get_origin(kind) or kind
    return isinstance(kind, type) and issubclass(kind, Tensor | np.ndarray)


def _is_kind(origin: Any, kind: type) -> bool:
    return isinstance(origin, type) and issubclass(origin, kind)


def _reference(kind: type, definitions: Schema) -> Schema:
    """A class by its name, described once."""
    if kind.__name__ not in definitions:
        definitions[kind.__name__] = {}  # it may refer to itself
        definitions[kind.__name__] = _of_class(kind, definitions)
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _of_class(kind: type, definitions: Schema, more: Mapping[str, Schema] | None = None) -> Schema:
    """A dataclass with its fields, and more entries. Results say their kind and their units.

    A class that writes itself, with `to_dict` of its own, may leave fields out and add others.
    """
    hints = _hints(kind)
    fields = {
        field.name: _of_type(hints.get(field.name, Any), definitions)
        for field in dataclasses.fields(kind)
        if not issubclass(kind, Result) or field.name not in kind.not_written
    }
    written = {"sentence": TEXT} if issubclass(kind, Finding) else {}
    properties: Schema = {**(more or {}), **written, **fields}
    if not issubclass(kind, Result):
        return _object(properties)
    units = {"unit": TEXT, "unit_names": TEXTS}
    schema = _object({"kind": {"const": kind.__name__}, **properties, **units})
    if kind.to_dict is not Result.to_dict:
        return {**schema, "required": ["kind"], "additionalProperties": True}
    return {**schema, "required": ["kind", *(name for name in properties if name != "groups")]}


def _hints(of: Any) -> dict[str, Any]:
    """The annotations of a class or function; none where they cannot be resolved."""
    try:
        return get_type_hints(of)
    except NameError:  # a name that is imported for type checkers alone
        return {}
