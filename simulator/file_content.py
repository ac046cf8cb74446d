"""The content of a file as a dataclass, strictly: a broken rule is one line that names file, place, value and rule."""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Union, cast

from simulator import units
from simulator.errors import InputError, UnknownNameError, nearest

if TYPE_CHECKING:
    import pydantic

SCHEMA = 1
T = TypeVar("T")
SIGNS: Mapping[str, frozenset[str]] = {
    "plan": frozenset({"placements"}),
    "profile": frozenset({"layers", "batch_size"}),
    "cluster": frozenset({"devices", "links"}),
    "preset of a cluster": frozenset({"node", "default_devices"}),
    "sweep": frozenset({"parameters"}),
    "scenario": frozenset({"profile", "cluster"}),
    "model card": frozenset({"hidden", "heads"}),
    "training stack": frozenset({"accelerator", "runtime"}),
    "config.json of Hugging Face": frozenset({"architectures", "model_type"}),
    "trace": frozenset({"traceEvents"}),
    "validation": frozenset({"machine", "outcomes"}),
}
"""Keys that a file of each kind has, and of no other all."""
RULES = {
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid string": "a text",
    "a valid boolean": "true or false",
    "a valid dictionary": "a mapping",
    "a valid tuple": "a list",
}
"""What pydantic says, in words of a user."""
_QUANTITIES: tuple[tuple[str, Callable[[str], float]], ...] = (
    ("_bytes_per_s", units.parse_bandwidth),
    ("_bytes", units.parse_bytes),
    ("_s", units.parse_time),
)
"""What a text may say where a number is expected, by the end of its key."""


def in_si_units(content: Any, kind: Any, path: Path) -> Any:
    """`content` of a `kind` with quantities such as "25Gbps" or "5us" as the numbers they are. Raises InputError."""
    kind = _without_none(kind)
    if isinstance(content, list) and typing.get_origin(kind) is tuple:
        return [in_si_units(part, typing.get_args(kind)[0], path) for part in content]
    if not isinstance(content, dict):
        return content
    if not dataclasses.is_dataclass(kind):
        values = typing.get_args(kind)[-1:] or (Any,)
        return {key: in_si_units(part, values[0], path) for key, part in content.items()}
    hints = _field_types(cast(Any, kind))
    return {key: _quantity(str(key), part, hints.get(str(key), Any), path) for key, part in content.items()}


@cache
def _field_types(kind: Any) -> dict[str, Any]:
    """The type of each field of a dataclass; kept, as reading the hints costs more than reading a file."""
    return typing.get_type_hints(kind)


@cache
def _adapter(kind: Any) -> pydantic.TypeAdapter[Any]:
    """What makes a `kind` of JSON; kept, as making it costs more than its use.

    pydantic asks each dataclass itself whether unknown keys are forbidden.
    """
    import pydantic

    for part in _dataclasses_in(kind):
        part.__pydantic_config__ = pydantic.ConfigDict(extra="forbid")
    return pydantic.TypeAdapter(kind)


def _dataclasses_in(kind: Any) -> Iterator[Any]:
    """The dataclasses that values of a type are made of."""
    parts: Iterable[Any] = typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        yield kind
        parts = _field_types(cast(Any, kind)).values()
    for part in parts:
        yield from _dataclasses_in(part)


def _quantity(key: str, value: Any, kind: Any, path: Path) -> Any:
    parse = next((parse for suffix, parse in _QUANTITIES if key.endswith(suffix)), None)
    if not (isinstance(value, str) and parse and _without_none(kind) in (int, float)):
        return in_si_units(value, kind, path)
    try:
        return parse(value)
    except InputError as error:
        raise InputError(f"{path}: {key}: {error}") from None


def _without_none(kind: Any) -> Any:
    """The type that stands beside None, or the type itself."""
    if typing.get_origin(kind) in (Union, types.UnionType):
        return next(arm for arm in typing.get_args(kind) if arm is not type(None))
    return kind


def validated(path: Path, content: object, kind: type[T]) -> T:
    """`content` as a `kind`, its schema number checked and taken off."""
    if not isinstance(content, dict):
        raise InputError(f"{path}: holds {_shown(content)}: a {file_kind(kind)} file is a mapping of keys to values")
    other = kind_of(content)
    if other and not SIGNS[other] <= set(keys_at(kind, ())):
        raise InputError(f"{path}: this is a {other}: a {file_kind(kind)} is needed here; name another file")
    if "schema" not in content:
        raise InputError(f"{path}: schema is missing: it is {SCHEMA}; is this a {file_kind(kind)} file?")
    fields = dict(content)
    schema = fields.pop("schema")
    if schema != SCHEMA or isinstance(schema, bool):
        raise InputError(f"{path}: schema is {_shown(schema)}: this version reads schema {SCHEMA}")
    import pydantic

    try:
        # In JSON mode, strict accepts a list for a tuple and an integer for a float, and nothing looser.
        return cast(T, _adapter(cast(Any, kind)).validate_json(json.dumps(fields), strict=True))
    except UnknownNameError as error:
        raise UnknownNameError(f"{path}: {error}") from None
    except pydantic.ValidationError as error:
        # A misspelt key is both unknown and missing; the first says more.
        problems = sorted(error.errors(), key=lambda problem: problem["type"] != "unexpected_keyword_argument")
        raise InputError(f"{path}: {_explained(dict(problems[0]), kind)}") from None


def kind_of(content: object) -> str:
    """What kind of file holds such a mapping, by its keys; empty where that is not known."""
    keys = content.keys() if isinstance(content, dict) else ()
    return next((kind for kind, signs in SIGNS.items() if signs <= set(keys)), "")


def _explained(error: dict[str, Any], kind: type) -> str:
    """One pydantic error as "where: field is value: rule"."""
    *parents, last = error["loc"] or ("",)
    if error["type"] == "value_error":
        return ": ".join(filter(None, (_place(error["loc"]), str(error["ctx"]["error"]))))
    where = f" in {_place(parents)}" if parents else ""
    if error["type"] == "unexpected_keyword_argument":
        known = keys_at(kind, parents)
        near = nearest(str(last), known)
        hint = f" did you mean {near!r}?" if near else ""
        return f"unknown key {last!r}{where};{hint} known: {', '.join(known)}"
    if error["type"].startswith("missing"):
        return f"{_place([last])} is missing{where}: it is required"
    rule = error["msg"].removeprefix("Input should be ")
    rule = next((rule.replace(old, new) for old, new in RULES.items() if old in rule), rule)
    return f"{_place([last])} is {_shown(error['input'])}{where}: it is {rule}"


def _place(loc: Iterable[object]) -> str:
    """A location as layers[3].scaling[0].forward_s."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return text.removeprefix(".")


def _shown(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def keys_at(kind: type, loc: Iterable[object]) -> list[str]:
    """Names of the fields of the dataclass that stands at `loc` inside `kind`."""
    type_at: Any = kind
    for part in loc:
        if dataclasses.is_dataclass(type_at):
            type_at = typing.get_type_hints(type_at)[str(part)]
        else:  # tuple[X, ...] or Mapping[str, X]
            arguments = typing.get_args(type_at)
            type_at = arguments[0] if typing.get_origin(type_at) is tuple else arguments[-1]
        type_at = _without_none(type_at)
    return sorted(field.name for field in dataclasses.fields(type_at))


def file_kind(kind: type) -> str:
    """What people call a file of `kind`."""
    return {"Specification": "sweep"}.get(kind.__name__) or re.sub(
        r"(?<=[a-z])(?=[A-Z])", " ", kind.__name__.removesuffix("File")
    ).lower()
