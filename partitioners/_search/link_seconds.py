"""Seconds that messages and collectives keep the links of a cluster busy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from partitioners._network.fabric import hops
from simulator import collectives
from simulator.cluster import Cluster
from simulator.network.collective_times import time_of
from simulator.plan import Synchronisation
from simulator.taskgraph import Floats

Sum = tuple[tuple[int, ...], float]
"""Devices that sum the gradient of the same parameters, and its bytes."""


class LinkSeconds:
    """What keeps links busy, by link; sums are kept, so all of them are asked for with the same settings.

    dtype: of gradients.
    """

    def __init__(self, cluster: Cluster, dtype: str) -> None:
        self._cluster, self._dtype = cluster, dtype
        self._devices = len(cluster.devices)
        _, self._pair, self._crossed = hops(cluster, self._devices)
        self._bandwidths = np.array([link.bandwidth_bytes_per_s for link in cluster.links])
        latencies_s = np.array([link.latency_s for link in cluster.links])[self._crossed]
        self._latency_s = np.bincount(self._pair, weights=latencies_s, minlength=self._devices**2)  # by pair of devices
        self._rings: dict[tuple[int, ...], list[tuple[Floats, float]]] = {}
        self._sums: dict[Sum, tuple[Floats, float]] = {}

    @property
    def count(self) -> int:
        """How many links there are."""
        return len(self._bandwidths)

    def of_messages(self, moved_bytes: Floats) -> tuple[Floats, float]:
        """Seconds by link, shape (links,), and the longest latency, of bytes from device i to device j, [i, j]."""
        carried_bytes, latency_s = self._crossing(moved_bytes.ravel())
        return carried_bytes / self._bandwidths, latency_s

    def of_sum(self, settings: Synchronisation, bucket: Sum) -> tuple[Floats, float]:
        """Seconds by link, shape (links,), of the collective that sums a bucket, and those of its latencies."""
        if bucket not in self._sums:
            self._sums[bucket] = self._new_sum(settings, bucket)
        return self._sums[bucket]

    def _new_sum(self, settings: Synchronisation, bucket: Sum) -> tuple[Floats, float]:
        devices, size = bucket
        collective, sent_bytes = collectives.load(settings.collective), settings.sent_bytes(size, self._dtype)
        tasks = collective.tasks(self._cluster, devices, sent_bytes, 0.0, settings.serving_workers)
        if devices not in self._rings:
            self._rings[devices] = [self._crossings(task.route.pairs if task.route else ()) for task in tasks]
        seconds, latency_s = np.zeros(self.count), 0.0
        for task, (crossed, wait_s) in zip(tasks, self._rings[devices], strict=True):
            time = time_of(self._cluster, task.route, task.bytes) if task.route and task.route.collective else None
            if time is not None:
                seconds += time.work * crossed / self._bandwidths
                latency_s = max(latency_s, time.delay_s)
            elif task.route:
                seconds += task.bytes * crossed / self._bandwidths
                latency_s = max(latency_s, task.route.rounds * wait_s)
        return seconds, latency_s

    def _crossings(self, pairs: Sequence[tuple[int, int]]) -> tuple[Floats, float]:
        """How often pairs of devices cross each link, shape (links,), and the longest of their latencies."""
        moved = np.zeros(self._devices**2)
        for source, target in pairs:
            moved[source * self._devices + target] += 1.0
        return self._crossing(moved)

    def _crossing(self, moved: Floats) -> tuple[Floats, float]:
        """What crosses each link, shape (links,), of what moves between pairs of devices, and the longest latency."""
        carried = np.bincount(self._crossed, weights=moved[self._pair], minlength=self.count)
        return carried.astype(np.float64, copy=False), float(self._latency_s[moved > 0].max(initial=0.0))
