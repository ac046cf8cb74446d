"""A torch.fx graph written as a table, one row per node, and the layers that its nodes make."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.artefacts._csv_rows import read_rows
from simulator.errors import InputError

Shape = tuple[int, ...]
VIEWS = frozenset(
    {
        *("view", "permute", "transpose", "split", "unsqueeze", "expand", "getitem", "size", "to", "type", "dim", "eq"),
        *("getattr", "full", "arange", "ones", "finfo", "type_as", "reshape", "chunk", "squeeze", "output"),
    }
)
"""What computes nothing on a GPU."""
_BYTES = {"torch.float32": 4, "torch.float16": 2, "torch.bfloat16": 2, "torch.int64": 8, "torch.bool": 1}
_SAVES_INPUTS = frozenset({"linear", "addmm", "matmul", "bmm", "baddbmm", "layernorm", "gelu", "pow", "embedding"})
_SAVES_OUTPUT = frozenset({"softmax", "tanh", "relu"})
_PARAMETERS = frozenset({"linear", "addmm", "layernorm", "embedding"})
_BLOCK = re.compile(r"(?:^|\.)(?:h|layers?|blocks?)\.0(?=\.|$)")


@dataclass(slots=True, kw_only=True)
class FxNode:
    """One row. part: the module around it; kind: the operator's name in lower case; times in seconds."""

    name: str
    kind: str
    part: str
    reads: tuple[str, ...]
    input_shapes: tuple[Shape, ...]
    shape: Shape
    element_bytes: int
    forward_s: float
    backward_s: float

    @property
    def has_parameters(self) -> bool:
        return self.kind in _PARAMETERS

    @property
    def computes(self) -> bool:
        """Whether it runs a kernel over samples: no view, and no number."""
        return self.kind not in VIEWS and len(self.shape) > 1

    @property
    def in_block(self) -> bool:
        return _BLOCK.search(self.part) is not None

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * self.element_bytes


@dataclass(slots=True, kw_only=True)
class FxLayer:
    """Nodes that make one layer, in order; the layers that it reads, by position; bytes that it keeps for backward."""

    name: str
    nodes: list[FxNode]
    inputs: tuple[int, ...] = ()
    saved_bytes: int = 0

    @property
    def in_block(self) -> bool:
        return self.nodes[0].in_block

    @property
    def output(self) -> FxNode:
        return self.nodes[-1]

    @property
    def kind(self) -> str:
        """Attention where it multiplies matrices without parameters, else the kind of the node with most time."""
        if not self.nodes[0].has_parameters and any(node.kind in ("matmul", "bmm") for node in self.nodes):
            return "attention"
        kind = max(self.nodes, key=lambda node: node.forward_s + node.backward_s).kind
        return {"addmm": "linear", "tanh": "gelu", "pow": "gelu"}.get(kind, kind)


def read_fx_layers(path: Path) -> list[FxLayer]:
    """The layers of one block and what is around it, in the order of the file. Raises InputError naming the row."""
    rows = read_rows(path)
    nodes: dict[str, FxNode] = {}
    for number, row in enumerate(rows, 2):
        try:
            node = _node(row)
        except (ValueError, SyntaxError, KeyError, TypeError, MemoryError, RecursionError) as error:
            raise InputError(f"{path}: line {number}: it is no row of an operator ({str(error)[:60]})") from None
        nodes[node.name] = node
    sources = _sources(nodes)
    layers: list[FxLayer] = []
    home: dict[str, int] = {}
    for name, node in nodes.items():
        if name in sources and node.computes:
            position = _joins(layers, node, sources)
            if position is None:
                position = len(layers)
                layers.append(FxLayer(name=_layer_name(node, layers), nodes=[]))
            layers[position].nodes.append(node)
            home[name] = position
    for position, layer in enumerate(layers):
        read = (home[source] for node in layer.nodes for source in sources[node.name] if source in home)
        layer.inputs = tuple(dict.fromkeys(number for number in read if number != position))
    _note_saved(layers, sources, nodes)
    if not layers:
        raise InputError(f"{path}: it has no operator with parameters; give a table of a whole network")
    return layers


def _node(row: Mapping[str, Any]) -> FxNode:
    stack = re.findall(r"\('([\w.]*)', <class '([\w.]+)'>\)", row["meta"])
    part, module = stack[-1] if stack else ("", "")
    if row["op"] == "call_module":
        kind = module.rpartition(".")[2].lower()
    else:
        kind = re.sub(r"^<(?:built-in )?(?:function|method) (\w+).*", r"\1", row["target"]).rpartition(".")[2].lower()
    times = [float(row[name]) / 1e3 for name in ("fw_latency", "bw_latency", "acc_latency")]
    if not all(0 <= seconds < 1e6 for seconds in times):
        raise ValueError(f"times {times}")
    return FxNode(
        name=row["Name"],
        kind=row["op"] if row["op"] in ("placeholder", "get_attr", "output") else kind,
        part=part,
        reads=tuple(re.findall(r"(\w+): None", row["_input_nodes"])),
        input_shapes=tuple(_shape(shape) for shape in ast.literal_eval(row["input_shapes"])),
        shape=_shape(ast.literal_eval(row["output_shape"])),
        element_bytes=_BYTES.get(row["dtype"], 4),
        forward_s=times[0],
        backward_s=times[1] + times[2],
    )


def _shape(sides: Any) -> Shape:
    shape = tuple(sides)
    if not all(type(side) is int and 0 < side < 1 << 40 for side in shape):
        raise ValueError(f"shape {shape}")
    return shape


def _sources(nodes: Mapping[str, FxNode]) -> dict[str, tuple[str, ...]]:
    """For every tensor that depends on parameters: the nodes that compute what it reads. Sizes carry nothing on."""
    sources: dict[str, tuple[str, ...]] = {}
    for name, node in nodes.items():
        if len(node.shape) < 2 and node.kind not in ("split", "chunk"):
            continue
        read: list[str] = []
        for other in node.reads:
            if other in sources:
                read += (other,) if nodes[other].computes else sources[other]
        if read or (node.has_parameters and node.computes):
            sources[name] = tuple(dict.fromkeys(read))
    return sources


def _joins(layers: Sequence[FxLayer], node: FxNode, sources: Mapping[str, tuple[str, ...]]) -> int | None:
    """The layer that a node without parameters goes on: the last one, where it has none either and reads the same."""
    if node.has_parameters or not layers or layers[-1].nodes[0].has_parameters:
        return None
    last = layers[-1]
    near = {source for each in last.nodes for source in (each.name, *sources[each.name])}
    return len(layers) - 1 if near & set(sources[node.name]) and _room(last.nodes[0]) == _room(node) else None


def _room(node: FxNode) -> str:
    """The part of a block, or of the network, that a node belongs to: what splits together."""
    match = _BLOCK.search(node.part)
    return node.part[: match.end()] + "." + node.part[match.end() + 1 :].partition(".")[0] if match else node.part


def _layer_name(node: FxNode, layers: Sequence[FxLayer]) -> str:
    name = node.part if node.has_parameters else ".".join(filter(None, (_room(node).rstrip("."), node.kind)))
    taken = sum(layer.name.partition("#")[0] == name for layer in layers)
    return name if not taken else f"{name}#{taken + 1}"


def _note_saved(layers: Sequence[FxLayer], sources: Mapping[str, tuple[str, ...]], nodes: Mapping[str, FxNode]) -> None:
    """What backward needs of each operator, every tensor once, with the first layer that keeps it."""
    kept: set[str] = set()
    for layer in layers:
        for node in layer.nodes:
            needed = list(sources[node.name]) if _keeps_inputs(node) else []
            needed += [node.name] if node.kind in _SAVES_OUTPUT else []
            layer.saved_bytes += sum(nodes[name].size_bytes for name in needed if name not in kept)
            layer.saved_bytes += math.prod(node.shape) if node.kind == "dropout" else 0  # a mask of bytes
            kept.update(needed)


def _keeps_inputs(node: FxNode) -> bool:
    return node.kind in _SAVES_INPUTS or (node.kind == "mul" and len(node.reads) > 1)


def numbered(name: str, block: int) -> str:
    """The name of a layer of the first block as it is in another block."""
    return _BLOCK.sub(lambda match: match.group()[:-1] + str(block), name)
