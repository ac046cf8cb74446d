"""The reference engine, on SimPy: one process per device, one for the network.

At every instant all endings come first; then the network process starts what has become ready, so that which of
two simultaneous endings came first never matters.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from math import inf

import numpy as np
from simpy.events import Event, EventPriority, Timeout

from simulator.engine.columns import Columns, Ragged
from simulator.engine.device_queues import DeviceQueues
from simulator.engine.run_context import RunContext
from simulator.engine.transfer_steps import TransferSteps
from simulator.taskgraph import Floats, turned_round

_LATE = EventPriority(2)
"""SimPy event priority after all ordinary events of the same instant (0 urgent, 1 normal)."""


def run_reference(columns: Columns) -> tuple[Floats, Floats]:
    """Start and end of every task in seconds; infinite where a task never started or ended."""
    run = Loop(columns).run
    run.environment.run()
    return np.array(run.start_s, dtype=np.float64), np.array(run.end_s, dtype=np.float64)


class Loop:
    """Devices run the tasks that they are handed; the network process hands them out and shares capacities."""

    def __init__(self, columns: Columns) -> None:
        self.run = run = RunContext.of(columns, self._wake_network)
        self._seconds, self._class = columns.delay_s.tolist(), columns.activity_class.tolist()
        self._is_transfer, self._waits = (columns.route >= 0).tolist(), np.diff(columns.dependency_start).tolist()
        start, waiting = turned_round(columns.dependency_start, columns.dependencies)
        self._successors = Ragged(start=start, values=waiting).lists()
        self._computed: dict[int, Event] = {}
        self._wake: Event | None = None
        self._queues = DeviceQueues(run)
        self._transfers = TransferSteps(run, self._queues.computes, self._complete)
        for device in range(columns.devices):
            run.environment.process(self._run_device(device))
        run.environment.process(self._run_network())
        for task in np.flatnonzero(np.diff(columns.dependency_start) == 0).tolist():
            self._make_ready(task)

    def _run_device(self, device: int) -> Generator[Event, int, None]:
        """Run one task at a time, the one that the network process hands over."""
        run, environment = self.run, self.run.environment
        while True:
            handed = self._queues.idle(device)
            if self._transfers.awaits_turn:
                self._wake_network()
            task = yield handed
            run.start_s[task] = environment.now
            if self._class[task] < 0:
                yield Timeout(environment, self._seconds[task])
            else:
                self._computed[task] = computed = environment.event()
                run.join(task)
                self._wake_network()
                yield computed
            self._complete(task)

    def _run_network(self) -> Generator[Event, None, None]:
        """After every instant's endings: end due activities, start what is ready, share capacities anew."""
        environment, sharing, transfers = self.run.environment, self.run.sharing, self._transfers
        while True:
            due_s = sharing.refresh(environment.now)
            self._wake = wake = environment.event()
            if due_s < inf:
                timer = Timeout(environment, max(due_s - environment.now, 0.0))
                timer.callbacks.append(partial(self._on_timer, wake))
            if transfers.ready or self._queues.woken:
                self._wake_network()
            yield wake
            for activity in sharing.finish(environment.now):
                if activity in self._computed:
                    self._computed.pop(activity).succeed()
                else:
                    transfers.end_activity(activity)
            transfers.start_ready()
            self._queues.hand_over()
            transfers.release_turns()

    def _on_timer(self, wake: Event, _: Event) -> None:
        if wake is self._wake:
            self._wake_network()

    def _wake_network(self) -> None:
        """Let the network process run once all events of this instant are done."""
        wake, self._wake = self._wake, None
        if wake is not None:
            wake._ok, wake._value = True, None
            self.run.environment.schedule(wake, priority=_LATE)

    def _make_ready(self, task: int) -> None:
        if self._is_transfer[task]:
            self._transfers.ready.append(task)
            self._wake_network()
        else:
            self._queues.add(task)

    def _complete(self, task: int) -> None:
        """`task` has ended; make ready what waited for nothing else."""
        self.run.end_s[task] = self.run.now_s
        for successor in self._successors[task]:
            self._waits[successor] -= 1
            if not self._waits[successor]:
                self._make_ready(successor)
