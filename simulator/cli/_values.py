"""Types of options for argparse: each reads one value, or says in words what it takes."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from math import inf, nan
from typing import TypeVar

from simulator import units
from simulator.errors import InputError

Name = TypeVar("Name")
Value = TypeVar("Value")
SHOWN = 40
"""Characters of a wrong value that a complaint repeats."""


def count(text: str) -> int:
    """A whole number of at least 1."""
    return _whole_number(text, 1)


def whole(text: str) -> int:
    """A whole number of at least 0."""
    return _whole_number(text, 0)


def _whole_number(text: str, least: int) -> int:
    # isdecimal() alone takes other scripts' digits, as int() does
    if not text.isdecimal() or len(text) > 18 or int(text) < least:
        raise ArgumentTypeError(f"{text[:SHOWN]!r} is not a whole number of at least {least}")
    return int(text)


def counts(text: str) -> tuple[int, ...]:
    """Whole numbers of at least 1 with commas between."""
    return tuple(map(count, text.split(",")))


def positive(text: str) -> float:
    """A finite number above 0."""
    value = _number(text)
    if not 0 < value < inf:
        raise ArgumentTypeError(f"{text[:SHOWN]!r} is not a number above 0")
    return value


def number(text: str) -> float:
    """A number of whatever size, which its user checks."""
    value = _number(text)
    if value != value and text.strip().lower() not in ("nan", "-nan", "+nan"):
        raise ArgumentTypeError(f"{text[:SHOWN]!r} is not a number")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return nan


def line_rate_share(text: str) -> float:
    """A share of a link's line rate, above 0 and up to 1."""
    value = _number(text)
    if not 0 < value <= 1:
        raise ArgumentTypeError(
            f"efficiency {text[:SHOWN]!r}: write a share of the line rate above 0 and up to 1, e.g. 0.3"
        )
    return value


def shape(text: str) -> tuple[int, ...]:
    """The shape of one sample, AxBxC."""
    sides = text.split("x")
    if not all(side.isdecimal() and len(side) <= 18 and int(side) > 0 for side in sides):
        raise ArgumentTypeError(f"{text[:SHOWN]!r} is not a shape; write positive sides joined by x, e.g. 3x224x224")
    return tuple(map(int, sides))


def size(text: str) -> int:
    """Bytes, e.g. 25MiB."""
    return _read(units.parse_bytes, text)


def time(text: str) -> float:
    """Seconds, e.g. 5us."""
    return _read(units.parse_time, text)


def bandwidth(text: str) -> float:
    """Bytes per second, e.g. 10Gbps."""
    return _read(units.parse_bandwidth, text)


def duration(text: str) -> float:
    """Seconds above 0, e.g. 2h30min."""
    seconds = _read(units.parse_duration, text)
    if seconds <= 0:
        raise ArgumentTypeError(f"{text[:SHOWN]!r} is no time to work in")
    return seconds


def _read(parse: Callable[[str], Value], text: str) -> Value:
    try:
        return parse(text)
    except InputError as error:
        raise ArgumentTypeError(str(error)) from None


def assignment(
    form: str, read_name: Callable[[str], Name], read_value: Callable[[str], Value]
) -> Callable[[str], tuple[Name, Value]]:
    """A type for NAME=VALUE. form: how it is written, with an example: "TIER=VALUE, e.g. inter=10Gbps"."""

    def read(text: str) -> tuple[Name, Value]:
        left, sign, right = text.partition("=")
        if not (left and sign and right):
            raise ArgumentTypeError(f"{text[:SHOWN]!r} is not {form}")
        try:
            return read_name(left), read_value(right)
        except ArgumentTypeError as error:
            raise ArgumentTypeError(f"{text[:SHOWN]!r} is not {form}: {error}") from None

    return read
