"""A whole sweep: lock the folder, open the table, run what is missing, say how far it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from simulator.sweep.axes import Value
from simulator.sweep.engines import Engine
from simulator.sweep.evaluate import DONE, MakePlan, PointResult, SweepContext
from simulator.sweep.inputs import tier_of
from simulator.sweep.points import Point, Points
from simulator.sweep.results_table import ResultsTable, locked
from simulator.sweep.runner import run_points
from simulator.units import format_duration, format_time
from simulator.version import version

LOT = 32
"""Points that go to a worker together at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How far a sweep has come: `ran` of `to_run` points, in `wall_s` seconds since the first was submitted."""

    ran: int
    to_run: int
    wall_s: float

    @property
    def points_per_s(self) -> float:
        """Points per second so far."""
        return self.ran / self.wall_s if self.wall_s else 0.0


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
        left_s = (pace.to_run - pace.ran) / pace.points_per_s if pace.ran else float("inf")
        rate = f"{pace.points_per_s:.1f} points/s, {format_duration(left_s)} left"
        best = f", best step {format_time(self._best_s)}" if self._best_s < float("inf") else ""
        other = "".join(f", {count:,} {status}" for status, count in self.counts.items() if status != DONE)
        return f"{pace.ran:,}/{pace.to_run:,} points, {rate}{best}{other}"


def context_of(points: Points, make_plan: MakePlan) -> SweepContext:
    """What the workers of a sweep need."""
    return SweepContext(inputs=points.inputs, make_plan=make_plan, version=version(), must_fit=points.must_fit)


def run_sweep(
    points: Points,
    make_plan: MakePlan,
    folder: Path,
    start: Callable[[SweepContext], Engine],
    watch: Callable[[list[PointResult], Pace], None],
    *,
    resume: bool = False,
) -> Pace:
    """Run the points that the table in `folder` lacks on the engine that `start` gives; the pace at the end.

    `watch` is called whenever points have been written. Raises InputError when the folder is taken or cannot be
    written, holds another sweep, or holds this one and `resume` is false.
    """
    with locked(folder), closing(ResultsTable(folder, points, version(), resume=resume)) as table:
        pending = table.pending()
        if not pending:
            return Pace(ran=0, to_run=0, wall_s=0.0)
        engine = start(context_of(points, make_plan))
        began, ran = perf_counter(), 0

        def pace() -> Pace:
            return Pace(ran=ran, to_run=len(pending), wall_s=perf_counter() - began)

        def record(results: list[PointResult]) -> None:
            nonlocal ran
            table.record(results)
            ran += len(results)
            watch(results, pace())

        try:
            run_points(lots(point for point in points.points if point.number in pending), engine, record)
        finally:
            engine.close()
        return pace()


def lots(points: Iterable[Point]) -> list[list[Point]]:
    """The points in their order, but those that differ only in their links together: they share work.

    None has more than LOT points, so that several workers have something to do.
    """
    groups: dict[tuple[Value, ...], list[Point]] = {}
    for point in points:
        alike = tuple(value for name, value in point.values.items() if not tier_of(name))
        groups.setdefault(alike, []).append(point)
    return [group[first : first + LOT] for group in groups.values() for first in range(0, len(group), LOT)]
