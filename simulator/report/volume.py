"""How much a plan communicates, counted from its placements alone, without lowering or simulating it."""

from __future__ import annotations

import numpy as np

from simulator.cluster import Cluster
from simulator.lowering.crossings import crossings_of, element_bytes, reads_of
from simulator.lowering.gradients import buckets
from simulator.plan import Plan
from simulator.report.metrics import Communication
from simulator.workload import Profile


def communication_volume(profile: Profile, cluster: Cluster, plan: Plan) -> Communication:
    """Bytes of one step of `plan`: every piece once to each device that reads it and does not hold it.

    Gradients of those pieces come back the same way. The cluster says where parameter servers are.
    """
    count = len(cluster.devices)
    forward, synchronisation = np.zeros((count, count)), np.zeros((count, count))
    for position, layer in enumerate(profile.layers):
        home = np.array(plan.placements[layer.name].devices)
        found = reads_of(profile, plan.placements, plan.microbatch_size, position)
        readers = [plan.placements[profile.layers[i].name].devices for i in found.consumer]
        target = np.array([devices[j] for devices, j in zip(readers, found.shard, strict=True)], dtype=np.int64)
        crossing = crossings_of(found, home[found.producer], target)
        size = crossing.elements * (element_bytes(profile, position) * plan.microbatches)
        np.add.at(forward, (home[crossing.shard], crossing.device), size)
    for bucket in buckets(profile, plan):
        for step in bucket.steps(cluster, plan):
            for pair in step.route.pairs if step.route else ():
                synchronisation[pair] += step.bytes
    matrix = forward + forward.T + synchronisation
    return Communication(
        total=float(matrix.sum()),
        forward=float(forward.sum()),
        backward=float(forward.sum()),
        synchronisation=float(synchronisation.sum()),
        matrix=tuple(map(tuple, matrix.tolist())),
    )
