"""Repeated blocks of a profile, stored once in a file.

    {"repeat": 3, "first": 0, "input": "embedding", "output": "blocks.*.add", "layers": [
      {"name": "blocks.*.norm", "inputs": ["<"], ...},
      {"name": "blocks.*.add", "inputs": ["blocks.*.norm", "<"], ...}]}

stands for blocks 0, 1 and 2. In names `*` is the number of the block; among the inputs `<` is what the block reads:
`input` in the first one, the output of the block before in the others. Layers are plain mappings, as in JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from simulator.errors import InputError
from simulator.profile_rules import MOST_LAYERS

_NUMBERED = re.compile(r"(.*?)(\d+)(\..*)")
PlainLayer = Mapping[str, Any]


def unfolded(entries: Sequence[Any]) -> list[Any]:
    """The layers of a file, every block written out. Raises InputError for a block that is not as described above."""
    layers: list[Any] = []
    for entry in entries:
        if isinstance(entry, dict) and "repeat" in entry:
            layers += _blocks(entry)
        else:
            layers.append(entry)
    return layers


def folded(layers: Sequence[PlainLayer]) -> list[PlainLayer]:
    """The layers with every run of equal blocks stored once, where that is shorter."""
    entries: list[PlainLayer] = []
    position = 0
    while position < len(layers):
        block = _block_at(layers, position)
        copies = _copies(layers, position, block) if block else None
        if copies is None:
            entries.append(layers[position])
            position += 1
        else:
            entries.append(copies)
            position += len(block) * int(copies["repeat"])
    return entries


def _blocks(entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    repeat, first, layers = entry.get("repeat"), entry.get("first", 0), entry.get("layers")
    known = {"repeat", "first", "input", "output", "layers"}
    if set(entry) - known:
        other = min(set(entry) - known)
        raise InputError(f"layers: unknown key {other!r} beside repeat; known: {', '.join(sorted(known))}")
    if type(repeat) is not int or type(first) is not int or not 0 < repeat <= MOST_LAYERS or first < 0:
        raise InputError(
            f"layers: repeat is {repeat!r} and first is {first!r}: whole numbers, repeat from 1 to {MOST_LAYERS:,}"
        )
    if not isinstance(layers, list) or not all(isinstance(layer, dict) for layer in layers) or not layers:
        raise InputError("layers: repeat stands beside layers, a list of at least one layer")
    if repeat * len(layers) > MOST_LAYERS:
        raise InputError(f"layers: repeat makes more than {MOST_LAYERS:,} layers; lower it")
    for number in range(first, first + repeat):
        read = str(entry.get("input", "")) if number == first else _numbered(entry.get("output", ""), number - 1)
        for layer in layers:
            inputs = layer.get("inputs")
            inputs = inputs if isinstance(inputs, list) else []
            named = [read if name == "<" else _numbered(name, number) for name in inputs if isinstance(name, str)]
            yield {**layer, "name": _numbered(layer.get("name", ""), number), **({"inputs": named} if inputs else {})}


def _numbered(name: object, number: int) -> str:
    return str(name).replace("*", str(number))


def _block_at(layers: Sequence[PlainLayer], position: int) -> Sequence[PlainLayer]:
    """The layers from `position` on whose names begin alike, with the same number."""
    match = _NUMBERED.fullmatch(str(layers[position]["name"]))
    if match is None:
        return ()
    prefix = match.group(1) + match.group(2) + "."
    end = position
    while end < len(layers) and str(layers[end]["name"]).startswith(prefix):
        end += 1
    return layers[position:end]


def _copies(layers: Sequence[PlainLayer], position: int, block: Sequence[PlainLayer]) -> dict[str, Any] | None:
    """The block at `position` with as many equal ones as follow; None where there is no second one."""
    prefix, number, _ = _NUMBERED.fullmatch(str(block[0]["name"])).groups()  # type: ignore[union-attr]
    following = layers[position + len(block) : position + 2 * len(block)]
    start = f"{prefix}{number}."
    read = {name for layer in block for name in layer.get("inputs", ()) if not str(name).startswith(start)}
    leaving = {name for layer in following for name in layer.get("inputs", ()) if str(name).startswith(start)}
    if len(read) != 1 or len(leaving) != 1:
        return None
    first = int(number)
    template = {"input": read.pop(), "output": _starred(leaving.pop(), prefix, first)}
    plain = [_template(layer, template["input"], prefix, first) for layer in block]
    repeat = 1
    while True:
        next_at = position + repeat * len(block)
        copy, before = layers[next_at : next_at + len(block)], _numbered(template["output"], first + repeat - 1)
        if [_template(layer, before, prefix, first + repeat) for layer in copy] != plain:
            break
        repeat += 1
    entry = {"repeat": repeat, **({"first": first} if first else {}), **template, "layers": plain}
    return entry if repeat > 1 and not any("*" in str(layer["name"]) for layer in block) else None


def _template(layer: PlainLayer, read: str, prefix: str, number: int) -> dict[str, Any]:
    inputs = ["<" if name == read else _starred(name, prefix, number) for name in layer.get("inputs", ())]
    name = _starred(str(layer["name"]), prefix, number)
    return {**layer, "name": name, **({"inputs": inputs} if inputs else {})}


def _starred(name: str, prefix: str, number: int) -> str:
    start = f"{prefix}{number}."
    return f"{prefix}*.{name.removeprefix(start)}" if name.startswith(start) else name
