"""From a plan to its report in one call."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.cluster import Cluster
from simulator.engine import simulate
from simulator.engine.noise import Noise
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower
from simulator.plan import Plan
from simulator.report.metrics import Report, measure
from simulator.runtime import IDEAL, Runtime
from simulator.taskgraph import TaskGraph
from simulator.timeline import Timeline
from simulator.workload import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A plan's tasks, when they ran, and what that cost."""

    plan: Plan
    runtime: Runtime = IDEAL
    graph: TaskGraph
    timeline: Timeline
    report: Report


def run(profile: Profile, cluster: Cluster, plan: Plan, *, runtime: Runtime = IDEAL, noise: Noise | None = None) -> Run:
    """Lower, simulate and measure `plan`. Raises InputError when it does not fit profile or cluster."""
    model = ShardedModel(profile, plan)
    graph = lower(model, cluster, runtime)
    graph = noise.disturb(graph) if noise else graph
    timeline = simulate(graph, cluster, runtime)
    return Run(
        plan=plan,
        runtime=runtime,
        graph=graph,
        timeline=timeline,
        report=measure(model, cluster, graph, timeline),
    )


def step_seconds(profile: Profile, cluster: Cluster, plan: Plan, runtime: Runtime = IDEAL) -> float:
    """The simulated step alone, for searches that judge many plans."""
    return simulate(lower(ShardedModel(profile, plan), cluster, runtime), cluster, runtime).step_s
