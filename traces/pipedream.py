"""Reads the per-layer profiles that PipeDream's profiler writes (graph.txt).

    node12 -- Conv2d(128, 256, kernel_size=(3, 3), ...) -- forward_compute_time=10.8, backward_compute_time=18.3,
        activation_size=411041792.0, parameter_size=1180672.0          (one line per node; ms per mini-batch, bytes)
    <tab>node11 -- node12                                              (then one line per edge)

A list `[a; b]` holds the outputs of one node and is summed. Dropped are `Input` nodes, whose time is data loading,
and nodes that carry no activations: sizes (`Size(0)`) and empty initial states. The file does not record the batch
size, the time of the update, flops or what backward keeps. Flops follow from the descriptions; of saved storage it
is assumed that every output is kept once, and that in-place layers and views keep nothing new.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.errors import InputError, require
from simulator.workload import Geometry, Layer, Profile

Pair = tuple[int, int]
Shape = tuple[int, int, int]

ELEMENT_BYTES = 4
_NUMBERS = ("forward_compute_time", "backward_compute_time", "activation_size", "parameter_size")
_KEEPS_CHANNELS = ("ReLU", "BatchNorm2d", "MaxPool2d", "AvgPool2d", "Dropout", "Add", "LSTM", "__getitem__")
_ELEMENTWISE = ("ReLU", "BatchNorm2d", "Dropout", "Add", "__getitem__")


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
        shapes[name] = _shape(node, [shapes[source] for source in sources], batch_size)
        layers.append(_layer(name, node, sources, shapes, batch_size))
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
            edges.append((number, *parts))
        elif len(parts) == 3 and parts[0] not in nodes:
            nodes[parts[0]] = _node(path, number, parts[1], parts[2])
        else:
            _refuse(path, number, line, "write `name -- description -- times and sizes` once per node, or `\\tname -- name`")
    inputs: dict[str, list[str]] = {name: [] for name in nodes}
    for number, source, target in edges:
        for name in (source, target):
            if name not in nodes:
                _refuse(path, number, name, "an edge joins nodes that have a line of their own")
        inputs[target].append(source)
    if not nodes:
        raise InputError(f"{path}: it has no nodes; give a graph.txt as written by PipeDream's profiler")
    return nodes, inputs
