"""What a transfer goes through in the reference engine: line, turn, latency, links and cores.

Lines, turns, core work and slowed compute exist only where the runtime asks for them.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from math import inf

from simulator.engine.run_context import RunContext
from simulator.network.max_min import ActivityClass


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


class RendezvousLines:
    """Transfers of one pair of devices, in the order in which they became ready."""

    def __init__(self, run: RunContext) -> None:
        self._route, self._line = run.columns.route.tolist(), run.columns.line.tolist()
        self._lines: dict[int, deque[int]] = defaultdict(deque)

    def enter(self, task: int) -> bool:
        """Whether `task` may begin at once."""
        number = self._line[self._route[task]]
        if number < 0:
            return True
        line = self._lines[number]
        line.append(task)
        return len(line) == 1

    def leave(self, task: int) -> int | None:
        """`task` has ended; who begins next."""
        number = self._line[self._route[task]]
        if number < 0:
            return None
        line = self._lines[number]
        line.popleft()
        return line[0] if line else None


class Overlap:
    """How many transfers each device takes part in, and the rate, slower while there are any, at which it computes."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._route, self._touched = run.columns.route.tolist(), run.columns.touched.lists()
        self._in_flight = [0] * run.columns.devices

    def count(self, task: int, change: int) -> None:
        """Transfer `task` begins (change 1) or has ended (-1)."""
        run = self._run
        for device in self._touched[self._route[task]]:
            self._in_flight[device] += change
            rate = run.columns.overlap_rate if self._in_flight[device] else 1.0
            run.sharing.set_cap(run.classes[run.columns.routes + device], rate, run.now_s)
            run.wake_network()


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
