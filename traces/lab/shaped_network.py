"""A small shaped network on one Linux machine: every device of a Cluster gets a network namespace of its own.

    device namespace          switch namespace
    eth0 10.77.0.1/24  ====  d0 ─┐
                                 ├─ bridge ==== bridge ─ ...        ==== is a veth pair, one shaped interface
    eth0 10.77.0.2/24  ====  d1 ─┘                                  at each end: one per directed link

The cluster's links form a tree whose leaves are the devices and whose inner nodes are switches (a flat switch, two
tiers, a fat tree). Nothing is joined to the machine's own network, so traffic cannot leave the lab. A link's
latency_s is not shaped, since many kernels lack what that takes (netem); `traces/calibrate` measures what is there.

Each direction is shaped by an HTB class: it lets whole TCP segments of up to 64 KiB pass and then waits, where TBF
cuts them into packets and costs several times the CPU. TCP is set alike in every namespace, whatever the machine's
own settings: Reno, which every namespace may choose; windows and queues that never lose a packet; segments and
unsent bytes bounded by time at the link's rate, so that connections share a link evenly. A burst of at most
QUANTUM_S and one segment passes each idle link unshaped, which flatters messages shorter than about 1 ms.

That is the lab for comparing; `Shaping` describes networks as users set them up with `tc` (either discipline, any
burst, TCP as the machine has it), to see what a prediction is worth there.

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
from typing import Any, Literal

import networkx as nx

from simulator.cluster import Cluster, Link
from simulator.errors import InputError, RunError, require
from traces.lab import namespaces

MTU_BYTES = 1500
QUANTUM_S = 250e-6
"""Bytes that may pass at once, as time at the link's rate: HTB's burst, and the size of a TCP segment."""
UNSENT_S = 1e-3
"""What one connection may have waiting at its own interface, as time at the link's rate."""
WINDOW_S = 10e-3
"""TCP window, as time at the link's rate: rides out a receiver that waits for a core."""

FRAME_OVER_PAYLOAD = 1514 / 1448
"""A full Ethernet frame over the payload in it; the rest are Ethernet, IP and TCP headers with timestamps."""

_SMALLEST_SEGMENT_BYTES = 6000
_SMALLEST_WINDOW_BYTES = 256 * 1024
_MOST_BYTES_PER_S = (2**31 - 1) / (4 * WINDOW_S)
"""Send buffers of four windows are 32-bit numbers to the kernel."""
_CONNECTIONS = 16
_numbers = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaping:
    """How the rates of a lab are enforced: `tc`'s token bucket (tbf) or its hierarchical one (htb), by a user's hand.

    burst_s: tokens that pass at once, as time at the link's rate. queue_s: the longest that tbf lets a packet wait
    before it drops it, htb keeps all. TCP and segment sizes stay as the machine has them.
    """

    discipline: Literal["htb", "tbf"]
    burst_s: float
    queue_s: float = 0.4

    def __post_init__(self) -> None:
        require(0 < self.burst_s <= 1, "burst_s", self.burst_s, "more than 0 and at most 1")
        require(0 < self.queue_s <= 10, "queue_s", self.queue_s, "more than 0 and at most 10")


@dataclass(frozen=True, slots=True)
class _Port:
    """The interface from which a directed link leaves."""

    link: Link
    namespace: str
    interface: str


def line_rate(link: Link) -> float:
    """Bytes per second at which a link's interface is shaped; a measured link says what messages get, less headers."""
    if link.achieved is not None and link.line_rate_bytes_per_s is not None:
        return link.line_rate_bytes_per_s
    return link.bandwidth_bytes_per_s * (FRAME_OVER_PAYLOAD if link.curve else 1)


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

    def address(self, device: int) -> str:
        """IPv4 address of the device inside the lab."""
        return f"10.77.0.{device + 1}"

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
            segment = None if self.shaping else _segment_bytes(slowest)
            namespaces.batch("ip", self.namespace(device), _host_setup(self.address(device), segment))
        for name in dict.fromkeys(port.namespace for port in self._ports):
            ports = [port for port in self._ports if port.namespace == name]
            if self.shaping:
                namespaces.batch("tc", name, [_user_shaping(port, self.shaping) for port in ports])
                continue
            namespaces.batch("tc", name, [line for port in ports for line in _shaping(port, len(devices))])
            if name != self._switches:
                _set_tcp(name, _tcp_settings(line_rate(ports[0].link)))

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
    rule = f"it is at most {_MOST_BYTES_PER_S:.4g}, whose windows are the longest that the kernel sets"
    require(fastest <= _MOST_BYTES_PER_S, "links: bandwidth_bytes_per_s", f"{fastest:.4g}", rule)
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


def _segment_bytes(slowest_bytes_per_s: float) -> int:
    """TCP segments that fit the slowest link of the lab."""
    return round(min(65536, max(_SMALLEST_SEGMENT_BYTES, QUANTUM_S * slowest_bytes_per_s)))


def _host_setup(address: str, segment_bytes: int | None) -> list[str]:
    """Commands for `ip` inside a device's namespace."""
    segment = "" if segment_bytes is None else f"gso_max_size {segment_bytes} "
    return [
        "link set lo up",
        f"link set {Lab.interface} {segment}up",
        f"addr add {address}/24 dev {Lab.interface}",
    ]


def _shaping(port: _Port, devices: int) -> list[str]:
    """Commands for `tc`: an HTB class at the link's rate over a queue that holds every connection's window."""
    rate = line_rate(port.link)
    burst = round(max(2 * MTU_BYTES, QUANTUM_S * rate))
    limit = _CONNECTIONS * devices * _window_bytes(rate)
    dev = f"dev {port.interface}"
    return [
        f"qdisc add {dev} root handle 1: htb default 1",
        f"class add {dev} parent 1: classid 1:1 htb rate {round(8 * rate)}bit burst {burst}b cburst {burst}b"
        " quantum 60000",
        f"qdisc add {dev} parent 1:1 bfifo limit {min(limit, 2**31 - 1)}",
    ]


def _user_shaping(port: _Port, shaping: Shaping) -> str:
    """The command for `tc` that a user gives on a port."""
    bytes_per_s = line_rate(port.link)
    rate, burst = f"rate {round(8 * bytes_per_s)}bit", round(max(2 * MTU_BYTES, shaping.burst_s * bytes_per_s))
    if shaping.discipline == "tbf":
        return f"qdisc add dev {port.interface} root tbf {rate} burst {burst}b latency {shaping.queue_s:g}s"
    return (
        f"qdisc add dev {port.interface} root handle 1: htb default 1\n"
        f"class add dev {port.interface} parent 1: classid 1:1 htb {rate} burst {burst}b cburst {burst}b quantum 60000"
    )


def _window_bytes(bytes_per_s: float) -> int:
    return round(max(_SMALLEST_WINDOW_BYTES, WINDOW_S * bytes_per_s))


def _tcp_settings(bytes_per_s: float) -> dict[str, str]:
    """Kernel settings of a device on a link of this rate."""
    window = 2 * _window_bytes(bytes_per_s)  # half of a receive buffer is kept for the kernel's own records
    return {
        "ipv4/tcp_congestion_control": "reno",
        "ipv4/tcp_no_metrics_save": "1",
        "ipv4/tcp_slow_start_after_idle": "0",
        "ipv4/tcp_limit_output_bytes": str(round(max(2 * _SMALLEST_SEGMENT_BYTES, UNSENT_S * bytes_per_s))),
        "ipv4/tcp_rmem": f"4096 {window} {window}",
        "ipv4/tcp_wmem": f"4096 16384 {2 * window}",
    }


def _set_tcp(namespace: str, settings: Mapping[str, str]) -> None:
    # A kernel without IPv6 lacks the last file; with it, the namespace would send neighbour discovery.
    script = [f"echo {value} > /proc/sys/net/{key}" for key, value in settings.items()]
    quiet = "f=/proc/sys/net/ipv6/conf/all/disable_ipv6; [ ! -e $f ] || echo 1 > $f"
    namespaces.call("ip", "netns", "exec", namespace, "sh", "-ec", "\n".join([*script, quiet]))


def _sent_bytes(namespace: str) -> dict[str, int]:
    """Bytes sent by each interface of a namespace since it was made."""
    links = json.loads(namespaces.call("ip", "-n", namespace, "-s", "-j", "link", "show"))
    return {link["ifname"]: int(link["stats64"]["tx"]["bytes"]) for link in links}
