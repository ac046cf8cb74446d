"""Candidates in the order of their lower bounds, judged until nothing that is left can be among the best."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Generic, TypeVar

Candidate = TypeVar("Candidate")


@dataclass(slots=True, kw_only=True)
class BestFirst(Generic[Candidate]):
    """A queue of what is worth judging. Judging may add more."""

    group: Callable[[Candidate], Hashable]
    """Of candidates that are alike the best alone counts among the best."""
    queue: list[tuple[float, int, Candidate]] = field(default_factory=list)
    best: dict[Hashable, float] = field(default_factory=dict)
    """By group the least score so far."""
    added: int = 0

    def add(self, bound: float, candidate: Candidate) -> None:
        """A candidate whose score is not below `bound`."""
        self.added += 1
        heappush(self.queue, (bound, self.added, candidate))

    def run(self, judge: Callable[[Candidate], float | None], top: int, goes_on: Callable[[], bool]) -> bool:
        """Judge until the best `top` groups are certain, which it returns; `judge` gives the score, None where a
        candidate does not count."""
        while self.queue:
            bound, _, candidate = self.queue[0]
            if sum(score <= bound for score in self.best.values()) >= top:
                return True
            if not goes_on():
                return False
            heappop(self.queue)
            score = judge(candidate)
            if score is not None:
                group = self.group(candidate)
                self.best[group] = min(self.best.get(group, score), score)
        return True

    @property
    def left(self) -> list[Candidate]:
        """What was not judged."""
        return [candidate for _, _, candidate in sorted(self.queue, key=lambda entry: entry[:2])]

    @property
    def least(self) -> float:
        """Nothing of that has a lower score; 0 where nothing is left."""
        return self.queue[0][0] if self.queue else 0.0
