"""How much a plan communicates, counted from its placements alone, without lowering or simulating it."""

from __future__ import annotations

import numpy as np

from simulator.cluster import Cluster
from simulator.lowering.sharded_model import ShardedModel
from simulator.report.traffic import Communication


def communication_volume(model: ShardedModel, cluster: Cluster) -> Communication:
    """Bytes of one step: every piece once to each device that reads it and does not hold it.

    Gradients of those pieces come back the same way. The cluster says where parameter servers are.
    """
    count = len(cluster.devices)
    forward, synchronisation = np.zeros((count, count)), np.zeros((count, count))
    for position, home in enumerate(model.devices):
        crossing = model.crossings(position, model.reads(position))
        size = crossing.elements * (model.profile.element_bytes(position) * model.plan.microbatches)
        np.add.at(forward, (home[crossing.shard], crossing.device), size)
    for bucket in model.buckets:
        for step in bucket.steps(cluster, model.plan):
            for pair in step.route.pairs if step.route else ():
                synchronisation[pair] += step.bytes
    matrix = forward + forward.T + synchronisation
    source, target = np.nonzero(matrix)
    return Communication(
        total=float(matrix.sum()),
        forward=float(forward.sum()),
        backward=float(forward.sum()),
        synchronisation=float(synchronisation.sum()),
        devices=count,
        source=source,
        target=target,
        size_bytes=matrix[source, target],
    )
