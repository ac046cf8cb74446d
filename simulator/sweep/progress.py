"""The progress of a sweep: one line that is rewritten on a terminal, nothing elsewhere."""

from __future__ import annotations

from collections import Counter
from time import monotonic
from typing import TextIO

from simulator.sweep.evaluate import DONE, PointResult
from simulator.sweep.sweeping import Pace
from simulator.units import format_time

EVERY_S = 0.2


class Progress:
    """Counts results by status, remembers the fastest step, and shows both on `stream` when that is a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self.counts: Counter[str] = Counter()
        self._best_s = float("inf")
        self._stream, self._shown = stream, 0.0

    def __call__(self, results: list[PointResult], pace: Pace) -> None:
        for result in results:
            self.counts[result.status] += 1
            if result.status == DONE and result.metrics["fits"]:
                self._best_s = min(self._best_s, float(result.metrics["step_s"] or 0.0))
        if self._stream.isatty() and (monotonic() - self._shown > EVERY_S or pace.ran == pace.to_run):
            self._shown = monotonic()
            end = "\n" if pace.ran == pace.to_run else ""
            self._stream.write(f"\r\x1b[K{self._line(pace)}{end}")
            self._stream.flush()

    def _line(self, pace: Pace) -> str:
        rate = f"{pace.points_per_s:.1f} points/s, {clock(pace.left_s)} left"
        best = f", best step {format_time(self._best_s)}" if self._best_s < float("inf") else ""
        other = "".join(f", {count:,} {status}" for status, count in self.counts.items() if status != DONE)
        return f"{pace.ran:,}/{pace.to_run:,} points, {rate}{best}{other}"


def clock(seconds: float) -> str:
    """A duration for a person: 45 s, 3 min, 2 h 05 min."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"
