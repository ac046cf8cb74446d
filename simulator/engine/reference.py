"""The discrete-event engine: TaskGraph, Cluster -> Timeline, on SimPy.

One process per device, one for the network. At every instant all endings come first; then the network process
starts what has become ready, so that which of two simultaneous endings came first never matters.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Generator
from functools import partial
from heapq import heappop, heappush
from math import inf

import numpy as np
import simpy
from simpy.events import Event, EventPriority, Timeout

from simulator.cluster import Cluster
from simulator.errors import StuckError
from simulator.network.max_min import ActivityClass, Sharing
from simulator.network.transfers import Transfer, core_seconds, transfers, uncontended_s
from simulator.runtime import IDEAL, Runtime
from simulator.taskgraph import Kind, TaskGraph
from simulator.timeline import Timeline

_LATE = EventPriority(2)
"""SimPy event priority after all ordinary events of the same instant (0 urgent, 1 normal)."""


def simulate(graph: TaskGraph, cluster: Cluster, runtime: Runtime = IDEAL) -> Timeline:
    """Run `graph` on `cluster` as `runtime` does. Same inputs give the same timeline, bit for bit.

    Raises StuckError, naming blocked tasks and what each waits for, when the graph has a cycle.
    """
    run = _Run(graph, cluster, runtime)
    run.environment.run()
    if run.unfinished:
        raise StuckError(_explain(graph, run.start_s, run.end_s))
    return Timeline(start_s=np.array(run.start_s), end_s=np.array(run.end_s))


class _Run:
    def __init__(self, graph: TaskGraph, cluster: Cluster, runtime: Runtime) -> None:
        self.environment = simpy.Environment()
        self.unfinished = len(graph)
        self.start_s: list[float] = [inf] * len(graph)
        self.end_s: list[float] = [inf] * len(graph)
        self._seconds: list[float] = graph.seconds.tolist()
        self._device: list[int] = graph.device.tolist()
        self._priority: list[int] = graph.priority.tolist()
        self._waits: list[int] = np.diff(graph.dependency_start).tolist()
        starts, successors = graph.successors()
        self._first: list[int] = starts.tolist()
        self._successors: list[int] = successors.tolist()
        self._transfers: list[Transfer | None] = transfers(graph, cluster)
        self._ready_transfers: list[int] = []
        self._ready: list[list[tuple[int, int]]] = [[] for _ in cluster.devices]
        self._woken: set[int] = set()
        self._idle: list[Event | None] = [None] * len(cluster.devices)
        self._wake: Event | None = None
        self._setup_sharing(graph, cluster, runtime)
        for device in range(len(cluster.devices)):
            self.environment.process(self._run_device(device))
        self.environment.process(self._run_network())
        for task in range(len(graph)):
            if not self._waits[task]:
                self._make_ready(task)

    def _setup_sharing(self, graph: TaskGraph, cluster: Cluster, runtime: Runtime) -> None:
        """Links are resources; so are the cores of hosts that have fewer than devices, or whose transfers use them."""
        self._core_seconds = core_seconds(graph, cluster, runtime)
        costly = any(self._core_seconds)
        hosts = [host for host, cores in cluster.host_cores.items() if costly or cores < _devices_on(cluster, host)]
        capacities = [link.bandwidth_bytes_per_s for link in cluster.links]
        self._sharing = Sharing(capacities + [cluster.host_cores[host] for host in hosts])
        slowed = runtime.overlap_slowdown > 1
        self._slow_rate = 1 / runtime.overlap_slowdown
        self._compute: list[ActivityClass | None] = []
        for device in cluster.devices:
            weights = {len(capacities) + hosts.index(device.host): 1.0} if device.host in hosts else {}
            self._compute.append(ActivityClass(weights, cap=1.0) if weights or slowed else None)
        self._in_flight = [0] * len(cluster.devices)
        self._slowed_devices = [route.devices if slowed else () for route in graph.routes]
        self._route: list[int] = graph.route.tolist()
        self._finished: dict[int, Event] = {}
        self._busy_latency_s, self._routes = runtime.busy_latency_s, graph.routes
        host = [device.host for device in cluster.devices]
        self._neighbours = [
            [other for other in range(len(host)) if host[other] == mine and mine in cluster.host_cores] for mine in host
        ]
        self._turns: dict[int, None] = {}
        self._bytes: list[float] = graph.bytes.tolist()
        self._meets = bool((graph.kind == Kind.READY).any())
        self._lines: dict[tuple[int, int], deque[int]] = defaultdict(deque)
        self._alone_s: list[float] = uncontended_s(graph, cluster) if costly else []
        self._parts: dict[int, int] = {}
        self._core_work: dict[int, int] = {}

    def _run_device(self, device: int) -> Generator[Event, int, None]:
        """Run one task at a time, the one that the network process hands over."""
        environment, kind = self.environment, self._compute[device]
        while True:
            self._idle[device] = given = environment.event()
            if self._ready[device]:
                self._wake_up(device)
            elif self._turns:
                self._request_wake()
            task = yield given
            self.start_s[task] = environment.now
            if kind is None:
                yield Timeout(environment, self._seconds[task])
            else:
                self._finished[task] = finished = environment.event()
                self._sharing.join(kind, task, self._seconds[task], environment.now)
                self._request_wake()
                yield finished
            self._complete(task)

    def _run_network(self) -> Generator[Event, None, None]:
        """After every instant's endings: end due activities, start what is ready, share capacities anew."""
        environment, sharing = self.environment, self._sharing
        while True:
            due_s = sharing.refresh(environment.now)
            self._wake = wake = environment.event()
            if due_s < inf:
                timer = Timeout(environment, max(due_s - environment.now, 0.0))
                timer.callbacks.append(partial(self._on_timer, wake))
            if self._ready_transfers or self._woken:
                self._request_wake()
            yield wake
            for task in sharing.finish(environment.now):
                self._end_activity(task)
            ready, self._ready_transfers = self._ready_transfers, []
            for task in sorted(ready):
                self._start_transfer(task)
            for device in sorted(self._woken):
                self._dispatch(device)
            self._woken.clear()
            for task in [task for task in self._turns if not self._busy_share(task)]:
                self._take_turn(task)

    def _on_timer(self, wake: Event, _: Event) -> None:
        if wake is self._wake:
            self._request_wake()

    def _request_wake(self) -> None:
        """Let the network process run once all events of this instant are done."""
        wake = self._wake
        if wake is not None:
            self._wake = None
            wake._ok, wake._value = True, None
            self.environment.schedule(wake, priority=_LATE)

    def _wake_up(self, device: int) -> None:
        self._woken.add(device)
        self._request_wake()

    def _dispatch(self, device: int) -> None:
        idle = self._idle[device]
        if idle is not None and self._ready[device]:
            self._idle[device] = None
            idle.succeed(heappop(self._ready[device])[1])

    def _make_ready(self, task: int) -> None:
        if self._transfers[task] is not None:
            self._ready_transfers.append(task)
            self._request_wake()
        else:
            device = self._device[task]
            heappush(self._ready[device], (self._priority[task], task))
            if self._idle[device] is not None:
                self._wake_up(device)

    def _start_transfer(self, task: int) -> None:
        """Begin; where messages meet their receivers, one after the other from each device to another."""
        if self._meets and len(pairs := self._routes[self._route[task]].pairs) == 1:
            line = self._lines[pairs[0]]
            line.append(task)
            if len(line) > 1:
                return
        self._begin_transfer(task)

    def _begin_transfer(self, task: int) -> None:
        """Wait for the turn and the latency, then share the links with the transfers active at that moment."""
        self.start_s[task] = self.environment.now
        self._count_in_flight(task, 1)
        self._parts[task] = 1
        if self._alone_s:
            self._start_core_work(task)
        share = self._busy_share(task) if self._busy_latency_s else 0.0
        if share:
            self._turns[task] = None
            turn_s = self._routes[self._route[task]].rounds * self._busy_latency_s * share
            timer = Timeout(self.environment, turn_s)
            timer.callbacks.append(lambda _: self._take_turn(task))
        else:
            self._after_turn(task)

    def _busy_share(self, task: int) -> float:
        """The part that computes of the devices on a transfer's hosts, on average over its ends.

        Where messages meet their receivers, words are for free.
        """
        if self._meets and not self._bytes[task]:
            return 0.0
        ends = [self._neighbours[device] for device in self._routes[self._route[task]].devices]
        return sum(sum(map(self._computes, end)) / len(end) for end in ends if end) / len(ends)

    def _computes(self, device: int) -> bool:
        return self._idle[device] is None or bool(self._ready[device])

    def _take_turn(self, task: int) -> None:
        """Go on with a transfer once: when it has waited long enough, or earlier, when nothing computes any more."""
        if task in self._turns:
            del self._turns[task]
            self._after_turn(task)
            self._request_wake()

    def _after_turn(self, task: int) -> None:
        transfer = self._transfers[task]
        assert transfer is not None
        if transfer.delay_s > 0 or transfer.kind is None:
            timer = Timeout(self.environment, transfer.delay_s)
            timer.callbacks.append(partial(self._after_delay, task, transfer))
        else:
            self._sharing.join(transfer.kind, task, transfer.work, self.environment.now)

    def _start_core_work(self, task: int) -> None:
        """What a transfer computes at its ends is an activity on their cores, at the pace that the links allow."""
        for device, cost in self._core_seconds[self._route[task]].items():
            kind, work = self._compute[device], cost * self._bytes[task]
            if kind is not None and work > 0:
                number = len(self.start_s) + len(self._core_work)
                self._core_work[number] = task
                self._parts[task] += 1
                cap = work / self._alone_s[task] if self._alone_s[task] > 0 else inf
                self._sharing.join(ActivityClass(kind.weights, cap=cap), number, work, self.environment.now)
                self._request_wake()

    def _after_delay(self, task: int, transfer: Transfer, _: Event) -> None:
        if transfer.kind is None:
            self._end_transfer(task)
        else:
            self._sharing.join(transfer.kind, task, transfer.work, self.environment.now)
            self._request_wake()

    def _end_activity(self, task: int) -> None:
        if task in self._finished:
            self._finished.pop(task).succeed()
        else:
            self._end_transfer(self._core_work.get(task, task))

    def _end_transfer(self, task: int) -> None:
        """A transfer has ended when it has on the links and on the cores."""
        self._parts[task] -= 1
        if self._parts[task]:
            return
        self._count_in_flight(task, -1)
        self._complete(task)
        if self._meets and len(pairs := self._routes[self._route[task]].pairs) == 1:
            line = self._lines[pairs[0]]
            line.popleft()
            if line:
                self._begin_transfer(line[0])
                self._request_wake()

    def _count_in_flight(self, task: int, change: int) -> None:
        """Slow the compute of devices that communicate."""
        for device in self._slowed_devices[self._route[task]]:
            self._in_flight[device] += change
            kind = self._compute[device]
            if kind is not None:
                self._sharing.set_cap(kind, self._slow_rate if self._in_flight[device] else 1.0, self.environment.now)
                self._request_wake()

    def _complete(self, task: int) -> None:
        self.end_s[task] = self.environment.now
        self.unfinished -= 1
        waits = self._waits
        for successor in self._successors[self._first[task] : self._first[task + 1]]:
            waits[successor] -= 1
            if not waits[successor]:
                self._make_ready(successor)


def _devices_on(cluster: Cluster, host: str) -> int:
    return sum(device.host == host for device in cluster.devices)


def _explain(graph: TaskGraph, start_s: list[float], end_s: list[float]) -> str:
    """Up to three tasks that never started, with what each waits for."""
    blocked = [task for task in range(len(graph)) if end_s[task] == inf]
    lines = []
    for task in blocked[:3]:
        missing = [int(other) for other in graph.predecessors(task) if end_s[other] == inf]
        waits = ", ".join(graph.describe(other) for other in missing[:3]) or "its device"
        lines.append(f"{graph.describe(task)} waits for {waits}")
    return f"{len(blocked)} of {len(graph)} tasks are blocked, because the graph has a cycle: " + "; ".join(lines)
