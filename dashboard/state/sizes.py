"""Which batches, numbers of micro-batches and degrees a strategy can run: what the fields of the rail offer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dashboard.state.caps import WHOLE
from dashboard.state.configuration import DEGREES, MOST_MICROBATCHES, MOST_SAMPLES, Configuration
from dashboard.state.planning import batch_of
from partitioners._grid_choices import divisible
from partitioners._stages.block_layout import separable_units
from simulator.language_models.grids import Divisible
from simulator.workload import Profile


def replicas(now: Configuration) -> int:
    """Groups of devices that take samples of their own, 0 where the degrees do not divide the devices."""
    if now.strategy in WHOLE:
        return 1
    group = now.tensor * now.pipeline * now.context if now.strategy == "megatron" else 1
    return now.devices // group if now.devices % group == 0 else 0


def degrees(now: Configuration, profile: Profile) -> dict[str, list[int]]:
    """By name of a degree, its values that go with all others as they are."""
    limits, batch = divisible(profile), batch_of(now, profile)
    if not limits.heads:  # without attention the layers alone limit the stages
        limits = replace(limits, layers=len(separable_units(profile)))
    divisors = [count for count in range(1, now.devices + 1) if now.devices % count == 0]

    def offered(name: str) -> list[int]:
        set_to: list[tuple[int, dict[str, Any]]] = [(degree, {name: degree}) for degree in divisors]
        return [degree for degree, change in set_to if _goes(replace(now, **change), limits, batch)]

    return {name: offered(name) for name in DEGREES}


def _goes(now: Configuration, limits: Divisible, batch: int) -> bool:
    """Whether the degrees divide what they cut, and every replica has a sample of each micro-batch."""
    count, microbatches = replicas(now), now.microbatches or 1
    if not count or batch % microbatches or batch // microbatches < count or now.pipeline > limits.layers:
        return False
    heads, keys = limits.heads, limits.key_heads
    whole = not heads or (heads % now.tensor == 0 and not max(now.tensor, keys) % min(now.tensor, keys))
    parts = now.context == 1 or limits.sequence % (now.context * now.tensor) == 0 < limits.heads
    shared = now.expert == 1 or (
        limits.experts > 0
        and count * now.context % now.expert == 0
        and not max(now.context, now.expert) % min(now.context, now.expert)
        and limits.experts % now.expert == 0
    )
    return whole and parts and shared


def microbatch_counts(configuration: Configuration, profile: Profile) -> list[int]:
    """All numbers of micro-batches that divide the batch and leave every replica at least one sample."""
    batch, least = batch_of(configuration, profile), max(replicas(configuration), 1)
    return [n for n in range(1, min(batch, MOST_MICROBATCHES) + 1) if batch % n == 0 and batch // n >= least]


def batch_sizes(configuration: Configuration, profile: Profile) -> list[int]:
    """Batches around the usual one that divide among the replicas and into the micro-batches that are set."""
    unit = max(replicas(configuration), 1) * (configuration.microbatches or 1)
    usual = profile.batch_for(configuration.devices)
    around = (usual * factor // 4 for factor in (1, 2, 4, 8, 16))
    sizes = sorted({max(unit, -(-size // unit) * unit) for size in around})
    return [size for size in sizes if size <= MOST_SAMPLES]
