"""Traces of torch.profiler of one step, one per rank, as one task graph with its timeline. No torch here.

    rank 0   compute ----- gap compute ---  [all-reduce waits.............. moves]   compute
    rank 1   compute ----- gap .......................... compute ---      [moves]   compute

The rank that arrives last at a collective waits for nobody, so its kernel, the shortest of all, is what the collective
takes; what others take beyond it they wait.

Of a rank, what runs between two events of its collectives is one task, behind a gap in which nothing ran; its first
kernel waits for the collective that ended while nothing ran. Replayed by the engine that is the recorded step, so that
tasks can be changed.

In words it says who is late among the ranks, why, and what would shorten the step.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median

import numpy as np
import numpy.typing as npt

from simulator.engine import simulate
from simulator.lowering.tasks.graph_builder import GraphBuilder
from simulator.network.topologies import Wire, flat_switch
from simulator.taskgraph import Ints, Kind, Route, TaskGraph
from simulator.timeline import Timeline
from simulator.units import format_time
from traces.imports._ranks import Group, RankCall, StepOfRank, clocks_behind_s, shared_calls
from traces.imports._recorded_phases import covered_s

CLOCK_S = 1e-6
"""How fine clocks of traces are."""
LATE = 1.1
"""Times the median of the ranks: a rank that computes longer is slow, not late."""
WAITED = 0.02
"""Of the step: ranks that wait less for each other are together."""
MUCH = 0.2
"""Of what ranks wait for each other: whoever is waited for less is not named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """A collective of several ranks."""

    name: str
    seconds: float
    """What it takes once all are there."""
    last: int
    """The rank that arrived last."""
    waited_s: Mapping[int, float]
    """By rank, from its arrival to that of the last."""


@dataclass(frozen=True, kw_only=True)
class AlignedRanks:
    """The steps of all ranks on one clock, device d of the graph being ranks[d]."""

    ranks: tuple[int, ...]
    meetings: tuple[Meeting, ...]
    """By their end."""
    clock_error_s: float
    """Median over ends of a collective of how far they lie from its middle, on one clock."""
    graph: TaskGraph
    timeline: Timeline
    """As it was recorded."""
    is_gap: npt.NDArray[np.bool_]
    """Tasks in which nothing runs on a rank: its host is late."""

    @cached_property
    def waited_s(self) -> dict[int, float]:
        """By rank."""
        return {rank: sum(each.waited_s.get(rank, 0.0) for each in self.meetings) for rank in self.ranks}

    @cached_property
    def arrives_last(self) -> Counter[int]:
        return Counter(each.last for each in self.meetings)

    @cached_property
    def waited_for_s(self) -> dict[int, float]:
        """By rank what the others wait for it, on average over them: those collectives to which it comes last."""
        waited: dict[int, float] = dict.fromkeys(self.ranks, 0.0)
        for each in self.meetings:
            waited[each.last] += sum(each.waited_s.values()) / max(len(each.waited_s) - 1, 1)
        return waited

    def of_rank_s(self, rank: int, gaps: bool) -> float:
        """What a rank computes, or in how much of it nothing runs although it waits for nobody."""
        own = (self.graph.shard == self.ranks.index(rank)) & (self.is_gap == gaps)
        return float(self.graph.seconds[own].sum())

    @cached_property
    def _tasks_of(self) -> list[Ints]:
        """Tasks of each rank, in order."""
        return [np.flatnonzero(self.graph.shard == device) for device in range(len(self.ranks))]

    @property
    def runs_alike(self) -> bool:
        """Whether ranks run the same number of tasks between the same collectives."""
        return len({len(tasks) for tasks in self._tasks_of}) == 1

    def replayed_s(
        self, *, gaps: float = 1.0, network: float = 1.0, compute: float = 1.0, alike: bool = False
    ) -> float:
        """The step with gaps, collectives and computing so many times as long; alike: with each task of a rank as long
        as at the median over ranks, where these run alike."""
        seconds = self.graph.seconds * np.where(self.is_gap, gaps, np.where(self.graph.shard < 0, network, compute))
        if alike:
            table = np.array(self._tasks_of)
            seconds[table] = np.median(seconds[table], axis=0)
        cluster = flat_switch(len(self.ranks), Wire(bandwidth_bytes_per_s=1.0))  # nothing crosses its links
        return simulate(replace(self.graph, seconds=seconds), cluster).step_s


def align_ranks(steps: Sequence[StepOfRank]) -> AlignedRanks:
    """Raises InputError where the steps are not of one run."""
    behind_s = clocks_behind_s(steps)
    first_s = min(step.first_s + behind for step, behind in zip(steps, behind_s, strict=True))
    moved = [step.later(behind - first_s) for step, behind in zip(steps, behind_s, strict=True)]
    shared = shared_calls(moved)
    errors = [
        abs(call.end_s - statistics.median(other.end_s for _, other in calls))
        for calls in shared.values()
        for _, call in calls
    ]
    return _Graph(moved, shared).built(statistics.median(errors))


class _Graph:
    """Tasks of all ranks: in `shard` the number of the rank, -1 of collectives."""

    def __init__(self, steps: Sequence[StepOfRank], shared: Mapping[Group, list[tuple[int, RankCall]]]) -> None:
        self._steps, self._shared, self._builder = steps, shared, GraphBuilder()
        self._spans: list[tuple[float, float]] = []
        self._gaps: list[bool] = []
        self._meetings = {group: self._meeting(calls) for group, calls in shared.items()}
        self._tasks = {group: self._collective(group) for group in shared}

    def built(self, error_s: float) -> AlignedRanks:
        for number, step in enumerate(self._steps):
            self._add_rank(number, step)
        start_s, end_s = np.array(self._spans).T
        graph = self._builder.build(np.zeros(len(self._steps)), ())
        ordered = sorted(self._shared, key=lambda group: self._spans[self._tasks[group]][1])
        return AlignedRanks(
            ranks=tuple(step.rank for step in self._steps),
            meetings=tuple(self._meetings[group] for group in ordered),
            clock_error_s=error_s,
            graph=graph,
            is_gap=np.array(self._gaps),
            timeline=Timeline(start_s=start_s, end_s=end_s),
        )

    def _meeting(self, calls: Sequence[tuple[int, RankCall]]) -> Meeting:
        took = {self._steps[number].rank: call.end_s - call.start_s for number, call in calls}
        last = min(took, key=took.__getitem__)
        waited = {rank: seconds - took[last] for rank, seconds in took.items()}
        return Meeting(name=calls[0][1].name, seconds=took[last], last=last, waited_s=waited)

    def _collective(self, group: Group) -> int:
        calls, meeting = self._shared[group], self._meetings[group]
        devices = [number for number, _ in calls]
        pairs = tuple(zip(devices, devices[1:] + devices[:1], strict=True))
        end_s = statistics.median(call.end_s for _, call in calls)
        route = self._builder.route(Route(pairs, collective=meeting.name.replace("_", "-")))
        return self._task((end_s - meeting.seconds, end_s), Kind.SYNCHRONISATION, meeting.seconds, -1, route=route)

    def _task(self, span: tuple[float, float], kind: Kind, seconds: float, shard: int, **columns: int) -> int:
        self._spans.append(span)
        self._gaps.append(kind is Kind.READY)
        return int(self._builder.add(kind, 1, seconds=seconds, shard=shard, **columns)[0])

    def _gap(self, number: int, after: Sequence[tuple[int, float]], until_s: float) -> int:
        """From the last end of tasks, each with that end, until something runs."""
        from_s = max((end for _, end in after), default=0.0)
        route = self._builder.route(Route(((number, number),)))
        gap_s = max(until_s - from_s, 0.0)
        task = self._task((from_s, from_s + gap_s), Kind.READY, gap_s, number, route=route)
        self._builder.depend(task, [each for each, _ in after])
        return task

    def _add_rank(self, number: int, step: StepOfRank) -> None:
        """Its work between the starts and ends of its collectives, and what these wait for."""
        calls = [call for call in step.calls if call.group in self._tasks]
        cuts = sorted({edge for call in calls for edge in (call.start_s, call.end_s)})
        parts: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for span in step.work:
            parts[bisect_left(cuts, span[1] - CLOCK_S)].append(span)
        ended: list[tuple[int, float]] = []  # tasks of computing, with their ends
        for part in sorted(parts):
            ended.append(self._compute(number, sorted(parts[part]), ended[-1:], calls))
        ends_s, before = [end_s for _, end_s in ended], None
        for call in calls:
            behind = ended[: bisect_left(ends_s, call.start_s + CLOCK_S)][-1:]
            if before is not None and before.end_s <= call.start_s + CLOCK_S:
                behind = [*behind, (self._tasks[before.group], before.end_s)]
            self._builder.depend(self._tasks[call.group], self._gap(number, behind, call.start_s))
            before = call

    def _compute(
        self,
        number: int,
        spans: Sequence[tuple[float, float]],
        before: list[tuple[int, float]],
        calls: Sequence[RankCall],
    ) -> tuple[int, float]:
        """One task of kernels without a collective's start or end between them, and its end."""
        idle_s, first_s, end_s = (before[0][1] if before else 0.0), spans[0][0], max(end for _, end in spans)
        ended = [call for call in calls if idle_s < call.end_s <= first_s + CLOCK_S]
        waited = [(self._tasks[call.group], call.end_s) for call in ended[-1:]]
        busy_s = covered_s(spans)
        gap = self._gap(number, [*before, *waited], end_s - busy_s)
        task = self._task((end_s - busy_s, end_s), Kind.FORWARD, busy_s, number, device=number)
        self._builder.depend(task, gap)
        return task, end_s


def answer(aligned: AlignedRanks) -> Iterator[str]:
    """What is to be read first: the step, and who is late."""
    recorded_s, lost_s = aligned.timeline.step_s, sum(aligned.waited_for_s.values())
    true_s = sum(each.seconds for each in aligned.meetings)
    yield (
        f"{len(aligned.ranks)} ranks, step {format_time(recorded_s)}; {len(aligned.meetings)} collectives take "
        f"{format_time(true_s)} once all are there, and ranks wait {format_time(lost_s)} for each other"
    )
    if lost_s < WAITED * recorded_s:
        yield "no rank is late"
        return
    for rank, waited_s in sorted(aligned.waited_for_s.items(), key=lambda item: -item[1]):
        if waited_s > MUCH * lost_s:
            times = f"last {aligned.arrives_last[rank]} times"
            yield f"late: rank {rank}, {times}; the others wait {format_time(waited_s)}: {_why(aligned, rank)}"


def _why(aligned: AlignedRanks, rank: int) -> str:
    """What the late rank does longer than others: computing, else what it waits for on its host."""
    own_s = aligned.of_rank_s(rank, gaps=False)
    others_s = median(aligned.of_rank_s(other, gaps=False) for other in aligned.ranks)
    if own_s > LATE * others_s:
        return f"its GPU computes {own_s / others_s:.2f} times as long as the median"
    return f"its GPU computes as long as others, and stands still for {format_time(aligned.of_rank_s(rank, gaps=True))}"


def changes(aligned: AlignedRanks) -> dict[str, float]:
    """The step by what would be otherwise, in words."""
    changes = {
        "without gaps (a host that is never late)": aligned.replayed_s(gaps=0.0),
        "twice the network": aligned.replayed_s(network=0.5),
        "GPUs twice as fast": aligned.replayed_s(compute=0.5),
    }
    if aligned.runs_alike:
        changes = {"without the skew (every rank as the median)": aligned.replayed_s(alike=True), **changes}
    return changes


def changed(aligned: AlignedRanks) -> Iterator[str]:
    """`changes` beside the recorded step."""
    for words, step_s in changes(aligned).items():
        yield f"{words}: {format_time(step_s)} instead of {format_time(aligned.timeline.step_s)}"
