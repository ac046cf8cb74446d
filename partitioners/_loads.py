"""What a plan asks of every device and link, from its placements alone, and what step that promises.

What a layer, its parameters and the messages of its output ask for is looked up by how it and its readers are placed,
and a plan that differs in a few layers takes the rest over, so that dozens of plans cost less than to simulate one.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from partitioners._fabric import hops
from simulator import collectives
from simulator.cluster import Cluster
from simulator.lowering.exchange_bytes import moved_bytes
from simulator.lowering.exchange_pieces import EdgeEnd
from simulator.lowering.shard_regions import reads
from simulator.lowering.sharded_model import ShardedModel
from simulator.plan import Plan, Sharding
from simulator.runtime import Runtime
from simulator.taskgraph import Floats
from simulator.workload import Geometry, Profile

Sum = tuple[tuple[int, ...], float]
"""Devices that sum the gradient of the same parameters, and its bytes."""


class Passes(NamedTuple):
    """Of one micro-batch on a layer: seconds and tasks by device, the most of either on one, and the gradients' sums."""

    compute_s: Floats
    tasks: Floats
    forward_s: float
    backward_s: float
    sums: tuple[Sum, ...]


class Messages(NamedTuple):
    """Of one micro-batch of a layer's output: seconds by link, the most on one there and back, and both latencies."""

    links_s: Floats
    forward_s: float = 0.0
    backward_s: float = 0.0
    latency_s: float = 0.0


class LayerLoads(NamedTuple):
    """What a layer, its output and its parameters ask for; all but the sums for one micro-batch.

    total_s: seconds of computing by device, how many tasks by device, seconds of messages by link, one after the other.
    alone_s: of the slowest device and link there and back, one after the other; backward_s: of computing backward, and
    back_s with the messages before it. fixed_s: the price of tasks and latencies, which smaller micro-batches keep.
    parts: by sample.
    """

    total_s: Floats
    alone_s: float
    backward_s: float
    back_s: float
    fixed_s: float
    parts: int
    sums: tuple[Sum, ...]


@dataclass(slots=True, kw_only=True)
class PlanLoads:
    """The loads of every layer, and all of their `total_s` together, of a plan with the settings of `base`.

    numbers: of each layer's sharding, as the tables have them.
    """

    base: Plan
    numbers: list[int]
    layers: list[LayerLoads]
    total_s: Floats


class LoadTables:
    """Loads of plans of one profile on one cluster, kept by layer and edge."""

    def __init__(self, profile: Profile, cluster: Cluster, runtime: Runtime) -> None:
        self.known: dict[tuple[Hashable, ...], LayerLoads] = {}
        self._profile, self._cluster, self._price_s = profile, cluster, runtime.task_overhead_s
        self._numbers: dict[Sharding, int] = {}
        self._shardings: list[Sharding] = []
        self._models: dict[tuple[int, int], ShardedModel] = {}
        self._passes_known: dict[tuple[int, ...], Passes] = {}
        self._sums: dict[Sum, tuple[Floats, float]] = {}
        self._inputs = [[profile.index[name] for name in layer.inputs] for layer in profile.layers]
        _, self._pair, self._crossed = hops(cluster, len(cluster.devices))
        self._bandwidths = np.array([link.bandwidth_bytes_per_s for link in cluster.links])
        latencies = np.array([link.latency_s for link in cluster.links])
        self._latency_s = np.bincount(
            self._pair, weights=latencies[self._crossed], minlength=len(cluster.devices) ** 2
        )  # (pairs of devices,)

    def of(self, plan: Plan) -> PlanLoads:
        """The loads of a plan."""
        numbers = [self._number(plan.placements[layer.name]) for layer in self._profile.layers]
        layers = [self._layer(plan, numbers, position) for position in range(len(numbers))]
        total_s = np.sum([layer.total_s for layer in layers], axis=0)
        return PlanLoads(base=plan, numbers=numbers, layers=layers, total_s=total_s)

    def after(self, loads: PlanLoads, placements: Mapping[str, Sharding]) -> PlanLoads:
        """The loads when these placements take the place of others."""
        numbers, affected = loads.numbers.copy(), set[int]()
        for name, sharding in placements.items():
            position, number = self._profile.index[name], self._number(sharding)
            if numbers[position] != number:
                numbers[position] = number
                affected.add(position)
                affected.update(self._inputs[position])
        layers, total_s = loads.layers.copy(), loads.total_s.copy()
        for position in sorted(affected):
            layers[position] = self._layer(loads.base, numbers, position)
            total_s += layers[position].total_s
            total_s -= loads.layers[position].total_s
        return PlanLoads(base=loads.base, numbers=numbers, layers=layers, total_s=total_s)

    def plan_of(self, loads: PlanLoads, microbatches: int) -> Plan:
        """The plan that has these loads, with another number of micro-batches."""
        layers = zip(self._profile.layers, loads.numbers, strict=True)
        placements = {layer.name: self._shardings[number] for layer, number in layers}
        return replace(loads.base, placements=placements, microbatches=microbatches, strategy="")

    def parts(self, loads: PlanLoads) -> int:
        """The most parts by sample of any layer."""
        return max(layer.parts for layer in loads.layers)

    def floor_s(self, loads: PlanLoads) -> float:
        """What the busiest device computes, or the busiest link sends, in a step of any number of micro-batches."""
        compute_s, _, exchange_s = self._by_kind(loads)
        return max(float(compute_s.max()), float(exchange_s.max(initial=0.0))) * loads.base.microbatches

    def promises_s(self, loads: PlanLoads, counts: Sequence[int]) -> Floats:
        """The step that loads promise with each of these numbers of micro-batches, shape (counts,).

        The first micro-batch takes what the longest chain of layers does, or the busiest device; each other one what
        the busiest device or link does. What the last backward pass does not hide of sums comes on top.
        """
        scale = loads.base.microbatches / np.array(counts, dtype=np.float64)  # of a micro-batch, (counts,)
        reached_s, fixed_s, behind_s = self._chains(loads.layers)
        compute_s, tasks, exchange_s = self._by_kind(loads)
        computing_s = (np.multiply.outer(scale, compute_s) + tasks * self._price_s).max(axis=1)
        busiest_s = np.maximum(computing_s, exchange_s.max(initial=0.0) * scale)
        promises_s = np.maximum(reached_s * scale + fixed_s, computing_s) + (np.array(counts) - 1) * busiest_s
        if (buckets := self._buckets(loads)):
            seconds = [self._sum_s(loads.base, bucket) for _, bucket in buckets]
            # of each bucket and those that are ready later, by link: (buckets, links)
            waiting_s = np.cumsum([links_s for links_s, _ in seconds], axis=0)
            late_s = waiting_s.max(axis=1) + [latency_s for _, latency_s in seconds]
            behind = np.multiply.outer([behind_s[position] for position, _ in buckets], scale)  # (buckets, counts)
            promises_s += np.maximum((late_s[:, None] - behind).max(axis=0), 0.0)
            promises_s = np.maximum(promises_s, (exchange_s * loads.base.microbatches + waiting_s[-1]).max())
        return promises_s

    def _by_kind(self, loads: PlanLoads) -> tuple[Floats, Floats, Floats]:
        """Seconds of computing and tasks by device, and seconds by link, of one micro-batch."""
        devices = len(self._cluster.devices)
        return loads.total_s[:devices], loads.total_s[devices : 2 * devices], loads.total_s[2 * devices :]

    def _chains(self, layers: Sequence[LayerLoads]) -> tuple[float, float, list[float]]:
        """Seconds of the longest chain of one micro-batch, there and back, those that stay the same in a smaller one,
        and, by layer, seconds of what comes after its backward pass."""
        reached, fixed, behind = list[float](), list[float](), list[float]()
        earlier_s = 0.0
        for layer, inputs in zip(layers, self._inputs, strict=True):
            alone_s, fixed_s, back_s = 0.0, 0.0, earlier_s
            for i in inputs:
                if reached[i] > alone_s:
                    alone_s, fixed_s = reached[i], fixed[i]
                if behind[i] + layers[i].back_s > back_s:
                    back_s = behind[i] + layers[i].back_s
            reached.append(alone_s + layer.alone_s)
            fixed.append(fixed_s + layer.fixed_s)
            behind.append(back_s)
            earlier_s += layer.backward_s
        last = max(range(len(reached)), key=reached.__getitem__)
        return reached[last], fixed[last], behind

    def _buckets(self, loads: PlanLoads) -> list[tuple[int, Sum]]:
        """What is summed together, and the first layer of which that is the gradient, those ready last first."""
        setting, buckets = loads.base.synchronisation, list[tuple[int, Sum]]()
        first = setting.bucket_bytes if setting.first_bucket_bytes is None else setting.first_bucket_bytes
        held, ready, limit = dict[tuple[int, ...], float](), dict[tuple[int, ...], int](), dict[tuple[int, ...], int]()
        for position in range(len(loads.layers) - 1, -1, -1):
            for devices, size in loads.layers[position].sums:
                held[devices], ready[devices] = held.get(devices, 0.0) + size, position
                if held[devices] >= limit.get(devices, first):
                    buckets.append((position, (devices, held.pop(devices))))
                    limit[devices] = setting.bucket_bytes
        buckets += [(ready[devices], (devices, size)) for devices, size in held.items()]
        return sorted(buckets, key=lambda bucket: bucket[0])

    def _sum_s(self, plan: Plan, bucket: Sum) -> tuple[Floats, float]:
        """Seconds of a bucket's collective by link, shape (links,), and of its latencies."""
        if bucket not in self._sums:
            setting, seconds, latency_s = plan.synchronisation, np.zeros(len(self._bandwidths)), 0.0
            sent_bytes = setting.sent_bytes(bucket[1], self._profile.dtype)
            collective = collectives.load(setting.collective)
            for task in collective.tasks(self._cluster, bucket[0], sent_bytes, 0.0, setting.serving_workers):
                for source, target in task.route.pairs if task.route else ():
                    links = list(self._cluster.route(source, target))
                    seconds[links] += task.seconds or task.bytes / self._bandwidths[links]
                    row = source * len(self._cluster.devices) + target
                    latency_s = max(latency_s, 0.0 if task.seconds else task.route.rounds * self._latency_s[row])
            self._sums[bucket] = seconds, latency_s
        return self._sums[bucket]

    def sent_s(self, loads: PlanLoads) -> list[float]:
        """Seconds of all links together for the output and the parameters of each layer, shape (layers,)."""
        first, of_layers = 2 * len(self._cluster.devices), []
        for layer in loads.layers:
            sums_s = sum(float(self._sum_s(loads.base, each)[0].sum()) for each in layer.sums)
            of_layers.append(float(layer.total_s[first:].sum()) * loads.base.microbatches + sums_s)
        return of_layers

    def _number(self, sharding: Sharding) -> int:
        number = self._numbers.setdefault(sharding, len(self._shardings))
        if number == len(self._shardings):
            self._shardings.append(sharding)
        return number

    def _layer(self, base: Plan, numbers: list[int], position: int) -> LayerLoads:
        placed = numbers[position], *(numbers[reader] for reader in self._profile.consumers[position])
        key = (position, base.microbatches, *placed)
        known = self.known.get(key)
        if known is None:
            models = [self._model(base, number) for number in placed]
            own = self._passes_known.get(key[:3])
            if own is None:
                own = self._passes_known[key[:3]] = self._passes(models[0], position)
            sent = self._messages(models, position)
            known = self.known[key] = LayerLoads(
                total_s=np.concatenate([own.compute_s, own.tasks, sent.links_s]),
                alone_s=own.forward_s + own.backward_s + sent.forward_s + sent.backward_s,
                backward_s=own.backward_s,
                back_s=own.backward_s + sent.backward_s,
                fixed_s=float(own.tasks.max()) * self._price_s + sent.latency_s,
                parts=models[0].placements[position].degrees[0],
                sums=own.sums,
            )
        return known

    def _model(self, base: Plan, number: int) -> ShardedModel:
        """All layers in the sharding of this number; it is asked for those alone that can be cut so."""
        key = base.microbatches, number
        if key not in self._models:
            placements = dict.fromkeys(base.placements, self._shardings[number])
            self._models[key] = ShardedModel(self._profile, replace(base, placements=placements))
        return self._models[key]

    def _passes(self, model: ShardedModel, position: int) -> Passes:
        workers, devices = len(self._cluster.devices), model.devices[position]
        seconds = model.pass_seconds(position) / np.array(self._cluster.speeds)[devices]
        forward_s, backward_s = (np.bincount(devices, weights=each, minlength=workers) for each in seconds)
        return Passes(
            compute_s=forward_s + backward_s,
            tasks=2.0 * np.bincount(devices, minlength=workers),
            forward_s=float(forward_s.max()),
            backward_s=float(backward_s.max()),
            sums=tuple(self._own_sums(model, position)),
        )

    def _own_sums(self, model: ShardedModel, position: int) -> list[Sum]:
        layer, sharding = self._profile.layers[position], model.placements[position]
        if not layer.parameter_bytes:
            return []
        users = sharding.array.transpose(1, 4, 0, 2, 3, 5).reshape(sharding.degrees[1] * sharding.reduce, -1)
        groups = [tuple(sorted(set(group))) for group in users.tolist()]
        return [(group, layer.parameter_bytes / len(groups)) for group in reversed(groups) if len(group) > 1]

    def _messages(self, models: Sequence[ShardedModel], position: int) -> Messages:
        """models: of the layer, and of its readers."""
        if self._is_aligned(models, position):
            return Messages(np.zeros(len(self._bandwidths)))
        layers, each = self._profile.layers, self._profile.element_bytes(position)
        own, readers = models[0].edge(position, ())[0], list[EdgeEnd]()
        for reader, model in zip(self._profile.consumers[position], models[1:], strict=True):
            split = model.placements[reader]
            needed = reads(self._profile, layers[reader], layers[position], model.intervals(reader), split.reduce)
            readers.append(EdgeEnd.of(needed, split, layers[reader].routing))
        ways = moved_bytes(own, readers, models[0].plan.exchange, self._cluster, each)
        links_s, latency_s = list[Floats](), 0.0
        for moved in (way.ravel() for way in ways):
            carried = np.bincount(self._crossed, weights=moved[self._pair], minlength=len(self._bandwidths))
            links_s.append(carried / self._bandwidths)
            latency_s += float(self._latency_s[moved > 0].max(initial=0.0))
        there_s, back_s = (float(seconds.max(initial=0.0)) for seconds in links_s)
        return Messages(links_s[0] + links_s[1], there_s, back_s, latency_s)

    def _is_aligned(self, models: Sequence[ShardedModel], position: int) -> bool:
        """Whether all readers read their own shards' parts alone, so that nothing moves."""
        sharding, by_sample = models[0].placements[position], models[0].placements[position].degrees[1:] == (1, 1, 1)
        readers = [self._profile.layers[reader] for reader in self._profile.consumers[position]]
        return sharding.reduce == 1 and all(
            model is models[0] and (by_sample or _is_pointwise(reader.geometry))
            for model, reader in zip(models[1:], readers, strict=True)
        )


def _is_pointwise(geometry: Geometry) -> bool:
    return geometry.kernel == (1, 1) and not geometry.mixes_channels
