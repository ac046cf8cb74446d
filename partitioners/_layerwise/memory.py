"""Bytes that choices hold over intervals of time, their peaks, and what they cost at a price for each time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from partitioners._layerwise.elimination import Scope
from simulator.taskgraph import Floats, Ints

ROUNDING = 1e-12
"""Of sums of bytes and costs, relative."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What is held at the times first, first + 1, ... last - 1: bytes by the choices of a node or of an edge's two.

    scope: the node, or the two, ascending. sizes_bytes: an axis for each.
    """

    scope: Scope
    first: int
    last: int
    sizes_bytes: Floats


class Memory:
    """How much may be held at any time, and all that is."""

    def __init__(self, held: Sequence[Holding], limit_bytes: float) -> None:
        held = [each for each in held if each.last > each.first and each.sizes_bytes.any()]
        lengths = np.array([each.sizes_bytes.size for each in held], dtype=np.int64)
        self.limit_bytes = limit_bytes
        self.times = max((each.last for each in held), default=0)
        self._first = np.array([each.first for each in held], dtype=np.int64)
        self._last = np.array([each.last for each in held], dtype=np.int64)
        self._sizes_bytes = np.concatenate([np.zeros(0), *(each.sizes_bytes.ravel() for each in held)])
        # where each holding's sizes begin, and how far apart they are for the choices of its one or two nodes
        self._begin = np.cumsum(lengths) - lengths
        self._nodes = np.array([(each.scope[0], each.scope[-1]) for each in held], dtype=np.int64).reshape(-1, 2)
        strides = [(each.sizes_bytes.shape[1], 1) if len(each.scope) > 1 else (1, 0) for each in held]
        self._strides = np.array(strides, dtype=np.int64).reshape(-1, 2)
        # the holdings of a scope add up
        self._shapes = {each.scope: each.sizes_bytes.shape for each in held}
        self._ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes.values()], dtype=np.int64)
        begin_of = dict(zip(self._shapes, [0, *self._ends.tolist()], strict=False))
        slots = [begin_of[each.scope] + np.arange(each.sizes_bytes.size) for each in held]
        self._slot: Ints = np.concatenate([np.zeros(0, dtype=np.int64), *slots])
        self._holding = np.repeat(np.arange(len(held)), lengths)

    def used(self, choices: Sequence[int]) -> Floats:
        """Parts of the limit that these choices hold at each time."""
        entry = self._begin + (np.array(choices, dtype=np.int64)[self._nodes] * self._strides).sum(axis=1)
        sizes, length = self._sizes_bytes[entry], self.times + 1
        changes = np.bincount(self._first, sizes, length) - np.bincount(self._last, sizes, length)
        return np.asarray(changes.cumsum()[:-1] / self.limit_bytes)

    def fits(self, choices: Sequence[int]) -> bool:
        return bool(self.used(choices).max(initial=0.0) <= 1 + ROUNDING)

    def prices(self, price: Floats) -> dict[Scope, Floats]:
        """What the choices of the nodes and edges that hold something cost: price[t] for the whole limit at time t."""
        until = np.concatenate([[0.0], price.cumsum()])
        per_byte = (until[self._last] - until[self._first]) / self.limit_bytes
        costs = np.asarray(np.bincount(self._slot, self._sizes_bytes * per_byte[self._holding]), dtype=float)
        parts: list[Floats] = np.split(costs, self._ends[:-1])
        return {scope: part.reshape(shape) for (scope, shape), part in zip(self._shapes.items(), parts, strict=False)}
