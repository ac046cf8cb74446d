"""The steps of the ranks of one run, each from its own trace, and how far their clocks are apart. No torch here.

Ranks meet in their collectives, matched in order by process group. Ends of the same collective are one instant, and the
median over them is how far a clock is off.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from simulator.errors import InputError
from traces.imports._collectives import collective_call, group_of, is_collective
from traces.imports._recorded_phases import by_step, launched_s, step_bounds
from traces.imports._recording import read_recording
from traces.imports._registry import is_trace

MEETING = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
"""Collectives that end on all ranks at once."""

Group = tuple[str, int]
"""A process group, and the number of a collective in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCall:
    """A collective on one rank."""

    group: Group
    name: str
    start_s: float
    """On the rank's own clock, as end_s."""
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOfRank:
    """The last step of a trace on the GPU."""

    rank: int
    calls: tuple[RankCall, ...]
    """By start."""
    work: tuple[tuple[float, float], ...]
    """Start and end, in seconds on the rank's own clock, of what is no collective, by end."""

    @property
    def first_s(self) -> float:
        """When something first runs."""
        return min(min((start for start, _ in self.work), default=self.calls[0].start_s), self.calls[0].start_s)

    def later(self, seconds: float) -> StepOfRank:
        """The same on a clock that is ahead by so much."""
        calls = tuple(replace(c, start_s=c.start_s + seconds, end_s=c.end_s + seconds) for c in self.calls)
        return replace(self, calls=calls, work=tuple((start + seconds, end + seconds) for start, end in self.work))


def read_rank(path: Path) -> StepOfRank:
    """Raises InputError where the file is no trace or holds no collective, OSError where it is unreadable."""
    recording = read_recording(path)
    bounds = step_bounds(recording)
    last = by_step(bounds, [(launched_s(each), each) for each in recording.work])[-1]
    counts, calls, work = Counter[str](), [], []
    for each in last:
        call = collective_call(each) if is_collective(each) else None
        if call is None or call.name not in MEETING:
            work.append(each.span_s)
            continue
        of = group_of(each)
        calls.append(RankCall(group=(of, counts[of]), name=call.name, start_s=each.start_s, end_s=each.end_s))
        counts[of] += 1
    if not calls:
        raise InputError(f"{path}: its last step holds no collective of NCCL in which ranks meet")
    return StepOfRank(rank=recording.rank, calls=tuple(calls), work=tuple(sorted(work, key=lambda span: span[1])))


def read_ranks(folder: Path, progress: Callable[[str], None] | None = None) -> list[StepOfRank]:
    """The traces in a folder, one by one, as each holds far more than is kept of it; numbered in their order where they
    do not say their ranks. Other files are left alone. Raises as `read_rank`, and where there are fewer than two."""
    files = [path for path in sorted(folder.iterdir()) if path.name.endswith((".json", ".json.gz"))]
    paths = [path for path in files if is_trace(path)]
    if len(paths) < 2:
        had = f"{len(paths)} trace{'s' * (len(paths) != 1)} of torch.profiler (.json, .json.gz)"
        raise InputError(f"{folder} holds {had}; ranks are compared from two on, one trace of the same step each")
    steps = []
    for number, path in enumerate(paths, start=1):
        if progress:
            progress(f"trace {number} of {len(paths)}")
        steps.append(read_rank(path))
    if len({step.rank for step in steps}) < len(steps):
        return [replace(step, rank=number) for number, step in enumerate(steps)]
    return sorted(steps, key=lambda step: step.rank)


def shared_calls(steps: Sequence[StepOfRank]) -> dict[Group, list[tuple[int, RankCall]]]:
    """The collectives in which at least two ranks meet: (position in `steps`, call) of each."""
    met: dict[Group, list[tuple[int, RankCall]]] = defaultdict(list)
    for number, step in enumerate(steps):
        for call in step.calls:
            met[call.group].append((number, call))
    for (group, number), calls in met.items():
        names = {call.name for _, call in calls}
        if len(names) > 1:
            raise InputError(
                f"collective {number} of process group {group or 'without a name'!r} is {' and '.join(sorted(names))}: "
                "the traces are not of the same step"
            )
    return {group: calls for group, calls in met.items() if len(calls) > 1}


def clocks_behind_s(steps: Sequence[StepOfRank]) -> list[float]:
    """How far each clock is behind the first one's, from rank to rank through the groups that they share."""
    ends = [{call.group: call.end_s for call in step.calls} for step in steps]
    known, waiting = {0: 0.0}, [0]
    while waiting:
        of = waiting.pop()
        for other in set(range(len(steps))) - known.keys():
            apart = [ends[of][group] - ends[other][group] for group in ends[of].keys() & ends[other].keys()]
            if apart:
                known[other] = known[of] + statistics.median(apart)
                waiting.append(other)
    alone = [steps[number].rank for number in range(len(steps)) if number not in known]
    if alone:
        raise InputError(f"rank {alone[0]}: it shares no collective with the others; are all traces of one run?")
    return [known[number] for number in range(len(steps))]
