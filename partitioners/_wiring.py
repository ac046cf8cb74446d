"""Which links the messages between devices load, apart from how fast those links are.

Clusters that differ in bandwidths and latencies alone are wired alike, so that what their links carry is found once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isqrt

import numpy as np

from simulator.cluster import Cluster
from simulator.collectives import CollectiveTask
from simulator.taskgraph import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What messages ask of a wiring; the axis before the last is the way there and the way back.

    busiest_bytes: over the busiest link of each kind. moving: for each kind of pair 1 where one of them has something
    to send, else 0.
    """

    busiest_bytes: Floats
    moving: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """What tasks of collectives that start together ask of a wiring.

    busiest_bytes: over the busiest link of each kind; rounds: the most over a pair of each kind. alone_s: of what does
    not share links, transfers measured as a whole and what each device computes.
    """

    busiest_bytes: tuple[float, ...]
    rounds: tuple[int, ...]
    alone_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """The routes among D devices.

    routes: the links from device i to j, in row i*D + j. link_kinds, pair_kinds: for every link and every row, the
    number of its bandwidth and of its latency among the different ones. measured: rows whose route has a measured
    curve, and curves: the cluster where there are some, since what its links carry then depends on its figures.
    """

    routes: tuple[tuple[int, ...], ...]
    link_kinds: tuple[int, ...]
    pair_kinds: tuple[int, ...]
    measured: tuple[int, ...] = ()
    curves: Cluster | None = None

    def traffic(self, sizes_bytes: Floats) -> Traffic:
        """Of messages of sizes_bytes[..., i, j] from i to j, all at once, then the same back."""
        both = np.stack([sizes_bytes, sizes_bytes.swapaxes(-1, -2)], axis=-3)
        rows = both.reshape(*both.shape[:-2], -1)
        carried = self._unmeasured(rows) @ self._crossed()
        return Traffic(
            busiest_bytes=_most(carried, self.link_kinds), moving=_most((rows > 0).astype(np.float64), self.pair_kinds)
        )

    def waves(self, groups: Sequence[Sequence[CollectiveTask]]) -> tuple[Wave, ...]:
        """Of several collectives that start together.

        The tasks that wait for equally many others, one after the other, run at the same time.
        """
        waves: dict[int, list[CollectiveTask]] = {}
        for tasks in groups:
            depth: list[int] = []
            for task in tasks:
                depth.append(1 + max((depth[i] for i in task.after), default=-1))
                waves.setdefault(depth[-1], []).append(task)
        return tuple(self._wave(waves[depth]) for depth in sorted(waves))

    def _wave(self, tasks: Sequence[CollectiveTask]) -> Wave:
        """Of tasks that start together: transfers share links, a device computes one after the other."""
        devices = isqrt(len(self.routes))
        carried, computing_s = [0.0] * len(self.link_kinds), [0.0] * devices
        rounds, alone_s = [0] * (1 + max(self.pair_kinds)), 0.0
        for task in tasks:
            if task.route is None:
                computing_s[task.device] += task.seconds
            elif task.seconds > 0:
                alone_s = max(alone_s, task.seconds)
            else:
                for i, j in task.route.pairs:
                    row = i * devices + j
                    kind = self.pair_kinds[row]
                    rounds[kind] = max(rounds[kind], task.route.rounds)
                    for link in self.routes[row]:
                        carried[link] += self.unmeasured_bytes(row, task.bytes, task.route.rounds)
        busiest = [0.0] * (1 + max(self.link_kinds, default=-1))
        for link, kind in enumerate(self.link_kinds):
            busiest[kind] = max(busiest[kind], carried[link])
        return Wave(busiest_bytes=tuple(busiest), rounds=tuple(rounds), alone_s=max(alone_s, *computing_s))

    def unmeasured_bytes(self, row: int, size_bytes: float, rounds: int = 1) -> float:
        """Bytes that at nominal bandwidth take as long as the row's measured curve says, in so many equal rounds."""
        if self.curves is None or row not in self.measured or not size_bytes:
            return size_bytes
        source, target = divmod(row, isqrt(len(self.routes)))
        alone_s = rounds * self.curves.transfer_s(source, target, size_bytes / rounds)
        return alone_s * self.curves.bandwidth_bytes_per_s(source, target)

    def _unmeasured(self, rows: Floats) -> Floats:
        corrected = rows.copy() if self.measured else rows
        for row in self.measured:
            sizes, inverse = np.unique(rows[..., row], return_inverse=True)  # (different sizes,), one per entry of row
            unmeasured = np.array([self.unmeasured_bytes(row, float(size)) for size in sizes])
            corrected[..., row] = unmeasured[inverse].reshape(rows.shape[:-1])  # (..., rows) less the last axis
        return corrected

    def _crossed(self) -> Floats:
        """Shape (rows, links): 1 where the route of the row has the link."""
        crossed = np.zeros((len(self.routes), len(self.link_kinds)))
        for row, route in enumerate(self.routes):
            crossed[row, list(route)] = 1.0
        return crossed


def kinds(values: Iterable[float]) -> tuple[tuple[int, ...], Floats]:
    """For each value its number among the different ones, in order of appearance; and those, shape (kinds,)."""
    numbers: dict[float, int] = {}
    kind_of = tuple(numbers.setdefault(value, len(numbers)) for value in values)
    return kind_of, np.array(list(numbers), dtype=np.float64)


def joined(parts: Sequence[Traffic]) -> Traffic:
    """Parts one after the other along the first axis."""
    return Traffic(
        busiest_bytes=np.concatenate([part.busiest_bytes for part in parts]),
        moving=np.concatenate([part.moving for part in parts]),
    )


def _most(values: Floats, numbers: Sequence[int]) -> Floats:
    """The largest of `values` along the last axis for each kind."""
    largest = np.zeros((*values.shape[:-1], max(numbers, default=-1) + 1))
    for kind in range(largest.shape[-1]):
        largest[..., kind] = values[..., np.array(numbers) == kind].max(axis=-1)
    return largest
