"""A worker process: how it starts, what goes through its pipe, how it rests and ends."""

from __future__ import annotations

import multiprocessing
import multiprocessing.util
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from multiprocessing.connection import Connection
from typing import Any, cast

from dashboard.state.simulating import Outcome, Request, simulated
from simulator.owned_files import folder_prefix
from simulator.sweep.engines import become_worker
from simulator.workload import Profile

Answer = Callable[[Request, Connection], tuple[str, Any]]
"""From a request to the last word on it; words before that go through the connection."""


class NotStartedError(Exception):
    """No worker process could start; says why."""


class WorkerProcess:
    """A process and the pipe to it, through which every profile goes once."""

    def __init__(self, context: Any, niceness: int, answer: Answer | None = None) -> None:
        """context: of multiprocessing. answer: what it does with a request, by default `_simulate`.

        Raises NotStartedError, for one where the machine has no room for it.
        """
        try:
            self.pipe, other = context.Pipe()
            try:
                self._process = context.Process(target=_work, args=(other, niceness, answer or _simulate), daemon=True)
                self._process.start()
            except BaseException:
                self.pipe.close()
                raise
            finally:
                other.close()
        except Exception as error:  # of the system, or of the process that it is forked from
            raise NotStartedError(str(error) or type(error).__name__) from error
        self._profiles: set[str] = set()
        self._rests = False
        self.ready = False

    @property
    def alive(self) -> bool:
        alive: bool = self._process.is_alive()
        return alive

    def started(self, within_s: float) -> bool:
        """Wait for its first word at most so long; whether it was said. Raises NotStartedError where it has ended."""
        try:
            if not self.ready and self.pipe.poll(within_s):
                self.receive()
                self.ready = True
        except (EOFError, OSError):
            raise NotStartedError("it ended as it began") from None
        return self.ready

    def send(self, request: Request) -> None:
        self.rest(False)  # who stands still reads nothing, and a pipe does not hold a whole profile
        key = request.configuration.profile
        self.pipe.send(_without_profile(request) if key in self._profiles else request)
        self._profiles.add(key)

    def receive(self) -> tuple[str, Any]:
        self.rest(False)  # it may have been stopped amid what it says
        kind, content = self.pipe.recv()
        return kind, content

    def rest(self, rests: bool) -> bool:
        """Let the process stand still, or go on; whether it stands still."""
        if rests != self._rests and hasattr(signal, "SIGSTOP"):
            os.kill(self._process.pid, signal.SIGSTOP if rests else signal.SIGCONT)
            self._rests = rests
        return self._rests

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self.pipe.close()


@cache
def process_context() -> Any:
    """A context in which processes start quickly: forked from one that has simulated before, where there is that.

    Its socket lies in a folder with an owner, so that what a killed server leaves is removed by the next.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    folder, usual = tempfile.mkdtemp(prefix=folder_prefix()), tempfile.tempdir
    multiprocessing.util.Finalize(None, shutil.rmtree, args=(folder, True), exitpriority=-101)  # after what is in it
    tempfile.tempdir = folder
    multiprocessing.util.get_temp_dir()
    tempfile.tempdir = usual
    context.set_forkserver_preload(["dashboard.state.warm", "partitioners.hypergraph"])
    return context


def _without_profile(part: Request | Outcome) -> Any:
    """What goes through a pipe to where the profile is known: it takes longer to send than all the rest."""
    return replace(part, profile=cast(Profile, None))


def _work(pipe: Connection, niceness: int, answer: Answer) -> None:
    """The life of a worker process: requests in, outcomes out, until the other end is gone."""
    become_worker()
    os.nice(niceness)
    profiles: dict[str, Profile] = {}
    pipe.send(("ready", None))
    while True:
        try:
            request = pipe.recv()
        except EOFError:
            return
        try:
            profile = profiles.setdefault(request.configuration.profile, request.profile)
            last = answer(replace(request, profile=profile), pipe)
        except Exception as error:  # whatever a plan that nobody foresaw does
            last = "failed", f"{type(error).__name__}: {error}"
        pipe.send(last)


def _simulate(request: Request, pipe: Connection) -> tuple[str, Any]:
    outcome, glance = simulated(
        request,
        lambda words: pipe.send(("progress", words)),
        lambda best: pipe.send(("best", _without_profile(best))),
    )
    return "done", (outcome and _without_profile(outcome), glance)
