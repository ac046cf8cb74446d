"""Damaged files out of sound ones, seeded: structure-aware changes of JSON-like values, of tables and of text.

    damaged = mutated_json(value, random.Random(7))      a JSON-like value, changed in 1 to 4 places
    damaged = mutated_table(text, random.Random(7))      lines of cells: CSV, logs
    damaged = mutated_text(text, random.Random(7))       anything, YAML too: letters, lines, numbers, brackets
    damaged = mutated_bytes(data, random.Random(7))      what storage and transmission do: cut, flipped, repeated

The same seed gives the same damage; no argument is changed. What reads such a file may refuse it, in one line; it may
not crash, hang or take all memory.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

SCALARS: tuple[object, ...] = (
    *(None, True, False, 0, 1, -1, 2, 10**9, -(10**9), 2**53 + 1, 2**63, 10**30, 10**400),
    *(0.0, -0.0, 0.5, -0.5, 1e-300, 1e300, -1e300, math.inf, -math.inf, math.nan),
    *("", " ", "0", "-1", "1e999", "nan", "null", "a", "../../a", "\x00", "\ud800", "ä\u202eß", "a" * 100_000),
    *([], {}, [[]], [None], {"": None}, [0, 0], [1, [2, [3, [4]]]]),
)
"""What stands where something else belongs. "\\ud800" cannot be written as UTF-8; JSON escapes it."""

INSERTED = ("", "\x00", "\ufeff", "ä", '"', "'", ",", ":", "\t", "&a ", "*a", "!!python/name:a ", "%")
MOST_COPIES = 300
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


def mutated_json(value: Any, random: Random) -> Any:
    """A copy of a JSON-like value with 1 to 4 of its nodes changed; untouched parts are shared with `value`."""
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        value = _changed(value, random, random.choice(NODE_CHANGES))
    return value


def _changed(value: Any, random: Random, change: Callable[[Any, Random], Any], stop: float = 0.03) -> Any:
    """`value` with one node, reached by a walk from the root, replaced by what `change` makes of it.

    stop: how likely the walk ends at this container; at the root it seldom does, or most damage would be of the whole.
    """
    if not isinstance(value, Mapping | list | tuple) or not value or random.random() < stop:
        return change(value, random)
    if isinstance(value, Mapping):
        key = random.choice(list(value))
        return {**value, key: _changed(value[key], random, change, 0.2)}
    i = random.randrange(len(value))
    return [*value[:i], _changed(value[i], random, change, 0.2), *value[i + 1 :]]


def _replaced(value: Any, random: Random) -> Any:
    return random.choice(SCALARS)


def _nudged(value: Any, random: Random) -> Any:
    """A number that is still a number, a text that is still a text: what a check of types alone lets through."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        try:
            return random.choice((-value, 0, value + 1, value - 1, value * 1_000_000, value / 1_000_000, value / 2))
        except OverflowError:
            return 0
    if isinstance(value, str):
        return _nudged_text(value, random)
    return _reordered(value, random)


def _nudged_text(text: str, random: Random) -> str:
    changes: tuple[str, ...] = (text[: len(text) // 2], text + text, text.upper(), text[::-1], text + "\x00", "")
    return random.choice((*changes, NUMBER.sub(lambda match: _number(match.group(), random), text, count=1)))


def _other_type(value: Any, random: Random) -> Any:
    """The same content as another type: a number as text, a text as list, a list as mapping."""
    if isinstance(value, Mapping):
        return random.choice((list(value.values()), list(value.items()), [value]))
    if isinstance(value, list | tuple):
        return random.choice(({str(i): each for i, each in enumerate(value[:1000])}, value[0] if value else None))
    return random.choice((str(value), [value], {"value": value}, bool(value)))


def _dropped(value: Any, random: Random) -> Any:
    """A mapping without one of its keys, a list without one element or without its end."""
    if isinstance(value, Mapping) and value:
        key = random.choice(list(value))
        return {k: v for k, v in value.items() if k != key}
    if isinstance(value, list | tuple) and value:
        i = random.randrange(len(value))
        return random.choice(([*value[:i], *value[i + 1 :]], list(value[:i])))
    return None


def _renamed(value: Any, random: Random) -> Any:
    """A mapping with one key under another name, or with a key that nobody knows."""
    if not isinstance(value, Mapping) or not value:
        return _nudged(value, random)
    key = random.choice(list(value))
    name = random.choice((str(key).upper(), str(key) + "_", "", "unknown", str(random.choice(list(value)))))
    return {(name if k == key else k): v for k, v in value.items()}


def _repeated(value: Any, random: Random) -> Any:
    """One element several or some hundred times, beside the others."""
    copies = random.choice((1, 1, 2, MOST_COPIES))
    if isinstance(value, Mapping) and value:
        content = random.choice(list(value.values()))
        return {**value, **{f"copy{i}": content for i in range(copies)}}
    if isinstance(value, list | tuple) and value:
        i = random.randrange(len(value))
        return [*value[:i], *[value[i]] * copies, *value[i:]]
    return [value] * copies


def _reordered(value: Any, random: Random) -> Any:
    """Two values exchange their keys or their places; a list may be turned round."""
    if isinstance(value, Mapping) and len(value) > 1:
        first, second = random.sample(list(value), 2)
        return {**value, first: value[second], second: value[first]}
    if isinstance(value, list | tuple) and len(value) > 1:
        first, second = random.sample(range(len(value)), 2)
        exchanged = list(value)
        exchanged[first], exchanged[second] = exchanged[second], exchanged[first]
        return random.choice((exchanged, exchanged[::-1]))
    return _replaced(value, random)


def _nested(value: Any, random: Random) -> Any:
    """Deeper than any format has it, and not too deep to be written."""
    for _ in range(random.choice((1, 20, 150))):
        value = [value] if random.random() < 0.5 else {"a": value}
    return value


def _numbers_scaled(value: Any, random: Random) -> Any:
    """All numbers below a node by one factor: a file in other units."""
    factor = random.choice((-1, 0, 1e-9, 1e3, 1e9, 1e200))

    def scaled(node: Any) -> Any:
        if isinstance(node, Mapping):
            return {key: scaled(content) for key, content in node.items()}
        if isinstance(node, list | tuple):
            return [scaled(content) for content in node]
        is_number = isinstance(node, int | float) and not isinstance(node, bool)
        return float(node) * factor if is_number and abs(node) < 1e300 else node

    return scaled(value)


NODE_CHANGES: Sequence[Callable[[Any, Random], Any]] = (
    *(_replaced, _replaced, _nudged, _nudged, _other_type, _dropped, _dropped),
    *(_renamed, _repeated, _reordered, _nested, _numbers_scaled),
)


def mutated_table(text: str, random: Random, separator: str = ",") -> str:
    """Lines of cells with 1 to 4 changes: of a cell, a column's name, a column, a row; now and then of the text."""
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        if random.random() < 0.25 or not text.strip():
            text = mutated_text(text, random)
            continue
        rows = [line.split(separator) for line in text.splitlines()]
        text = "\n".join(separator.join(cells) for cells in random.choice(TABLE_CHANGES)(rows, random)) + "\n"
    return text


def _cell_changed(rows: list[list[str]], random: Random) -> list[list[str]]:
    i = random.randrange(len(rows)) if random.random() < 0.7 else min(1, len(rows) - 1)
    j = random.randrange(len(rows[i]))
    rows[i][j] = random.choice((str(random.choice(SCALARS)), _nudged_text(rows[i][j], random)))
    return rows


def _header_changed(rows: list[list[str]], random: Random) -> list[list[str]]:
    j = random.randrange(len(rows[0]))
    rows[0][j] = random.choice(("", "unknown", rows[0][j].upper(), random.choice(rows[0])))
    return rows


def _column_changed(rows: list[list[str]], random: Random) -> list[list[str]]:
    """A column dropped, doubled, or filled with the same."""
    j = random.randrange(len(rows[0]))
    content = random.choice(((), (random.choice(("", "0", "-1", "nan", "1e300", "a")),)))
    doubled = not content and random.random() < 0.5
    return [
        [*cells[:j], *(content or (cells[j : j + 1] * 2 if doubled else ())), *cells[j + 1 :]]
        if i or not content
        else cells
        for i, cells in enumerate(rows)
    ]


def _rows_changed(rows: list[list[str]], random: Random) -> list[list[str]]:
    i, j = sorted(random.randrange(len(rows) + 1) for _ in range(2))
    part = rows[i:j]
    changes = (rows[:i] + rows[j:], rows[:j] + part[:MOST_COPIES] + rows[j:], rows[:i] + part[::-1] + rows[j:])
    return random.choice((*changes, [cells[:-1] if i <= k < j else cells for k, cells in enumerate(rows)]))


TABLE_CHANGES = (_cell_changed, _cell_changed, _cell_changed, _header_changed, _column_changed, _rows_changed)


def mutated_text(text: str, random: Random) -> str:
    """Text with one change that no format expects: of a number, a line, a stretch of letters, or brackets."""
    return random.choice(TEXT_CHANGES)(text, random)


def _number_changed(text: str, random: Random) -> str:
    matches = list(NUMBER.finditer(text[:1_000_000]))
    if not matches:
        return _letters_changed(text, random)
    match = random.choice(matches)
    return text[: match.start()] + _number(match.group(), random) + text[match.end() :]


def _number(digits: str, random: Random) -> str:
    changes = ("0", "-" + digits, digits + "0" * 12, digits + "." + digits, digits + "e9", "1e999", "nan", "inf")
    return random.choice((*changes, "9" * 5000, "", "0x1F", "1_000", "a"))


def _line_changed(text: str, random: Random) -> str:
    lines = text.splitlines(keepends=True)
    if not lines:
        return text
    i = random.randrange(len(lines))
    line = lines[i]
    changes = (
        "",
        line * 2,
        line * MOST_COPIES,
        "\n",
        "  " + line,
        line.lstrip(),
        line.rstrip() + " ",
        random.choice(lines),
    )
    return "".join((*lines[:i], random.choice(changes), *lines[i + 1 :]))


def _letters_changed(text: str, random: Random) -> str:
    i, j = sorted(random.randrange(len(text) + 1) for _ in range(2))
    j = min(j, i + 200)
    return text[:i] + random.choice(INSERTED) + text[random.choice((i, i + 1, j)) :]


def _cut(text: str, random: Random) -> str:
    return text[: random.randrange(len(text) + 1)]


def _brackets(text: str, random: Random) -> str:
    i = random.randrange(len(text) + 1)
    opened, closed = random.choice(("[]", "{}", ('{"a":', "}"), "()"))
    depth = random.choice((1, 50, 5_000, 100_000))
    return text[:i] + opened * depth + random.choice(("", closed * depth)) + text[i:]


TEXT_CHANGES = (_number_changed, _number_changed, _line_changed, _line_changed, _letters_changed, _cut, _brackets)


def mutated_bytes(data: bytes, random: Random) -> bytes:
    """Bytes as storage damages them: cut, emptied, a bit turned over, a stretch of zeros, a stretch twice."""
    i, j = sorted(random.randrange(len(data) + 1) for _ in range(2))
    j = min(j, i + 10_000)
    turned = bytes([data[i] ^ 1 << random.randrange(8)]) if i < len(data) else b"\x80"
    changes = (data[:i], data[:i] + turned + data[i + 1 :], data[:i] + bytes(j - i) + data[j:], data[:j] + data[i:])
    return random.choice((*changes, data[:i] + data[j:], b""))
