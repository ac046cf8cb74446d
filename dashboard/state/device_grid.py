"""A plan as a grid of devices, data x tensor x pipeline, where it is one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dashboard.state.columns import longest_repeat
from dashboard.state.device_groups import DeviceGroup
from simulator.plan import Plan
from simulator.taskgraph import Ints
from simulator.workload import Profile

_LONGEST = 24
"""Layers of a block at most."""


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
    if len(every) != len(set(every)) or len({len(devices) for devices in stages}) > 1 or len(shapes) > 1:
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
