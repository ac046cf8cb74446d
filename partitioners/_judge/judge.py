"""Judging plans by simulating them, within a budget of tasks so that a search takes the same path everywhere."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from math import inf

import numpy as np

from simulator.cluster import Cluster
from simulator.plan import Plan
from simulator.report.memory import most_bytes, peak_bytes
from simulator.report.traffic import crossing_bytes
from simulator.run import LoweredPlan, lowered
from simulator.runtime import IDEAL, Runtime
from simulator.taskgraph import Floats, TaskGraph
from simulator.timeline import Timeline
from simulator.units import format_time
from simulator.workload import Profile

Progress = Callable[[str], None]
_ROUNDING = 1e-9
_NEAR = 1.2
"""Plans slower than the best by more than this are not searched on."""


class TimeSpent(Exception):
    """Raised by a Progress: what is best by now is the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How good a plan is: first that it fits (bytes beyond the worst device's memory), then its cost."""

    excess_bytes: float
    cost: float
    step_s: float
    plan: Plan
    graph: TaskGraph
    timeline: Timeline

    def beats(self, other: Verdict | None) -> bool:
        """Better by more than rounding; between plans that cost the same the earlier one stays."""
        if other is None or self.excess_bytes != other.excess_bytes:
            return other is None or self.excess_bytes < other.excess_bytes
        if abs(self.cost - other.cost) > _ROUNDING * other.cost:
            return self.cost < other.cost
        return self.step_s < other.step_s * (1 - _ROUNDING)


watching: ContextVar[Callable[[Verdict, str, bool], None] | None] = ContextVar("watching", default=None)
"""Is told of every plan that a judge simulates: the verdict, what made the plan, whether it is the judge's best now."""


@dataclass(slots=True, kw_only=True)
class Judge:
    """Simulates plans of one profile on one cluster and remembers the best.

    objective "step": cost is the step in seconds; "volume": the bytes communicated. `budget` is how many tasks
    may still be simulated; `trials` counts the plans. once: equal replicas of the model are simulated once.
    spent: whether its progress has said that time is, after which the budget stays at nothing.
    """

    profile: Profile
    cluster: Cluster
    runtime: Runtime = IDEAL
    objective: str = "step"
    once: bool = False
    budget: float = inf
    progress: Progress | None = None
    best: Verdict | None = None
    trials: int = 0
    spent: bool = False

    def grant(self, tasks: float) -> None:
        """Let so many tasks be simulated from now on, none where time is spent."""
        self.budget = 0.0 if self.spent else tasks

    def consider(self, plan: Plan, label: str = "") -> Verdict:
        """Simulate `plan` and remember it if it is the best so far."""
        return self._simulated(lowered(self.profile, self.cluster, plan, self.runtime, self.once), plan, label)

    def excess_bytes(self, plan: Plan) -> float:
        """What `plan` holds beyond the memory of the worst device, simulated only where that may be."""
        known = lowered(self.profile, self.cluster, plan, self.runtime, self.once)
        always = _always_fits(known.graph, _capacities(self.cluster))
        return 0.0 if always else self._simulated(known, plan, "memory").excess_bytes

    def is_near(self, cost: float) -> bool:
        """Whether a plan of this cost is worth searching on: none that fits into memory is far better."""
        return self.best is None or self.best.excess_bytes > 0 or cost <= _NEAR * self.best.cost

    def _simulated(self, known: LoweredPlan, plan: Plan, label: str) -> Verdict:
        graph, timeline = known.graph, known.timeline(self.cluster)
        self.budget -= len(graph)
        self.trials += 1
        verdict = Verdict(
            excess_bytes=_excess_bytes(graph, timeline, self.cluster),
            cost=timeline.step_s if self.objective == "step" else float(crossing_bytes(graph).sum()),
            step_s=timeline.step_s,
            plan=plan,
            graph=graph,
            timeline=timeline,
        )
        if verdict.beats(self.best):
            self.best = verdict
        self._tell(label)
        if (watch := watching.get()) is not None:
            watch(verdict, label, verdict is self.best)
        return verdict

    def _tell(self, label: str) -> None:
        if self.progress is None or self.best is None or self.spent:
            return
        try:
            self.progress(f"{self.trials} plans, best {format_time(self.best.step_s)}, last {label}")
        except TimeSpent:
            self.spent, self.budget = True, 0.0


def _excess_bytes(graph: TaskGraph, timeline: Timeline, cluster: Cluster) -> float:
    capacities = _capacities(cluster)
    if _always_fits(graph, capacities):
        return 0.0
    return float(np.maximum(peak_bytes(graph, timeline, cluster) - capacities, 0.0).max())


def _always_fits(graph: TaskGraph, capacities: Floats) -> bool:
    """Whether no order of the tasks exceeds any device's capacity."""
    devices = len(capacities)
    return bool((graph.kept.get((most_bytes, devices), lambda: most_bytes(graph, devices)) <= capacities).all())


def _capacities(cluster: Cluster) -> Floats:
    return np.array([device.memory_bytes or inf for device in cluster.devices])
