"""From a configuration to its cluster and its plan."""

from __future__ import annotations

from collections.abc import Callable

import partitioners
from dashboard.state.configuration import OWN, SHARES_STATES, Configuration
from simulator import collectives
from simulator.cluster import Cluster, Link
from simulator.language_models.training_stack import optimizer_state_of
from simulator.network import catalogue, topologies
from simulator.network.catalogue import ClusterFile
from simulator.parameter_states import ParameterStates
from simulator.plan import OPTIMIZERS, Plan, StepSettings, Synchronisation
from simulator.runtime import IDEAL, Runtime
from simulator.workload import Profile

Tell = Callable[[str], None]
_OPTIONS = (
    "microbatches", "seed", "effort", "imbalance", "tensor", "pipeline", "context", "expert", "recomputation",
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
