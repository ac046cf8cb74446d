"""Pipeline parallelism: contiguous stages that work on different micro-batches at the same time."""

from __future__ import annotations

from dataclasses import replace

from partitioners._contiguous import contiguous_stages
from simulator.cluster import Cluster
from simulator.errors import InputError
from simulator.lowering.schedules import SCHEDULES
from simulator.plan import Plan, Synchronisation
from simulator.workload import Profile


def partition(
    profile: Profile,
    cluster: Cluster,
    *,
    batch_size: int,
    microbatches: int | None = None,
    schedule: str = "1f1b",
    replicas: bool = False,
    chunks: int | None = None,
    synchronisation: Synchronisation = Synchronisation(),
    optimizer_state: float = 1.0,
    seed: int = 0,
) -> Plan:
    """The stages of the best pace over all workers, one worker each or, with `replicas`, as many as pay off.

    Without `microbatches`, the divisor of the batch up to 4 x workers that promises the shortest step: many
    micro-batches shrink the bubble, but small ones can run below a device's best rate, as the profile says.
    chunks: stages per worker, in schedules that allow several; by default 2 in "interleaved", otherwise 1.
    Raises InputError when there are more stages than layers or the batch does not divide.
    """
    chunks = (2 if schedule == "interleaved" else 1) if chunks is None else chunks
    several = sorted(name for name, known in SCHEDULES.items() if known.several_stages)
    if chunks > 1 and (replicas or schedule not in several):
        raise InputError(
            f"chunks is {chunks}: several stages per worker need a schedule of {', '.join(several)} and no "
            f"replicas; here it is {schedule!r}"
        )
    plan = Plan(
        model=profile.model,
        batch_size=batch_size,
        microbatches=1 if microbatches is None else microbatches,
        placements={},
        schedule=schedule,
        synchronisation=synchronisation,
        optimizer_state=optimizer_state,
        strategy="pipeline",
    )
    counts = _divisors(batch_size, 4 * cluster.workers) if microbatches is None else [microbatches]
    found = {
        m: contiguous_stages(
            profile, cluster, microbatch_size=batch_size // m, microbatches=m, replicas=replicas, chunks=chunks
        )
        for m in counts
    }
    best = min(found, key=lambda m: found[m].step_s(m))
    return replace(plan, microbatches=best, placements=found[best].placements(profile, cluster.workers))


def _divisors(number: int, most: int) -> list[int]:
    return [m for m in range(1, min(number, most) + 1) if number % m == 0]
