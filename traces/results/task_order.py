"""The order of a timeline's tasks."""

from __future__ import annotations

import numpy as np

from simulator.taskgraph import Ints, TaskGraph
from simulator.timeline import Timeline


def in_order(graph: TaskGraph, timeline: Timeline) -> Ints:
    """All tasks, (tasks,), in the order of their starts; among those of no duration, predecessors come first."""
    return np.lexsort((_depths(graph), timeline.end_s, timeline.start_s))


def _depths(graph: TaskGraph) -> Ints:
    """The length of the longest chain of dependencies before each task."""
    depth = np.zeros(len(graph), dtype=np.int64)
    start, successors = graph.successors()
    waits = np.diff(graph.dependency_start)
    ready = np.flatnonzero(waits == 0).tolist()
    while ready:
        task = ready.pop()
        for after in successors[start[task] : start[task + 1]].tolist():
            depth[after] = max(depth[after], depth[task] + 1)
            waits[after] -= 1
            if not waits[after]:
                ready.append(after)
    return depth
