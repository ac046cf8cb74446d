"""The best contiguous stages, by exact dynamic programming over measured times and transfer costs.

The objective is PipeDream's (Narayanan et al., SOSP 2019, section 3.1): a pipeline is as fast as the slowest
of its stages and of the transfers between them, its *pace* in seconds per micro-batch; among stages of equal
pace the ones with the least time in transfers win. What stages and cuts take is in `_stage_costs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from partitioners._stages.stage_costs import Costs, measured_costs
from simulator.cluster import Cluster
from simulator.engine import engine_name
from simulator.engine.compiled import fill_stage_values
from simulator.errors import InputError
from simulator.plan import Partition, Sharding
from simulator.taskgraph import Floats
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
    if devices * chunks > layers * most_replicas:
        raise InputError(
            f"{devices} devices need {-(-devices * chunks // most_replicas)} stages, but {profile.model!r} has "
            f"{layers} layers and every stage holds at least one; use at most {layers * most_replicas // chunks} "
            "devices"
        )
    costs = measured_costs(profile, cluster, microbatch_size, microbatches)
    if chunks > 1:
        return best_stages(costs.round(devices, chunks), layers=layers, devices=devices * chunks)
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
    largest = stage_values(costs, np.maximum, layers, devices, most_replicas, devices)
    paces = largest[devices, :, :, -1].min(axis=1).tolist()
    stages = min(range(1, devices + 1), key=lambda p: (1 + fill * (p - 1)) * paces[p])
    kept = costs.within(paces[stages] * (1 + ROUNDING))
    transfers = stage_values(kept, np.add, layers, devices, most_replicas, stages)
    return Stages(*_walk_back(kept, np.add, transfers, stages, devices), pace_s=paces[stages])


def stages_of_counts(costs: Costs, *, layers: int, counts: Sequence[int], group: int = 1) -> list[Stages]:
    """The best stages of each of `counts`, one of the costs' groups of so many devices for each.

    The first pass, over the most stages, has the paces of fewer as well.
    """
    paces = stage_values(costs, np.maximum, layers, max(counts), 1, max(counts))
    best = []
    for count in counts:
        pace = float(paces[count, count, 1, -1])
        kept = costs.within(pace * (1 + ROUNDING))
        transfers = stage_values(kept, np.add, layers, count, 1, count)
        starts, _ = _walk_back(kept, np.add, transfers, count, count)
        best.append(Stages(starts, (group,) * count, pace_s=pace))
    return best


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
        return profile.kept.get(key, lambda: self._placements(profile, workers))

    def _placements(self, profile: Profile, workers: int | None) -> dict[str, Sharding]:
        firsts = np.cumsum((0, *self.replicas)) % (workers or sum(self.replicas) + 1)
        stage_of = np.searchsorted(self.starts, np.arange(len(profile.layers)), side="right") - 1
        shardings = [
            Sharding(degrees=(count, 1, 1, 1), devices=tuple(range(first, first + count)))
            for count, first in zip(self.replicas, firsts[:-1].tolist(), strict=True)
        ]
        return {layer.name: shardings[stage] for layer, stage in zip(profile.layers, stage_of.tolist(), strict=True)}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageCut:
    """Stages of equally many replicas, of a number of micro-batches; stage i is on group i modulo `groups`."""

    stages: Stages
    microbatches: int
    groups: int

    @property
    def replicas(self) -> int:
        """Devices of each stage."""
        return self.stages.replicas[0]

    @property
    def workers(self) -> int:
        """Devices of all stages."""
        return self.groups * self.replicas

    def partition(self, profile: Profile, schedule: str) -> Partition:
        """What a strategy decides with it."""
        placements = self.stages.placements(profile, self.workers)
        return Partition(placements=placements, microbatches=self.microbatches, schedule=schedule)


def stage_values(costs: Costs, join: np.ufunc, layers: int, devices: int, most_replicas: int, stages: int) -> Floats:
    """The least value of every state, where `join` adds a cost to a value; infinite where there is none.

    By the devices so far, the stages so far, the replicas of the last stage (0 before the first) and the layers so far,
    shape (devices+1, stages+1, replicas+1, L+1).
    """
    values = np.full((devices + 1, stages + 1, most_replicas + 1, layers + 1), np.inf)
    values[0, 0, 0, 0] = 0.0
    if engine_name() == "compiled":
        replicas = [range(1, 1 + min(most_replicas, devices - device)) for device in range(devices)]
        stage_s = [[costs.stage_s(device, r) for r in replicas[device]] for device in range(devices)]
        cut_s = np.zeros((devices, *values.shape[2:]))
        for ways in range(1, min(most_replicas, devices // 2) + 1):  # there are no more on both sides
            cut_s[:, ways] = costs.transfer_s(ways)[:devices]
        fill_stage_values(values, stage_s, cut_s, join is np.add)
    else:
        _fill(values, costs, join)
    return values


def _fill(values: Floats, costs: Costs, join: np.ufunc) -> None:
    """Fill the values, those of all numbers of stages at once; as `fill_stage_values`, to the same bits."""
    devices, stages, most_replicas = (size - 1 for size in values.shape[:3])
    for used in range(1, devices + 1):
        for r in range(1, min(most_replicas, used) + 1):
            # stages before that can have used the other devices
            before = slice(-(-(used - r) // most_replicas), min(used - r, stages - 1) + 1)
            after = slice(before.start + 1, before.stop + 1)
            if before.start < before.stop:
                begun = _entries(costs, join, values[used - r, before], used - r, r).min(axis=1)  # (stages, L+1)
                ended = join(begun[:, :, None], costs.stage_s(used - r, r))  # (stages, first layer, layer behind last)
                values[used, after, r] = ended.min(axis=1)


def _entries(costs: Costs, join: np.ufunc, values: Floats, device: int, r: int) -> Floats:
    """Values of the states before a stage of r replicas from `device` on, with its cut; shape (..., replicas+1, L+1).

    A stage on the first device has no cut.
    """
    if device == 0:
        return values  # nothing is sent to the first stage
    cuts = [costs.transfer_s(min(max(q, 1), r))[device] for q in range(values.shape[-2])]
    entries: Floats = join(values, np.stack(cuts))
    return entries


def _walk_back(
    costs: Costs, join: np.ufunc, values: Floats, stages: int, devices: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The first layer and the replicas of every stage of the least value of all layers on all devices."""
    used, end, r = devices, -1, int(values[devices, stages, :, -1].argmin())
    starts, replicas = [], []
    for p in range(stages, 0, -1):
        replicas.append(r)
        entries = _entries(costs, join, values[used - r, p - 1], used - r, r)  # (replicas before, L+1)
        end = int(join(entries.min(axis=0), costs.stage_s(used - r, r)[:, end]).argmin())
        starts.append(end)
        used, r = used - r, int(entries[:, end].argmin())
    return tuple(reversed(starts)), tuple(reversed(replicas))
