"""What a network is trained on: Devices joined by directed Links over a networkx graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import Any, Literal

from simulator.curve import Curve
from simulator.errors import (
    MOST_BYTES,
    InputError,
    UnknownNameError,
    require,
    require_from_0,
    require_time,
)
from simulator.kept import Kept
from simulator.ordered_sum import ordered_sum
from simulator.routes import Routes

LEAST_BANDWIDTH, MOST_BANDWIDTH = 1e-3, 1e30
MEASURED_COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send")
"""What a cluster may have measured curves of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Something that computes. `speed` is relative to the device that the profile was captured on.

    `kind` names the product; `role` "server" marks a parameter server, which holds no layers. Devices
    of a `host` share its cores when the cluster lists them. watts: what it draws while the job runs.
    """

    __pydantic_config__ = {"extra": "forbid"}

    name: str
    host: str
    kind: str = ""
    memory_bytes: int | None = None
    speed: float = 1.0
    role: Literal["worker", "server"] = "worker"
    dollars_per_hour: float | None = None
    watts: float | None = None

    def __post_init__(self) -> None:
        where = f"device {self.name!r}: "
        require(0 < self.speed < inf, where + "speed", self.speed, "it is positive")
        require(1e-9 <= self.speed <= 1e9, where + "speed", self.speed, "it is from 1e-9 to 1e9")
        if self.memory_bytes is not None:
            require(0 < self.memory_bytes <= MOST_BYTES, where + "memory_bytes", self.memory_bytes, "it is positive")
        require_from_0(where + "dollars_per_hour", self.dollars_per_hour or 0.0, 1e9)
        require_from_0(where + "watts", self.watts or 0.0, 1e9)


@dataclass(frozen=True, slots=True, kw_only=True)
class AchievedShare:
    """The share of a link's line rate that collectives or training were measured to get: median, 5 and 95 %."""

    __pydantic_config__ = {"extra": "forbid"}

    median: float
    low: float
    high: float

    def __post_init__(self) -> None:
        rule = "0 < low <= median <= high, shares of the line rate"
        require(0 < self.low <= self.median <= self.high < inf, "achieved", self, rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A directed link from `source` to `target` (devices, hosts or switches).

    `tier` groups links of one kind ("intra", "inter", ...), so that one option can change them all.
    A `curve` of measured times of an uncontended message over this link replaces latency + bytes / bandwidth.
    line_rate_bytes_per_s: what the product promises, of which the bandwidth is the measured share; None: the bandwidth.
    achieved: that share, its median the one in use, with its band.
    """

    __pydantic_config__ = {"extra": "forbid"}

    source: str
    target: str
    bandwidth_bytes_per_s: float
    latency_s: float = 0.0
    tier: str = "link"
    curve: Curve | None = None
    line_rate_bytes_per_s: float | None = None
    achieved: AchievedShare | None = None

    def __post_init__(self) -> None:
        where = f"link {self.name}: "
        rule = f"it is from {LEAST_BANDWIDTH:g} to {MOST_BANDWIDTH:g} bytes per second"
        known = LEAST_BANDWIDTH <= self.bandwidth_bytes_per_s <= MOST_BANDWIDTH
        require(known, where + "bandwidth_bytes_per_s", self.bandwidth_bytes_per_s, rule)
        require_time(where + "latency_s", self.latency_s)
        if self.curve is not None:
            self.curve.require_rising(where + "curve")
        rate = self.line_rate_bytes_per_s
        require(rate is None or LEAST_BANDWIDTH <= rate <= MOST_BANDWIDTH, where + "line_rate_bytes_per_s", rate, rule)

    @property
    def name(self) -> str:
        return f"{self.source}->{self.target}"


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Devices, workers before servers, and the links that join them: hardware alone, software is the Runtime's.

    host_cores: CPU cores of hosts whose devices share them (one compute task uses at most one core); hosts that are
    absent never limit their devices. collectives: measured curves by name, as {"all_reduce": {number of devices:
    curve}}, of devices that fill one host after another; they replace the formula where one matches.
    Raises InputError on duplicate names, unjoined devices or links that name nothing.
    """

    __pydantic_config__ = {"extra": "forbid"}

    name: str
    devices: tuple[Device, ...]
    links: tuple[Link, ...] = ()
    host_cores: Mapping[str, float] = field(default_factory=dict, hash=False)
    collectives: Mapping[str, Mapping[int, Curve]] = field(default_factory=dict, hash=False)
    sources: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require(len(self.devices) > 0, "devices", "[]", "a cluster has at least one device")
        roles = [device.role for device in self.devices]
        require(roles == sorted(roles, reverse=True), "devices", roles, "workers come before servers")
        require("worker" in roles, "devices", roles, "at least one is a worker")
        for what, names in (("device", [d.name for d in self.devices]), ("link", [x.name for x in self.links])):
            twice = sorted({name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else ())
            require(not twice, f"{what}s", ", ".join(twice), f"{what} names are unique")
        for collective in self.collectives:
            if collective not in MEASURED_COLLECTIVES:
                raise UnknownNameError.of("measured collective", collective, MEASURED_COLLECTIVES)
            for number, curve in self.collectives[collective].items():
                require(number >= 2, f"collectives: {collective}", number, "curves are of at least 2 devices")
                curve.require_rising(f"collectives: {collective} of {number}")
        for host, cores in self.host_cores.items():
            require(0 < cores <= 1e6, f"host_cores of {host!r}", cores, "it is positive, and at most 1e6")
            if host not in {device.host for device in self.devices}:
                raise UnknownNameError.of("host in host_cores", host, {device.host for device in self.devices})

    @cached_property
    def workers(self) -> int:
        """How many devices compute layers; they are devices 0 to workers - 1."""
        return sum(device.role == "worker" for device in self.devices)

    @property
    def servers(self) -> tuple[int, ...]:
        """Indices of the parameter servers."""
        return tuple(range(self.workers, len(self.devices)))

    @cached_property
    def speeds(self) -> tuple[float, ...]:
        return tuple(device.speed for device in self.devices)

    def is_wired_like(self, other: Cluster) -> bool:
        """Whether both have the same links, and in both the same ones are as fast as each other."""
        return self._link_number == other._link_number and self._link_kinds == other._link_kinds

    @cached_property
    def _link_kinds(self) -> tuple[int, ...]:
        """For each link its number among the different speeds, in order of appearance."""
        numbers: dict[object, int] = {}
        speeds = ((link.bandwidth_bytes_per_s, link.latency_s, link.curve) for link in self.links)
        return tuple(numbers.setdefault(speed, len(numbers)) for speed in speeds)

    @cached_property
    def _link_number(self) -> dict[tuple[str, str], int]:
        return {(link.source, link.target): number for number, link in enumerate(self.links)}

    @cached_property
    def _routes(self) -> Routes:
        return Routes([device.name for device in self.devices], list(self._link_number))

    @cached_property
    def _known_routes(self) -> dict[tuple[int, int], tuple[int, ...]]:
        return {}

    def route(self, source: int, target: int) -> tuple[int, ...]:
        """Indices of the links from device `source` to device `target`: the fewest hops, none on one device.

        Raises InputError when they are not joined.
        """
        if source == target:
            return ()
        known = self._known_routes.get((source, target))
        if known is not None:
            return known
        names = self.devices[source].name, self.devices[target].name
        numbers = [self._link_number.get(hop) for hop in self._routes.hops(*names)]
        if not numbers or None in numbers:
            raise InputError(f"links: no route from device {names[0]!r} to {names[1]!r}; add the missing link")
        self._known_routes[source, target] = route = tuple(number for number in numbers if number is not None)
        return route

    @cached_property
    def _known_weights(self) -> dict[tuple[tuple[int, int], ...], Mapping[int, float]]:
        return {}

    def link_weights(self, pairs: tuple[tuple[int, int], ...]) -> Mapping[int, float]:
        """How many of several (source, target) devices' routes cross each link, by ascending link index."""
        if pairs not in self._known_weights:
            crossed = Counter(link for pair in pairs for link in self.route(*pair))
            self._known_weights[pairs] = {link: float(times) for link, times in sorted(crossed.items())}
        return self._known_weights[pairs]

    @cached_property
    def ways(self) -> Kept:
        """What others have worked out of which links lead where, for all clusters `with_tier`, which share it."""
        return Kept(budget=1024)

    @cached_property
    def kept(self) -> Kept:
        """What others have worked out of this cluster."""
        return Kept()

    def latency_s(self, source: int, target: int) -> float:
        """Sum of the latencies on the route."""
        return ordered_sum(self.links[i].latency_s for i in self.route(source, target))

    def bandwidth_bytes_per_s(self, source: int, target: int) -> float:
        """Bandwidth of the narrowest link on the route; infinite on one device."""
        return min((self.links[i].bandwidth_bytes_per_s for i in self.route(source, target)), default=inf)

    def transfer_s(self, source: int, target: int, size_bytes: float) -> float:
        """Time of one uncontended message: the slowest measured curve on the route, or latency + bytes / bandwidth.

        A route of which only some links carry curves takes the larger of the two answers.
        """
        if source == target:
            return 0.0
        route = [self.links[i] for i in self.route(source, target)]
        bare = [link for link in route if link.curve is None]
        measured = max((link.curve.seconds(size_bytes) for link in route if link.curve), default=0.0)
        narrowest = min((link.bandwidth_bytes_per_s for link in bare), default=inf)
        formula = ordered_sum(link.latency_s for link in bare) + size_bytes / narrowest if bare else 0.0
        return max(measured, formula)

    @cached_property
    def devices_per_host(self) -> int:
        """The most workers that one host has."""
        return max(Counter(device.host for device in self.devices[: self.workers]).values())

    def collective_s(self, name: str, group: Sequence[int], size_bytes: float) -> float:
        """Measured time of a collective over `group`; 0 without a curve of as many devices that lie on hosts alike."""
        curve = self.collectives.get(name, {}).get(len(group))
        if curve is None:
            return 0.0
        return curve.seconds(size_bytes) if self._fills_hosts(tuple(group)) else 0.0

    def _fills_hosts(self, group: tuple[int, ...]) -> bool:
        """Whether devices are all workers of their hosts, but for one host."""

        def fills() -> bool:
            of_hosts = sorted(Counter(self.devices[i].host for i in group).values(), reverse=True)
            return all(number == self.devices_per_host for number in of_hosts[:-1])

        return self.kept.get((Cluster.collective_s, group), fills)

    @property
    def tiers(self) -> tuple[str, ...]:
        """The tiers that links name, in order of appearance."""
        return tuple(dict.fromkeys(link.tier for link in self.links))

    def with_tier(
        self, tier: str, *, bandwidth_bytes_per_s: float | None = None, latency_s: float | None = None
    ) -> Cluster:
        """This cluster with another bandwidth or latency on every link of `tier`; measured curves there lapse."""
        if tier not in self.tiers:
            raise UnknownNameError.of(f"link tier of cluster {self.name}", tier, self.tiers)

        def changed(link: Link) -> Link:
            latency = link.latency_s if latency_s is None else latency_s
            if bandwidth_bytes_per_s is None:
                return replace(link, curve=None, latency_s=latency)
            return _giving(link, bandwidth_bytes_per_s, curve=None, latency_s=latency)

        links = tuple(changed(link) if link.tier == tier else link for link in self.links)
        alike = replace(self, links=links, collectives={})
        for name in ("_link_number", "_routes", "_known_routes", "_known_weights", "ways"):  # the same links
            alike.__dict__[name] = getattr(self, name)
        return alike

    def with_efficiency(self, tier: str, efficiency: float, source: str) -> Cluster:
        """This cluster with links of `tier` that give training `efficiency` of their line rate, which `source` says.

        What was measured lapses: curves of these links and of collectives. Raises UnknownNameError or InputError.
        """
        if tier not in self.tiers:
            raise UnknownNameError.of(f"link tier of cluster {self.name}", tier, self.tiers)
        require(0 < efficiency < inf, f"efficiency of {tier}", efficiency, "it is positive; 1 is the line rate")

        def changed(link: Link) -> Link:
            rate = link.line_rate_bytes_per_s or link.bandwidth_bytes_per_s
            return replace(_giving(link, rate * efficiency, curve=None), line_rate_bytes_per_s=rate)

        links = tuple(changed(link) if link.tier == tier else link for link in self.links)
        sources = (*self.sources, f"{tier}.efficiency {efficiency:.4g}: {source}")
        return replace(self, links=links, collectives={}, sources=sources)

    def with_speed(self, factor: float, role: Literal["worker", "server"] | None = None) -> Cluster:
        """This cluster with the speed of every device (or those of one role) multiplied by `factor`."""
        devices = tuple(replace(d, speed=d.speed * factor) if role in (None, d.role) else d for d in self.devices)
        return replace(self, devices=devices)

    def with_memory(self, memory_bytes: int) -> Cluster:
        """This cluster with so much memory on every device."""
        return replace(self, devices=tuple(replace(device, memory_bytes=memory_bytes) for device in self.devices))


def _giving(link: Link, bandwidth_bytes_per_s: float, **others: Any) -> Link:
    """`link` with another bandwidth, which nobody measured, and other fields."""
    nobody: dict[str, Any] = {"line_rate_bytes_per_s": None, "achieved": None}
    return replace(link, bandwidth_bytes_per_s=bandwidth_bytes_per_s, **nobody, **others)
