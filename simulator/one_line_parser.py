"""An argument parser whose complaints are one line, and which takes no shortened options.

Below it types of options, each of which reads one value, or says in words what it takes.
"""

from __future__ import annotations

import argparse
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Sequence
from math import inf, isfinite, nan
from typing import Any, NoReturn, TypeVar

from simulator import units
from simulator.errors import InputError, nearest
from simulator.terminal import folded

Name = TypeVar("Name")
Value = TypeVar("Value")
SHOWN = 40
"""Characters of a wrong value that a complaint repeats."""
INPUT = "[NAME=]SHAPE[:VOCABULARY]"
"""One argument of a network's forward."""


class OneLineParser(argparse.ArgumentParser):
    """An ArgumentParser that ends with code 2 and one line, without its usage, on arguments it does not take.

    The line names the nearest choice, or option, to one that is misspelt.
    """

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **{**keywords, "allow_abbrev": False})
        self._words: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's; the words are kept, for `error`."""
        self._words = sys.argv[1:] if args is None else list(args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        line = " ".join(message.split()) + self._misspelt()
        self.exit(2, folded(f"{self.prog}: {line}; {self.prog} --help shows how", sys.stderr) + "\n")

    def _misspelt(self) -> str:
        """The first option given that is near to one that there is: a misspelt option is also one that is missing."""
        words = self._words[:1] if self._subparsers else self._words  # behind it may stand a command's options
        for option in (word.partition("=")[0] for word in words if word.startswith("--")):
            near = nearest_option(option, self._option_string_actions)
            if near is not None and near != option:
                return f"; {option} is not an option, did you mean {near}?"
        return ""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            near = nearest(str(value), map(str, action.choices))
            hint = f", did you mean {near!r}?" if near else ""
            known = ", ".join(map(repr, action.choices))
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}{hint} (choose from {known})")


def nearest_option(option: str, known: Iterable[str]) -> str | None:
    """The long option closest in spelling to `option`; the dashes, which all have, make none of them closer."""
    near = nearest(option.removeprefix("--"), (word[2:] for word in known if word.startswith("--")))
    return f"--{near}" if near else None


def option(
    parser: argparse._ActionsContainer,
    name: str,
    text: str,
    kind: Callable[[str], Any] | None = None,
    *,
    repeatable: bool = False,
    **more: Any,
) -> None:
    """Add the option "--name VALUE", the flag "--name" or the argument "name NAME".

    text: its help. kind: what reads its value. repeatable: it is a list of those given. more: as for add_argument.
    """
    if repeatable:
        text, more = f"{text}; repeatable", {**more, "action": "append", "default": []}
    first, _, metavar = name.partition(" ")
    if metavar:
        more["metavar"] = metavar
    elif "choices" not in more:
        more["action"] = "store_true"
    if kind is not None:
        more["type"] = kind
    parser.add_argument(first, help=text, **more)


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


def positive(text: str) -> float:
    """A finite number above 0."""
    value = parsed(text)
    if not 0 < value < inf:
        raise ArgumentTypeError(f"{text[:SHOWN]!r} is not a number above 0")
    return value


def parsed(text: str) -> float:
    """The number that `text` is, nan where it is none."""
    try:
        return float(text)
    except ValueError:
        return nan


def shape(text: str) -> tuple[int, ...]:
    """The shape of one sample, AxBxC."""
    sides = text.split("x")
    if not all(side.isdecimal() and len(side) <= 18 and int(side) > 0 for side in sides):
        raise ArgumentTypeError(f"{text[:SHOWN]!r} is not a shape; write positive sides joined by x, e.g. 3x224x224")
    return tuple(map(int, sides))


def network_input(text: str) -> tuple[str, tuple[int, ...], int | None]:
    """(name, sides of a sample, vocabulary) as INPUT writes them; "" is by position, None are real numbers."""
    name, _, rest = text.rpartition("=")
    sides, _, vocabulary = rest.partition(":")
    if name and not name.isidentifier():
        raise ArgumentTypeError(f"{text!r} is not {INPUT}; write e.g. pixels=3x224x224, or input_ids=128:50257")
    return name, shape(sides), count(vocabulary) if vocabulary else None


def duration(text: str) -> float:
    """Seconds above 0, e.g. 2h30min."""
    seconds = _read(units.parse_duration, text)
    if seconds <= 0:
        raise ArgumentTypeError(f"{text[:SHOWN]!r} is no time to work in")
    return seconds


def counts(text: str) -> tuple[int, ...]:
    """Whole numbers of at least 1 with commas between."""
    return tuple(map(count, text.split(",")))


def doublings(text: str) -> tuple[int, ...]:
    """Whole numbers of at least 1, ascending: with commas between, and A..B for A, 2A, 4A, ... and B.

    >>> doublings("1..12"), doublings("3..24"), doublings("4,2")
    ((1, 2, 4, 8, 12), (3, 6, 12, 24), (2, 4))
    """
    numbers: set[int] = set()
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        low = count(first)
        high = count(last) if dots else low
        if high < low:
            raise ArgumentTypeError(f"{text[:SHOWN]!r} is empty: write the smaller number first")
        numbers |= {high, *(low << i for i in range((high // low).bit_length()))}
    return tuple(sorted(numbers))


def number(text: str) -> float:
    """A finite number, of a size that its user checks."""
    value = parsed(text)
    if not isfinite(value):
        raise ArgumentTypeError(f"{text[:SHOWN]!r} is not a finite number")
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
