"""Recorded steps, their bounds and time by cause, without the structure of a model, or times alone. No torch here.

a trace of one rank   each kernel is forward, backward, update or communication by the operators around it; where two
                      run at once computing counts before communication, and where nothing runs the rank waits
a text of times       "412 ms 405 ms ...", or a log with Megatron-LM's "elapsed time per iteration (ms): 412", or with
                      "step time 412 ms", as an exported script prints
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TypeVar

from simulator.errors import InputError
from simulator.files import kind_of_file
from simulator.readers._log import read_log
from simulator.report.step_causes import CAUSES, EXPOSED, WAITING
from traces.imports._collectives import is_collective
from traces.imports._recording import BACKWARD, OPTIMIZER_STEP, PROFILER_STEP, Recording, Work, read_recording
from traces.imports._registry import is_trace

MOST_BETWEEN = 0.05
"""Of a step: a longer gap after the one before means that others were not recorded between them."""
T = TypeVar("T")
_COMMUNICATES = ("gloo:", "nccl:", "c10d::", "record_param_comms")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedPhases:
    """Steps that were recorded: seconds of each, and of the one nearest to their median by cause, empty if unknown.

    rank: whose they are, None where the file does not say.
    """

    steps_s: tuple[float, ...]
    causes_s: Mapping[str, float]
    rank: int | None = None

    @property
    def step_s(self) -> float:
        """Their median; of an even number the lower of the two in the middle, so that it is one of them."""
        return statistics.median_low(self.steps_s)


def read_phases(path: Path) -> RecordedPhases:
    """The recorded steps in a file. Raises InputError where it holds none, OSError when it is unreadable."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    if packed or is_trace(path):
        return _of_trace(read_recording(path))
    try:
        log = read_log(path)
    except InputError:
        if kind := kind_of_file(path):
            raise InputError(f"{path}: this is a {kind}: a file of step times, or a trace, is needed here") from None
        raise
    if log.kind != "step_s":
        raise InputError(f"{path}: it says {log.kind} and no step's time: --launch or --config say what it means")
    return RecordedPhases(steps_s=log.speeds, causes_s={})


def step_bounds(recording: Recording) -> list[tuple[float, float]]:
    """When the steps begin and end on the host: by ProfilerStep, or from one Optimizer.step to the next."""
    marks = [span for span in recording.spans if span.name.startswith(PROFILER_STEP)]
    if marks:
        return [(mark.start_s, mark.end_s) for mark in marks]
    ends = [span.end_s for span in recording.spans if span.name.startswith(OPTIMIZER_STEP)]
    starts = [recording.spans[0].start_s, *ends]
    return list(zip(starts, ends, strict=False)) or [(starts[0], max(span.end_s for span in recording.spans) + 1e-9)]


def by_step(bounds: Sequence[tuple[float, float]], items: Iterable[tuple[float, T]]) -> list[list[T]]:
    """Items, each with its start, by the step within whose (start, end) it began; those outside all are left out."""
    grouped: list[list[T]] = [[] for _ in bounds]
    for start_s, item in items:
        for step, (low, high) in enumerate(bounds):
            if low <= start_s < high:
                grouped[step].append(item)
                break
    return grouped


def launched_s(work: Work) -> float:
    """When the operator behind it began on the host; work that none launched, when it ran."""
    return work.start_s if work.origin is None else work.origin.start_s


def covered_s(spans: Iterable[tuple[float, float]]) -> float:
    """How long at least one of some spans, each (start, end) in seconds, lasted."""
    total_s, until_s = 0.0, float("-inf")
    for start_s, end_s in sorted(spans, key=lambda span: span[0]):
        total_s += max(end_s - max(start_s, until_s), 0.0)
        until_s = max(until_s, end_s)
    return total_s


def _of_trace(recording: Recording) -> RecordedPhases:
    """Its steps but the first, where there are several: what was queued before it runs within it."""
    bounds = step_bounds(recording)
    groups = by_step(bounds, [(launched_s(work), work) for work in recording.work])
    if recording.device != "cpu":
        bounds = list(_gpu_bounds(bounds, groups))
    whole = [_causes(limits, work) for limits, work in zip(bounds, groups, strict=True) if work]
    steps = whole[1:] or whole
    totals = [sum(step.values()) for step in steps]
    if not totals or min(totals) <= 0:
        raise InputError(f"{recording.path}: nothing ran in its steps; record at least one training step")
    middle = totals.index(statistics.median_low(totals))
    return RecordedPhases(steps_s=tuple(totals), causes_s=steps[middle], rank=recording.rank)


def _gpu_bounds(
    bounds: Sequence[tuple[float, float]], groups: Sequence[Sequence[Work]]
) -> Iterator[tuple[float, float]]:
    """From the end of one step's last kernel to that of the next, as the host may run steps ahead of the GPU."""
    last_s, host_end_s = -inf, -inf
    for (start_s, end_s), work in zip(bounds, groups, strict=True):
        first_s = min((each.start_s for each in work), default=start_s)
        follows = start_s - host_end_s < MOST_BETWEEN * (end_s - start_s)
        finished_s = max((each.end_s for each in work), default=end_s)
        yield (last_s if follows else first_s), finished_s
        last_s, host_end_s = finished_s, end_s


def _causes(limits: tuple[float, float], work: Sequence[Work]) -> dict[str, float]:
    """Seconds of one step by cause. Where work of two causes runs at once, the first in CAUSES counts."""
    causes, before_s = {}, 0.0
    so_far: list[tuple[float, float]] = []
    for cause in CAUSES[:-1]:
        so_far += [each.span_s for each in work if _cause(each) == cause]
        together_s = covered_s(so_far)
        causes[cause], before_s = together_s - before_s, together_s
    return {**causes, WAITING: max(limits[1] - limits[0] - before_s, 0.0)}


def _cause(work: Work) -> str:
    names = [span.name for span in work.around]
    if is_collective(work) or any(name.startswith(_COMMUNICATES) for name in names):
        return EXPOSED
    if any(name.startswith("Optimizer.") for name in names):
        return "update"
    return "backward" if any(name.startswith(BACKWARD) for name in names) else "forward"
