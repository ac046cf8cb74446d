"""Symmetry: devices that do the same at the same times are lowered and simulated once, and counted.

    devices     replica 0     replica 1    ...      lowered: the tasks of replica 0, and in it of the first rank of each
    stage 0       0 1           2 3                 group; a message stands for those of all replicas and ranks, all at
    stage 1       8 9          10 11                one pace; gradients are summed, and parameters that devices share
                                                    out gathered, over the devices of all, as ever

Where devices are not all equally fast, as with a straggler, or hosts part some replicas and not others, replicas fall
into classes that are alike in it, and the first replica of each class is lowered.

It is exact: task by task, all replicas run as the first of their class does. That holds where replicas meet only when
they sum gradients or gather parameters, all of them at once, or in groups that are alike; and where the links that a
message takes are as fast, and as much used, as those of its images. Ranks, a layer's devices in a replica, moreover
meet in collectives of all of them; `equal_ranks` looks at their tasks. What breaks it (`symmetries_of`,
`equal_links`) is lowered in full.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from simulator.cluster import Cluster
from simulator.collectives import CollectiveTask
from simulator.lowering.parameters.buckets import Bucket
from simulator.lowering.parameters.replicas import Replicas
from simulator.plan import Plan, Sharding
from simulator.taskgraph import Ints, Route, TaskGraph


@dataclass(frozen=True, eq=False)
class Symmetry:
    """A plan of replicas: images[k, i] does in replica k what device images[0, i] does in replica 0.

    whole: the plan of all replicas. images: shape (replicas, devices of one), ascending along the second. class_of: by
    replica the number of its class, shape (replicas,): within one the images of a device are equally fast, and hosts
    part them alike. Classes are numbered in the order of their first replicas, which stand for them. ranks: in replica
    0, ranks[r, g] does what device ranks[0, g] does, which is below all of them; shape (ranks, groups). Several only
    where there is one class.
    """

    whole: Plan
    images: Ints
    class_of: Ints
    ranks: Ints

    @property
    def replicas(self) -> int:
        """How many there are."""
        return len(self.images)

    @cached_property
    def simulated(self) -> Ints:
        """The replicas that are simulated, the first of each class, ascending; shape (classes,)."""
        return np.unique(self.class_of, return_index=True)[1]

    @cached_property
    def plan(self) -> Plan:
        """The plan of the replicas that are simulated."""
        made: dict[int, Sharding] = {}
        for sharding in self.whole.distinct_placements:
            own = shards_of(sharding, self.replicas)[self.simulated]  # (classes, shards of one)
            degrees = (sharding.degrees[0] // self.replicas * len(own), *sharding.degrees[1:])
            made[id(sharding)] = replace(sharding, degrees=degrees, devices=tuple(own.ravel().tolist()))
        placements = {name: made[id(sharding)] for name, sharding in self.whole.placements.items()}
        batch_size = self.whole.batch_size // self.replicas * len(self.simulated)
        return replace(self.whole, batch_size=batch_size, placements=placements)

    def represented(self, devices: int) -> Ints:
        """By device, the simulated one that does the same; itself where none does. Shape (devices,)."""
        first, owner = np.arange(devices), np.arange(devices)
        first[self.ranks] = self.ranks[0]
        owner[self.images] = first[self.images[self.simulated[self.class_of]]]
        return owner

    @cached_property
    def _position(self) -> Mapping[int, tuple[int, int]]:
        """By device that is simulated, its class and its column in `images`."""
        simulated = self.images[self.simulated].tolist()
        return {device: (number, k) for number, row in enumerate(simulated) for k, device in enumerate(row)}

    @cached_property
    def _of_class(self) -> list[Ints]:
        """By class its part of `images`."""
        return [self.images[self.class_of == number] for number in range(len(self.simulated))]

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
        """The collective of a bucket over all replicas, and of those like it of other ranks in the same transfers.

        Of needs and delivers the devices that are simulated. Raises AsymmetryError where a step does not take place on
        all of them alike.
        """
        key = bucket.holders, bucket.devices, bucket.alike, bucket.sent_bytes
        if key not in self._steps:
            self._steps[key] = self._steps_of(bucket, cluster)
        return self._steps[key]

    def gathers(self, bucket: Bucket) -> list[CollectiveTask]:
        """The same of the gathers of its parameters: one task, or none where nobody shares them out."""
        key = bucket.devices, bucket.alike, bucket.size_bytes, "gathers"
        if key not in self._steps:
            gathers = [step for users in self.users(bucket) for step in bucket.gathers(self.whole, users)]
            self._steps[key] = [self._as_one(gathers, bucket.devices)] if gathers else []
        return self._steps[key]

    @cached_property
    def _steps(self) -> dict[Hashable, list[CollectiveTask]]:
        return {}

    def users(self, shared: Bucket | Replicas) -> list[tuple[int, ...]]:
        """The devices of all replicas that need the sum of a bucket or piece, and of those like it of other ranks."""
        return [self.group(devices) for devices in shared.alike or (shared.devices,)]

    def _steps_of(self, bucket: Bucket, cluster: Cluster) -> list[CollectiveTask]:
        steps_of = []
        for devices in bucket.alike or (bucket.group,):
            group = self.group(devices)
            holders, users = (group, group) if bucket.alike else map(self.group, (bucket.holders, bucket.devices))
            steps_of.append(bucket.steps(cluster, self.whole, (group, holders, users)))
        # where groups of users share states apart, each first adds up its own terms
        groups = len(self.whole.states.shard_groups(users)) if self.whole.states.stage else 1
        apart = groups if len(steps_of[0]) > groups > 1 else 1
        sums = [self._as_one([step for steps in steps_of for step in steps[:apart]], bucket.group)]
        for alike in zip(*(steps[apart:] for steps in steps_of), strict=True):
            after = alike[0].after if apart == 1 else (0,)
            sums.append(replace(self._as_one(alike, bucket.group), after=after))
        return sums

    def _as_one(self, steps: Sequence[CollectiveTask], own: tuple[int, ...]) -> CollectiveTask:
        """What equal groups of the devices `own` and all like them do at the same time, as one task of `own`.

        Raises AsymmetryError where they do not do the same.
        """
        routes = [step.route for step in steps if step.route]
        touched = [device for route in routes for device in route.devices]
        everybody = {device for first in own for device in self._likes[first]}
        if len(touched) != len(everybody) or {*touched} != everybody or len(routes) < len(steps):
            raise AsymmetryError(f"collective {self.whole.synchronisation.collective!r} treats replicas apart")
        shapes = {
            (
                step.bytes,
                step.after,
                not step.needs,
                not step.delivers,
                route.collective,
                route.rounds,
                len(route.pairs),
            )
            for step, route in zip(steps, routes, strict=True)
        }
        for step, route in zip(steps, routes, strict=True):
            whole = {step.needs, step.delivers} <= {(), route.devices}
            if not whole or len(shapes) > 1 or {self._stands_for[device] for device in route.devices} != {*own}:
                raise AsymmetryError("groups of devices sum, or gather, apart")
        joint = routes[0]
        if len(routes) > 1:
            pairs = tuple(pair for route in routes for pair in route.pairs)
            joint = replace(joint, pairs=pairs, copies=len(routes))
        return replace(steps[0], route=joint, needs=steps[0].needs and own, delivers=steps[0].delivers and own)

    @cached_property
    def _stands_for(self) -> Mapping[int, int]:
        """By device that computes, the simulated one that does the same."""
        represented = self.represented(int(self.images.max()) + 1).tolist()
        return {device: represented[device] for device in self.images.ravel().tolist()}

    @cached_property
    def _likes(self) -> Mapping[int, list[int]]:
        """By device that is simulated, all that it stands for."""
        likes: dict[int, list[int]] = {}
        for device, first in self._stands_for.items():
            likes.setdefault(first, []).append(device)
        return likes

    def of_first_ranks(self, pieces: Sequence[Replicas], users: Sequence[int]) -> Replicas:
        """Of the pieces of a layer in replica 0, which the layers `users` use, that of the first ranks for all.

        Its shards are named by the layers, of which one shard each is simulated. Raises AsymmetryError where ranks use
        unequal pieces.
        """
        first = self.ranks[0].tolist()
        group = self._group_of_rank
        alike = tuple(sorted(piece.devices for piece in pieces))
        own = tuple(first[column] for column in sorted({group[device] for device in alike[0]}))
        everybody = [device for devices in alike for device in devices]
        if (
            any(piece.holders != piece.devices for piece in pieces)
            or len({piece.parameter_bytes for piece in pieces}) > 1
            or not len({*everybody}) == len(everybody) == len(own) * len(self.ranks)
            or not {*own} <= {*alike[0]}
            or any({first[group[device]] for device in devices} != {*own} for devices in alike)
            or self._alike.setdefault(alike[0], alike) != alike
        ):
            raise AsymmetryError("ranks use unequal pieces of parameters")
        piece = next(piece for piece in pieces if piece.devices == alike[0])
        models = piece.models * len(alike[0]) // len(own)
        return replace(piece, devices=own, holders=own, shards=tuple(users), at_home=(), models=models, alike=alike)

    @cached_property
    def _group_of_rank(self) -> Mapping[int, int]:
        return {device: column for ranks in self.ranks.tolist() for column, device in enumerate(ranks)}

    @cached_property
    def _alike(self) -> dict[tuple[int, ...], tuple[tuple[int, ...], ...]]:
        """By the devices of a piece of first ranks, those of all pieces like it."""
        return {}

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
        return replace(route, pairs=tuple((a, b) for a, b in pairs.tolist()), copies=len(images) * route.copies)


class AsymmetryError(Exception):
    """Replicas or ranks are not equal after all; never seen by users, for whom the plan is lowered in full."""


def shards_of(sharding: Sharding, replicas: int) -> Ints:
    """The device of every shard, shape (replicas, shards of one)."""
    return np.array(sharding.devices, dtype=np.int64).reshape(replicas, -1)
