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
    groups: int = 1
    """Equal groups of experts, of which a token takes top_groups first and its experts from these."""
    top_groups: int = 1
    """Of these groups, so many have all experts of a token."""
    once_per_host: bool = False
    """A token crosses the network once to a host with several of its experts, which hands it on inside."""

    def __post_init__(self) -> None:
        require(1 <= self.experts <= 16_384, "experts", self.experts, "it is from 1 to 16,384")
        rule = f"it is 1 to {self.experts}, the number of experts"
        require(1 <= self.top_k <= self.experts, "top_k", self.top_k, rule)
        divides = self.experts % self.groups == 0 if self.groups >= 1 else False
        require(divides, "groups", self.groups, f"it divides the {self.experts} experts")
        enough = 1 <= self.top_groups <= self.groups and self.top_groups * self.group_size >= self.top_k
        rule = f"it is 1 to {self.groups}, the number of groups, and they have {self.top_k} experts"
        require(enough, "top_groups", self.top_groups, rule)
        if self.loads:
            rule = f"one share for each of {self.experts} experts, none below 0, 1 in all"
            fits = len(self.loads) == self.experts and min(self.loads) >= 0 and abs(sum(self.loads) - 1) < 1e-6
            require(fits, "loads", self.loads, rule)
        if self.capacity is not None:
            require(self.capacity > 0, "capacity", self.capacity, "it is above 0")

    @property
    def group_size(self) -> int:
        """Experts of a group."""
        return self.experts // self.groups

    def host_share(self, hosts: int, devices: int) -> float:
        """Of the bytes that cross between `hosts` with equally many experts, what is left where a token crosses once.

        devices: among which the bytes are those of an all-to-all.
        """
        if not self.once_per_host:
            return 1.0
        return min(1.0, hosts * self._visited(self.experts // hosts) / ordered_sum(self.visits(devices)))

    def _visited(self, own: int) -> float:
        """How often a token has an expert, or several, among `own` neighbours.

        It takes T of G groups and k of their experts, all choices alike. The neighbours are of n of these groups with a
        hypergeometric probability, u of them; one of the k is among these with probability 1 - C(T m - u, k) /
        C(T m, k), for groups of m experts (DeepSeek-V3, arXiv 2412.19437, sections 2.1.2 and 3.2.2: at most four hosts
        of eight).
        """
        open_to = self.top_groups * self.group_size
        whole = max(own // self.group_size, 1)  # groups of which they are
        of_each = min(own, self.group_size)
        visited = 0.0
        for taken in range(1, min(whole, self.top_groups) + 1):
            draws = comb(whole, taken) * comb(self.groups - whole, self.top_groups - taken)
            missed = comb(open_to - taken * of_each, self.top_k) / comb(open_to, self.top_k)
            visited += draws / comb(self.groups, self.top_groups) * (1 - missed)
        return visited

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

        Once per pair it is top_k times the group's share, once per device how often any of its experts is in the group,
        of loads that are alike.
        """
        if not self.once_per_device:
            pairs = zip(self.loads_of(parts), self.fair_shares(parts), strict=True)
            return tuple(self.top_k * load * share for load, share in pairs)
        edges = [self.experts * i // parts for i in range(parts + 1)]
        return tuple(self._visited(b - a) for a, b in pairwise(edges))
