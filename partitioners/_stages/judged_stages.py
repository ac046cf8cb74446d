"""The stages of the shortest simulated step, over at most all workers.

Which cuts are considered depends neither on how fast links are nor on how many workers there are: for each number of
stages, and of replicas of all of them, the best cuts for links of several assumed bandwidths, and where these come near
a device's memory the best within it. With more workers or faster links the cuts of before are among them, so the answer
is no slower. Lower bounds of steps and of memory say which are simulated.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import inf

import numpy as np

from partitioners._judge.judge import Judge
from partitioners._stages.contiguous import StageCut, Stages, best_stages, stages_of_counts
from partitioners._stages.stage_bounds import step_bounds_s
from partitioners._stages.stage_costs import Costs, crossing_bytes, measured_costs
from partitioners._stages.stage_memory import cuts_within, least_peak_bytes
from simulator.cluster import Cluster
from simulator.errors import InputError, ShardscopeError
from simulator.lowering.costs.shard_costs import layer_seconds
from simulator.plan import Partition, StepSettings
from simulator.taskgraph import Floats, Ints
from simulator.workload import Profile

_ASSUMED_BYTES_PER_S = tuple(10 ** (8 + k / 2) for k in range(7))
"""Of the links for which cuts are made that are then simulated on those at hand: 0.8 Gb/s to 0.8 Tb/s."""
_STAGES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""How many stages are tried: two of each doubling."""
_REFERENCE_MICROBATCHES = 16
"""For so many cuts are made; the best cut hardly depends on it."""
_GAIN = 0.004
"""A cut that cannot save this share of the step is not simulated."""
_FEWEST_SIMULATED, _MOST_SIMULATED, _MOST_LAYERS = 20, 32, 4800
"""Cuts that are simulated at most, and layers of all of them together."""
_MOST_UNFIT = 4
"""So many times as many where they do not fit into memory."""
_TIGHT = 0.6
"""A cut that needs at least this share of a device's memory is made anew within limits of it."""
_FOR_MEMORY = 3
"""For every so manieth of the assumed bandwidths."""
_MOST_POSITIONS = 96
"""Cuts are made at so many places of a deeper network: where the least crosses within equal parts of its time."""


def judged_stages(
    judge: Judge, step: StepSettings, schedule: str, cuts: Sequence[StageCut], plain: Sequence[Partition], strategy: str
) -> Partition:
    """The fastest of some cuts and the plain partitions; those that fit into memory come first.

    strategy: whose plans they are; the best of them is then lowered and simulated already. Raises InputError.
    """
    profile, cluster = judge.profile, judge.cluster
    most, fitting = min(max(_MOST_LAYERS // len(profile.layers), _FEWEST_SIMULATED), _MOST_SIMULATED), 0
    for partition in plain:
        judge.consider(step.plan(profile, partition, strategy), "the cut of the best pace")
    refused: ShardscopeError = InputError(f"devices: {profile.model!r} has no cut for {cluster.workers} of them")
    bounds_s, order = _bounds_and_order(profile, cluster, step, schedule, cuts) if cuts else (np.array([]), [])
    for number in order:
        best = judge.best
        if best is not None and not best.excess_bytes and bounds_s[number] >= best.step_s * (1 - _GAIN):
            continue
        if best is not None and (fitting >= most or judge.trials >= _MOST_UNFIT * most):
            break
        try:
            plan = step.plan(profile, cuts[number].partition(profile, schedule), strategy)
            fitting += not judge.consider(plan, "a cut into stages").excess_bytes
        except ShardscopeError as error:  # of a schedule that takes other numbers of micro-batches
            refused = error
    if judge.best is None:
        raise refused
    plan = judge.best.plan
    return Partition(placements=plan.placements, microbatches=plan.microbatches, schedule=schedule)


def _bounds_and_order(
    profile: Profile, cluster: Cluster, step: StepSettings, schedule: str, cuts: Sequence[StageCut]
) -> tuple[Floats, list[int]]:
    """Lower bounds of the cuts, and in which order they are simulated.

    Those that may fit into memory first; one device ahead, then by the bounds and by what links add to them in turn.
    """
    bounds_s, contended_s = step_bounds_s(profile, cluster, step, schedule, cuts)
    exceeds = _exceeds(profile, cluster, step, schedule, cuts)
    orders = [np.lexsort((seconds, exceeds)).tolist() for seconds in (bounds_s, contended_s)]
    alone = [number for number in orders[0] if cuts[number].workers == 1][:1]
    return bounds_s, list(dict.fromkeys([*alone, *(number for pair in zip(*orders, strict=True) for number in pair)]))


def stage_cuts(
    profile: Profile,
    cluster: Cluster,
    step: StepSettings,
    schedule: str,
    *,
    replicated: bool,
    chunks: int = 1,
    pipelined: bool = True,
) -> Sequence[StageCut]:
    """The cuts worth considering, each with several numbers of micro-batches; with one where not pipelined.

    replicated: stages may have replicas, where there are at least two of them. chunks: stages of a worker. They are
    kept with the profile, as a sweep of bandwidths asks for the same ones at every point.
    """
    ways = tuple((link.source, link.target, link.tier, link.latency_s) for link in cluster.links)
    devices = tuple((device.name, device.speed, device.role) for device in cluster.devices)
    asked = step.microbatches, replicated, chunks, pipelined
    key = (stage_cuts, ways, devices, *asked, *_of_memory(step, schedule), _memory_bytes(cluster, step))
    return profile.kept.get(key, lambda: tuple(_cuts(profile, cluster, step, schedule, replicated, chunks, pipelined)))


def _cuts(
    profile: Profile,
    cluster: Cluster,
    step: StepSettings,
    schedule: str,
    replicated: bool,
    chunks: int,
    pipelined: bool,
) -> Iterable[StageCut]:
    assumed, positions = list(_with_assumed_links(cluster)), _positions(profile)
    memory_bytes = _memory_bytes(cluster, step)
    cuts: dict[object, StageCut] = {}
    powers = max(1, cluster.workers.bit_length() - 1) if replicated else 1  # which leave at least two stages, and 1
    for replicas in (1 << power for power in range(powers)):
        most = min(cluster.workers // replicas, (len(positions) - 1) // chunks)
        counts = [count for count in _STAGES if count <= most and (count > 1 or replicas == 1)]
        reference = _divisor(step, _REFERENCE_MICROBATCHES, replicas) if pipelined else 1
        if not counts or not reference:
            continue
        size = step.batch_size // reference
        by_links = [measured_costs(profile, links, size, reference, replicas).at(positions) for links in assumed]
        made = [_stages(costs, positions, counts, replicas, chunks) for costs in by_links]
        for count, of_count in zip(counts, zip(*made, strict=True), strict=True):
            stages = dict.fromkeys(of_count)
            needed = least_peak_bytes(
                profile,
                step,
                schedule,
                [StageCut(stages=each, microbatches=reference, groups=count) for each in stages],
            )
            if chunks == 1 and (needed > _TIGHT * memory_bytes).any():
                little = cuts_within(
                    memory_bytes, profile, step, schedule, by_links[::_FOR_MEMORY], positions,
                    count=count, replicas=replicas, microbatches=reference,
                )  # fmt: skip
                stages |= dict.fromkeys(_at(each, positions) for each in little)
            for each, microbatches in product(stages, _microbatches(step, count, replicas) if pipelined else (1,)):
                cut = StageCut(stages=each, microbatches=microbatches, groups=count)
                cuts.setdefault((each.starts, replicas, microbatches), cut)
    return cuts.values()


def _positions(profile: Profile) -> Ints:
    """The layers before which a cut may be, ascending, from 0 to their number."""
    count = len(profile.layers)
    if count <= _MOST_POSITIONS:
        return np.arange(count + 1)
    done_s = np.cumsum(layer_seconds(profile, profile.batch_size).sum(axis=1))
    part = (done_s[:-1] / done_s[-1] * _MOST_POSITIONS).astype(np.int64)  # of the cut behind each layer but the last
    order = np.lexsort((crossing_bytes(profile)[1:-1], part))
    least = order[np.unique(part[order], return_index=True)[1]]
    return np.concatenate(([0], np.sort(least) + 1, [count]))


def _stages(costs: Costs, positions: Ints, counts: Sequence[int], replicas: int, chunks: int) -> list[Stages]:
    """The best stages on each number of groups, that begin at some of the positions."""
    places = len(positions) - 1
    if chunks == 1:
        best = stages_of_counts(costs, layers=places, counts=counts, group=replicas)
    else:
        best = [best_stages(costs.round(count, chunks), layers=places, devices=count * chunks) for count in counts]
    return [_at(stages, positions) for stages in best]


def _at(stages: Stages, positions: Ints) -> Stages:
    """Stages of places as stages of layers."""
    return replace(stages, starts=tuple(positions[[*stages.starts]].tolist()))


def _with_assumed_links(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with all links of one bandwidth, of several in turn; itself where it has none."""
    if not cluster.links:
        yield cluster
        return
    for bandwidth in _ASSUMED_BYTES_PER_S:
        assumed = cluster
        for tier in cluster.tiers:
            assumed = assumed.with_tier(tier, bandwidth_bytes_per_s=bandwidth)
        yield assumed


def _microbatches(step: StepSettings, stages: int, replicas: int) -> list[int]:
    """Divisors of the batch near the powers of two, up to 4 for each stage, with a sample for each replica."""
    limits = [1 << k for k in range((4 * stages).bit_length())]
    return sorted({_divisor(step, limit, replicas) for limit in limits} - {0})


def _divisor(step: StepSettings, most: int, replicas: int) -> int:
    """The most micro-batches up to `most` that leave each replica a sample, those of the step where it says; or 0."""
    counts = [step.microbatches] if step.microbatches else range(most, 0, -1)
    fitting = (m for m in counts if step.batch_size % m == 0 and step.batch_size // m >= replicas)
    return next(fitting, 0)


def _exceeds(profile: Profile, cluster: Cluster, step: StepSettings, schedule: str, cuts: Sequence[StageCut]) -> Ints:
    """1 for each cut that needs more than the smallest worker's memory at least, or 0."""
    key = _exceeds, *_of_memory(step, schedule), tuple(cuts)
    needed = profile.kept.get(key, lambda: least_peak_bytes(profile, step, schedule, cuts))
    return (needed > _memory_bytes(cluster, step)).astype(np.int64)


def _memory_bytes(cluster: Cluster, step: StepSettings) -> float:
    """What the smallest worker has for stages."""
    smallest = min(device.memory_bytes or inf for device in cluster.devices[: cluster.workers])
    return smallest - step.runtime.context_bytes - step.runtime.workspace_bytes


def _of_memory(step: StepSettings, schedule: str) -> tuple[Hashable, ...]:
    """What the memory of a stage depends on, beside the profile."""
    return step.batch_size, step.optimizer_ratio, step.states, bool(step.recompute), schedule
