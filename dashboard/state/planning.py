"""From a configuration to its cluster and its plan."""

from __future__ import annotations

from collections.abc import Callable

import partitioners
from dashboard.state.configuration import OWN, SHARES_STATES, Configuration
from simulator import collectives
from simulator.cluster import Cluster
from simulator.language_models.training_stack import optimizer_state_of
from simulator.network import catalogue, topologies
from simulator.network.catalogue import ClusterFile
from simulator.parameter_states import ParameterStates
from simulator.plan import OPTIMIZERS, Plan, StepSettings, Synchronisation
from simulator.runtime import IDEAL, Runtime
from simulator.workload import Profile

Tell = Callable[[str], None]


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
    for tier in usual.tiers:
        bandwidth, latency = configuration.link_factors(tier)
        link = next(link for link in usual.links if link.tier == tier)
        if bandwidth != 1 or latency != 1:
            cluster = cluster.with_tier(
                tier,
                bandwidth_bytes_per_s=link.nominal_bytes_per_s * bandwidth,
                latency_s=link.latency_s * latency,
            )
    return cluster if configuration.speed == 1 else cluster.with_speed(configuration.speed)


def build_plan(
    configuration: Configuration, profile: Profile, cluster: Cluster, runtime: Runtime = IDEAL, tell: Tell | None = None
) -> Plan:
    """The strategy's plan; controls that are of no use to it are left alone."""
    used = partitioners.applicable(
        configuration.strategy,
        microbatches=configuration.microbatches,
        seed=configuration.seed,
        effort=configuration.effort,
        imbalance=configuration.imbalance,
        tensor=configuration.tensor,
        pipeline=configuration.pipeline,
        context=configuration.context,
        expert=configuration.expert,
        chunks=configuration.chunks or None,
        recomputation=configuration.recomputation,
        progress=tell,
    )
    step = StepSettings(
        batch_size=batch_of(configuration, profile),
        microbatches=used.pop("microbatches", None),
        schedule=None if configuration.schedule == OWN else configuration.schedule,
        synchronisation=Synchronisation(collective=configuration.collective, overlap=configuration.overlap),
        optimizer_state=_optimizer_state(configuration, profile),
        states=_states(configuration),
        runtime=runtime,
    )
    return partitioners.make_plan(configuration.strategy, profile, cluster, step, **used)


def _states(configuration: Configuration) -> ParameterStates:
    if configuration.strategy not in SHARES_STATES:
        return ParameterStates()
    return ParameterStates(stage=configuration.zero_stage, group=configuration.shard_group)


def _optimizer_state(configuration: Configuration, profile: Profile) -> float:
    return optimizer_state_of(profile) if configuration.optimizer == OWN else OPTIMIZERS[configuration.optimizer]
