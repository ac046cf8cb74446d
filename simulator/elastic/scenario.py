"""A job and its membership changes: what a scenario file says.

schema: 1
profile: vgg16                    a profile file, or a name of the library
cluster: t4-g4dn                  all devices that the job may ever use
devices: 8
start: [node0/gpu0, node0/gpu1]   those it begins on; left out: all
strategy: data                    plans anew for every set of devices
batch_size: 256
policy: live                      or restart
overheads: overheads.yaml         what reconfigurations cost; a file beside this one
checkpoint_every: 10min           left out: never
duration: 1d
events:
- {at: 2h, event: join, devices: [node0/gpu2]}
- {at: 5h30min, event: leave, devices: [node0/gpu1], notice: 2min}
- {at: 7h, event: vanish, devices: [node0/gpu2]}
- {at: 9h, event: slow, devices: [node0/gpu0], to: 0.5}        of its usual speed, until told otherwise
- {at: 10h, event: narrow, tier: inter, to: 0.25}              of its usual bandwidth
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any, Literal

from simulator import files
from simulator.cluster import Cluster
from simulator.errors import InputError, UnknownNameError, require, require_name
from simulator.units import parse_duration

MOST_EVENTS = 10_000
"""Each is two simulations or more."""
POLICIES = ("live", "restart")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happens to devices, or to links of a tier."""

    at: str
    """Since the start."""
    event: Literal["join", "leave", "vanish", "slow", "narrow"]
    """What happens."""
    devices: tuple[str, ...] = ()
    """To which; none of narrow."""
    tier: str = ""
    """Whose links become narrow."""
    notice: str = "2min"
    """How long after `at` devices that leave are gone."""
    to: float = 1.0
    """Share of the usual speed or bandwidth from then on."""

    def __post_init__(self) -> None:
        require(self.at_s >= 0, "at", self.at, "it is a time since the start")
        require(self.notice_s >= 0, "notice", self.notice, "it is a duration")
        require(0 < self.to < inf, "to", self.to, "it is a positive share of the usual speed or bandwidth")
        field = "tier" if self.event == "narrow" else "devices"
        for name in ("tier", "devices"):
            rule = f"event {self.event!r} at {self.at} names " + ("a tier of links" if field == "tier" else "devices")
            require(bool(getattr(self, name)) == (name == field), name, getattr(self, name) or "missing", rule)
        rule = f"event {self.event!r} at {self.at} has none; only slow and narrow do"
        require(self.to == 1 or self.event in ("slow", "narrow"), "to", self.to, rule)

    @property
    def at_s(self) -> float:
        """Seconds since the start."""
        return parse_duration(self.at)

    @property
    def notice_s(self) -> float:
        """Seconds from the announcement until the devices are gone."""
        return parse_duration(self.notice)

    def __str__(self) -> str:
        if self.event == "narrow":
            return f"{self.tier} links at {self.to:.0%}"
        few = len(self.devices) <= 2
        who = ", ".join(self.devices) if few else f"{len(self.devices)} from {self.devices[0]}"
        if self.event == "slow":
            return f"{who} at {self.to:.0%}"
        does = "vanishes" if self.event == "vanish" else f"{self.event}s"
        return f"{who} {self.event if len(self.devices) > 1 else does}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """How fast devices are and how wide links are, as shares of the usual; what is missing is as usual."""

    speeds: tuple[tuple[int, float], ...] = ()
    tiers: tuple[tuple[str, float], ...] = ()

    def with_speeds(self, devices: set[int], share: float) -> Conditions:
        """With these devices at `share` of their usual speed."""
        return replace(self, speeds=tuple(sorted({**dict(self.speeds), **dict.fromkeys(devices, share)}.items())))

    def with_tier(self, tier: str, share: float) -> Conditions:
        """With the links of a tier at `share` of their usual bandwidth."""
        return replace(self, tiers=tuple(sorted({**dict(self.tiers), tier: share}.items())))

    def applied(self, cluster: Cluster) -> Cluster:
        """`cluster` under these conditions."""
        speeds, usual = dict(self.speeds), cluster.links
        devices = tuple(replace(d, speed=d.speed * speeds.get(i, 1.0)) for i, d in enumerate(cluster.devices))
        for tier, share in self.tiers:
            width = max(link.nominal_bytes_per_s for link in usual if link.tier == tier)
            cluster = cluster.with_tier(tier, bandwidth_bytes_per_s=width * share) if share != 1 else cluster
        return replace(cluster, devices=devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario as written; see the module."""

    profile: str
    """A name or file."""
    cluster: str
    """A name or file."""
    overheads: str
    """A file."""
    duration: str
    """Of the whole job."""
    devices: int | None = None
    """How many the cluster has; None: its own number."""
    start: tuple[str, ...] = ()
    """Those that are there at first; empty: all."""
    strategy: str = "data"
    """By which the job is planned anew."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the strategy's own."""
    plan: str = ""
    """A file, for the first devices."""
    migration: float = 0.0
    """Above 0, strategy "hypergraph" cuts close to the plan before: so much of a step's byte is a byte worth that
    moves, 1 / the steps until the next change."""
    speed: float = 1.0
    """Of devices, relative to the profiled one."""
    batch_size: int | None = None
    """In all, whoever is there; None: the profile's for each device of `start`."""
    policy: Literal["live", "restart"] = "live"
    """What a change does to the job."""
    checkpoint_every: str = ""
    """A duration; empty: never."""
    events: tuple[Event, ...] = ()
    """In order of time."""
    notes: str = ""
    """For people."""

    def __post_init__(self) -> None:
        require(self.duration_s > 0, "duration", self.duration, "it is longer than nothing")
        require(self.migration >= 0, "migration", self.migration, "it is at least 0")
        rule = f"strategy {self.strategy!r} plans without regard to the plan before; only hypergraph can stay close"
        require(not self.migration or self.strategy == "hypergraph", "migration", self.migration, rule)
        require(0 < self.speed < inf, "speed", self.speed, "it is positive")
        require(self.checkpoint_every_s > 0, "checkpoint_every", self.checkpoint_every, "it is longer than nothing")
        require(
            len(self.events) <= MOST_EVENTS, "events", f"{len(self.events):,}", f"there are at most {MOST_EVENTS:,}"
        )
        moments = [event.at_s for event in self.events]
        require(moments == sorted(moments), "events", [event.at for event in self.events], "they are in order of time")
        for event in self.events[-1:]:
            require(event.at_s < self.duration_s, "at", event.at, f"the job ends at {self.duration}, before this event")

    @property
    def duration_s(self) -> float:
        """Seconds from start to end."""
        return parse_duration(self.duration)

    @property
    def checkpoint_every_s(self) -> float:
        """Seconds between checkpoints, infinite where there are none."""
        return parse_duration(self.checkpoint_every) if self.checkpoint_every else inf

    def first_members(self, cluster: Cluster) -> tuple[int, ...]:
        """The devices that it begins on, by number. Raises UnknownNameError."""
        return tuple(sorted(numbers_of(cluster, self.start))) or tuple(range(cluster.workers))

    def check(self, cluster: Cluster) -> None:
        """Raise InputError or UnknownNameError unless every event names links or devices that are there then."""
        here = set(self.first_members(cluster))
        for event in self.events:
            if event.event == "narrow" and event.tier not in cluster.tiers:
                raise UnknownNameError.of(f"tier of the event at {event.at}", event.tier, cluster.tiers)
            named = numbers_of(cluster, event.devices)
            wrong = named & here if event.event == "join" else named - here
            if wrong:
                name = cluster.devices[min(wrong)].name
                state = "there already" if event.event == "join" else "not there"
                raise InputError(f"event at {event.at}: {event.event} names device {name!r}, which is {state} then")
            here = here | named if event.event == "join" else here - named if event.event != "slow" else here


def read_scenario(path: str | Path) -> Scenario:
    """The scenario in a YAML file. Raises InputError when its content breaks a rule, OSError when unreadable."""
    return files.read_yaml(Path(path), Scenario)


def numbers_of(cluster: Cluster, names: tuple[str, ...]) -> set[int]:
    """Numbers of the workers called `names`. Raises UnknownNameError."""
    known = {device.name: i for i, device in enumerate(cluster.devices[: cluster.workers])}
    for name in names:
        require_name(f"device of cluster {cluster.name}", name, known)
    return {known[name] for name in names}
