"""The least sum of costs over choices that depend on each other along the edges of a graph, exactly.

OptCNN (Jia et al., ICML 2018, section 5.2) removes a layer with one producer and one consumer by joining its two
edges into one whose table is the minimum over the layer's choices (node elimination), adds up the tables of
parallel edges (edge elimination), enumerates what remains and undoes the removals. Here a node with any number
of neighbours is removed in that way, always one with the fewest: with one it is folded into its neighbour, with
two this is the paper's elimination, and with more it does what enumeration would do, in less time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
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


def least_sum(nodes: Sequence[Floats], edges: Edges) -> tuple[float, list[int]]:
    """The smallest total cost and the choice of every node that reaches it.

    nodes[i]: shape (choices of i,). edges[i, j] with i < j: shape (choices of i, choices of j).
    Raises InputError when the graph is so entangled that a table would exceed 2^27 entries.
    """
    tables: dict[Scope, Floats] = {(i,): cost for i, cost in enumerate(nodes)}
    neighbours: list[set[int]] = [set() for _ in nodes]
    for (a, b), cost in edges.items():
        tables[a, b] = cost
        neighbours[a].add(b)
        neighbours[b].add(a)
    removed: list[tuple[int, Scope, Ints]] = []
    left = set(range(len(nodes)))
    while left:
        node = min(left, key=lambda n: (len(neighbours[n]), n))
        scope = tuple(sorted(neighbours[node]))
        _check_size([len(nodes[n]) for n in scope])
        scopes = [key for key in tables if node in key]
        least, choice = _minimum([_aligned(tables.pop(key), key, (*scope, node)) for key in scopes])
        tables[scope] = tables[scope] + least if scope in tables else least
        removed.append((node, scope, choice))
        left.remove(node)
        for n in scope:
            neighbours[n] |= {other for other in scope if other != n}
            neighbours[n].discard(node)
    return float(tables[()]), _undo(removed)


def _check_size(choices: Sequence[int]) -> None:
    if prod(choices) > MOST_ENTRIES:
        raise InputError(
            f"layers: {len(choices)} of them with up to {max(choices)} configurations each depend on one another in "
            f"a way that needs a table of {prod(choices)} entries, and at most {MOST_ENTRIES} are kept; "
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
    block = max(_BLOCK_ENTRIES // prod(shape[1:]), 1) if len(shape) > 1 else shape[0]
    for first in range(0, shape[0], block):
        rows = slice(first, first + block) if len(shape) > 1 else ...
        total = reduce(np.add, (table[rows] if table.shape[0] > 1 else table for table in tables))
        least[rows], choice[rows] = total.min(axis=-1), total.argmin(axis=-1)
    return least, choice


def _undo(removed: Sequence[tuple[int, Scope, Ints]]) -> list[int]:
    """The choice of every node, from the last removed, which depends on nothing, to the first."""
    choice_of: dict[int, int] = {}
    for node, scope, choice in reversed(removed):
        choice_of[node] = int(choice[tuple(choice_of[n] for n in scope)])
    return [choice_of[node] for node in range(len(removed))]
