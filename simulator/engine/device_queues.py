"""The tasks that are ready on each device, and which devices are idle."""

from __future__ import annotations

from heapq import heappop, heappush

from simpy.events import Event

from simulator.engine.columns import Columns
from simulator.engine.run_context import RunContext


class DeviceQueues:
    """A device takes its ready task of the smallest (priority, index), and runs it once its host has launched it."""

    def __init__(self, run: RunContext) -> None:
        columns: Columns = run.columns
        self.woken: set[int] = set()
        self._run = run
        self._device, self._priority = columns.device.tolist(), columns.priority.tolist()
        self._ready: list[list[tuple[int, int]]] = [[] for _ in range(columns.devices)]
        self._idle: list[Event | None] = [None] * columns.devices
        self._launch_s, self._host_waits = columns.launch_s.tolist(), columns.host_waits.tolist()
        self._launched_s = [0.0] * columns.devices

    def idle(self, device: int) -> Event:
        """The event that hands `device` its next task."""
        self._idle[device] = handed = self._run.environment.event()
        if self._ready[device]:
            self._wake(device)
        return handed

    def add(self, task: int) -> None:
        """`task` is ready."""
        device = self._device[task]
        heappush(self._ready[device], (self._priority[task], task))
        if self._idle[device] is not None:
            self._wake(device)

    def computes(self, device: int) -> bool:
        """Whether `device` runs a task or has one ready."""
        return self._idle[device] is None or bool(self._ready[device])

    def hand_over(self) -> None:
        """Give every idle device that has been woken its next task, which starts once it is launched."""
        for device in sorted(self.woken):
            idle = self._idle[device]
            if idle is not None and self._ready[device]:
                self._idle[device] = None
                _, task = heappop(self._ready[device])
                idle._ok, idle._value = True, task
                self._run.environment.schedule(idle, delay=self._launch_wait_s(device, task))
        self.woken.clear()

    def _launch_wait_s(self, device: int, task: int) -> float:
        """How long a device that takes `task` now waits until its host has launched it."""
        if not self._launch_s:
            return 0.0
        if self._host_waits[task]:
            self._launched_s[device] = max(self._launched_s[device], self._run.now_s)
        self._launched_s[device] += self._launch_s[task]
        return max(self._launched_s[device] - self._run.now_s, 0.0)

    def _wake(self, device: int) -> None:
        self.woken.add(device)
        self._run.wake_network()
