"""What a shard computes and reads: its operator, its boxes, and the sums over pieces that they are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import fx

from simulator.lowering.exchange.shard_regions import split
from traces.capture.fx_steps import TracedStep
from traces.runs.executor.edge_moves import PieceSum
from traces.runs.executor.parameter_boxes import Extents, parameter_boxes
from traces.runs.executor.regions import Box
from traces.runs.executor.run_setup import DATA, Script, TracedLayers
from traces.runs.executor.shard_operators import operator
from traces.runs.executor.sliced_layers import Operator, Shard
from traces.runs.executor.task_moves import Phase

Slot = tuple[int, int, int]
"""(layer, channel slot, reduce slot): shards with the same parameters."""
Wanted = Mapping[tuple[int, Phase], Mapping[int, Sequence[PieceSum]]]
"""By (layer, phase) and task on this device, the sums that it needs."""


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
    own = _box(script.own(position), at[:4])
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
        inputs=tuple(each for each in inputs if each.producer < 0 or each.box.elements),
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
