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

from simulator.lowering.exchange_pieces import EdgeEnd, cells_along, joined_shape
from simulator.lowering.exchanges import numbered
from simulator.taskgraph import Floats, Ints

Booleans = npt.NDArray[np.bool_]


class SentElements(NamedTuple):
    """Elements from devices[i] to devices[j], [i, j], in one micro-batch; nothing stays on a device."""

    devices: tuple[int, ...]
    forward: Floats
    backward: Floats


def is_countable(own: EdgeEnd, readers: Sequence[EdgeEnd]) -> bool:
    """Whether `sent_elements` can count what moves as messages: there are no copies, and no tokens that travel."""
    return all(end.shape[5] == 1 and not end.visits for end in (own, *readers))


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
    elements = np.ones((), dtype=np.int64)
    for along in cells:
        elements = np.multiply.outer(elements, [size for _, size, _ in along])
    makers = _placed(own, devices).sum(axis=4)  # (sample, channel, height, width, device)
    made = _on_devices(makers, [[(who[0],) for who, _, _ in along] for along in cells])
    read = np.zeros_like(made)
    for i, end in enumerate(readers):
        regions = _placed(end, devices).transpose(0, 1, 4, 2, 3, 5).reshape(*joined_shape(end.shape), devices)
        read |= _on_devices(regions, [[who[1][i] for who, _, _ in along] for along in cells])
    known = read.any(axis=1)  # the rest is read by nobody
    made, read, sizes = made[known], read[known], elements.ravel()[known, None]
    return _moved(sizes, made, read), _moved(sizes, read, made)


def _placed(end: EdgeEnd, devices: int) -> Floats:
    """How many copies of each shard are on each device, shape (sample, channel, height, width, reduce, device)."""
    ones = np.zeros((len(end.devices), devices))
    ones[np.arange(len(end.devices)), list(end.devices)] = 1.0
    copies: Floats = ones.reshape(*end.shape, devices).sum(axis=5)
    return copies


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
    count, after = owners.sum(axis=1, keepdims=True), np.cumsum(owners, axis=1)  # (cells, 1), (cells, devices)
    slices = np.where(owners, sizes * after // count - sizes * (after - 1) // count, 0).astype(np.float64)
    moved: Floats = terms.T @ slices + slices.T @ targets
    np.fill_diagonal(moved, 0.0)
    return moved
