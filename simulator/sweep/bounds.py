"""Lower bounds, known before any simulation: of every plan, and of one lowered plan."""

from __future__ import annotations

import numpy as np

from simulator.cluster import Cluster
from simulator.lowering.costs.shard_costs import shard_seconds
from simulator.network.transfers import link_bytes
from simulator.ordered_sum import ordered_sum
from simulator.report.critical_path import critical_path_s
from simulator.taskgraph import TaskGraph
from simulator.workload import Layer, Profile


def least_compute_s(profile: Profile, batch_size: int) -> float:
    """Seconds at speed 1 that the forward and backward passes of a batch take together, however they are split.

    Every sample and channel of a layer is computed once. The time of a shard, as `costs` interpolates it, is
    seconds(samples) x factor(channels), each piecewise linear, so time per sample and per channel is least at a
    measured point or at the whole batch; no sum over shards is less than the batch at that rate. Updates are left
    out, because servers may make them.
    """
    return ordered_sum(_least_layer_s(profile, layer, batch_size) for layer in profile.layers)


def _least_layer_s(profile: Profile, layer: Layer, batch_size: int) -> float:
    sizes = {p.batch_size for p in layer.scaling if p.channel_fraction == 1 and p.batch_size <= batch_size}
    fractions = {p.channel_fraction for p in layer.scaling if p.batch_size == profile.batch_size} | {1.0}
    sizes |= {batch_size} | ({profile.batch_size} if profile.batch_size <= batch_size else set())
    rate_s = np.min([np.divide(shard_seconds(profile, layer, size), size) for size in sizes], axis=0)
    whole_s = np.array(shard_seconds(profile, layer, profile.batch_size))
    parts_s = [np.divide(shard_seconds(profile, layer, profile.batch_size, part), part) for part in fractions]
    factor = np.divide(np.min(parts_s, axis=0), whole_s, out=np.ones(2), where=whole_s > 0)
    return float(batch_size * (rate_s * factor).sum())


def compute_bound_s(profile: Profile, cluster: Cluster, batch_size: int) -> float:
    """Lower bound in seconds on any step of `batch_size`: the least compute over the workers' summed speed."""
    return least_compute_s(profile, batch_size) / ordered_sum(cluster.speeds[: cluster.workers])


def memory_bound_bytes(profile: Profile, cluster: Cluster, optimizer_state: float) -> float:
    """Lower bound in bytes on the fullest device: parameters, gradients and state spread over all, servers too."""
    return profile.parameter_bytes * (2 + optimizer_state) / len(cluster.devices)


def dollars_bound(profile: Profile, cluster: Cluster, batch_size: int) -> float:
    """Lower bound in dollars on any step: the least compute on the worker that is cheapest per speed."""
    prices = [d.dollars_per_hour / d.speed for d in cluster.devices[: cluster.workers] if d.dollars_per_hour]
    return least_compute_s(profile, batch_size) * min(prices, default=0.0) / 3600


def graph_bound_s(graph: TaskGraph, cluster: Cluster) -> float:
    """Lower bound in seconds on any simulation of `graph`: its busiest device, its busiest link, its longest chain.

    Links count at their bandwidth, and not at all where anything else says what crosses them takes.
    """
    computes = ~graph.is_transfer
    busiest_s = np.bincount(graph.device[computes], weights=graph.seconds[computes]).max(initial=0.0)
    measured = not cluster.is_formula or bool(graph.seconds[graph.is_transfer].any())
    bandwidths = np.array([link.bandwidth_bytes_per_s for link in cluster.links])
    links_s = 0.0 if measured else (link_bytes(graph, cluster) / bandwidths).max(initial=0.0)
    return float(max(busiest_s, links_s, critical_path_s(graph, cluster)))
