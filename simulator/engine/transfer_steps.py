"""What a transfer goes through in the reference engine: line, turn, latency, links and cores.

Lines, turns, core work and slowed compute exist only where the runtime asks for them.
"""

from __future__ import annotations

from collections.abc import Callable

from simulator.engine.busy_hosts import BusyHosts
from simulator.engine.core_work import CoreWork
from simulator.engine.overlap import Overlap
from simulator.engine.rendezvous_lines import RendezvousLines
from simulator.engine.run_context import RunContext


class TransferSteps:
    """start -> (line) -> begin -> (turn) -> latency -> links -> end; (core work) beside all that follows begin."""

    def __init__(self, run: RunContext, computes: Callable[[int], bool], complete: Callable[[int], None]) -> None:
        columns = run.columns
        self.ready: list[int] = []
        self._run, self._complete = run, complete
        self._class, self._delay_s = columns.activity_class.tolist(), columns.delay_s.tolist()
        self._lines = RendezvousLines(run) if len(columns.line) else None
        self._overlap = Overlap(run) if columns.overlap_rate < 1 else None
        self._cores = CoreWork(run) if len(columns.core_device) else None
        self._busy = BusyHosts(run, computes, self._wait_latency) if len(columns.turn_s) else None

    @property
    def awaits_turn(self) -> bool:
        """Whether any transfer waits for its turn."""
        return self._busy is not None and bool(self._busy.waiting)

    def start_ready(self) -> None:
        """Start the transfers that have become ready, in order of index."""
        ready, self.ready = self.ready, []
        for task in sorted(ready):
            if self._lines is None or self._lines.enter(task):
                self._begin(task)

    def release_turns(self) -> None:
        """End the turns for which nobody has to wait any more."""
        if self._busy:
            self._busy.release()

    def end_activity(self, activity: int) -> None:
        """Work on links, or on a core, is done."""
        self._end_part(self._cores.task(activity) if self._cores else activity)

    def _begin(self, task: int) -> None:
        self._run.start_s[task] = self._run.now_s
        if self._overlap:
            self._overlap.count(task, 1)
        if self._cores:
            self._cores.begin(task)
        if self._busy:
            self._busy.begin(task)
        else:
            self._wait_latency(task)

    def _wait_latency(self, task: int) -> None:
        """Wait for the latency, then share the links with the transfers active at that moment."""
        if self._delay_s[task] > 0 or self._class[task] < 0:
            self._run.call_after(self._delay_s[task], self._use_links, task)
        else:
            self._run.join(task)

    def _use_links(self, task: int) -> None:
        if self._class[task] < 0:
            self._end_part(task)
        else:
            self._run.join(task)
            self._run.wake_network()

    def _end_part(self, task: int) -> None:
        """A transfer has ended when it has on the links and on the cores."""
        if self._cores and not self._cores.end_part(task):
            return
        if self._overlap:
            self._overlap.count(task, -1)
        self._complete(task)
        following = self._lines.leave(task) if self._lines else None
        if following is not None:
            self._begin(following)
            self._run.wake_network()
