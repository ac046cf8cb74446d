"""Pipeline parallelism: contiguous stages that work on different micro-batches at the same time."""

from __future__ import annotations

from partitioners._contiguous import contiguous_stages
from partitioners._judge import Judge
from partitioners._stage_cuts import judged_stages
from simulator.cluster import Cluster
from simulator.errors import InputError, require
from simulator.lowering.schedules import SCHEDULES
from simulator.plan import Partition, StepSettings
from simulator.workload import Profile

SCHEDULE = "1f1b"
STEP_OPTIONS = {"microbatches": None, "schedule": SCHEDULE}


def partition(
    profile: Profile,
    cluster: Cluster,
    step: StepSettings,
    *,
    replicas: bool = False,
    chunks: int | None = None,
    judged: bool = False,
    seed: int = 0,
) -> Partition:
    """The stages of the best pace over all workers, one worker each or, with `replicas`, as many as pay off.

    Unless the step says how many micro-batches, the divisor of the batch up to 4 x workers that promises the shortest
    step: many shrink the bubble, but small ones can run below a device's best rate, as the profile says.
    chunks: stages per worker, in schedules that allow several; by default 2 in "interleaved", otherwise 1. judged:
    instead simulate the most promising cuts over all workers and over fewer, with replicas and without, and keep the
    best; with more workers, or faster links, that is not slower.
    Raises InputError when there are more stages than layers or the batch does not divide.
    """
    schedule = step.schedule or SCHEDULE
    chunks = (2 if schedule == "interleaved" else 1) if chunks is None else chunks
    require(1 <= chunks <= len(profile.layers), "chunks", chunks, f"it is from 1 to {len(profile.layers)}, the layers")
    several = sorted(name for name, known in SCHEDULES.items() if known.several_stages)
    if chunks > 1 and (replicas or schedule not in several):
        raise InputError(
            f"chunks is {chunks}: several stages per worker need a schedule of {', '.join(several)} and no "
            f"replicas; here it is {schedule!r}"
        )
    if judged:
        require(chunks == 1, "chunks", chunks, "stages that are simulated are one per worker; leave judged out")
        judge = Judge(profile=profile, cluster=cluster, runtime=step.runtime)
        return judged_stages(judge, step, replicas=True if replicas else None, pipelined=True)
    batch_size = step.batch_size
    counts = [step.microbatches] if step.microbatches else _divisors(batch_size, 4 * cluster.workers)
    stages = {
        m: contiguous_stages(
            profile, cluster, microbatch_size=batch_size // m, microbatches=m, replicas=replicas, chunks=chunks
        )
        for m in counts
    }
    best = min(stages, key=lambda m: stages[m].step_s(m))
    placements = stages[best].placements(profile, cluster.workers)
    return Partition(placements=placements, microbatches=best, schedule=schedule)


def _divisors(number: int, most: int) -> list[int]:
    return [m for m in range(1, min(number, most) + 1) if number % m == 0]
