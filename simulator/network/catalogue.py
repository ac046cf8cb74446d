"""Clusters by name or from a file. Presets are one YAML file each in `presets/`, with a source of every number.

A preset describes a node and how nodes join. `build` takes as many devices as asked, filling nodes in order and
adding nodes as needed. The folder is the registry: a new file is a new preset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from simulator import files
from simulator.cluster import AchievedShare, Cluster, Device
from simulator.collective_library import CollectiveLibrary
from simulator.curve import Curve
from simulator.errors import InputError, require, require_from_0
from simulator.network.topologies import Wire, flat_switch, take, two_tier
from simulator.runtime import IDEAL, Runtime

PRESETS = files.Shipped("cluster (and no such file)", "simulator.network", "presets", ".yaml")
MOST_DEVICES = 131_072
"""More would take minutes to build and gigabytes to hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """How points of a tier are joined, and where its numbers come from."""

    what: str
    """In words."""
    wires: int = 1
    """How many stand side by side, counted as one of their summed bandwidth, the line rate."""
    bandwidth_bytes_per_s: float
    """Of one wire, each way."""
    latency_s: float
    """Of a message."""
    achieved: AchievedShare | None = None
    """The share of the line rate that collectives or training were measured to get, which links give by default."""
    message: float | None = None
    """The share of a wire that a message alone gets; None: the same."""
    sources: Mapping[str, str]
    """By key."""

    def __post_init__(self) -> None:
        require(1 <= self.wires <= 1024, "wires", self.wires, "it is from 1 to 1,024")
        require(self.message is None or 0 < self.message <= 1, "message", self.message, "it is a share, above 0")
        has_source = self.achieved is None or "achieved" in self.sources
        require(has_source, "sources", sorted(self.sources), "an achieved share says where it was measured")

    def wire(self, tier: str) -> Wire:
        """The wire, named as links of `tier`."""
        total = self.wires * self.bandwidth_bytes_per_s
        return Wire(
            bandwidth_bytes_per_s=total,
            latency_s=self.latency_s,
            tier=tier,
            achieved=self.achieved,
            wires=self.wires,
            message_bytes_per_s=self.message and self.message * self.bandwidth_bytes_per_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One machine: how many devices it has and what they are."""

    devices: int
    """How many."""
    kind: str
    """The product."""
    memory_bytes: int | None = None
    """Of each."""
    cores: float | None = None
    """CPU cores that its devices share; None: the devices do not compute on them."""
    dollars_per_hour: float | None = None
    """Of the whole node."""
    evenly: bool = False
    """Whether devices that do not fill nodes are as many on each, as jobs are placed on racks: 64 of 72 for 256."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """By key."""

    def __post_init__(self) -> None:
        require(1 <= self.devices <= MOST_DEVICES, "devices", self.devices, "a node has at least 1")
        require_from_0("dollars_per_hour", self.dollars_per_hour or 0.0, 1e9)

    def devices_of(self, count: int) -> int:
        """How many of a cluster's `count` devices are on a node that is not the last: all of the node's, or `evenly` on
        the fewest nodes, up to twice as many as they fill, that take as many each."""
        nodes = range(-(-count // self.devices), 2 * -(-count // self.devices))
        return next((count // n for n in nodes if self.evenly and count % n == 0), self.devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A kind of node, and how nodes are joined."""

    name: str
    """What commands call it."""
    title: str
    """In a line."""
    default_devices: int
    """Without --devices."""
    node: Node
    """One machine."""
    intra: Join | None = None
    """What joins its devices; None where it has but one."""
    inter: Join
    """What joins nodes."""
    library: CollectiveLibrary | None = None
    """How collectives run there; None: as their formulas say."""
    library_source: str = ""
    """Where that was measured."""
    collectives: Mapping[str, Mapping[int, Curve]] = field(default_factory=dict)
    """Curves measured on such nodes, by name and number of devices, as in a Cluster."""
    collective_sources: Mapping[str, str] = field(default_factory=dict)
    """Where, by name."""
    notes: str = ""
    """For people."""

    def __post_init__(self) -> None:
        require(self.default_devices >= 1, "default_devices", self.default_devices, "it is at least 1")
        rule = "a node of several devices says what joins them"
        require(self.intra is not None or self.node.devices == 1, "intra", self.intra, rule)
        names = sorted(self.collective_sources)
        require(sorted(self.collectives) == names, "collective_sources", names, "one for each of the collectives")
        rule = "a library says where it was measured"
        require((self.library is None) == (not self.library_source), "library_source", self.library_source, rule)

    def build(self, devices: int | None = None, *, servers: int = 0) -> Cluster:
        """A cluster of `devices` workers (None: the preset's default) and `servers` parameter servers."""
        count = self.default_devices if devices is None else devices
        for what, number in (("devices", count), ("servers", servers)):
            require(number <= MOST_DEVICES, what, number, f"a cluster has at most {MOST_DEVICES:,} of them here")
        node, inter = self.node, self.inter.wire("inter")
        price = None if node.dollars_per_hour is None else node.dollars_per_hour / node.devices
        device = Device(name="gpu", host="", kind=node.kind, memory_bytes=node.memory_bytes, dollars_per_hour=price)
        if self.intra is None:
            cluster = flat_switch(count, inter, servers=servers, device=device, name=self.name)
            cores = {d.host: node.cores for d in cluster.devices[:count]} if node.cores else {}
            return replace(cluster, host_cores=cores, **self._software)
        cluster = two_tier(
            count,
            node.devices_of(count),
            self.intra.wire("intra"),
            inter,
            cores_per_node=node.cores,
            servers=servers,
            device=device,
            name=self.name,
        )
        return replace(cluster, **self._software)

    @property
    def _software(self) -> dict[str, Any]:
        return {"sources": self.sources, "library": self.library, "collectives": self.collectives}

    @property
    def sources(self) -> tuple[str, ...]:
        """Where each number comes from, as "node.memory_bytes: ..."."""
        parts = {"node": self.node.sources, "inter": self.inter.sources, "collectives": self.collective_sources}
        if self.library_source:
            parts["library"] = {"all": self.library_source}
        if self.intra is not None:
            parts["intra"] = self.intra.sources
        return tuple(f"{part}.{key}: {text}" for part, texts in parts.items() for key, text in texts.items())


@cache
def presets() -> tuple[str, ...]:
    """Names of all presets, sorted."""
    return PRESETS.names()


@cache
def read_preset(name: str) -> Preset:
    """The preset called `name`. Raises UnknownNameError when there is none."""
    return files.read_yaml(PRESETS.file(name), Preset)


@dataclass(frozen=True, kw_only=True)
class ClusterFile(Cluster):
    """A cluster file: the cluster, and the runtime that was measured on it."""

    runtime: Runtime = IDEAL
    """Measured with it."""

    @classmethod
    def of(cls, cluster: Cluster, runtime: Runtime = IDEAL) -> ClusterFile:
        """The content of a file for both."""
        return cls(**{field.name: getattr(cluster, field.name) for field in fields(Cluster)}, runtime=runtime)

    @property
    def cluster(self) -> Cluster:
        """The hardware alone."""
        return Cluster(**{field.name: getattr(self, field.name) for field in fields(Cluster)})


def read_cluster(
    source: str | Path, *, devices: int | None = None, servers: int | None = None, needs_server: bool = False
) -> Cluster:
    """The cluster in a YAML file, or built from the preset of that name.

    devices: how many workers to take, in order; None takes all of a file, or a preset's own default. servers:
    parameter servers to add to a preset; a file lists its own. needs_server: where `servers` is None, there has to be
    one, so a preset gets one.

    Raises InputError when a rule is broken, UnknownNameError when there is neither file nor preset, OSError when the
    file cannot be read.
    """
    if not files.is_path(source):
        return read_preset(str(source)).build(devices, servers=int(needs_server) if servers is None else servers)
    cluster = read_cluster_file(Path(source)).cluster
    if servers or (needs_server and servers is None and not cluster.servers):
        count = servers or 1
        raise InputError(f"servers is {count}: {source} is a file; list its servers there, with role: server")
    return cluster if devices is None else take(cluster, devices)


def read_cluster_file(path: Path) -> ClusterFile:
    """The cluster in a YAML file with its runtime. Raises InputError or OSError."""
    return files.read_yaml(path, ClusterFile)


def read_runtime(source: str | Path) -> Runtime:
    """The runtime in a cluster's YAML file; the ideal one for a preset. Raises as `read_cluster` does."""
    return read_cluster_file(Path(source)).runtime if files.is_path(source) else IDEAL


def write_cluster(cluster: Cluster, path: str | Path, runtime: Runtime = IDEAL) -> None:
    """Write `cluster`, and the runtime measured on it, as YAML, one device or link per line."""
    files.write_yaml(ClusterFile.of(cluster, runtime), path)
