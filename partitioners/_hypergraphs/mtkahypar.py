"""Cuts by Mt-KaHyPar (Gottesbüren et al., ACM TALG 20, 2024), which also knows how far the parts are from each other.

Where every pair of workers is joined alike, the objective is the connectivity, as KaHyPar's. Otherwise each tensor
costs the least tree of links that joins the workers which hold it (a Steiner tree), so that parts that talk much come
to lie on one node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from partitioners._hypergraphs.hypergraph import Hypergraph
from partitioners._hypergraphs.kahypar import TOTAL, integers, part_limits
from simulator.cluster import Cluster
from simulator.errors import needing
from simulator.taskgraph import Ints


def mtkahypar(
    cluster: Cluster,
    hypergraph: Hypergraph,
    shares: Sequence[float],
    imbalance: float,
    seed: int,
    fixed: Mapping[int, int],
) -> Ints:
    """The cut of two parts or more, as many vertices and a net at least; part p is worker p of `cluster`.

    Raises MissingExtraError where mtkahypar is absent.
    """
    library, kahypar = _initialized()
    library.set_seed(seed)
    context = kahypar.context_from_preset(library.PresetType.DETERMINISTIC_QUALITY)
    context.logging = False
    distances = _distances(cluster)
    if distances:
        context.set_mapping_parameters(len(shares), imbalance)
    else:
        context.set_partitioning_parameters(len(shares), imbalance, library.Objective.KM1)
    weights = integers(hypergraph.vertex_weights)
    if limits := part_limits(shares, imbalance, sum(weights)):
        context.set_individual_target_block_weights(limits)
    start, pins = hypergraph.net_start, hypergraph.pins
    nets = [pins[a:b].tolist() for a, b in pairwise(start)]
    # a net costs its weight times the length of its tree, which has to stay below 2^31 as well
    longest = max(distances.values(), default=1) * len(shares)
    net_weights = integers(hypergraph.net_weights, TOTAL // longest)
    graph = kahypar.create_hypergraph(context, len(weights), len(nets), nets, weights, net_weights)
    if fixed:
        graph.add_fixed_vertices([fixed.get(vertex, -1) for vertex in range(len(weights))], len(shares))
    if distances:
        target = kahypar.create_target_graph(
            context, len(shares), len(distances), list(distances), list(distances.values())
        )
        partitioned = graph.map_onto_graph(target, context)
    else:
        partitioned = graph.partition(context)
    return np.array(partitioned.get_partition(), dtype=np.int64)


def _distances(cluster: Cluster) -> dict[tuple[int, int], int]:
    """Seconds of a byte between two workers, as a multiple of the nearest two's; nothing where all are alike."""
    pairs = list(combinations(range(cluster.workers), 2))
    seconds = np.array([1 / cluster.bandwidth_bytes_per_s(a, b) for a, b in pairs])
    if seconds.max() <= seconds.min() * (1 + 1e-9) or seconds.min() == 0:
        return {}
    return dict(zip(pairs, np.rint(seconds / seconds.min()).astype(int).tolist(), strict=True))


@cache
def _initialized() -> tuple[Any, Any]:
    """The module and its one initialisation per process; one thread, as searches run side by side."""
    with needing("mtkahypar", "this partitioner"):
        library = import_module("mtkahypar")
    return library, library.initialize(1)
