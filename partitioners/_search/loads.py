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

from partitioners._search.link_seconds import LinkSeconds, Sum
from simulator.cluster import Cluster
from simulator.lowering.costs.shard_costs import shard_seconds
from simulator.lowering.exchange.exchange_bytes import moved_bytes
from simulator.lowering.exchange.exchange_pieces import EdgeEnd
from simulator.lowering.exchange.shard_regions import reads, shards
from simulator.plan import Plan, Sharding
from simulator.runtime import Runtime
from simulator.taskgraph import Floats
from simulator.workload import Profile


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
    links: what keeps those of the cluster busy. lookups: what had to be found out, so far.
    """

    def __init__(self, profile: Profile, cluster: Cluster, runtime: Runtime) -> None:
        self.shardings: list[Sharding] = []
        self.inputs = [[profile.index[name] for name in layer.inputs] for layer in profile.layers]
        self.readers = profile.consumers
        self.lookups = 0
        self._price_s = runtime.task_overhead_s
        self.devices = len(cluster.devices)
        self.links = LinkSeconds(cluster, profile.dtype)
        self._profile, self._cluster, self._speeds = profile, cluster, np.array(cluster.speeds)
        self._numbers: dict[Sharding, int] = {}
        self._ends: dict[tuple[int, int, int], EdgeEnd] = {}
        self._seconds: dict[tuple[Hashable, ...], Floats] = {}
        self._passes: dict[tuple[int, int, int], PassLoads] = {}
        self._messages: dict[tuple[int, ...], MessageLoads] = {}
        self.with_parameters = [k for k, layer in enumerate(profile.layers) if layer.parameter_bytes]

    def number(self, sharding: Sharding) -> int:
        """The number of a sharding."""
        number = self._numbers.setdefault(sharding, len(self.shardings))
        if number == len(self.shardings):
            self.shardings.append(sharding)
        return number

    def numbers(self, plan: Plan) -> list[int]:
        """The number of each layer's sharding."""
        return [self.number(plan.placements[layer.name]) for layer in self._profile.layers]

    def of(self, plan: Plan) -> PlanLoads:
        """The loads of a plan."""
        numbers = self.numbers(plan)
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

    def sent_s(self, loads: PlanLoads) -> list[float]:
        """Seconds of links for each layer's messages and sums, all links together."""
        pairs = zip(loads.messages, loads.passes, strict=True)
        return [float(sent.links_s.sum() + own.total_s[2 * self.devices :].sum()) for sent, own in pairs]

    def plan_of(self, loads: PlanLoads, microbatches: int) -> Plan:
        """The plan that has these loads, with so many micro-batches."""
        layers = zip(self._profile.layers, loads.numbers, strict=True)
        placements = {layer.name: self.shardings[number] for layer, number in layers}
        return replace(loads.base, placements=placements, microbatches=microbatches, strategy="")

    def passes(self, base: Plan, position: int, number: int) -> PassLoads:
        """What the passes and parameters of a layer ask for that is placed as the sharding of this number."""
        key = position, number, base.microbatches
        if key not in self._passes:
            self.lookups += 1
            self._passes[key] = self._new_passes(base, position, self.shardings[number])
        return self._passes[key]

    def _new_passes(self, base: Plan, position: int, sharding: Sharding) -> PassLoads:
        devices = list(sharding.devices)
        by_shard = self._shard_seconds(base, position, sharding) / self._speeds[devices]
        by_device = np.zeros((self.devices, len(by_shard)))
        np.add.at(by_device, devices, by_shard.T)
        forward_s, backward_s, fixed_s = by_device.T
        fixed_s = fixed_s + 2.0 * self._price_s * np.bincount(devices, minlength=self.devices)
        sums = self._own_sums(position, sharding)
        summing_s = np.zeros(self.links.count)
        for each in sums:
            summing_s += self.links.of_sum(base.synchronisation, each)[0]
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
        key = self._profile.read_alike[position], *placed
        if key not in self._messages:
            self.lookups += 1
            self._messages[key] = self._new_messages(base, position, placed)
        return self._messages[key]

    def _new_messages(self, base: Plan, position: int, numbers: Sequence[int]) -> MessageLoads:
        readers = self._profile.consumers[position]
        if self._is_aligned(position, numbers):
            return MessageLoads(np.zeros(self.links.count))
        made, *ends = (
            self._end(base, position, end, number) for end, number in zip((position, *readers), numbers, strict=True)
        )
        each = self._profile.element_bytes(position)
        ways, latency_s = list[Floats](), 0.0
        for moved in moved_bytes(made, ends, base.exchange, self._cluster, each):
            seconds, wait_s = self.links.of_messages(moved)
            ways.append(seconds)
            latency_s += wait_s
        there_s, back_s = (float(seconds.max(initial=0.0)) for seconds in ways)
        return MessageLoads(ways[0] + ways[1], there_s, back_s, latency_s)

    def _end(self, base: Plan, position: int, end: int, number: int) -> EdgeEnd:
        """What of a layer's output, of a whole batch, it makes itself or a reader of it reads, placed so."""
        key = position, end, number
        if key not in self._ends:
            layers, sharding = self._profile.layers, self.shardings[number]
            samples = tuple(count * base.microbatches for count in sharding.samples)
            intervals = shards(layers[end], base.batch_size, sharding.degrees, samples)
            if end != position:
                intervals = reads(self._profile, layers[end], layers[position], intervals, sharding.reduce)
            self._ends[key] = EdgeEnd.of(intervals, sharding, layers[end].routing)
        return self._ends[key]

    def _is_aligned(self, position: int, numbers: Sequence[int]) -> bool:
        """Whether all readers read their own shards' parts alone, so that nothing moves."""
        sharding, readers = self.shardings[numbers[0]], self._profile.consumers[position]
        geometries = (self._profile.layers[reader].geometry for reader in readers)
        by_sample = prod(sharding.degrees[1:]) == 1
        return sharding.reduce == 1 and all(
            number == numbers[0] and (by_sample or (geometry.kernel == (1, 1) and not geometry.mixes_channels))
            for number, geometry in zip(numbers[1:], geometries, strict=True)
        )
