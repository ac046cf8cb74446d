"""Model parallelism: contiguous layers on each device, one micro-batch, so that one device works at a time."""

from __future__ import annotations

from partitioners._contiguous import contiguous_stages
from simulator.cluster import Cluster
from simulator.plan import Plan, Synchronisation
from simulator.workload import Profile


def partition(
    profile: Profile,
    cluster: Cluster,
    *,
    batch_size: int,
    synchronisation: Synchronisation = Synchronisation(),
    optimizer_state: float = 1.0,
    seed: int = 0,
) -> Plan:
    """One stage per worker, the slowest stage and transfer made as fast as they can be.

    There is no option of micro-batches: with more than one this is the strategy "pipeline".
    Raises InputError when there are more workers than layers.
    """
    return Plan(
        model=profile.model,
        batch_size=batch_size,
        placements=contiguous_stages(profile, cluster, microbatch_size=batch_size).placements(profile),
        synchronisation=synchronisation,
        optimizer_state=optimizer_state,
        strategy="model",
    )
