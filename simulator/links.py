"""Links: what joins devices, hosts and switches, in one direction, and what a change of one makes of what was measured.

The bandwidth is what collectives get that use all of a link's wires. A message between two devices has one wire, and a
share of it of its own: it has no rounds to wait for, and one connection that has to carry it alone.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import inf
from operator import attrgetter

from simulator.curve import Curve
from simulator.errors import require, require_time

LEAST_BANDWIDTH, MOST_BANDWIDTH = 1e-3, 1e30
ABOVE = 1 + 1e-9
"""The line rate: shares of it are rounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AchievedShare:
    """The share of a link's line rate that collectives or training were measured to get."""

    median: float
    """The one in use."""
    low: float
    """5 %."""
    high: float
    """95 %."""

    def __post_init__(self) -> None:
        rule = "0 < low <= median <= high, shares of the line rate"
        require(0 < self.low <= self.median <= self.high < inf, "achieved", self, rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A directed link from `source` to `target` (devices, hosts or switches)."""

    source: str
    """A device, host or switch."""
    target: str
    """Another."""
    bandwidth_bytes_per_s: float
    """What collectives get of all its wires together."""
    latency_s: float = 0.0
    """Of a message, and of a step of a collective."""
    tier: str = "link"
    """Links of one kind ("intra", "inter", ...), so that one option can change them all."""
    curve: Curve | None = None
    """Measured times of an uncontended message over this link, in place of latency + bytes / bandwidth."""
    line_rate_bytes_per_s: float | None = None
    """What the product promises, of which the bandwidth is the measured share; None: the bandwidth."""
    achieved: AchievedShare | None = None
    """That share, its median the one in use, with its band."""
    wires: int = 1
    """Parallel ones, such as network cards, of which a message has one, and a collective one for each member of a host
    if there are as many."""
    message_bytes_per_s: float | None = None
    """What a message alone gets of its wire; None: a wire's part of the bandwidth."""

    def __post_init__(self) -> None:
        where = f"link {self.name}: "
        rule = f"it is from {LEAST_BANDWIDTH:g} to {MOST_BANDWIDTH:g} bytes per second"
        rates = {
            "bandwidth_bytes_per_s": self.bandwidth_bytes_per_s,
            "line_rate_bytes_per_s": self.line_rate_bytes_per_s,
            "message_bytes_per_s": self.message_bytes_per_s,
        }
        for what, rate in rates.items():
            require(rate is None or LEAST_BANDWIDTH <= rate <= MOST_BANDWIDTH, where + what, rate, rule)
        require_time(where + "latency_s", self.latency_s)
        require(1 <= self.wires <= 1024, where + "wires", self.wires, "it is from 1 to 1,024")
        for what, parts in (("bandwidth_bytes_per_s", 1), ("message_bytes_per_s", self.wires)):
            rate, most = rates[what] or 0.0, self.nominal_bytes_per_s / parts
            rule = f"it is at most the line rate{' of a wire' if parts > 1 else ''}, {most:g}"
            require(rate <= most * ABOVE, where + what, rate, rule)
        if self.curve is not None:
            self.curve.require_rising(where + "curve")

    @property
    def name(self) -> str:
        return f"{self.source}->{self.target}"

    @property
    def speed(self) -> tuple[object, ...]:
        """All that says how fast it is."""
        return self.bandwidth_bytes_per_s, self.latency_s, self.curve, self.wires, self.message_bytes_per_s

    @property
    def kind(self) -> tuple[object, ...]:
        """All but its ends."""
        return _KIND(self)

    def between(self, source: str, target: str) -> Link:
        """Its like with other ends. Numbers were checked when this one was made: large clusters have many alike."""
        made = object.__new__(Link)
        for name, value in zip(_FIELDS, (source, target, *_KIND(self)), strict=True):
            object.__setattr__(made, name, value)
        return made

    @property
    def of_message_bytes_per_s(self) -> float:
        """What a message alone gets."""
        return self.message_bytes_per_s or self.bandwidth_bytes_per_s / self.wires

    def with_latency(self, latency_s: float) -> Link:
        """This link with another latency, by which a measured curve is moved."""
        added_s = latency_s - self.latency_s
        curve = None if self.curve is None else self.curve.rescaled(1.0, added_s)
        return replace(self, latency_s=latency_s, curve=curve)

    @property
    def nominal_bytes_per_s(self) -> float:
        """What the product promises, or, where nothing else is known, what collectives get."""
        return self.line_rate_bytes_per_s or self.bandwidth_bytes_per_s

    def times(self, factor: float) -> Link:
        """This link giving collectives and messages `factor` times what it gives, in the same shares of its rate.

        Of a measured curve, what is above its shortest time scales with it.
        """
        return replace(
            self,
            bandwidth_bytes_per_s=self.bandwidth_bytes_per_s * factor,
            curve=None if self.curve is None else self.curve.rescaled(1 / factor, 0.0),
            line_rate_bytes_per_s=self.line_rate_bytes_per_s and self.line_rate_bytes_per_s * factor,
            message_bytes_per_s=self.message_bytes_per_s and self.message_bytes_per_s * factor,
        )

    def with_efficiency(self, efficiency: float) -> Link:
        """This link giving collectives and messages a share of its line rate."""
        rate = self.nominal_bytes_per_s
        changed = self.times(rate * efficiency / self.bandwidth_bytes_per_s)
        return replace(changed, line_rate_bytes_per_s=rate, achieved=None, message_bytes_per_s=None)


_FIELDS = tuple(field.name for field in fields(Link))
_KIND = attrgetter(*_FIELDS[2:])
