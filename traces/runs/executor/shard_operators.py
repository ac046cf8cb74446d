"""What a shard computes and reads: its boxes, the sums over pieces that they are made of, and its operator.

A shard that has all channels and the whole plane of its samples runs the layer unchanged. Otherwise

    by output channel  the layer runs with the rows of its weights that make those channels; a grouped convolution
                       runs the groups that they touch
    by height, width   a convolution or pooling runs over the window that was read, which is padded where it reaches
                       over the border of the plane, and nowhere else
    anything else      a layer without parameters runs on all that was read, and what is not the shard's is cut off

In-place layers run out of place, since others may read what they would overwrite.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx
from torch.fx.node import map_arg
from torch.nn import functional

from simulator.errors import InputError
from simulator.lowering.exchange.shard_regions import Interval, split
from traces.capture.fx_steps import TracedStep
from traces.runs.executor.edge_moves import Phase, PieceSum
from traces.runs.executor.parameter_boxes import Box, Extents, parameter_boxes
from traces.runs.executor.run_setup import DATA, Script, TracedLayers
from traces.runs.executor.sliced_layers import (
    Operator,
    Parameters,
    Shard,
    Values,
    adding_a_share,
    of_channels,
    windowed,
)
from traces.zoo.blocks import Attention, Positions, QueryKeyValueAttention

Slot = tuple[int, int, int]
"""(layer, channel slot, reduce slot): shards with the same parameters."""
Wanted = Mapping[tuple[int, Phase], Mapping[int, Sequence[PieceSum]]]
"""By (layer, phase) and task on this device, the sums that it needs."""


def to_canonical(tensor: Tensor) -> Tensor:
    """A layer's output as (samples, channels, height, width); a sequence's length is its height."""
    match tensor.dim():
        case 4:
            return tensor
        case 3:
            return tensor.transpose(1, 2).unsqueeze(3)  # from (samples, positions, channels)
        case 2:
            return tensor[:, :, None, None]  # (samples, channels, 1, 1)
    return tensor.reshape(-1, 1, 1, 1)  # (samples, 1, 1, 1)


def to_native(tensor: Tensor, dimensions: int) -> Tensor:
    """The inverse of `to_canonical`, from (samples, channels, height, width) to so many dimensions."""
    match dimensions:
        case 4:
            return tensor
        case 3:
            return tensor.squeeze(3).transpose(1, 2)  # (samples, positions, channels)
        case 2:
            return tensor[:, :, 0, 0]  # (samples, channels)
    return tensor.reshape(-1)  # (samples,)


def operator(step: TracedStep, shard: Shard, joined: Mapping[fx.Node, Interval]) -> Operator:
    """How to run a shard: a function of its parameters and of the values of the nodes that the step reads.

    joined: the channels read of each node that a concatenation joins. Raises InputError where the layer cannot be
    split so.
    """
    kind, module = shard.layer.kind, step.module
    if kind == "concat":
        nodes = [node for node in step.node.all_input_nodes if joined[node][0] < joined[node][1]]
        return lambda parameters, values: torch.cat([values[node] for node in nodes], 1)  # along channels
    if kind == "flatten":
        return _flatten(step, shard)
    if not shard.whole_plane and shard.layer.geometry.kernel not in (None, (1, 1)):
        run = windowed(step, shard)
        return adding_a_share(run, shard) if shard.reduce > 1 else run
    if shard.reduce > 1 and module is not None:
        return adding_a_share(of_channels(step, module, shard), shard)
    if isinstance(module, Positions) and not shard.whole_plane:
        return of_channels(step, module, shard)
    if isinstance(module, Attention | QueryKeyValueAttention) and not (shard.all_channels and shard.whole_plane):
        return _attention(step, module, shard)
    if shard.all_channels or module is None or next(module.parameters(), None) is None:
        return _as_it_stands(step)
    return of_channels(step, module, shard)


def cut_to_own(result: Tensor, shard: Shard) -> Tensor:
    """The shard's part of a canonical result that may have more channels or a larger plane.

    Raises InputError when it fits neither the shard nor the layer.
    """
    for axis in (1, 2, 3):
        (first, last), extent = shard.own[axis], result.shape[axis]
        if extent == last - first:
            continue  # not even a narrow to everything, whose backward would copy the gradient
        if extent == shard.layer.output_shape[axis - 1]:
            result = result.narrow(axis, first, last - first)
        else:
            raise InputError(
                f"layer {shard.layer.name!r} made {tuple(result.shape)} for the shard {shard.own}: the profile does "
                "not describe how this layer may be split; give it degrees (n, 1, 1, 1)"
            )
    return result


def loss_share(scores: Tensor, targets: Tensor, total: int) -> Tensor:
    """What the predictions of a shard add to the cross entropy averaged over `total` predictions.

    scores: (samples, classes) or (samples, positions, classes). targets: (samples,) or (samples, positions).
    """
    flat = scores if scores.dim() == 2 else scores.flatten(0, -2)  # (predictions, classes)
    return functional.cross_entropy(flat, targets.reshape(-1), reduction="sum") / total


def _as_it_stands(step: TracedStep) -> Operator:
    """The step's own call, with the module's own parameters."""
    call: Any = step.call
    if getattr(call, "inplace", False):
        call = copy.copy(call)
        call.inplace = False
    overwrites = step.module is None and _overwrites(step.node)
    nodes = [argument for argument in step.node.args if isinstance(argument, fx.Node)]
    plain = not step.node.kwargs and len(nodes) == len(step.node.args)

    def run(parameters: Parameters, values: Values) -> Tensor:
        arguments: Any
        if plain:  # map_arg takes as long as a small layer
            arguments = tuple(_value(step, node, values) for node in nodes), {}
        else:
            arguments = map_arg((step.node.args, step.node.kwargs), lambda node: _value(step, node, values))
        args, kwargs = arguments
        if "inplace" in kwargs:
            kwargs = {**kwargs, "inplace": False}
        if overwrites:
            args = (args[0].clone(), *args[1:])
        result = call(*args, **kwargs)
        if not isinstance(result, Tensor):
            raise InputError(f"layer {step.name!r} returns {type(result).__name__}: only layers of one tensor can run")
        return result

    return run


def _value(step: TracedStep, node: fx.Node, values: Values) -> Any:
    """A tensor that the shard reads, or a number or constant made of such tensors."""
    if node in values:
        return values[node]
    if node.op == "get_attr" or not node.all_input_nodes:
        raise InputError(f"layer {step.name!r} reads {node}, a tensor of no layer; make it a module without submodules")
    args, kwargs = map_arg((node.args, node.kwargs), lambda inner: _value(step, inner, values))
    if callable(node.target):
        return node.target(*args, **kwargs)
    owner, *rest = args
    return getattr(owner, str(node.target))(*rest, **kwargs)


def _overwrites(node: fx.Node) -> bool:
    """Whether a function or method changes its first argument, by torch's convention of names."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return (name.endswith("_") and not name.endswith("__")) or name in ("iadd", "isub", "imul", "itruediv")


def _attention(step: TracedStep, module: Attention | QueryKeyValueAttention, shard: Shard) -> Operator:
    """Attention of the heads that the shard touches, over all that was read, of which its own channels are kept.

    Of queries apart from keys and values only the shard's own positions were read.
    """
    low, high = shard.groups(module.heads)
    heads = copy.copy(module)
    heads.heads = high - low
    (first, last), width = shard.own[1], shard.layer.channels // module.heads
    if isinstance(module, QueryKeyValueAttention) and (first, last) != (low * width, high * width):
        raise InputError(f"placements: layer {step.name!r} is split by channel inside a head; split it by heads")
    nodes = step.node.all_input_nodes
    query = {"first_query": shard.own[2][0]} if isinstance(module, QueryKeyValueAttention) else {}

    def run(parameters: Parameters, values: Values) -> Tensor:
        mixed: Tensor = heads(*(values[node] for node in nodes), **query)  # (samples, positions, channels of heads)
        return mixed[..., first - low * width : last - low * width]

    return run


def _flatten(step: TracedStep, shard: Shard) -> Operator:
    """Channels, rows and columns become channels, of which the shard's own are kept."""
    if shard.all_channels:
        return _as_it_stands(step)
    first = shard.read[1][0] * shard.extents[1] * shard.extents[2]
    start, length = shard.own[1][0] - first, shard.own[1][1] - shard.own[1][0]
    node = step.node.all_input_nodes[0]
    return lambda parameters, values: values[node].flatten(1).narrow(1, start, length)  # (samples, own channels)


@dataclass(frozen=True, slots=True)
class ShardInput:
    """What a shard reads of one producer, -1 for the training data; task: its number among the readers' shards.

    wanted: by phase, the sums over pieces of the box.
    """

    node: fx.Node
    producer: int
    box: Box
    task: Mapping[Phase, int]
    wanted: Mapping[Phase, Sequence[PieceSum]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardPart:
    """How a shard is computed: its operator, what that makes and reads, and the slot of its parameters.

    wanted: the sums that are the gradient of its output. copy: its number among those that compute the same.
    """

    step: TracedStep
    run: Operator
    shard: Shard
    slot: Slot
    copy: int
    inputs: tuple[ShardInput, ...]
    wanted: Sequence[PieceSum]


def slot_boxes(script: Script, steps: TracedLayers, slot: Slot) -> dict[str, Extents]:
    """By name, the elements of a layer's parameters that a slot holds. Raises InputError as `parameter_boxes` does."""
    layer, split_by = script.profile.layers[slot[0]], script.sharded.placements[slot[0]]
    module = steps.by_name[layer.name].module
    if module is None:
        return {}
    channels = split(layer.channels, split_by.degrees[1])[slot[1]]
    return parameter_boxes(layer.name, module, channels, layer.channels, slot[2], split_by.reduce)


def shard_part(script: Script, steps: TracedLayers, wanted: Wanted, position: int, number: int) -> ShardPart:
    """Shard `number` of the layer at `position`. Raises InputError where the layer cannot be split so."""
    layer, split_by = script.profile.layers[position], script.sharded.placements[position]
    step = steps.by_name[layer.name]
    at = [int(i) for i in np.unravel_index(number, split_by.shape)]
    own = _box(script.sharded.intervals(position), at[:4])
    names = [DATA, *layer.inputs] if steps.placeholder in step.node.all_input_nodes else layer.inputs
    reading = [at[0], at[1] * split_by.reduce + at[4], at[2], at[3]]
    boxes = {name: _box(script.read(position, name), reading) for name in dict.fromkeys(names)}
    inputs = tuple(_input(script, steps, wanted, name, box, position, number) for name, box in boxes.items())
    first = next(iter(boxes))
    extents = script.producer(first).output_shape
    shard = Shard(layer=layer, own=own, read=boxes[first], extents=extents, part=at[4], reduce=split_by.reduce)
    joined = {each.node: boxes[name][1] for name, each in zip(boxes, inputs, strict=True)}
    return ShardPart(
        step=step,
        run=operator(step, shard, joined),
        shard=shard,
        slot=(position, at[1], at[4]),
        copy=at[5],
        inputs=tuple(each for each in inputs if each.producer < 0 or 0 not in each.box.shape),
        wanted=wanted.get((position, Phase.BACKWARD), {}).get(number, ()),
    )


def _input(
    script: Script, steps: TracedLayers, wanted: Wanted, name: str, box: Box, position: int, number: int
) -> ShardInput:
    """What shard `number` of a layer reads of the producer called `name`."""
    if name == DATA:
        return ShardInput(steps.placeholder, -1, box, {}, {})
    producer, model = script.profile.index[name], script.sharded
    tasks: dict[Phase, int] = {}
    for phase, readers in (
        (Phase.FORWARD, script.profile.consumers[producer]),
        (Phase.AGAIN, model.recomputed_readers(producer)),
    ):
        if position in readers:
            before = readers[: readers.index(position)]
            tasks[phase] = sum(len(model.devices[other]) for other in before) + number
    sums = {phase: wanted[producer, phase].get(task, ()) for phase, task in tasks.items()}
    return ShardInput(steps.by_name[name].node, producer, box, tasks, sums)


def _box(intervals: Sequence[Sequence[tuple[int, int]]], at: Sequence[int]) -> Box:
    return Box(*(axis[i] for axis, i in zip(intervals, at, strict=True)))
