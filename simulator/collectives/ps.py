"""Parameter servers on hosts of their own."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.cluster import Cluster
from simulator.collectives._collective import Collective
from simulator.errors import require


def own_servers(cluster: Cluster, group: Sequence[int], serving_workers: int | None = None) -> tuple[int, ...]:
    """The cluster's K servers (Li et al., OSDI 2014): N x S/B into and N x S/B out of one server.

    Moves 2 N S bytes in all and takes 2(max(N/K, 1) x S/B + latency) + update_s / K on equal links.
    Raises InputError when the cluster has no server.
    """
    servers = cluster.servers
    require(len(servers) > 0, "sync", "'ps'", f"cluster {cluster.name!r} has no parameter server; add --servers 1")
    return servers


COLLECTIVE = Collective(serving=own_servers, needs_server=True)
