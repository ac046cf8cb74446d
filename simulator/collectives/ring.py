"""Ring all-reduce."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from simulator.cluster import Cluster
from simulator.collectives._collective import Collective, CollectiveTask
from simulator.collectives._messages import messages_s, ring_ends_s
from simulator.taskgraph import Floats, Route


def ring(cluster: Cluster, group: Sequence[int], size_bytes: float) -> list[CollectiveTask]:
    """Ring all-reduce of `size_bytes` over `group`: 2(N-1)/N x S/B + 2(N-1) x latency.

    Bandwidth-optimal (Patarasuk and Yuan, J. Parallel Distrib. Comput. 69(2), 2009): every device sends
    2(N-1)/N x S to its neighbour in 2(N-1) rounds. The ring follows the order of `group`. Where the cluster has a
    library or measured curves of all-reduces, these say what it takes (`simulator.network.collective_times`).
    """
    members = tuple(group)
    sent_bytes = 2 * (len(group) - 1) / len(group) * size_bytes
    return [CollectiveTask(route=_route(members), bytes=sent_bytes, needs=members, delivers=members)]


@lru_cache(maxsize=256)
def _route(members: tuple[int, ...]) -> Route:
    return Route(around(members), rounds=2 * (len(members) - 1), collective="all-reduce")


def around(members: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """The (sender, receiver) pairs of a ring."""
    return tuple(zip(members, members[1:] + members[:1], strict=True))


def ring_ends(
    cluster: Cluster, group: Sequence[int], size_bytes: float, begin_s: Floats, message_overhead_s: float = 0.0
) -> Floats:
    """When each member has the sum, shape (N,): 2(N-1) rounds of a message of S/N bytes from each to the next."""
    into = np.roll(messages_s(cluster, around(tuple(group)), size_bytes / len(group)).sum(axis=0), 1)
    return ring_ends_s(begin_s + message_overhead_s, into + message_overhead_s)


COLLECTIVE = Collective(all_reduce=ring, ends=ring_ends)
