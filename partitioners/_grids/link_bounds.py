"""What the links between nodes need at the least for the parameters and gradients that replicas share.

Of a tensor of B bytes that is gathered on R replicas, of which a node has m, R/m - 1 times B arrives at nodes, however
the gather goes: each node gets once what its own replicas do not hold. A sum whose parts stay where they are takes as
much, by the same argument backwards, and one that all replicas get twice that. Each arrival takes the links between
nodes that a route has; their bytes over the bandwidth of all these links are a bound of a step.
"""

from __future__ import annotations

from math import ceil

from simulator.cluster import Cluster
from simulator.language_models.training_grid import TrainingGrid
from simulator.parameter_states import ParameterStates


def least_link_s(
    grid: TrainingGrid, states: ParameterStates, cluster: Cluster, dense_bytes: float, routed_bytes: float
) -> float:
    """Seconds of a step; dense_bytes, routed_bytes: of the parameters of all that is no expert, and of all experts.

    Of replicas that share in groups gathers alone count. 0 on one node, and where collectives were measured, which
    links need not bound.
    """
    capacity = _arrivals_per_s(cluster)
    if capacity == 0:
        return 0.0
    every = grid.accumulation if states.each_microbatch else 1
    moves = (1 if states.keep_gathered else 2) * every if states.stage == 3 else 1  # gathers, or one after the update
    if grid.shard_group:
        moves *= states.stage == 3
    else:
        moves += every if states.stage >= 2 else 1
    sharing = grid.shard_group or grid.replicas
    arriving = 0.0
    for size, replicas, ranks in (
        (dense_bytes, sharing, grid.tensor),
        (routed_bytes, sharing * grid.tensor // grid.expert_ranks, grid.expert_ranks),
    ):
        near = ceil(cluster.devices_per_host / ranks)
        arriving += grid.replicas // sharing * size * max(0.0, replicas / near - 1)
    return moves * arriving / capacity


def _arrivals_per_s(cluster: Cluster) -> float:
    """Bytes that all links between nodes carry a second, over those that a route has; 0 where nothing bounds them."""
    return float(cluster.kept.get(_arrivals_per_s, lambda: _carried(cluster)))


def _carried(cluster: Cluster) -> float:
    hosts = [device.host for device in cluster.devices[: cluster.workers]]
    other = next((number for number, host in enumerate(hosts) if host != hosts[0]), None)
    if other is None:
        return 0.0
    tier = cluster.tiers[-1]
    links = [link for link in cluster.links if link.tier == tier]
    if cluster.collectives or any(link.curve for link in links):
        return 0.0
    crossed = sum(cluster.links[at].tier == tier for at in cluster.route(0, other))
    return sum(link.bandwidth_bytes_per_s for link in links) / crossed if crossed else 0.0
