"""Longest processing time first (Graham, SIAM J. Appl. Math. 17(2), 1969): balance without a look at the network."""

from __future__ import annotations

from simulator.cluster import Cluster
from simulator.lowering.costs.shard_costs import shard_seconds
from simulator.plan import Partition, Sharding, StepSettings
from simulator.workload import Profile


def partition(profile: Profile, cluster: Cluster, step: StepSettings, *, seed: int = 0) -> Partition:
    """Whole layers, the slowest first, each on the worker that would be done with it first."""
    seconds = {layer.name: sum(shard_seconds(profile, layer, step.microbatch_size)) for layer in profile.layers}
    load_s = [0.0] * cluster.workers
    placements = {}
    for name in sorted(seconds, key=lambda name: -seconds[name]):
        ends_s = [load + seconds[name] / speed for load, speed in zip(load_s, cluster.speeds, strict=False)]
        device = ends_s.index(min(ends_s))
        load_s[device] = ends_s[device]
        placements[name] = Sharding(devices=(device,))
    return Partition(placements={layer.name: placements[layer.name] for layer in profile.layers})
