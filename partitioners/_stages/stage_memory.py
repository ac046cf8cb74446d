"""Memory of contiguous stages, before anything is lowered: a lower bound of a cut's peak, and cuts that need little.

A stage holds parameters, gradients and optimizer state, and what its layers save of as many micro-batches as the
schedule keeps in flight there. States that replicas share, and what is computed again, count as nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, floor, isinf, log

import numpy as np

from partitioners._stages.contiguous import StageCut, Stages, stages_of_counts
from partitioners._stages.stage_costs import Costs
from partitioners._stages.stage_layout import most_in_flight
from simulator.parameter_states import REPLICATED
from simulator.plan import StepSettings
from simulator.taskgraph import Floats, Ints
from simulator.workload import Profile

_FINER, _LIMITS = 1.03, 3
"""Cuts are made within limits that are powers of this, so many of those below a device's memory: with more memory they
are nearly the same and more."""


def least_peak_bytes(profile: Profile, step: StepSettings, schedule: str, cuts: Sequence[StageCut]) -> Floats:
    """No device of a cut's fullest stage needs less at its peak, shape (K,)."""
    held, saved = _sums(profile, step)
    needed = np.empty(len(cuts))
    for number, cut in enumerate(cuts):
        ends = [*cut.stages.starts, len(profile.layers)]
        samples = step.batch_size // cut.microbatches // cut.replicas  # of the smallest part of a micro-batch
        flying = most_in_flight(schedule, len(cut.stages.starts), cut.microbatches)
        needed[number] = (np.diff(held[ends]) + np.diff(saved[ends]) * samples * flying).max()
    return needed


def cuts_within(
    memory_bytes: float,
    profile: Profile,
    step: StepSettings,
    schedule: str,
    links: Sequence[Costs],
    positions: Ints,
    *,
    count: int,
    replicas: int,
    microbatches: int,
) -> Iterator[Stages]:
    """Stages that begin at some of the positions, of the best pace by each of some costs, that need so much or less."""
    held, saved = (sums[positions] for sums in _sums(profile, step))
    samples = step.batch_size / microbatches / replicas
    flying = most_in_flight(schedule, count, microbatches)[:, None, None]  # (stages, 1, 1)
    needed = (held - held[:, None]) + (saved - saved[:, None]) * samples * flying  # of layers i to j-1: (stages, P, P)
    places = len(positions) - 1
    for costs in links:
        limit = floor(log(memory_bytes, _FINER))
        for _ in range(_LIMITS):
            within = _within(costs, needed, _FINER**limit)
            (stages,) = stages_of_counts(within, layers=places, counts=[count], group=replicas)
            ends = [*stages.starts, places]
            fullest = max(float(needed[stage, ends[stage], ends[stage + 1]]) for stage in range(count))
            if isinf(stages.pace_s) or not fullest:
                break
            yield stages
            limit = min(limit, ceil(log(fullest, _FINER))) - 1


def _within(costs: Costs, needed_bytes: Floats, limit_bytes: float) -> Costs:
    """The same costs, infinite for stages that need more."""
    allowed = needed_bytes <= limit_bytes
    return Costs(lambda stage, r: np.where(allowed[stage], costs.stage_s(stage, r), np.inf), costs.transfer_s)


def _sums(profile: Profile, step: StepSettings) -> tuple[Floats, Floats]:
    """Bytes of states, and of what is saved of a sample, of the layers before each, shape (L+1,) each."""
    kept = step.states == REPLICATED
    held = [layer.parameter_bytes * (2 + step.optimizer_ratio) * kept for layer in profile.layers]
    saved = [0.0 if step.recompute else layer.saved_bytes / profile.batch_size for layer in profile.layers]
    return np.cumsum([0.0, *held]), np.cumsum([0.0, *saved])
