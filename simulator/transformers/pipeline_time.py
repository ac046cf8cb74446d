"""1F1B over unequal stages: when every stage ends, as `simulator.lowering.schedules` orders its passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

SAME = 1e-14
"""Of the time so far: rounds that differ by less took equally long but for rounding."""


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
    stalls: Sequence[Any] | None = None,
) -> PipelineEnds:
    """Ends of the stages of a pipeline.

    forward, backward: seconds of one micro-batch, by stage; hops: seconds of a transfer from each stage to the next, as
    long back; stalls: seconds that a forward pass takes longer where a backward pass follows it. Each number may be an
    array of one shape, whose entries are independent pipelines. A pass starts when the stage is free and its input is
    there. Transfers delay and do not occupy.

    After its warm-up a stage alternates, a backward and a forward pass a round. Every forward pass of a round waits for
    one of the round before alone, so that once all stages took equally long for two rounds, all that follow are alike
    (the eigenvector of a max-plus recurrence: Baccelli et al., Synchronization and Linearity, 1992, chapter 3).
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
    warm = [min(count - stage, microbatches) for stage in range(count)]
    free = _warmed_up(forward, stalled, hops, warm, later)
    number = 0
    while number < microbatches:
        full = microbatches - warm[0] - number  # rounds left in which every stage has a forward pass
        before = list(free)
        _play_round(free, backward, stalled, hops, [number + each < microbatches for each in warm], later)
        number += 1
        if full > 2:
            took = [end - start for start, end in zip(before, free, strict=True)]
            if all(np.all(abs(each - took[0]) <= SAME * free[0]) for each in took):
                free = [end + each * (full - 2) for end, each in zip(free, took, strict=True)]
                number += full - 2
    return PipelineEnds(stages=tuple(free))


def _warmed_up(
    forward: Sequence[Any], stalled: Sequence[Any], hops: Sequence[Any], warm: Sequence[int], later: Callable[..., Any]
) -> list[Any]:
    """When each stage has ended its forward passes before the first backward pass, `warm` in number."""
    free: list[Any] = []
    there: list[Any] = [0.0 * forward[0]] * warm[0]  # when the input of each pass is at the stage
    for stage, passes in enumerate(warm):
        end, ends = 0.0 * forward[0], []
        for number in range(passes):
            end = later(end, there[number]) + (forward if number < passes - 1 else stalled)[stage]
            ends.append(end)
        free.append(end)
        there = [end + hops[stage] for end in ends] if stage < len(hops) else []
    return free


def _play_round(
    free: list[Any],
    backward: Sequence[Any],
    stalled: Sequence[Any],
    hops: Sequence[Any],
    goes_on: Sequence[bool],
    later: Callable[..., Any],
) -> None:
    """Move `free`, the ends of each stage's round before, by a backward pass and, where it goes on, a forward pass.

    What a stage hands on in one round is taken up in the next: it has one micro-batch more under way.
    """
    end = 0.0
    for stage in reversed(range(len(free))):
        arrived = end + hops[stage] if stage < len(hops) else 0.0
        end = later(free[stage], arrived) + backward[stage]
        free[stage] = end
        if goes_on[stage]:
            free[stage] = later(end, free[stage - 1] + hops[stage - 1] if stage else 0.0) + stalled[stage]
