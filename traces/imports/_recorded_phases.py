"""Recorded steps by cause: of a torch.profiler trace, without the structure of a model, or times alone. No torch here.

a trace of one rank   each kernel is forward, backward, update or communication by the operators around it; where two
                      run at once computing counts before communication, and where nothing runs the rank waits
a text of times       "412 ms 405 ms ...", or a log with Megatron-LM's "elapsed time per iteration (ms): 412", or with
                      "step time 412 ms", as an exported script prints
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

from simulator.errors import InputError
from simulator.files import kind_of_file
from simulator.readers._log import read_log
from simulator.report.step_causes import CAUSES, EXPOSED, WAITING
from traces.imports._collectives import is_collective
from traces.imports._recording import BACKWARD, Recording, Work, read_recording
from traces.imports._registry import is_trace
from traces.imports._step_bounds import by_step, covered_s, launched_s, step_bounds

MOST_BETWEEN = 0.05
"""Of a step: a longer gap after the one before means that others were not recorded between them."""
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
