"""From a configuration to its cluster and its plan, and which batches, micro-batches and degrees it can be given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import gcd
from typing import Any

import partitioners
from dashboard.state.caps import WHOLE
from dashboard.state.configuration import (
    DEGREES,
    MOST_DEVICES,
    MOST_MICROBATCHES,
    MOST_SAMPLES,
    OWN,
    SHARES_STATES,
    Configuration,
)
from partitioners._grid_choices import divisible
from partitioners._stages.block_layout import separable_units
from simulator import collectives
from simulator.cluster import Cluster, Link
from simulator.language_models.grids import Divisible
from simulator.language_models.training_stack import optimizer_state_of
from simulator.network import catalogue, topologies
from simulator.network.catalogue import ClusterFile
from simulator.parameter_states import ParameterStates
from simulator.plan import OPTIMIZERS, Plan, StepSettings, Synchronisation
from simulator.runtime import IDEAL, Runtime
from simulator.workload import Profile

Tell = Callable[[str], None]
_OPTIONS = (
    "microbatches", "seed", "effort", "imbalance", "tensor", "pipeline", "context", "expert", "expert_tensor",
    "recomputation",
)  # fmt: skip
"""Options of strategies under the names of a configuration's fields."""


def batch_of(configuration: Configuration, profile: Profile) -> int:
    """Samples of a step: as set, else what suits the profile and the number of devices."""
    return configuration.batch_size or profile.batch_for(configuration.devices)


def usual_cluster(configuration: Configuration, uploaded: ClusterFile | None) -> Cluster:
    """As many devices as asked of the preset, or of the uploaded file. Raises InputError, UnknownNameError."""
    if uploaded is not None:
        return topologies.take(uploaded.cluster, configuration.devices)
    needed = collectives.load(configuration.collective).needs_server
    return catalogue.read_cluster(configuration.cluster, devices=configuration.devices, needs_server=needed)


def changed_cluster(usual: Cluster, configuration: Configuration) -> Cluster:
    """`usual` with its links and speed changed as the configuration says."""
    cluster = usual
    for tier, link in tier_links(usual).items():
        bandwidth, latency = configuration.link_factors(tier)
        if bandwidth != 1 or latency != 1:
            cluster = cluster.with_tier(
                tier,
                bandwidth_bytes_per_s=link.nominal_bytes_per_s * bandwidth,
                latency_s=link.latency_s * latency,
            )
    return cluster if configuration.speed == 1 else cluster.with_speed(configuration.speed)


def tier_links(cluster: Cluster) -> dict[str, Link]:
    """The first link of each tier, whose speed is that of all."""
    return {tier: next(link for link in cluster.links if link.tier == tier) for tier in cluster.tiers}


def build_plan(
    configuration: Configuration, profile: Profile, cluster: Cluster, runtime: Runtime = IDEAL, tell: Tell | None = None
) -> Plan:
    """The strategy's plan; controls that are of no use to it are left alone."""
    used = partitioners.applicable(
        configuration.strategy,
        chunks=configuration.chunks or None,
        progress=tell,
        **{name: getattr(configuration, name) for name in _OPTIONS},
    )
    shares = configuration.strategy in SHARES_STATES
    states = ParameterStates(stage=configuration.zero_stage, group=configuration.shard_group)
    step = StepSettings(
        batch_size=batch_of(configuration, profile),
        microbatches=used.pop("microbatches", None),
        schedule=None if configuration.schedule == OWN else configuration.schedule,
        synchronisation=Synchronisation(collective=configuration.collective, overlap=configuration.overlap),
        optimizer_state=OPTIMIZERS.get(configuration.optimizer, optimizer_state_of(profile)),
        states=states if shares else ParameterStates(),
        runtime=runtime,
    )
    return partitioners.make_plan(configuration.strategy, profile, cluster, step, **used)


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
    near = now.context * (now.tensor if now.expert_tensor == 1 else 1)
    shared = now.expert == 1 or (
        limits.experts > 0
        and count * near % now.expert == 0
        and not max(near, now.expert) % min(near, now.expert)
        and limits.experts % now.expert == 0
    )
    return whole and parts and shared and now.expert_tensor in (0, 1, now.tensor)


def microbatch_counts(configuration: Configuration, profile: Profile) -> list[int]:
    """All numbers of micro-batches that divide the batch and leave every replica at least one sample."""
    batch, least = batch_of(configuration, profile), replicas(configuration)
    return [n for n in range(1, MOST_MICROBATCHES + 1) if batch % n == 0 and batch // n >= least]


def batch_sizes(configuration: Configuration, profile: Profile) -> list[int]:
    """Batches around the usual one that divide among the replicas and into the micro-batches that are set."""
    unit = max(replicas(configuration), 1) * (configuration.microbatches or 1)
    usual = profile.batch_for(configuration.devices)
    around = (usual * factor // 4 for factor in (1, 2, 4, 8, 16))
    sizes = sorted({max(unit, -(-size // unit) * unit) for size in around})
    return [size for size in sizes if size <= MOST_SAMPLES]


def values_around(now: Configuration, profile: Profile, usual: Cluster) -> dict[str, str]:
    """By parameter of a sweep, values around the configuration's own, as a user writes them."""
    fewest, most = now.devices // gcd(now.devices, 4), min(2 * now.devices, MOST_DEVICES)
    values = {"devices": f"{fewest}..{most} by x2"}
    if sizes := batch_sizes(now, profile):
        values["batch_size"] = ", ".join(map(str, sizes))
    for tier, link in tier_links(usual).items():
        gbps, us = link.nominal_bytes_per_s * 8e-9, link.latency_s * 1e6
        values[f"{tier}_bandwidth_bytes_per_s"] = f"{gbps / 4:g}Gbps..{gbps * 4:g}Gbps by x2"
        values[f"{tier}_latency_s"] = f"{us / 4:g}us..{us * 4:g}us by x2"
    return values
