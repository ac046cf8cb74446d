"""Whole layers on workers drawn at random: the floor under every other strategy."""

from __future__ import annotations

import numpy as np

from simulator.cluster import Cluster
from simulator.plan import Placement, Plan, Synchronisation
from simulator.workload import Profile


def partition(
    profile: Profile,
    cluster: Cluster,
    *,
    batch_size: int,
    microbatches: int = 1,
    synchronisation: Synchronisation = Synchronisation(),
    optimizer_state: float = 1.0,
    seed: int = 0,
) -> Plan:
    """Each layer on a worker drawn evenly and by itself; the same seed draws the same."""
    drawn = np.random.default_rng(seed).integers(cluster.workers, size=len(profile.layers)).tolist()
    return Plan(
        model=profile.model,
        batch_size=batch_size,
        microbatches=microbatches,
        placements={
            layer.name: Placement(devices=(device,)) for layer, device in zip(profile.layers, drawn, strict=True)
        },
        synchronisation=synchronisation,
        optimizer_state=optimizer_state,
        strategy="shuffle",
    )
