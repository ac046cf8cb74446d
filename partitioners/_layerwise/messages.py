"""A bound below the least sum of costs over choices on a graph, by messages along its edges.

Sequential tree-reweighted message passing (Kolmogorov, IEEE PAMI 28, 2006): the costs are shifted between nodes and
edges, which changes no sum, so that the least entries of all of them add up to as much as possible. That sum is a
bound; on a tree it is the least sum itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from partitioners._layerwise.elimination import Edges
from simulator.taskgraph import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Shifted:
    """What a sweep leaves.

    bound: no choices cost less. choices: good ones, each the best for those before it and the messages of those after.
    regrets[i]: how much worse each choice of node i looks than its best.
    """

    bound: float
    choices: list[int]
    regrets: list[Floats]


class MessagePassing:
    """The messages of a graph, which get better from sweep to sweep, also where costs change in between."""

    def __init__(self, nodes: int, edges: Edges) -> None:
        self._before: list[list[int]] = [[] for _ in range(nodes)]
        self._after: list[list[int]] = [[] for _ in range(nodes)]
        self._to: dict[tuple[int, int], Floats] = {}
        for (a, b), table in edges.items():
            self._after[a].append(b)
            self._before[b].append(a)
            self._to[a, b], self._to[b, a] = np.zeros(table.shape[1]), np.zeros(table.shape[0])

    def sweep(self, nodes: Sequence[Floats], edges: Edges) -> Shifted:
        """Once forwards and once backwards over the graph, with these costs."""
        choices = self._forwards(nodes, edges)
        bound, regrets = 0.0, []
        for i in reversed(range(len(nodes))):
            cost = nodes[i] + sum(self._to[j, i] for j in (*self._before[i], *self._after[i]))
            least = float(cost.min())
            cost -= least
            regrets.append(cost)
            part = self._part(i, cost)
            bound += least + sum(
                self._send(i, j, (edges[j, i] + (part - self._to[j, i])).min(axis=1)) for j in self._before[i]
            )
        return Shifted(bound=bound, choices=choices, regrets=regrets[::-1])

    def _forwards(self, nodes: Sequence[Floats], edges: Edges) -> list[int]:
        choices: list[int] = []
        for i, own in enumerate(nodes):
            after = sum((self._to[j, i] for j in self._after[i]), own)
            choices.append(int(sum((edges[j, i][choices[j]] for j in self._before[i]), after).argmin()))
            part = self._part(i, sum((self._to[j, i] for j in self._before[i]), after))
            for j in self._after[i]:
                self._send(i, j, (edges[i, j] + (part - self._to[j, i])[:, None]).min(axis=0))
        return choices

    def _part(self, i: int, cost: Floats) -> Floats:
        """What a node's cost leaves to each of the chains of edges that it is on."""
        return cost / max(len(self._before[i]), len(self._after[i]), 1)

    def _send(self, i: int, j: int, message: Floats) -> float:
        """Send what exceeds the message's least entry, and return that."""
        least = float(message.min())
        self._to[i, j] = message - least
        return least
