"""What a network is trained on: Devices joined by directed Links over a networkx graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import Literal

from simulator.collective_library import CollectiveLibrary
from simulator.curve import Curve
from simulator.errors import MOST_BYTES, InputError, require, require_from_0, require_name
from simulator.kept import Kept
from simulator.links import AchievedShare, Link
from simulator.ordered_sum import ordered_sum
from simulator.routes import Routes

__all__ = ["AchievedShare", "Cluster", "Device", "Link"]
MEASURED_COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send")
"""What a cluster may have measured curves of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Something that computes."""

    name: str
    """Its own."""
    host: str
    """The machine whose cores it shares where the cluster lists them."""
    kind: str = ""
    """The product."""
    memory_bytes: int | None = None
    """None: it is not limited."""
    speed: float = 1.0
    """Relative to the device that the profile was captured on."""
    role: Literal["worker", "server"] = "worker"
    """"server": a parameter server, which holds no layers."""
    dollars_per_hour: float | None = None
    """None: steps have no price."""
    watts: float | None = None
    """What it draws while the job runs."""

    def __post_init__(self) -> None:
        where = f"device {self.name!r}: "
        require(0 < self.speed < inf, where + "speed", self.speed, "it is positive")
        require(1e-9 <= self.speed <= 1e9, where + "speed", self.speed, "it is from 1e-9 to 1e9")
        if self.memory_bytes is not None:
            require(0 < self.memory_bytes <= MOST_BYTES, where + "memory_bytes", self.memory_bytes, "it is positive")
        require_from_0(where + "dollars_per_hour", self.dollars_per_hour or 0.0, 1e9)
        require_from_0(where + "watts", self.watts or 0.0, 1e9)


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Devices, workers before servers, and the links that join them, with the collectives that run on them.

    Raises InputError on duplicate names, unjoined devices or links that name nothing.
    """

    name: str
    """What reports call it."""
    devices: tuple[Device, ...]
    """Workers, then parameter servers."""
    links: tuple[Link, ...] = ()
    """One for each direction."""
    host_cores: Mapping[str, float] = field(default_factory=dict, hash=False)
    """CPU cores of hosts whose devices share them (one compute task uses at most one core); hosts that are absent never
    limit their devices."""
    library: CollectiveLibrary | None = None
    """How collectives run here (`network.collective_times`); None: as their formulas say."""
    collectives: Mapping[str, Mapping[int, Curve]] = field(default_factory=dict, hash=False)
    """Measured curves by name, as {"all_reduce": {number of devices: curve}}, of devices that fill one host after
    another; they hold where one matches, and correct what library or formula say elsewhere."""
    sources: tuple[str, ...] = ()
    """Where its numbers come from."""

    def __post_init__(self) -> None:
        require(len(self.devices) > 0, "devices", "[]", "a cluster has at least one device")
        roles = [device.role for device in self.devices]
        require(roles == sorted(roles, reverse=True), "devices", roles, "workers come before servers")
        require("worker" in roles, "devices", roles, "at least one is a worker")
        for what, names in (("device", [d.name for d in self.devices]), ("link", [x.name for x in self.links])):
            twice = sorted({name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else ())
            require(not twice, f"{what}s", ", ".join(twice), f"{what} names are unique")
        for collective in self.collectives:
            require_name("measured collective", collective, MEASURED_COLLECTIVES)
            for number, curve in self.collectives[collective].items():
                require(number >= 2, f"collectives: {collective}", number, "curves are of at least 2 devices")
                curve.require_rising(f"collectives: {collective} of {number}")
        for host, cores in self.host_cores.items():
            require(0 < cores <= 1e6, f"host_cores of {host!r}", cores, "it is positive, and at most 1e6")
            require_name("host in host_cores", host, {device.host for device in self.devices})

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
        return tuple(numbers.setdefault(link.speed, len(numbers)) for link in self.links)

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
        """What others have worked out of which links lead where, for all clusters wired alike, which share it."""
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
        narrowest = min((link.of_message_bytes_per_s for link in bare), default=inf)
        formula = ordered_sum(link.latency_s for link in bare) + size_bytes / narrowest if bare else 0.0
        return max(measured, formula)

    @cached_property
    def devices_per_host(self) -> int:
        """The most workers that one host has."""
        return max(Counter(device.host for device in self.devices[: self.workers]).values())

    @property
    def tiers(self) -> tuple[str, ...]:
        """The tiers that links name, in order of appearance."""
        return tuple(dict.fromkeys(link.tier for link in self.links))

    @property
    def times_collectives(self) -> bool:
        """Whether a library or measured curves say how long collectives take."""
        return self.library is not None or bool(self.collectives)

    @property
    def is_formula(self) -> bool:
        """Whether whatever is sent takes latency + bytes / bandwidth of the links that it crosses."""
        alone = (
            link.curve is None and link.of_message_bytes_per_s == link.bandwidth_bytes_per_s for link in self.links
        )
        return not self.times_collectives and all(alone)

    def with_tier(
        self, tier: str, *, bandwidth_bytes_per_s: float | None = None, latency_s: float | None = None
    ) -> Cluster:
        """This cluster with another line rate, of which links give the share that they gave, or another latency on
        every link of `tier`; what was measured there is scaled."""

        def changed(link: Link) -> Link:
            if bandwidth_bytes_per_s is not None:
                link = link.times(bandwidth_bytes_per_s / link.nominal_bytes_per_s)
            return link if latency_s is None else link.with_latency(latency_s)

        return self.with_links(tier, changed)

    def with_efficiency(self, tier: str, efficiency: float, source: str) -> Cluster:
        """This cluster with links of `tier` that give training `efficiency` of their line rate, which `source` says.

        Raises UnknownNameError or InputError.
        """
        require(0 < efficiency < inf, f"efficiency of {tier}", efficiency, "it is positive; 1 is the line rate")
        changed = self.with_links(tier, lambda link: link.with_efficiency(efficiency))
        return replace(changed, sources=(*self.sources, f"{tier}.efficiency {efficiency:.4g}: {source}"))

    def with_links(self, tier: str, change: Callable[[Link], Link]) -> Cluster:
        """This cluster with every link of `tier` changed in speed, and measured collectives as that changes them."""
        require_name(f"link tier of cluster {self.name}", tier, self.tiers)
        made: dict[tuple[object, ...], Link] = {}
        for link in self.links:
            if link.tier == tier and link.kind not in made:
                made[link.kind] = change(link)
        links = tuple(
            made[link.kind].between(link.source, link.target) if link.tier == tier else link for link in self.links
        )
        curves = {
            name: {n: self._rescaled(name, n, curve, links) for n, curve in by_count.items() if n <= self.workers}
            for name, by_count in self.collectives.items()
        }
        return self._wired_alike(links=links, collectives=curves)

    def _wired_alike(self, **changes: object) -> Cluster:
        """This cluster with other figures of the same devices and links, which lead the same ways."""
        alike: Cluster = replace(self, **changes)  # type: ignore[arg-type]
        for name in ("_link_number", "_routes", "_known_routes", "_known_weights", "ways"):
            alike.__dict__[name] = getattr(self, name)
        return alike

    def _rescaled(self, name: str, devices: int, curve: Curve, links: Sequence[Link]) -> Curve:
        """A collective's measured curve taken apart: its shortest time moves with the latency of its rounds, what is
        above it with the bandwidth of the links that it fills."""
        pairs = tuple((i, (i + 1) % devices) for i in range(devices))
        weights, steps = self.link_weights(pairs), devices - 1 if name != "all_reduce" else 2 * (devices - 1)
        before, after = (
            min(of[number].bandwidth_bytes_per_s / weight for number, weight in weights.items())
            for of in (self.links, links)
        )
        before_s, after_s = (
            max(ordered_sum(of[number].latency_s for number in self.route(*pair)) for pair in pairs)
            for of in (self.links, links)
        )
        least_s = curve.points[0][1] * (after_s / before_s - 1) if after_s < before_s else 0.0
        return curve.rescaled(before / after, max(steps * (after_s - before_s), least_s))

    def with_speed(self, factor: float, role: Literal["worker", "server"] | None = None) -> Cluster:
        """This cluster with the speed of every device (or those of one role) multiplied by `factor`."""
        devices = tuple(replace(d, speed=d.speed * factor) if role in (None, d.role) else d for d in self.devices)
        return self._wired_alike(devices=devices)

    def with_memory(self, memory_bytes: int) -> Cluster:
        """This cluster with so much memory on every device."""
        return self._wired_alike(devices=tuple(replace(device, memory_bytes=memory_bytes) for device in self.devices))
