"""Lower bounds of what plans promise that take over, for layers in a row, how another network is placed as a whole.

Whatever is in the library (every layer cut alike, another strategy's plan) has its loads as arrays, so that one window
of layers is looked at for the whole library at once. What moves across the borders of the window is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from partitioners._loads import LoadTables, PlanLoads
from simulator.plan import Plan
from simulator.taskgraph import Floats, Ints

NONE = -1
"""In place of the number of a sharding, where a layer cannot be placed so."""


class Window(NamedTuple):
    """Positions of layers that are placed anew. out: those of them that others read; into: those that they read."""

    layers: tuple[int, ...]
    out: tuple[int, ...]
    into: tuple[int, ...]


def window_of(inputs: Sequence[Sequence[int]], layers: Sequence[int]) -> Window:
    """The window of these layers; inputs: of all layers, by position."""
    inside = set(layers)
    out = {i for reader, sources in enumerate(inputs) if reader not in inside for i in sources if i in inside}
    into = {i for reader in layers for i in inputs[reader] if i not in inside}
    return Window(tuple(sorted(inside)), tuple(sorted(out)), tuple(sorted(into)))


class _Columns(NamedTuple):
    """Of each layer: what its passes and its messages ask for, and seconds of the slowest of either, there and back."""

    passes_s: Floats
    links_s: Floats
    alone_s: Floats
    sending_s: Floats


class Library:
    """Ways to place the whole network, as numbers of shardings by layer, or NONE; with the settings of `base`."""

    def __init__(self, tables: LoadTables, base: Plan) -> None:
        self._tables, self._base = tables, base
        self._number_of: dict[tuple[int, ...], int] = {}
        self._columns: list[_Columns] = []
        self._stacked: _Columns | None = None
        self._numbers: Ints = np.zeros((0, len(tables.inputs)), dtype=np.int64)

    def add(self, numbers: Sequence[int]) -> int:
        """Its number, from 0; the same for the same one."""
        key = tuple(numbers)
        if key not in self._number_of:
            self._number_of[key] = len(self._columns)
            self._columns.append(self._columns_of(key))
            self._numbers = np.concatenate([self._numbers, [key]])
            self._stacked = None
        return self._number_of[key]

    @property
    def size(self) -> int:
        """How many ways there are."""
        return len(self._columns)

    def _columns_of(self, numbers: tuple[int, ...]) -> _Columns:
        tables, base, readable = self._tables, self._base, [number != NONE for number in numbers]
        readers: list[list[int]] = [[] for _ in numbers]
        for position, inputs in enumerate(tables.inputs):
            for i in inputs:
                readers[i].append(position)
        first = next(number for number in numbers if number != NONE)
        some = tables.passes(base, numbers.index(first), first)
        links = np.zeros(len(some.total_s) - 2 * tables.devices)
        rows = []
        for position, number in enumerate(numbers):
            passes = tables.passes(base, position, number) if readable[position] else None
            known = readable[position] and all(readable[reader] for reader in readers[position])
            messages = tables.messages(base, position, numbers) if known else None
            rows.append(
                (
                    passes.total_s if passes else np.zeros_like(some.total_s),
                    messages.links_s if messages else links,
                    passes.forward_s + passes.backward_s if passes else 0.0,
                    (messages.forward_s + messages.backward_s) / base.microbatches if messages else 0.0,
                )
            )
        return _Columns(*(np.array(column) for column in zip(*rows, strict=True)))

    def bounds_s(
        self, here: PlanLoads, window: Window, counts: Sequence[int], limit_s: float
    ) -> tuple[list[dict[int, int]], Floats]:
        """The changes that place the window another way, as numbers by position, and what each then promises at least
        with these numbers of micro-batches, shape (changes, counts); those below the limit, the least first.

        Sums are taken as if they were hidden.
        """
        layers, base = list(window.layers), here.base
        placed = self._numbers[:, layers]
        known = (placed != NONE).all(axis=1) & (placed != np.array(here.numbers)[layers]).any(axis=1)
        rows = np.flatnonzero(known)
        if self._stacked is None:
            self._stacked = _Columns(*(np.stack(column) for column in zip(*self._columns, strict=True)))
        ways, share = self._stacked, 1 / base.microbatches
        scale = base.microbatches / np.array(counts, dtype=np.float64)
        border, inside = [*window.into, *window.out], [layer for layer in layers if layer not in window.out]
        passes_s = here.passes_s - np.sum([here.passes[layer].total_s for layer in layers], axis=0)
        links_s = here.links_s - np.sum([here.messages[layer].links_s for layer in {*layers, *border}], axis=0)
        passes_s = passes_s + ways.passes_s[rows[:, None], layers].sum(axis=1)  # (changes, ...)
        links_s = links_s + ways.links_s[rows[:, None], inside].sum(axis=1)
        alone_s = np.array([own.forward_s + own.backward_s for own in here.passes])
        sending_s = np.array([sent.forward_s + sent.backward_s for sent in here.messages]) * share
        sending_s[border] = 0.0
        alone_s = np.repeat((alone_s + sending_s)[:, None], len(rows), axis=1)  # (layers, changes)
        alone_s[layers] = ways.alone_s[rows[:, None], layers].T
        alone_s[inside] += ways.sending_s[rows[:, None], inside].T

        def steps_s() -> Floats:
            chain_s = self._longest(alone_s)[:, None] * scale
            return self._tables.steps_s(passes_s, links_s, chain_s, np.zeros(1), base, counts)

        near = np.flatnonzero(steps_s().min(axis=1) < limit_s)
        rows, passes_s, links_s, alone_s = rows[near], passes_s[near], links_s[near], alone_s[:, near]
        numbers = np.array(here.numbers)
        for k, row in enumerate(rows.tolist()):
            numbers[layers] = self._numbers[row, layers]
            mixed = numbers.tolist()
            for layer in border:
                sent = self._tables.messages(base, layer, mixed)
                links_s[k] += sent.links_s
                alone_s[layer, k] += (sent.forward_s + sent.backward_s) * share
        bounds_s = steps_s()
        least_s = bounds_s.min(axis=1)
        order = [k for k in np.argsort(least_s, kind="stable").tolist() if least_s[k] < limit_s]
        changes = [dict(zip(layers, self._numbers[rows[k], layers].tolist(), strict=True)) for k in order]
        return changes, bounds_s[order]

    def _longest(self, alone_s: Floats) -> Floats:
        """Seconds of the longest chain of layers, shape (those,), of (layers, those)."""
        reached = np.empty_like(alone_s)
        for position, inputs in enumerate(self._tables.inputs):
            if not inputs:
                reached[position] = alone_s[position]
                continue
            before = reached[inputs[0]]
            for i in inputs[1:]:
                before = np.maximum(before, reached[i])
            np.add(before, alone_s[position], out=reached[position])
        longest: Floats = reached.max(axis=0, initial=0.0)
        return longest
