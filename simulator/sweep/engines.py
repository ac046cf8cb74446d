"""Where points run: processes of this machine, or Dask workers. Both give futures of what `evaluate_some` returns."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol

from simulator.errors import InputError, needing
from simulator.sweep.evaluate import PointResult, SweepContext, evaluate_some
from simulator.sweep.points import Point
from simulator.version import version

CONNECT_S = 5.0


class Engine(Protocol):
    """Runs points, `width` lots of them in flight.

    A future that raises one of `lost` means that its worker died; `retries`: how often to try such a point again.
    """

    width: int
    retries: int
    lost: tuple[type[BaseException], ...]

    def submit(self, points: Sequence[Point]) -> Future[list[PointResult]]:
        """Run the first of `points`, one at least, on one of the workers."""

    def close(self) -> None:
        """End the workers; what has not started is cancelled."""


class Processes:
    """A pool of `jobs` processes, each started afresh (spawned) and given the context once."""

    retries = 2
    lost: tuple[type[BaseException], ...] = (BrokenProcessPool,)

    def __init__(self, context: SweepContext, jobs: int) -> None:
        self._context, self._jobs, self.width = context, jobs, 2 * jobs
        self._pool = self._start()

    def submit(self, points: Sequence[Point]) -> Future[list[PointResult]]:
        try:
            return self._pool.submit(_evaluate_here, points)
        except BrokenProcessPool:  # one dead process breaks all of the pool
            self.close()
            self._pool = self._start()
            return self._pool.submit(_evaluate_here, points)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _start(self) -> ProcessPoolExecutor:
        spawn = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self._jobs, mp_context=spawn, initializer=_set_up, initargs=(self._context,))


class Dask:
    """The workers of a Dask scheduler, at `address` or, when it is None, `jobs` local processes.

    Dask itself runs a point again elsewhere when its worker dies, and gives up after its `allowed-failures`.
    """

    retries = 0

    def __init__(self, context: SweepContext, address: str | None, jobs: int) -> None:
        with needing("dask", "--scheduler", module="distributed"):
            distributed: Any = importlib.import_module("distributed")
        import dask

        self.lost: tuple[type[BaseException], ...] = (distributed.KilledWorker,)
        dask.config.set({"distributed.scheduler.allowed-failures": Processes.retries})
        one_thread = {"n_workers": jobs, "threads_per_worker": 1, "dashboard_address": None}
        self._local = None if address else distributed.LocalCluster(**one_thread)
        try:
            self._client = distributed.Client(address or self._local, timeout=CONNECT_S)
        except (OSError, ValueError) as error:
            problem = str(error).splitlines()[0]
            raise InputError(
                f"scheduler {address} does not answer ({problem}); start one with: dask scheduler"
            ) from None
        try:
            self._check_workers(address, context.version)
        except InputError:
            self.close()
            raise
        self.width = 4 * sum(self._client.nthreads().values())
        self._context = self._client.scatter(context, broadcast=True, hash=False)
        self._executor = self._client.get_executor(pure=False)

    def _check_workers(self, address: str | None, wanted: str) -> None:
        """Raise InputError unless there are workers, and all and the scheduler have this version of Shardscope."""
        try:
            versions = {"scheduler": self._client.run_on_scheduler(version), **self._client.run(version)}
        except Exception as error:  # whatever a machine without Shardscope says
            raise InputError(f"scheduler {address} or a worker lacks Shardscope ({error}); install it there") from None
        if len(versions) == 1:
            raise InputError(f"scheduler {address} has no workers; start one with: dask worker {address}")
        for worker, worker_version in versions.items():
            if worker_version != wanted:
                raise InputError(f"{worker} has Shardscope {worker_version}, here it is {wanted}; install the same")

    def submit(self, points: Sequence[Point]) -> Future[list[PointResult]]:
        future: Future[list[PointResult]] = self._executor.submit(evaluate_some, self._context, points)
        return future

    def close(self) -> None:
        self._client.close()
        if self._local is not None:
            self._local.close()


_here: list[SweepContext] = []


def _set_up(context: SweepContext) -> None:
    become_worker()
    _here[:] = [context]


def become_worker() -> None:
    """Leave Ctrl-C to the process that started this one, and end when that was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent,), daemon=True).start()


def _end_after(parent: Any) -> None:
    parent.join()
    os._exit(1)


def _evaluate_here(points: Sequence[Point]) -> list[PointResult]:
    return evaluate_some(_here[0], points)
