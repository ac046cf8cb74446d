"""ZeRO's third stage (FSDP): parameters that devices share out are gathered before the passes that use them.

A bucket of gradients is also what is gathered together. The passes of a shard group use its buckets in an order, of
which each gather runs `prefetch` ahead:

    gathers      0  1     2     3  ...         gather i starts when gather i - 1 and
    passes          0  1     2     3  ...      the pass of bucket i - 1 - prefetch have ended

What was gathered is dropped after the pass, or with `keep_gathered` after the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.cluster import Cluster
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.tasks.gradients import add_gather
from simulator.lowering.tasks.graph_builder import GraphBuilder
from simulator.lowering.tasks.passes import Passes
from simulator.taskgraph import Ints, Kind


class _Use(NamedTuple):
    """One pass of a micro-batch over the layers of a bucket."""

    kind: Kind
    microbatch: int
    bucket: int


def add_gathers(builder: GraphBuilder, model: ShardedModel, cluster: Cluster, passes: Passes, starts: Ints) -> None:
    """Append the gathers of all micro-batches, which start at tasks `starts`, and let passes wait for theirs."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for number, bucket in enumerate(model.buckets):
        for members in model.plan.states.shard_groups(bucket.devices):
            if len(members) > 1:
                groups.setdefault(members, []).append(number)
    for members, buckets in groups.items():
        _ShardGroup(builder, model, cluster, passes, members).add(buckets, starts)


class _ShardGroup:
    """The gathers of one group of devices. Buckets are named by their number in the model."""

    def __init__(
        self,
        builder: GraphBuilder,
        model: ShardedModel,
        cluster: Cluster,
        passes: Passes,
        members: tuple[int, ...],
    ) -> None:
        self._builder, self._model, self._cluster, self._passes = builder, model, cluster, passes
        self._members = members

    def add(self, buckets: Sequence[int], starts: Ints) -> None:
        forward = {bucket: self._forward_tasks(bucket) for bucket in buckets}
        states = self._model.plan.states
        gathers: list[int] = []
        ends: list[Ints] = []
        for use in self._uses(sorted(buckets, key=lambda bucket: int(forward[bucket][0]))):
            tasks = self._passes.of(forward[use.bucket], use.kind) + starts[use.microbatch]
            if not (use.kind == Kind.BACKWARD and states.keep_gathered):
                ahead = len(ends) - 1 - states.prefetch
                gathers.append(self._gather(use, gathers[-1:], ends[ahead] if ahead >= 0 else []))
                ends.append(self._last(tasks))
                self._builder.depend(tasks, gathers[-1])
            if use.kind == Kind.BACKWARD or not states.keep_gathered:
                self._drop(use.bucket, self._last(tasks))

    def _uses(self, buckets: list[int]) -> Iterator[_Use]:
        """The passes of the group's first device over `buckets`, which stand in the order of the network."""
        order, microbatches = self._model.schedule.order, self._model.plan.microbatches
        if order is None:
            for microbatch in range(microbatches):
                yield from (_Use(Kind.FORWARD, microbatch, bucket) for bucket in buckets)
                yield from (_Use(Kind.BACKWARD, microbatch, bucket) for bucket in reversed(buckets))
            return
        stages = self._model.stages
        homes = list(dict.fromkeys(self._model.placements[layers[0]].device_set for layers in stages))
        own = [layers for layers in stages if self._members[0] in self._model.placements[layers[0]].device_set]
        rank = homes.index(self._model.placements[own[0][0]].device_set)
        for kind, microbatch, chunk in order(len(homes), rank, microbatches, len(own)):
            if kind in (Kind.FORWARD, Kind.BACKWARD):
                inside = [b for b in buckets if self._model.buckets[b].pieces[-1].layer in own[chunk]]
                for bucket in inside if kind == Kind.FORWARD else reversed(inside):
                    yield _Use(kind, microbatch, bucket)

    def _forward_tasks(self, bucket: int) -> Ints:
        """The forward tasks of the first micro-batch over the bucket's layers on the group's devices, ascending."""
        layers = sorted({piece.layer for piece in self._model.buckets[bucket].pieces})
        tasks = np.concatenate([self._passes.forward(layer) for layer in layers])
        return tasks[np.isin(self._passes.device[tasks], self._members)]

    def _last(self, tasks: Ints) -> Ints:
        """The last of `tasks` on each of the group's devices, shape (members,)."""
        devices = self._builder.column("device")[tasks]
        return np.array([tasks[devices == member][-1] for member in self._members])

    def _gather(self, use: _Use, before: Sequence[int], ended: npt.ArrayLike) -> int:
        bucket = self._model.buckets[use.bucket]
        task = add_gather(self._builder, self._cluster, bucket, use.bucket, self._members, before)
        self._builder.depend(task, ended)
        self._builder.column("microbatch")[task] = use.microbatch
        self._builder.allocate(task, self._members, self._gathered_bytes(use.bucket))
        return task

    def _drop(self, bucket: int, last: Ints) -> None:
        self._builder.allocate(last, self._members, -self._gathered_bytes(bucket))

    def _gathered_bytes(self, bucket: int) -> float:
        """What a device holds more of a bucket's parameters while they are gathered."""
        return self._model.buckets[bucket].size_bytes * (1 - 1 / len(self._members))
