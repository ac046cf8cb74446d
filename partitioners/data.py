"""Data parallelism: every device holds the whole network and an equal share of the batch."""

from __future__ import annotations

from dataclasses import replace

from simulator.cluster import Cluster
from simulator.errors import InputError
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
    """Every layer by sample over all workers; several micro-batches accumulate their gradients.

    Samples that do not divide are shared out as evenly as whole samples allow.
    Raises InputError when a micro-batch has fewer samples than there are workers.
    """
    plan = Plan(
        model=profile.model,
        batch_size=batch_size,
        microbatches=microbatches,
        placements={},
        synchronisation=synchronisation,
        optimizer_state=optimizer_state,
        strategy="data",
    )
    workers = cluster.workers
    if plan.microbatch_size < workers:
        raise InputError(
            f"batch_size {batch_size} in {microbatches} micro-batch(es) gives {plan.microbatch_size} samples to "
            f"{workers} devices, and each needs one; use a batch size of at least {workers * microbatches}, fewer "
            f"micro-batches or fewer devices"
        )
    placement = Placement(degrees=(workers, 1, 1, 1), devices=tuple(range(workers)))
    return replace(plan, placements={layer.name: placement for layer in profile.layers})
