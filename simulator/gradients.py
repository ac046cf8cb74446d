"""Gradient synchronisation and update: the tasks of a step after and beside the backward pass."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from simulator.builder import GraphBuilder
from simulator.cluster import Cluster
from simulator.collectives import UPDATES_ON_SERVER, Step, collective
from simulator.exchange import Replicas, replicas_of
from simulator.plan import Plan
from simulator.taskgraph import Floats, Ints, Kind
from simulator.workload import Profile

Backwards = Callable[[int, int, int], Ints]
"""(layer, channel slot, device) -> every backward task, of all micro-batches, that adds to that gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Gradient pieces that the same devices sum in one collective."""

    group: tuple[int, ...]
    pieces: tuple[Replicas, ...]
    size_bytes: int
    update_s: float

    def steps(self, cluster: Cluster, plan: Plan) -> list[Step]:
        """The collective's steps for this bucket."""
        return collective(plan.synchronisation.collective)(cluster, self.group, self.size_bytes, self.update_s)


def buckets(profile: Profile, plan: Plan) -> list[Bucket]:
    """Buckets in the order in which they fill: gradients become ready from the last layer to the first."""
    open_pieces: dict[tuple[int, ...], list[Replicas]] = defaultdict(list)
    found: list[Bucket] = []

    def close(group: tuple[int, ...]) -> None:
        pieces = tuple(open_pieces.pop(group))
        size = sum(piece.parameter_bytes for piece in pieces)
        update_s = sum(_update_s(profile, piece) for piece in pieces)
        found.append(Bucket(group=group, pieces=pieces, size_bytes=size, update_s=update_s))

    for piece in reversed(replicas_of(profile, plan)):
        if len(piece.devices) > 1 and piece.parameter_bytes:
            open_pieces[piece.devices].append(piece)
            held = sum(other.parameter_bytes for other in open_pieces[piece.devices])
            if held >= plan.synchronisation.bucket_bytes:
                close(piece.devices)
    for group in list(open_pieces):
        close(group)
    return found


def add_synchronisation(
    builder: GraphBuilder, profile: Profile, cluster: Cluster, plan: Plan, backwards: Backwards, whole: list[Ints]
) -> None:
    """Append the collectives and the optimizer's updates.

    `whole[d]` are all backward tasks on device d. Buckets of one group leave one after the other, as on one
    communicator: each step follows its like of the bucket before. The optimizer of a device runs once,
    after its whole backward pass and every synchronisation that it takes part in, as torch's does.
    """
    delivered: dict[int, list[int]] = defaultdict(list)
    previous: dict[tuple[int, ...], list[int]] = {}
    for number, bucket in enumerate(buckets(profile, plan)):
        tasks: list[int] = []
        for step in bucket.steps(cluster, plan):
            task = _add_step(builder, step, bucket, number)
            builder.depend(task, [tasks[i] for i in step.after])
            for device in step.needs:
                for piece in bucket.pieces:
                    builder.depend(task, backwards(piece.layer, piece.slot, device))
                if not plan.synchronisation.overlap:
                    builder.depend(task, whole[device])
            for device in step.delivers:
                delivered[device].append(task)
            tasks.append(task)
        if bucket.group in previous:
            builder.depend(tasks, previous[bucket.group])
        previous[bucket.group] = tasks
    for device, seconds in _local_updates(profile, plan).items():
        speed = cluster.devices[device].speed
        last = np.iinfo(np.int64).max
        task = int(builder.add(Kind.UPDATE, 1, device=device, seconds=seconds / speed, priority=last)[0])
        builder.depend(task, whole[device])
        builder.depend(task, delivered[device])


def _add_step(builder: GraphBuilder, step: Step, bucket: Bucket, number: int) -> int:
    """Append one step of a bucket's collective; it is owned by the bucket's first layer, shard = bucket number."""
    owner = {"layer": bucket.pieces[0].layer, "shard": number}
    if step.route is None:
        return int(builder.add(Kind.UPDATE, 1, device=step.device, seconds=step.seconds, **owner)[0])
    receiver = step.route.pairs[0][1] if len(step.route.pairs) == 1 else -1
    route = builder.route(step.route)
    columns = {"device": receiver, "route": route, "seconds": step.seconds, "bytes": step.bytes}
    return int(builder.add(Kind.SYNCHRONISATION, 1, **columns, **owner)[0])


def _update_s(profile: Profile, piece: Replicas) -> float:
    layer = profile.layers[piece.layer]
    return layer.update_s * piece.parameter_bytes / layer.parameter_bytes


def _local_updates(profile: Profile, plan: Plan) -> dict[int, float]:
    """Per device, the seconds of its optimizer at speed 1 for the parameters that no server updates."""
    on_server = plan.synchronisation.collective in UPDATES_ON_SERVER
    found: dict[int, float] = defaultdict(float)
    for piece in replicas_of(profile, plan):
        if not (on_server and len(piece.devices) > 1):
            for device in piece.devices:
                found[device] += _update_s(profile, piece)
    return dict(sorted(found.items()))


def static_bytes(profile: Profile, cluster: Cluster, plan: Plan) -> Floats:
    """Per device, parameters, gradients and optimizer state; servers hold them in place of the workers' state."""
    held = np.zeros(len(cluster.devices))
    on_server = plan.synchronisation.collective in UPDATES_ON_SERVER
    for piece in replicas_of(profile, plan):
        served = on_server and len(piece.devices) > 1
        held[list(piece.devices)] += piece.parameter_bytes * (2 + (0 if served else plan.optimizer_state))
        if served and cluster.servers:
            part = piece.parameter_bytes / len(cluster.servers)
            held[list(cluster.servers)] += part * (2 + plan.optimizer_state)
    return held
