"""Rounds: equal micro-batches after which the state of a step repeats, and which are simulated once and counted.

    stage 0  012  a3|b4|c5d e f     a round of one micro-batch, between the bars: what follows is what was there before
    stage 1   01 a2b|3c|4d5e f      it, one micro-batch later
    stage 2    0a1b2|c3|d4e5f

Let b be a moment of a step of m micro-batches, and b + r one of a step of m + p: until then the second step has done
what it shares with the first, and its state is the first's at b, every task of it p micro-batches later. What is left
to do is then equal too, and an engine, which looks at nothing else, does it as it did: the tail comes r later, with its
synchronisation and updates, and one round of r seconds has been put in. So every further round adds the same seconds
and bytes, and no peak of memory is new. `find_round` looks for such moments in one timeline, `is_put_in` holds two
steps against each other, task by task:

- Until its last p micro-batches begin, a step cannot know how many follow: a device runs older ones first.
- The state is which tasks have begun and ended, and how far those in flight are. How far a task is follows from when it
  began and what went on beside it, so that all tasks of two rounds one after the other are compared.
- What a host has launched ahead is state as well, and may grow for ever. It does no harm where launches of a round take
  no longer than the round.

Where a queue grows (stages of unequal speed in GPipe or dataflow) no state repeats: the whole is simulated, as
it is where micro-batches differ or meet their receivers, and where links have token buckets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from simulator.cluster import Cluster
from simulator.engine import simulate
from simulator.errors import InputError
from simulator.lowering import schedules
from simulator.lowering.sharded_model import ShardedModel
from simulator.network.token_buckets import depths_bytes
from simulator.network.transfers import uncontended_s
from simulator.plan import Plan
from simulator.report.critical_path import binding_chain, critical_path_s
from simulator.runtime import Runtime
from simulator.taskgraph import Ints, Route, TaskGraph
from simulator.timeline import Timeline

ROUNDING = 1e-12
"""Of a step: moments that differ by less are one moment."""
EDGE = 1e-10
"""Of a step: a round is cut so much before its first task begins, clear of what begins at the same moment."""
EVEN = 1e-3
"""Of a round: how far the growth of the longest chain may be from that of the tasks that it may pass."""
LONGEST_ROUND = 16
"""Micro-batches after which states are compared; times those that a schedule takes together."""
SHARE_TRIED = 3
"""A step is tried with at least so many times fewer micro-batches: where none repeats, little time is lost."""
_KEY = ("kind", "device", "route", "layer", "shard")


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedRound:
    """The last round but one of a step: micro-batches, its seconds, and when it, the one before and the last begin."""

    microbatches: int
    seconds: float
    begins_s: tuple[float, float, float]


@dataclass(frozen=True, kw_only=True, eq=False)
class SimulatedStep:
    """A step of `microbatches`, simulated."""

    model: ShardedModel
    cluster: Cluster
    graph: TaskGraph
    timeline: Timeline
    microbatches: int

    @cached_property
    def tasks(self) -> tuple[Ints, Ints]:
        """Tasks of each micro-batch, in the same order, shape (micro-batches, tasks of one); those of none.

        Of tasks that have no micro-batch, those there once for each, such as sums of gradients, have the one of their
        turn. All are of none where micro-batches are not alike.
        """
        graph, owner = self.graph, self.graph.microbatch.copy()
        none = np.flatnonzero(owner < 0)
        if len(none):
            key = np.stack([getattr(graph, name)[none].astype(np.int64) for name in _KEY])
            order = np.lexsort((none, *key))
            first = np.append(True, (np.diff(key[:, order], axis=1) != 0).any(axis=0))
            begin = np.flatnonzero(first)
            size = np.diff(np.append(begin, len(none)))
            turn = np.arange(len(none)) - np.repeat(begin, size)
            owner[none[order]] = np.where(np.repeat(size, size) == self.microbatches, turn, -1)
        owned = np.flatnonzero(owner >= 0)
        rows = owned[np.argsort(owner[owned], kind="stable")]
        counts = np.bincount(owner[owned], minlength=self.microbatches)
        table = rows.reshape(self.microbatches, -1) if (counts == counts[0]).all() else rows[:0].reshape(1, 0)
        columns = (getattr(graph, name)[table] for name in (*_KEY, "bytes"))
        if (
            any((column != column[0]).any() for column in columns)
            or (graph.seconds[table[2:]] != graph.seconds[table[1:2]]).any()
        ):
            table = table[:1, :0]
        return table, np.flatnonzero(owner < 0)


class RepeatedStep(NamedTuple):
    """Two steps of a plan with fewer micro-batches: `latest` has one round more, the plan `more` rounds beyond it."""

    before: SimulatedStep
    latest: SimulatedStep
    more: int


def repeated_step(
    plan: Plan,
    cluster: Cluster,
    runtime: Runtime,
    simulated: Callable[[Plan], SimulatedStep],
    chains: bool = False,
) -> RepeatedStep | None:
    """Steps of fewer micro-batches that say what `plan` takes; None where it has few, or none is seen to repeat.

    simulated: simulates a plan. chains: those of a report are to repeat as well.
    """
    schedule, depth = schedules.load(plan.schedule), len({x.device_set for x in plan.distinct_placements})
    meets = runtime.rendezvous and schedule.receives is not None  # with buffers for all micro-batches
    if plan.work or meets or schedule.double_buffered or depths_bytes(cluster).any():
        return None
    block = schedules.round_length(depth, plan.microbatches) if schedule.several_stages else 1
    size = 6 * block if schedule.several_stages else 2 * depth + 4
    while SHARE_TRIED * size <= plan.microbatches and plan.microbatches % block == 0:
        try:
            counted = _repeated_with(plan, simulated, size, block, chains)
        except InputError:  # what is wrong with the plan is said of the whole of it
            return None
        if counted is not None:
            return counted
        size *= 2
    return None


def _repeated_with(
    plan: Plan, simulated: Callable[[Plan], SimulatedStep], size: int, block: int, chains: bool
) -> RepeatedStep | None:
    """As `repeated_step`, with about `size` micro-batches, of which a schedule takes `block` together."""

    def of(microbatches: int) -> SimulatedStep:
        return simulated(replace(plan, microbatches=microbatches, batch_size=plan.microbatch_size * microbatches))

    latest = of(size)
    rounds = range(block, LONGEST_ROUND * block + 1, block)
    each = next((each for each in rounds if find_round(latest, each) is not None), 0)
    if not each:
        return None
    if rest := (plan.microbatches - size) % each:
        latest = of(size + rest)
    repeating, before = find_round(latest, each), of(size + rest - each)
    if repeating is None or not is_put_in(repeating, before, latest):
        return None
    if chains and not repeats_its_chains(repeating, before, latest):
        return None
    return RepeatedStep(before, latest, (plan.microbatches - latest.microbatches) // each)


def find_round(step: SimulatedStep, microbatches: int) -> RepeatedRound | None:
    """The round of so many micro-batches in which the step's state repeats, if it does."""
    timeline, once = step.timeline, step.tasks[1]
    repeating = _repeated(step, microbatches)
    if repeating is None or not _launches_in_time(step, repeating):
        return None
    first_s, _, last_s = (begin - EDGE * timeline.step_s for begin in repeating.begins_s)
    outside = (timeline.end_s[once] < first_s) | (timeline.start_s[once] >= last_s)
    return repeating if outside.all() else None


def _repeated(step: SimulatedStep, microbatches: int) -> RepeatedRound | None:
    """As `find_round`, of the tasks of micro-batches alone."""
    table, each = step.tasks[0], microbatches
    if len(table) < 4 * each or not table.size:
        return None
    start, end = step.timeline.start_s[table], step.timeline.end_s[table]  # (micro-batches, tasks of one)
    first = start.min(axis=1)
    begins = (float(first[-3 * each :].min()), float(first[-2 * each :].min()), float(first[-each:].min()))
    round_s, step_s = begins[2] - begins[1], step.timeline.step_s
    rounding = ROUNDING * step_s
    if round_s <= 1e3 * EDGE * step_s or abs(begins[1] - begins[0] - round_s) > rounding:
        return None
    cuts = [begin - EDGE * step_s for begin in begins]
    begun, in_flight = [start < cut for cut in cuts], [(start < cut) & (end >= cut) for cut in cuts]
    if (end[0] >= cuts[0]).any() or (begun[2][1:] & ~begun[2][:-1]).any() or (in_flight[0] & in_flight[1]).any():
        return None
    if ((begun[2] & ~begun[1]).sum(axis=0) != each).any():
        return None
    earlier, later = (begun[k + 1] & (end >= cuts[k]) for k in (0, 1))  # in flight at some moment of either round
    if later[:each].any() or (later[each:] != earlier[:-each]).any():
        return None
    moved_s = start[each:] - start[:-each], np.minimum(end[each:], cuts[2]) - np.minimum(end[:-each], cuts[1])
    if any((abs(moved - round_s)[later[each:]] > rounding).any() for moved in moved_s):
        return None
    return RepeatedRound(microbatches=each, seconds=round_s, begins_s=begins)


def _launches_in_time(step: SimulatedStep, repeating: RepeatedRound) -> bool:
    """Whether no host falls behind its device for ever."""
    if not len(step.graph.launch_s):
        return True
    tasks = step.tasks[0][-1]
    tasks = tasks[step.graph.route[tasks] < 0]
    busy_s = np.bincount(step.graph.device[tasks], weights=step.graph.launch_s[tasks]) * repeating.microbatches
    return bool((busy_s <= repeating.seconds * (1 + ROUNDING)).all())


def is_put_in(repeating: RepeatedRound, before: SimulatedStep, latest: SimulatedStep) -> bool:
    """Whether `latest` is `before` with the round `repeating` in `latest` put in, task by task."""
    tables, once = zip(before.tasks, latest.tasks, strict=True)
    each = repeating.microbatches
    if (
        len(tables[0]) + each != len(tables[1])
        or tables[0].shape[1] != tables[1].shape[1]
        or len(once[0]) != len(once[1])
    ):
        return False
    graphs, pairs = (before.graph, latest.graph), ((tables[0][0], tables[1][0]), once)
    for name in (*_KEY, "bytes"):
        old, new = (getattr(graph, name) for graph in graphs)
        if any((old[tasks] != new[images]).any() for tasks, images in pairs):
            return False
    if graphs[0].routes != graphs[1].routes:
        return False
    cuts = [begin - EDGE * latest.timeline.step_s for begin in repeating.begins_s]
    same = _Comparison(ROUNDING * latest.timeline.step_s, before.timeline, latest.timeline)
    return (
        same.holds(tables[0], tables[1][:-each], 0.0, until_s=cuts[1])
        and same.holds(tables[0], tables[1][each:], repeating.seconds, since_s=cuts[0])
        and same.holds(once[0], once[1], 0.0, until_s=cuts[1])
        and same.holds(once[0], once[1], repeating.seconds, since_s=cuts[0])
    )


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Of two timelines, moments of which are one where they differ by no more than rounding_s."""

    rounding_s: float
    before: Timeline
    latest: Timeline

    def holds(self, tasks: Ints, images: Ints, later_s: float, since_s: float = 0.0, until_s: float = np.inf) -> bool:
        """Whether tasks that begin in a span have images that run `later_s` later, as far as the span goes."""
        start, end = self.before.start_s[tasks], self.before.end_s[tasks]
        counts = (start >= since_s) & (start < until_s)
        starts_s = self.latest.start_s[images] - start
        ends_s = np.minimum(self.latest.end_s[images], until_s + later_s) - np.minimum(end, until_s)
        return not any((abs(moved - later_s)[counts] > self.rounding_s).any() for moved in (starts_s, ends_s))


def repeats_its_chains(repeating: RepeatedRound, before: SimulatedStep, latest: SimulatedStep) -> bool:
    """Whether the chain that binds the step passes both rounds alike, and the longest by dependencies grows evenly."""
    table = latest.tasks[0]
    chain = np.array(binding_chain(latest.graph, latest.timeline), dtype=np.int64)
    row, column = np.full((2, len(latest.graph)), -1)
    row[table], column[table] = np.arange(len(table))[:, None], np.arange(table.shape[1])
    cuts = [begin - EDGE * latest.timeline.step_s for begin in repeating.begins_s]
    start = latest.timeline.start_s[chain]
    earlier, later = (chain[(start >= low) & (start < high)] for low, high in pairwise(cuts))
    alike = np.array_equal(column[earlier], column[later])
    follows = alike and np.array_equal(row[earlier] + repeating.microbatches, row[later])
    return follows and _grows_evenly(repeating, before, latest, row)


def _grows_evenly(repeating: RepeatedRound, before: SimulatedStep, latest: SimulatedStep, row: Ints) -> bool:
    """Whether every further round adds as much to the longest chain by dependencies as the latest one, to EVEN.

    row: by task its micro-batch, or -1. It does where the chain is as long as the step, whose binding chain repeats;
    and where micro-batches do not wait for each other. Else all tasks must be as much later than their likes of a round
    before: as a longest chain is monotone in what it begins with, none ever is by more, or by less.
    """
    graph, rounding = latest.graph, ROUNDING * latest.timeline.step_s
    chains_s = [critical_path_s(step.graph, step.cluster) for step in (before, latest)]
    steps_s = [step.timeline.step_s for step in (before, latest)]
    if all(abs(chain - step) <= rounding for chain, step in zip(chains_s, steps_s, strict=True)):
        return True
    waiting, waited = np.repeat(row, np.diff(graph.dependency_start)), row[graph.dependencies]
    if not ((waiting >= 0) & (waited >= 0) & (waiting != waited)).any():
        return True
    start_s, grown_s = _as_soon_as_possible(graph, latest.cluster).start_s, chains_s[1] - chains_s[0]
    table, each = latest.tasks[0], repeating.microbatches
    later_s = (start_s[table[each:]] - start_s[table[:-each]])[len(table) // 3 : -(len(table) // 4)]
    return len(later_s) > 0 and bool((abs(later_s - grown_s) <= EVEN * grown_s).all())


def _as_soon_as_possible(graph: TaskGraph, cluster: Cluster) -> Timeline:
    """When tasks would run if each began once all that it waits for had ended: each as a transfer over no link."""
    nowhere, seconds = np.zeros(len(graph), dtype=np.int64), uncontended_s(graph, cluster)
    return simulate(replace(graph, device=nowhere, route=nowhere, routes=(Route(((0, 0),)),), seconds=seconds), cluster)
