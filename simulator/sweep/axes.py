"""The values of parameters: a scalar, a list, a range such as `1..64 by x2`, or several parameters zipped."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import floor, isfinite, log, prod
from typing import Any

from simulator import units
from simulator.errors import InputError, require
from simulator.network.catalogue import MOST_DEVICES
from simulator.sweep.specification import Specification

Value = str | int | float | bool | None
MOST_POINTS = 500_000
NAMES = frozenset({"profile", "cluster", "strategy", "schedule", "collective"})
WHOLE = {"devices": 1, "servers": 0, "batch_size": 1, "microbatches": 1, "bucket_bytes": 0, "seed": 0}
BANDWIDTH, LATENCY = "_bandwidth_bytes_per_s", "_latency_s"

_RANGE = re.compile(r"\s*([0-9]\S*?)\s*\.\.\s*([0-9]\S*)(?:\s+by\s+(x?)\s*([0-9]\S*))?\s*$")


@dataclass(frozen=True, slots=True)
class Axis:
    """Zipped parameters: each row has one value per name. A parameter alone is an axis of one name."""

    names: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


def read_axes(specification: Specification) -> tuple[Axis, ...]:
    """The axes of a sweep, in the order of the file.

    Raises InputError on an empty range or list, a wrong kind of value, zips of unequal length, or a product of
    more than MOST_POINTS points.
    """
    axes = [Axis((name,), _columns({name: written})) for name, written in specification.parameters.items()]
    axes += [Axis(tuple(group), _columns(group)) for group in specification.zip if group]
    count = prod(len(axis.rows) for axis in axes)
    if count > MOST_POINTS:
        longest = max(axes, key=lambda axis: len(axis.rows))
        raise InputError(
            f"parameters make {count:,} points: one sweep has at most {MOST_POINTS:,}; shorten the longest range or "
            f"list ({' with '.join(longest.names)} has {len(longest.rows):,})"
        )
    return tuple(axes)


def read_values(name: str, written: Any) -> tuple[Value, ...]:
    """The values of parameter `name` as written in the file: a scalar, a list, or a range. Raises InputError."""
    if isinstance(written, Mapping):
        raise InputError(f"{name} is a mapping: write one value, a list, or a range such as 1..64 by x2")
    entries = list(written) if isinstance(written, (list, tuple)) else [written]
    values = [value for entry in entries for value in _entry(name, entry)]
    if not values:
        raise InputError(f"{name} is an empty list: write at least one value")
    return tuple(dict.fromkeys(values))


def _columns(group: Mapping[str, Any]) -> tuple[tuple[Value, ...], ...]:
    """The rows of a group of parameters, each a column."""
    columns = {name: read_values(name, written) for name, written in group.items()}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise InputError(f"zip: {counts} values, but zipped parameters have equally many")
    return tuple(zip(*columns.values(), strict=True))


def _entry(name: str, entry: Any) -> list[Value]:
    matched = _RANGE.match(entry) if isinstance(entry, str) and name not in NAMES else None
    return _range(name, entry, *matched.groups()) if matched else [_scalar(name, entry)]


def _range(name: str, text: str, first: str, last: str, times: str | None, step: str | None) -> list[Value]:
    """The values from `first` to at most `last`, each the one before plus (or, after x, times) the step."""
    start, end = _number(name, first), _number(name, last)
    if end < start:
        raise InputError(f"{name} is the range {text!r}, which is empty: the first value is at most the last")
    stride = 1.0 if step is None else _number("factor" if times else name, step)
    if stride <= (1 if times else 0) or (times and start <= 0):
        raise InputError(f"{name} is the range {text!r}: a step is above 0; a factor is above 1 and starts above 0")
    steps = min(log(end / start) / log(stride) if times else (end - start) / stride, MOST_POINTS)
    count = 1 + floor(steps + 1e-9)
    if count > MOST_POINTS:
        raise InputError(f"{name} is the range {text!r}, which is too long: a sweep has at most {MOST_POINTS:,} points")
    values = [start * stride**i if times else start + i * stride for i in range(count)]
    return [_scalar(name, int(value) if value.is_integer() else value) for value in values]


def _number(name: str, text: str) -> float:
    value = _unit(name)(text)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value):
        return float(value)
    raise InputError(f"{name} is a range with {text!r} in it: write numbers, as in 1..64 by x2")


def _scalar(name: str, entry: Any) -> Value:
    """One value of the parameter, in SI units. Raises InputError when it is of the wrong kind."""
    value = _unit(name)(entry) if isinstance(entry, str) and name not in NAMES else entry
    if name in NAMES and not isinstance(value, str):
        raise InputError(f"{name} is {value!r}: it is a name")
    if name in WHOLE and (not isinstance(value, int) or isinstance(value, bool) or value < WHOLE[name]):
        raise InputError(f"{name} is {value!r}: it is a whole number of at least {WHOLE[name]}")
    if name in ("devices", "servers") and isinstance(value, int):
        require(value <= MOST_DEVICES, name, value, f"a cluster has at most {MOST_DEVICES:,} of them")
    if name.endswith((BANDWIDTH, LATENCY)) or name == "speed":
        value = _quantity(name, value)
    if not isinstance(value, (str, int, float, bool, type(None))):
        raise InputError(f"{name} is {value!r}: it is a name, a number, true or false")
    return value


def _quantity(name: str, value: Any) -> float:
    least = "at least 0" if name.endswith(LATENCY) else "above 0"
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)
    if not number or value < 0 or (value == 0 and least == "above 0"):
        raise InputError(f"{name} is {value!r}: it is a finite number {least}")
    return float(value)


def _unit(name: str) -> Callable[[str], Value]:
    """How a text is read: numbers with a unit where the parameter has one."""
    if name.endswith(BANDWIDTH):
        return units.parse_bandwidth
    if name.endswith(LATENCY):
        return units.parse_time
    return units.parse_bytes if name.endswith("_bytes") else units.number_or_text
