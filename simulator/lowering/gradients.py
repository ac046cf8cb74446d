"""Gradient synchronisation and update: the tasks of a step after and beside the backward pass."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from simulator import collectives
from simulator.cluster import Cluster
from simulator.collectives import CollectiveTask
from simulator.lowering.crossings import Replicas, replicas_of
from simulator.lowering.graph_builder import GraphBuilder
from simulator.lowering.schedules import STASHING
from simulator.plan import Plan
from simulator.taskgraph import Floats, Ints, Kind
from simulator.workload import Profile

Backwards = Callable[[int, int, int], Ints]
"""(layer, channel slot, device) -> every backward task, of all micro-batches, that adds to that gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Gradient pieces that the same devices sum in one collective; `sent_bytes` of `size_bytes` travel."""

    group: tuple[int, ...]
    pieces: tuple[Replicas, ...]
    size_bytes: int
    sent_bytes: float
    update_s: float

    def steps(self, cluster: Cluster, plan: Plan) -> list[CollectiveTask]:
        """The collective's steps for this bucket."""
        chosen = plan.synchronisation
        return collectives.load(chosen.collective).tasks(
            cluster, self.group, self.sent_bytes, self.update_s, chosen.serving_workers
        )


def buckets(profile: Profile, plan: Plan) -> list[Bucket]:
    """Buckets in the order in which they fill: gradients become ready from the last layer to the first."""
    open_pieces: dict[tuple[int, ...], list[Replicas]] = defaultdict(list)
    found: list[Bucket] = []

    def close(group: tuple[int, ...]) -> None:
        pieces = tuple(open_pieces.pop(group))
        size = sum(piece.parameter_bytes for piece in pieces)
        sent = plan.synchronisation.sent_bytes(size, profile.dtype)
        update_s = sum(_update_s(profile, piece) for piece in pieces)
        found.append(Bucket(group=group, pieces=pieces, size_bytes=size, sent_bytes=sent, update_s=update_s))

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
    communicator: a bucket's collective begins on a device when that of the bucket before has ended there; to
    and from servers each message follows its like of the bucket before. The optimizer of a device runs once,
    after its whole backward pass and every synchronisation that it takes part in, as torch's does; where weights are
    stashed, each backward pass has an update of its own already.
    """
    delivered: dict[int, list[int]] = defaultdict(list)
    previous: dict[tuple[int, ...], _Sent] = {}
    for number, bucket in enumerate(buckets(profile, plan)):
        steps = bucket.steps(cluster, plan)
        ready = _add_ready(builder, cluster, plan, bucket, number, backwards, whole)
        tasks = _add_steps(builder, bucket, number, steps, ready)
        for task, step in zip(tasks, steps, strict=True):
            for device in step.delivers:
                delivered[device].append(task)
        if bucket.group in previous:
            _follow(builder, plan, (steps, tasks), previous[bucket.group])
        previous[bucket.group] = steps, tasks
    if plan.schedule in STASHING:
        return
    for device, seconds in local_updates(profile, plan).items():
        speed = cluster.devices[device].speed
        last = np.iinfo(np.int64).max
        task = int(builder.add(Kind.UPDATE, 1, device=device, seconds=seconds / speed, priority=last)[0])
        builder.depend(task, whole[device])
        builder.depend(task, delivered[device])


def _add_ready(
    builder: GraphBuilder,
    cluster: Cluster,
    plan: Plan,
    bucket: Bucket,
    number: int,
    backwards: Backwards,
    whole: list[Ints],
) -> dict[int, list[Ints]]:
    """Per device of the bucket, the tasks that make its gradient ready to leave; compression is appended here."""
    chosen = plan.synchronisation
    found: dict[int, list[Ints]] = {}
    for device in bucket.group:
        found[device] = [backwards(piece.layer, piece.slot, device) for piece in bucket.pieces]
        if not chosen.overlap:
            found[device].append(whole[device])
        seconds = chosen.compression_s_per_byte * bucket.size_bytes / cluster.devices[device].speed
        if seconds:
            owner = {"layer": bucket.pieces[0].layer, "shard": number, "priority": -1}
            compression = builder.add(Kind.UPDATE, 1, device=device, seconds=seconds, **owner)
            for before in found[device]:
                builder.depend(compression, before)
            found[device] = [compression]
    return found


def _add_steps(
    builder: GraphBuilder,
    bucket: Bucket,
    number: int,
    steps: Sequence[CollectiveTask],
    ready: Mapping[int, Sequence[Ints]],
) -> list[int]:
    """Append a bucket's collective: its steps are owned by the bucket's first layer, shard = bucket number."""
    tasks: list[int] = []
    for step in steps:
        owner = {"layer": bucket.pieces[0].layer, "shard": number}
        if step.route is None:
            added = builder.add(Kind.UPDATE, 1, device=step.device, seconds=step.seconds, **owner)
        else:
            receiver = step.route.pairs[0][1] if len(step.route.pairs) == 1 else -1
            columns = {"device": receiver, "route": builder.route(step.route), "seconds": step.seconds}
            added = builder.add(Kind.SYNCHRONISATION, 1, bytes=step.bytes, **columns, **owner)
        builder.depend(added, [tasks[i] for i in step.after])
        for device in step.needs:
            for before in ready[device]:
                builder.depend(added, before)
        tasks.append(int(added[0]))
    return tasks


_Sent = tuple[list[CollectiveTask], list[int]]
"""The steps of a bucket's collective and their tasks."""


def _follow(builder: GraphBuilder, plan: Plan, sent: _Sent, before: _Sent) -> None:
    """Let a bucket leave after the one before it."""
    if collectives.load(plan.synchronisation.collective).updates_on_server:
        builder.depend(sent[1], before[1])
        return
    last = {device: task for step, task in zip(*before, strict=True) for device in step.delivers}
    for step, task in zip(*sent, strict=True):
        builder.depend(task, sorted({last[device] for device in step.needs}))


def addition_s(profile: Profile, piece: Replicas) -> float:
    """Seconds at speed 1 to add a gradient to another.

    It reads two tensors and writes one; SGD with momentum reads and writes eight tensors of that size in all (the
    buffer scaled: 2, the gradient added: 3, the parameter moved: 3), and both take as long as memory does.
    """
    return 3 / 8 * _update_s(profile, piece)


def _update_s(profile: Profile, piece: Replicas) -> float:
    layer = profile.layers[piece.layer]
    return layer.update_s * piece.parameter_bytes / layer.parameter_bytes


def local_updates(profile: Profile, plan: Plan) -> dict[int, float]:
    """Per device, the seconds of its optimizer at speed 1 for the parameters that no server updates."""
    on_server = collectives.load(plan.synchronisation.collective).updates_on_server
    found: dict[int, float] = defaultdict(float)
    for piece in replicas_of(profile, plan):
        if not (on_server and len(piece.devices) > 1):
            for device in piece.devices:
                found[device] += _update_s(profile, piece)
    return dict(sorted(found.items()))


def static_bytes(profile: Profile, cluster: Cluster, plan: Plan) -> Floats:
    """Per device, parameters, gradients and optimizer state; servers hold them in place of the workers' state.

    Raises InputError where parameters are to be updated on a server and the cluster has none.
    """
    held = np.zeros(len(cluster.devices))
    chosen = plan.synchronisation
    collective = collectives.load(chosen.collective)
    for piece in replicas_of(profile, plan):
        served = collective.updates_on_server and len(piece.devices) > 1
        held[list(piece.devices)] += piece.parameter_bytes * (2 + (0 if served else plan.optimizer_state))
        servers = collective.servers(cluster, piece.devices, chosen.serving_workers) if served else ()
        for server in servers:
            copies = 0 if server in piece.devices else 2
            held[server] += piece.parameter_bytes / len(servers) * (copies + plan.optimizer_state)
    return held
