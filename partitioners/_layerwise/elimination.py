"""The least sum of costs over choices that depend on each other along the edges of a graph, exactly.

OptCNN (Jia et al., ICML 2018, section 5.2) removes a layer with one producer and one consumer by joining its two
edges into one whose table is the minimum over the layer's choices (node elimination), adds up the tables of
parallel edges (edge elimination), enumerates what remains and undoes the removals. Here a node with any number
of neighbours is removed in that way, always one with the fewest: with one it is folded into its neighbour, with
two this is the paper's elimination, and with more it does what enumeration would do, in less time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from heapq import heapify, heappop, heappush
from math import prod

import numpy as np

from simulator.errors import InputError
from simulator.taskgraph import Floats, Ints

Scope = tuple[int, ...]
"""The nodes, ascending, that the axes of a table stand for."""
Edges = Mapping[tuple[int, int], Floats]

MOST_ENTRIES = 2**27
_BLOCK_ENTRIES = 2**16
"""Sums looked at together."""


def sum_of(nodes: Sequence[Floats], edges: Edges, choices: Sequence[int]) -> float:
    """What the choices of all nodes cost."""
    own = sum(float(cost[k]) for cost, k in zip(nodes, choices, strict=True))
    return own + sum(float(table[choices[a], choices[b]]) for (a, b), table in edges.items())


def least_sum(
    nodes: Sequence[Floats],
    edges: Edges,
    *,
    contenders: Sequence[Ints] | None = None,
    regrets: Sequence[Floats] | None = None,
    most_entries: int | None = None,
) -> tuple[float, list[int]]:
    """The smallest total cost and the choice of every node that reaches it.

    nodes[i]: shape (choices of i,). edges[i, j] with i < j: shape (choices of i, choices of j).
    contenders: of each node the choices, ascending, that are known to have all least sums, by default all. The answer
    is the same to the bit, as nodes are removed in the same order.
    Where a table would exceed `most_entries` (by default 2^27) nodes give up choices, those of the highest regrets
    first, and the total is the smallest over what is left; without regrets that raises InputError.
    """
    graph, most = _Remainder.of(nodes, edges, contenders), most_entries or MOST_ENTRIES
    removed: list[_Removed] = []
    queue = [(graph.entries(node), node) for node in range(len(nodes))]
    heapify(queue)
    while queue:
        entries, node = heappop(queue)
        if node not in graph.left or entries != graph.entries(node):
            continue  # it is queued again, by what it has become
        changed = graph.neighbours[node]
        if regrets is not None and entries > most:
            node = graph.widest(node)
            changed = {node, *graph.neighbours[node]}
            graph.narrow(node, regrets[node])
            if len(graph.kept[node]) == 1:
                removed.append(graph.take_out(node))
        else:
            _check_size([len(graph.kept[n]) for n in changed], most)
            removed.append(graph.remove(node))
        for other in changed:
            heappush(queue, (graph.entries(other), other))
    return float(graph.total), _undo(removed)


@dataclass(frozen=True, slots=True)
class _Removed:
    """A node, and its best choice by those of the nodes of `scope`. kept: the choices of each axis, own ones last."""

    node: int
    scope: Scope
    choice: Ints
    kept: tuple[Sequence[int], ...]


@dataclass(slots=True, kw_only=True)
class _Remainder:
    """What is left of the graph.

    tables[i]: those that mention node i, in the order that they came. kept[i]: the choices of node i that its axes
    stand for. sizes[i]: how many there are, contenders or not. total: what removed nodes without neighbours cost.
    """

    tables: list[dict[Scope, Floats]]
    neighbours: list[set[int]]
    kept: list[Sequence[int]]
    sizes: list[int]
    left: set[int]
    total: Floats | float = 0.0

    @staticmethod
    def of(nodes: Sequence[Floats], edges: Edges, contenders: Sequence[Ints] | None = None) -> _Remainder:
        some = contenders or [np.arange(len(cost)) for cost in nodes]
        graph = _Remainder(
            tables=[{(i,): cost[those]} for i, (cost, those) in enumerate(zip(nodes, some, strict=True))],
            neighbours=[set() for _ in nodes],
            kept=[those.tolist() for those in some],
            sizes=[len(cost) for cost in nodes],
            left=set(range(len(nodes))),
        )
        for (a, b), cost in edges.items():
            graph.tables[a][a, b] = graph.tables[b][a, b] = cost[np.ix_(some[a], some[b])] if contenders else cost
            graph.neighbours[a].add(b)
            graph.neighbours[b].add(a)
        return graph

    def entries(self, node: int) -> int:
        """Sums that are looked at to remove a node, of contenders and others."""
        return prod(self.sizes[n] for n in (node, *self.neighbours[node]))

    def remove(self, node: int) -> _Removed:
        """Put a table over its neighbours, each entry the least over the node's choices, in the place of a node."""
        scope = tuple(sorted(self.neighbours[node]))
        order = (*scope, node)
        least, choice = _minimum([_aligned(table, key, order) for key, table in self.tables[node].items()])
        for key in self.tables[node]:
            for n in key:
                if n != node:
                    del self.tables[n][key]
        for n in scope:
            self.neighbours[n].update(scope)
            self.neighbours[n] -= {n, node}
        self._add(scope, least)
        self.left.remove(node)
        return _Removed(node, scope, choice, tuple(self.kept[n] for n in order))

    def take_out(self, node: int) -> _Removed:
        """Remove a node of one choice, which makes nobody depend on each other."""
        for key, table in self.tables[node].items():
            rest = tuple(n for n in key if n != node)
            for n in rest:
                del self.tables[n][key]
            self._add(rest, table.squeeze(key.index(node)))
        for n in self.neighbours[node]:
            self.neighbours[n].remove(node)
        self.left.remove(node)
        return _Removed(node, (), np.zeros((), dtype=np.int64), (self.kept[node],))

    def _add(self, scope: Scope, table: Floats) -> None:
        before = self.tables[scope[0]].get(scope) if scope else self.total
        total = table if before is None else before + table
        for n in scope:
            self.tables[n][scope] = total
        if not scope:
            self.total = total

    def widest(self, node: int) -> int:
        """Of a node and its neighbours the one that has most choices for most neighbours."""
        return max((node, *self.neighbours[node]), key=lambda n: (len(self.kept[n]) * len(self.neighbours[n]), n))

    def narrow(self, node: int, regrets: Floats) -> None:
        """Take half of its choices from a node."""
        kept = self.kept[node]
        best = np.sort(np.argsort(regrets[list(kept)], kind="stable")[: len(kept) // 2])
        self.kept[node] = [kept[i] for i in best]
        self.sizes[node] = len(best)
        for key, table in list(self.tables[node].items()):
            narrowed = table.take(best, axis=key.index(node))
            for n in key:
                self.tables[n][key] = narrowed


def _check_size(choices: Sequence[int], most: int) -> None:
    if prod(choices) > most:
        raise InputError(
            f"layers: {len(choices)} of them with up to {max(choices)} configurations each depend on one another in "
            f"a way that needs a table of {prod(choices)} entries, and at most {most} are kept; "
            f"use fewer devices or fewer dimensions"
        )


def _aligned(table: Floats, scope: Scope, order: Scope) -> Floats:
    """`table` with its axes in the order of `order`, of length 1 for nodes that it does not mention."""
    # an axis per node of `scope`, in the order of `order`
    moved = table.transpose([scope.index(node) for node in order if node in scope])
    return moved[tuple(slice(None) if node in scope else None for node in order)]  # an axis per node of `order`


def _minimum(tables: Sequence[Floats]) -> tuple[Floats, Ints]:
    """Least sum of aligned `tables` over their last axis, and the first index that gives it.

    A block of the first axis at a time, so that little more than the result is held.
    """
    shape = np.broadcast_shapes(*(table.shape for table in tables))
    least, choice = np.empty(shape[:-1]), np.empty(shape[:-1], dtype=np.int64)  # (choices of each node of the scope)
    block = max(_BLOCK_ENTRIES // prod(shape[1:]), 1)
    parts = [slice(first, first + block) for first in range(0, shape[0], block)]
    for rows in parts if len(shape) > 1 else [...]:  # without a scope the only axis is that of the choices
        total = reduce(np.add, (table[rows] if table.shape[0] > 1 else table for table in tables))
        least[rows], choice[rows] = total.min(axis=-1), total.argmin(axis=-1)
    return least, choice


def _undo(removed: Sequence[_Removed]) -> list[int]:
    """The choice of every node, from the last removed, which depends on nothing, to the first."""
    choice_of: dict[int, int] = {}
    for each in reversed(removed):
        *around, own = each.kept
        where = tuple(kept.index(choice_of[n]) for kept, n in zip(around, each.scope, strict=True))
        choice_of[each.node] = own[int(each.choice[where])]
    return [choice_of[node] for node in range(len(removed))]
