"""Closed forms of how long traffic takes on a cluster's links when it all starts at once and nothing else runs.

The slowest link decides: its bytes over its bandwidth, plus the longest latency on the way. With equal
shares this is the time that max-min fair sharing gives to the last message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from partitioners._wiring import Traffic, Wiring, kinds
from simulator.cluster import Cluster
from simulator.collectives import CollectiveTask
from simulator.taskgraph import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """The links among D devices: how they are wired, and how fast they are.

    bandwidths_bytes_per_s, latencies_s: of each kind of link and of pair of the wiring. A pair with a measured curve
    has no latency of its own.
    """

    devices: int
    wiring: Wiring
    bandwidths_bytes_per_s: Floats
    latencies_s: Floats

    @staticmethod
    def of(cluster: Cluster, devices: int) -> Fabric:
        """The fabric among the first `devices` of `cluster`."""
        pairs = list(np.ndindex(devices, devices))
        routes = tuple(cluster.route(*pair) for pair in pairs)
        curved = [any(cluster.links[link].curve for link in route) for route in routes]
        delays_s = (0.0 if curve else cluster.latency_s(*pair) for pair, curve in zip(pairs, curved, strict=True))
        link_kinds, bandwidths = kinds(link.bandwidth_bytes_per_s for link in cluster.links)
        pair_kinds, latencies_s = kinds(delays_s)
        wiring = Wiring(
            routes=routes,
            link_kinds=link_kinds,
            pair_kinds=pair_kinds,
            measured=tuple(np.flatnonzero(curved).tolist()),
            curves=cluster if any(curved) else None,
        )
        return Fabric(devices=devices, wiring=wiring, bandwidths_bytes_per_s=bandwidths, latencies_s=latencies_s)

    def seconds(self, traffic: Traffic) -> Floats:
        """Seconds of messages there and back, shape (...,) of the traffic's (..., 2, kinds)."""
        links_s = (traffic.busiest_bytes / self.bandwidths_bytes_per_s).max(axis=-1, initial=0.0)
        waits_s = (traffic.moving * self.latencies_s).max(axis=-1, initial=0.0)
        return np.asarray((links_s + waits_s).sum(axis=-1))

    def collectives_s(self, groups: Sequence[Sequence[CollectiveTask]]) -> float:
        """Seconds of several collectives that start together.

        The tasks that wait for equally many others, one after the other, run at the same time.
        """
        waves: dict[int, list[CollectiveTask]] = {}
        for tasks in groups:
            depth: list[int] = []
            for task in tasks:
                depth.append(1 + max((depth[i] for i in task.after), default=-1))
                waves.setdefault(depth[-1], []).append(task)
        return sum(self._wave_s(waves[depth]) for depth in sorted(waves))

    def _wave_s(self, tasks: Sequence[CollectiveTask]) -> float:
        """Seconds of tasks that start together: transfers share links, a device computes one after the other."""
        wiring = self.wiring
        carried, computing_s = [0.0] * len(wiring.link_kinds), [0.0] * self.devices
        latency_s, alone_s = 0.0, 0.0
        for task in tasks:
            if task.route is None:
                computing_s[task.device] += task.seconds
            elif task.seconds > 0:
                alone_s = max(alone_s, task.seconds)
            else:
                rounds = task.route.rounds
                for i, j in task.route.pairs:
                    row = i * self.devices + j
                    latency_s = max(latency_s, rounds * self.latencies_s[wiring.pair_kinds[row]])
                    for link in wiring.routes[row]:
                        carried[link] += wiring.unmeasured_bytes(row, task.bytes, rounds)
        rates = self.bandwidths_bytes_per_s[list(wiring.link_kinds)]
        return float(max((carried / rates).max(initial=0.0) + latency_s, alone_s, *computing_s))
