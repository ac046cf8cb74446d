"""Reads NeuSight's measured torch.fx graphs of transformers: one row per node, with milliseconds of each operator.

    op,target,_input_nodes,...,input_shapes,...,fw_latency,bw_latency,acc_latency,output_shape,dtype,Name

The file holds one block of the network; the JSON of the same name beside it says how many there are, and the time of
the whole model; DLmodel_configs/ beside its folder says the vocabulary and the positions, which no row holds. Several
files of one model are batch sizes: the largest becomes the profile, the others its points.

Nodes that compute nothing on a GPU (views, sizes, constants) are left out: their times are the measurement's floor of
some microseconds. Of the rest, a layer is a node with parameters, or the run of nodes without any between two of them
inside one part of a block, such as attention. Backward holds the accumulation of gradients, as the measured whole
model does. saved_bytes are derived from what each operator needs for its backward.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.artefacts._fx_table import FxLayer, FxNode, numbered, read_fx_layers
from simulator.errors import InputError
from simulator.workload import Geometry, Layer, Profile, ScalingPoint
from traces.imports._imported import shown

_SIZES = (("token_type", "type_vocab_size"), ("wpe", "n_positions"), ("position", "max_position_embeddings"))
_OPT_OFFSET = 2
"""OPT's table of positions has two rows more than positions."""


def read(paths: Sequence[Path]) -> Profile:
    """The profile of one model at one or several batch sizes. Raises InputError naming file and row."""
    profiles = sorted(map(_profile, paths), key=lambda profile: -profile.batch_size)
    profile = profiles[0]
    if any([x.name for x in other.layers] != [x.name for x in profile.layers] for other in profiles):
        raise InputError(f"{paths[0]}: the files are not of the same network; import one network at a time")
    sizes = [each.batch_size for each in profiles]
    if len(set(sizes)) != len(sizes):
        raise InputError(f"{paths[0]}: the files have batch sizes {sizes}: each is given once")
    layers = tuple(
        replace(profile.layers[i], scaling=tuple(_point(other, i) for other in profiles[:0:-1]))
        for i in range(len(profile.layers))
    )
    return replace(profile, layers=layers)


def _point(profile: Profile, layer: int) -> ScalingPoint:
    measured = profile.layers[layer]
    return ScalingPoint(batch_size=profile.batch_size, forward_s=measured.forward_s, backward_s=measured.backward_s)


def _profile(path: Path) -> Profile:
    name = path.name.partition(".")[0]
    whole = _beside(path.with_name(f"{name}.json"))
    config = _beside(path.parent.parent / "DLmodel_configs" / f"{name.partition('-')[0]}.json")
    blocks, step_s = whole.get("num_layer"), whole.get("e2e_latency")
    if type(blocks) is not int or not 0 < blocks <= 1000 or not isinstance(step_s, float) or not 0 < step_s < 1e9:
        raise InputError(f"{path}: the JSON beside it lacks num_layer or e2e_latency of a measured model")
    table = read_fx_layers(path)
    samples = table[0].output.shape[0]
    layers = tuple(_repeated(path, table, [_layer(path, row, samples, config) for row in table], blocks))
    seconds = sum(layer.forward_s + layer.backward_s for layer in layers)
    return Profile(
        model=name.partition("-")[0],
        device=path.resolve().parent.name.replace("_", " "),
        batch_size=samples,
        step_s=_rounded(step_s / 1e3),
        layers_to_step=_rounded(seconds / (step_s / 1e3)),
        notes=f"imported from NeuSight's {path.name}: one measured block of {blocks}; backward with accumulation; no "
        "update; views left out; saved_bytes derived; step_s is forward and backward of the whole model",
        layers=layers,
    )


def _beside(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{path}: it is missing; import from a copy of NeuSight's label/ and DLmodel_configs/"
        ) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON ({str(error)[:60]})") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: it is a mapping of names to values")
    return content


def _layer(path: Path, table: FxLayer, samples: int, config: Mapping[str, Any]) -> Layer:
    node, output = table.nodes[0], table.output
    return Layer(
        name=table.name,
        kind=table.kind,
        output_shape=_output_shape(output, samples),
        forward_s=_rounded(sum(each.forward_s for each in table.nodes)),
        backward_s=_rounded(sum(each.backward_s for each in table.nodes)),
        parameter_bytes=node.element_bytes * _parameters(path, node, config),
        output_bytes=output.size_bytes * (samples if output.shape[0] == 1 != samples else 1),
        saved_bytes=table.saved_bytes,
        flops=float(sum(_flops(each) for each in table.nodes)),
        geometry=_geometry(table),
    )


def _repeated(path: Path, table: Sequence[FxLayer], layers: Sequence[Layer], blocks: int) -> list[Layer]:
    """The whole network: the block as often as it stands, each reading the one before."""
    block = [i for i, row in enumerate(table) if row.in_block]
    outside = {number for i in block for number in table[i].inputs if number not in block}
    leaving = {number for i, row in enumerate(table) for number in row.inputs if i not in block and number in block}
    if not block or len(outside) != 1 or len(leaving) != 1:
        raise InputError(
            f"{path}: its block reads {len(outside)} layers and {len(leaving)} leave it; only chains of blocks"
        )
    first, last = outside.pop(), leaving.pop()
    named: list[Layer] = []
    for i, row in enumerate(table):
        for copy in range(blocks if i in block else 1):
            inputs = (
                numbered(layers[last].name, copy - 1 if i in block else blocks - 1)
                if (i in block and copy and number == first) or (i not in block and number == last)
                else numbered(layers[number].name, copy)
                for number in row.inputs
            )
            named.append(replace(layers[i], name=numbered(layers[i].name, copy), inputs=tuple(inputs)))
    order = [x for x in range(len(table)) if x < min(block)]
    ends = [x for x in range(len(table)) if x > max(block)]
    by_name = {layer.name: layer for layer in named}
    names = [layers[i].name for i in order]
    names += [numbered(layers[i].name, copy) for copy in range(blocks) for i in block]
    return [by_name[name] for name in [*names, *(layers[i].name for i in ends)]]


def _output_shape(node: FxNode, samples: int) -> tuple[int, int, int]:
    """(channels, positions, 1); rows of all samples are their positions, heads are channels."""
    shape = node.shape
    if len(shape) == 2:
        positions, rest = divmod(shape[0], samples)
        return shape[1], max(positions, 1) if not rest else shape[0], 1
    return math.prod(shape[2:]), shape[1], 1


def _parameters(path: Path, node: FxNode, config: Mapping[str, Any]) -> int:
    """How many; the output layer shares the embedding's table, as these networks tie them, and has a bias in BERT."""
    width = node.shape[-1]
    match node.kind:
        case "addmm":
            return sum(math.prod(shape) for shape in (node.input_shapes[0], node.input_shapes[-1]))
        case "layernorm":
            return 2 * width
        case "linear":
            tied = width == config.get("vocab_size")
            bias = not tied or config.get("model_type") == "bert"
            return (0 if tied else node.input_shapes[0][-1] * width) + (width if bias else 0)
        case "embedding":
            key = next((key for part, key in _SIZES if part in node.part), "vocab_size")
            rows = config.get(key)
            if type(rows) is not int or not 0 < rows < 1 << 32:
                raise InputError(
                    f"{path}: {key} is {shown(rows)} in its configuration, where {node.part} needs a number"
                )
            return (rows + (_OPT_OFFSET if config.get("model_type") == "opt" and "position" in key else 0)) * width
    return 0


def _flops(node: FxNode) -> int:
    """Two per multiply-add of matrix products."""
    match node.kind:
        case "linear" | "matmul" | "bmm":
            return 2 * math.prod(node.shape) * node.input_shapes[0][-1]
        case "addmm":
            return 2 * math.prod(node.shape) * node.input_shapes[-1][0]
    return 0


def _geometry(table: FxLayer) -> Geometry:
    if table.kind == "attention":
        heads = next((node.shape[1] for node in table.nodes if node.kind == "softmax" and len(node.shape) == 4), 1)
        return Geometry(kernel=None, groups=heads, mixes_channels=True)
    return Geometry(mixes_channels=table.nodes[0].has_parameters)


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
