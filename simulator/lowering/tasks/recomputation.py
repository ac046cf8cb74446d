"""Recomputation (activation checkpointing): segments of layers are computed, or outputs received, again before their
backward passes.

    forward     A B C                          saved: what A reads; A, B and C drop theirs
    backward            A' B' C'  Cb Bb Ab     A' waits for the gradient of C

What layers of a segment receive from each other on other devices is received again (Chen et al., arXiv 1604.06174;
with tensor parallelism Korthikanti et al., MLSys 2023, section 5). Without recomputation an output that its readers
keep as their own part alone is received again: the inputs of column-parallel layers under sequence parallelism (section
4.2.2 there), and the keys and values of context parallelism, whose ring passes them round once more.
"""

from __future__ import annotations

import numpy as np

from simulator.distinct import distinct, places
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.tasks.exchange_tasks import Ends, add_in_a_row, hold
from simulator.lowering.tasks.graph_builder import GraphBuilder
from simulator.lowering.tasks.passes import Passes
from simulator.taskgraph import Ints, Kind


def join_recomputations(builder: GraphBuilder, model: ShardedModel, passes: Passes) -> None:
    """Let the segments of a micro-batch wait for the gradients that they are for, and exchange what they did before."""
    if not (model.segments or model.plan.received_again):
        return
    if model.segments:
        _wait_for_gradients(builder, model, passes)
    _exchange_again(builder, model, passes)
    _receive_again(builder, model, passes)


def _wait_for_gradients(builder: GraphBuilder, model: ShardedModel, passes: Passes) -> None:
    """The first task of a segment on a device waits for what its backward passes there wait for from outside."""
    later, earlier = builder.edges()
    segments, devices = len(model.segments), int(passes.device.max()) + 1
    counts = np.diff(passes.first)
    segment = np.repeat([model.segment_of.get(position, -1) for position in range(len(counts))], counts)
    inside, backward, kept = np.full((3, len(builder)), -1)  # by task, the segment that it, or its backward pass, is of
    backward[passes.total : 2 * passes.total] = segment
    kept[passes.total : 2 * passes.total] = np.repeat(_kept_between(model), counts)
    forward = np.flatnonzero(segment >= 0)
    for tasks in (forward, forward + passes.total, passes.recompute[forward]):
        inside[tasks] = segment[forward]
    number = backward[later]
    needed = (number >= 0) & (inside[earlier] != number)
    later, earlier, number = later[needed], earlier[needed], number[needed]
    outside = ~np.isin(earlier * segments + number, _followers(builder, backward, kept, segments))
    later, earlier, number = later[outside], earlier[outside], number[outside]
    places, first = np.unique(segment[forward] * devices + passes.device[forward], return_index=True)
    at = np.searchsorted(places, number * devices + passes.device[later - passes.total])
    builder.depend(passes.recompute[forward[first[at]]], earlier)


def _kept_between(model: ShardedModel) -> Ints:
    """By layer, the segment among whose layers it stands without being one, -1 where none; shape (layers,)."""
    between = np.full(len(model.profile.layers), -1)
    for number, segment in enumerate(model.segments):
        kept = sorted({*range(segment[0], segment[-1])} - {*segment})
        between[[position for position in kept if position not in model.segment_of]] = number
    return between


def _followers(builder: GraphBuilder, backward: Ints, kept: Ints, segments: int) -> Ints:
    """All tasks that follow backward passes of a segment directly, or by way of messages that add up or forward what
    these made, or of layers between the segment's: task x segments + segment, ascending.

    backward, kept: by task, the segment of whose backward pass it is, or among whose layers that of its layer stands.
    """
    later, earlier = builder.edges()
    is_transfer = builder.column("route") >= 0
    own = backward[earlier] >= 0
    followers = frontier = distinct(later[own] * segments + backward[earlier[own]])
    order = np.argsort(earlier, kind="stable")
    later, earlier = later[order], earlier[order]
    while len(frontier):
        tasks, number = np.divmod(frontier, segments)
        goes_on = is_transfer[tasks] | (kept[tasks] == number)
        tasks, number = tasks[goes_on], number[goes_on]
        counts, at = places(earlier, tasks)
        reached = distinct(later[at] * segments + np.repeat(number, counts))
        known = followers[np.minimum(np.searchsorted(followers, reached), len(followers) - 1)] == reached
        frontier = reached[~known]
        followers = distinct(np.append(followers, frontier))
    return followers


def _exchange_again(builder: GraphBuilder, model: ShardedModel, passes: Passes) -> None:
    """Repeat what moves of layers' outputs inside their segments."""

    def ends(_at: Ints, _consumers: Ints, own: Ints, readers: Ints) -> list[Ends]:
        return [Ends(terms=passes.recompute[own], targets=passes.recompute[readers], frees=passes.last[readers])]

    readers = {i: model.recomputed_readers(i) for segment in model.segments for i in segment}
    readers = {position: reading for position, reading in readers.items() if reading}
    if readers:
        for held in add_in_a_row(builder, model, passes, readers, (Kind.ACTIVATION,), ends):
            hold(builder, held)


def _receive_again(builder: GraphBuilder, model: ShardedModel, passes: Passes) -> None:
    """Repeat what moves of layers' outputs, once the gradient for the last of their readers is there.

    Only for the last: the gradients for others may have come through it.
    """

    def ends(_at: Ints, _consumers: Ints, own: Ints, readers: Ints) -> list[Ends]:
        return [Ends(terms=own, targets=passes.last[readers], frees=passes.last[readers])]

    readers = {position: model.receiving_again(position) for position in range(len(model.profile.layers))}
    readers = {position: reading for position, reading in readers.items() if reading}
    if not readers:
        return
    later, earlier = builder.edges()
    order, task = np.argsort(later, kind="stable"), len(builder)
    later, earlier = later[order], earlier[order]
    for held in add_in_a_row(builder, model, passes, readers, (Kind.ACTIVATION,), ends):
        hold(builder, held)
    transfers, tasks = [], []  # and the backward passes whose gradients they wait for
    for position, reading in readers.items():
        exchanges, last = model.exchanges(position, reading), passes.forward(max(reading))
        for transfer in exchanges.forward.transfers:
            here = last[np.isin(passes.device[last], exchanges.devices[list(transfer.devices)])]
            tasks.append((here if len(here) else last) + passes.total)
            transfers.append(np.full(len(tasks[-1]), task))
            task += 1
    waiting, backward = np.concatenate(transfers), np.concatenate(tasks)
    counts, at = places(later, backward)
    builder.depend(np.repeat(waiting, counts), earlier[at])
