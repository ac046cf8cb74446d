"""What a plan asks of every device and link, from its placements alone, and what step that promises.

Layers and edges that are placed as before are looked up, and a plan that differs in a few layers is summed up from
what those change, so that dozens of plans cost less than to simulate one.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

import numpy as np

from partitioners._fabric import hops
from simulator import collectives
from simulator.cluster import Cluster
from simulator.lowering.exchange_bytes import moved_bytes
from simulator.lowering.sharded_model import ShardedModel
from simulator.plan import Plan, Sharding
from simulator.runtime import Runtime
from simulator.taskgraph import Floats
from simulator.workload import Geometry, Profile

_NOT_HIDDEN = 0.1
"""The part of synchronisation that finds no compute to hide behind: about the last bucket."""


@dataclass(slots=True, kw_only=True)
class PlanLoads:
    """Seconds of one step of `plan`, of every device and link.

    total_s: computing by device, then exchanging, then synchronising by link. numbers: of each layer's sharding.
    """

    plan: Plan
    numbers: list[int]
    total_s: Floats


@dataclass(slots=True, kw_only=True)
class LoadTables:
    """Loads of plans of one profile on one cluster, kept by layer and edge."""

    profile: Profile
    cluster: Cluster
    runtime: Runtime
    numbers: dict[Sharding, int] = field(default_factory=dict)
    known: dict[tuple[Hashable, ...], Floats] = field(default_factory=dict)
    links: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)

    def of(self, plan: Plan) -> PlanLoads:
        """The loads of a plan."""
        numbers = [self._number(plan.placements[layer.name]) for layer in self.profile.layers]
        loads = PlanLoads(plan=plan, numbers=numbers, total_s=self._nothing())
        for position in range(len(numbers)):
            loads.total_s += self._layer_s(plan, numbers, position)
        return loads

    def after(self, loads: PlanLoads, changed: Plan, placements: Mapping[str, Sharding]) -> PlanLoads:
        """The loads of a plan that differs from that of `loads` in these placements alone."""
        numbers, affected = loads.numbers.copy(), set[int]()
        for name, sharding in placements.items():
            position, number = self.profile.index[name], self._number(sharding)
            if numbers[position] != number:
                numbers[position] = number
                affected.add(position)
                affected.update(self.profile.index[source] for source in self.profile.layers[position].inputs)
        total_s = loads.total_s.copy()
        for position in sorted(affected):
            total_s += self._layer_s(changed, numbers, position)
            total_s -= self._layer_s(loads.plan, loads.numbers, position)
        return PlanLoads(plan=changed, numbers=numbers, total_s=total_s)

    def promise_s(self, loads: PlanLoads) -> float:
        """The step if links and devices are always busy but for what cannot hide behind compute.

        That is the exchanges of one micro-batch, and a part of the synchronisation.
        """
        devices, links = len(self.cluster.devices), len(self.cluster.links)
        compute_s, exchange_s, synchronise_s = np.split(loads.total_s, [devices, devices + links])
        exposed_s = exchange_s.max(initial=0.0) / loads.plan.microbatches
        busiest_s = max(compute_s.max() + exposed_s, (synchronise_s + exchange_s).max(initial=0.0))
        return float(busiest_s + _NOT_HIDDEN * synchronise_s.max(initial=0.0))

    def sent_s(self, loads: PlanLoads) -> list[float]:
        """Seconds of all links together for the output and the parameters of each layer, shape (layers,)."""
        first, layers = len(self.cluster.devices), range(len(loads.numbers))
        return [float(self._layer_s(loads.plan, loads.numbers, position)[first:].sum()) for position in layers]

    def _number(self, sharding: Sharding) -> int:
        return self.numbers.setdefault(sharding, len(self.numbers))

    def _nothing(self) -> Floats:
        return np.zeros(len(self.cluster.devices) + 2 * len(self.cluster.links))

    def _layer_s(self, plan: Plan, numbers: list[int], position: int) -> Floats:
        """What a layer, its parameters and the messages of its output add to the loads."""
        readers = [numbers[reader] for reader in self.profile.consumers[position]]
        key = (position, plan.microbatches, numbers[position], *readers)
        known = self.known.get(key)
        if known is None:
            model = ShardedModel(self.profile, plan)
            known = self._own_s(model, position, (*key[:3],))
            if not self._is_aligned(plan, position):
                known = known + self._exchange_s(model, position)
            self.known[key] = known
        return known

    def _is_aligned(self, plan: Plan, position: int) -> bool:
        """Whether all readers read their own shards' parts alone, so that nothing moves."""
        name = self.profile.layers[position].name
        readers = [self.profile.layers[reader] for reader in self.profile.consumers[position]]
        return plan.placements[name].reduce == 1 and all(
            plan.placements[reader.name] == plan.placements[name]
            and (plan.placements[name].degrees[1:] == (1, 1, 1) or _is_pointwise(reader.geometry))
            for reader in readers
        )

    def _own_s(self, model: ShardedModel, position: int, key: tuple[Hashable, ...]) -> Floats:
        """Passes of the layer with the price of their tasks, and its parameters' synchronisation."""
        if key in self.known:
            return self.known[key]
        load_s, devices = self._nothing(), model.devices[position]
        seconds = model.pass_seconds(position).sum(axis=0) / np.array(self.cluster.speeds)[devices]
        np.add.at(load_s, devices, (seconds + 2 * self.runtime.task_overhead_s) * model.plan.microbatches)
        layer, setting, sharding = self.profile.layers[position], model.plan.synchronisation, model.placements[position]
        groups = sharding.array.transpose(1, 4, 0, 2, 3, 5).reshape(sharding.degrees[1] * sharding.reduce, -1)
        sent_bytes = setting.sent_bytes(layer.parameter_bytes / len(groups), self.profile.dtype)
        first = len(self.cluster.devices) + len(self.cluster.links)
        for group in (sorted(set(users)) for users in groups.tolist() if layer.parameter_bytes):
            if len(group) > 1:
                collective = collectives.load(setting.collective)
                for task in collective.tasks(self.cluster, group, sent_bytes, 0.0, setting.serving_workers):
                    for pair in task.route.pairs if task.route else ():
                        self._add(load_s, pair, task.bytes, first)
        self.known[key] = load_s
        return load_s

    def _exchange_s(self, model: ShardedModel, position: int) -> Floats:
        """Of all micro-batches, both ways; outputs that are received again move there once more."""
        plan, devices = model.plan, len(self.cluster.devices)
        element_bytes = self.profile.element_bytes(position) * plan.microbatches
        forward, backward = moved_bytes(*model.edge(position), plan.exchange, self.cluster, element_bytes)
        moved = forward + backward
        for again in (model.recomputed_readers(position), model.receiving_again(position)):
            if again:
                moved += moved_bytes(*model.edge(position, again), plan.exchange, self.cluster, element_bytes)[0]
        _, pair, crossed = hops(self.cluster, devices)
        sent_bytes = np.bincount(crossed, weights=moved.ravel()[pair], minlength=len(self.cluster.links))
        load_s = self._nothing()
        bandwidths = [link.bandwidth_bytes_per_s for link in self.cluster.links]
        load_s[devices : devices + len(sent_bytes)] = sent_bytes / bandwidths
        return load_s

    def _add(self, load_s: Floats, pair: tuple[int, int], size_bytes: float, first: int) -> None:
        """Add bytes to the links of a route, the first of which has the load of this number."""
        if pair not in self.links:
            self.links[pair] = tuple(self.cluster.route(*pair))
        for link in self.links[pair]:
            load_s[first + link] += size_bytes / self.cluster.links[link].bandwidth_bytes_per_s


def _is_pointwise(geometry: Geometry) -> bool:
    return geometry.kernel == (1, 1) and not geometry.mixes_channels
