"""Lower bounds, known before any simulation: of every plan, and of one lowered plan."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.cluster import Cluster
from simulator.lowering.costs.shard_costs import shard_seconds
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.tasks.gradients import static_bytes
from simulator.lowering.tasks.passes import pass_columns
from simulator.ordered_sum import ordered_sum
from simulator.runtime import IDEAL, Runtime
from simulator.workload import Layer, Profile

ROUNDING = 1e-9


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What no simulation is below."""

    step_s: float
    peak_bytes: float


def plan_bound(model: ShardedModel, cluster: Cluster, runtime: Runtime = IDEAL) -> Bound:
    """Of a plan that is not lowered: its busiest device computes all its micro-batches, its fullest one holds its
    states."""
    plan, columns = model.plan, pass_columns(model)
    devices = np.concatenate([np.asarray(each) for each in model.devices])
    busy_s = np.bincount(devices, weights=columns[0] + columns[1], minlength=len(cluster.devices))
    busy_s = busy_s / np.array(cluster.speeds) * plan.microbatches * min(plan.work or (1.0,))
    held_bytes = static_bytes(model, cluster, runtime)
    return Bound(
        step_s=float(busy_s.max()) * (1 - ROUNDING) + runtime.step_overhead_s,
        peak_bytes=float(held_bytes.max()) * (1 - ROUNDING),
    )
