"""How a group of devices sums a gradient bucket: each collective is one function of this file.

A collective turns (group, bytes, cluster, update seconds) into Steps. A ring whose members move in lockstep is
one fluid transfer over all its links, not N messages a round: with nothing else on the links the two take
the same time, and the simulator's work does not grow with N squared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from simulator.cluster import Cluster
from simulator.errors import UnknownNameError, require
from simulator.taskgraph import Route


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One transfer (with a route) or one computation on a server (with a device) of a collective.

    bytes cross each pair of the route; a measured transfer takes `seconds` and does not contend. `after`:
    earlier steps of this collective that must have ended; `needs`: devices whose gradient must be ready;
    `delivers`: devices that hold the result when it ends.
    """

    route: Route | None = None
    bytes: float = 0.0
    seconds: float = 0.0
    device: int = -1
    after: tuple[int, ...] = ()
    needs: tuple[int, ...] = ()
    delivers: tuple[int, ...] = ()


Collective = Callable[[Cluster, Sequence[int], float, float], list[Step]]


def ring(cluster: Cluster, group: Sequence[int], size_bytes: float, update_s: float = 0.0) -> list[Step]:
    """Ring all-reduce of `size_bytes` over `group`: 2(N-1)/N x S/B + 2(N-1) x latency.

    Bandwidth-optimal (Patarasuk and Yuan, J. Parallel Distrib. Comput. 69(2), 2009): every device sends
    2(N-1)/N x S to its neighbour in 2(N-1) rounds. The ring follows the order of `group`. A measured
    "all_reduce" curve of the cluster for N devices replaces the formula. The optimizer runs on the devices
    themselves, so `update_s` is not used here.
    """
    members, n = tuple(group), len(group)
    route = Route(tuple(zip(members, members[1:] + members[:1], strict=True)), rounds=2 * (n - 1))
    curve = cluster.collectives.get("all_reduce", {}).get(n)
    seconds = curve.seconds(size_bytes) if curve else 0.0
    return [Step(route=route, bytes=2 * (n - 1) / n * size_bytes, seconds=seconds, needs=members, delivers=members)]


def parameter_server(cluster: Cluster, group: Sequence[int], size_bytes: float, update_s: float = 0.0) -> list[Step]:
    """Push gradients to the servers, update there, pull the parameters: N x S/B into and N x S/B out of one server.

    The bucket is cut evenly over the cluster's servers (Li et al., OSDI 2014); each updates its part, in
    `update_s` / K seconds at speed 1, when every push has come. Moves 2 N S bytes in all.
    Raises InputError when the cluster has no server.
    """
    servers, n = cluster.servers, len(group)
    require(len(servers) > 0, "sync", "'ps'", f"cluster {cluster.name!r} has no parameter server; add --servers 1")
    part = size_bytes / len(servers)
    steps: list[Step] = []
    for server in servers:
        first = len(steps)
        steps += [Step(route=Route(((device, server),)), bytes=part, needs=(device,)) for device in group]
        seconds = update_s / len(servers) / cluster.devices[server].speed
        steps.append(Step(device=server, seconds=seconds, after=tuple(range(first, first + n))))
        after = (len(steps) - 1,)
        steps += [
            Step(route=Route(((server, device),)), bytes=part, after=after, delivers=(device,)) for device in group
        ]
    return steps


COLLECTIVES: Mapping[str, Collective] = {"ring": ring, "ps": parameter_server}
UPDATES_ON_SERVER = frozenset({"ps"})


def collective(name: str) -> Collective:
    """The collective called `name`. Raises UnknownNameError."""
    if name not in COLLECTIVES:
        raise UnknownNameError.of("collective", name, COLLECTIVES)
    return COLLECTIVES[name]
