"""Simulated annealing over placements: runs of layers are cut another way, micro-batches doubled or halved.

Rounds of equally many changes, each from one of the best plans so far, in turn, and each cooling from the same
temperature: the path depends on the seed alone, and where it stops on the time at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import exp

import numpy as np

from partitioners._search.layer_groups import LayerGroup, cuts, device_blocks, layer_groups
from simulator.cluster import Cluster
from simulator.parameter_states import REPLICATED
from simulator.plan import Plan, Sharding
from simulator.workload import Profile

ROUND = 160
"""Changes of a round."""
_HOT, _COLD = 0.02, 0.0005
"""Temperatures over the score: from changes 2 % worse on, to hardly any."""
_MICROBATCHES = 0.1
"""Of the changes, this share is of micro-batches."""

Score = Callable[[Plan], float | None]
"""What a plan is to have little of; None where it cannot be or does not fit into memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A plan and its score."""

    plan: Plan
    score: float


class Annealing:
    """Changes of plans for a profile on a cluster. fixed: their micro-batches stay."""

    def __init__(self, profile: Profile, cluster: Cluster, *, fixed: bool, seed: int) -> None:
        self._profile, self._workers, self._fixed = profile, cluster.workers, fixed
        self._groups = layer_groups(profile)
        self._random = np.random.default_rng(seed)

    def rounds(self, starts: Sequence[Scored], score: Score) -> Iterator[Scored]:
        """After every change the best plan so far; it ends where in a whole round nothing could be changed."""
        from_each, number, scored = sorted(starts, key=lambda each: each.score), 0, 1
        best = from_each[0]
        while scored:
            here, scored = best if number % 2 == 0 else from_each[number // 2 % len(from_each)], 0
            for trial in range(ROUND):
                temperature = _HOT * (_COLD / _HOT) ** (trial / ROUND) * here.score
                plan = self._changed(here.plan, [each.plan for each in from_each])
                value = None if plan is None else score(plan)
                if value is not None and plan is not None:
                    scored += 1
                    worse = value - here.score
                    if worse <= 0 or (temperature and self._random.random() < exp(-worse / temperature)):
                        here = Scored(plan=plan, score=value)
                    if value < best.score * (1 - 1e-9):
                        best = here
                yield best
            number += 1

    def _changed(self, plan: Plan, others: Sequence[Plan]) -> Plan | None:
        if not self._fixed and self._random.random() < _MICROBATCHES:
            return with_microbatches(plan, float(self._random.choice([2.0, 0.5])))
        first = int(self._random.integers(len(self._groups)))
        length = min(int(self._random.geometric(0.3)), len(self._groups) - first)
        placed = self._cut_anew(plan, others, self._groups[first : first + length])
        placements = {**plan.placements, **placed}
        if not placed or placements == plan.placements:
            return None
        changed = replace(plan, placements=placements)
        return (
            changed
            if plan.schedule == "dataflow" or may_have_stages(changed)
            else replace(changed, schedule="dataflow")
        )

    def _cut_anew(self, plan: Plan, others: Sequence[Plan], groups: Sequence[LayerGroup]) -> dict[str, Sharding]:
        """As a neighbour is placed, as another plan has them, or on some devices in another way; empty where a layer
        cannot be cut so."""
        names = [name for group in groups for name in group]
        way = self._random.random()
        if way < 0.3:
            position = (
                self._profile.index[names[0]] - 1 if self._random.random() < 0.5 else self._profile.index[names[-1]] + 1
            )
            if not 0 <= position < len(self._profile.layers):
                return {}
            sharding = plan.placements[self._profile.layers[position].name]
            return dict.fromkeys(names, sharding) if self._allows(names, sharding, plan) else {}
        if way < 0.5:
            other = others[int(self._random.integers(len(others)))]
            placed = {name: other.placements[name] for name in names}
            return placed if all(self._allows([name], each, plan) for name, each in placed.items()) else {}
        sets = sorted({each.device_set for each in plan.distinct_placements})
        blocks = device_blocks(sets, self._workers)
        kinds = list(cuts(blocks[int(self._random.integers(len(blocks)))]))
        cut, made = kinds[int(self._random.integers(len(kinds)))], dict[str, Sharding]()
        for group in groups:
            placed = cut.placements(self._profile, group, plan.microbatch_size) or {}
            made |= placed
        return made

    def _allows(self, names: Sequence[str], sharding: Sharding, plan: Plan) -> bool:
        """Whether all these layers can be cut so."""
        layers = [self._profile.layers[self._profile.index[name]] for name in names]
        extents = ((plan.microbatch_size, *layer.output_shape) for layer in layers)
        fits = all(d <= most for each in extents for d, most in zip(sharding.degrees, each, strict=True))
        return fits and sharding.reduce == 1


def with_microbatches(plan: Plan, factor: float) -> Plan | None:
    """The plan with that many times as many micro-batches, None where the batch or a layer's parts do not allow it."""
    count = round(plan.microbatches * factor)
    parts = max(sharding.degrees[0] for sharding in plan.placements.values())
    if not count or plan.batch_size % count or plan.batch_size // count < parts:
        return None
    if any(sharding.samples for sharding in plan.placements.values()):
        return None
    return replace(plan, microbatches=count)


def may_have_stages(plan: Plan) -> bool:
    """Whether every layer is whole or cut by sample alone, on more than one set of devices."""
    placements = plan.placements.values()
    return all(p.degrees[1:] == (1, 1, 1) for p in placements) and len({p.device_set for p in placements}) > 1


def is_plain(plan: Plan) -> bool:
    """Whether placements, micro-batches and a schedule are all there is to a plan, as where layers move one by one."""
    return plan.states == REPLICATED and not plan.recomputed and plan.exchange == "messages"
