"""Data parallelism: every device holds the whole network and a share of the batch, larger where it is faster."""

from __future__ import annotations

from dataclasses import replace

from simulator.cluster import Cluster
from simulator.errors import InputError
from simulator.lowering.sample_shares import balanced_shares
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
    balance: bool = True,
    seed: int = 0,
) -> Plan:
    """Every layer by sample over all workers; several micro-batches accumulate their gradients.

    With `balance`, devices of unequal speed get the shares that let the slowest end first. Without it, and on equal
    devices, samples are shared out as evenly as whole samples allow.
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
    uneven = balance and len(set(cluster.speeds[:workers])) > 1
    shares = balanced_shares(profile, cluster, plan.microbatch_size) if uneven else ()
    placement = Placement(degrees=(workers, 1, 1, 1), devices=tuple(range(workers)), samples=shares)
    return replace(plan, placements={layer.name: placement for layer in profile.layers})
