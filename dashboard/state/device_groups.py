"""Devices in groups: by node where there are too many to be drawn each, and a plan's, as a grid where it is one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dashboard.state.columns import longest_repeat
from simulator.cluster import Cluster
from simulator.plan import Plan
from simulator.report.metrics import Report
from simulator.taskgraph import Ints
from simulator.workload import Profile

MOST_ALONE = 16
MOST_GROUPS = 32
_LONGEST = 24
"""Layers of a block at most."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGrid:
    """devices: numbers, shape (pipeline, data, tensor); layers: positions of each stage's layers, first stage first."""

    devices: Ints
    layers: tuple[tuple[int, ...], ...]

    @property
    def words(self) -> str:
        """e.g. "data 2 × tensor 2 × pipeline 2"."""
        pipeline, data, tensor = self.devices.shape
        return f"data {data} × tensor {tensor} × pipeline {pipeline}"

    @property
    def stages(self) -> list[DeviceGroup]:
        """The devices of each stage."""
        flat = self.devices.reshape(len(self.devices), -1).tolist()
        return [DeviceGroup(name=f"stage {i}", devices=tuple(stage)) for i, stage in enumerate(flat, start=1)]

    def stage_of(self, device: int) -> int:
        """The stage that a device computes, 0 for one that computes none."""
        stages = np.nonzero(self.devices == device)[0]  # (0 or 1,)
        return int(stages[0]) if len(stages) else 0


def grid_of(profile: Profile, plan: Plan) -> DeviceGrid | None:
    """The grid of `plan`; None where layers share only some of their devices, or stages differ in shape."""
    stages: dict[tuple[int, ...], list[int]] = {}
    replicas: dict[tuple[int, ...], int] = {}
    for position, layer in enumerate(profile.layers):
        sharding = plan.placements[layer.name]
        devices = tuple(sorted(set(sharding.devices)))
        stages.setdefault(devices, []).append(position)
        replicas[devices] = max(replicas.get(devices, 1), sharding.degrees[0])
    every = [device for devices in stages for device in devices]
    shapes = {(replicas[devices], len(devices) // replicas[devices]) for devices in stages}
    if len(every) != len(set(every)) or len(shapes) > 1:
        return None
    data, tensor = shapes.pop()
    if data * tensor * len(stages) != len(every):
        return None
    grid = np.array(every).reshape(len(stages), data, tensor)  # (pipeline, data, tensor)
    return DeviceGrid(devices=grid, layers=tuple(map(tuple, stages.values())))


def block_in(profile: Profile, layers: tuple[int, ...]) -> range:
    """The layers of the block whose repeats cover most, one of them in the middle of a stage's `layers`.

    Empty where the network repeats nothing, or the stage holds no whole block.
    """
    marks = [
        (layer.kind, tuple(i - profile.index[name] for name in layer.inputs)) for i, layer in enumerate(profile.layers)
    ]
    run = longest_repeat(marks, _LONGEST)
    if run is None:
        return range(0)
    first, length, count = run
    every = [range(first + i * length, first + (i + 1) * length) for i in range(count)]
    whole = [block for block in every if set(layers).issuperset(block)]
    return whole[len(whole) // 2] if whole else range(0)
