"""All-to-all reduce."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

from simulator.cluster import Cluster
from simulator.collectives._collective import Collective, CollectiveTask
from simulator.taskgraph import Route


def all_to_all(cluster: Cluster, group: Sequence[int], size_bytes: float) -> list[CollectiveTask]:
    """Every device sums 1/N of the bytes for all: 2(N-1)/N x S/B + 2 x latency.

    A direct reduce-scatter and a direct all-gather, each N(N-1) messages of S/N at once (Thakur, Rabenseifner and
    Gropp, Int. J. High Perform. Comput. Appl. 19(1), 2005, section 4.2, its pairwise exchanges without the
    rounds). Moves as many bytes as a ring does, over every pair of devices instead of neighbours.
    """
    members = tuple(group)
    route, part = Route(tuple(permutations(members, 2))), size_bytes / len(members)
    return [
        CollectiveTask(route=route, bytes=part, needs=members),
        CollectiveTask(route=route, bytes=part, after=(0,), delivers=members),
    ]


COLLECTIVE = Collective(all_reduce=all_to_all)
