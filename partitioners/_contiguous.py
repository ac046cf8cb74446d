"""The best contiguous stages, by exact dynamic programming over measured times and transfer costs.

The objective is PipeDream's (Narayanan et al., SOSP 2019, section 3.1): a pipeline is as fast as the slowest
of its stages and of the transfers between them, its *pace* in seconds per micro-batch; among stages of equal
pace the ones with the least time in transfers win. What stages and cuts take is in `_stage_costs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from partitioners._stage_costs import Costs, measured_costs
from simulator.cluster import Cluster
from simulator.errors import InputError
from simulator.plan import Sharding
from simulator.taskgraph import Floats, Ints
from simulator.workload import Profile

ROUNDING = 1e-9
"""Paces this close (relative) are equal: the same seconds summed in another order."""


def contiguous_stages(
    profile: Profile,
    cluster: Cluster,
    *,
    microbatch_size: int,
    microbatches: int = 1,
    replicas: bool = False,
    chunks: int = 1,
) -> Stages:
    """The best stages over all workers of `cluster`, one device each unless `replicas` are allowed.

    With several `chunks`, stage i is on worker i modulo their number, and no stage has replicas.
    With replicas, the number of stages p is the one of the smallest (M + p - 1) x pace, the time of a whole step.
    Raises InputError when there are more workers than the layers can occupy.
    """
    layers, devices, most_replicas = len(profile.layers), cluster.workers, microbatch_size if replicas else 1
    if devices > layers * most_replicas:
        raise InputError(
            f"{devices} devices need {-(-devices // most_replicas)} stages, but {profile.model!r} has {layers} layers "
            f"and every stage holds at least one; use at most {layers * most_replicas} devices"
        )
    costs = measured_costs(profile, cluster, microbatch_size, microbatches)
    if chunks > 1:
        return best_stages(costs.round(devices), layers=layers, devices=devices * chunks)
    return best_stages(
        costs,
        layers=layers,
        devices=devices,
        most_replicas=min(most_replicas, devices),
        fill=1 / microbatches,
    )


def best_stages(costs: Costs, *, layers: int, devices: int, most_replicas: int = 1, fill: float = 0.0) -> Stages:
    """The stages of the smallest (1 + fill x (stages - 1)) x pace that use every device.

    Two passes, because the smallest maximum and the smallest sum do not share their optimal prefixes: the first
    finds the pace, the second the least transfer time among the stages that keep it.
    """
    pace = _sweep(costs, np.maximum, layers, devices, most_replicas, devices)
    paces = [min(_ends(pace, p, devices)) for p in range(1, devices + 1)]
    stages = min(range(1, devices + 1), key=lambda p: (1 + fill * (p - 1)) * paces[p - 1])
    limit = paces[stages - 1]
    transfers = _sweep(costs.within(limit * (1 + ROUNDING)), np.add, layers, devices, most_replicas, stages)
    return Stages(*_walk_back(transfers, stages, devices), pace_s=limit)


def stages_of_counts(costs: Costs, *, layers: int, counts: Sequence[int], group: int = 1) -> list[Stages]:
    """The best stages of each of `counts`, one of the costs' groups of so many devices for each.

    The first pass, over the most stages, has the paces of fewer as well.
    """
    paces = _sweep(costs, np.maximum, layers, max(counts), 1, max(counts))
    made = []
    for count in counts:
        pace = float(paces[count, count, 1][0][-1])
        transfers = _sweep(costs.within(pace * (1 + ROUNDING)), np.add, layers, count, 1, count)
        starts, _ = _walk_back(transfers, count, count)
        made.append(Stages(starts, (group,) * count, pace_s=pace))
    return made


@dataclass(frozen=True, slots=True)
class Stages:
    """Stage i holds layers starts[i] to starts[i + 1] - 1, on replicas[i] devices after those of stage i - 1."""

    starts: tuple[int, ...]
    replicas: tuple[int, ...]
    pace_s: float

    def step_s(self, microbatches: int) -> float:
        """Seconds of a step if every stage took the pace: GPipe's bubble fraction is (p - 1) / (M + p - 1)."""
        return (microbatches + len(self.starts) - 1) * self.pace_s

    def placements(self, profile: Profile, workers: int | None = None) -> dict[str, Sharding]:
        """The sharding of every layer of `profile`; stages go round `workers` where there are more of them.

        It is kept with the profile: searches and sweeps come to the same stages over and over.
        """
        key = Stages.placements, self.starts, self.replicas, workers
        if key not in profile.derived:
            profile.derived[key] = self._placements(profile, workers)
        placements: dict[str, Sharding] = profile.derived[key]
        return placements

    def _placements(self, profile: Profile, workers: int | None) -> dict[str, Sharding]:
        firsts = np.cumsum((0, *self.replicas)) % (workers or sum(self.replicas) + 1)
        stage_of = np.searchsorted(self.starts, np.arange(len(profile.layers)), side="right") - 1
        shardings = [
            Sharding(degrees=(count, 1, 1, 1), devices=tuple(range(first, first + count)))
            for count, first in zip(self.replicas, firsts[:-1].tolist(), strict=True)
        ]
        return {layer.name: shardings[stage] for layer, stage in zip(profile.layers, stage_of.tolist(), strict=True)}


State = tuple[int, int, int]
"""Stages so far, devices so far, replicas of the last stage."""
Table = dict[State, tuple[Floats, Ints, Ints]]
"""By state, for each number of layers so far: value, layers before the last stage, replicas of the stage before."""


def _sweep(costs: Costs, join: np.ufunc, layers: int, devices: int, most_replicas: int, stages: int) -> Table:
    """The least value of every state of up to `stages` stages, where `join` adds a cost to a value."""
    start = np.full(layers + 1, np.inf)
    start[0] = 0.0
    none = np.zeros(layers + 1, dtype=np.int64)
    table: Table = {(0, 0, 0): (start, none, none)}
    behind = np.arange(layers + 1)
    for p in range(1, stages + 1):
        for used in range(p, min(devices, p * most_replicas) + 1):
            for r in range(1, min(most_replicas, used - p + 1) + 1):
                before = [q for q in range(most_replicas + 1) if (p - 1, used - r, q) in table]
                if before:
                    entry, entry_q = _enter(costs, join, table, (p, used, r), before)
                    value = join(entry[:, None], costs.stage_s(used - r, r))  # (first layer, layer behind the last)
                    cut = value.argmin(axis=0)  # (layer behind the last,)
                    table[p, used, r] = value[cut, behind], cut, entry_q[cut]
    return table


def _enter(costs: Costs, join: np.ufunc, table: Table, state: State, before: list[int]) -> tuple[Floats, Ints]:
    """For each cut, the least value with which the last stage of `state` can begin, and the replicas before it."""
    p, used, r = state
    if p == 1:
        return table[0, 0, 0][:2]
    if len(before) == 1:
        entry: Floats = join(table[p - 1, used - r, before[0]][0], costs.transfer_s(used - r, before[0], r))
        return entry, np.full(len(entry), before[0])
    # (replicas before, L+1)
    values = np.stack([join(table[p - 1, used - r, q][0], costs.transfer_s(used - r, q, r)) for q in before])
    return values.min(axis=0), np.array(before)[values.argmin(axis=0)]


def _ends(table: Table, stages: int, devices: int) -> list[float]:
    """The values of `stages` stages over all layers and devices, by replicas of the last stage."""
    return [
        float(table[stages, devices, r][0][-1]) if (stages, devices, r) in table else np.inf
        for r in range(1, devices - stages + 2)
    ]


def _walk_back(table: Table, stages: int, devices: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The first layer and the replicas of every stage of the least value."""
    ends = _ends(table, stages, devices)
    r, used, end = 1 + ends.index(min(ends)), devices, -1
    starts, replicas = [], []
    for p in range(stages, 0, -1):
        _, cuts, before = table[p, used, r]
        starts.append(int(cuts[end]))
        replicas.append(r)
        used, r, end = used - r, int(before[end]), int(cuts[end])
    return tuple(reversed(starts)), tuple(reversed(replicas))
