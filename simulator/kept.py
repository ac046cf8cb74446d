"""What has been worked out, kept by value within a budget."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from math import inf
from typing import Any, TypeVar

Answer = TypeVar("Answer")


class Kept:
    """Answers by key; where they weigh more than the budget in all, those that nobody asked for longest go.

    A noun has one for what others work out of it, so that keys need not hold the noun: hashing thousands of layers
    takes longer than most answers. Another process begins with an empty one. Threads that share one may make an answer
    twice.
    """

    def __init__(self, budget: float = 50_000, largest: float = inf) -> None:
        """largest: what weighs more than that is made anew each time."""
        self._budget, self._largest = budget, largest
        self.clear()

    def get(self, key: Hashable, make: Callable[[], Answer], size: float = 1.0) -> Answer:
        """The answer of that key, made where it is not known; size: its weight."""
        known = self._answers.get(key)
        answer: Answer
        if known is None:
            answer = make()
            if size <= self._largest:
                self.put(key, answer, size)
            return answer
        self._asked += 1
        known[2] = self._asked
        answer = known[0]
        return answer

    def latest(self, key: Hashable, of: object, make: Callable[[], Answer]) -> Answer:
        """The answer of that key for `of`; the one for the latest `of` alone is kept, as it is as large as the noun."""
        known: tuple[Any, Any] = self.get(key, lambda: (None, None))
        if known[0] is not of:
            self.put(key, known := (of, make()))
        answer: Answer = known[1]
        return answer

    def put(self, key: Hashable, answer: object, size: float = 1.0) -> None:
        """Keep this answer in place of the one that is known, at least until the next."""
        before = self._answers.get(key)
        self._asked += 1
        self._answers[key] = [answer, size, self._asked]
        self._weight += size - (before[1] if before else 0.0)
        if self._weight > self._budget:
            self._forget()

    def _forget(self) -> None:
        """Leave a quarter of the budget free, or the latest answer alone."""
        for key, (_, size, _) in sorted(self._answers.copy().items(), key=lambda item: item[1][2])[:-1]:
            if self._weight <= 0.75 * self._budget:
                break
            self._answers.pop(key, None)
            self._weight -= size

    def clear(self) -> None:
        """Forget all."""
        self._answers: dict[Hashable, list[Any]] = {}
        self._weight, self._asked = 0.0, 0

    def __reduce__(self) -> tuple[type[Kept], tuple[float, float]]:
        return Kept, (self._budget, self._largest)
