"""Which links the messages between devices load, apart from how fast those links are.

Clusters that differ in bandwidths and latencies alone are wired alike, so that what their links carry is found once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import isqrt

import numpy as np

from simulator.cluster import Cluster
from simulator.collectives import CollectiveTask
from simulator.taskgraph import Floats, Route


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What messages ask of a wiring, shape (kinds, 2, ...): the second axis is the way there and the way back.

    busiest_bytes: over the busiest link of each kind. moving: for each kind of pair 1 where one of them has something
    to send, else 0.
    """

    busiest_bytes: Floats
    moving: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """What tasks of collectives that start together ask of a wiring.

    busiest_bytes: over the busiest link of each kind; rounds: the most over a pair of each kind, but for collectives
    whose times the cluster knows: these are `timed`, with their bytes, and load the busiest link `crowd` times as
    much as one alone does. computing_s: of the device with the most.
    """

    busiest_bytes: tuple[float, ...]
    rounds: tuple[int, ...]
    computing_s: float
    timed: tuple[tuple[Route, float], ...] = ()
    crowd: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """The routes among D devices.

    routes: the links from device i to j, in row i*D + j. link_kinds, pair_kinds: for every link and every row, the
    number of its bandwidth and of its latency among the different ones. measured: rows whose route has a measured
    curve, and curves: the cluster where there are some, since what its links carry then depends on its figures.
    times_collectives: as the cluster's.
    """

    routes: tuple[tuple[int, ...], ...]
    link_kinds: tuple[int, ...]
    pair_kinds: tuple[int, ...]
    measured: tuple[int, ...] = ()
    curves: Cluster | None = None
    times_collectives: bool = False

    def traffic(self, sizes_bytes: Floats) -> Traffic:
        """Of messages of sizes_bytes[..., i, j] from i to j, all at once, then the same back."""
        ways = np.stack([sizes_bytes, sizes_bytes.swapaxes(-1, -2)])
        rows = ways.reshape(-1, len(self.routes))  # (2 x ..., rows)
        crossed, of_kind, links = self._columns
        # the long side first: the other way round BLAS takes twenty times as long where threads share cores
        carried = (self._unmeasured(rows) if self.measured else rows) @ crossed.T  # (2 x ..., links)
        busiest = np.stack([carried[:, kind].max(axis=1) for kind in links]) if links else carried.T[:0]
        moving = (of_kind @ rows.T > 0).astype(np.float64)  # (kinds of pairs, 2 x ...)
        return Traffic(
            busiest_bytes=busiest.reshape(-1, *ways.shape[:-2]),  # (kinds of links, 2, ...)
            moving=moving.reshape(-1, *ways.shape[:-2]),  # (kinds of pairs, 2, ...)
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
        rounds, timed = [0] * (1 + max(self.pair_kinds)), []
        beside, alone_bytes = [0.0] * len(self.link_kinds), 0.0
        for task in tasks:
            if task.route is None:
                computing_s[task.device] += task.seconds
                continue
            if self.times_collectives and task.route.collective:
                timed.append((task.route, task.bytes))
                own = Counter(link for i, j in task.route.pairs for link in self.routes[i * devices + j])
                for link, times in own.items():
                    beside[link] += times * task.bytes
                alone_bytes = max(alone_bytes, max(own.values(), default=0) * task.bytes)
                continue
            for i, j in task.route.pairs:
                row = i * devices + j
                kind = self.pair_kinds[row]
                rounds[kind] = max(rounds[kind], task.route.rounds)
                for link in self.routes[row]:
                    carried[link] += self.unmeasured_bytes(row, task.bytes, task.route.rounds)
        busiest = [0.0] * (1 + max(self.link_kinds, default=-1))
        for link, kind in enumerate(self.link_kinds):
            busiest[kind] = max(busiest[kind], carried[link])
        return Wave(
            busiest_bytes=tuple(busiest),
            rounds=tuple(rounds),
            computing_s=max(computing_s),
            timed=tuple(timed),
            crowd=max(beside, default=0.0) / alone_bytes if alone_bytes else 1.0,
        )

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

    @cached_property
    def _columns(self) -> tuple[Floats, Floats, list[slice]]:
        """Which rows cross each link, shape (links, rows), which are of each kind of pair, and the links by kind.

        Links stand kind by kind, so that the busiest of a kind is the largest of a slice.
        """
        order = np.argsort(self.link_kinds, kind="stable")
        column = np.empty(len(order), dtype=np.int64)
        column[order] = np.arange(len(order))
        crossed = np.zeros((len(order), len(self.routes)))
        for row, route in enumerate(self.routes):
            crossed[column[list(route)], row] = 1.0
        of_kind = np.zeros((1 + max(self.pair_kinds), len(self.routes)))
        of_kind[list(self.pair_kinds), np.arange(len(self.routes))] = 1.0
        ends = np.cumsum(np.bincount(np.array(self.link_kinds, dtype=np.int64))).tolist()
        return crossed, of_kind, [slice(first, end) for first, end in pairwise([0, *ends])]


def kinds(values: Iterable[float]) -> tuple[tuple[int, ...], Floats]:
    """For each value its number among the different ones, in order of appearance; and those, shape (kinds,)."""
    numbers: dict[float, int] = {}
    kind_of = tuple(numbers.setdefault(value, len(numbers)) for value in values)
    return kind_of, np.array(list(numbers), dtype=np.float64)


def joined(parts: Sequence[Traffic]) -> Traffic:
    """Parts one after the other along the first axis of what the messages are for."""
    return Traffic(
        busiest_bytes=np.concatenate([part.busiest_bytes for part in parts], axis=2),
        moving=np.concatenate([part.moving for part in parts], axis=2),
    )
