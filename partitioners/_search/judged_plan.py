"""What a local search goes from and to: plans that were simulated, and changes of them that promise something."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from partitioners._judge.judge import Verdict
from partitioners._search.loads import PlanLoads


class LocalChange(NamedTuple):
    """Numbers of other shardings for some layers, by position, and of micro-batches; what the plan then promises."""

    promise_s: float
    numbers: dict[int, int]
    microbatches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A plan that was simulated, its loads, and what steps take over their promises by number of micro-batches."""

    verdict: Verdict
    loads: PlanLoads
    excess: dict[int, float]

    @property
    def microbatches(self) -> int:
        """Of the plan; its loads may be those of another number."""
        return self.verdict.plan.microbatches


def times_promised(step_s: float, promise_s: float) -> float:
    """How many times its promise a step takes; once where nothing is promised to take any time."""
    return step_s / promise_s if promise_s > 0 else 1.0
