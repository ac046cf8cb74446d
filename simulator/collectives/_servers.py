"""Parameter servers, on hosts of their own or on the workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from simulator.cluster import Cluster
from simulator.collectives._step import Step
from simulator.errors import require
from simulator.taskgraph import Route


def parameter_server(cluster: Cluster, group: Sequence[int], size_bytes: float, update_s: float = 0.0) -> list[Step]:
    """Push gradients to the servers, update there, pull the parameters: N x S/B into and N x S/B out of one server.

    The bucket is cut evenly over the cluster's K servers (Li et al., OSDI 2014); each updates its part, in
    `update_s` / K seconds at speed 1, when every push has come. Moves 2 N S bytes in all and takes
    2(max(N/K, 1) x S/B + latency) + update_s / K on equal links. Raises InputError when the cluster has no server.
    """
    servers = cluster.servers
    require(len(servers) > 0, "sync", "'ps'", f"cluster {cluster.name!r} has no parameter server; add --servers 1")
    return _served(cluster, group, servers, size_bytes, update_s)


def worker_servers(
    cluster: Cluster, group: Sequence[int], size_bytes: float, update_s: float = 0.0, *, servers: int | None = None
) -> list[Step]:
    """Parameter servers on K of the workers: 2(N-1)/K x S/B + 2 x latency + update_s / K; moves 2(N-1) S bytes.

    What a serving worker has computed itself does not travel; it receives (N-1)/K x S, and sends as much
    (BytePS, Jiang et al., OSDI 2020, section 4.1, on why colocated servers save bytes).
    """
    return _served(cluster, group, serving(cluster, group, servers), size_bytes, update_s)


def serving(cluster: Cluster, group: Sequence[int], servers: int | None) -> tuple[int, ...]:
    """The members of `group` that serve: one per host (None), or `servers` of them, spread over the hosts.

    Raises InputError when there are fewer members.
    """
    seen: Counter[str] = Counter()
    order = []
    for place, device in enumerate(group):
        host = cluster.devices[device].host
        order.append((seen[host], place, device))
        seen[host] += 1
    count = len(seen) if servers is None else servers
    require(1 <= count <= len(group), "serving_workers", count, f"of {len(group)} workers 1 to {len(group)} can serve")
    return tuple(sorted(device for _, _, device in sorted(order)[:count]))


def _served(
    cluster: Cluster, group: Sequence[int], servers: Sequence[int], size_bytes: float, update_s: float
) -> list[Step]:
    part = size_bytes / len(servers)
    steps: list[Step] = []
    for server in servers:
        others = [device for device in group if device != server]
        own = (server,) if server in group else ()
        first = len(steps)
        steps += [Step(route=Route(((device, server),)), bytes=part, needs=(device,)) for device in others]
        pushes = tuple(range(first, len(steps)))
        seconds = update_s / len(servers) / cluster.devices[server].speed
        steps.append(Step(device=server, seconds=seconds, after=pushes, needs=own, delivers=own))
        after = (len(steps) - 1,)
        steps += [
            Step(route=Route(((server, device),)), bytes=part, after=after, delivers=(device,)) for device in others
        ]
    return steps
