"""Buffers that all replicas shall have alike: the plan's first device sends them to the others as a step begins."""

from __future__ import annotations

import numpy as np

from simulator import collectives
from simulator.cluster import Cluster
from simulator.lowering.graph_builder import GraphBuilder
from simulator.lowering.passes import Passes
from simulator.lowering.sharded_model import ShardedModel
from simulator.taskgraph import Ints, Kind


def add_broadcast(builder: GraphBuilder, model: ShardedModel, cluster: Cluster, passes: Passes, starts: Ints) -> None:
    """Append the broadcast of `Synchronisation.broadcast_bytes`, for which all micro-batches, which start at tasks
    `starts`, wait with the layers that read the data."""
    devices, size_bytes = model.plan.devices, model.plan.synchronisation.broadcast_bytes
    if not size_bytes or len(devices) < 2:
        return
    route, sent_bytes, seconds = collectives.exchange("broadcast", cluster, devices, size_bytes)
    task = builder.add(Kind.PARAMETERS, 1, route=builder.route(route), bytes=sent_bytes, seconds=seconds)
    first = [passes.forward(position) for position, layer in enumerate(model.profile.layers) if not layer.inputs]
    builder.depend(np.add.outer(starts, np.concatenate(first)).ravel(), task)  # (microbatches, tasks) -> flat
