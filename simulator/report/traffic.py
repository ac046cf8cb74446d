"""Who sends how much to whom, kept for the pairs of devices that do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.distinct import distinct, runs
from simulator.taskgraph import Floats, Ints, Kind, TaskGraph

MATRIX_DEVICES = 1024
"""Plain figures of a larger cluster have a list of pairs in place of the matrix, which grows with its square."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Communication:
    """Bytes that cross between devices in one step: size_bytes[k] from source[k] to target[k], each pair once.

    Pairs stand in ascending order, sources first; the three arrays have one entry per pair.
    """

    total: float
    forward: float
    """Of activations, also of those that are received again for backward passes."""
    backward: float
    """Of their gradients."""
    synchronisation: float
    parameters: float = 0.0
    devices: int
    source: Ints
    target: Ints
    size_bytes: Floats

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Communication) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    @property
    def matrix(self) -> tuple[tuple[float, ...], ...]:
        """matrix[i][j]: bytes from device i to device j; devices x devices numbers, made when asked for."""
        dense = np.zeros((self.devices, self.devices))
        dense[self.source, self.target] = self.size_bytes
        return tuple(map(tuple, dense.tolist()))

    @property
    def sent_bytes(self) -> Floats:
        """By device, shape (devices,)."""
        return _sums(self.source, self.size_bytes, self.devices)

    @property
    def received_bytes(self) -> Floats:
        """By device, shape (devices,)."""
        return _sums(self.target, self.size_bytes, self.devices)

    def to_dict(self) -> dict[str, Any]:
        """Plain figures, with the matrix or, beyond MATRIX_DEVICES, `pairs` of [source, target, bytes]."""
        figures: dict[str, Any] = {
            name: getattr(self, name) for name in ("total", "forward", "backward", "synchronisation", "parameters")
        }
        if self.devices <= MATRIX_DEVICES:
            return {**figures, "matrix": self.matrix}
        columns = (self.source.tolist(), self.target.tolist(), self.size_bytes.tolist())
        return {**figures, "pairs": tuple(zip(*columns, strict=True))}


Pairs = tuple[Ints, Ints, Floats]
"""(source, target, bytes), arrays of one length."""


def summed_pairs(pairs: Pairs, devices: int) -> Pairs:
    """Every pair of devices once, in ascending order, with the sum of its bytes, added in the order in which they
    stand."""
    source, target, size_bytes = pairs
    numbers, which = np.unique(source * devices + target, return_inverse=True)
    return numbers // devices, numbers % devices, _sums(which.ravel(), size_bytes, len(numbers))


def joined_pairs(parts: Iterable[Pairs]) -> Pairs:
    """All of `parts`, one after the other."""
    none = np.zeros(0, dtype=np.int64)
    source, target, size_bytes = zip((none, none, np.zeros(0)), *parts, strict=True)
    return np.concatenate(source), np.concatenate(target), np.concatenate(size_bytes)


def crossing_bytes(graph: TaskGraph) -> Floats:
    """What transfers of each kind carry in a step, by route, shape (kinds, routes)."""
    return graph.route_bytes * graph.pair_counts


def traffic_pairs(graph: TaskGraph, devices: int, kinds: Iterable[Kind]) -> Pairs:
    """What transfers of these kinds carry in a step, by pair of devices."""
    source, target = graph.pairs.T
    sizes = [graph.route_bytes[kind] for kind in kinds]
    parts = [(source, target, np.repeat(size_bytes, graph.pair_counts)) for size_bytes in sizes if size_bytes.any()]
    source, target, size_bytes = joined_pairs(parts)
    sent = size_bytes > 0
    return summed_pairs((source[sent], target[sent], size_bytes[sent]), devices)


def traffic_matrix(graph: TaskGraph, devices: int, kinds: Iterable[Kind]) -> Floats:
    """Bytes that cross from device i to device j in a step in transfers of these kinds, shape (devices, devices)."""
    matrix = np.zeros((devices, devices))
    source, target, size_bytes = traffic_pairs(graph, devices, kinds)
    matrix[source, target] = size_bytes
    return matrix


def touches(graph: TaskGraph, counts: npt.NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Every (transfer, device at one of its ends) of the devices that count, shape (devices,)."""
    number = np.repeat(np.arange(len(graph.routes)), 2 * graph.pair_counts) * len(counts) + graph.pairs.ravel()
    route, devices = np.divmod(distinct(number), len(counts))
    counting = counts[devices]
    lengths, devices = np.bincount(route[counting], minlength=len(graph.routes)), devices[counting]
    transfers = np.flatnonzero(graph.route >= 0)
    routes, first = graph.route[transfers], np.cumsum(lengths) - lengths
    times = lengths[routes]
    return np.repeat(transfers, times), devices[runs(first[routes], times)]


def _sums(groups: Ints, amounts: Floats, count: int) -> Floats:
    return np.bincount(groups, weights=amounts, minlength=count).astype(np.float64)
