"""1F1B over unequal stages: when every pass ends, in the order of `simulator.lowering.schedules`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from simulator.lowering.schedules import load
from simulator.taskgraph import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineEnds:
    """When each stage has ended its last backward pass, in seconds from the start of the step, first stage first."""

    stages: tuple[Any, ...]

    @property
    def latest(self) -> Any:
        return np.maximum.reduce(self.stages)


def pipeline_ends(
    forward: Sequence[Any],
    backward: Sequence[Any],
    hops: Sequence[Any],
    microbatches: int,
    schedule: str = "1f1b",
    stalls: Sequence[Any] | None = None,
) -> PipelineEnds:
    """Ends of the stages of a pipeline.

    forward, backward: seconds of one micro-batch, by stage; hops: seconds of a transfer from each stage to the next, as
    long back; stalls: seconds that a forward pass takes longer where a backward pass follows it. Each number may be an
    array of one shape, whose entries are independent pipelines. A stage runs its
    passes in the order of `schedule`; a pass starts when the stage is free and its input is there. Transfers delay
    and do not occupy.
    """
    count = len(forward)
    if count == 1:
        return PipelineEnds(stages=((forward[0] + backward[0]) * microbatches,))
    later: Callable[[Any, Any], Any] = np.maximum
    if not any(np.ndim(seconds) for seconds in (*forward, *backward, *hops, *(stalls or ()))):
        later = max  # several times as fast on plain numbers
        forward, backward, hops = list(map(float, forward)), list(map(float, backward)), list(map(float, hops))
        stalls = stalls and list(map(float, stalls))
    stalled = [each + stall for each, stall in zip(forward, stalls, strict=True)] if stalls else forward
    free: list[Any] = [0.0 * (forward[0] + backward[0])] * count
    ends: list[list[list[Any]]] = [[[0.0] * microbatches for _ in range(count)] for _ in range(2)]
    for stage, is_backward, microbatch, meets in _passes(count, microbatches, schedule):
        if is_backward:
            arrived = ends[1][stage + 1][microbatch] + hops[stage] if stage < count - 1 else 0.0
            end = later(free[stage], arrived) + backward[stage]
        else:
            arrived = ends[0][stage - 1][microbatch] + hops[stage - 1] if stage else 0.0
            end = later(free[stage], arrived) + (stalled if meets else forward)[stage]
        ends[is_backward][stage][microbatch] = free[stage] = end
    return PipelineEnds(stages=tuple(free))


@lru_cache(maxsize=64)
def _passes(stages: int, microbatches: int, schedule: str) -> tuple[tuple[int, int, int, bool], ...]:
    """Every (stage, backward or not, micro-batch, whether the stage's next pass is backward), each after what it
    waits for, in the stages' own order."""
    order = load(schedule).order
    assert order is not None  # for mypy: "dataflow" alone has none
    waiting = [list(order(stages, stage, microbatches, 1)) for stage in range(stages)]
    position = [0] * stages
    done: set[tuple[int, bool, int]] = set()
    passes: list[tuple[int, int, int, bool]] = []
    while len(passes) < 2 * stages * microbatches:
        for stage in range(stages):
            while position[stage] < len(waiting[stage]):
                step = waiting[stage][position[stage]]
                is_backward = step.kind == Kind.BACKWARD
                before = stage + 1 if is_backward else stage - 1
                if 0 <= before < stages and (before, is_backward, step.microbatch) not in done:
                    break
                done.add((stage, is_backward, step.microbatch))
                position[stage] += 1
                following = waiting[stage][position[stage] : position[stage] + 1]
                meets = bool(following) and following[0].kind == Kind.BACKWARD
                passes.append((stage, int(is_backward), step.microbatch, meets))
    return tuple(passes)
