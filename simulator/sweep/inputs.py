"""Profiles and clusters of a sweep: each is loaded once, hashed, and sent to every worker once."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property

from simulator import collectives
from simulator.cluster import Cluster
from simulator.language_models.card_files import is_card
from simulator.language_models.modelled_profile import read_profile_or_card
from simulator.language_models.training_stack import runtime_of
from simulator.network.catalogue import read_cluster, read_runtime
from simulator.plan import Synchronisation
from simulator.runtime import Runtime
from simulator.sweep.axes import BANDWIDTH, LATENCY, Value
from simulator.workload import Profile

ProfileOn = tuple[str, str]
"""Profile name or file, cluster name or file."""
Machine = tuple[str, int | None, int | None, bool]
"""Cluster name or file, devices (None: its default), servers (None: not said), whether its collective needs one."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What points name, in memory. `profiles` are by profile and cluster, whose GPUs a model card is modelled on;
    `machines` the clusters before their links' overrides, `runtimes` what their files were measured with, by cluster
    name."""

    profiles: Mapping[ProfileOn, Profile]
    machines: Mapping[Machine, Cluster]
    runtimes: Mapping[str, Runtime]

    @cached_property
    def profile_hashes(self) -> Mapping[ProfileOn, str]:
        """The content hash of each profile."""
        return {name: content_hash(profile) for name, profile in self.profiles.items()}

    @cached_property
    def machine_hashes(self) -> Mapping[Machine, str]:
        """The content hash of each cluster with its runtime."""
        return {
            machine: content_hash([dataclasses.asdict(cluster), dataclasses.asdict(self.runtimes[machine[0]])])
            for machine, cluster in self.machines.items()
        }

    @cached_property
    def _built(self) -> dict[tuple[Machine, tuple[tuple[str, Value], ...]], Cluster]:
        return {}

    def cluster(self, point: Mapping[str, Value]) -> Cluster:
        """The cluster of a point with its links' bandwidths and latencies and its devices' speed.

        Speed comes first, so that clusters that differ in links alone come of one, and share what follows from it.
        """
        speed = [("speed", point["speed"])] if point.get("speed") is not None else []
        links = [(name, value) for name, value in point.items() if value is not None and tier_of(name)]
        return self._changed(machine_of(point), (*speed, *links))

    def _changed(self, machine: Machine, changes: tuple[tuple[str, Value], ...]) -> Cluster:
        """A machine with one change after the other."""
        if not changes:
            return self.machines[machine]
        key = machine, changes
        if key not in self._built:
            self._built[key] = _changed(self._changed(machine, changes[:-1]), *changes[-1])
        return self._built[key]

    def profile(self, point: Mapping[str, Value]) -> Profile:
        """The profile of a point."""
        return self.profiles[profile_on(point)]

    def runtime(self, point: Mapping[str, Value]) -> Runtime:
        """The runtime of a point's cluster, or of the stack that its profile was modelled with."""
        return runtime_of(self.profile(point), self.runtimes[str(point["cluster"])])


def load_inputs(points: Iterable[Mapping[str, Value]]) -> Inputs:
    """Everything that `points` name. Raises InputError, UnknownNameError or OSError, as the readers do."""
    profiles: dict[ProfileOn, Profile] = {}
    measured = cache(read_profile_or_card)
    machines: dict[Machine, Cluster] = {}
    runtimes: dict[str, Runtime] = {}
    for point in points:
        named, machine = profile_on(point), machine_of(point)
        if named not in profiles:
            source, cluster = named
            card = is_card(source)
            profiles[named] = read_profile_or_card(source, read_cluster(cluster)) if card else measured(source)
        if machine not in machines:
            name, devices, servers, needs_server = machine
            machines[machine] = read_cluster(name, devices=devices, servers=servers, needs_server=needs_server)
            runtimes[name] = read_runtime(name)
    return Inputs(profiles=profiles, machines=machines, runtimes=runtimes)


def profile_on(point: Mapping[str, Value]) -> ProfileOn:
    """Which profile a point names, and on which cluster."""
    return str(point["profile"]), str(point["cluster"])


def machine_of(point: Mapping[str, Value]) -> Machine:
    """Which cluster a point names. Raises UnknownNameError for its collective."""
    devices, servers = point.get("devices"), point.get("servers")
    collective = str(point.get("collective") or Synchronisation().collective)
    needs_server = servers is None and collectives.load(collective).needs_server
    return str(point["cluster"]), _whole(devices), _whole(servers), needs_server


def _whole(value: Value) -> int | None:
    return None if value is None else int(value)


def tier_of(parameter: str) -> str:
    """The link tier that a parameter changes, empty when it changes none."""
    for ending in (BANDWIDTH, LATENCY):
        if parameter.endswith(ending):
            return parameter.removesuffix(ending)
    return ""


def content_hash(value: object) -> str:
    """16 hexadecimal digits that change with any field of a dataclass, or any part of a plain value."""
    plain = dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
    text = json.dumps(plain, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _changed(cluster: Cluster, parameter: str, value: Value) -> Cluster:
    if parameter == "speed":
        return cluster.with_speed(float(value or 1))
    if parameter.endswith(BANDWIDTH):
        return cluster.with_tier(tier_of(parameter), bandwidth_bytes_per_s=float(value or 0))
    return cluster.with_tier(tier_of(parameter), latency_s=float(value or 0))
