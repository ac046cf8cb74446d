"""A timeline compared with another of the same task graph, task by task: where the simulator was wrong, and why.

A task can be wrong in two ways. It lasts longer than predicted; or it starts late, and then because of the task
that it waited for last: a predecessor, or the task that its device ran before it. That task is its `cause`.
Going from cause to cause, back from the last task, gives the path that made the step as long as it was:

    step = sum over the path of (wait between the cause's end and the start) + duration
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simulator.errors import require
from simulator.report.critical_path import previous_on_device
from simulator.taskgraph import Floats, Ints, Kind, TaskGraph
from simulator.timeline import Timeline


def compare(graph: TaskGraph, predicted: Timeline, actual: Timeline) -> Comparison:
    """`actual` against `predicted`. Raises InputError when they are not of this graph."""
    for name, timeline in (("predicted", predicted), ("actual", actual)):
        count = len(timeline.start_s)
        require(count == len(graph), f"{name} timeline", f"of {count} tasks", f"the plan has {len(graph)}")
    return Comparison(graph=graph, predicted=predicted, actual=actual)


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """All tasks of a kind, or those on the path: how many, and their seconds predicted and actual."""

    tasks: int
    predicted_s: float
    actual_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One task: seconds that it took, start after its predicted start, and what it waited for last (-1: nothing)."""

    task: int
    predicted_s: float
    actual_s: float
    late_s: float
    cause: int


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two timelines of one graph; columns are by task, of shape (tasks,)."""

    graph: TaskGraph
    predicted: Timeline
    actual: Timeline

    @property
    def error(self) -> float:
        """Signed relative error of the predicted step: 0.1 is predicted 10 % too long."""
        return self.predicted.step_s / self.actual.step_s - 1

    @cached_property
    def longer_s(self) -> Floats:
        """Seconds by which each task lasted longer than predicted; (tasks,)."""
        return (self.actual.end_s - self.actual.start_s) - (self.predicted.end_s - self.predicted.start_s)

    @cached_property
    def late_s(self) -> Floats:
        """Seconds by which each task started later than predicted; (tasks,)."""
        return self.actual.start_s - self.predicted.start_s

    @cached_property
    def causes(self) -> Ints:
        """For each task the one it actually waited for last, -1 where it waited for none; (tasks,)."""
        graph, end_s = self.graph, self.actual.end_s
        causes = np.full(len(graph), -1, dtype=np.int64)
        before = previous_on_device(graph, self.actual)
        for task in range(len(graph)):
            candidates = [other for other in (*graph.predecessors(task).tolist(), int(before[task])) if other >= 0]
            if candidates:
                causes[task] = max(candidates, key=lambda other: (end_s[other], -other))
        return causes

    @cached_property
    def path(self) -> Ints:
        """Tasks from the first to the last, each the cause of the next; (tasks on the path,)."""
        path = [int(np.argmax(self.actual.end_s))] if len(self.graph) else []
        while path and self.causes[path[-1]] >= 0:
            path.append(int(self.causes[path[-1]]))
        return np.array(path[::-1], dtype=np.int64)

    @property
    def waits_s(self) -> float:
        """Seconds on the path in which no task of it ran: from each cause's end to the start of what waited for it."""
        seconds = self.actual.end_s - self.actual.start_s
        return self.actual.step_s - float(seconds[self.path].sum())

    def totals(self, only: Ints | None = None) -> dict[Kind, Total]:
        """Seconds summed by kind, of all tasks or `only` of some."""
        tasks = np.arange(len(self.graph)) if only is None else only
        totals = {}
        for kind in Kind:
            of_kind = tasks[self.graph.kind[tasks] == kind]
            if len(of_kind):
                lasted = [float((t.end_s - t.start_s)[of_kind].sum()) for t in (self.predicted, self.actual)]
                totals[kind] = Total(tasks=len(of_kind), predicted_s=lasted[0], actual_s=lasted[1])
        return totals

    def longest(self, count: int) -> list[Difference]:
        """The tasks that last longer than predicted by most, the worst first."""
        return list(self._differences(self.longer_s, count))

    def latest(self, count: int) -> list[Difference]:
        """The tasks whose own start is late by most, beyond what their cause was late, the worst first."""
        released = np.where(self.causes >= 0, self.actual.end_s[self.causes] - self.predicted.end_s[self.causes], 0.0)
        return list(self._differences(self.late_s - released, count))

    def difference(self, task: int) -> Difference:
        """One task's seconds, delay and cause."""
        return Difference(
            task=task,
            predicted_s=float(self.predicted.end_s[task] - self.predicted.start_s[task]),
            actual_s=float(self.actual.end_s[task] - self.actual.start_s[task]),
            late_s=float(self.late_s[task]),
            cause=int(self.causes[task]),
        )

    def _differences(self, badness: Floats, count: int) -> Iterator[Difference]:
        order = np.argsort(-badness, kind="stable")[:count]
        return (self.difference(int(task)) for task in order if badness[task] > 0)
