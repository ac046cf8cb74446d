"""Ways to join devices: each builder returns a Cluster.

flat_switch     every device on one switch
two_tier        nodes of several devices: a switch inside each node, one core switch between the nodes

A Wire says what one hop costs. Each builder also takes `servers`: parameter servers, each on a host of its own,
joined where a further node would be (see each builder). `device` is what every worker looks like: its kind,
memory, speed and price; names and hosts are given here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from simulator.cluster import AchievedShare, Cluster, Device, Link
from simulator.errors import require
from simulator.units import counted

WORKER = Device(name="device", host="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """What joins two points: one link each way, of this bandwidth (per direction), latency and tier.

    achieved: the share of the bandwidth that links give, as it was measured; without it they give all. wires: how many
    parallel ones it is, of which a message has one, and gets message_bytes_per_s (None: what collectives get of it).
    """

    bandwidth_bytes_per_s: float
    latency_s: float = 0.0
    tier: str = "link"
    achieved: AchievedShare | None = None
    wires: int = 1
    message_bytes_per_s: float | None = None


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
    links = _join([(member.name, "switch") for member in members], wire)
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
    links = _join([(worker.name, f"{worker.host}/switch") for worker in workers], intra)
    links += _join([(f"{node}/switch", "core") for node in nodes], inter)
    links += _join([(server.name, "core") for server in extra], inter)
    cores = {} if cores_per_node is None else dict.fromkeys(nodes, cores_per_node)
    return Cluster(name=name, devices=workers + extra, links=tuple(links), host_cores=cores)


def take(cluster: Cluster, devices: int) -> Cluster:
    """`cluster` with its first `devices` workers and all its servers and links, for each number always the same one.

    Raises InputError unless 1 <= devices <= the workers it has.
    """
    rule = f"cluster {cluster.name!r} has {counted(cluster.workers, 'worker')}; use 1 to {cluster.workers}"
    require(1 <= devices <= cluster.workers, "devices", devices, rule)
    if devices == cluster.workers:
        return cluster
    part: Cluster = cluster.kept.get((take, devices), lambda: select(cluster, range(devices)))
    return part


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


def _join(pairs: Sequence[tuple[str, str]], wire: Wire) -> list[Link]:
    """A link there and one back for each pair of nodes."""
    share = 1.0 if wire.achieved is None else wire.achieved.median
    ends = [way for a, b in pairs for way in ((a, b), (b, a))]
    first = [
        Link(
            source=source,
            target=target,
            bandwidth_bytes_per_s=wire.bandwidth_bytes_per_s * share,
            latency_s=wire.latency_s,
            tier=wire.tier,
            line_rate_bytes_per_s=None if wire.achieved is None else wire.bandwidth_bytes_per_s,
            achieved=wire.achieved,
            wires=wire.wires,
            message_bytes_per_s=wire.message_bytes_per_s,
        )
        for source, target in ends[:1]
    ]
    return first + [first[0].between(*way) for way in ends[1:]]


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
