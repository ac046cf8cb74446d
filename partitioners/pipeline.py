"""Pipeline parallelism: contiguous stages that work on different micro-batches at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from partitioners import StrategyChoice
from partitioners._judge.judge import Judge
from partitioners._stages.contiguous import contiguous_stages
from partitioners._stages.judged_stages import judged_stages, stage_cuts
from simulator.cluster import Cluster
from simulator.errors import require
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
    replicas: bool | None = None,
    chunks: int | None = None,
    judged: bool = True,
    seed: int = 0,
) -> Partition:
    """The fastest simulated step of stages on at most all workers that fits into memory, if any does.

    replicas: whether stages have them, None for whatever is faster. Unless the step says how many micro-batches,
    several divisors of the batch are tried: many shrink the bubble, but small ones can run below a device's best rate,
    as the profile says. chunks: stages per worker, in schedules that allow several; by default 2 in "interleaved",
    otherwise 1. judged: otherwise the stages of the best pace over all workers, unsimulated: one worker each or, with
    `replicas`, as many as pay off, and the micro-batches up to 4 x workers that promise the shortest step.
    Raises InputError when the batch does not divide, unjudged also when there are more stages than layers.
    """
    schedule = step.schedule or SCHEDULE
    chunks = (2 if schedule == "interleaved" else 1) if chunks is None else chunks
    require(1 <= chunks <= len(profile.layers), "chunks", chunks, f"it is from 1 to {len(profile.layers)}, the layers")
    several = sorted(name for name, known in SCHEDULES.items() if known.several_stages and not known.turns)
    rule = f"several stages per worker need a schedule of {', '.join(several)} and no replicas; here it is {schedule!r}"
    require(chunks <= 1 or (schedule in several and not replicas), "chunks", chunks, rule)
    if not judged:
        return _of_best_pace(profile, cluster, step, schedule, chunks, replicas=bool(replicas))
    plain = []
    if replicas or cluster.workers * chunks <= len(profile.layers):
        plain = [_of_best_pace(profile, cluster, step, schedule, chunks, replicas=bool(replicas))]
    cuts = stage_cuts(profile, cluster, step, schedule, replicated=chunks == 1 and replicas is not False, chunks=chunks)
    judge = Judge(profile=profile, cluster=cluster, runtime=step.runtime, once=True)
    return judged_stages(judge, step, schedule, cuts, plain, "pipeline")


def choices(profile: Profile, cluster: Cluster, step: StepSettings) -> Iterator[StrategyChoice]:
    """By schedule: micro-batches and cuts it looks for itself; and stages of the best pace, with replicas of their own
    number, by micro-batches."""
    for schedule in ("1f1b", "gpipe", "interleaved") if step.schedule is None else (step.schedule,):
        yield StrategyChoice(strategy="pipeline", step=replace(step, schedule=schedule))
    schedule = step.schedule or SCHEDULE
    if SCHEDULES[schedule].several_stages:
        return
    powers = [m for m in (1 << k for k in range((4 * cluster.workers).bit_length())) if step.batch_size % m == 0]
    for m in powers if step.microbatches is None else [step.microbatches]:
        asked = replace(step, schedule=schedule, microbatches=m)
        yield StrategyChoice(strategy="pipeline", step=asked, own={"replicas": True, "judged": False})


def _of_best_pace(
    profile: Profile, cluster: Cluster, step: StepSettings, schedule: str, chunks: int, *, replicas: bool
) -> Partition:
    batch_size = step.batch_size
    most = min(batch_size, 4 * cluster.workers)
    counts = [step.microbatches] if step.microbatches else [m for m in range(1, most + 1) if batch_size % m == 0]
    stages = {
        m: contiguous_stages(
            profile, cluster, microbatch_size=batch_size // m, microbatches=m, replicas=replicas, chunks=chunks
        )
        for m in counts
    }
    best = min(stages, key=lambda m: stages[m].step_s(m))
    placements = stages[best].placements(profile, cluster.workers)
    return Partition(placements=placements, microbatches=best, schedule=schedule)
