"""An execution: a plan that ran for real, from the tasks that ranks observed to its file. No torch here.

Ranks under torch's runtimes record their tasks (`runs/torch_runtimes`); of a message each end records a part. A task
lasts from the last of its recorded starts to the last of its recorded ends. The file is a numpy archive.
"""

from __future__ import annotations

import io
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from simulator import file_gate, files
from simulator.errors import InputError, RunError, require
from simulator.taskgraph import Floats, Kind, TaskGraph
from simulator.timeline import Timeline

Key = tuple[int, str, int, int, int]


def nearest_to_median(seconds: Sequence[float]) -> int:
    """The position of the value nearest to the median: the step, or the run, that stands for all; the first if tied."""
    median = statistics.median(seconds)
    return min(range(len(seconds)), key=lambda position: (abs(seconds[position] - median), position))


def write_execution(execution: Execution, path: str | Path) -> None:
    """Write an execution as a numpy archive (.npz) without pickled objects."""
    archive = io.BytesIO()
    np.savez_compressed(
        archive,
        schema=np.array(files.SCHEMA),
        steps_s=np.array(execution.steps_s),
        losses=np.array(execution.losses),
        sent_bytes=execution.sent_bytes,
        start_s=execution.timeline.start_s,
        end_s=execution.timeline.end_s,
        stolen_share=np.array([] if execution.stolen_share is None else execution.stolen_share),
    )
    files.write_bytes_atomic(path, archive.getvalue())


def read_execution(path: str | Path, most_bytes: int = file_gate.MOST_BYTES) -> Execution:
    """What `write_execution` wrote. Raises InputError when it is something else, OSError when unreadable."""
    columns = file_gate.arrays(Path(path), most_bytes)
    try:
        require(int(columns["schema"]) == files.SCHEMA, f"{path}: schema", columns["schema"], f"it is {files.SCHEMA}")
        execution = Execution(
            steps_s=tuple(columns["steps_s"].tolist()),
            losses=tuple(columns["losses"].tolist()),
            sent_bytes=columns["sent_bytes"],
            timeline=Timeline(start_s=columns["start_s"], end_s=columns["end_s"]),
            stolen_share=next(iter(columns.get("stolen_share", np.array([])).ravel().tolist()), None),
        )
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not a timeline that shardscope execute wrote ({error})") from None
    _check(execution, path)
    return execution


def _check(execution: Execution, path: str | Path) -> None:
    """Raise InputError unless there are steps and every task has a span."""
    start_s, end_s = execution.timeline.start_s, execution.timeline.end_s
    require(len(execution.steps_s) > 0, f"{path}: steps_s", "empty", "an execution has at least one step")
    measured = [*execution.steps_s, *execution.losses, *filter(None, [execution.stolen_share])]
    alike = all(isinstance(number, int | float) for number in measured)
    require(alike, f"{path}: steps_s", "text or lists", "it is numbers")
    lengths = all(0 <= step_s < math.inf for step_s in execution.steps_s)
    require(lengths, f"{path}: steps_s", "a step of no length", "every step takes a finite time of at least 0")
    alike = start_s.ndim == 1 and start_s.shape == end_s.shape == execution.sent_bytes.shape
    require(alike, f"{path}: start_s", f"of shape {start_s.shape}", "times and bytes have one number for each task")
    numbers = all(column.dtype.kind == "f" for column in (start_s, end_s, execution.sent_bytes))
    sizes = numbers and bool(np.all(np.isfinite(execution.sent_bytes)) and np.all(execution.sent_bytes >= 0))
    require(sizes or not numbers, f"{path}: sent_bytes", "a size of no message", "it is finite and at least 0")
    spans = numbers and bool(np.all(np.isfinite(end_s)) and np.all(start_s >= 0) and np.all(end_s >= start_s))
    require(spans, f"{path}: end_s", "no end for some task", "every task ends, not before it starts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """A plan that ran: seconds and loss of each counted step, bytes sent by task (tasks,), timeline of the median step.

    By torch's own runtimes, which keep the losses to themselves, the timeline is that of steps watched afterwards.
    stolen_share: the largest share of core time that a rank's machine lost to its host in the counted steps, None where
    it is not known.
    """

    steps_s: tuple[float, ...]
    losses: tuple[float, ...]
    sent_bytes: Floats
    timeline: Timeline
    stolen_share: float | None = None


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
