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
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.cluster import Cluster
from simulator.collectives import CollectiveTask
from simulator.taskgraph import Floats, Ints, Route

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What messages ask of a wiring, shape (kinds, 2, ...): the second axis is the way there and the way back.

    busiest_bytes: over the busiest link of each kind. moving: for each kind of pair 1 where one of them has something
    to send, else 0.
    """

    busiest_bytes: Floats
    moving: Floats

    def times(self, factor: float) -> Traffic:
        """Of messages so many times as large."""
        return Traffic(busiest_bytes=self.busiest_bytes * factor, moving=self.moving)


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
        """Of messages of sizes_bytes[..., i, j] from i to j, all at once, then the same back; 0 for i = j."""
        there = sizes_bytes.reshape(-1, *sizes_bytes.shape[-2:])
        if self.measured:
            ways = [self._by_sets(self._unmeasured(way)) for way in (there, there.swapaxes(1, 2))]
        else:  # what one sends on the way there it receives on the way back
            ways = [by_sets := self._by_sets(there), by_sets[::-1]]
        carried = np.stack([self._carried(*way) for way in ways], axis=1)  # (links and kinds of pairs, 2, ...)
        carried = carried.reshape(-1, 2, *sizes_bytes.shape[:-2])
        links = [carried[first:last].max(axis=0) for first, last in pairwise(self._sums.ends)]
        return Traffic(
            busiest_bytes=np.stack(links) if links else carried[:0],
            moving=(carried[len(self.link_kinds) :] > 0).astype(np.float64),
        )

    def _by_sets(self, sizes_bytes: Floats) -> tuple[Floats, Floats]:
        """What each device sends to each set of devices, and what it receives of it, (sets, ..., devices) each."""
        sets = self._sums.sets
        sent, received = np.matmul(sizes_bytes, sets).transpose(2, 0, 1), np.matmul(sets.T, sizes_bytes).swapaxes(0, 1)
        return np.ascontiguousarray(sent), np.ascontiguousarray(received)

    def _carried(self, sent: Floats, received: Floats) -> Floats:
        """Bytes of every link and kind of pair, shape (those, ...)."""
        carried = np.zeros((len(self.link_kinds) + 1 + max(self.pair_kinds), sent.shape[1]))
        for by_sets, terms in ((sent, self._sums.senders), (received, self._sums.receivers)):
            for of_set, (columns, members) in zip(by_sets, terms, strict=True):
                if len(columns):
                    # the long side first: the other way round BLAS takes twenty times as long where threads share cores
                    carried[columns] += (of_set @ members.T).T
        return carried

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

    def _unmeasured(self, sizes_bytes: Floats) -> Floats:
        corrected = sizes_bytes.reshape(len(sizes_bytes), -1).copy()
        for row in self.measured:
            sizes, inverse = np.unique(corrected[:, row], return_inverse=True)
            corrected[:, row] = np.array([self.unmeasured_bytes(row, float(size)) for size in sizes])[inverse]
        return corrected.reshape(sizes_bytes.shape)

    @cached_property
    def _sums(self) -> _Sums:
        """Links stand kind by kind, so that the busiest of a kind is the largest of a slice."""
        order = np.argsort(self.link_kinds, kind="stable")
        column = np.empty(len(order), dtype=np.int64)
        column[order] = np.arange(len(order))
        crossed = np.zeros((len(order) + 1 + max(self.pair_kinds), len(self.routes)), dtype=np.bool_)
        for row, route in enumerate(self.routes):
            crossed[column[list(route)], row] = True
        crossed[len(order) + np.array(self.pair_kinds), np.arange(len(self.routes))] = True
        devices = isqrt(len(self.routes))
        ends = np.cumsum(np.bincount(np.array(self.link_kinds, dtype=np.int64))).tolist()
        return _sums_of(crossed.reshape(-1, devices, devices), [0, *ends])


class _Sums(NamedTuple):
    """How what links carry is added up from what each device sends to, or receives of, sets of devices: in most
    networks a few sets will do, such as all and those of a host.

    sets: 1 where a device is in one, shape (devices, sets). senders, receivers: by set the links (and kinds of pairs)
    which carry that of some devices, and 1 for these, shape (links, devices). ends: of each kind of link.
    """

    sets: Floats
    senders: list[tuple[Ints, Floats]]
    receivers: list[tuple[Ints, Floats]]
    ends: list[int]


def _sums_of(crossed: Bools, ends: list[int]) -> _Sums:
    """crossed: which pairs cross each link, shape (links, devices, devices); what a device sends itself is nothing, so
    that a set may hold it or not, whichever set more links use."""
    devices = crossed.shape[1]
    crossed = crossed & ~np.eye(devices, dtype=np.bool_)
    either = [[crossed, crossed | np.eye(devices, dtype=np.bool_)] for crossed in (crossed, crossed.swapaxes(1, 2))]
    used = Counter(key for pair in either for link in range(len(crossed)) for key in _keys(pair, link))
    numbers: dict[bytes, int] = {}
    terms: list[list[tuple[int, int, int]]] = [[], []]  # (set, link, device) of senders and of receivers
    for link in range(len(crossed)):
        by_side = []
        for pair in either:
            busy = np.flatnonzero(pair[0][link].any(axis=1)).tolist()
            by_side.append([(max((each[link, d].tobytes() for each in pair), key=used.__getitem__), d) for d in busy])
        side = min((0, 1), key=lambda side: sum(1 / used[key] for key in dict(by_side[side])))
        terms[side] += [(numbers.setdefault(key, len(numbers)), link, d) for key, d in by_side[side]]
    if len(numbers) > devices:  # nothing is shared: each device by itself
        sets, links, senders, receivers = np.eye(devices), *np.nonzero(crossed)
        terms = [list(zip(receivers.tolist(), links.tolist(), senders.tolist(), strict=True)), []]
    else:
        sets = (
            np.array([np.frombuffer(key, dtype=np.bool_) for key in numbers], dtype=np.float64).reshape(-1, devices).T
        )
    senders_of, receivers_of = (_members(side, sets.shape[1], devices) for side in terms)
    return _Sums(sets, senders_of, receivers_of, ends)


def _keys(pair: Sequence[Bools], link: int) -> set[bytes]:
    """The sets with which what a link carries might be said."""
    busy = pair[0][link].any(axis=1)
    return {row.tobytes() for each in pair for row in each[link][busy]}


def _members(terms: Sequence[tuple[int, int, int]], sets: int, devices: int) -> list[tuple[Ints, Floats]]:
    """By set its links and, for each of these, 1 for the devices that count."""
    by_set: list[dict[int, list[int]]] = [{} for _ in range(sets)]
    for number, link, device in terms:
        by_set[number].setdefault(link, []).append(device)
    made = []
    for links in by_set:
        members = np.zeros((len(links), devices))
        for row, those in enumerate(links.values()):
            members[row, those] = 1.0
        made.append((np.array(list(links), dtype=np.int64), members))
    return made


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
