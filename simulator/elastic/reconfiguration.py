"""What it costs to change the devices of a running job: each policy is a sum of named parts that can be measured.

    restart   write checkpoint + stop + launch + framework + groups + read checkpoint         what elastic launchers do
    live      (launch + framework, beside the training) leave groups + groups + move parameters
    shrink    leave groups + groups + move the parameters that lived only on the leavers
    resume    launch + framework + groups + read checkpoint                       after nobody was left
    recover   detect + leave groups + groups + move, or read a checkpoint where a vanished device alone held a piece

`shardscope calibrate --reconfiguration` measures the parts on a machine; `simulator.elastic.movement` finds what moves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from simulator import files
from simulator.cluster import Cluster
from simulator.curve import Curve
from simulator.elastic.movement import Placed, movement
from simulator.errors import require, require_time
from simulator.lowering.parameters.replicas import replicas_of
from simulator.ordered_sum import ordered_sum
from simulator.workload import Profile

WRITE, STOP, LAUNCH, FRAMEWORK, LEAVE, GROUPS, READ, MOVE, DETECT = (
    "write checkpoint", "stop", "launch", "framework", "leave groups", "groups", "read checkpoint", "move", "detect",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Overheads:
    """The parts of a reconfiguration that do not depend on the plan, each as measured for one process."""

    stop_s: float
    """From the last step to the end of the processes."""
    launch_s: float
    """From asking for a process to its first line."""
    framework_s: float
    """Importing the framework and building the network."""
    leave_s: Mapping[int, float]
    """Taking the old group down, by number of devices; between and beyond the numbers on straight lines."""
    group_s: Mapping[int, float]
    """Joining a new one, likewise."""
    checkpoint_write: Curve
    """By size."""
    checkpoint_read: Curve
    """By size."""
    detect_s: float
    """From a device's end until the others know."""
    sources: tuple[str, ...] = ()
    """What was measured where."""

    def __post_init__(self) -> None:
        for name in ("stop_s", "launch_s", "framework_s", "detect_s"):
            require_time(name, getattr(self, name))
        for name, points in (("leave_s", self.leave_s), ("group_s", self.group_s)):
            require(len(points) > 0, name, "{}", "it has at least one number of devices")
            for count, seconds in points.items():
                require(count >= 1, name, count, "numbers of devices are at least 1")
                require_time(f"{name} of {count}", seconds)

    def leaving_s(self, devices: int) -> float:
        """Seconds to take the groups of `devices` devices down."""
        return _between(self.leave_s, devices)

    def groups_s(self, devices: int) -> float:
        """Seconds to join `devices` devices in new groups."""
        return _between(self.group_s, devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A reconfiguration: the seconds of its parts while nothing trains, and of those beside the training.

    moved_bytes crossed between devices; rolls_back: training goes on from the last checkpoint.
    """

    policy: str
    parts_s: Mapping[str, float]
    beside_s: Mapping[str, float] = field(default_factory=dict)
    moved_bytes: float = 0.0
    rolls_back: bool = False

    @property
    def pause_s(self) -> float:
        """Seconds in which nothing trains."""
        return ordered_sum(self.parts_s.values())


def read_overheads(path: str | Path) -> Overheads:
    """The overheads in a YAML file. Raises InputError when its content breaks a rule, OSError when unreadable."""
    return files.read_yaml(Path(path), Overheads)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconfiguration:
    """Prices changes of one job on a cluster of all the devices that it may ever use."""

    profile: Profile
    cluster: Cluster
    overheads: Overheads

    def restart(self, new: Placed, *, planned: bool = True) -> Change:
        """Stop everything and start again on the devices of `new`; unplanned, from the last checkpoint."""
        size, costs = new.plan.state_bytes(self.profile), self.overheads
        before = {WRITE: costs.checkpoint_write.seconds(size)} if planned else {DETECT: costs.detect_s}
        start = self._starting(new.members)
        after = {GROUPS: costs.groups_s(len(new.members)), READ: costs.checkpoint_read.seconds(size)}
        return Change(
            policy="restart", parts_s={**before, STOP: costs.stop_s, **start, **after}, rolls_back=not planned
        )

    def resume(self, new: Placed) -> Change:
        """Start on the devices of `new` where nothing runs, from the last checkpoint."""
        read = {READ: self.overheads.checkpoint_read.seconds(new.plan.state_bytes(self.profile))}
        groups = {GROUPS: self.overheads.groups_s(len(new.members))}
        return Change(policy="resume", parts_s={**self._starting(new.members), **groups, **read})

    def live(self, old: Placed, new: Placed) -> Change:
        """Devices of `old` train on while the new ones start; then all pause to join and spread parameters."""
        joining = sorted(set(new.members) - set(old.members))
        return self._moving("live", old, new, self._starting(joining))

    def shrink(self, old: Placed, new: Placed) -> Change:
        """Devices of `new` go on without the others, which give what only they hold first."""
        return self._moving("shrink", old, new, {})

    def rebalance(self, old: Placed, new: Placed) -> Change:
        """The same devices under another plan."""
        return self._moving("rebalance", old, new, {})

    def recover(self, old: Placed, new: Placed, vanished: Collection[int]) -> Change:
        """Devices of `new` go on after some of `old` vanished, by copies where there are any."""
        left = set(old.members) - set(vanished)
        moved, costs = movement(self.profile, self.cluster, old, new, left), self.overheads
        parts = {DETECT: costs.detect_s, **self._regrouping(old, new)}
        if moved.lost_bytes:
            read = costs.checkpoint_read.seconds(new.plan.state_bytes(self.profile))
            return Change(policy="recover", parts_s={**parts, READ: read}, rolls_back=True)
        return Change(policy="recover", parts_s={**parts, MOVE: moved.seconds(self.cluster)}, moved_bytes=moved.bytes)

    def checkpoint_s(self, placed: Placed) -> float:
        """Seconds to write a checkpoint."""
        return self.overheads.checkpoint_write.seconds(placed.plan.state_bytes(self.profile))

    def _moving(self, policy: str, old: Placed, new: Placed, beside: Mapping[str, float]) -> Change:
        moved = movement(self.profile, self.cluster, old, new)
        regrouped = _groups(self.profile, old) != _groups(self.profile, new)
        groups = self._regrouping(old, new) if regrouped else {}
        parts = {**groups, MOVE: moved.seconds(self.cluster)}
        return Change(policy=policy, parts_s=parts, beside_s=beside, moved_bytes=moved.bytes)

    def _regrouping(self, old: Placed, new: Placed) -> dict[str, float]:
        costs = self.overheads
        return {LEAVE: costs.leaving_s(len(old.members)), GROUPS: costs.groups_s(len(new.members))}

    def _starting(self, devices: Collection[int]) -> dict[str, float]:
        """Starting a process per device, all at once; those on a host of few cores share them."""
        hosts = Counter(self.cluster.devices[device].host for device in devices)
        cores = self.cluster.host_cores
        crowding = max((count / cores.get(host, count) for host, count in hosts.items()), default=1.0)
        alone_s = {LAUNCH: self.overheads.launch_s, FRAMEWORK: self.overheads.framework_s}
        return {name: seconds * max(crowding, 1.0) for name, seconds in alone_s.items()}


def _between(points: Mapping[int, float], devices: int) -> float:
    """On straight lines through the points; beyond the last, on the last of them unless it falls."""
    counts = sorted(points)
    seconds = [points[count] for count in counts]
    if devices <= counts[-1] or len(counts) == 1:
        return float(np.interp(devices, counts, seconds))
    slope = max((seconds[-1] - seconds[-2]) / (counts[-1] - counts[-2]), 0.0)
    return seconds[-1] + slope * (devices - counts[-1])


def _groups(profile: Profile, placed: Placed) -> tuple[set[int], set[tuple[int, ...]]]:
    """The members, and the sets of devices that hold copies of a piece."""
    copies = {tuple(placed.members[i] for i in piece.devices) for piece in replicas_of(profile, placed.plan.placements)}
    return set(placed.members), copies
