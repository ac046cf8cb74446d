"""Run points on an engine and hand over what comes out, as it comes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait

from simulator.sweep.engines import Engine
from simulator.sweep.evaluate import FAILED, Outcome
from simulator.sweep.points import Point

Record = Callable[[list[Outcome]], None]


def run_points(points: Iterable[Point], engine: Engine, record: Record) -> None:
    """Run all `points`; `record` is given the outcomes of those that ended, a few at a time.

    When a worker dies, any of the points in flight may be why. Each of them then runs again alone, and one
    whose worker dies `engine.retries` times more is recorded as failed.
    """
    waiting = deque(points)
    while waiting:
        for point, reason in _run_together(waiting, engine, record):
            record([_run_alone(point, engine, reason)])


def _run_together(waiting: deque[Point], engine: Engine, record: Record) -> list[tuple[Point, str]]:
    """Run `waiting` until all is done or a worker died; the points lost with it, and why."""
    running: dict[Future[Outcome], Point] = {}
    lost: list[tuple[Point, str]] = []
    while running or (waiting and not lost):
        while waiting and not lost and len(running) < engine.width:
            point = waiting.popleft()
            running[engine.submit(point)] = point
        ended = wait(running, return_when=FIRST_COMPLETED).done
        record([future.result() for future in ended if not isinstance(future.exception(), engine.lost)])
        for future in ended:
            point = running.pop(future)
            if isinstance(future.exception(), engine.lost):
                lost.append((point, str(future.exception())))
    return sorted(lost, key=lambda one: one[0].number)


def _run_alone(point: Point, engine: Engine, reason: str) -> Outcome:
    for _ in range(engine.retries):
        future = engine.submit(point)
        if not isinstance(future.exception(), engine.lost):
            return future.result()
        reason = str(future.exception())
    told = f"its worker died {1 + engine.retries} times: {' '.join(reason.split())}"
    return Outcome(number=point.number, status=FAILED, error=told)
