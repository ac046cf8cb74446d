"""Balanced k-way partitioning of a Hypergraph by KaHyPar (Schlag et al., ACM JEA 27, 2022)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path

import numpy as np

from partitioners._hypergraphs.hypergraph import Hypergraph
from simulator.errors import InputError, require_from_0
from simulator.taskgraph import Floats, Ints

Run = Callable[[Hypergraph, Sequence[float], float, int, Mapping[int, int]], Ints]
"""(hypergraph, shares, imbalance, seed, fixed) -> the part of every vertex."""

TOTAL = 2**30
"""Weights become integers whose sum stays below 2^31, which is KaHyPar's weight type."""
MOST_IMBALANCE = 1000
"""Of a part's share; a part of all that there is has as many more as there are others."""


def kahypar(
    hypergraph: Hypergraph, shares: Sequence[float], imbalance: float, seed: int, fixed: Mapping[int, int]
) -> Ints:
    """The cut of two parts or more, as many vertices and a net at least; see `cut`."""
    library = import_module("kahypar")
    weights = integers(hypergraph.vertex_weights)
    graph = library.Hypergraph(
        len(weights),
        len(hypergraph.net_weights),
        hypergraph.net_start.tolist(),
        hypergraph.pins.tolist(),
        len(shares),
        integers(hypergraph.net_weights),
        weights,
    )
    for vertex, part in fixed.items():
        graph.fixNodeToBlock(vertex, part)
    context = library.Context()
    context.loadINIconfiguration(str(Path(__file__).with_name("kahypar.ini")))
    context.setK(len(shares))
    context.setEpsilon(imbalance)
    context.setSeed(seed)
    context.suppressOutput(True)
    if limits := part_limits(shares, imbalance, sum(weights)):
        context.setCustomTargetBlockWeights(limits)
    library.partition(graph, context)
    return np.array([graph.blockID(vertex) for vertex in range(len(weights))], dtype=np.int64)


def cut(
    hypergraph: Hypergraph,
    shares: Sequence[float],
    *,
    imbalance: float = 0.03,
    seed: int = 0,
    fixed: Mapping[int, int] | None = None,
    run: Run = kahypar,
) -> Ints:
    """The part of every vertex: part p gets at most shares[p] x (1 + imbalance) of the weight, few bytes cross.

    `shares` add up to 1; `fixed` holds vertices in given parts; `run` does the work where there is any. It may miss
    a bound that no partition can meet; ask `Hypergraph.imbalance`. Raises InputError when there are more parts than
    vertices.
    """
    count, parts = len(hypergraph.vertex_weights), len(shares)
    require_from_0("imbalance", imbalance, MOST_IMBALANCE)
    if parts > count:
        raise InputError(
            f"{parts} devices but only {count} shards: a device gets at least one; take a finer grid or {count} devices"
        )
    if parts == 1:
        return np.zeros(count, dtype=np.int64)
    if not len(hypergraph.net_weights):
        return _longest_first(hypergraph.vertex_weights, shares)
    return run(hypergraph, shares, imbalance, seed, fixed or {})


def part_limits(shares: Sequence[float], imbalance: float, total: int) -> list[int]:
    """The most weight of each part, of `total`, whose sum KaHyPar takes in 32 bits; empty where shares are equal."""
    if max(shares) <= min(shares) * (1 + 1e-9):
        return []
    return [int(share * total * (1 + min(imbalance, 0.9))) + 1 for share in shares]


def integers(weights: Floats, most: int = TOTAL) -> list[int]:
    """Whole numbers of at least 1 in the proportions of `weights`, shape (weights,), whose sum is about `most`."""
    total = float(weights.sum())
    scaled = np.rint(weights / total * most if total else weights).astype(np.int64)
    rounded: list[int] = np.maximum(scaled, 1).tolist()
    return rounded


def _longest_first(weights: Floats, shares: Sequence[float]) -> Ints:
    """Without nets only balance matters: longest processing time first, to the relatively least loaded part."""
    loads = np.zeros(len(shares))
    parts = np.empty(len(weights), dtype=np.int64)
    for vertex in np.argsort(-weights, kind="stable"):
        part = int(np.argmin((loads + weights[vertex]) / np.array(shares)))
        parts[vertex] = part
        loads[part] += weights[vertex]
    return parts
