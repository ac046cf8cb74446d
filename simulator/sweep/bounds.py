"""Lower bounds, known before any simulation: of every plan, and of one lowered plan."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.cluster import Cluster
from simulator.lowering.costs.shard_costs import shard_seconds
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.tasks.gradients import static_bytes
from simulator.lowering.tasks.passes import pass_columns, weight_fractions
from simulator.ordered_sum import ordered_sum
from simulator.runtime import IDEAL, Runtime
from simulator.taskgraph import Floats
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
    """Of a plan that is not lowered.

    A device computes all its micro-batches; it begins once the first has come to one of its layers, and from one of
    them the gradients of the last go back to the network's inputs. It holds its states, and before the first gradient
    comes to a layer whose output flows into all outputs of the network, what all such layers keep of a micro-batch.
    """
    plan, columns = model.plan, pass_columns(model)
    devices = np.concatenate([np.asarray(each) for each in model.devices])  # (shards of all layers,)
    sizes = [len(each) for each in model.devices]
    layer = np.repeat(np.arange(len(sizes)), sizes)
    passes_s = columns[:2] / np.array(cluster.speeds)[devices]
    busy_s = np.bincount(devices, weights=passes_s.sum(axis=0), minlength=len(cluster.devices))
    weights = weight_fractions(model, runtime)[layer]
    passes_s[1] *= 1 - weights  # nobody waits for those
    least_s = np.minimum.reduceat(passes_s, np.cumsum([0, *sizes[:-1]]), axis=1)  # (2, layers)
    around_s = _around_s(model.profile, least_s)
    waits_s = np.full((2, len(cluster.devices)), np.inf)
    np.minimum.at(waits_s[0], devices, around_s[0, layer])
    np.minimum.at(waits_s[1], devices, np.where(weights.any(), 0.0, around_s[1, layer]))  # they may come last
    used = np.isfinite(waits_s[0])
    steps_s = plan.microbatches * busy_s[used] + waits_s[:, used].sum(axis=0)
    whole_s = max(float(steps_s.max()), float((around_s + least_s).sum(axis=0).max()))
    held_bytes = static_bytes(model, cluster, runtime)
    flows_into_all = model.profile.kept.get(_flows_into_all, lambda: _flows_into_all(model.profile))
    kept = [flows and at not in model.segment_of for at, flows in enumerate(flows_into_all)]
    held_bytes = held_bytes + np.bincount(devices, columns[2] * np.array(kept)[layer], minlength=len(held_bytes))
    return Bound(
        step_s=whole_s * min(plan.work or (1.0,)) * (1 - ROUNDING) + runtime.step_overhead_s,
        peak_bytes=float(held_bytes.max()) * (1 - ROUNDING),
    )


def _around_s(profile: Profile, least_s: Floats) -> Floats:
    """The longest chains of passes, forward up to each layer and backward from it to the inputs: shape (2, layers)."""
    around_s = []
    for pass_s in least_s.tolist():
        reached_s = list[float]()
        for layer in profile.layers:
            read = (profile.index[name] for name in layer.inputs)
            reached_s.append(max((reached_s[at] + pass_s[at] for at in read), default=0.0))
        around_s.append(reached_s)
    return np.array(around_s)


def _flows_into_all(profile: Profile) -> list[bool]:
    """By layer, whether every output of the network depends on it."""
    reached: list[frozenset[int]] = [frozenset()] * len(profile.layers)
    for at in reversed(range(len(profile.layers))):
        reached[at] = frozenset().union(*(reached[reader] for reader in profile.consumers[at])) or frozenset([at])
    outputs = frozenset().union(*reached)
    return [each == outputs for each in reached]
