"""When the steps of a recording begin and end, and which of its spans and work each of them holds. No torch here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from traces.imports._recording import OPTIMIZER_STEP, PROFILER_STEP, Recording, Work

T = TypeVar("T")


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
