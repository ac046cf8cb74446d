"""From the tasks that ranks observed to the Timeline of a step's task graph. No torch here.

Ranks under torch's runtimes record their tasks (`runs/torch_runtimes`); of a message each end records a part. A task
lasts from the last of its recorded starts to the last of its recorded ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from simulator.errors import RunError
from simulator.taskgraph import Kind, TaskGraph
from simulator.timeline import Timeline
from traces.results.executions import Execution, nearest_to_median

Key = tuple[int, str, int, int, int]


class ObservedTask(NamedTuple):
    """A task as one rank observed it, in seconds; NaN for a start or an end that it did not observe.

    source, target: a message's, twice the own device for compute, -1 for a collective. layer: "" for the update and
    for a collective. microbatch: -1 for the update, the number of a collective's bucket. sent_bytes: by the rank.
    """

    kind: int
    layer: str
    microbatch: int
    source: int
    target: int
    start_s: float
    end_s: float
    sent_bytes: float = 0.0

    @property
    def key(self) -> Key:
        return self.kind, self.layer, self.microbatch, self.source, self.target


def execution(
    graph: TaskGraph,
    steps_s: Sequence[float],
    ranks: Sequence[Sequence[Sequence[ObservedTask]]],
    stolen_share: float | None = None,
) -> Execution:
    """The execution of `graph` whose steps took `steps_s`, with the timeline of the median observed step.

    ranks: of each rank, its tasks in each observed step. stolen_share: as in Execution. Raises RunError when they are
    another graph's.
    """
    tasks = _keys(graph)
    steps = [[seen for rank in step for seen in rank] for step in zip(*ranks, strict=True)]
    timelines = [_timeline(graph, tasks, step) for step in steps]
    median = nearest_to_median([timeline.step_s for timeline in timelines])
    sent = np.zeros(len(graph))
    for seen in steps[median]:
        sent[tasks[seen.key]] = max(sent[tasks[seen.key]], seen.sent_bytes)
    timeline = timelines[median]
    return Execution(steps_s=tuple(steps_s), losses=(), sent_bytes=sent, timeline=timeline, stolen_share=stolen_share)


def _keys(graph: TaskGraph) -> dict[Key, int]:
    """Every task by what ranks call it."""
    tasks: dict[Key, int] = {}
    for task in range(len(graph)):
        route, device = int(graph.route[task]), int(graph.device[task])
        pairs = graph.routes[route].pairs if route >= 0 else ((device, device),)
        kind, layer, number = (int(column[task]) for column in (graph.kind, graph.layer, graph.microbatch))
        if len(pairs) > 1:
            tasks[kind, "", int(graph.shard[task]), -1, -1] = task
        else:
            tasks[kind, graph.layer_names[layer] if layer >= 0 else "", number, *pairs[0]] = task
    return tasks


def _timeline(graph: TaskGraph, tasks: Mapping[Key, int], step: Iterable[ObservedTask]) -> Timeline:
    start_s, end_s = np.full((2, len(graph)), np.nan)
    for seen in step:
        if seen.key not in tasks:
            raise RunError(f"ranks ran {Kind(seen.kind).name.lower()} of {seen.layer!r}, which the plan does not have")
        task = tasks[seen.key]
        start_s[task], end_s[task] = np.fmax(start_s[task], seen.start_s), np.fmax(end_s[task], seen.end_s)
    _fill(graph, start_s, end_s)
    return Timeline(start_s=start_s, end_s=np.fmax(start_s, end_s))


def _fill(graph: TaskGraph, start_s: np.ndarray, end_s: np.ndarray) -> None:
    """Tasks that no rank observed, such as half a backward pass without work, take no time after what they wait for."""
    missing = np.flatnonzero(np.isnan(start_s) | np.isnan(end_s)).tolist()
    while missing:
        ready = [task for task in missing if not np.isnan(end_s[graph.predecessors(task)]).any()]
        for task in ready or missing:
            earliest = float(np.nanmax(end_s[graph.predecessors(task)], initial=0.0))
            start_s[task] = earliest if np.isnan(start_s[task]) else start_s[task]
            end_s[task] = start_s[task] if np.isnan(end_s[task]) else end_s[task]
        missing = [task for task in missing if np.isnan(end_s[task])]
