"""An execution: a plan that ran for real. Its file is a numpy archive; no torch is needed to read it."""

from __future__ import annotations

import io
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simulator import file_gate, files
from simulator.errors import InputError, require
from simulator.taskgraph import Floats
from simulator.timeline import Timeline


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
    require(
        all(isinstance(number, int | float) for number in measured),
        f"{path}: steps_s",
        "text or lists",
        "it is numbers",
    )
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
