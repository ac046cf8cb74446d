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
    2(N-1)/N x S to its neighbour in 2(N-1) rounds. The ring follows the order of `group`. A measured
    "all_reduce" curve of the cluster for N devices that lie on hosts alike replaces the formula.
    """
    members, n = tuple(group), len(group)
    seconds = cluster.collective_s("all_reduce", members, size_bytes)
    route = _route(members)
    sent_bytes = sent_times(n) * size_bytes
    return [CollectiveTask(route=route, bytes=sent_bytes, seconds=seconds, needs=members, delivers=members)]


def sent_times(ranks: int) -> float:
    """How many times the size of what is summed every rank sends."""
    return 2 * (ranks - 1) / ranks


@lru_cache(maxsize=256)
def _route(members: tuple[int, ...]) -> Route:
    return Route(around(members), rounds=2 * (len(members) - 1))


def around(members: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """The (sender, receiver) pairs of a ring."""
    return tuple(zip(members, members[1:] + members[:1], strict=True))


def ring_ends(
    cluster: Cluster, group: Sequence[int], size_bytes: float, begin_s: Floats, message_overhead_s: float = 0.0
) -> Floats:
    """When each member has the sum, shape (N,): 2(N-1) rounds of a message of S/N bytes from each to the next."""
    into = np.roll(messages_s(cluster, around(tuple(group)), size_bytes / len(group)), 1)
    return ring_ends_s(begin_s + message_overhead_s, into + message_overhead_s)


COLLECTIVE = Collective(all_reduce=ring, ends=ring_ends)
