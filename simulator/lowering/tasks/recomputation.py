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

from simulator.cluster import Cluster
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.tasks.exchange_tasks import ExchangeTasks
from simulator.lowering.tasks.graph_builder import GraphBuilder
from simulator.lowering.tasks.passes import Passes
from simulator.taskgraph import Ints, Kind


def join_recomputations(builder: GraphBuilder, model: ShardedModel, cluster: Cluster, passes: Passes) -> None:
    """Let the segments of a micro-batch wait for the gradients that they are for, and exchange what they did before."""
    if not (model.segments or model.plan.received_again):
        return
    later, earlier = builder.edges()
    for segment in model.segments:
        _wait_for_gradients(builder, passes, segment, later, earlier)
        for position in segment:
            _exchange_again(builder, model, cluster, passes, position)
    for position in range(len(model.profile.layers)):
        if model.receiving_again(position):
            _receive_again(builder, model, cluster, passes, position)


def _wait_for_gradients(
    builder: GraphBuilder, passes: Passes, segment: tuple[int, ...], later: Ints, earlier: Ints
) -> None:
    """The first task of a segment on a device waits for what its backward passes there wait for from outside."""
    forward = np.concatenate([passes.forward(layer) for layer in segment])
    inside = np.concatenate([forward, forward + passes.total, passes.recompute[forward]])
    from_inside = _transfers_after(builder, forward + passes.total, later, earlier)
    needed = np.isin(later, forward + passes.total) & ~np.isin(earlier, np.concatenate([inside, from_inside]))
    device_of, device = builder.column("device"), passes.device[forward]
    for member in np.unique(device):
        first = passes.recompute[forward[device == member][0]]
        builder.depend(first, earlier[needed & (device_of[later] == member)])


def _transfers_after(builder: GraphBuilder, tasks: Ints, later: Ints, earlier: Ints) -> Ints:
    """All tasks that follow `tasks` directly, or by way of messages that add up or forward what these made."""
    is_transfer = builder.column("route") >= 0
    followers, count = np.unique(later[np.isin(earlier, tasks)]), -1
    while len(followers) > count:
        count = len(followers)
        followers = np.union1d(followers, later[np.isin(earlier, followers[is_transfer[followers]])])
    return followers


def _exchange_again(
    builder: GraphBuilder, model: ShardedModel, cluster: Cluster, passes: Passes, position: int
) -> None:
    """Repeat what moves of a layer's output inside its segment."""
    readers = model.recomputed_readers(position)
    if not readers:
        return
    exchanges = model.exchanges(position, readers)
    reading = np.concatenate([passes.forward(reader) for reader in readers])
    element_bytes = model.profile.element_bytes(position)
    tasks = ExchangeTasks(builder, cluster, exchanges.devices, element_bytes, exchanges.forward)
    own, again = passes.recompute[passes.forward(position)], passes.recompute[reading]
    tasks.add(Kind.ACTIVATION, position, terms=own, targets=again, frees=passes.last[reading])


def _receive_again(builder: GraphBuilder, model: ShardedModel, cluster: Cluster, passes: Passes, position: int) -> None:
    """Repeat what moves of a layer's output, once the gradient for the last of its readers is there.

    Only for the last: the gradients for others may have come through it.
    """
    readers = model.receiving_again(position)
    exchange, devices = model.exchanges(position, readers).forward, model.exchanges(position, readers).devices
    reading = np.concatenate([passes.forward(reader) for reader in readers])
    later, earlier = builder.edges()
    tasks = ExchangeTasks(builder, cluster, devices, model.profile.element_bytes(position), exchange)
    own, frees = passes.forward(position), passes.last[reading]
    added = tasks.add(Kind.ACTIVATION, position, terms=own, targets=frees, frees=frees)
    last = passes.forward(max(readers))
    for task, transfer in zip(added, exchange.transfers, strict=True):
        here = last[np.isin(passes.device[last], devices[list(transfer.devices)])]
        builder.depend(task, earlier[np.isin(later, (here if len(here) else last) + passes.total)])
