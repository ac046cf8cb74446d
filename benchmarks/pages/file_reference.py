"""Keys of every file that people write or read, from the definitions that read them. Usage: python -m
benchmarks.pages.file_reference [cluster|preset|profile|plan|sweep|scenario|overheads]"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Literal, Union

from benchmarks.pages.published import table

UNITS = {"_bytes_per_s": "bytes per second", "_per_s": "per second", "_bytes": "bytes", "_s": "seconds"}


def kinds() -> dict[str, type]:
    """The dataclass of each kind of file."""
    from simulator.elastic.reconfiguration import Overheads
    from simulator.elastic.scenario import Scenario
    from simulator.network.catalogue import ClusterFile, Preset
    from simulator.plan import Plan
    from simulator.sweep.specification import Specification
    from simulator.workload import Profile

    return {
        "cluster": ClusterFile,
        "preset": Preset,
        "profile": Profile,
        "plan": Plan,
        "sweep": Specification,
        "scenario": Scenario,
        "overheads": Overheads,
    }


def main(arguments: list[str]) -> None:
    for name in arguments or kinds():
        print("\n\n".join(sections(kinds()[name])))


def sections(kind: type, seen: set[type] | None = None) -> Iterator[str]:
    """What a mapping of `kind` holds, then the mappings inside it, each once."""
    seen = {kind} if seen is None else seen | {kind}
    hints = typing.get_type_hints(kind)
    fields = dataclasses.fields(kind)
    rows = [[f"`{field.name}`", words(hints[field.name], field.name), default(field)] for field in fields]
    heads, said = ["key", "value", "left out"], meanings(kind)
    if said:
        heads.append("meaning")
        rows = [[*row, said[field.name]] for row, field in zip(rows, fields, strict=True)]
    text = " ".join((inspect.getdoc(kind) or "").split())
    yield f"**{spaced(kind)}**: {text}\n\n" + table(heads, rows)
    for field in fields:
        for inner in dataclasses_in(hints[field.name]):
            if inner not in seen:
                parts = list(sections(inner, seen))
                seen |= {inner, *dataclasses_below(inner)}
                yield from parts


def meanings(kind: type) -> dict[str, str]:
    """What stands below the fields of a class, by name; it has a line below each or below none."""
    bodies = [ast.parse(inspect.getsource(each)).body[0] for each in reversed(kind.__mro__[:-1])]
    return {
        ast.unparse(field.target): " ".join(str(line.value.value).split())
        for body in bodies
        if isinstance(body, ast.ClassDef)
        for field, line in pairwise(body.body)
        if isinstance(field, ast.AnnAssign) and isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)
    }


def dataclasses_below(kind: type) -> Iterator[type]:
    """All dataclasses inside a dataclass."""
    for hint in typing.get_type_hints(kind).values():
        for inner in dataclasses_in(hint):
            if inner is not kind:
                yield inner
                yield from dataclasses_below(inner)


def dataclasses_in(hint: Any) -> Iterator[type]:
    """The dataclasses that a type names, inside containers too."""
    if dataclasses.is_dataclass(hint):
        yield hint  # type: ignore[misc]
    for part in typing.get_args(hint):
        yield from dataclasses_in(part)


def words(hint: Any, key: str) -> str:
    """A type as people say it; quantities with their unit."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(words(part, key) for part in parts if part is not type(None)))
    if origin is Literal:
        return " or ".join(f"`{part}`" for part in parts)
    if dataclasses.is_dataclass(hint):
        name = spaced(hint)
        return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
    if origin is tuple:
        inner = [words(part, key) for part in parts if part is not Ellipsis]
        return f"list of {inner[0]}" if Ellipsis in parts else f"[{', '.join(inner)}]"
    if origin in (Mapping, dict) or origin is getattr(typing, "Mapping", None) or "Mapping" in str(origin):
        return f"mapping of names to {words(parts[1], key)}"
    unit = next((f", {unit}" for suffix, unit in UNITS.items() if key.endswith(suffix)), "")
    named = {float: "number", int: "whole number", bool: "true or false", str: "text"}
    return named.get(hint, "any value") + (unit if hint in (int, float) else "")


def spaced(kind: Any) -> str:
    """A class's name in words: "achieved share"."""
    return " ".join(re.findall("[A-Z][a-z]*", kind.__name__.removesuffix("File"))).lower()


def default(field: dataclasses.Field[Any]) -> str:
    """What holds where the key is left out."""
    if field.default is not dataclasses.MISSING:
        if dataclasses.is_dataclass(field.default):
            return "its defaults"
        return {None: "none", "": "empty"}.get(field.default, f"`{field.default}`".replace("`()`", "empty"))
    return "empty" if field.default_factory is not dataclasses.MISSING else "required"


if __name__ == "__main__":
    main(sys.argv[1:])
