"""Bytes that choices hold over intervals of time, their peaks, and what they cost at a price for each time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simulator.taskgraph import Floats, Ints

ROUNDING = 1e-12
"""Of sums of bytes and costs, relative."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What a node holds at the times first, first + 1, ... last - 1, in bytes by choice."""

    node: int
    first: int
    last: int
    sizes_bytes: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """All that the nodes of a graph hold, by node, and how much may be held at any time.

    The columns have an entry for every choice of every `Holding`; slot: the choice's number among those of all nodes.
    """

    limit_bytes: float
    times: int
    held: tuple[tuple[Holding, ...], ...]
    starts: Ints
    slot: Ints
    first: Ints
    last: Ints
    sizes_bytes: Floats

    @staticmethod
    def of(choices: Sequence[int], held: Sequence[Holding], limit_bytes: float) -> Memory:
        """For nodes of so many choices."""
        starts = np.concatenate([[0], np.cumsum(choices, dtype=np.int64)])
        held = [each for each in held if each.last > each.first and each.sizes_bytes.any()]
        lengths = [len(each.sizes_bytes) for each in held]
        return Memory(
            limit_bytes=limit_bytes,
            times=max((each.last for each in held), default=0),
            held=tuple(tuple(each for each in held if each.node == node) for node in range(len(choices))),
            starts=starts,
            slot=np.concatenate(
                [starts[each.node] + np.arange(len(each.sizes_bytes)) for each in held] or [starts[:0]]
            ),
            first=np.repeat(np.array([each.first for each in held], dtype=np.int64), lengths),
            last=np.repeat(np.array([each.last for each in held], dtype=np.int64), lengths),
            sizes_bytes=np.concatenate([np.zeros(0), *(each.sizes_bytes for each in held)]),
        )

    def used(self, choices: Sequence[int]) -> Floats:
        """Parts of the limit that these choices hold at each time."""
        is_held = np.zeros(self.starts[-1], dtype=bool)
        is_held[self.starts[:-1] + np.array(choices, dtype=np.int64)] = True
        picked = np.flatnonzero(is_held[self.slot])
        sizes, length = self.sizes_bytes[picked], self.times + 1
        begun = np.bincount(self.first[picked], sizes, length)
        ended = np.bincount(self.last[picked], sizes, length)
        return np.asarray((begun - ended).cumsum()[:-1] / self.limit_bytes)

    def fit(self, choices: Sequence[int], nodes: Sequence[int], instead: Ints) -> Ints:
        """Whether everything fits where `nodes` choose as a row of `instead` says, by row."""
        used = np.tile(self.used(choices), (len(instead), 1))
        for node, column in zip(nodes, instead.T, strict=True):
            for held in self.held[node]:
                sizes = (held.sizes_bytes[column] - held.sizes_bytes[choices[node]]) / self.limit_bytes
                used[:, held.first : held.last] += sizes[:, None]
        return np.asarray(used.max(axis=1, initial=0.0) <= 1 + ROUNDING)

    def prices(self, price: Floats) -> list[Floats]:
        """What the choices of every node cost when to hold the whole limit costs price[t] at time t."""
        until = np.concatenate([[0.0], price.cumsum()])
        costs = self.sizes_bytes / self.limit_bytes * (until[self.last] - until[self.first])
        return np.split(np.bincount(self.slot, costs, self.starts[-1]), self.starts[1:-1])
