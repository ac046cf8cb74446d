"""A small shaped network on one Linux machine: every device of a Cluster gets a network namespace of its own.

    device namespace          switch namespace
    eth0 10.77.0.1/24  ====  d0 ─┐
                                 ├─ bridge ==== bridge ─ ...        ==== is a veth pair, one shaped interface
    eth0 10.77.0.2/24  ====  d1 ─┘                                  at each end: one per directed link

The cluster's links form a tree whose leaves are the devices and whose inner nodes are switches (a flat switch, two
tiers, a fat tree). Nothing is joined to the machine's own network, so traffic cannot leave the lab. A link's
latency_s is not shaped, since many kernels lack what that takes (netem); `traces/calibrate` measures what is there.

Each direction is shaped as `traces.lab.link_shaping` says.

Needs root and iproute2; `traces.lab.namespaces.available` says what is missing.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from types import FrameType, TracebackType
from typing import Any

import networkx as nx

from simulator.cluster import Cluster, Link
from simulator.errors import InputError, RunError, require
from traces.lab import namespaces
from traces.lab.link_shaping import (
    MOST_BYTES_PER_S,
    MTU_BYTES,
    Shaping,
    line_rate,
    queue_commands,
    segment_bytes,
    tcp_settings,
)

_numbers = count()


@dataclass(frozen=True, slots=True)
class _Port:
    """The interface from which a directed link leaves."""

    link: Link
    namespace: str
    interface: str


class Lab:
    """The namespaces of `cluster`, which exist inside `with Lab(cluster) as lab:` and go whatever ends it.

    An exception, Ctrl-C, SIGTERM and SIGHUP all tear the lab down; after SIGKILL the next Lab does, of whatever
    process. shaping: how a user shaped the links, None for the lab's own way. Raises InputError where the cluster is no
    tree of switches and RunError where no lab can be made.
    """

    interface = "eth0"

    def __init__(self, cluster: Cluster, shaping: Shaping | None = None) -> None:
        _check(cluster)
        self.cluster = cluster
        self.shaping = shaping
        self._name = f"{namespaces.owned_prefix()}-{next(_numbers)}"
        self._switches = f"{self._name}-switches"
        self._ports = _ports(cluster, self.namespace, self._switches)
        self._signals: dict[int, Any] = {}

    def namespace(self, device: int) -> str:
        """Name of the device's namespace."""
        return f"{self._name}-{device}"

    def command(self, device: int, argv: Sequence[str]) -> list[str]:
        """`argv` as it is started on the device; the process keeps its id (exec all the way)."""
        return ["ip", "netns", "exec", self.namespace(device), *argv]

    def carried_bytes(self) -> dict[str, int]:
        """Bytes that each directed link has carried so far, by link name, with protocol headers."""
        counted = {name: _sent_bytes(name) for name in dict.fromkeys(port.namespace for port in self._ports)}
        return {port.link.name: counted[port.namespace][port.interface] for port in self._ports}

    def __enter__(self) -> Lab:
        reason = namespaces.available()
        if reason:
            raise RunError(f"no network lab: {reason}")
        namespaces.remove_leftovers()
        self._catch_signals()
        try:
            self._build()
        except BaseException:
            self._tear_down()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._tear_down()

    def _build(self) -> None:
        devices = range(len(self.cluster.devices))
        for name in (*map(self.namespace, devices), self._switches):
            namespaces.call("ip", "netns", "add", name)
        namespaces.batch("ip", self._switches, _wiring(self.cluster, self.namespace))
        slowest = min(line_rate(link) for link in self.cluster.links)
        for device in devices:
            segment = None if self.shaping else segment_bytes(slowest)
            namespaces.batch("ip", self.namespace(device), _host_setup(f"10.77.0.{device + 1}", segment))
        for name in dict.fromkeys(port.namespace for port in self._ports):
            ports = [port for port in self._ports if port.namespace == name]
            shaped = [(port.interface, line_rate(port.link), len(devices), self.shaping) for port in ports]
            namespaces.batch("tc", name, [line for port in shaped for line in queue_commands(*port)])
            if not self.shaping and name != self._switches:
                _set_tcp(name, tcp_settings(line_rate(ports[0].link)))

    def _tear_down(self) -> None:
        for number in self._signals:
            signal.signal(number, signal.SIG_IGN)
        namespaces.remove(namespaces.listed(self._name))
        for number, former in self._signals.items():
            signal.signal(number, former)
        self._signals.clear()

    def _catch_signals(self) -> None:
        """Turn signals that would end the process at once into an exception, which unwinds through the lab."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._signals[signal.SIGINT] = signal.getsignal(signal.SIGINT)
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                self._signals[number] = signal.signal(number, _exit)


def _exit(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _check(cluster: Cluster) -> None:
    devices = {device.name for device in cluster.devices}
    joined = {(link.source, link.target) for link in cluster.links}
    graph = nx.Graph(joined)
    require(len(devices) <= 254, "devices", len(devices), "a lab has at most 254")
    fastest = max(map(line_rate, cluster.links), default=0.0)
    rule = f"it is at most {MOST_BYTES_PER_S:.4g}, whose windows are the longest that the kernel sets"
    require(fastest <= MOST_BYTES_PER_S, "links: bandwidth_bytes_per_s", f"{fastest:.4g}", rule)
    for source, target in joined:
        if (target, source) not in joined:
            raise InputError(f"links: {source}->{target} has no way back; a lab's links come in pairs")
    if not devices <= set(graph) or not nx.is_tree(graph):
        raise InputError(f"links of {cluster.name!r} form no tree that joins all devices; a lab needs one of switches")
    for device in devices:
        (*near,) = graph[device]
        if len(near) != 1 or near[0] in devices:
            raise InputError(f"device {device!r} is joined to {', '.join(near)}; in a lab it is joined to one switch")


def _ports(cluster: Cluster, namespace: Callable[[int], str], switches: str) -> tuple[_Port, ...]:
    """The port of every directed link, in the order of the cluster's links."""
    numbers = {device.name: i for i, device in enumerate(cluster.devices)}
    trunks = _trunks(cluster)
    ports = []
    for link in cluster.links:
        if link.source in numbers:
            ports.append(_Port(link, namespace(numbers[link.source]), Lab.interface))
        elif link.target in numbers:
            ports.append(_Port(link, switches, f"d{numbers[link.target]}"))
        else:
            ports.append(_Port(link, switches, trunks[link.source, link.target]))
    return tuple(ports)


def _trunks(cluster: Cluster) -> dict[tuple[str, str], str]:
    """Interface at the source of every link between switches; the two ends of a trunk are numbered alike."""
    devices = {device.name for device in cluster.devices}
    pairs = {tuple(sorted((x.source, x.target))) for x in cluster.links if not devices & {x.source, x.target}}
    interfaces = {}
    for i, (a, b) in enumerate(sorted(pairs)):
        interfaces[a, b], interfaces[b, a] = f"t{i}a", f"t{i}b"
    return interfaces


def _wiring(cluster: Cluster, namespace: Callable[[int], str]) -> list[str]:
    """Commands for `ip`, inside the namespace of switches, that make the bridges and all veth pairs."""
    numbers = {device.name: i for i, device in enumerate(cluster.devices)}
    switches = sorted({x.target for x in cluster.links} - set(numbers))
    bridge = {name: f"b{i}" for i, name in enumerate(switches)}
    lines = [f"link add {name} mtu {MTU_BYTES} type bridge mcast_snooping 0" for name in bridge.values()]
    up = list(bridge.values())
    for link in cluster.links:
        if link.source in numbers:
            i = numbers[link.source]
            peer = f"{Lab.interface} mtu {MTU_BYTES} netns {namespace(i)}"
            lines += [f"link add d{i} mtu {MTU_BYTES} type veth peer name {peer}"]
            lines += [f"link set d{i} master {bridge[link.target]}"]
            up.append(f"d{i}")
    trunks = _trunks(cluster)
    for (a, b), name in trunks.items():
        if a < b:
            lines += [f"link add {name} mtu {MTU_BYTES} type veth peer name {trunks[b, a]} mtu {MTU_BYTES}"]
            lines += [f"link set {name} master {bridge[a]}", f"link set {trunks[b, a]} master {bridge[b]}"]
            up += [name, trunks[b, a]]
    return lines + [f"link set {name} up" for name in up]


def _host_setup(address: str, largest_segment: int | None) -> list[str]:
    """Commands for `ip` inside a device's namespace."""
    segment = "" if largest_segment is None else f"gso_max_size {largest_segment} "
    return [
        "link set lo up",
        f"link set {Lab.interface} {segment}up",
        f"addr add {address}/24 dev {Lab.interface}",
    ]


def _set_tcp(namespace: str, settings: Mapping[str, str]) -> None:
    # A kernel without IPv6 lacks the last file; with it, the namespace would send neighbour discovery.
    script = [f"echo {value} > /proc/sys/net/{key}" for key, value in settings.items()]
    quiet = "f=/proc/sys/net/ipv6/conf/all/disable_ipv6; [ ! -e $f ] || echo 1 > $f"
    namespaces.call("ip", "netns", "exec", namespace, "sh", "-ec", "\n".join([*script, quiet]))


def _sent_bytes(namespace: str) -> dict[str, int]:
    """Bytes sent by each interface of a namespace since it was made."""
    links = json.loads(namespaces.call("ip", "-n", namespace, "-s", "-j", "link", "show"))
    return {link["ifname"]: int(link["stats64"]["tx"]["bytes"]) for link in links}
