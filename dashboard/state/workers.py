"""Worker processes that simulate: work of several lanes, each piece of which can be ended at any moment.

A piece of work that is cancelled, or over its time, takes its process with it; another process is forked for the next.
Where none can be started, the work ends with that sentence, and the next piece tries again.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace

from dashboard.state.caps import searches
from dashboard.state.simulating import Glance, Outcome, Request, stopped
from dashboard.state.worker_process import NotStartedError, WorkerProcess, process_context
from simulator.units import format_time

BUDGET_S = 90.0
"""Seconds after which a simulation is given up."""
SPARED_S = 1.0
"""A cancelled simulation that has run for less is left to end: that costs less than a new process."""
CLICKS, SEARCHES, BACKGROUND = "clicks", "searches", "background"
_POLL_S = 0.02
_NICENESS = {CLICKS: 0, SEARCHES: 6, BACKGROUND: 12}
REST_S = 0.8
"""What runs in the background stands still while clicks are simulated, and for as long after them as drawing takes."""
WAITING, RUNNING, OVER = "waiting", "running", "over"


@dataclass(slots=True, eq=False)
class Simulation:
    """A request on its way to an outcome.

    tabs: who waits for it. progress: what its search last said. best: what its best plan so far comes to. shows: set
    once there is something to show, the best plan so far or the outcome; over: once it has ended.
    """

    request: Request
    lane: str
    tabs: set[str] = field(default_factory=set)
    state: str = WAITING
    progress: str = ""
    best: Outcome | None = None
    asked_s: float = field(default_factory=time.monotonic)
    began_s: float | None = None
    outcome: Outcome | None = None
    glance: Glance | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    shows: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)

    def end(self) -> None:
        """What it came to is known; whoever waits goes on."""
        self.state = OVER
        self.over.set()
        self.shows.set()

    @property
    def words(self) -> str:
        """What goes on, e.g. "searching a hypergraph plan, 12 s, best so far 9.4 s"."""
        strategy = self.request.configuration.strategy
        what = f"searching a {strategy} plan" if searches(strategy) else "simulating"
        if self.state == WAITING:
            return f"{what}: waiting for its turn"
        seconds = time.monotonic() - (self.began_s or self.asked_s)
        best = self.progress.partition(", best ")[2].partition(",")[0]
        return f"{what}, {seconds:.0f} s" + (f", best so far {best}" if best else "")


class Workers:
    """Lanes of processes. Safe to use from several threads."""

    def __init__(self, widths: dict[str, int] | None = None, budget_s: float = BUDGET_S) -> None:
        """widths: processes of each lane, by default two for clicks and one for each other lane.

        Clicks come before searches, and these before what runs in the background, by the processes' niceness.
        """
        self.budget_s = budget_s
        self._context = process_context()
        self._waiting: dict[str, list[Simulation]] = {lane: [] for lane in _NICENESS}
        self._changed = threading.Condition()
        self._closed = False
        self._clicks, self._clicked_s = 0, -REST_S
        widths = widths or {CLICKS: 2, SEARCHES: 1, BACKGROUND: 1}
        self._threads = [
            threading.Thread(target=self._serve, args=(lane,), daemon=True, name=f"{lane}-{i}")
            for lane, width in widths.items() for i in range(width)
        ]  # fmt: skip
        for thread in self._threads:
            thread.start()

    def submit(self, job: Simulation) -> None:
        """Queue a job."""
        with self._changed:
            self._waiting[job.lane].append(job)
            self._clicks += job.lane == CLICKS
            self._changed.notify_all()

    def close(self) -> None:
        """End every process."""
        with self._changed:
            self._closed = True
            for job in [job for jobs in self._waiting.values() for job in jobs]:
                job.cancelled.set()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout=5)

    def _serve(self, lane: str) -> None:
        process: WorkerProcess | None = None
        if lane != BACKGROUND:  # these start at once, so that nobody waits for what a new process imports
            with suppress(NotStartedError):  # which the first job meets again, and says
                process = WorkerProcess(self._context, _NICENESS[lane])
        while (job := self._next(lane)) is not None:
            if job.cancelled.is_set():
                _end(job, "cancelled", final=False)
            else:
                job.state, job.began_s = RUNNING, time.monotonic()
                process = self._served(job, process)
            if lane == CLICKS:
                with self._changed:
                    self._clicks, self._clicked_s = self._clicks - 1, time.monotonic()
        if process is not None:
            process.kill()

    def _next(self, lane: str) -> Simulation | None:
        with self._changed:
            while not self._waiting[lane] and not self._closed:
                self._changed.wait()
            return None if self._closed else self._waiting[lane].pop(0)

    def _served(self, job: Simulation, process: WorkerProcess | None) -> WorkerProcess | None:
        """Let `process` run a job, a new one where there is none; the process where it can be used again."""
        try:
            process = process or WorkerProcess(self._context, _NICENESS[job.lane])
            if not self._started(job, process) or self._run(job, process):
                return process
        except NotStartedError as error:
            _end(job, f"given up (no worker process starts here: {error}; another request tries again)", final=False)
        if process is not None:
            process.kill()
        return None

    def _started(self, job: Simulation, process: WorkerProcess) -> bool:
        """Wait until a new process has started; False where nobody waits for the job any more, whose end spares it."""
        while not process.started(_POLL_S):
            if self._closed or job.cancelled.is_set():
                _end(job, "cancelled", final=False)
                return False
            if not process.alive:
                raise NotStartedError("it ended as it began")
        return True

    def _run(self, job: Simulation, process: WorkerProcess) -> bool:
        """Whether the process can be used again."""
        try:
            job.began_s = time.monotonic()
            process.send(job.request)
            while self._patient(job, process):
                kind, content = process.receive()
                if kind == "progress":
                    job.progress = content
                elif kind == "best":
                    job.best = replace(content, profile=job.request.profile)
                    job.shows.set()
                elif kind == "failed":
                    raise EOFError(content)
                else:
                    outcome, job.glance = content
                    job.outcome = None if outcome is None else replace(outcome, profile=job.request.profile)
                    job.end()
                    return True
        except Exception as error:  # of the process, the pipe or what goes through it: the lane goes on
            why = f"ended by the machine{f' ({error})' if str(error) else ''}"
            _end(job, why, final=True)
        return False

    def _patient(self, job: Simulation, process: WorkerProcess) -> bool:
        """Wait for the next word of a worker; False where the job's time is over or nobody waits for it any more."""
        assert job.began_s is not None
        while not process.pipe.poll(_POLL_S):
            clicking = self._clicks > 0 or time.monotonic() < self._clicked_s + REST_S
            if job.lane == BACKGROUND and process.rest(clicking):
                job.began_s += _POLL_S  # this is not its time
            ran_s = time.monotonic() - job.began_s
            if ran_s > self.budget_s:
                rule = f"this page gives a search {format_time(self.budget_s)}"
                _end(job, f"given up ({rule}: take fewer devices or less effort, or the command)", final=True)
                return False
            if self._closed or (job.cancelled.is_set() and ran_s > SPARED_S):
                _end(job, "cancelled", final=False)
                return False
            if not process.alive:
                raise EOFError
        return True


def _end(job: Simulation, why: str, *, final: bool) -> None:
    """End a job without a run. final: asking again would end in the same way, so the answer is kept."""
    outcome = stopped(job.request, why, time.monotonic() - (job.began_s or job.asked_s))
    job.outcome, job.glance = outcome, Glance(configuration=outcome.configuration, reason=outcome.reason)
    if final:
        job.cancelled.clear()
    else:
        job.cancelled.set()
    job.end()
