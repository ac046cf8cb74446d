"""What this page does not plan or simulate, told from the numbers of a configuration before anything is planned."""

from __future__ import annotations

from dataclasses import replace

import partitioners
from dashboard.state.configuration import SHARES_STATES, Configuration
from simulator.cluster import Cluster
from simulator.errors import InputError
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower
from simulator.lowering.symmetry.symmetries import symmetries_of
from simulator.plan import Plan
from simulator.runtime import Runtime
from simulator.workload import Profile

MOST_TASKS = 2_000_000
EARLY_TASKS = 300_000
"""A step of more tasks, whose replicas are equal, has its numbers before its tasks."""
MOST_LOWERED = 20_000_000
"""Up to which bound on the tasks of a micro-batch these are counted: they are 8 to 15 times fewer."""
WHOLE = frozenset({"pipeline", "model", "greedy"})
"""Strategies that keep every layer on one device."""
MOST_SEARCHED = {"layerwise": 32, "hypergraph": 256, "metis": 256, "spatial": 256, "shuffle": 256}
"""Devices up to which a strategy's search ends within this page's time budget."""


def searches(strategy: str) -> bool:
    """Whether a strategy takes its time: it says so by an option of effort."""
    return "effort" in partitioners.options(strategy)


def require_small(configuration: Configuration, profile: Profile) -> None:
    """Raise InputError, before anything is planned, where planning or simulating would take this page too long."""
    now, most = configuration, MOST_SEARCHED.get(configuration.strategy)
    if most is not None and now.devices > most:
        raise InputError(
            f"devices is {now.devices}: this page plans {now.strategy} for up to {most} devices; use fewer, or run it "
            "with the command under Export"
        )
    if searches(now.strategy) or now.strategy in SHARES_STATES:
        return  # replicas that are equal are simulated once: the plan says how many tasks that takes
    each = 1 if now.strategy in WHOLE else now.devices
    _require_tasks(2 * len(profile.layers) * each * (now.microbatches or 1), "at least ")


def is_counted(profile: Profile, plan: Plan, cluster: Cluster, runtime: Runtime, few: int) -> bool:
    """Whether a plan may have more than a few tasks, but equal replicas and ranks, of which one is enough to count."""
    if _most_tasks(profile, plan) <= few:
        return False
    return next(iter(symmetries_of(profile, plan, cluster, runtime, {})), None) is not None


def require_size(profile: Profile, plan: Plan, cluster: Cluster, runtime: Runtime) -> None:
    """Raise InputError when a plan has more tasks than a page should wait for.

    Where a bound does not say that it has few, they are counted: the plan is lowered for two micro-batches, and
    every further one adds as many as the second, unless one is too many by itself.
    """
    tasks = _most_tasks(profile, plan)
    if tasks <= MOST_TASKS:
        return
    few = [replace(plan, microbatches=count) for count in (1, 2) if count <= plan.microbatches]
    if _most_tasks(profile, few[0]) <= MOST_LOWERED:
        counted = [len(lower(ShardedModel(profile, part), cluster, runtime)) for part in few]
        tasks = counted[0] + (plan.microbatches - 1) * (counted[-1] - counted[0])
    _require_tasks(tasks)


def _require_tasks(tasks: int, about: str = "") -> None:
    """Raise InputError for a step of too many tasks."""
    if tasks > MOST_TASKS:
        raise InputError(
            f"the step has {about}{tasks:,} tasks: this page simulates up to {MOST_TASKS:,}; use fewer micro-batches "
            "or devices, or run it with the command under Export"
        )


def _most_tasks(profile: Profile, plan: Plan) -> int:
    """An upper bound on the tasks of a step, but for the gradients.

    Every shard's two passes and, where producer and consumer are placed unlike each other, a message each way from
    every shard to every device of the consumer.
    """
    tasks = 0
    for position, layer in enumerate(profile.layers):
        sharding = plan.placements[layer.name]
        shards = len(sharding.devices)
        targets = {plan.placements[profile.layers[i].name] for i in profile.consumers[position]} - {sharding}
        reached = len({device for target in targets for device in target.devices})
        tasks += 2 * shards * (1 + reached) * plan.microbatches
    return tasks
