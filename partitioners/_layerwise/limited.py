"""The least sum of costs over choices on a graph where what they hold at any time has to fit into memory.

Memory has a price at every time (a Lagrange multiplier). At given prices the messages along the edges give a bound, and
the prices go to where it is largest, along what was held too much lately (the volume algorithm, Barahona and Anbil,
2000). In between, part of the nodes choose anew together, at prices near these: exactly, but for choices that the bound
speaks against where too many depend on each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from partitioners._layerwise.elimination import Edges, least_sum, sum_of
from partitioners._layerwise.memory import ROUNDING, Memory
from partitioners._layerwise.messages import MessagePassing
from simulator.taskgraph import Floats

_MOST_ENTRIES = 2**15
"""Of a table, where part of the nodes choose anew: some hundredths of a second."""
_RAISES, _FIRST_RAISES = 4, 60
"""How often prices go up until choices fit, and how often where none did before."""
_STEPS = 5
"""Steps of the prices for as many choices of part of the nodes."""
_TRADES = 20
"""After each of these choices."""
_MOST_COMBINATIONS, _CHECKED = 2**12, 256
"""Of the choices of a few nodes: how many are enumerated, and of how many of the cheapest it is asked if they fit."""


@dataclass(slots=True, kw_only=True)
class Prices:
    """What it costs to hold the whole limit, by time, and the way to prices of a larger bound.

    center: those of the largest bound so far. trial: those to try next. lately: a moving average of the parts of the
    limit held beyond it. stride: how far to go, as a part of the way to the target. failed: trials since the bound was
    raised or the stride shortened.
    """

    center: Floats
    trial: Floats
    bound: float = -inf
    lately: Floats | None = None
    stride: float = 0.3
    failed: int = 0

    def step(self, bound: float, excess: Floats, target: float) -> None:
        """After a trial that gave a bound and choices that held `excess` more than the limit."""
        self.lately = excess if self.lately is None else 0.2 * excess + 0.8 * self.lately
        if bound > self.bound:
            self.bound, self.center, self.failed, self.stride = bound, self.trial, 0, min(1.1 * self.stride, 2.0)
        else:
            self.failed += 1
            if self.failed == 5:
                self.failed, self.stride = 0, 0.66 * self.stride
        way = np.where((self.center <= 0) & (self.lately < 0), 0.0, self.lately)
        length = self.stride * (target - self.bound) / max(float((way**2).sum()), 1e-9)
        self.trial = np.maximum(self.center + length * way, 0.0)


class LimitedSearch:
    """A search that gets better from move to move, the same ones for a seed.

    best, cost: the cheapest choices that fit so far, None and infinite before. bound: none that fit cost less.
    """

    def __init__(self, nodes: Sequence[Floats], edges: Edges, memory: Memory, seed: int = 0) -> None:
        self._nodes, self._edges, self._memory = nodes, edges, memory
        self._around: list[list[int]] = [[] for _ in nodes]
        for a, b in edges:
            self._around[a].append(b)
            self._around[b].append(a)
        entries = [cost[cost > 0].min(initial=inf) for cost in (*nodes, *edges.values())]
        self._smallest = min((each for each in entries if each < inf), default=1.0)
        self._random = np.random.default_rng(seed)
        self._messages = MessagePassing(len(nodes), edges)
        self._prices = Prices(center=np.zeros(memory.times), trial=np.zeros(memory.times))
        self._regrets: list[Floats] = []
        self._moves = 0
        self.best: list[int] | None = None
        self.cost = inf

    @property
    def bound(self) -> float:
        return self._prices.bound

    @property
    def byte_prices(self) -> Floats:
        """What it costs at each time to hold a byte, at the prices of the bound."""
        return self._prices.center / self._memory.limit_bytes

    def move(self) -> None:
        """One of some steps of the prices, and then of as many choices of part of the nodes."""
        if self._moves % (2 * _STEPS) < _STEPS:
            self._climb()
        elif self.best is None:
            self._make_fit()
        else:
            self._choose_anew()
            for _ in range(_TRADES):
                self._trade()
        self._moves += 1

    def consider(self, choices: list[int]) -> Floats:
        """Keep choices that fit and are the cheapest; the parts of the limit that they hold, by time."""
        used = self._memory.used(choices)
        if used.max(initial=0.0) <= 1 + ROUNDING and (cost := sum_of(self._nodes, self._edges, choices)) < self.cost:
            self.best, self.cost = choices, cost
        return used

    def _at(self, price: Floats) -> tuple[list[Floats], Edges]:
        """The costs of nodes and edges where memory has that price."""
        prices = self._memory.prices(price)
        nodes = [own + prices.get((node,), 0.0) for node, own in enumerate(self._nodes)]
        return nodes, {edge: table + prices[edge] if edge in prices else table for edge, table in self._edges.items()}

    def _climb(self) -> None:
        """Try prices, and step to the next ones."""
        prices = self._prices
        costs = self._at(prices.trial)
        self._messages.sweep(*costs)
        shifted = self._messages.sweep(*costs)
        self._regrets = shifted.regrets
        excess = self.consider(shifted.choices) - 1
        bound = shifted.bound - float(prices.trial.sum())
        highest = max(bound, prices.bound)
        prices.step(bound, excess, min(self.cost, max(1.2 * highest, highest + self._smallest)))

    def _make_fit(self) -> None:
        """Raise prices wherever too much is held until choices fit."""
        price = self._prices.center
        for _ in range(_FIRST_RAISES):
            used = self.consider(self._messages.sweep(*self._at(price)).choices)
            if self.best is not None:
                return
            price = np.where(used > 1, 2 * price + 0.01 * max(abs(self.bound), self._smallest), price)

    def _choose_anew(self) -> None:
        """Part of the nodes, at prices near those of the bound, which go up where what they hold does not fit."""
        assert self.best is not None
        draw, free, choices = self._random, self._drawn_nodes(), self.best
        price = self._prices.center * np.exp(draw.normal(0, 0.5) + draw.normal(0, 0.3, self._memory.times))
        regrets = self._drawn_regrets(free, 0.05 * self.cost * draw.exponential())
        for _ in range(_RAISES):
            nodes, edges = self._part(free, *self._at(price))
            _, anew = least_sum(nodes, edges, regrets=regrets, most_entries=_MOST_ENTRIES)
            used = self.consider(_changed(choices, free, anew))
            if used.max(initial=0.0) <= 1 + ROUNDING:
                return
            price = np.where(used > 1, 2 * price + 0.01 * self.cost, price)

    def _drawn_nodes(self) -> list[int]:
        """All of them, a part of all, or a part that hangs together."""
        count = len(self._nodes)
        most = max(int(count * self._random.choice([1.0, 0.5, 0.25, 0.1])), 1)
        if most == count:
            return list(range(count))
        if self._random.random() < 0.5:
            return sorted(self._random.choice(count, most, replace=False).tolist())
        reached, at = [int(self._random.integers(count))], 0
        seen = set(reached)
        while at < len(reached) < most:
            around = [other for other in self._around[reached[at]] if other not in seen]
            seen.update(around)
            reached += self._random.permutation(around).tolist()
            at += 1
        return sorted(reached[:most])

    def _trade(self) -> None:
        """The cheapest choices that fit of a few nodes, drawn from all and from the neighbours of those drawn."""
        few: list[int] = []
        combinations = 1
        node = int(self._random.integers(len(self._nodes)))
        while combinations * len(self._nodes[node]) <= _MOST_COMBINATIONS and len(few) < len(self._nodes):
            if node not in few:
                few.append(node)
                combinations *= len(self._nodes[node])
            near = self._around[few[self._random.integers(len(few))]]
            if near and self._random.random() < 0.7:
                node = near[self._random.integers(len(near))]
            else:
                node = int(self._random.integers(len(self._nodes)))
        if few:
            self._enumerate(few)

    def _enumerate(self, few: Sequence[int]) -> None:
        """Take the cheapest choices that fit of a few nodes; all others keep theirs."""
        assert self.best is not None
        nodes, edges = self._part(few, self._nodes, self._edges)
        shape = [len(cost) for cost in nodes]
        costs = np.zeros(shape)
        for i, cost in enumerate(nodes):
            costs += cost.reshape([-1 if axis == i else 1 for axis in range(len(few))])
        for (i, j), table in edges.items():
            costs += (table if i < j else table.T).reshape(
                [shape[axis] if axis in (i, j) else 1 for axis in range(len(few))]
            )
        now = costs[tuple(self.best[node] for node in few)]
        better = np.flatnonzero(costs < now - ROUNDING * abs(now))
        better = better[np.argsort(costs.ravel()[better], kind="stable")]
        for choices in np.array(np.unravel_index(better[:_CHECKED], shape)).T.tolist():
            anew = _changed(self.best, few, choices)
            if self._memory.fits(anew):
                self.consider(anew)
                return

    def _drawn_regrets(self, free: Sequence[int], most: float) -> list[Floats]:
        """Those of the last messages, and up to so much more; the present choice has the least."""
        assert self.best is not None
        regrets = []
        for node in free:
            drawn = self._regrets[node] + most * self._random.random(len(self._nodes[node]))
            drawn[self.best[node]] = -inf
            regrets.append(drawn)
        return regrets

    def _part(
        self, free: Sequence[int], nodes: Sequence[Floats], edges: Edges
    ) -> tuple[list[Floats], dict[tuple[int, int], Floats]]:
        """The graph of these nodes alone, where all others keep their choices."""
        assert self.best is not None
        number = {node: position for position, node in enumerate(free)}
        own, inside = [nodes[node] for node in free], {}
        for node, position in number.items():
            for other in self._around[node]:
                a, b = min(node, other), max(node, other)
                if other not in number:
                    table = edges[a, b]
                    own[position] = own[position] + (table[:, self.best[b]] if node == a else table[self.best[a]])
                elif node < other:
                    inside[position, number[other]] = edges[a, b]
        return own, inside


def _changed(choices: Sequence[int], nodes: Sequence[int], anew: Sequence[int]) -> list[int]:
    """Choices with those of some nodes replaced."""
    choice_of = dict(zip(nodes, anew, strict=True))
    return [choice_of.get(node, choice) for node, choice in enumerate(choices)]
