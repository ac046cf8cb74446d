"""Closed forms of how long traffic takes on a cluster's links when it all starts at once and nothing else runs.

The slowest link decides: its bytes over its bandwidth, plus the longest latency on the way. With equal
shares this is the time that max-min fair sharing gives to the last message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from partitioners._network.wiring import Traffic, Wave, Wiring, kinds
from simulator.cluster import Cluster
from simulator.network.collective_times import time_of
from simulator.ordered_sum import ordered_sum
from simulator.taskgraph import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """The links among D devices: how they are wired, and how fast they are.

    bandwidths_bytes_per_s, latencies_s: of each kind of link and of pair of the wiring. A pair with a measured curve
    has no latency of its own.
    """

    cluster: Cluster
    devices: int
    wiring: Wiring
    bandwidths_bytes_per_s: Floats
    latencies_s: Floats

    @staticmethod
    def of(cluster: Cluster, devices: int) -> Fabric:
        """The fabric among the first `devices` of `cluster`."""
        routes, pair, crossed = hops(cluster, devices)
        of_link = np.array([link.latency_s for link in cluster.links])
        delays_s = np.bincount(pair, weights=of_link[crossed], minlength=len(routes))  # as `Cluster.latency_s` adds up
        measured = np.array([link.curve is not None for link in cluster.links], dtype=np.bool_)
        curved = np.bincount(pair[measured[crossed]], minlength=len(routes)) > 0  # (pairs,)
        link_kinds, bandwidths = kinds(link.bandwidth_bytes_per_s for link in cluster.links)
        pair_kinds, latencies_s = kinds(np.where(curved, 0.0, delays_s).tolist())
        wiring = Wiring(
            routes=routes,
            link_kinds=link_kinds,
            pair_kinds=pair_kinds,
            measured=tuple(np.flatnonzero(curved).tolist()),
            curves=cluster if curved.any() else None,
            times_collectives=cluster.times_collectives,
        )
        return Fabric(
            cluster=cluster,
            devices=devices,
            wiring=wiring,
            bandwidths_bytes_per_s=bandwidths,
            latencies_s=latencies_s,
        )

    def seconds(self, traffic: Traffic) -> Floats:
        """Seconds of messages there and back, shape (...,) of the traffic's (kinds, 2, ...)."""
        links_s, waits_s = (np.zeros(traffic.moving.shape[1:]) for _ in range(2))  # (2, ...)
        for busiest_bytes, bandwidth in zip(traffic.busiest_bytes, self.bandwidths_bytes_per_s, strict=True):
            np.maximum(links_s, busiest_bytes / bandwidth, out=links_s)
        for moving, latency_s in zip(traffic.moving, self.latencies_s, strict=True):
            np.maximum(waits_s, moving * latency_s, out=waits_s)
        links_s += waits_s
        return np.asarray(links_s[0] + links_s[1])

    def waves_s(self, waves: Sequence[Wave]) -> float:
        """Seconds of waves one after the other."""
        return ordered_sum(self._wave_s(wave) for wave in waves)

    def _wave_s(self, wave: Wave) -> float:
        bandwidths, latencies_s = self.bandwidths_bytes_per_s.tolist(), self.latencies_s.tolist()
        links_s = max((size / rate for size, rate in zip(wave.busiest_bytes, bandwidths, strict=True)), default=0.0)
        waits_s = max((rounds * wait for rounds, wait in zip(wave.rounds, latencies_s, strict=True)), default=0.0)
        times = [time for timed in wave.timed if (time := time_of(self.cluster, *timed)) is not None]
        timed_s = max((time.delay_s + wave.crowd * (time.seconds - time.delay_s) for time in times), default=0.0)
        return max(links_s + waits_s, wave.computing_s, timed_s)


def hops(cluster: Cluster, devices: int) -> tuple[tuple[tuple[int, ...], ...], Ints, Ints]:
    """The route of every pair of the first devices, row by row; of every hop its pair's row and its link.

    They are kept for all clusters that differ from this one in the speeds of links alone.
    """

    def laid() -> tuple[tuple[tuple[int, ...], ...], Ints, Ints]:
        routes = tuple(cluster.route(*pair) for pair in np.ndindex(devices, devices))
        pair = np.repeat(np.arange(len(routes)), [len(route) for route in routes])
        return routes, pair, np.array([link for route in routes for link in route], dtype=np.int64)

    return cluster.ways.get(("hops", devices), laid)
