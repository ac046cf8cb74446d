"""What both engines run: TaskGraph, Cluster and Runtime as numpy columns, made once.

Activities (transfers on links, compute tasks on a host's cores) share resources in classes, one per route and then
one per device. A resource is a link, then a host whose cores are shared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf, nan
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.cluster import Cluster
from simulator.engine.graph_checks import LARGEST, check, within
from simulator.kept import Kept
from simulator.network.token_buckets import Shaped
from simulator.network.transfers import Paths, alone_s, demand, link_speeds, paths
from simulator.runtime import Runtime
from simulator.taskgraph import Floats, Ints, Kind, Route, TaskGraph

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ragged:
    """Rows of unequal length: row i is values[start[i] : start[i + 1]]."""

    start: Ints
    values: Ints

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> Ragged:
        listed = list(rows)
        values = [value for row in listed for value in row]
        return cls(start=np.cumsum([0, *map(len, listed)]), values=np.array(values, dtype=np.int64))

    def lists(self) -> list[list[int]]:
        """The rows as lists."""
        bounds, values = self.start.tolist(), self.values.tolist()
        return [values[a:b] for a, b in pairwise(bounds)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """One run. Times in seconds; -1 stands for "none" in index columns.

    A compute task (route -1; only then `device` counts) lasts delay_s, or, if it has an activity class, does `work`
    seconds at that class's rate. A transfer waits delay_s and then does `work` bytes on its class's links; without a
    class it has ended then. Class c uses weight[w] of capacity[resource[w]] per unit of rate, w in
    class_start[c] : class_start[c + 1], and no activity of it is faster than class_cap[c]. shares_cores: whether any
    compute task has a class.

    bytes: of transfers, for which core_s_per_byte counts; of those with token buckets the bytes that find no token.

    What a runtime may ask for besides; a column is empty where it does not:
    launch_s [tasks]: how long a device's host takes to launch a task; host_waits [tasks]: whether it waits with that
    until the device takes the task.
    line [routes]: the rendezvous line of one-pair routes: transfers of a line go one after the other.
    overlap_rate: rate at which a device computes while a transfer touches it (1: no slower).
    touched (by route): devices whose compute a transfer slows, or of whose hosts it waits for a turn.
    turn_s [routes]: the wait where all devices on a transfer's hosts compute; neighbours (by device): who shares its
    host; spare [devices]: how many of them compute before one takes the last core of the host. Transfers without bytes
    have no turn where there are lines.
    core_device, core_s_per_byte (by route, core_start): what transfers compute at their ends; alone_s [tasks]: how
    long a transfer lasts alone, over which its core work is spread.

    kept: what engines work out of the columns that do not depend on the speed of links, for all runs with these.
    """

    device: Ints
    route: Ints
    priority: Ints
    delay_s: Floats
    work: Floats
    bytes: Floats
    activity_class: Ints
    shares_cores: bool
    dependency_start: Ints
    dependencies: Ints
    devices: int
    capacity: Floats
    class_start: Ints
    resource: Ints
    weight: Floats
    class_cap: Floats
    launch_s: Floats
    host_waits: Ints
    line: Ints
    overlap_rate: float
    touched: Ragged
    turn_s: Floats
    neighbours: Ragged
    spare: Ints
    core_start: Ints
    core_device: Ints
    core_s_per_byte: Floats
    alone_s: Floats
    kept: Kept = field(default_factory=Kept, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.device)

    @property
    def routes(self) -> int:
        """How many routes there are; the class of device d is routes + d."""
        return len(self.class_cap) - self.devices

    def shaped(self, buckets: Shaped, rate_bytes_per_s: Floats) -> Columns:
        """The same where transfers find too few tokens; rate_bytes_per_s [routes]: of an uncontended one."""
        contends = np.flatnonzero((self.route >= 0) & (self.activity_class >= 0))
        work, delay_s = self.work.copy(), self.delay_s + buckets.later_s
        work[contends] += buckets.later_s[contends] * rate_bytes_per_s[self.route[contends]]
        delay_s[contends] = self.delay_s[contends]
        alone_s = self.alone_s + buckets.later_s if len(self.alone_s) else self.alone_s
        return replace(self, work=work, delay_s=delay_s, bytes=buckets.paced_bytes, alone_s=alone_s)


def make_columns(graph: TaskGraph, cluster: Cluster, runtime: Runtime) -> Columns:
    """The columns of `graph` on `cluster` under `runtime`. Raises InputError where a value is out of its range.

    What does not depend on how fast links are is kept with the graph, for clusters that differ in that alone.
    """
    graph.kept.get((check, len(cluster.devices)), lambda: check(graph, cluster))
    over = paths(graph.routes, cluster, graph.kept)
    asked = demand(graph, cluster, over)
    bandwidths = link_speeds(cluster).bandwidth_bytes_per_s
    within("bandwidth_bytes_per_s", bandwidths, 0.0, LARGEST)
    uses = _distinct_uses(over, cluster)
    frame = graph.kept.latest(
        (_frame, runtime, uses.tobytes()),
        cluster.ways,
        lambda: _frame(graph, cluster, runtime, over, uses, asked.contends),
    )
    load = over.load[uses]
    on_cores = frame.activity_class >= len(graph.routes)
    return replace(
        frame,
        delay_s=np.where(on_cores, 0.0, asked.delay_s) if frame.shares_cores else asked.delay_s,
        work=np.where(on_cores, graph.seconds, asked.work) if frame.shares_cores else asked.work,
        capacity=np.append(bandwidths, frame.capacity[len(bandwidths) :]),
        weight=np.append(load, frame.weight[len(load) :]),
        class_cap=np.append(over.cap_bytes_per_s, frame.class_cap[len(over.cap_bytes_per_s) :]),
        alone_s=alone_s(graph, over, asked) if len(frame.core_device) else frame.alone_s,
    )


def _distinct_uses(over: Paths, cluster: Cluster) -> Bools:
    """Which crossings of links the engines count, as `over.link`: of links that the same routes use equally often and
    that are equally fast, which are shared equally at any time, the first."""
    speeds = link_speeds(cluster)
    of_link = np.stack([over.users, speeds.bandwidth_bytes_per_s, speeds.message_load])  # (3, links)
    order = np.lexsort(of_link)  # stable: of equal links the first comes first
    begins = np.diff(of_link[:, order], axis=1, prepend=nan).any(axis=0)
    return np.isin(over.link, order[begins])


def _frame(graph: TaskGraph, cluster: Cluster, runtime: Runtime, over: Paths, uses: Bools, contends: Bools) -> Columns:
    """The columns without what depends on the speed of links."""
    core_start, core_device, core_s_per_byte = _core_seconds(graph.routes, cluster, runtime)
    hosts = _shared_hosts(cluster, costly=len(core_device) > 0)
    slowed, busy = runtime.overlap_slowdown > 1, runtime.busy_latency_s > 0
    neighbours = _neighbours(cluster) if busy else _NO_ROWS
    on_cores = [slowed or device.host in hosts for device in cluster.devices]
    none = np.zeros(0)
    return Columns(
        device=graph.device,
        route=graph.route,
        priority=graph.priority,
        delay_s=none,
        work=none,
        activity_class=_activity_classes(graph, contends, on_cores),
        shares_cores=any(on_cores),
        bytes=graph.bytes,
        dependency_start=graph.dependency_start,
        dependencies=graph.dependencies,
        devices=len(cluster.devices),
        **_classes(over, uses, cluster, hosts),
        **_launches(graph),
        line=_lines(graph),
        overlap_rate=1 / runtime.overlap_slowdown,
        touched=Ragged.of(route.devices for route in graph.routes) if slowed or busy else _NO_ROWS,
        turn_s=np.array([r.latencies * runtime.busy_latency_s for r in graph.routes]) if busy else none,
        neighbours=neighbours,
        spare=_spare(cluster, neighbours),
        core_start=core_start,
        core_device=core_device,
        core_s_per_byte=core_s_per_byte,
        alone_s=none,
    )


_NO_ROWS = Ragged(start=np.zeros(0, dtype=np.int64), values=np.zeros(0, dtype=np.int64))


def _activity_classes(graph: TaskGraph, contends: Bools, on_cores: Sequence[bool]) -> Ints:
    """The class of every task; devices that share cores, or slow down, have one of their own."""
    classes = np.where(contends, graph.route, -1)
    if any(on_cores):
        shared = (graph.route < 0) & np.array(on_cores)[graph.device]
        classes = np.where(shared, len(graph.routes) + graph.device, classes)
    return classes


def _shared_hosts(cluster: Cluster, costly: bool) -> dict[str, int]:
    """Resource numbers of hosts that have fewer cores than devices, or whose cores the transfers use (`costly`)."""
    if not cluster.host_cores:
        return {}
    devices = Counter(device.host for device in cluster.devices)
    shared = [host for host, cores in cluster.host_cores.items() if costly or cores < devices[host]]
    return {host: len(cluster.links) + i for i, host in enumerate(shared)}


def _classes(over: Paths, uses: Bools, cluster: Cluster, hosts: dict[str, int]) -> dict[str, Any]:
    """The columns of resources and of classes, routes first; uses: as `_distinct_uses`."""
    start = np.append(0, np.cumsum(uses))[over.start]
    cores = [[hosts[device.host]] if device.host in hosts else [] for device in cluster.devices]
    on_cores = Ragged.of(cores)
    cores_of_hosts = np.array([cluster.host_cores[host] for host in hosts], dtype=np.float64)
    return {
        "capacity": np.append(link_speeds(cluster).bandwidth_bytes_per_s, cores_of_hosts),
        "class_start": np.append(start, start[-1] + on_cores.start[1:]),
        "resource": np.append(over.link[uses], on_cores.values),
        "weight": np.append(over.weight[uses], np.ones(len(on_cores.values))),
        "class_cap": np.repeat([inf, 1.0], [len(over.start) - 1, len(cluster.devices)]),
    }


def _launches(graph: TaskGraph) -> dict[str, Any]:
    """The columns of launches, where any takes time."""
    some = len(graph) if graph.is_launched else 0
    return {"launch_s": graph.launch_s[:some], "host_waits": graph.host_waits[:some].astype(np.int64)}


def _lines(graph: TaskGraph) -> Ints:
    """Where messages wait for their receivers, those from one device to another go one after the other."""
    if not (graph.kind == Kind.READY).any():
        return np.zeros(0, dtype=np.int64)
    numbers: dict[tuple[int, int], int] = {}
    single = [route.pairs[0] if len(route.pairs) == 1 else None for route in graph.routes]
    return np.array([numbers.setdefault(p, len(numbers)) if p else -1 for p in single], dtype=np.int64)


def _neighbours(cluster: Cluster) -> Ragged:
    """By device, all devices of its host where the host's cores are known, itself included."""
    on_host: dict[str, list[int]] = {host: [] for host in cluster.host_cores}
    for number, device in enumerate(cluster.devices):
        on_host.get(device.host, []).append(number)
    return Ragged.of(on_host.get(device.host, []) for device in cluster.devices)


def _spare(cluster: Cluster, neighbours: Ragged) -> Ints:
    """By device, how many of its neighbours compute before one takes its host's last core, or is the last of them."""
    sharing = np.diff(neighbours.start)
    cores = [int(cluster.host_cores.get(device.host, 1)) for device in cluster.devices[: len(sharing)]]
    return np.clip(np.array(cores, dtype=np.int64), 1, np.maximum(sharing, 1)) - 1


def _core_seconds(routes: Sequence[Route], cluster: Cluster, runtime: Runtime) -> tuple[Ints, Ints, Floats]:
    """By route (start, device, seconds): core seconds that a byte of its transfers costs each device."""
    if not cluster.host_cores or not (runtime.send_cpu_s_per_byte or runtime.receive_cpu_s_per_byte):
        return np.zeros(len(routes) + 1, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0)
    costs = [_core_costs(route, cluster, runtime) for route in routes]
    by_route = Ragged.of([list(row) for row in costs])
    return by_route.start, by_route.values, np.array([cost for row in costs for cost in row.values()], dtype=np.float64)


def _core_costs(route: Route, cluster: Cluster, runtime: Runtime) -> dict[int, float]:
    costs: dict[int, float] = {}
    for pair in route.pairs:
        for device, cost in zip(pair, (runtime.send_cpu_s_per_byte, runtime.receive_cpu_s_per_byte), strict=True):
            if cost and cluster.devices[device].host in cluster.host_cores:
                costs[device] = costs.get(device, 0.0) + cost
    return costs
