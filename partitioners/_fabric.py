"""Closed forms of how long traffic takes on a cluster's links when it all starts at once and nothing else runs.

The slowest link decides: its bytes over its bandwidth, plus the longest latency on the way. With equal
shares this is the time that max-min fair sharing gives to the last message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simulator.cluster import Cluster
from simulator.collectives import Step
from simulator.taskgraph import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """The links of a cluster of D devices as arrays.

    seconds_per_byte: shape (D*D, links), what a byte from device i to j (row i*D + j) costs each link.
    latency_s: shape (D, D). measured: the (i, j) whose route has a measured curve.
    """

    cluster: Cluster
    seconds_per_byte: Floats
    latency_s: Floats
    measured: frozenset[tuple[int, int]]

    @staticmethod
    def of(cluster: Cluster, devices: int) -> Fabric:
        """The fabric among the first `devices` of `cluster`."""
        cost = np.zeros((devices * devices, len(cluster.links)))
        latency_s, measured = np.zeros((devices, devices)), set()
        for i, j in np.ndindex(devices, devices):
            route = cluster.route(i, j)
            curved = any(cluster.links[link].curve for link in route)
            latency_s[i, j] = 0.0 if curved else cluster.latency_s(i, j)
            measured |= {(i, j)} if curved else set()
            for link in route:
                cost[i * devices + j, link] += 1 / cluster.links[link].bandwidth_bytes_per_s
        return Fabric(cluster=cluster, seconds_per_byte=cost, latency_s=latency_s, measured=frozenset(measured))

    def exchange_s(self, sizes_bytes: Floats) -> Floats:
        """Seconds of messages of sizes_bytes[..., i, j] from i to j, all at once, then the same back; shape (...,)."""
        moving = sizes_bytes > 0
        there_s = (moving * self.latency_s).max(axis=(-2, -1), initial=0.0)
        back_s = (moving * self.latency_s.T).max(axis=(-2, -1), initial=0.0)
        there, back = self._unmeasured(sizes_bytes), self._unmeasured(sizes_bytes.swapaxes(-1, -2))
        return np.asarray(there_s + self._links_s(there) + back_s + self._links_s(back))

    def _links_s(self, sizes_bytes: Floats) -> Floats:
        """Seconds that the busiest link needs for its bytes."""
        loads_s = sizes_bytes.reshape(*sizes_bytes.shape[:-2], -1) @ self.seconds_per_byte
        return np.asarray(loads_s.max(axis=-1, initial=0.0))

    def _unmeasured(self, sizes_bytes: Floats) -> Floats:
        """What at nominal bandwidth takes as long as the measured curves say."""
        found = sizes_bytes.copy() if self.measured else sizes_bytes
        for i, j in sorted(self.measured):
            sizes, inverse = np.unique(sizes_bytes[..., i, j], return_inverse=True)
            unmeasured = np.array([self._unmeasured_bytes(i, j, size) for size in sizes])
            found[..., i, j] = unmeasured[inverse].reshape(sizes_bytes.shape[:-2])
        return found

    def _unmeasured_bytes(self, i: int, j: int, size_bytes: float, rounds: int = 1) -> float:
        """What at nominal bandwidth takes as long as the route's measured curve says, in so many equal rounds."""
        if not size_bytes:
            return 0.0
        alone_s = rounds * self.cluster.transfer_s(i, j, size_bytes / rounds)
        return alone_s * self.cluster.bandwidth_bytes_per_s(i, j)

    def collectives_s(self, groups: Sequence[Sequence[Step]]) -> float:
        """Seconds of several collectives that start together.

        The steps that wait for equally many others, one after the other, run at the same time.
        """
        waves: dict[int, list[Step]] = {}
        for steps in groups:
            depth: list[int] = []
            for step in steps:
                depth.append(1 + max((depth[i] for i in step.after), default=-1))
                waves.setdefault(depth[-1], []).append(step)
        return sum(self._wave_s(waves[depth]) for depth in sorted(waves))

    def _wave_s(self, steps: Sequence[Step]) -> float:
        """Seconds of steps that start together: transfers share links, a device computes one after the other."""
        sizes, computing_s = np.zeros_like(self.latency_s), np.zeros(len(self.latency_s))
        latency_s, alone_s = 0.0, 0.0
        for step in steps:
            if step.route is None:
                computing_s[step.device] += step.seconds
            elif step.seconds > 0:
                alone_s = max(alone_s, step.seconds)
            else:
                rounds = step.route.rounds
                for i, j in step.route.pairs:
                    curved = (i, j) in self.measured
                    sizes[i, j] += self._unmeasured_bytes(i, j, step.bytes, rounds) if curved else step.bytes
                    latency_s = max(latency_s, rounds * self.latency_s[i, j])
        return float(max(self._links_s(sizes) + latency_s, alone_s, computing_s.max()))
