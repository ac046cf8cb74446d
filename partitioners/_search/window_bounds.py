"""Lower bounds of what plans promise that take over, for layers in a row, how another network is placed as a whole.

Whatever is in the library (every layer cut alike, another strategy's plan) has its loads as arrays, so that one window
of layers is looked at for the whole library at once: sums from the first layer on say what those in a row ask for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from partitioners._search.loads import LoadTables, PlanLoads
from partitioners._search.promises import steps_of_loads
from simulator.plan import Plan
from simulator.taskgraph import Floats, Ints

NONE = -1
"""In place of the number of a sharding, where a layer cannot be placed so."""
_ENDS = 24
"""Places at most, of many groups, up to or from which all layers are placed anew."""
_TRIED = 48
"""Changes of a window, those of the least loads, of which messages across its borders are looked up."""


class Window(NamedTuple):
    """Layers in a row that are placed anew, those from `first` to before `last` in the order of a search.

    layers: their positions. out: those of them that others read; into: those that they read.
    """

    first: int
    last: int
    layers: tuple[int, ...]
    out: tuple[int, ...]
    into: tuple[int, ...]


def window_of(inputs: Sequence[Sequence[int]], order: Sequence[int], first: int, last: int) -> Window:
    """The window of these layers of an order of all; inputs: of each layer, by position."""
    inside = set(order[first:last])
    out = {i for reader, sources in enumerate(inputs) if reader not in inside for i in sources if i in inside}
    into = {i for reader in inside for i in inputs[reader] if i not in inside}
    return Window(first, last, tuple(sorted(inside)), tuple(sorted(out)), tuple(sorted(into)))


def windows(count: int) -> list[tuple[int, int]]:
    """Of so many groups those in a row, from one to before another, that are placed anew together: fewer than all, a
    power of two, each from several places, and all up to one or from one on; the longest first."""
    every = -(-count // _ENDS)
    spans = {ends for at in range(every, count, every) for ends in ((0, at), (at, count))}
    length = 1 << max(count - 1, 1).bit_length() >> 1
    while length:
        spans |= {(first, min(first + length, count)) for first in range(0, count, max(length // 2, 1))}
        length //= 2
    return sorted(spans, key=lambda ends: (ends[0] - ends[1], ends))


class _Columns(NamedTuple):
    """Of each layer: what its passes and its messages ask for, and seconds of the slowest of either, there and back."""

    passes_s: Floats
    links_s: Floats
    alone_s: Floats
    sending_s: Floats


class _Stacked(NamedTuple):
    """All ways at once: numbers (ways, layers), loads of each layer, and of those before each in order."""

    numbers: Ints
    each: _Columns
    passes_before_s: Floats
    links_before_s: Floats


class Library:
    """Ways to place the whole network, as numbers of shardings by layer, or NONE; with the settings of `base`."""

    def __init__(self, tables: LoadTables, base: Plan, order: Sequence[int]) -> None:
        self._tables, self._base, self._order = tables, base, list(order)
        self._columns: dict[tuple[int, ...], _Columns] = {}
        self._all: _Stacked | None = None

    def add(self, numbers: tuple[int, ...]) -> None:
        """One more way, unless it is there."""
        if numbers not in self._columns:
            self._columns[numbers] = self._columns_of(numbers)
            self._all = None

    def _columns_of(self, numbers: tuple[int, ...]) -> _Columns:
        tables, base, readable = self._tables, self._base, [number != NONE for number in numbers]
        first = next(number for number in numbers if number != NONE)
        some = tables.passes(base, numbers.index(first), first)
        no_passes_s, no_links_s = np.zeros_like(some.total_s), np.zeros(len(some.total_s) - 2 * tables.devices)
        rows = []
        for position, (number, readers) in enumerate(zip(numbers, tables.readers, strict=True)):
            passes = tables.passes(base, position, number) if readable[position] else None
            known = readable[position] and all(readable[reader] for reader in readers)
            messages = tables.messages(base, position, numbers) if known else None
            rows.append(
                (
                    passes.total_s if passes else no_passes_s,
                    messages.links_s if messages else no_links_s,
                    passes.forward_s + passes.backward_s if passes else 0.0,
                    (messages.forward_s + messages.backward_s) / base.microbatches if messages else 0.0,
                )
            )
        return _Columns(*(np.array(column) for column in zip(*rows, strict=True)))

    def bounds_s(
        self, here: PlanLoads, window: Window, counts: Sequence[int], excess: Floats, limit_s: float
    ) -> Iterator[tuple[dict[int, int], float]]:
        """The changes that place the window another way, as numbers by position, and what each then promises at least
        with the best of these numbers of micro-batches, each times its excess, shape (counts,); those below the limit,
        the least first.

        Sums are taken as if they were hidden. Of many changes those are left out whose loads alone are the highest.
        """
        ways, base, layers = self._stacked(), here.base, list(window.layers)
        numbers = ways.numbers[:, layers]
        rows = np.flatnonzero((numbers != NONE).all(axis=1) & (numbers != np.array(here.numbers)[layers]).any(axis=1))
        border, inside = [*window.into, *window.out], [layer for layer in layers if layer not in window.out]
        passes_s = here.passes_s - np.sum([here.passes[layer].total_s for layer in layers], axis=0)
        links_s = here.links_s - np.sum([here.messages[layer].links_s for layer in {*layers, *border}], axis=0)
        passes_s = passes_s + (ways.passes_before_s[rows, window.last] - ways.passes_before_s[rows, window.first])
        links_s = links_s + (ways.links_before_s[rows, window.last] - ways.links_before_s[rows, window.first])
        links_s -= ways.each.links_s[rows[:, None], list(window.out)].sum(axis=1)
        steps_s = steps_of_loads(passes_s, links_s, np.zeros(1), np.zeros(1), base, counts)
        least_s = (steps_s * excess).min(axis=1)
        least_first = [k for k in np.argsort(least_s, kind="stable").tolist() if least_s[k] < limit_s]
        different = {tuple(numbers[rows[k]].tolist()): k for k in reversed(least_first)}
        near = sorted(different.values(), key=least_first.index)[:_TRIED]
        rows, passes_s, links_s = rows[near], passes_s[near], links_s[near]
        share = 1 / base.microbatches
        alone_s = np.array([own.forward_s + own.backward_s for own in here.passes])
        sending_s = np.array([sent.forward_s + sent.backward_s for sent in here.messages]) * share
        sending_s[border] = 0.0
        alone_s = np.repeat((alone_s + sending_s)[:, None], len(rows), axis=1)  # (layers, changes)
        alone_s[layers] = ways.each.alone_s[rows[:, None], layers].T
        alone_s[inside] += ways.each.sending_s[rows[:, None], inside].T
        mixed = here.numbers.copy()
        for k, row in enumerate(rows.tolist()):
            for layer, number in zip(layers, ways.numbers[row, layers].tolist(), strict=True):
                mixed[layer] = number
            for layer in border:
                sent = self._tables.messages(base, layer, mixed)
                links_s[k] += sent.links_s
                alone_s[layer, k] += (sent.forward_s + sent.backward_s) * share
        chain_s = self._longest(alone_s)[:, None] * (base.microbatches / np.array(counts, dtype=np.float64))
        steps_s = steps_of_loads(passes_s, links_s, chain_s, np.zeros(1), base, counts)
        least_s = (steps_s * excess).min(axis=1)
        for k in np.argsort(least_s, kind="stable").tolist():
            if least_s[k] < limit_s:
                yield dict(zip(layers, ways.numbers[rows[k], layers].tolist(), strict=True)), float(least_s[k])

    def _stacked(self) -> _Stacked:
        if self._all is None:
            each = _Columns(*(np.stack(column) for column in zip(*self._columns.values(), strict=True)))
            self._all = _Stacked(
                np.array(list(self._columns)), each, self._before(each.passes_s), self._before(each.links_s)
            )
        return self._all

    def _before(self, each_s: Floats) -> Floats:
        """Sums over the layers before each in order, shape (ways, layers + 1, ...), of (ways, layers, ...)."""
        sums_s = np.cumsum(each_s[:, self._order], axis=1)
        return np.concatenate([np.zeros_like(sums_s[:, :1]), sums_s], axis=1)

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
