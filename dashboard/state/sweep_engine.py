"""The processes of one sweep, which can be ended at once, in the middle of a point."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

from simulator.sweep.engines import Processes
from simulator.sweep.evaluate import PointResult, SweepContext
from simulator.sweep.points import Point


class SweepStopped(Exception):
    """Nobody wants the rest of a sweep, or not now."""


class EndableProcesses(Processes):
    """As the runner's own processes, until they are ended: then every point that is asked for raises SweepStopped."""

    def __init__(self, context: SweepContext, jobs: int) -> None:
        super().__init__(context, jobs)
        self._ended = False

    def submit(self, points: Sequence[Point]) -> Future[list[PointResult]]:
        if self._ended:
            raise SweepStopped
        return super().submit(points)

    def end(self) -> None:
        """Kill the processes; the points that they were running are lost."""
        self._ended = True
        for process in list((self._pool._processes or {}).values()):
            process.kill()
