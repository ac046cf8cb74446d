"""Jobs that are asked for one after the other, the next ones done meanwhile by processes forked from this one."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from itertools import chain
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Generic, NoReturn, TypeVar

MOST_PROCESSES = 16
_PR_SET_PDEATHSIG = 1
"""Of prctl(2): the signal that a process gets when the thread that forked it has ended."""

Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(slots=True)
class ForkedWork(Generic[Job, Result]):
    """work(job), whoever did it; a context manager, which ends the processes.

    They have what this process had when it was asked for a second job: jobs and results alone are sent, so `work`
    depends on nothing that changes later. Without other cores, elsewhere than on Linux or in another thread than the
    main one every job is done here.
    """

    work: Callable[[Job], Result]
    upcoming: Callable[[], Iterable[Job]]
    """What may be asked for next, the likeliest first."""
    _: KW_ONLY
    key: Callable[[Job], Hashable] = lambda job: job
    """Jobs with the same key have the same result."""
    processes: int = field(default_factory=lambda: usable_cores())
    _children: list[_Child] | None = None
    _begun: set[Hashable] = field(default_factory=set)
    """Jobs that somebody has done or does."""
    _outcomes: dict[Hashable, tuple[bool, Any]] = field(default_factory=dict)
    """Of jobs that were done ahead: whether they came to an end, and the result, or the error."""

    def __call__(self, job: Job, /) -> Result:
        """The result of a job. Raises what `work` raises."""
        key = self.key(job)
        if not self._begun:
            self._begun.add(key)
            return self.work(job)  # most of what jobs share is worked out by the first
        if self._children is None:
            self._children = [_Child.forked(self.work) for _ in range(self.processes if self.processes > 1 else 0)]
        ahead = chain([job], self.upcoming())
        self._give(ahead)
        while key not in self._outcomes:
            if all(child.key != key for child in self._children):
                self._begun.add(key)
                return self.work(job)  # all are busy with others, or there are none
            self._receive()
            self._give(ahead)
        done, result = self._outcomes.pop(key)
        if not done:
            raise result
        return result  # type: ignore[no-any-return]

    def _give(self, ahead: Iterator[Job]) -> None:
        """Every process without a job the next that nobody has."""
        for child in self._children or ():
            while child.key is None:
                job = next(ahead, None)
                if job is None:
                    return
                key = self.key(job)
                if key not in self._begun:
                    self._begun.add(key)
                    child.key = key
                    child.pipe.send(job)

    def _receive(self) -> None:
        """Wait for one of the processes; what one has that ended is done by nobody."""
        by_pipe = {child.pipe: child for child in self._children or () if child.key is not None}
        for pipe in wait(by_pipe):
            child = by_pipe[pipe]  # type: ignore[index]
            try:
                self._outcomes[child.key] = child.pipe.recv()
                child.key = None
            except (EOFError, OSError):
                child.end()
                self._children = [each for each in self._children or () if each is not child]

    def __enter__(self) -> ForkedWork[Job, Result]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for child in self._children or ():
            child.end()
        self._children = []


@dataclass(slots=True, eq=False)
class _Child:
    """A forked process, and the key of the job that it does."""

    process: int
    pipe: Connection
    key: Hashable = None

    @staticmethod
    def forked(work: Callable[[Any], Any]) -> _Child:
        here, there = Pipe()
        parent = os.getpid()
        with warnings.catch_warnings():  # libraries' threads wait for work, and hold no lock
            warnings.simplefilter("ignore", DeprecationWarning)
            process = os.fork()
        if process == 0:
            here.close()
            _serve(work, there, parent)
        there.close()
        return _Child(process, here)

    def end(self) -> None:
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        self.pipe.close()


def _serve(work: Callable[[Any], Any], pipe: Connection, parent: int) -> NoReturn:
    """The life of a forked process, which leaves Ctrl-C to its parent, ends with it and forks none itself."""
    global MOST_PROCESSES
    MOST_PROCESSES = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        while os.getppid() == parent:
            job = pipe.recv()
            try:
                outcome = True, work(job)
            except Exception as error:  # the parent raises it where it asks for this job
                outcome = False, error
            pipe.send(outcome)
    finally:
        os._exit(0)  # nothing that the parent has begun is ended twice


def usable_cores() -> int:
    """How many processes may be forked from here: 1 where none."""
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return 1
    return min(len(os.sched_getaffinity(0)), MOST_PROCESSES)
