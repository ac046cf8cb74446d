"""Reads the per-layer profiles that PipeDream's profiler writes (graph.txt).

    node12 -- Conv2d(128, 256, kernel_size=(3, 3), ...) -- forward_compute_time=10.8, backward_compute_time=18.3,
        activation_size=411041792.0, parameter_size=1180672.0          (one line per node; ms per mini-batch, bytes)
    <tab>node11 -- node12                                              (then one line per edge)

A list `[a; b]` holds the outputs of one node and is summed. Dropped are `Input` nodes, whose time is data loading,
and nodes that carry no activations: sizes (`Size(0)`) and empty initial states. The file does not record the batch
size, the time of the update, flops or what backward keeps. Flops follow from the descriptions; of saved storage it
is assumed that every output is kept once, and that in-place layers and views keep nothing new. Nor does the file say
in which order a concatenation joins its inputs; the order of its edges is taken.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, NoReturn

from simulator.errors import MOST_BYTES, MOST_COUNT, InputError, require
from simulator.workload import Geometry, Layer, Profile
from traces.imports._imported import Imported, ImportOptions

Pair = tuple[int, int]
Shape = tuple[int, int, int]

OPTIONS = ("model", "batch_size", "device")
ELEMENT_BYTES = 4
LONGEST_DESCRIPTION = 10_000
"""Characters of a call that is parsed."""
_NUMBERS = ("forward_compute_time", "backward_compute_time", "activation_size", "parameter_size")
_KEEPS_CHANNELS = ("ReLU", "BatchNorm2d", "MaxPool2d", "AvgPool2d", "Dropout", "Add", "LSTM", "__getitem__")
_ELEMENTWISE = ("ReLU", "BatchNorm2d", "Dropout", "Add", "__getitem__")


def recognises(head: str, path: Path) -> bool:
    """Node lines with PipeDream's times, or a text that calls itself a graph of it."""
    return "forward_compute_time=" in head


def read(paths: Sequence[Path], options: ImportOptions) -> Imported:
    """The profile of one graph.txt; its batch size is an option, since the file does not say it."""
    if len(paths) > 1:
        raise InputError(f"{paths[1]}: a PipeDream profile is one file; import one at a time")
    profile = read_pipedream(paths[0], options.stated_batch_size(paths[0]), options.model)
    profile = replace(profile, device=options.device or profile.device, command=options.command)
    return Imported(profile=profile)


def read_pipedream(path: str | Path, batch_size: int, model: str = "") -> Profile:
    """The profile in a graph.txt that was measured at `batch_size`; `model` defaults to the file's name.

    Raises InputError with the line that cannot be read, or when the sizes cannot be those of that batch.
    """
    require(batch_size >= 1, "batch_size", batch_size, "it is at least 1")
    path = Path(path)
    try:
        nodes, edges = _parse(path, path.read_text(encoding="utf-8").splitlines())
    except UnicodeDecodeError:
        raise InputError(f"{path}: it is not text; give a graph.txt as written by PipeDream's profiler") from None
    kept = {name: node for name, node in nodes.items() if not node.is_empty}
    inputs = {name: tuple(source for source in edges[name] if source in kept) for name in kept}
    shapes: dict[str, Shape] = {}
    layers = []
    for name in _ordered(path, inputs):
        node, sources = kept[name], inputs[name]
        try:
            shapes[name] = _shape(node, [shapes[source] for source in sources], batch_size)
            layers.append(_layer(name, node, sources, shapes, batch_size))
        except (KeyError, IndexError, TypeError) as error:
            raise InputError(f"{path}: {name}: its description as {node.kind} lacks or mistypes {error}") from None
    return Profile(
        model=model or path.stem,
        device="GPU of a PipeDream profile",
        batch_size=batch_size,
        notes=f"imported from PipeDream's {path.name}; saved_bytes and flops are derived, updates were not measured",
        layers=tuple(layers),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """One node line. `options` are the keyword arguments of the description, `sizes` the bytes of each output."""

    kind: str
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    forward_s: float
    backward_s: float
    sizes: tuple[int, ...]
    parameter_bytes: int

    @property
    def is_empty(self) -> bool:
        nothing = not (self.forward_s or self.backward_s or self.parameter_bytes or any(self.sizes))
        return nothing or self.kind == "Size" or self.kind.startswith("Input")


def _parse(path: Path, lines: Iterable[str]) -> tuple[dict[str, _Node], dict[str, list[str]]]:
    """Nodes by name, and for each node the nodes that it reads, in the order of the file."""
    nodes: dict[str, _Node] = {}
    edges: list[tuple[int, str, str]] = []
    for number, line in enumerate(lines, start=1):
        parts = [part.strip() for part in line.split(" -- ")]
        if not line.strip():
            continue
        if line.startswith("\t") and len(parts) == 2:
            edges.append((number, parts[0], parts[1]))
        elif len(parts) == 3 and parts[0] not in nodes:
            nodes[parts[0]] = _node(path, number, parts[1], parts[2])
        else:
            _refuse(
                path, number, line, "write `name -- description -- times and sizes` once per node, or `\\tname -- name`"
            )
    inputs: dict[str, list[str]] = {name: [] for name in nodes}
    for number, source, target in edges:
        for name in (source, target):
            if name not in nodes:
                _refuse(path, number, name, "an edge joins nodes that have a line of their own")
        inputs[target].append(source)
    if not nodes:
        raise InputError(f"{path}: it has no nodes; give a graph.txt as written by PipeDream's profiler")
    return nodes, inputs


def _node(path: Path, number: int, description: str, text: str) -> _Node:
    attributes = dict(re.findall(r"(\w+)=(\[[^\]]*\]|[^,\s]+)", text))
    values = []
    for name in _NUMBERS:
        try:
            values.append([float(part) for part in attributes[name].strip("[]").split(";")])
        except (KeyError, ValueError):
            _refuse(path, number, attributes.get(name, text), f"`{name}=` is followed by a number or by [a; b]")
        if not all(0 <= value <= MOST_BYTES for value in values[-1]):
            _refuse(path, number, attributes[name], f"{name} is finite, at least 0 and at most {MOST_BYTES:g}")
    forward_ms, backward_ms, sizes, parameters = values
    kind, arguments, options = _described(description)
    return _Node(
        kind=kind,
        arguments=arguments,
        options=options,
        forward_s=sum(forward_ms) / 1e3,
        backward_s=sum(backward_ms) / 1e3,
        sizes=tuple(map(round, sizes)),
        parameter_bytes=round(sum(parameters)),
    )


def _described(description: str) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """Kind, arguments and options of a description such as `Conv2d(3, 64, kernel_size=(3, 3))`.

    A description that is no plain call, such as that of a module with parts, has only a kind.
    """
    kind = description.partition("(")[0].strip()
    if len(description) > LONGEST_DESCRIPTION:
        return kind[:LONGEST_DESCRIPTION], (), {}
    try:
        call = ast.parse(description, mode="eval").body
        if not isinstance(call, ast.Call):
            return kind, (), {}
        arguments = tuple(each.id if isinstance(each, ast.Name) else ast.literal_eval(each) for each in call.args)
        return kind, arguments, {each.arg or "": ast.literal_eval(each.value) for each in call.keywords}
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the parser ends so where brackets are deep
        return kind, (), {}


def _ordered(path: Path, inputs: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Names of the nodes, producers first. Raises InputError for a cycle."""
    try:
        return list(TopologicalSorter(inputs).static_order())
    except CycleError as error:
        raise InputError(f"{path}: the edges form a cycle, {' -> '.join(error.args[1])}; layers form a DAG") from None


def _shape(node: _Node, sources: list[Shape], batch_size: int) -> Shape:
    """(channels, height, width) of one sample of the node's first output.

    Channels follow from the description or the inputs; the rest of the size is a square, or a sequence's length.
    """
    elements, rest = divmod(node.sizes[0], ELEMENT_BYTES * batch_size)
    if rest:
        raise InputError(
            f"batch_size is {batch_size}: a {node.kind} of the file puts out {node.sizes[0]} bytes, which is no whole "
            "number of float32 per sample; give the batch size that the file was measured at"
        )
    channels = _channels(node, sources)
    if not channels or elements % channels:
        return max(elements, 1), 1, 1
    area = elements // channels
    side = math.isqrt(area)
    return (channels, side, side) if side * side == area else (channels, area, 1)


def _channels(node: _Node, sources: list[Shape]) -> int | None:
    """Output channels, None when nothing tells them."""
    match node.kind:
        case "Conv2d" | "Embedding" | "LSTM":
            return _count(node.arguments[1])
        case "Linear":
            return _count(node.options["out_features"])
        case "Concat":
            return sum(channels for channels, _, _ in sources)
    return sources[0][0] if sources and node.kind in _KEEPS_CHANNELS else None


def _layer(name: str, node: _Node, inputs: tuple[str, ...], shapes: Mapping[str, Shape], batch_size: int) -> Layer:
    shape = shapes[name]
    keeps_nothing = "inplace" in node.arguments or node.kind in ("View", "__getitem__")
    return Layer(
        name=name,
        kind=_kind(node, shape, [shapes[source] for source in inputs]),
        inputs=inputs,
        output_shape=shape,
        forward_s=node.forward_s,
        backward_s=node.backward_s,
        parameter_bytes=node.parameter_bytes,
        output_bytes=sum(node.sizes),
        saved_bytes=0 if keeps_nothing else sum(node.sizes),
        flops=_flops(node, shape, batch_size),
        geometry=_geometry(node),
    )


def _kind(node: _Node, shape: Shape, sources: list[Shape]) -> str:
    if node.kind == "View" and sources and math.prod(sources[0]) == shape[0]:
        return "flatten"
    if node.kind == "Concat" and shape[0] != sum(channels for channels, _, _ in sources):
        return "join"
    return node.kind.lower()


def _flops(node: _Node, shape: Shape, batch_size: int) -> float:
    """Two per multiply-add of a convolution or fully connected layer, 0 for others."""
    outputs = math.prod(shape) * batch_size
    if node.kind == "Conv2d":
        inputs = _count(node.arguments[0]) // max(_count(node.options.get("groups", 1)), 1)
        return 2.0 * outputs * inputs * math.prod(map(_count, _pair(node.options["kernel_size"])))
    return 2.0 * outputs * _count(node.options["in_features"]) if node.kind == "Linear" else 0.0


def _geometry(node: _Node) -> Geometry:
    """What the description tells; of a layer that it does not describe, each output needs the whole input."""
    if node.kind in ("Conv2d", "MaxPool2d", "AvgPool2d"):
        options = node.options
        return Geometry(
            kernel=_pair(options["kernel_size"]),
            stride=_pair(options.get("stride", options["kernel_size"])),
            padding=_pair(options.get("padding", 0)),
            dilation=_pair(options.get("dilation", 1)),
            groups=options.get("groups", 1),
            mixes_channels=node.kind == "Conv2d",
        )
    if node.kind in (*_ELEMENTWISE, "Concat", "View"):
        return Geometry()
    return Geometry(kernel=(1, 1) if node.kind in ("Linear", "Embedding") else None, mixes_channels=True)


def _count(value: object) -> int:
    """A number of channels, features or positions. Raises TypeError, which `read_pipedream` catches, for another."""
    if isinstance(value, int) and 0 <= value <= MOST_COUNT:
        return value
    raise TypeError(repr(value)[:40])


def _pair(value: int | Pair) -> Pair:
    return (value, value) if isinstance(value, int) else value


def _refuse(path: Path, number: int, text: str, rule: str) -> NoReturn:
    raise InputError(f"{path}: line {number}: {text.strip()[:80]!r}: {rule}")
