"""The arguments of an assay: the parts of a recording, or plain arrays.

`accepts_recording` decorates the function of every assay. The function itself takes
tensors; given a `Recording`, the decorator passes the parts that its entry names. So
`a.mig(recording)`, `a.mig(codes, factors, ...)`, `zs.assay`, the command line and the report
all make the same call, with the same random numbers and the same number of samples. `parts`
says how each part is made.
"""

import functools
import inspect
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Callable as CallableType
from types import UnionType
from typing import (
    Any,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    overload,
    runtime_checkable,
)

import numpy as np
import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from zscope.assays.engine import posterior_of
from zscope.assays.entry import Entry
from zscope.assays.parts import CHOSEN, PARTS, unmet
from zscope.assays.units import MOST_UNITS, count_units, units_of
from zscope.assays.views import check_pool, column_names, rows_text, view_of
from zscope.autoencoder import Autoencoder, Posterior
from zscope.errors import ConfigError, DataError, Undefined, did_you_mean
from zscope.randomness import named_generator
from zscope.recording import Recording, base_count, weights_hash
from zscope.results import name_result, name_units
from zscope.sampling import MOST
from zscope.types import as_tensor, at_least_single

__all__ = ["accepts_recording", "check_argument", "checked", "choices"]

COLUMNS_OF_CHANNELS = {"places", "every", "pooled", "offsets", "maps"}
"""What assays are given of maps that makes their numbers those of channels."""
ITERABLE = (list, tuple, set, frozenset, range, np.ndarray, Tensor)
P = ParamSpec("P")
R = TypeVar("R", covariant=True)  # noqa: PLC0105


@runtime_checkable
class Assay(Protocol[P, R]):
    """A function of arrays that also accepts a recording in their place."""

    __name__: str

    @overload
    def __call__(self, recording: Recording, /, **options: Any) -> R: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...


def accepts_recording(function: Callable[P, R]) -> Assay[P, R]:
    """Accept a recording instead of arrays; fill in the generator and the number of samples."""
    signature = inspect.signature(function)
    name = function.__name__.replace("_", "-")

    @functools.wraps(function)
    def measure(*arguments: Any, **options: Any) -> R:
        entry = _entry_of(function)
        options = {
            option: check_argument(function, option, value) for option, value in options.items()
        }
        if arguments and isinstance(arguments[0], Recording):
            if len(arguments) > 1 and not entry.compares:
                raise ConfigError(
                    f"{name}: got a recording and {len(arguments) - 1} more positional arguments. "
                    "The recording contains all arrays; give options by keyword."
                )
            if not entry.compares:
                result = _of_recording(function, signature, entry, arguments[0], options)
                return name_result(result, entry.name)
        seed = 0
        if entry.compares:
            seed = _seed(arguments)
            layouts = [each.layout for each in arguments if isinstance(each, Recording)]
            if "layouts" in signature.parameters and layouts and all(layouts):
                options.setdefault("layouts", layouts)
            arguments = tuple(_codes(each, entry) for each in arguments)
        arguments = tuple(map(_exact, arguments))
        if "pool" in options and "pool" not in signature.parameters:
            raise ConfigError(
                f"{name}: pool={options['pool']!r} is for recordings of latents that are maps, and "
                "arrays were given. Give the recording, or pool their places yourself."
            )
        options = {option: _exact(value) for option, value in options.items()}
        values = signature.bind(*arguments, **options).arguments
        for option, value in list(values.items())[: len(arguments)]:
            values[option] = check_argument(function, option, value)
        if values.get("generator") is None:
            _as_recording(signature, entry, values)
        _complete(signature, entry, values, seed, _of_maps(values))
        return name_result(cast(Callable[..., R], function)(**values), entry.name)

    return cast(Assay[P, R], measure)


def _of_maps(values: Mapping[str, Any]) -> Recording | None:
    """The recording of maps among the arguments, also if only their posterior was given."""
    given = [each for each in values.values() if isinstance(each, Recording | Posterior)]
    maps = next((each for each in given if each.layout is not None), None)
    return Recording(None, maps) if isinstance(maps, Posterior) else maps


def _exact(value: Any) -> Any:
    """Arrays and posteriors of half precision as float32; anything else as it is.

    Posteriors lose their gradients, which no measurement has.
    """
    if isinstance(value, list | tuple):
        return type(value)(map(_exact, value))
    if isinstance(value, Posterior):
        return value.detach().to(torch.promote_types(value.mean.dtype, torch.float32))
    return at_least_single(value)


def _codes(value: Any, entry: Entry) -> Any:
    """The codes of a recording, or of each recording in a list; anything else as it is."""
    if isinstance(value, list | tuple):
        return [_codes(each, entry) for each in value]
    return view_of(entry, value).codes if isinstance(value, Recording) else value


def _seed(values: Iterable[Any]) -> int:
    """The seed of the first recording; 0 for bare arrays."""
    for value in values:
        first = value[0] if isinstance(value, list | tuple) and value else value
        if isinstance(first, Recording):
            return first.seed
    return 0


def _of_recording(
    function: Callable[..., R],
    signature: inspect.Signature,
    entry: Entry,
    recording: Recording,
    options: dict[str, Any],
) -> R:
    check_option_names(entry, set(options) - {"generator"})
    if reason := unmet(entry, recording):
        raise Undefined(f"{entry.name}: {reason}.")

    own_generator = options.get("generator") is not None
    own = dict(options)
    pool = own.pop("pool", None)
    if "pool" in options:
        check_pool(entry.name, pool, recording)

    def work() -> R:
        view = view_of(entry, recording, pool)
        values = {**_parts(signature, entry, view, own), **own}
        _complete(signature, entry, values, recording.seed, recording)
        result = function(**values)
        if recording.layout is not None and entry.map_kind in COLUMNS_OF_CHANNELS:
            names = column_names(entry, recording.layout, pool)
            unit = "column" if pool == "mean+std" else "channel"
            name_units(result, unit, names, rows_text(entry, recording, pool))
        return result

    if own_generator:
        return work()
    text = options_text(options)
    return work() if text is None else cast(R, recording.share((entry.name, text), work))


def options_text(options: Mapping[str, Any]) -> str | None:
    """Options as a unique text; None if one of them has none, such as an array or a function.

    The repr of an array is shortened. A model is its recipe and a hash of its weights; one
    without a recipe, of which these say too little, has no text.
    """

    def plain(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [plain(item) for item in value]
        if isinstance(value, dict):
            return {plain(key): plain(item) for key, item in value.items()}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, Autoencoder) and value.recipe is not None:
            return {"model": plain(value.recipe), "weights": weights_hash(value)}
        raise TypeError(type(value).__name__)

    try:
        return repr([(name, plain(options[name])) for name in sorted(options)])
    except TypeError:
        return None


def _places(signature: inspect.Signature, entry: Entry) -> dict[str, str]:
    """The parameters that an entry fills, with the part of a recording for each."""
    names = iter(signature.parameters)
    words = [word.rpartition("=") for word in entry.takes]
    return {keyword or next(names): part for keyword, _, part in words}


def _parts(
    signature: inspect.Signature, entry: Entry, recording: Recording, options: Mapping[str, Any]
) -> dict[str, Any]:
    """The parts that an entry names, by parameter, but those that the caller chose.

    A whole recording has base samples; an assay that draws its own, with the caller's generator,
    gets the posterior instead.
    """
    own_generator = options.get("generator") is not None
    return {
        name: PARTS["posterior" if own_generator and "recording" in part else part](recording)
        for name, part in _places(signature, entry).items()
        if name not in options
    }


def _as_recording(signature: inspect.Signature, entry: Entry, values: dict[str, Any]) -> None:
    """Make a recording of plain posteriors or codes where an assay takes a whole one.

    So the base samples are the same whether a recording or its posterior is given.
    """
    model = next((each for each in values.values() if isinstance(each, Autoencoder)), None)
    for name, part in _places(signature, entry).items():
        value = values.get(name)
        if (part == "recording" and value is not None) or (
            part == "recording_or_codes" and isinstance(value, Posterior)
        ):
            values[name] = Recording(model, posterior_of(value, entry.attribute))


def _complete(
    signature: inspect.Signature,
    entry: Entry,
    values: dict[str, Any],
    seed: int,
    recording: Recording | None = None,
) -> None:
    """Add the generator and the number of samples where the caller gave none."""
    parameters = signature.parameters
    if "generator" in parameters and values.get("generator") is None:
        values["generator"] = named_generator(seed, entry.name)
    limited = entry.is_limited(values)
    if recording is not None:
        values |= {
            name: value
            for name, value in defaults_for(entry, recording, signature).items()
            if name not in values
        }
        _refuse_many_units(signature, entry, values, recording)
    if not limited:
        return
    sizes = {**options_of(signature), **values, **sizes_of(values, recording, entry)}
    count = entry.affordable(sizes)
    if not count:
        number = 2 * entry.fewest
        fewest, own = (entry.cost({**sizes, entry.scales: n}) for n in (entry.fewest, number))
        ask = (
            f"Ask for a number of your own, {entry.scales}={number} (--set {entry.name}."
            f"{entry.scales}={number}; {own:,} passes), or use"
        )
        raise Undefined(
            f"{entry.name}: a model with {sizes['latents']:,} latents needs more than the "
            f"{entry.most:,} passes that it may take by default: {fewest:,} with "
            f"{entry.scales}={entry.fewest}, of which fewer are not worth measuring. "
            + (ask if entry.scales in parameters else "Use")
            + " fewer, larger groups of latents."
        )
    if entry.scales in parameters:
        values[entry.scales] = count


def _refuse_many_units(
    signature: inspect.Signature, entry: Entry, values: Mapping[str, Any], recording: Recording
) -> None:
    """Before the limit on passes, which would ask for fewer samples where units are the cause.

    Only where more units cost more: not where they are what hybrids are made of.
    """
    if recording.layout is None or not entry.passes:
        return
    given = [each for each in values.values() if isinstance(each, Recording | Posterior)]
    if entry.map_kind == "offsets" and any(each.layout is not None for each in given):
        raise ConfigError(
            f"{entry.attribute}: the latents are maps ({recording.layout}), whose channels are "
            f"moved, not {recording.latents:,} single latents. Give the recording alone: "
            f"zs.assays.{entry.attribute}(recording)"
        )
    if entry.map_kind != "units":
        return
    groups = values.get("groups")
    sizes = {**options_of(signature), **values, **sizes_of(values, recording, entry)}
    most, more = (entry.cost({**sizes, "latents": MOST_UNITS + k}) for k in (0, 1))
    units_of(
        entry.attribute,
        values.get("units", "auto"),
        None if isinstance(groups, str) else groups,
        recording.latents,
        recording.layout,
        rounds=more - most,
    )


def options_of(signature: inspect.Signature) -> dict[str, Any]:
    """The options of a function with their defaults."""
    return {
        name: parameter.default
        for name, parameter in signature.parameters.items()
        if parameter.default is not parameter.empty
    }


def defaults_for(
    entry: Entry, recording: Recording, signature: inspect.Signature
) -> dict[str, Any]:
    """Defaults of an assay that differ for a recording.

    Of maps there are fewer samples, which are whole pictures; of a quick recording a quarter.
    """
    own = options_of(signature)
    of_maps = recording.layout is not None and entry.map_kind in ("units", "place", "flat")
    changed: dict[str, Any] = {}
    if of_maps and entry.passes:  # a quarter already, where it is quick
        changed = {entry.scales: base_count(recording)}
    elif recording.quick and entry.passes and isinstance(own.get(entry.scales), int):
        changed = {entry.scales: max(entry.fewest, own[entry.scales] // 4)}
    if of_maps:
        less = 4 if recording.quick else 1
        changed |= {
            name: max(entry.fewest, value // less) if name == entry.scales else value
            for name, value in entry.map_options.items()
        }
    return {name: value for name, value in changed.items() if name in own}


def sizes_of(
    values: Mapping[str, Any], recording: Recording | None = None, entry: Entry | None = None
) -> dict[str, int]:
    """Numbers of latents and factors, from the recording or the arguments.

    Of maps, the latents of an assay are the columns of its view, or its units.
    """
    if recording is not None:
        factors, layout = recording.factors, recording.layout
        latents = recording.latents
        if layout is not None and entry is not None and entry.map_kind not in ("flat", "maps"):
            latents = count_units(values.get("units"), values.get("groups"), layout)
        return {
            "latents": latents,
            "factors": 0 if factors is None else factors.shape[1],
            "channels": 1 if layout is None else layout.channels,
            "pictures": base_count(recording),
        }
    table = values.get("factors")
    if table is None:
        table = getattr(values.get("data"), "factors", None)
    shape: tuple[int, ...] = () if table is None else tuple(table.shape)
    sizes = {"latents": _latents(values), "factors": int(shape[1]) if len(shape) > 1 else 1}
    return {**sizes, "channels": 1, "pictures": 0}


def _latents(values: Mapping[str, Any]) -> int:
    """From the codes if possible: a wrapped model may not know it before its first use."""
    for each in values.values():
        if isinstance(each, Recording | Posterior):
            return each.latents
    codes = values.get("codes")
    if isinstance(codes, Tensor | np.ndarray):
        return int(np.prod(codes.shape[1:]))
    model = next((each for each in values.values() if isinstance(each, Autoencoder)), None)
    return 1 if model is None else model.latents


def option_names(entry: Entry) -> list[str]:
    """What a caller may set: not the arrays that come from the recording, nor the generator."""
    signature = inspect.signature(entry.load())
    places = _places(signature, entry)
    arrays = {name for name, part in places.items() if part not in CHOSEN}
    if entry.compares:
        arrays = set(list(signature.parameters)[: len(entry.takes)])
    names = [name for name in signature.parameters if name not in arrays | {"generator"}]
    return [*names, "pool"] if entry.map_kind == "pooled" else names


def check_option_names(entry: Entry, options: Iterable[str]) -> None:
    """Refuse options that the function does not have, and arrays that come from the recording."""
    known = option_names(entry)
    for option in options:
        if option not in known:
            raise ConfigError(
                f"{entry.name}: it has no option {option!r}. {did_you_mean(option, known)}"
            )


def check_option_value(entry: Entry, option: str, value: Any) -> Any:
    """The value converted to the type of the option ("64.0" for an int is 64), or ConfigError.

    Only plain types are checked: numbers, words, booleans, choices and lists of these. Arrays,
    groups of latents and rules are checked by the assay itself.
    """
    expected: Any = _annotations(inspect.unwrap(entry.load())).get(option)
    return _check_plain(entry.name, entry.attribute, option, value, expected)


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """A function whose arguments are checked against its annotations."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> R:
        values = signature.bind(*arguments, **options)
        for name, value in values.arguments.items():
            values.arguments[name] = check_argument(function, name, value)
        return function(*values.args, **values.kwargs)

    return cast(Callable[P, R], call)


def check_argument(function: Callable[..., Any], name: str, value: Any) -> Any:
    """A value of a kind that the annotation allows; anything else is a ConfigError or DataError.

    Unlike `check_option_value`, which reads what people type, it converts nothing: 8.0 is no
    whole number. Of arrays only the type is checked here: their shapes and numbers are the
    assay's own business.
    """
    who = function.__name__
    expected = _annotations(inspect.unwrap(function)).get(name)
    members = _members(expected)
    if expected is None or Any in members or (value is None and type(None) in members):
        return value
    if _is_plain(expected):
        strict = not isinstance(value, ITERABLE)
        plain = _check_plain(who, who, name, value, expected, strict=strict)
        if isinstance(value, int) and abs(value) > MOST:
            return plain  # as the float that it stands for: tensors take no such int
        return value  # as it was given: 1 stays 1 in messages
    classes = tuple(each for each in map(_class, members) if each is not None)
    kinds = (*classes, Recording, Posterior)
    number = isinstance(value, Tensor | np.ndarray) and value.ndim == 0 and float not in classes
    if len(classes) < len(members) or (isinstance(value, kinds) and not number):
        return value
    if Tensor in classes or np.ndarray in classes:
        table = as_tensor(value, f"{who}: {name}")
        if table.ndim == 0 and float not in classes:
            raise DataError(
                f"{who}: {name}={_short(value)} is a single number; expected an array with a row "
                "for each sample."
            )
        return table
    words = " or ".join(each.__name__ for each in classes if each is not type(None))
    raise ConfigError(
        f"{who}: {name}={_short(value)}; expected {words}. The help of zs.assays.{who} says what "
        "it is for."
    )


@functools.cache
def _annotations(function: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(function)


def _members(expected: Any) -> tuple[Any, ...]:
    """The types of a union, or the type itself."""
    if get_origin(expected) in (Union, UnionType):
        return tuple(each for part in get_args(expected) for each in _members(part))
    return (expected,)


def _class(expected: Any) -> type | None:
    """The class that values of this type have; None if that is not known."""
    if getattr(expected, "array_type", None) is Tensor:  # named by its shape
        return Tensor
    origin = get_origin(expected) or expected
    if origin is CallableType:
        return cast(type, CallableType)
    return origin if isinstance(origin, type) and origin is not Protocol else None


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def _check_plain(
    who: str, attribute: str, option: str, value: Any, expected: Any, *, strict: bool = False
) -> Any:
    if expected is None or not _is_plain(expected):
        return value
    plain = value.tolist() if isinstance(value, np.generic | np.ndarray | Tensor) else value
    plain = sorted(plain) if isinstance(plain, set | frozenset) else plain
    try:
        plain = _adapter(expected).validate_python(plain, strict=strict)
        fits = not isinstance(plain, float) or not math.isnan(plain)
        fits = fits and (not isinstance(plain, int) or abs(plain) <= MOST)
    except ValidationError:
        fits = False
    if not fits:
        raise ConfigError(
            f"{who}: {option}={_short(value)}; expected {_in_words(expected)}. The help of "
            f"zs.assays.{attribute} says what it is for."
        )
    return plain


@functools.cache
def _adapter(expected: Any) -> Any:
    return TypeAdapter(expected)


@functools.cache
def choices(function: Callable[..., Any], option: str) -> tuple[Any, ...]:
    """The values that an option may have, if its type names them; otherwise nothing."""
    expected = get_type_hints(inspect.unwrap(function)).get(option)
    parts = get_args(expected) if get_origin(expected) in (Union, UnionType) else (expected,)
    if any(get_origin(part) is not Literal for part in parts):
        return ()
    return tuple(value for part in parts for value in get_args(part))


def _is_plain(expected: Any) -> bool:
    if get_origin(expected) is Literal or expected in (int, float, bool, str, type(None)):
        return True
    plain = get_origin(expected) in (Union, UnionType, Sequence, list, tuple)
    return plain and all(map(_is_plain, get_args(expected)))


def _in_words(expected: Any) -> str:
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}
    if expected in words:
        return words[expected]
    parts = get_args(expected)
    if get_origin(expected) is Literal:
        return " or ".join(map(str, parts))
    if get_origin(expected) in (Union, UnionType):
        return " or ".join(_in_words(each) for each in parts if each is not type(None))
    inner = _in_words(parts[0]).removeprefix("a ")
    return f"a list of {'lists' + inner[4:] if inner.startswith('list ') else inner + 's'}"


def _entry_of(function: Callable[..., Any]) -> Entry:
    """The entry in the function's own module, or an empty one for helper functions."""
    from zscope.assays import CATALOGUE

    name = function.__name__.replace("_", "-")
    if name in CATALOGUE:
        return CATALOGUE[name]
    entry = getattr(sys.modules[function.__module__], "ENTRY", Entry("", ()))
    return Entry(**{**vars(entry), "name": name, "module": function.__module__})
