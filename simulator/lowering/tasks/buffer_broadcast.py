"""Buffers that all replicas shall have alike: the plan's first device sends them to the others as a step begins."""

from __future__ import annotations

import numpy as np

from simulator import collectives
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.tasks.graph_builder import GraphBuilder
from simulator.lowering.tasks.passes import Passes
from simulator.taskgraph import Ints, Kind, Route


def broadcast(model: ShardedModel) -> tuple[Route, float] | None:
    """(route, bytes over each of its pairs) of `Synchronisation.broadcast_bytes`; None where
    there are none, or no gradients are summed between devices."""
    size_bytes = model.plan.synchronisation.broadcast_bytes
    if not size_bytes or not model.buckets:
        return None
    return collectives.exchange("broadcast", model.plan.devices, size_bytes)


def add_broadcast(builder: GraphBuilder, model: ShardedModel, passes: Passes, starts: Ints) -> None:
    """Append the broadcast, for which all micro-batches, which start at tasks `starts`, wait with the layers that read
    the data."""
    sent = broadcast(model)
    if sent is None:
        return
    route, sent_bytes = sent
    task = builder.add(Kind.PARAMETERS, 1, route=builder.route(route), bytes=sent_bytes)
    first = [passes.forward(position) for position, layer in enumerate(model.profile.layers) if not layer.inputs]
    builder.depend(np.add.outer(starts, np.concatenate(first)).ravel(), task)  # (microbatches, tasks) -> flat
