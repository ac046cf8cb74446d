"""The forward and backward passes of a plan's shards: what they take, hold and add up."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from simulator.cluster import Cluster
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.tasks.gradients import addition_s
from simulator.lowering.tasks.graph_builder import GraphBuilder
from simulator.runtime import IDEAL, Runtime
from simulator.sample_work import mean_work
from simulator.taskgraph import Floats, Ints, Kind


def add_passes(builder: GraphBuilder, model: ShardedModel, cluster: Cluster, runtime: Runtime = IDEAL) -> Passes:
    """Append forward and backward of every shard of one micro-batch; backward needs its own forward."""
    device = np.concatenate(model.devices)  # (shards of all layers,)
    sizes = [len(devices) for devices in model.devices]
    first = np.concatenate([[0], np.cumsum(sizes)])  # (layers + 1,)
    layer = np.repeat(np.arange(len(sizes)), sizes)  # (shards of all layers,)
    shard = np.arange(len(layer)) - first[layer]  # (shards of all layers,)
    forward_s, backward_s, saved, output, working, kept = pass_columns(model)  # (shards of all layers,) each
    seconds = np.stack([forward_s, backward_s]) / np.array(cluster.speeds)[device]
    columns = {"device": device, "layer": layer, "shard": shard}
    forward = builder.add(
        Kind.FORWARD, len(device), seconds=seconds[0], priority=layer, allocated_bytes=saved, **columns
    )
    fractions = weight_fractions(model, runtime)[layer]
    weight_s = seconds[1] * fractions
    in_weight = np.where(fractions == 1, output + working, 0.0)  # of a backward pass that is one of weights alone
    turn = 2 * len(sizes) - 1 - layer
    backward = builder.add(
        Kind.BACKWARD,
        len(device),
        seconds=seconds[1] - weight_s,
        priority=turn,
        allocated_bytes=output + working - in_weight,
        **columns,
    )
    builder.depend(backward, forward)
    last = backward.copy()
    if split := np.flatnonzero(weight_s > 0).tolist():
        columns = {"device": device[split], "layer": layer[split], "shard": shard[split], "priority": turn[split]}
        columns["allocated_bytes"] = in_weight[split]
        last[split] = builder.add(Kind.WEIGHT, len(split), seconds=weight_s[split], **columns)
        builder.depend(last[split], backward[split])
    freed_bytes = builder.column("freed_bytes")
    freed_bytes[last] += saved + output + working - kept
    np.add.at(freed_bytes, last[_last_readers(model, first, device)], kept)
    again = _add_recomputations(builder, model, layer, forward)
    return Passes(
        first=first,
        device=device,
        last=last,
        recompute=again,
        segment=model.segment_of,
        total=len(device),
        readers=() if model.schedule.splits_backward or not split else _first_readers(model),
    )


def _last_readers(model: ShardedModel, first: Ints, device: Ints) -> Ints:
    """By forward task, that of the layer whose backward pass is the last on its device to read the output: the first of
    its readers. Itself where it keeps no output or its device reads none."""
    reader = np.arange(len(device))
    for position, layer in enumerate(model.profile.layers):
        if not (layer.saved_output_bytes and model.profile.consumers[position]):
            continue
        of_reader = model.profile.consumers[position][0]
        own, reading = (device[first[i] : first[i + 1]] for i in (position, of_reader))
        if not np.array_equal(own, reading):
            order = np.argsort(reading, kind="stable")
            at = order[np.minimum(np.searchsorted(reading[order], own), len(reading) - 1)]
            here = reading[at] == own
            reader[first[position] : first[position + 1]][here] = first[of_reader] + at[here]
        else:
            reader[first[position] : first[position + 1]] = np.arange(first[of_reader], first[of_reader + 1])
    return reader


def _add_recomputations(builder: GraphBuilder, model: ShardedModel, layer: Ints, forward: Ints) -> Ints:
    """Append a forward pass again for every forward task of a recomputed layer; by forward task, its index or -1.

    layer: of each forward task. What a forward task saves is dropped with the last of its segment on its device, and
    saved again by the task that repeats it, but for as much as it reads of outputs that its device made before:
    that stays, to begin with.
    """
    again = np.full(len(forward), -1)
    if not model.segments:
        return again
    segment_of = np.array([model.segment_of.get(position, -1) for position in range(len(model.profile.layers))])
    segment = segment_of[layer]
    tasks = forward[np.argsort(segment, kind="stable")][(segment < 0).sum() :]
    device = builder.column("device")
    columns = {name: builder.column(name)[tasks] for name in ("device", "seconds", "layer", "shard")}
    dropped, ends = builder.column("allocated_bytes").copy(), np.array([segment[-1] for segment in model.segments])
    for number, layers in enumerate(model.segments):
        of_segment = tasks[segment[tasks] == number]
        dropped[of_segment] -= _staying(model, layers, device[of_segment], dropped[of_segment])
    priority = 2 * len(model.profile.layers) - 1 - ends[segment[tasks]]
    again[tasks] = builder.add(Kind.RECOMPUTE, len(tasks), priority=priority, allocated_bytes=dropped[tasks], **columns)
    on = segment[tasks] * (columns["device"].max() + 1) + columns["device"]
    order = np.argsort(on, kind="stable")
    own, begins = tasks[order], np.append(True, np.diff(on[order]) > 0)  # of a segment and device in a row
    begin = np.flatnonzero(begins)
    end = np.append(begin[1:], len(own)) - 1
    builder.column("freed_bytes")[own[end]] += [sizes.sum() for sizes in np.split(dropped[own], begin[1:])]
    builder.depend(again[own[~begins]], again[own[np.flatnonzero(~begins) - 1]])
    builder.depend(again[own[begin]], own[end])
    builder.depend(own + len(forward), again[own[np.repeat(end, end - begin + 1)]])
    return again


def _staying(model: ShardedModel, segment: Sequence[int], device: Ints, saved: Floats) -> Floats:
    """How much of what its tasks save stays after the forward pass of a segment, shape (tasks,).

    As many bytes as the segment reads of its own devices' earlier outputs that their makers do not keep, as far as it
    saves so many, counted from the first task on; what comes from other devices is held by the message. device, saved:
    of each task.
    """
    read = np.zeros(int(device.max()) + 1)
    names = {name for position in segment for name in model.layer(position).inputs}
    for position in sorted({model.profile.index[name] for name in names} - set(segment)):
        made = model.devices[position]
        _, output, _, kept = model.pass_bytes(position)
        here = np.isin(made, device)
        np.add.at(read, made[here], (output if position in model.segment_of else output - kept)[here])
    staying = np.zeros(len(saved))
    for task, on in enumerate(device.tolist()):
        staying[task] = min(read[on], saved[task])
        read[on] -= staying[task]
    return staying


def pass_columns(model: ShardedModel) -> Floats:
    """Of the shards of all layers in a row what one micro-batch takes: (forward, backward) seconds at speed 1 and
    (saved, output, working, kept) bytes, see `pass_costs`, shape (6, shards of all layers).

    Layers that are cut alike share the answer, in all plans of a profile.
    """
    positions_of: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for position, sharding in enumerate(model.placements):
        positions_of.setdefault((sharding.shape, sharding.samples), []).append(position)
    columns, layer = list[Floats](), list[Ints]()
    for (shape, samples), positions in positions_of.items():
        shards = math.prod(shape)
        key = ("pass_columns", tuple(positions), model.plan.microbatch_size, shape, samples)
        columns.append(model.profile.kept.get(key, partial(_columns_of, model, positions), shards * len(positions)))
        layer.append(np.repeat(positions, shards))
    return np.concatenate(columns, axis=1)[:, np.argsort(np.concatenate(layer), kind="stable")]


def _columns_of(model: ShardedModel, positions: Sequence[int]) -> Floats:
    return np.concatenate([model.pass_seconds(*positions), model.pass_bytes(*positions)])


def scale_by_work(builder: GraphBuilder, model: ShardedModel, passes: Passes) -> None:
    """Let the passes of every micro-batch take as much longer as their samples have more work (`Plan.work`)."""
    plan = model.plan
    if not plan.work:
        return
    samples = np.concatenate([model.sample_intervals(i) for i in range(len(model.profile.layers))])  # (shards, 2)
    varying = np.array([layer.varying_share for layer in model.profile.layers])  # (layers,)
    kinds = (Kind.FORWARD, Kind.BACKWARD, Kind.WEIGHT, Kind.RECOMPUTE)
    tasks = np.flatnonzero(np.isin(builder.column("kind"), kinds))
    layer, shard, microbatch = (builder.column(name)[tasks] for name in ("layer", "shard", "microbatch"))
    first, last = (samples[passes.first[layer] + shard] + microbatch[:, None] * plan.microbatch_size).T
    work = mean_work(plan.work, plan.batch_size, first, last)
    builder.column("seconds")[tasks] *= 1 + varying[layer] * (work - 1)


def add_gradients(builder: GraphBuilder, model: ShardedModel, cluster: Cluster, passes: Passes, starts: Ints) -> None:
    """Let backward passes add their gradients to those that their device has already, in time and memory.

    A device keeps the gradient that it makes first. Later micro-batches add theirs to it, and in the first one those
    of its further shards with the same parameters. What is to be added is held apart until then, as is a gradient on
    its way into the buffer of a collective.
    """
    seconds = builder.column("seconds")
    held = [builder.column(name) for name in ("allocated_bytes", "freed_bytes")]
    speeds = np.array(cluster.speeds)
    pieces = model.replicas
    if not pieces:
        return
    shards = np.concatenate([piece.shards for piece in pieces])
    owner = np.repeat(np.arange(len(pieces)), [len(piece.shards) for piece in pieces])
    last, device = passes.last[shards], passes.device[shards]
    added_s = np.array([addition_s(model, piece) for piece in pieces])[owner] / speeds[device]
    later = np.add.outer(starts[1:], last).ravel()  # (micro-batches x terms,)
    np.add.at(seconds, later, np.tile(added_s, len(starts) - 1))
    further = np.ones(len(last), dtype=np.bool_)
    further[np.unique(owner * len(speeds) + device, return_index=True)[1]] = False
    np.add.at(seconds, last[further], added_s[further])
    apart = further | np.array([piece.is_shared for piece in pieces])[owner]
    size_bytes = np.array([piece.parameter_bytes for piece in pieces])[owner]
    for column in held:
        np.add.at(column, later, np.tile(size_bytes, len(starts) - 1))
        np.add.at(column, last[apart], size_bytes[apart])


def weight_fractions(model: ShardedModel, runtime: Runtime) -> Floats:
    """The part of each layer's backward pass that makes parameter gradients, where schedule or runtime splits it.

    Products for inputs and for parameters cost as much as each other (Qi et al., ICLR 2024, section 3). Nobody waits
    for gradients of the first stage, which therefore does its whole backward pass then, as torch's runtime does. A
    runtime splits only the layers cut by output channels, whose input gradients are summed between devices.
    """
    fractions = np.zeros(len(model.profile.layers))
    if model.schedule.splits_backward:
        fractions[[layer.parameter_bytes > 0 for layer in model.profile.layers]] = 0.5
        fractions[model.stages[0]] = 1.0
    elif runtime.overlaps_weight_gradients:
        cut = [sharding.degrees[1] > 1 for sharding in model.placements]
        fractions[[layer.sums_inputs and is_cut for layer, is_cut in zip(model.profile.layers, cut, strict=True)]] = 0.5
    return fractions


def _first_readers(model: ShardedModel) -> tuple[int, ...]:
    """By layer, the first that reads the same inputs: their input gradients are added up before they are sent."""
    first: dict[tuple[str, ...], int] = {}
    layers = enumerate(model.profile.layers)
    return tuple(first.setdefault(layer.inputs or (layer.name,), position) for position, layer in layers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """Where the forward and backward tasks of a micro-batch stand: layer after layer, shard after shard.

    first has shape (layers + 1,), the other arrays (shards of all layers,).
    last: for each forward task, the one that ends its backward pass: its weight gradient where that is split off.
    recompute: for each forward task, the one that does it again, -1 where its activations are kept. segment: by layer,
    the number of the segment that is recomputed as a whole. readers: where a backward pass is followed by its own
    weight gradients, by layer the first with the same inputs: weight gradients come after the input gradients of all.
    """

    first: Ints
    device: Ints
    last: Ints
    recompute: Ints
    segment: Mapping[int, int]
    total: int
    readers: tuple[int, ...] = ()

    def forward(self, layer: int) -> Ints:
        return np.arange(self.first[layer], self.first[layer + 1])

    def of(self, forward: Ints, kind: Kind) -> Ints:
        """The tasks of one kind of pass over the layers that `forward` tasks run, in their order.

        A backward pass does each recomputed segment again when it comes to its last layer.
        """
        if kind == Kind.FORWARD:
            return forward
        backward: Ints = forward[::-1] + self.total
        last: Ints = self.last[forward[::-1]]
        if kind == Kind.WEIGHT:
            split_off: Ints = last[last != backward]
            return split_off
        if (self.recompute[forward] < 0).all() and not self.readers:
            return backward
        layer = np.searchsorted(self.first, forward, side="right") - 1
        segment = np.array([self.segment.get(int(position), -1) for position in layer])
        tasks, done, reads = [], {-1}, -1
        weights: list[int] = []  # of layers that read the same as the one at hand
        for task, after, number, position in zip(
            backward.tolist(), last.tolist(), segment[::-1].tolist(), layer[::-1].tolist(), strict=True
        ):
            if self.readers and self.readers[position] != reads:
                tasks.append(np.array(weights, dtype=np.int64))
                weights, reads = [], self.readers[position]
            if number not in done:
                tasks.append(self.recompute[forward[segment == number]])
                done.add(number)
            tasks.append(np.array([task]))
            if after != task and self.readers:
                weights.append(after)
        ordered: Ints = np.concatenate([*tasks, np.array(weights, dtype=np.int64)])
        return ordered
