"""The shortest way between two nodes of a network of directed links.

Most networks are trees (devices under switches under switches), where the only way leads over the lowest common
ancestor and takes as many steps as it has hops. Others are searched breadth first from each source, once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import networkx as nx

Hop = tuple[str, str]
"""(source, target) of a link."""
_Forest = Mapping[str, tuple[str, int]]
"""Of every node its parent and its depth; a root is its own parent, at depth 0."""


@dataclass(frozen=True)
class Routes:
    """Ways over `links` between `nodes` and whatever else the links name."""

    nodes: Sequence[str]
    links: Sequence[Hop]

    def hops(self, source: str, target: str) -> list[Hop]:
        """The fewest hops from one node to another; none where there is no way. In a tree a hop may lack its link."""
        if (source, target) in self._direct:
            return [(source, target)]
        return self._breadth_first(source, target) if self._forest is None else _hops_in(self._forest, source, target)

    @cached_property
    def graph(self) -> nx.DiGraph[str]:
        """The network as a networkx graph."""
        import networkx as nx

        graph: nx.DiGraph[str] = nx.DiGraph()
        graph.add_nodes_from(self.nodes)
        graph.add_edges_from(self.links)
        return graph

    @cached_property
    def _direct(self) -> frozenset[Hop]:
        return frozenset(self.links)

    @cached_property
    def _forest(self) -> _Forest | None:
        return _forest_of(self.links)

    @cached_property
    def _paths(self) -> dict[str, Mapping[str, list[str]]]:
        return {}

    def _breadth_first(self, source: str, target: str) -> list[Hop]:
        import networkx as nx

        if source not in self._paths:
            self._paths[source] = nx.single_source_shortest_path(self.graph, source)
        return list(pairwise(self._paths[source].get(target, [])))


def _forest_of(links: Iterable[Hop]) -> _Forest | None:
    """The trees that links make, whichever way they lead; None where there is a cycle."""
    neighbours: dict[str, set[str]] = {}
    for a, b in links:
        neighbours.setdefault(a, set()).add(b)
        neighbours.setdefault(b, set()).add(a)
    forest: dict[str, tuple[str, int]] = {}
    for root in neighbours:
        if root in forest:
            continue
        forest[root] = root, 0
        stack = [root]
        while stack:
            node = stack.pop()
            parent, depth = forest[node]
            for other in neighbours[node] - {node, parent}:
                if other in forest:
                    return None
                forest[other] = node, depth + 1
                stack.append(other)
    return forest


def _hops_in(forest: _Forest, source: str, target: str) -> list[Hop]:
    """The only way from one node to another, up to their lowest common ancestor and down; none in different trees."""
    up, down = [], []
    while source != target:
        (above, depth), (over, other_depth) = forest.get(source, (source, 0)), forest.get(target, (target, 0))
        if depth == other_depth == 0:
            return []
        if depth >= other_depth:
            up.append((source, above))
            source = above
        else:
            down.append((over, target))
            target = over
    return up + down[::-1]
