"""Transfers that wait for a turn on hosts whose devices compute."""

from __future__ import annotations

from collections.abc import Callable

from simulator.engine.run_context import RunContext


class BusyHosts:
    """A transfer waits `turn_s` where all devices on its hosts compute, in proportion where only some do.

    A host with a core on which nothing computes makes none wait, and none waits for longer than any of those devices
    computes. Where messages meet their receivers, READY tasks, which carry no bytes, do not wait.
    """

    def __init__(self, run: RunContext, computes: Callable[[int], bool], go_on: Callable[[int], None]) -> None:
        columns = run.columns
        self.waiting: dict[int, None] = {}
        self._run, self._computes, self._go_on = run, computes, go_on
        self._route, self._turn_s, self._bytes = columns.route.tolist(), columns.turn_s.tolist(), columns.bytes.tolist()
        self._touched, self._neighbours = columns.touched.lists(), columns.neighbours.lists()
        self._spare = columns.spare.tolist()
        self._meets = len(columns.line) > 0

    def begin(self, task: int) -> None:
        """Let transfer `task` go on, at once or after its turn."""
        share = self._busy_share(task)
        if share:
            self.waiting[task] = None
            self._run.call_after(self._turn_s[self._route[task]] * share, self._end, task)
        else:
            self._go_on(task)

    def release(self) -> None:
        """Let those go on at whose ends nothing computes any more."""
        for task in [task for task in self.waiting if not self._busy_share(task)]:
            self._end(task)

    def _end(self, task: int) -> None:
        if task in self.waiting:
            del self.waiting[task]
            self._go_on(task)
            self._run.wake_network()

    def _busy_share(self, task: int) -> float:
        """The part that computes of the devices on a transfer's hosts, less those for which there is a core, on average
        over its ends."""
        ends = self._touched[self._route[task]]
        if not ends or (self._meets and not self._bytes[task]):
            return 0.0
        total = 0.0
        for end in ends:
            if neighbours := self._neighbours[end]:
                computing = sum(map(self._computes, neighbours)) - self._spare[end]
                total += max(0, computing) / (len(neighbours) - self._spare[end])
        return total / len(ends)
