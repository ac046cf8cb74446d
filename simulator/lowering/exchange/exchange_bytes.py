"""How much of an edge of the network moves between devices, counted without making a message.

Without copies the rules of `reshard` come to two products of matrices over the cells into which an edge is cut: every
device with a term of a cell sends it to the owners of the sum, a slice to each, and every owner gives its slice to
the devices that need the sum. A search asks for thousands of edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simulator import collectives
from simulator.cluster import Cluster
from simulator.lowering.exchange.exchange_pieces import EdgeEnd, Who, cells_along, joined_shape
from simulator.lowering.exchange.exchanges import Exchange, exchanges_of, numbered
from simulator.taskgraph import Floats, Ints

Booleans = npt.NDArray[np.bool_]


class SentElements(NamedTuple):
    """Elements from devices[i] to devices[j], [i, j], in one micro-batch; nothing stays on a device."""

    devices: tuple[int, ...]
    forward: Floats
    backward: Floats


def moved_bytes(
    own: EdgeEnd, readers: Sequence[EdgeEnd], exchange: str, cluster: Cluster, element_bytes: float
) -> tuple[Floats, Floats]:
    """Bytes from device i to device j of a cluster, [i, j], of a layer's output to its readers, and of the gradient
    back, in one micro-batch, exchanged as `EXCHANGES` has it."""
    count = len(cluster.devices)
    ways = np.zeros((count, count)), np.zeros((count, count))
    if exchange == "messages" and is_countable(own, readers):
        sent = sent_elements(own, readers)
        at = np.ix_(sent.devices, sent.devices)
        ways[0][at], ways[1][at] = sent.forward * element_bytes, sent.backward * element_bytes
        return ways
    exchanges = exchanges_of(own, readers, exchange)
    for way, direction in zip(ways, (exchanges.forward, exchanges.backward), strict=True):
        add_bytes(way, direction, exchanges.devices, element_bytes)
    return ways


def add_bytes(matrix: Floats, exchange: Exchange, devices: Ints, element_bytes: float) -> None:
    """Add the bytes of an exchange to a matrix of shape (devices, devices)."""
    for transfer in exchange.transfers:
        members, size = devices[list(transfer.devices)].tolist(), transfer.elements * element_bytes
        if transfer.pattern == "message":
            matrix[tuple(members)] += size
            continue
        route, sent_bytes = collectives.exchange(transfer.pattern, members, size)
        for pair in route.pairs:
            matrix[pair] += sent_bytes


def is_countable(own: EdgeEnd, readers: Sequence[EdgeEnd]) -> bool:
    """Whether `sent_elements` can count what moves as messages: there are no copies, and no tokens that travel."""
    return all(end.shape[5] == 1 and not end.routing for end in (own, *readers))


def sent_elements(own: EdgeEnd, readers: Sequence[EdgeEnd]) -> SentElements:
    """What moves, as messages, of a layer's output to its readers, and of its gradient back.

    The ends are countable, see `is_countable`. The arrays are shared by layers cut alike: leave them as they are.
    """
    own, readers, devices = numbered(own, readers)
    return SentElements(tuple(devices), *_sent(own, readers, len(devices)))


@lru_cache(maxsize=16384)
def _sent(own: EdgeEnd, readers: tuple[EdgeEnd, ...], devices: int) -> tuple[Floats, Floats]:
    """Elements there and back between ends whose devices are numbered from 0."""
    cells = [cells_along(own, readers, axis) for axis in range(4)]
    parts = tuple(tuple(who for who, _, _ in along) for along in cells)
    made, read = _cells_on_devices(
        own.shape, own.devices, tuple((end.shape, end.devices) for end in readers), parts, devices
    )
    elements = np.ones((), dtype=np.int64)
    for along in cells:
        elements = np.multiply.outer(elements, [size for _, size, _ in along])
    sizes = elements.reshape(-1, 1)
    if own.shape[4] == 1:  # there are no sums forward, and back each reader's part goes to the only maker
        sent = np.where(made, sizes, 0).astype(np.float64)  # by who makes it, (cells, devices)
        forward: Floats = np.matmul(sent.T, read.astype(np.float64))
        np.fill_diagonal(forward, 0.0)
        return forward, forward.T
    return _moved(sizes, made, read), _moved(sizes, read, made)


@lru_cache(maxsize=4096)
def _cells_on_devices(
    own: tuple[int, ...],
    makers: tuple[int, ...],
    readers: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...],
    parts: tuple[tuple[Who, ...], ...],
    devices: int,
) -> tuple[Booleans, Booleans]:
    """Which devices have a term of each cell that somebody reads and which read it, shape (cells, devices) each; a cell
    that nobody reads has no terms.

    own, makers: shape and devices of who makes the cells, readers: of who read them; parts: of both in which each
    interval along an axis is, which is the same for larger layers cut alike.
    """
    placed = _placed(own, makers, devices).sum(axis=4)  # (sample, channel, height, width, device)
    made = _on_devices(placed, [[(who[0],) for who in along] for along in parts])
    read = np.zeros_like(made)
    for i, (shape, of_reader) in enumerate(readers):
        # (sample, channel, height, width, reduce, device) -> (sample, channel x reduce, height, width, device)
        regions = _placed(shape, of_reader, devices).transpose(0, 1, 4, 2, 3, 5).reshape(*joined_shape(shape), devices)
        read |= _on_devices(regions, [[who[1][i] for who in along] for along in parts])
    return made & read.any(axis=1, keepdims=True), read


def _placed(shape: tuple[int, ...], of_shards: tuple[int, ...], devices: int) -> Floats:
    """Which shards each device has, shape (sample, channel, height, width, reduce, device), without copies."""
    ones = np.zeros((len(of_shards), devices))
    ones[np.arange(len(of_shards)), list(of_shards)] = 1.0
    return ones.reshape(*shape[:5], devices)


def _on_devices(placed: Floats, parts: Sequence[Sequence[Sequence[int]]]) -> Booleans:
    """Which devices have part of the cells, shape (cells, devices); parts: along each axis, those that a cell is in."""
    shape = placed.shape
    for axis, of_cells in enumerate(parts):
        within = np.zeros((len(of_cells), shape[axis]))  # (cells, parts)
        for cell, numbers in enumerate(of_cells):
            within[cell, list(numbers)] = 1.0
        # (cells so far, parts along this axis, the rest)
        placed = within @ placed.reshape(-1, shape[axis], prod(shape[axis + 1 :]))
    return placed.reshape(-1, shape[-1]) > 0


def _moved(sizes: Ints, terms: Booleans, targets: Booleans) -> Floats:
    """Rules 3 to 5 of `reshard` for cells of these elements, (cells, 1), by who has terms and who needs the sum.

    A term that every target holds is alone there, so that it needs no rule of its own to stay.
    """
    both = terms & targets
    owners = np.where(both.any(axis=1, keepdims=True), both, targets)
    owners = np.where(terms.sum(axis=1, keepdims=True) == 1, terms, owners)
    count, after = np.maximum(owners.sum(axis=1, keepdims=True), 1), np.cumsum(owners, axis=1)
    slices = np.where(owners, sizes * after // count - sizes * (after - 1) // count, 0).astype(np.float64)
    moved: Floats = terms.T @ slices + slices.T @ targets
    np.fill_diagonal(moved, 0.0)
    return moved
