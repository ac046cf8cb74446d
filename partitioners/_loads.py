"""What a plan asks of every device and link, from its placements alone, and what step that promises.

What a layer, its parameters and the messages of its output ask for is looked up by how it and its readers are placed,
and a plan that differs in a few layers takes the rest over, so that dozens of plans cost less than to simulate one.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

import numpy as np

from partitioners._fabric import hops
from simulator import collectives
from simulator.cluster import Cluster
from simulator.lowering.costs import shard_seconds
from simulator.lowering.exchange_bytes import moved_bytes
from simulator.lowering.exchange_pieces import EdgeEnd
from simulator.lowering.shard_regions import Interval, reads, shards
from simulator.plan import Plan, Sharding
from simulator.runtime import Runtime
from simulator.taskgraph import Floats
from simulator.workload import Geometry, Layer, Profile

Sum = tuple[tuple[int, ...], float]
"""Devices that sum the gradient of the same parameters, and its bytes."""


class PassLoads(NamedTuple):
    """Of one micro-batch on a layer.

    total_s: seconds of computing by device that are in proportion to the samples, then those that are not, with the
    price of the tasks, by device, then seconds of the sums of its parameters' gradients by link, of the whole step and
    each sum apart. forward_s, backward_s: of the slowest device, in proportion to the samples; fixed_s: of both
    passes, whatever the samples.
    """

    total_s: Floats
    forward_s: float
    backward_s: float
    fixed_s: float
    sums: tuple[Sum, ...]


class MessageLoads(NamedTuple):
    """Of a layer's output and its gradient in a whole step: seconds by link, and those of the busiest link there and
    back; latency_s: of one micro-batch."""

    links_s: Floats
    forward_s: float = 0.0
    backward_s: float = 0.0
    latency_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class PlanLoads:
    """What every layer of a plan with the settings of `base` asks for, and all of them together: `passes_s` of a
    micro-batch, `links_s` of a step. numbers: of each layer's sharding, as the tables have them."""

    base: Plan
    numbers: list[int]
    passes: list[PassLoads]
    messages: list[MessageLoads]
    passes_s: Floats
    links_s: Floats


class LoadTables:
    """Loads of plans of one profile on one cluster, kept by layer and edge; all plans synchronise alike.

    shardings: by their number. inputs: of each layer, by position. with_parameters: positions of layers.
    lookups: what had to be found out, so far.
    """

    def __init__(self, profile: Profile, cluster: Cluster, runtime: Runtime) -> None:
        self.shardings: list[Sharding] = []
        self.inputs = [[profile.index[name] for name in layer.inputs] for layer in profile.layers]
        self.readers = profile.consumers
        self.lookups = 0
        self._price_s = runtime.task_overhead_s
        self.devices = len(cluster.devices)
        self._profile, self._cluster = profile, cluster
        self._numbers: dict[Sharding, int] = {}
        self._intervals: dict[tuple[int, int], list[list[Interval]]] = {}
        self._seconds: dict[tuple[Hashable, ...], Floats] = {}
        self._passes: dict[tuple[int, int, int], PassLoads] = {}
        self._read_alike = replace(profile, layers=tuple(map(_without_costs, profile.layers))).read_alike
        self._messages: dict[tuple[int, ...], MessageLoads] = {}
        self._rings: dict[tuple[int, ...], list[tuple[Floats, float]]] = {}
        self._sums: dict[Sum, tuple[Floats, float]] = {}
        self.with_parameters = [k for k, layer in enumerate(profile.layers) if layer.parameter_bytes]
        _, self._pair, self._crossed = hops(cluster, self.devices)
        self._bandwidths = np.array([link.bandwidth_bytes_per_s for link in cluster.links])
        latencies = np.array([link.latency_s for link in cluster.links])
        self._latency_s = np.bincount(
            self._pair, weights=latencies[self._crossed], minlength=self.devices**2
        )  # (pairs of devices,)

    def number(self, sharding: Sharding) -> int:
        """The number of a sharding."""
        number = self._numbers.setdefault(sharding, len(self.shardings))
        if number == len(self.shardings):
            self.shardings.append(sharding)
        return number

    def of(self, plan: Plan) -> PlanLoads:
        """The loads of a plan."""
        numbers = [self.number(plan.placements[layer.name]) for layer in self._profile.layers]
        passes = [self.passes(plan, position, number) for position, number in enumerate(numbers)]
        messages = [self.messages(plan, position, numbers) for position in range(len(numbers))]
        return PlanLoads(
            base=plan,
            numbers=numbers,
            passes=passes,
            messages=messages,
            passes_s=np.sum([each.total_s for each in passes], axis=0),
            links_s=np.sum([each.links_s for each in messages], axis=0),
        )

    def after(self, loads: PlanLoads, changes: Mapping[int, int]) -> PlanLoads:
        """The loads with shardings of other numbers for some layers, by position."""
        numbers, passes, messages = loads.numbers.copy(), loads.passes.copy(), loads.messages.copy()
        passes_s, links_s, affected = loads.passes_s.copy(), loads.links_s.copy(), set[int]()
        for position, number in changes.items():
            if numbers[position] != number:
                numbers[position] = number
                passes[position] = self.passes(loads.base, position, number)
                passes_s += passes[position].total_s - loads.passes[position].total_s
                affected.add(position)
                affected.update(self.inputs[position])
        for position in sorted(affected):
            messages[position] = self.messages(loads.base, position, numbers)
            links_s += messages[position].links_s - loads.messages[position].links_s
        return PlanLoads(
            base=loads.base, numbers=numbers, passes=passes, messages=messages, passes_s=passes_s, links_s=links_s
        )

    def plan_of(self, loads: PlanLoads, microbatches: int) -> Plan:
        """The plan that has these loads, with so many micro-batches."""
        layers = zip(self._profile.layers, loads.numbers, strict=True)
        placements = {layer.name: self.shardings[number] for layer, number in layers}
        return replace(loads.base, placements=placements, microbatches=microbatches, strategy="")

    def sum_s(self, base: Plan, bucket: Sum) -> tuple[Floats, float]:
        """Seconds of a collective by link, shape (links,), and of its latencies."""
        if bucket not in self._sums:
            self._sums[bucket] = self._new_sum_s(base, bucket)
        return self._sums[bucket]

    def _new_sum_s(self, base: Plan, bucket: Sum) -> tuple[Floats, float]:
        devices, size = bucket
        setting = base.synchronisation
        collective, sent_bytes = collectives.load(setting.collective), setting.sent_bytes(size, self._profile.dtype)
        tasks = collective.tasks(self._cluster, devices, sent_bytes, 0.0, setting.serving_workers)
        if devices not in self._rings:
            self._rings[devices] = [self._crossings(task.route.pairs if task.route else ()) for task in tasks]
        seconds, latency_s = np.zeros(len(self._bandwidths)), 0.0
        for task, (crossed, wait_s) in zip(tasks, self._rings[devices], strict=True):
            if task.seconds:
                seconds += task.seconds * crossed
            elif task.route:
                seconds += task.bytes * crossed / self._bandwidths
                latency_s = max(latency_s, task.route.rounds * wait_s)
        return seconds, latency_s

    def _crossings(self, pairs: Sequence[tuple[int, int]]) -> tuple[Floats, float]:
        """How often pairs of devices cross each link, shape (links,), and the longest of their latencies."""
        moved = np.zeros(self.devices**2)
        for source, target in pairs:
            moved[source * self.devices + target] += 1.0
        crossed: Floats = np.bincount(self._crossed, weights=moved[self._pair], minlength=len(self._bandwidths)).astype(
            np.float64
        )
        return crossed, float(self._latency_s[moved > 0].max(initial=0.0))

    def passes(self, base: Plan, position: int, number: int) -> PassLoads:
        """What the passes and parameters of a layer ask for that is placed as the sharding of this number."""
        key = position, number, base.microbatches
        if key not in self._passes:
            self.lookups += 1
            self._passes[key] = self._new_passes(base, position, self.shardings[number])
        return self._passes[key]

    def _new_passes(self, base: Plan, position: int, sharding: Sharding) -> PassLoads:
        devices = list(sharding.devices)
        by_shard = self._shard_seconds(base, position, sharding) / np.array(self._cluster.speeds)[devices]
        by_device = np.zeros((self.devices, len(by_shard)))
        np.add.at(by_device, devices, by_shard.T)
        forward_s, backward_s, fixed_s = by_device.T
        fixed_s = fixed_s + 2.0 * self._price_s * np.bincount(devices, minlength=self.devices)
        sums = self._own_sums(position, sharding)
        summing_s = sum((self.sum_s(base, each)[0] for each in sums), np.zeros(len(self._bandwidths)))
        return PassLoads(
            total_s=np.concatenate([forward_s + backward_s, fixed_s, summing_s]),
            forward_s=float(forward_s.max()),
            backward_s=float(backward_s.max()),
            fixed_s=float(fixed_s.max()),
            sums=tuple(sums),
        )

    def _shard_seconds(self, base: Plan, position: int, sharding: Sharding) -> Floats:
        """Of each shard of a layer: forward and backward, in proportion to the samples, and both, whatever they are:
        shape (3, shards), by a line through the seconds of all samples and of half of them."""
        key = position, base.microbatches, sharding.degrees, sharding.reduce, sharding.copy, sharding.samples
        if key not in self._seconds:
            layer = self._profile.layers[position]
            axes = shards(layer, base.microbatch_size, sharding.degrees, sharding.samples)
            area = layer.output_shape[1] * layer.output_shape[2]
            samples, channels, rows, columns = ([last - first for first, last in axis] for axis in axes)
            sizes = [(n, c, h * w) for n in samples for c in channels for h in rows for w in columns]
            of_size = dict[tuple[int, int, int], tuple[float, float, float]]()
            for size in set(sizes):
                parts = size[1] / layer.channels, size[2] / area
                whole_s, half_s = (
                    shard_seconds(self._profile, layer, n, *parts, input_channel_fraction=1 / sharding.reduce)
                    for n in (size[0], size[0] / 2)
                )
                ways = zip(whole_s, half_s, strict=True)
                there_s, back_s = (max(min(2 * half - whole, whole), 0.0) for whole, half in ways)
                of_size[size] = whole_s[0] - there_s, whole_s[1] - back_s, there_s + back_s
            by_size = np.array([of_size[size] for size in sizes])
            self._seconds[key] = np.repeat(by_size, sharding.reduce * sharding.copy, axis=0).T
        return self._seconds[key]

    def _own_sums(self, position: int, sharding: Sharding) -> list[Sum]:
        layer = self._profile.layers[position]
        if not layer.parameter_bytes:
            return []
        users = sharding.array.transpose(1, 4, 0, 2, 3, 5).reshape(sharding.degrees[1] * sharding.reduce, -1)
        groups = [tuple(sorted(set(group))) for group in users.tolist()]
        return [(group, layer.parameter_bytes / len(groups)) for group in reversed(groups) if len(group) > 1]

    def messages(self, base: Plan, position: int, numbers: Sequence[int]) -> MessageLoads:
        """What the output of a layer asks for where it and its readers are placed as `numbers`, of all layers, say."""
        readers = self._profile.consumers[position]
        placed = numbers[position], *(numbers[reader] for reader in readers)
        key = self._read_alike[position], *placed
        if key not in self._messages:
            self.lookups += 1
            self._messages[key] = self._new_messages(base, position, placed)
        return self._messages[key]

    def _new_messages(self, base: Plan, position: int, numbers: Sequence[int]) -> MessageLoads:
        readers = self._profile.consumers[position]
        if self._is_aligned(position, numbers):
            return MessageLoads(np.zeros(len(self._bandwidths)))
        layers, layer = self._profile.layers, self._profile.layers[position]
        own, *others = (self.shardings[number] for number in numbers)
        ends = []
        for reader, sharding, number in zip(readers, others, numbers[1:], strict=True):
            intervals = self._interval(base, reader, number)
            needed = reads(self._profile, layers[reader], layer, intervals, sharding.reduce)
            ends.append(EdgeEnd.of(needed, sharding, layers[reader].routing))
        made = EdgeEnd.of(self._interval(base, position, numbers[0]), own, layer.routing)
        each = self._profile.element_bytes(position)
        ways, latency_s = list[Floats](), 0.0
        for moved in moved_bytes(made, ends, base.exchange, self._cluster, each):
            carried = np.bincount(self._crossed, weights=moved.ravel()[self._pair], minlength=len(self._bandwidths))
            ways.append(carried / self._bandwidths)
            latency_s += float(self._latency_s[moved.ravel() > 0].max(initial=0.0))
        there_s, back_s = (float(seconds.max(initial=0.0)) for seconds in ways)
        return MessageLoads(ways[0] + ways[1], there_s, back_s, latency_s)

    def _interval(self, base: Plan, position: int, number: int) -> list[list[Interval]]:
        """The parts of a layer's output, of a whole batch."""
        if (position, number) not in self._intervals:
            sharding = self.shardings[number]
            samples = tuple(count * base.microbatches for count in sharding.samples)
            axes = shards(self._profile.layers[position], base.batch_size, sharding.degrees, samples)
            self._intervals[position, number] = axes
        return self._intervals[position, number]

    def _is_aligned(self, position: int, numbers: Sequence[int]) -> bool:
        """Whether all readers read their own shards' parts alone, so that nothing moves."""
        sharding, readers = self.shardings[numbers[0]], self._profile.consumers[position]
        by_sample = prod(sharding.degrees[1:]) == 1
        return sharding.reduce == 1 and all(
            number == numbers[0] and (by_sample or _is_pointwise(self._profile.layers[reader].geometry))
            for number, reader in zip(numbers[1:], readers, strict=True)
        )


def _without_costs(layer: Layer) -> Layer:
    """The layer as messages know it."""
    return replace(
        layer,
        forward_s=0.0,
        backward_s=0.0,
        update_s=0.0,
        forward_spread_s=0.0,
        backward_spread_s=0.0,
        recompute_s=0.0,
        accumulate_s=None,
        flops=0.0,
        parameter_bytes=0,
        saved_bytes=0,
        scaling=(),
    )


def _is_pointwise(geometry: Geometry) -> bool:
    return geometry.kernel == (1, 1) and not geometry.mixes_channels
