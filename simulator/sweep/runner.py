"""Run points on an engine and pass on the results as they arrive."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait

from simulator.errors import InputError
from simulator.sweep.engines import Engine
from simulator.sweep.evaluate import FAILED, PointResult
from simulator.sweep.points import Point

Record = Callable[[list[PointResult]], None]


def run_points(points: Iterable[Point], engine: Engine, record: Record) -> None:
    """Run all `points`; `record` is given the results of those that ended, a few at a time.

    When a worker dies, any of the points in flight may be why. Each of them then runs again alone, and one
    whose worker dies `engine.retries` times more is recorded as failed.
    Raises InputError when the engine itself is gone.
    """
    waiting = deque(points)
    while waiting:
        for point, reason in _run_together(waiting, engine, record):
            record([_run_alone(point, engine, reason)])


def _run_together(waiting: deque[Point], engine: Engine, record: Record) -> list[tuple[Point, str]]:
    """Run `waiting` until all is done or a worker died; the points lost with it, and why."""
    running: dict[Future[PointResult], Point] = {}
    lost: list[tuple[Point, str]] = []
    while running or (waiting and not lost):
        while waiting and not lost and len(running) < engine.width:
            point = waiting.popleft()
            running[engine.submit(point)] = point
        finished = []
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            error, point = _error(future), running.pop(future)
            if error is None:
                finished.append(future.result())
            elif isinstance(error, engine.lost):
                lost.append((point, str(error)))
            else:
                raise InputError(f"the workers cannot go on ({_line(error)}); --resume runs the rest")
        record(finished)
    return sorted(lost, key=lambda lost_point: lost_point[0].number)


def _run_alone(point: Point, engine: Engine, reason: str) -> PointResult:
    for _ in range(engine.retries):
        future = engine.submit(point)
        if not isinstance(future.exception(), engine.lost):
            return future.result()
        reason = str(future.exception())
    reason_words = f"its worker died {1 + engine.retries} times: {' '.join(reason.split())}"
    return PointResult(number=point.number, status=FAILED, error=reason_words)


def _error(future: Future[PointResult]) -> BaseException | None:
    return CancelledError("cancelled") if future.cancelled() else future.exception()


def _line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
