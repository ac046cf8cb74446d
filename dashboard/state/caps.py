"""What this page does not plan or simulate, told from the numbers of a configuration before anything is planned."""

from __future__ import annotations

import partitioners
from dashboard.state.configuration import Configuration
from simulator.errors import InputError
from simulator.plan import Plan
from simulator.workload import Profile

MOST_TASKS = 2_000_000
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
    if searches(now.strategy):
        return
    each = 1 if now.strategy in WHOLE else now.devices
    tasks = 2 * len(profile.layers) * each * (now.microbatches or 1)
    if tasks > MOST_TASKS:
        raise InputError(
            f"the step has at least {tasks:,} tasks: this page simulates up to {MOST_TASKS:,}; use fewer micro-batches "
            "or devices, or run it with the command under Export"
        )


def require_size(profile: Profile, plan: Plan) -> None:
    """Raise InputError when lowering `plan` could make more tasks than a page should wait for.

    Counts every shard's two passes and, where producer and consumer are placed unlike each other, a message each
    way from every shard to every device of the consumer: an upper bound but for the gradients.
    """
    tasks = 0
    for position, layer in enumerate(profile.layers):
        sharding = plan.placements[layer.name]
        shards = len(sharding.devices)
        targets = {plan.placements[profile.layers[i].name] for i in profile.consumers[position]} - {sharding}
        reached = len({device for target in targets for device in target.devices})
        tasks += 2 * shards * (1 + reached) * plan.microbatches
    if tasks > MOST_TASKS:
        raise InputError(
            f"the step may have {tasks:,} tasks: this page simulates up to {MOST_TASKS:,}; use fewer micro-batches or "
            "devices, or run it with the command under Export"
        )
