"""Whole layers on workers drawn at random: the floor under every other strategy."""

from __future__ import annotations

import numpy as np

from simulator.cluster import Cluster
from simulator.plan import Partition, Sharding, StepSettings
from simulator.workload import Profile


def partition(profile: Profile, cluster: Cluster, step: StepSettings, *, seed: int = 0) -> Partition:
    """Each layer on a worker drawn evenly and by itself; the same seed draws the same."""
    drawn = np.random.default_rng(seed).integers(cluster.workers, size=len(profile.layers)).tolist()
    placed = zip(profile.layers, drawn, strict=True)
    return Partition(placements={layer.name: Sharding(devices=(device,)) for layer, device in placed})
