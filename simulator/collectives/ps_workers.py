"""Parameter servers on the workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from simulator.cluster import Cluster
from simulator.collectives._collective import Collective
from simulator.errors import require


def serving_members(cluster: Cluster, group: Sequence[int], serving_workers: int | None = None) -> tuple[int, ...]:
    """K members of `group`: one per host (None), or `serving_workers` of them, spread over the hosts.

    On equal links takes 2(N-1)/K x S/B + 2 x latency + update_s / K, and moves 2(N-1) S bytes: a serving worker
    receives (N-1)/K x S, and sends as much (BytePS, Jiang et al., OSDI 2020, section 4.1, on why colocated servers
    save bytes). Raises InputError when there are fewer members.
    """
    seen: Counter[str] = Counter()
    order = []
    for position, device in enumerate(group):
        host = cluster.devices[device].host
        order.append((seen[host], position, device))
        seen[host] += 1
    count = len(seen) if serving_workers is None else serving_workers
    require(1 <= count <= len(group), "serving_workers", count, f"of {len(group)} workers 1 to {len(group)} can serve")
    return tuple(sorted(device for _, _, device in sorted(order)[:count]))


COLLECTIVE = Collective(serving=serving_members)
