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
    """The messages of a graph, which get better from sweep to sweep, also where costs of nodes change in between."""

    def __init__(self, nodes: int, edges: Edges) -> None:
        self._before: list[list[tuple[int, Floats]]] = [[] for _ in range(nodes)]
        self._after: list[list[tuple[int, Floats]]] = [[] for _ in range(nodes)]
        self._to: dict[tuple[int, int], Floats] = {}
        for (a, b), table in edges.items():  # tables have the choices of the node that sends in their rows
            self._after[a].append((b, table))
            self._before[b].append((a, np.ascontiguousarray(table.T)))
            self._to[a, b], self._to[b, a] = np.zeros(table.shape[1]), np.zeros(table.shape[0])

    def sweep(self, nodes: Sequence[Floats]) -> Shifted:
        """Once forwards and once backwards over the graph, with these costs of the nodes."""
        choices = self._forwards(nodes)
        bound, regrets = 0.0, []
        for i in reversed(range(len(nodes))):
            cost = nodes[i] + sum(self._to[j, i] for j, _ in (*self._before[i], *self._after[i]))
            least = float(cost.min())
            cost -= least
            regrets.append(cost)
            bound += least + self._send(i, cost, self._before[i])
        return Shifted(bound=bound, choices=choices, regrets=regrets[::-1])

    def _forwards(self, nodes: Sequence[Floats]) -> list[int]:
        choices: list[int] = []
        for i, own in enumerate(nodes):
            after = sum((self._to[j, i] for j, _ in self._after[i]), own)
            choices.append(int(sum((table[:, choices[j]] for j, table in self._before[i]), after).argmin()))
            self._send(i, sum((self._to[j, i] for j, _ in self._before[i]), after), self._after[i])
        return choices

    def _send(self, i: int, cost: Floats, receivers: list[tuple[int, Floats]]) -> float:
        """Send each receiver an equal part of the cost, less what came from it; the sum of the messages' least."""
        if not receivers:
            return 0.0
        part, total = cost / max(len(self._before[i]), len(self._after[i])), 0.0
        for j, table in receivers:
            message = ((part - self._to[j, i])[:, None] + table).min(axis=0)
            least = float(message.min())
            self._to[i, j] = message - least
            total += least
        return total
