"""A run's log, streamed: its steps; warm-up, evaluations, checkpoints and stragglers apart."""

from __future__ import annotations

import csv
import re
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from simulator.errors import InputError
from simulator.readers._log_lines import interruption, metrics, number_of, parameters_in, worth_a_look
from simulator.units import format_time, parse_time

MOST_STEPS = 2_000_000
LONGEST_LINE = 20_000
MOST_READ, PARTS = 64 * 2**20, 64
"""Bytes of a log; of a longer one as many are read, in so many parts."""
MOST = 1e15
"""Of what a line says: more is a slip of its writer."""
SLOW = 1.3
"""Times the median: a step that takes longer was disturbed."""
COLUMNS = {
    "step_s": "step_s", "step_time": "step_s", "step_time_s": "step_s", "iteration_time": "step_s",
    "tokens_per_s": "tokens_per_s", "tokens_per_second": "tokens_per_s", "tokens_per_s_per_gpu": "device_tokens_per_s",
    "tps": "device_tokens_per_s", "throughput(tps)": "device_tokens_per_s", "mfu": "mfu", "tflops": "device_tflops",
    "loss": "loss", "time_metrics/end_to_end(s)": "step_s",
}  # fmt: skip
"""Of a CSV, what is read of each."""
_SPACED_UNIT = re.compile(r"(?<=[0-9.])[ \t]+(?=(ns|us|µs|ms|s)\b)")
SPEEDS = ("step_s", "device_tokens_per_s", "tokens_per_s", "samples_per_s", "steps_per_s", "device_tflops", "mfu")
"""What says how long a step took, the most direct first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLog:
    """Steps in their order; the speed of each in the unit of `kind`, one of SPEEDS."""

    kind: str
    speeds: tuple[float, ...]
    """As the log says them, warm-up included."""
    marks: tuple[str, ...] = ()
    """Of each step: what was said between it and the one before: "", "checkpoint" or "evaluation"."""
    middle: Mapping[str, float] = field(default_factory=dict)
    """The median of everything else that steps say: mfu, device_tflops, memory_bytes, loss."""
    parameters: int | None = None
    """Of the model, where the log says how many."""

    def steps_s(self, tokens: float, sequence: int, devices: int, flops_per_token: float, peak: float) -> list[float]:
        """Seconds of each step of so many tokens."""
        work = {
            "step_s": 0.0, "device_tokens_per_s": tokens / devices, "tokens_per_s": tokens,
            "samples_per_s": tokens / sequence, "steps_per_s": 1.0,
            "device_tflops": tokens * flops_per_token / devices / 1e12, "mfu": tokens * flops_per_token / peak,
        }[self.kind]  # fmt: skip
        return [speed if self.kind == "step_s" else work / speed for speed in self.speeds]


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadySteps:
    """The steps that were not disturbed."""

    step_s: float
    """Their median."""
    low_s: float
    high_s: float
    """Between which 8 of 10 of them are."""
    count: int
    apart: Mapping[str, int]
    """How many others there were, by what disturbed them: warm-up, evaluation, checkpoint, straggling."""
    lost_s: float
    """Seconds of a step that the others add on average, warm-up apart."""

    @property
    def words(self) -> str:
        """How many there are and how long most of them take, and what was set apart."""
        apart = ", ".join(f"{count} of {name}" for name, count in self.apart.items()) or "none"
        spread = f"8 of 10 from {format_time(self.low_s)} to {format_time(self.high_s)}"
        return f"{self.count} steps are steady, {spread}; apart: {apart}"


def steady(steps_s: Sequence[float], marks: Sequence[str] = ()) -> SteadySteps:
    """The undisturbed among `steps_s`. Raises InputError where there is none."""
    if not steps_s:
        raise InputError("it has no step")
    middle = statistics.median(steps_s[len(steps_s) // 5 :])
    first = next((i for i, step_s in enumerate(steps_s) if step_s <= SLOW * middle), 0)
    first = max(first, min(3, len(steps_s) // 4))
    kept, apart, extra_s = [], Counter({"warm-up": first} if first else {}), 0.0
    for number in range(first, len(steps_s)):
        if steps_s[number] <= SLOW * middle:
            kept.append(steps_s[number])
        else:
            apart[(marks[number] if number < len(marks) else "") or "straggling"] += 1
            extra_s += steps_s[number] - middle
    kept = sorted(kept or steps_s)
    return SteadySteps(
        step_s=statistics.median(kept), low_s=kept[len(kept) // 10], high_s=kept[-1 - len(kept) // 10],
        count=len(kept), apart=dict(apart), lost_s=extra_s / max(1, len(steps_s) - first),
    )  # fmt: skip


def read_log(path: Path) -> RunLog:
    """The steps in a log, or in a file of times alone ("412ms 405 ms 0.44s"). Raises InputError where it has none,
    saying what was recognised; OSError."""
    times_s = _times_alone(path)
    return RunLog(kind="step_s", speeds=times_s) if times_s else _read_lines(path)


def _times_alone(path: Path) -> tuple[float, ...]:
    """The times in a file that holds nothing else; none where it holds something else."""
    with path.open("rb") as file:
        text = file.read(1 << 20).decode("utf-8", "replace")
    try:
        times_s = tuple(parse_time(word) for word in re.split(r"[\s,;]+", _SPACED_UNIT.sub("", text)) if word)
    except InputError:
        return ()
    return times_s if min(times_s, default=0.0) > 0 else ()


def _read_lines(path: Path) -> RunLog:
    """The steps in a log, line by line."""
    rows = _of_table(path) if path.suffix == ".csv" else _of_lines(path)
    steps: list[dict[str, float]] = []
    marks: list[str] = []
    parameters, mark, numbered, lines = None, "", None, 0
    for row, number, between, count in rows:
        lines += 1
        parameters, mark = parameters or count, between or mark
        row = {name: value for name, value in row.items() if 0 < value < MOST}
        if not any(kind in row for kind in SPEEDS) or between == "evaluation":
            continue
        if steps and number is not None and number == numbered:  # a line of the same step, as of another rank
            steps[-1] = {**row, **steps[-1]}
            continue
        steps.append(row)
        marks.append(mark)
        mark, numbered = "", number
        if len(steps) > MOST_STEPS:
            raise InputError(f"{path}: it has more than {MOST_STEPS:,} steps; give a part of it")
    if not steps:
        seen = f"{lines:,} lines that mention steps or tokens" if lines else "no line of a training log"
        times = "times alone have units, e.g. 412ms 405ms"
        raise InputError(f"{path}: it says no step's time, tokens/s, TFLOP/s or MFU: {seen} recognised; {times}")
    counts = {kind: sum(row.get(kind, 0) > 0 for row in steps) for kind in SPEEDS}
    kind = next(kind for kind in SPEEDS if counts[kind] >= 0.5 * max(counts.values()))
    used = [(row, mark) for row, mark in zip(steps, marks, strict=True) if row.get(kind, 0) > 0]
    others = {
        name: [row[name] for row, _ in used if name in row] for name in ("mfu", "device_tflops", "memory_bytes", "loss")
    }
    return RunLog(
        kind=kind, speeds=tuple(row[kind] for row, _ in used), marks=tuple(mark for _, mark in used),
        middle={name: statistics.median(values) for name, values in others.items() if values}, parameters=parameters,
    )  # fmt: skip


Row = tuple[dict[str, float], int | None, str | None, int | None]
"""What a line says: of its step, which step, what stands between, how many parameters."""


def _of_lines(path: Path) -> Iterator[Row]:
    for raw in _lines(path):
        for part in raw.decode("utf-8", "replace").split("\r"):
            if worth_a_look(part):
                said = metrics(part)
                yield said, number_of(part) if said else None, interruption(part), parameters_in(part)


def _lines(path: Path) -> Iterator[bytes]:
    """Of a file; of one of more than MOST_READ bytes those of PARTS evenly spaced parts of it."""
    size = path.stat().st_size
    parts, of_each = (1, MOST_READ) if size <= MOST_READ else (PARTS, MOST_READ // PARTS)
    with path.open("rb") as file:
        for number in range(parts):
            if number:  # a pipe has one part, and no places
                file.seek(number * (size // parts))
            left = of_each - (len(file.readline(LONGEST_LINE)) if number else 0)
            while left > 0 and (raw := file.readline(LONGEST_LINE)):
                left -= len(raw)
                yield raw


def _of_table(path: Path) -> Iterator[Row]:
    """Of a CSV, by the names of its columns."""
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        for cells in csv.DictReader(file):
            row = {}
            for name, cell in cells.items():
                kind = COLUMNS.get(str(name).strip().lower())
                if kind and isinstance(cell, str):
                    try:
                        row[kind] = float(cell.replace(",", ""))
                    except ValueError:
                        continue
            yield row, None, None, None
