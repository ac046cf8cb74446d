"""Devices in groups where there are too many to be drawn each: by node, or by several nodes; a group can be opened."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from simulator.cluster import Cluster
from simulator.report.metrics import Report

MOST_ALONE = 16
MOST_GROUPS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGroup:
    """Devices (by number) that are drawn as one; `whole` says of what, e.g. "4 devices"."""

    name: str
    devices: tuple[int, ...]

    @property
    def whole(self) -> str:
        """How many devices it stands for."""
        return "1 device" if len(self.devices) == 1 else f"{len(self.devices)} devices"


def device_groups(
    cluster: Cluster, opened: int | None = None, *, servers: bool = True, most: int = MOST_GROUPS
) -> tuple[DeviceGroup, ...]:
    """Every device alone up to MOST_ALONE of them, else nodes, else runs of nodes, at most `most` groups.

    opened: the group whose devices are wanted instead, each alone (or in nodes, where they are still too many).
    servers: whether parameter servers count, which stand alone.
    """
    count = len(cluster.devices) if servers else cluster.workers
    groups = _groups(cluster, tuple(range(count)), most)
    if opened is None or len(groups) == count or not 0 <= opened < len(groups):
        return groups
    return _groups(cluster, groups[opened].devices, most)


def _groups(cluster: Cluster, devices: tuple[int, ...], most: int) -> tuple[DeviceGroup, ...]:
    names = short_names(cluster, devices)
    if len(devices) <= MOST_ALONE:
        return tuple(DeviceGroup(name=names[i], devices=(device,)) for i, device in enumerate(devices))
    nodes: dict[str, list[int]] = {}
    for device in devices:
        nodes.setdefault(cluster.devices[device].host, []).append(device)
    hosts = list(nodes)
    size = -(-len(hosts) // most)
    groups = []
    for first in range(0, len(hosts), size):
        members = hosts[first : first + size]
        name = members[0] if len(members) == 1 else f"{members[0]}–{_number(members[-1])}"
        groups.append(DeviceGroup(name=name, devices=tuple(d for host in members for d in nodes[host])))
    return tuple(groups)


def slowest(groups: tuple[DeviceGroup, ...], report: Report) -> tuple[int, ...]:
    """The device of each group that computes the longest."""
    seconds = np.array([device.compute_s for device in report.devices])
    return tuple(max(group.devices, key=lambda device: float(seconds[device])) for group in groups)


def short_names(cluster: Cluster, devices: Iterable[int] | None = None) -> list[str]:
    """Names of all devices, or of these, without the host where all are of one host."""
    names = [cluster.devices[device].name for device in (range(len(cluster.devices)) if devices is None else devices)]
    prefixes = {name.rpartition("/")[0] for name in names}
    return [name.rpartition("/")[2] for name in names] if len(prefixes) == 1 else names


def _number(host: str) -> str:
    """The number at the end of a host's name, the name where there is none."""
    return host[len(host.rstrip("0123456789")) :] or host
