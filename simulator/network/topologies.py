"""Ways to join devices: each builder returns a Cluster.

flat_switch     every device on one switch
two_tier        nodes of several devices: a switch inside each node, one core switch between the nodes
ring, torus     every device joined to its neighbours, without a switch
fat_tree        the k-ary fat tree: edge switches, pods and a core of full bisection bandwidth
from_graph      any networkx graph

A Wire says what one hop costs. Each builder also takes `servers`: parameter servers, each on a host of its own,
joined where a further node would be (see each builder). `device` is what every worker looks like: its kind,
memory, speed and price; names and hosts are given here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from simulator.cluster import AchievedShare, Cluster, Device, Link
from simulator.errors import InputError, require

if TYPE_CHECKING:
    import networkx as nx

WORKER = Device(name="device", host="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """What joins two points: one link each way, of this bandwidth (per direction), latency and tier.

    achieved: the share of the bandwidth that links give, as it was measured; without it they give all. wires: how many
    parallel ones it is, of which a message has one, and of that the share `message` (None: as collectives).
    """

    __pydantic_config__ = {"extra": "forbid"}

    bandwidth_bytes_per_s: float
    latency_s: float = 0.0
    tier: str = "link"
    achieved: AchievedShare | None = None
    wires: int = 1
    message: float | None = None


def flat_switch(
    devices: int, wire: Wire, *, servers: int = 0, device: Device = WORKER, name: str = "flat-switch"
) -> Cluster:
    """`devices` hosts of one device each on one non-blocking switch; servers are further hosts.

    A message crosses two wires, so its latency is twice the wire's. Raises InputError unless devices >= 1.

    >>> cluster = flat_switch(4, Wire(bandwidth_bytes_per_s=1e9, latency_s=1e-6))
    >>> [cluster.links[i].name for i in cluster.route(0, 3)]
    ['host0->switch', 'switch->host3']
    """
    members = _workers(devices, device, "host") + _servers(servers)
    links = [link for member in members for link in _join(member.name, "switch", wire)]
    return Cluster(name=name, devices=members, links=tuple(links))


def two_tier(
    devices: int,
    per_node: int,
    intra: Wire,
    inter: Wire,
    *,
    cores_per_node: float | None = None,
    servers: int = 0,
    device: Device = WORKER,
    name: str = "two-tier",
) -> Cluster:
    """`devices` devices in nodes of `per_node`, filled in order; the last node may be part full.

    Inside a node each device has an `intra` wire to the node's switch (NVSwitch, PCIe); each node has one
    `inter` wire to the core switch, which all its devices share. A node with several network cards has an `inter`
    wire of their sum, of so many `wires`: collectives spread over all cards, a message alone has one of them. A
    server is a host on an `inter` wire of its own.

        device --intra--> node switch --inter--> core --inter--> node switch --intra--> device

    Raises InputError unless devices >= 1 and per_node >= 1.
    """
    require(per_node >= 1, "per_node", per_node, "a node has at least 1 device")
    workers = _workers(devices, device, "node", per_node)
    extra = _servers(servers)
    nodes = list(dict.fromkeys(worker.host for worker in workers))
    links = [link for worker in workers for link in _join(worker.name, f"{worker.host}/switch", intra)]
    links += [link for node in nodes for link in _join(f"{node}/switch", "core", inter)]
    links += [link for server in extra for link in _join(server.name, "core", inter)]
    cores = {} if cores_per_node is None else dict.fromkeys(nodes, cores_per_node)
    return Cluster(name=name, devices=workers + extra, links=tuple(links), host_cores=cores)


def ring(devices: int, wire: Wire, *, servers: int = 0, device: Device = WORKER, name: str = "ring") -> Cluster:
    """`devices` in a circle, each joined to the next and the last to the first; servers as in `torus`."""
    return torus((devices,), wire, servers=servers, device=device, name=name)


def torus(
    shape: Sequence[int], wire: Wire, *, servers: int = 0, device: Device = WORKER, name: str = "torus"
) -> Cluster:
    """A grid of devices of any number of dimensions that wraps round, numbered in row-major order.

    Messages travel along the grid through the devices between, which pass them on. The k-th of K servers
    hangs on a wire of its own from device k * devices / K. Raises InputError unless every side is at least 1.
    """
    require(len(shape) > 0 and min(shape) >= 1, "shape", tuple(shape), "each side is at least 1")
    members = _workers(prod(shape), device, "host")
    joined: set[tuple[int, int]] = set()
    for axis, side in enumerate(shape):
        stride = prod(shape[axis + 1 :])
        for number, coordinates in enumerate(product(*map(range, shape))):
            ahead = number + ((coordinates[axis] + 1) % side - coordinates[axis]) * stride
            if ahead != number:  # a side of 1 has no neighbour, a side of 2 the same one on both hands
                joined.add((min(number, ahead), max(number, ahead)))
    links = [link for a, b in sorted(joined) for link in _join(members[a].name, members[b].name, wire)]
    extra = _servers(servers)
    for k, server in enumerate(extra):
        links += _join(server.name, members[k * len(members) // servers].name, wire)
    return Cluster(name=name, devices=members + extra, links=tuple(links))


def fat_tree(
    k: int,
    wire: Wire,
    *,
    devices: int | None = None,
    servers: int = 0,
    device: Device = WORKER,
    name: str = "fat-tree",
) -> Cluster:
    """The k-ary fat tree with one device per port: k pods of k/2 edge switches of k/2 ports, k^3 / 4 in all.

    Its parallel switches (Al-Fares et al., SIGCOMM 2008, section 3) spread traffic evenly, so the k/2 aggregation
    switches of a pod stand here as one, and all core switches as one, on links of their summed bandwidth:

        device --B-- edge switch --B k/2-- pod --B (k/2)^2-- core        tiers "edge", "pod", "core"

    Devices fill the ports in order, all of them by default; servers take the ports that follow. Raises InputError
    when k is odd or there are more members than ports.
    """
    require(k >= 2 and k % 2 == 0, "k", k, "it is even and at least 2")
    half, ports = k // 2, k**3 // 4
    members = _workers(ports - servers if devices is None else devices, device, "host") + _servers(servers)
    rule = f"a {k}-ary fat tree has k^3 / 4 = {ports} ports, servers included; use a larger k"
    require(len(members) <= ports, "devices", len(members), rule)
    tiers = [
        replace(wire, tier=tier, bandwidth_bytes_per_s=wire.bandwidth_bytes_per_s * half**depth)
        for depth, tier in enumerate(("edge", "pod", "core"))
    ]
    edges = range((len(members) - 1) // half + 1)
    links = [link for i, member in enumerate(members) for link in _join(member.name, f"edge{i // half}", tiers[0])]
    links += [link for edge in edges for link in _join(f"edge{edge}", f"pod{edge // half}", tiers[1])]
    links += [link for pod in range(edges[-1] // half + 1) for link in _join(f"pod{pod}", "core", tiers[2])]
    return Cluster(name=name, devices=members, links=tuple(links))


def from_graph(
    graph: nx.Graph[str],
    devices: Iterable[str],
    wire: Wire,
    *,
    servers: Iterable[str] = (),
    device: Device = WORKER,
    name: str = "graph",
) -> Cluster:
    """A cluster over any networkx graph: `devices` and `servers` are nodes of it, all others are switches.

    An edge becomes a link each way, in a DiGraph one link its own way. Edge attributes bandwidth_bytes_per_s,
    latency_s and tier replace the wire's. Raises InputError for a device that is no node.
    """
    workers = tuple(replace(device, name=node, host=node) for node in devices)
    extra = tuple(Device(name=node, host=node, kind="server", role="server") for node in servers)
    for member in workers + extra:
        if member.name not in graph:
            raise InputError(f"devices names {member.name!r}, which is no node of the graph; add the node")
    links: list[Link] = []
    for source, target, attributes in graph.edges(data=True):
        changes = {key: attributes[key] for key in ("bandwidth_bytes_per_s", "latency_s", "tier") if key in attributes}
        links += _join(source, target, replace(wire, **changes))[: 1 if graph.is_directed() else 2]
    return Cluster(name=name, devices=workers + extra, links=tuple(links))


def take(cluster: Cluster, devices: int) -> Cluster:
    """`cluster` with its first `devices` workers and all its servers and links.

    Raises InputError unless 1 <= devices <= the workers it has.
    """
    rule = f"cluster {cluster.name!r} has {cluster.workers} workers; use 1 to {cluster.workers}"
    require(1 <= devices <= cluster.workers, "devices", devices, rule)
    return select(cluster, range(devices))


def select(cluster: Cluster, workers: Iterable[int]) -> Cluster:
    """`cluster` with these of its workers, in this order, and all its servers and links.

    Where every host has lost some, collectives measured on several full hosts lapse.
    """
    kept = tuple(cluster.devices[i] for i in workers) + cluster.devices[cluster.workers :]
    hosts = {device.host for device in kept}
    cores = {host: cores for host, cores in cluster.host_cores.items() if host in hosts}
    smaller = replace(cluster, devices=kept, host_cores=cores)
    if smaller.devices_per_host == cluster.devices_per_host or not cluster.collectives:
        return smaller
    curves = {
        name: {count: curve for count, curve in by_count.items() if count <= smaller.devices_per_host}
        for name, by_count in cluster.collectives.items()
    }
    return replace(smaller, collectives={name: by_count for name, by_count in curves.items() if by_count})


def _join(a: str, b: str, wire: Wire) -> list[Link]:
    share = 1.0 if wire.achieved is None else wire.achieved.median
    return [
        Link(
            source=source,
            target=target,
            bandwidth_bytes_per_s=wire.bandwidth_bytes_per_s * share,
            latency_s=wire.latency_s,
            tier=wire.tier,
            line_rate_bytes_per_s=None if wire.achieved is None else wire.bandwidth_bytes_per_s,
            achieved=wire.achieved,
            wires=wire.wires,
            message_bytes_per_s=wire.message and wire.message * wire.bandwidth_bytes_per_s / wire.wires,
        )
        for source, target in ((a, b), (b, a))
    ]


def _workers(count: int, device: Device, host: str, per_host: int = 1) -> tuple[Device, ...]:
    """`count` devices; one that has its host to itself is named after it."""
    require(count >= 1, "devices", count, "a cluster has at least 1")
    workers = []
    for i in range(count):
        home = f"{host}{i // per_host}"
        workers.append(
            replace(device, host=home, name=home if per_host == 1 else f"{home}/{device.name}{i % per_host}")
        )
    return tuple(workers)


def _servers(count: int) -> tuple[Device, ...]:
    require(count >= 0, "servers", count, "it is at least 0")
    return tuple(Device(name=f"server{i}", host=f"server{i}", kind="server", role="server") for i in range(count))
