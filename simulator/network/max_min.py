"""Max-min fair sharing of capacities among activities: transfers on links, compute tasks on a host's cores.

Progressive filling (Bertsekas and Gallager, Data Networks, 1992, section 6.5.2): raise all rates together until a
resource is full, fix its users, go on with the rest. The share at which a resource is full follows from its load and
from the lower rates of its users alone, so an engine may find it in any order. Activities that use the same resources
in the same way form a class and progress alike, so a class keeps one counter of service per activity and a heap of the
levels at which its activities end. The counter is brought forward only where activities join or end or where the rate
changes, so that an engine need not touch the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf

_ROUNDING = 1e-12
"""Activities that would end within this fraction of the current time end together."""


@dataclass(slots=True, eq=False)
class ActivityClass:
    """Activities that use `weights[resource]` of each resource per unit of rate, none faster than `cap`."""

    weights: Mapping[int, float]
    cap: float = inf
    active: int = 0
    served: float = 0.0
    rate: float = 0.0
    since_s: float = 0.0
    version: int = 0
    endings: list[tuple[float, int]] = field(default_factory=list)


class Sharing:
    """Activities in progress on resources of given capacities (units of work per second)."""

    def __init__(self, capacities: Iterable[float]) -> None:
        self._capacities = list(capacities)
        self._users: list[dict[int, ActivityClass]] = [{} for _ in self._capacities]
        self._changed: dict[int, ActivityClass] = {}
        self._due: list[tuple[float, int, int, ActivityClass]] = []
        self._sequence = 0

    def join(self, kind: ActivityClass, activity: int, work: float, now_s: float) -> None:
        """Start `activity` of class `kind` with `work` to do; call `refresh` before time goes on."""
        self._serve(kind, now_s)
        kind.active += 1
        heappush(kind.endings, (kind.served + work, activity))
        if kind.active == 1:
            for resource in kind.weights:
                self._users[resource][id(kind)] = kind
        self._changed[id(kind)] = kind

    def set_cap(self, kind: ActivityClass, cap: float, now_s: float) -> None:
        """Change how fast an activity of `kind` may go at most."""
        if cap != kind.cap:
            self._serve(kind, now_s)
            kind.cap = cap
            if kind.active:
                self._changed[id(kind)] = kind

    def finish(self, now_s: float) -> list[int]:
        """Remove the activities that are done by now and return them in ascending order."""
        done: list[int] = []
        while self._due and self._due[0][0] <= now_s * (1 + _ROUNDING):
            _, _, version, kind = heappop(self._due)
            if version != kind.version:
                continue
            self._serve(kind, now_s)
            reach = kind.served + max(kind.rate * now_s, kind.served) * _ROUNDING
            while kind.endings and kind.endings[0][0] <= reach:
                done.append(heappop(kind.endings)[1])
                kind.active -= 1
            self._changed[id(kind)] = kind
            if not kind.active:
                self._leave(kind)
        done.sort()
        return done

    def refresh(self, now_s: float) -> float:
        """Give every affected class its new rate and return when the next activity ends (inf: none)."""
        if self._changed:
            affected = self._affected()
            for kind, rate in zip(affected, self._fill(affected), strict=True):
                if rate == kind.rate and id(kind) not in self._changed:
                    continue
                self._serve(kind, now_s)
                kind.rate = rate
                kind.version += 1
                if rate > 0:
                    self._sequence += 1
                    due_s = now_s + max(kind.endings[0][0] - kind.served, 0.0) / rate
                    heappush(self._due, (due_s, self._sequence, kind.version, kind))
            self._changed.clear()
        while self._due and self._due[0][2] != self._due[0][3].version:
            heappop(self._due)
        return self._due[0][0] if self._due else inf

    @staticmethod
    def _serve(kind: ActivityClass, now_s: float) -> None:
        if kind.active:
            kind.served += kind.rate * (now_s - kind.since_s)
        kind.since_s = now_s

    def _leave(self, kind: ActivityClass) -> None:
        kind.served = 0.0
        kind.version += 1
        for resource in kind.weights:
            del self._users[resource][id(kind)]

    def _affected(self) -> list[ActivityClass]:
        """The active classes joined to a changed one through shared resources."""
        affected: dict[int, ActivityClass] = {}
        resources: set[int] = set()
        stack = list(self._changed.values())
        while stack:
            kind = stack.pop()
            if kind.active:
                affected[id(kind)] = kind
            for resource in kind.weights:
                if resource not in resources:
                    resources.add(resource)
                    stack += [other for other in self._users[resource].values() if id(other) not in affected]
        return list(affected.values())

    def _fill(self, kinds: list[ActivityClass]) -> list[float]:
        """Max-min fair rates of `kinds`, which share resources with no others."""
        if len(kinds) == 1:
            only = kinds[0]
            return [min(only.cap, *(self._capacities[r] / (w * only.active) for r, w in only.weights.items()), inf)]
        load: dict[int, float] = {}
        for kind in kinds:
            for resource, weight in kind.weights.items():
                load[resource] = load.get(resource, 0.0) + weight * kind.active
        share = {resource: self._capacities[resource] / amount for resource, amount in load.items()}
        held: dict[int, list[tuple[float, float]]] = {resource: [] for resource in load}
        free_load = load.copy()
        rates = [0.0] * len(kinds)
        pending = list(range(len(kinds)))
        while pending:
            least = min(min(share.values(), default=inf), min(kinds[i].cap for i in pending))
            free: list[int] = []
            changed: set[int] = set()
            for i in pending:
                kind = kinds[i]
                if kind.cap > least and all(share[resource] > least for resource in kind.weights):
                    free.append(i)
                    continue
                rates[i] = least
                for resource, weight in kind.weights.items():
                    held[resource].append((least, weight * kind.active))
                    free_load[resource] -= weight * kind.active
                    changed.add(resource)
            for resource in changed:
                if free_load[resource] > 0.0:
                    share[resource] = _share(self._capacities[resource], load[resource], held[resource])
                else:
                    del share[resource]
            pending = free
        return rates


def _share(capacity: float, load: float, held: list[tuple[float, float]]) -> float:
    """The rate of those of a resource's users who are not held.

    held: rates at which others are held, with their load. What a rate takes is rounded as the capacity is, so that sums
    of it are exact in any order.
    """
    share = capacity / load
    while True:
        below = [(rate, amount) for rate, amount in held if rate < share]
        taken = sum(amount * (capacity + rate - capacity) for rate, amount in below)
        rest = load - sum(amount for _, amount in below)
        higher = max(share, max(capacity - taken, 0.0) / rest)
        if higher == share:
            return share
        share = higher
