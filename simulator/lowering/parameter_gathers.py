"""ZeRO's third stage (FSDP): parameters that devices share out are gathered before the passes that use them.

A bucket of gradients is also what is gathered together. The passes of a shard group use its buckets in an order, of
which each gather runs `prefetch` ahead:

    gathers      0  1     2     3  ...         gather i starts when gather i - 1 and
    passes          0  1     2     3  ...      the pass of bucket i - 1 - prefetch have ended

What was gathered is dropped after the pass, or with `keep_gathered` after the backward pass. Where a parameter is tied
to a layer on other devices, such as another stage's, each of these homes gathers when its own passes come.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.cluster import Cluster
from simulator.lowering.gradients import add_gather
from simulator.lowering.graph_builder import GraphBuilder
from simulator.lowering.passes import Passes
from simulator.lowering.sharded_model import ShardedModel
from simulator.taskgraph import Ints, Kind


class _Use(NamedTuple):
    """One pass of a micro-batch over the layers of a bucket."""

    kind: Kind
    microbatch: int
    bucket: int


def add_gathers(builder: GraphBuilder, model: ShardedModel, cluster: Cluster, passes: Passes, starts: Ints) -> None:
    """Append the gathers of all micro-batches, which start at tasks `starts`, and let passes wait for theirs."""
    groups: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}
    for number, bucket in enumerate(model.buckets):
        for members in model.plan.states.shard_groups(bucket.devices):
            for home in _homes(model, number, members) if len(members) > 1 else ():
                groups.setdefault((members, home), []).append(number)
    for (members, home), buckets in groups.items():
        _ShardGroup(builder, model, cluster, passes, members, home).add(buckets, starts)


def _homes(model: ShardedModel, number: int, members: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The members of a shard group by what they use of a bucket: its own layers, or those tied to them elsewhere."""
    own = {device for layer in _layers(model, number) for device in model.placements[layer].device_set}
    return [home for home in (_inside(members, own), tuple(d for d in members if d not in own)) if home]


def _inside(members: tuple[int, ...], devices: Set[int]) -> tuple[int, ...]:
    return members if devices >= {*members} else tuple(device for device in members if device in devices)


def _layers(model: ShardedModel, number: int, *, tied: bool = False) -> list[int]:
    """The layers of a bucket, or those tied to them, ascending."""
    own = {piece.layer for piece in model.buckets[number].pieces}
    if not tied:
        return sorted(own)
    names = {model.layer(position).name for position in own}
    return [i for i, layer in enumerate(model.profile.layers) if names & {*layer.tied_to}]


class _ShardGroup:
    """The gathers of one group of devices for those at home. Buckets are named by their number in the model."""

    def __init__(
        self,
        builder: GraphBuilder,
        model: ShardedModel,
        cluster: Cluster,
        passes: Passes,
        members: tuple[int, ...],
        home: tuple[int, ...],
    ) -> None:
        self._builder, self._model, self._cluster, self._passes = builder, model, cluster, passes
        self._members, self._home = members, home

    def add(self, buckets: Sequence[int], starts: Ints) -> None:
        forward = {bucket: self._forward_tasks(bucket) for bucket in buckets}
        first = {bucket: int(tasks[0]) for bucket, tasks in forward.items()}
        states = self._model.plan.states
        gathers: list[int] = []
        ends: list[Ints] = []
        for use in self._uses(dict(sorted(first.items(), key=itemgetter(1)))):
            tasks = self._passes.of(forward[use.bucket], use.kind) + starts[use.microbatch]
            if not (use.kind == Kind.BACKWARD and states.keep_gathered):
                ahead = len(ends) - 1 - states.prefetch
                gathers.append(self._gather(use, gathers[-1:], ends[ahead] if ahead >= 0 else []))
                ends.append(self._last(tasks))
                self._builder.depend(tasks, gathers[-1])
            if use.kind == Kind.BACKWARD or not states.keep_gathered:
                self._drop(use.bucket, self._last(tasks))

    def _uses(self, first: Mapping[int, int]) -> Iterator[_Use]:
        """The passes of the first device at home over buckets; first: the first task of each, ascending."""
        buckets = list(first)
        order, microbatches = self._model.schedule.order, self._model.plan.microbatches
        if order is None:
            for microbatch in range(microbatches):
                yield from (_Use(Kind.FORWARD, microbatch, bucket) for bucket in buckets)
                yield from (_Use(Kind.BACKWARD, microbatch, bucket) for bucket in reversed(buckets))
            return
        stages = self._model.stages
        homes = list(dict.fromkeys(self._model.placements[layers[0]].device_set for layers in stages))
        own = [layers for layers in stages if self._home[0] in self._model.placements[layers[0]].device_set]
        rank = homes.index(self._model.placements[own[0][0]].device_set)
        layers_used = np.searchsorted(self._passes.first, list(first.values()), side="right") - 1
        layer_of = dict(zip(buckets, layers_used.tolist(), strict=True))
        for kind, microbatch, chunk in order(len(homes), rank, microbatches, len(own)):
            if kind in (Kind.FORWARD, Kind.BACKWARD):
                inside = [b for b in buckets if layer_of[b] in own[chunk]]
                for bucket in inside if kind == Kind.FORWARD else reversed(inside):
                    yield _Use(kind, microbatch, bucket)

    def _forward_tasks(self, bucket: int) -> Ints:
        """The forward tasks of the first micro-batch over the bucket's layers on the devices at home, ascending."""
        for tied in (False, True):
            layers = _layers(self._model, bucket, tied=tied)
            tasks = np.concatenate([np.zeros(0, dtype=np.int64), *map(self._passes.forward, layers)])
            here: Ints = tasks[np.isin(self._passes.device[tasks], self._home)]
            if len(here):
                break
        return here

    def _last(self, tasks: Ints) -> Ints:
        """The last of `tasks` on each device at home, shape (devices,)."""
        devices = self._builder.column("device")[tasks]
        return np.array([tasks[devices == device][-1] for device in self._home])

    def _gather(self, use: _Use, before: Sequence[int], ended: npt.ArrayLike) -> int:
        bucket = self._model.buckets[use.bucket]
        task = add_gather(self._builder, self._cluster, bucket, use.bucket, self._members, before, self._home)
        self._builder.depend(task, ended)
        self._builder.column("microbatch")[task] = use.microbatch
        self._builder.allocate(task, self._home, self._gathered_bytes(use.bucket))
        return task

    def _drop(self, bucket: int, last: Ints) -> None:
        self._builder.allocate(last, self._home, -self._gathered_bytes(bucket))

    def _gathered_bytes(self, bucket: int) -> float:
        """What a device holds more of a bucket's parameters while they are gathered."""
        return self._model.buckets[bucket].size_bytes * (1 - 1 / len(self._members))
