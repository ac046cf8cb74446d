"""How much a plan communicates, counted from its placements alone, without lowering or simulating it."""

from __future__ import annotations

import numpy as np

from simulator.cluster import Cluster
from simulator.lowering.exchange.exchange_bytes import add_bytes
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.tasks.buffer_broadcast import broadcast
from simulator.plan import Plan
from simulator.report.traffic import Communication
from simulator.taskgraph import Floats


def communication_volume(model: ShardedModel, cluster: Cluster) -> Communication:
    """Bytes of one step: every piece once to each device that reads it and does not hold it, and its gradient back.

    Where terms are summed or shards copied, `simulator.lowering.exchange.reshard` says what moves. The cluster says
    where parameter servers are.
    """
    count = len(cluster.devices)
    forward, synchronisation = np.zeros((count, count)), np.zeros((count, count))
    backward = np.zeros((count, count))
    for position in range(len(model.devices)):
        _add_edge(forward, backward, model, position)
    parameters = np.zeros((count, count))
    for bucket in model.buckets:
        for step in bucket.steps(cluster, model.plan):
            for pair in step.route.pairs if step.route else ():
                synchronisation[pair] += step.bytes * model.sums_per_step
        for gather in bucket.gathers(model.plan):
            for pair in gather.route.pairs if gather.route else ():
                parameters[pair] += gather.bytes * _gathers_per_step(model.plan)
    if (sent := broadcast(model)) is not None:
        for pair in sent[0].pairs:
            parameters[pair] += sent[1]
    matrix = forward + backward + synchronisation + parameters
    source, target = np.nonzero(matrix)
    return Communication(
        total=float(matrix.sum()),
        forward=float(forward.sum()),
        backward=float(backward.sum()),
        synchronisation=float(synchronisation.sum()),
        parameters=float(parameters.sum()),
        devices=count,
        source=source,
        target=target,
        size_bytes=matrix[source, target],
    )


def _add_edge(forward: Floats, backward: Floats, model: ShardedModel, position: int) -> None:
    """Add the bytes of a step's messages of a layer's output, and of its gradient, to matrices (devices, devices)."""
    home, each = model.devices[position], model.profile.element_bytes(position) * model.plan.microbatches
    if not model.has_plain_edge[position]:
        exchanges = model.exchanges(position)
        add_bytes(forward, exchanges.forward, exchanges.devices, each)
        add_bytes(backward, exchanges.backward, exchanges.devices, each)
        for again in (model.recomputed_readers(position), model.receiving_again(position)):
            if again:
                exchanges = model.exchanges(position, again)
                add_bytes(forward, exchanges.forward, exchanges.devices, each)
        return
    crossing = model.crossings(position, model.reads(position))
    size = crossing.elements * each
    np.add.at(forward, (home[crossing.shard], crossing.device), size)
    np.add.at(backward, (crossing.device, home[crossing.shard]), size)


def _gathers_per_step(plan: Plan) -> int:
    """How often a step gathers a parameter that is shared out."""
    if plan.states.stage == 3:
        return plan.microbatches * (1 if plan.states.keep_gathered else 2)
    return 1 if plan.states.stage else 0
