"""Run points on an engine and pass on the results as they arrive."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait

from simulator.errors import InputError
from simulator.sweep.engines import Engine
from simulator.sweep.evaluate import FAILED, PointResult
from simulator.sweep.points import Point

Record = Callable[[list[PointResult]], None]
Lot = Sequence[Point]
"""Points that one worker takes one after the other."""


def run_points(lots: Iterable[Lot], engine: Engine, record: Record) -> None:
    """Run all points; `record` is given the results of those that ended, a few at a time.

    When a worker dies, any of the points in flight may be why. Each of them then runs again alone, and one
    whose worker dies `engine.retries` times more is recorded as failed.
    Raises InputError when the engine itself is gone.
    """
    waiting = deque(lots)
    while waiting:
        for point, reason in _run_together(waiting, engine, record):
            record([_run_alone(point, engine, reason)])


def _run_together(waiting: deque[Lot], engine: Engine, record: Record) -> list[tuple[Point, str]]:
    """Run `waiting` until all is done or a worker died; the points lost with it, and why."""
    running: dict[Future[list[PointResult]], Lot] = {}
    lost: list[tuple[Point, str]] = []
    while running or (waiting and not lost):
        while waiting and not lost and len(running) < engine.width:
            lot = waiting.popleft()
            running[engine.submit(lot)] = lot
        finished = []
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            lot = running.pop(future)
            error = CancelledError("cancelled") if future.cancelled() else future.exception()
            if error is None:
                results = future.result()
                finished += results
                if len(results) < len(lot):
                    waiting.appendleft(lot[len(results) :])
            elif isinstance(error, engine.lost):
                lost += [(point, str(error)) for point in lot]
            else:
                line = " ".join(f"{type(error).__name__}: {error}".split())
                raise InputError(f"the workers cannot go on ({line}); --resume runs the rest")
        if finished:  # none where all of their workers died
            record(finished)
    return sorted(lost, key=lambda lost_point: lost_point[0].number)


def _run_alone(point: Point, engine: Engine, reason: str) -> PointResult:
    for _ in range(engine.retries):
        future = engine.submit([point])
        if not isinstance(future.exception(), engine.lost):
            return future.result()[0]
        reason = str(future.exception())
    reason_words = f"its worker died {1 + engine.retries} times: {' '.join(reason.split())}"
    return PointResult(number=point.number, status=FAILED, error=reason_words)
