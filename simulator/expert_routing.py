"""Mixtures of experts: which tokens travel to which experts."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import comb, inf

from simulator.errors import require
from simulator.ordered_sum import ordered_sum


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """How the tokens of a mixture of experts find their experts."""

    __pydantic_config__ = {"extra": "forbid"}

    experts: int
    """How many there are."""
    top_k: int = 1
    """To how many of them each token goes."""
    loads: tuple[float, ...] = ()
    """Share of all (token, expert) pairs that each expert gets; empty: all alike."""
    capacity: float | None = None
    """An expert takes at most so many times its fair share, the other pairs are dropped; None: all."""
    once_per_device: bool = False
    """A token travels once to a device with several of its experts, which adds up what they make of it."""

    def __post_init__(self) -> None:
        require(1 <= self.experts <= 16_384, "experts", self.experts, "it is from 1 to 16,384")
        rule = f"it is 1 to {self.experts}, the number of experts"
        require(1 <= self.top_k <= self.experts, "top_k", self.top_k, rule)
        if self.loads:
            rule = f"one share for each of {self.experts} experts, none below 0, 1 in all"
            fits = len(self.loads) == self.experts and min(self.loads) >= 0 and abs(sum(self.loads) - 1) < 1e-6
            require(fits, "loads", self.loads, rule)
        if self.capacity is not None:
            require(self.capacity > 0, "capacity", self.capacity, "it is above 0")

    def loads_of(self, parts: int) -> tuple[float, ...]:
        """For each of `parts` equal groups of experts, the (token, expert) pairs that it computes over its fair share.

        >>> Routing(experts=4, loads=(0.7, 0.1, 0.1, 0.1)).loads_of(2)
        (1.6, 0.4)
        """
        most = inf if self.capacity is None else self.capacity
        if not self.loads:
            return (min(1.0, most),) * parts
        each = [min(load * self.experts, most) for load in self.loads]
        edges = [self.experts * i // parts for i in range(parts + 1)]
        return tuple(ordered_sum(each[a:b]) / (b - a) for a, b in pairwise(edges))

    def fair_shares(self, parts: int) -> tuple[float, ...]:
        """For each of `parts` equal groups of experts, its part of the experts."""
        edges = [self.experts * i // parts for i in range(parts + 1)]
        return tuple((b - a) / self.experts for a, b in pairwise(edges))

    def visits(self, parts: int) -> tuple[float, ...]:
        """For each of `parts` equal groups of experts on devices of their own, how often a token travels to it.

        Once per pair it is top_k times the group's share. Once per device it is the probability that any of k experts
        drawn without repetition is in the group: 1 - C(e - e/n, k) / C(e, k), of loads that are alike.
        """
        if not self.once_per_device:
            pairs = zip(self.loads_of(parts), self.fair_shares(parts), strict=True)
            return tuple(self.top_k * load * share for load, share in pairs)
        missed = [
            comb(self.experts - (self.experts * (i + 1) // parts - self.experts * i // parts), self.top_k)
            for i in range(parts)
        ]
        return tuple(1 - count / comb(self.experts, self.top_k) for count in missed)
