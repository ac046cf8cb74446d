"""Symmetry: replicas of a model that do the same at the same times are lowered and simulated once, and counted.

    devices     replica 0     replica 1    ...      lowered: the tasks of replica 0; a message in it stands for those
    stage 0         0             1                 of all replicas, all at one pace; gradients are summed over the
    stage 1         4             5                 devices of all replicas, as ever

Where devices are not all equally fast, as with a straggler, replicas fall into classes whose devices are, and the first
replica of each class is lowered.

It is exact: task by task, all replicas run as the first of their class does. That holds where replicas meet only when
they sum gradients, all of them at once; and where the links that a message takes are as fast, and as much used, as
those of its images. What breaks it (`Symmetry.of`, `fits`) is lowered in full.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd

import numpy as np

from simulator import collectives
from simulator.cluster import Cluster
from simulator.collectives import CollectiveTask
from simulator.lowering import schedules
from simulator.lowering.buckets import Bucket
from simulator.plan import Plan, Sharding
from simulator.runtime import Runtime
from simulator.taskgraph import Floats, Ints, Kind, Route, TaskGraph
from simulator.workload import Profile


@dataclass(frozen=True, eq=False)
class Symmetry:
    """A plan of replicas: images[k, i] does in replica k what device images[0, i] does in replica 0.

    whole: the plan of all replicas. images: shape (replicas, devices of one), ascending along the second. speed_class:
    by replica the number of its class, shape (replicas,): within one the images of a device are equally fast. Classes
    are numbered in the order of their first replicas, which stand for them.
    """

    whole: Plan
    images: Ints
    speed_class: Ints

    @classmethod
    def of(
        cls, profile: Profile, plan: Plan, cluster: Cluster, runtime: Runtime, stragglers: Mapping[int, float]
    ) -> Symmetry | None:
        """The replicas of a plan, as many as all layers' samples are cut into; None where it may have no equal ones.

        stragglers: see `lower_once`.
        """
        if not _may_collapse(plan, cluster, runtime):
            return None
        placements = plan.distinct_placements
        replicas = gcd(*(sharding.degrees[0] for sharding in placements))
        if replicas < 2 or any(not _is_cut_alike(sharding, plan) for sharding in placements):
            return None
        if any(sharding.copy > 1 and not _has_copies_apart(sharding, replicas) for sharding in placements):
            return None
        if any(layer.tied_to and plan.placements[layer.name].copy > 1 for layer in profile.layers):
            return None
        images = _images(placements, replicas)
        if images is None:
            return None
        delays = np.array([stragglers.get(device, 1.0) for device in range(len(cluster.devices))])
        symmetry = cls(plan, images, _speed_classes(np.array(cluster.speeds)[images], delays[images]))
        first = images[symmetry.simulated]
        if len(first) == replicas or (first[symmetry.speed_class] > images).any():
            return None
        return symmetry

    @property
    def replicas(self) -> int:
        """How many there are."""
        return len(self.images)

    @cached_property
    def simulated(self) -> Ints:
        """The replicas that are simulated, the first of each class, ascending; shape (classes,)."""
        return np.unique(self.speed_class, return_index=True)[1]

    @cached_property
    def plan(self) -> Plan:
        """The plan of the replicas that are simulated."""
        made: dict[int, Sharding] = {}
        for sharding in self.whole.distinct_placements:
            own = _shards_of(sharding, self.replicas)[self.simulated]  # (classes, shards of one)
            degrees = (sharding.degrees[0] // self.replicas * len(own), *sharding.degrees[1:])
            made[id(sharding)] = replace(sharding, degrees=degrees, devices=tuple(own.ravel().tolist()))
        placements = {name: made[id(sharding)] for name, sharding in self.whole.placements.items()}
        batch_size = self.whole.batch_size // self.replicas * len(self.simulated)
        return replace(self.whole, batch_size=batch_size, placements=placements)

    def represented(self, devices: int) -> Ints:
        """By device, the simulated one that does the same; itself where none does. Shape (devices,)."""
        owner = np.arange(devices)
        owner[self.images] = self.images[self.simulated[self.speed_class]]
        return owner

    @cached_property
    def _position(self) -> Mapping[int, tuple[int, int]]:
        """By device that is simulated, its class and its column in `images`."""
        simulated = self.images[self.simulated].tolist()
        return {device: (number, k) for number, row in enumerate(simulated) for k, device in enumerate(row)}

    @cached_property
    def _of_class(self) -> list[Ints]:
        """By class its part of `images`."""
        return [self.images[self.speed_class == number] for number in range(len(self.simulated))]

    @cached_property
    def _groups(self) -> dict[tuple[int, ...], tuple[int, ...]]:
        return {}

    def group(self, devices: tuple[int, ...]) -> tuple[int, ...]:
        """Simulated devices with their images in all replicas, ascending; of the same devices the same tuple."""
        if devices not in self._groups:
            columns = sorted({self._position[device][1] for device in devices})
            self._groups[devices] = tuple(np.sort(self.images[:, columns], axis=None).tolist())
        return self._groups[devices]

    def steps(self, bucket: Bucket, cluster: Cluster) -> list[CollectiveTask]:
        """The collective of a bucket over all replicas; of needs and delivers the devices that are simulated.

        Raises AsymmetryError where a step does not take place on all of them alike.
        """
        group = self.group(bucket.group)
        whole = replace(bucket, group=group, holders=self.group(bucket.holders), devices=self.group(bucket.devices))
        steps = whole.steps(cluster, self.whole)
        if not all(_treats_alike(step, group) for step in steps):
            raise AsymmetryError(f"collective {self.whole.synchronisation.collective!r} treats replicas apart")
        own = bucket.group
        return [replace(step, needs=step.needs and own, delivers=step.delivers and own) for step in steps]

    def joint(self, graph: TaskGraph) -> TaskGraph:
        """`graph` with its transfers standing for those of all replicas, and with what all devices hold."""
        static_bytes = graph.static_bytes[self.represented(len(graph.static_bytes))]
        return replace(graph, routes=tuple(map(self._joint, graph.routes)), static_bytes=static_bytes)

    def _joint(self, route: Route) -> Route:
        if any(device not in self._position for pair in route.pairs for device in pair):  # of all replicas already
            return route
        images = self._of_class[self._position[route.pairs[0][0]][0]]
        columns = [[self._position[device][1] for device in pair] for pair in route.pairs]
        pairs = images[:, columns].reshape(-1, 2)  # (replicas of the class x pairs, 2)
        return Route(tuple((a, b) for a, b in pairs.tolist()), rounds=route.rounds, copies=len(images))


_UNITS_BYTES = (1.0, 2.0**-10)
"""Sums of multiples of one of these are exact up to 2^52 times it."""


class AsymmetryError(Exception):
    """Replicas are not equal after all; never seen by users, for whom the plan is lowered in full."""


def _treats_alike(step: CollectiveTask, group: tuple[int, ...]) -> bool:
    """Whether a step waits for, touches and serves all of a group, if any of it."""
    if step.route is None or step.route.devices != group:
        return False
    return all(ends == group for ends in (step.needs, step.delivers) if ends)


def fits(graph: TaskGraph, cluster: Cluster) -> bool:
    """Whether the joint transfers of a graph take and carry what those of all replicas would.

    Each copy's links are as fast, and as much used by the same transfers; and bytes add up without rounding, so that
    their order does not matter.
    """
    joint = [route for route in graph.routes if route.copies > 1]
    if not joint:
        return True
    inside = graph.is_transfer & (graph.kind != Kind.SYNCHRONISATION)  # a replica
    pairs = np.array([len(route.pairs) for route in graph.routes])[graph.route[inside]]
    size_bytes, total = graph.bytes[inside], graph.bytes[inside] @ pairs
    if not any(total <= 2**52 * unit and not (size_bytes % unit).any() for unit in _UNITS_BYTES):
        return False
    users: list[list[tuple[int, float]]] = [[] for _ in cluster.links]
    for number, route in enumerate(graph.routes):
        for link, weight in cluster.link_weights(route.pairs).items():
            users[link].append((number, weight))
    numbers: dict[object, int] = {}
    alike = np.array(
        [
            numbers.setdefault((link.bandwidth_bytes_per_s, link.latency_s, link.curve, *used), len(numbers))
            for link, used in zip(cluster.links, users, strict=True)
        ]
    )
    return all(_has_equal_ways(route, alike, cluster) for route in joint)


def _has_equal_ways(route: Route, alike: Ints, cluster: Cluster) -> bool:
    """Whether each copy of a route crosses links like those of the first, in its order; alike: by link."""
    ways = [tuple(alike[list(cluster.route(*pair))].tolist()) for pair in route.pairs]
    return ways == ways[: len(route.single)] * route.copies


def _may_collapse(plan: Plan, cluster: Cluster, runtime: Runtime) -> bool:
    """Whether samples take as long as each other, messages meet nobody, and devices share no hosts, servers, states."""
    synchronisation = collectives.load(plan.synchronisation.collective)
    return not (
        synchronisation.updates_on_server
        or plan.work
        or cluster.host_cores
        or plan.states.stage
        or runtime.rendezvous
        or runtime.busy_latency_s
        or schedules.load(plan.schedule).stashes_weights
    )


def _is_cut_alike(sharding: Sharding, plan: Plan) -> bool:
    """Whether all parts by sample have as many samples."""
    return not sharding.samples and plan.microbatch_size % sharding.degrees[0] == 0


def _has_copies_apart(sharding: Sharding, replicas: int) -> bool:
    """Whether the shards of one replica are all on different devices."""
    own = sharding.devices[: len(sharding.devices) // replicas]
    return len(set(own)) == len(own)


def _speed_classes(*columns: Floats) -> Ints:
    """See Symmetry.speed_class; columns: how fast the devices of each replica are, each (replicas, devices of one)."""
    _, first, number = np.unique(np.concatenate(columns, axis=1), axis=0, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number.reshape(-1)]


def _images(placements: Sequence[Sharding], replicas: int) -> Ints | None:
    """See Symmetry.images; None where layers differ in it, or replicas share a device."""
    shards = np.concatenate([_shards_of(sharding, replicas) for sharding in placements], axis=1)
    _, first, which = np.unique(shards[0], return_index=True, return_inverse=True)
    images = shards[:, first]  # (replicas, devices of one)
    if (images[:, which.reshape(-1)] != shards).any() or len(np.unique(images)) < images.size:
        return None
    return images


def _shards_of(sharding: Sharding, replicas: int) -> Ints:
    """The device of every shard, shape (replicas, shards of one)."""
    return np.array(sharding.devices, dtype=np.int64).reshape(replicas, -1)
