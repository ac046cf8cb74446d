"""What a transfer computes at its ends: activities on the cores of their hosts, at the pace that the links allow."""

from __future__ import annotations

from math import inf

from simulator.engine.run_context import RunContext
from simulator.network.max_min import ActivityClass


class CoreWork:
    """Core activities are numbered on from the tasks, in the order in which they begin."""

    def __init__(self, run: RunContext) -> None:
        columns = run.columns
        self._run = run
        self._route, self._bytes, self._alone_s = columns.route, columns.bytes.tolist(), columns.alone_s.tolist()
        self._first = columns.core_start.tolist()
        self._costs = list(zip(columns.core_device.tolist(), columns.core_s_per_byte.tolist(), strict=True))
        self._task: dict[int, int] = {}
        self._parts: dict[int, int] = {}

    def begin(self, task: int) -> None:
        """Start what transfer `task` computes at its ends."""
        run, route = self._run, int(self._route[task])
        self._parts[task] = 1
        for device, cost in self._costs[self._first[route] : self._first[route + 1]]:
            work = cost * self._bytes[task]
            if work > 0:
                number = len(run.columns) + len(self._task)
                self._task[number] = task
                self._parts[task] += 1
                cap = work / self._alone_s[task] if self._alone_s[task] > 0 else inf
                kind = ActivityClass(run.classes[run.columns.routes + device].weights, cap=cap)
                run.sharing.join(kind, number, work, run.now_s)
                run.wake_network()

    def task(self, activity: int) -> int:
        """The transfer that `activity` belongs to."""
        return self._task.get(activity, activity)

    def end_part(self, task: int) -> bool:
        """The links or a core are done with `task`; whether that was the last part."""
        self._parts[task] -= 1
        return self._parts[task] == 0
