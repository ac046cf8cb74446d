"""Recursive halving and doubling."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.cluster import Cluster
from simulator.collectives._collective import Collective, CollectiveTask, both_ways
from simulator.taskgraph import Route


def halving_doubling(cluster: Cluster, group: Sequence[int], size_bytes: float) -> list[CollectiveTask]:
    """Reduce-scatter by recursive halving, all-gather by recursive doubling: 2(N-1)/N x S/B + 2 log2(N) x latency.

    Rabenseifner's algorithm (Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19(1), 2005,
    section 4.5): in phase i devices at distance 2^i exchange S/2^(i+1), so that the nearest exchange most.
    When N is no power of two, each of the N - 2^k devices that are too many first hands its gradient to its
    neighbour and gets the result back from it at the end, which adds 2(S/B + latency) to the time of 2^k.
    """
    members = tuple(group)
    power = 1 << (len(members).bit_length() - 1)
    extra = len(members) - power
    active = members[1 : 2 * extra : 2] + members[2 * extra :]
    fold = tuple((members[2 * i], members[2 * i + 1]) for i in range(extra))
    phases = [(pairs, size_bytes / 2 ** (i + 1)) for i, pairs in enumerate(_exchanges(active))]
    phases = phases + phases[::-1]
    if fold:
        phases = [(fold, size_bytes), *phases, (tuple((b, a) for a, b in fold), size_bytes)]
    last = len(phases) - 1
    return [
        CollectiveTask(
            route=Route(pairs),
            bytes=part,
            after=(i - 1,) if i else (),
            needs=() if i else members,
            delivers=members if i == last else (),
        )
        for i, (pairs, part) in enumerate(phases)
    ]


def _exchanges(active: tuple[int, ...]) -> list[tuple[tuple[int, int], ...]]:
    """Who exchanges with whom, distance 1, 2, 4, ..."""
    distances = [1 << i for i in range(len(active).bit_length() - 1)]
    return [both_ways([(a, active[i + d]) for i, a in enumerate(active) if not i & d]) for d in distances]


COLLECTIVE = Collective(all_reduce=halving_doubling)
