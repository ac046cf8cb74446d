"""Types of options for argparse: each reads one value, or says in words what it takes."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import TypeVar

from simulator import units
from simulator.errors import InputError
from simulator.one_line_parser import SHOWN, parsed
from simulator.one_line_parser import count as count
from simulator.one_line_parser import duration as duration
from simulator.one_line_parser import positive as positive
from simulator.one_line_parser import shape as shape
from simulator.one_line_parser import whole as whole

Name = TypeVar("Name")
Value = TypeVar("Value")


def counts(text: str) -> tuple[int, ...]:
    """Whole numbers of at least 1 with commas between."""
    return tuple(map(count, text.split(",")))


def number(text: str) -> float:
    """A number of whatever size, which its user checks."""
    value = parsed(text)
    if value != value and text.strip().lower() not in ("nan", "-nan", "+nan"):
        raise ArgumentTypeError(f"{text[:SHOWN]!r} is not a number")
    return value


def line_rate_share(text: str) -> float:
    """A share of a link's line rate, above 0 and up to 1."""
    value = parsed(text)
    if not 0 < value <= 1:
        raise ArgumentTypeError(
            f"efficiency {text[:SHOWN]!r}: write a share of the line rate above 0 and up to 1, e.g. 0.3"
        )
    return value


def size(text: str) -> int:
    """Bytes, e.g. 25MiB."""
    return _read(units.parse_bytes, text)


def time(text: str) -> float:
    """Seconds, e.g. 5us."""
    return _read(units.parse_time, text)


def bandwidth(text: str) -> float:
    """Bytes per second, e.g. 10Gbps."""
    return _read(units.parse_bandwidth, text)


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
