"""The progress of a sweep in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from simulator.sweep.evaluate import DONE, PointResult
from simulator.sweep.sweeping import Pace
from simulator.units import format_time


class Progress:
    """Counts results by status, remembers the fastest step, and shows both where there is somebody to `show` them."""

    def __init__(self, show: Callable[[str], None] | None) -> None:
        self.counts: Counter[str] = Counter()
        self._best_s, self._show = float("inf"), show

    def __call__(self, results: list[PointResult], pace: Pace) -> None:
        for result in results:
            self.counts[result.status] += 1
            if result.status == DONE and result.metrics["fits"]:
                self._best_s = min(self._best_s, float(result.metrics["step_s"] or 0.0))
        if self._show:
            self._show(self._line(pace))

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
