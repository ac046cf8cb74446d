"""Reads a table of layers that anyone can fill: CSV, a layer a row, columns called as the fields of a profile's layers.

    name,kind,output_shape,forward_s,backward_s,parameter_bytes,kernel,padding
    conv,conv2d,64x32x32,1.2ms,2.5ms,7168,3x3,1x1
    relu,relu,64x32x32,0.1ms,0.1ms,,1x1,
    head,linear,1000,0.8ms,1.6ms,262148000,,

Times are seconds and sizes bytes of the whole batch, where no unit stands behind them. A layer reads the one above;
`inputs` names others, with ";" between, and "-" is the training data. Without output_bytes they follow from the shape,
without saved_bytes every output is kept once for backward. Where no kernel is named, an output needs the whole input.
"""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import isnan, prod
from pathlib import Path
from typing import Any

from simulator import file_gate, one_line_parser
from simulator.errors import InputError, UnknownNameError
from simulator.file_content import SCHEMA, validated
from simulator.units import parse_bytes, parse_time
from simulator.workload import DTYPE_BYTES, SUMMING_KINDS, Profile, ScalingPoint
from traces.imports._imported import Imported, ImportOptions

OPTIONS = ("model", "batch_size", "dtype", "device")
REQUIRED = ("name", "kind", "output_shape", "forward_s", "backward_s")
GEOMETRY = ("kernel", "stride", "padding", "dilation", "groups")
TRAINING_DATA = "-"
LONGEST_NAME = 200
"""Letters; what is longer is no name, and no message repeats it."""


def recognises(head: str, path: Path) -> bool:
    """A first line that names the columns, the seconds of the forward pass among them."""
    return "forward_s" in (cell.strip() for cell in head.partition("\n")[0].split(","))


def read(paths: Sequence[Path], options: ImportOptions) -> Imported:
    """The profile of a table; of tables at several batch sizes the largest, with points of the others."""
    sizes = [options.stated_batch_size(path, number, len(paths)) for number, path in enumerate(paths)]
    twice = next((path for number, path in enumerate(paths) if sizes[number] in sizes[:number]), None)
    if twice is not None:
        raise InputError(f"{twice}: {len(paths)} tables need as many sizes; say all, e.g. --batch-size 16,32")
    tables = [_profile(path, size, options) for path, size in zip(paths, sizes, strict=True)]
    *smaller, largest = sorted(tables, key=lambda profile: profile.batch_size)
    if any(other.index.keys() != largest.index.keys() for other in smaller):
        raise InputError(f"{paths[0]}: the tables are not of the same layers; import one network at a time")
    layers = tuple(
        replace(layer, scaling=tuple(_point(other, layer.name) for other in smaller)) for layer in largest.layers
    )
    return Imported(profile=replace(largest, layers=layers))


def _point(profile: Profile, name: str) -> ScalingPoint:
    layer = profile.layers[profile.index[name]]
    return ScalingPoint(batch_size=profile.batch_size, forward_s=layer.forward_s, backward_s=layer.backward_s)


def _profile(path: Path, batch_size: int, options: ImportOptions) -> Profile:
    names, rows = file_gate.table(path)
    lacking = [name for name in REQUIRED if name not in names]
    if lacking:
        raise InputError(f"{path}: column {lacking[0]!r} is missing: a table of layers has {', '.join(REQUIRED)}")
    unknown = next((name for name in names if name not in CELLS), None)
    if unknown is not None:
        raise UnknownNameError(f"{path}: {UnknownNameError.of('column', unknown[:LONGEST_NAME], CELLS)}")
    dtype = options.dtype or "float32"
    sample_bytes = batch_size * DTYPE_BYTES.get(dtype, 0)  # a dtype that is unknown is refused by the profile
    above = ["", *(row["name"].strip() for row in rows)]
    content = {
        "schema": SCHEMA,
        "model": options.model or path.stem,
        "device": options.device or "unknown",
        "batch_size": batch_size,
        "dtype": dtype,
        "command": options.command,
        "notes": f"imported from the table {path.name}; output_bytes and saved_bytes that it leaves out are derived",
        "layers": [_layer(path, row, before, sample_bytes) for before, row in zip(above, rows, strict=False)],
    }
    return validated(path, content, Profile)


def _layer(path: Path, row: Mapping[str, str], above: str, element_bytes: int) -> dict[str, Any]:
    """A row as the mapping of a layer; above: the layer before it; element_bytes: of an element of the whole batch."""
    content = {name: _cell(path, row["name"], name, text.strip()) for name, text in row.items() if text.strip()}
    content.setdefault("inputs", [above] if above else [])
    content.setdefault("output_bytes", prod(content.get("output_shape", ())) * element_bytes)
    content.setdefault("saved_bytes", content["output_bytes"])
    geometry = {name: content.pop(name) for name in GEOMETRY if name in content}
    summing = row["kind"].strip().lower().startswith(SUMMING_KINDS)
    described = {"mixes_channels": summing, **geometry} if "kernel" in geometry else None
    content["geometry"] = described or {"kernel": None, "mixes_channels": True}
    return content


def _cell(path: Path, layer: str, name: str, text: str) -> Any:
    try:
        return CELLS[name](text)
    except (InputError, ArgumentTypeError) as error:
        raise InputError(f"{path}: layer {layer[:60]!r}: {name}: {str(error)[:LONGEST_NAME]}") from None


def _name(text: str) -> str:
    if len(text) > LONGEST_NAME:
        raise InputError(f"{text[:60]!r} is no name: it has {len(text)} letters, of at most {LONGEST_NAME}")
    return text


def _names(text: str) -> list[str]:
    return [] if text == TRAINING_DATA else [_name(part.strip()) for part in text.split(";")]


def _seconds(text: str) -> float:
    value = one_line_parser.parsed(text)
    return parse_time(text) if isnan(value) else value


def _output_shape(text: str) -> list[int]:
    sides = one_line_parser.shape(text)
    if len(sides) > 3:
        raise InputError(f"{text[:60]!r} has {len(sides)} sides: it is channels x height x width")
    return [*sides, 1, 1][:3]


def _pair(text: str) -> list[int]:
    """(height, width) from `3x5`, or `3` for both."""
    sides = [one_line_parser.whole(side) for side in text.split("x")]
    if len(sides) > 2:
        raise InputError(f"{text[:60]!r} has {len(sides)} sides: it is height x width")
    return (sides * 2)[:2]


CELLS: Mapping[str, Callable[[str], Any]] = {
    "name": _name,
    "kind": _name,
    "inputs": _names,
    "output_shape": _output_shape,
    "forward_s": _seconds,
    "backward_s": _seconds,
    "update_s": _seconds,
    "parameter_bytes": parse_bytes,
    "output_bytes": parse_bytes,
    "saved_bytes": parse_bytes,
    "flops": one_line_parser.positive,
    "tied_to": _names,
    "kernel": _pair,
    "stride": _pair,
    "padding": _pair,
    "dilation": _pair,
    "groups": one_line_parser.count,
}
"""The columns that a table may have, and what a cell of each becomes."""
