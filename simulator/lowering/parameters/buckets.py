"""Buckets: which parameter gradients travel together in one collective."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from simulator import collectives
from simulator.cluster import Cluster
from simulator.collectives import CollectiveTask
from simulator.lowering.parameters.replicas import Replicas
from simulator.ordered_sum import ordered_sum
from simulator.plan import Plan
from simulator.workload import Profile

Users = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""The group, the holders and the devices of a bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Gradient pieces that the same devices sum in one collective; `sent_bytes` of `size_bytes` travel.

    group: the devices that hold terms of the sum or need it. holders, devices: see Replicas; mostly both are the group.
    alike: see Replicas.
    """

    group: tuple[int, ...]
    holders: tuple[int, ...]
    devices: tuple[int, ...]
    pieces: tuple[Replicas, ...]
    size_bytes: int
    sent_bytes: float
    update_s: float
    alike: tuple[tuple[int, ...], ...] = ()

    @property
    def members(self) -> Hashable:
        """What buckets of the same devices have in common, those of other ranks that sum alike included."""
        return self.group, self.alike

    def steps(self, cluster: Cluster, plan: Plan, users: Users | None = None) -> list[CollectiveTask]:
        """The collective's steps for this bucket; users: who takes part, if not its own."""
        settings = plan.synchronisation
        group, holders, devices = users or (self.group, self.holders, self.devices)
        if holders != devices:
            return collectives.sum_and_give(holders, devices, self.sent_bytes)
        if plan.states.stage:
            return collectives.scattered_sum(plan.states.shard_groups(devices), self.sent_bytes)
        collective = collectives.load(settings.collective)
        return collective.tasks(cluster, group, self.sent_bytes, self.update_s, settings.serving_workers)

    def gathers(self, plan: Plan, users: tuple[int, ...] | None = None) -> list[CollectiveTask]:
        """The all-gathers of its parameters, one in each group that shares them out; users: all, if not its own."""
        tasks = []
        for members in plan.states.shard_groups(users or self.devices):
            if len(members) > 1:
                route, sent_bytes = collectives.exchange("all-gather", members, self.size_bytes)
                tasks.append(CollectiveTask(route=route, bytes=sent_bytes, needs=members, delivers=members))
        return tasks


def filled_buckets(
    profile: Profile, plan: Plan, pieces: Sequence[Replicas], stage_of: Sequence[int], users: Sequence[int]
) -> list[Bucket]:
    """Buckets of parameter pieces in the order in which they fill: gradients are ready from the last layer to the
    first. The first bucket of each stage's group of devices may hold less than the others.

    stage_of: by layer, which of the stages of its devices it is of: each has buckets of its own, as the runtimes wrap
    virtual stages one by one. users: how many devices of all replicas sum each piece.
    """
    limits, ratio = plan.synchronisation, plan.states.gradient_ratio(profile.dtype)
    closed: set[_Members] = set()  # of which there is a bucket
    open_pieces: dict[_Members, list[Replicas]] = defaultdict(list)
    open_bytes: dict[_Members, int] = defaultdict(int)
    filled: list[Bucket] = []

    def close(members: _Members) -> None:
        joined, size = tuple(open_pieces.pop(members)), open_bytes.pop(members)
        _, holders, devices, alike = members
        bucket = Bucket(
            group=devices if holders == devices else tuple(sorted({*holders, *devices})),
            holders=holders,
            devices=devices,
            pieces=joined,
            size_bytes=size,
            sent_bytes=limits.sent_bytes(size * ratio, plan.states.gradient_dtype or profile.dtype),
            update_s=ordered_sum(update_seconds(profile, piece) for piece in joined),
            alike=alike,
        )
        filled.append(bucket)

    for piece, devices in zip(reversed(pieces), reversed(users), strict=True):
        if piece.is_summed and piece.parameter_bytes:
            members = stage_of[piece.layer], piece.holders, piece.devices, piece.alike
            open_pieces[members].append(piece)
            open_bytes[members] += piece.parameter_bytes
            if open_bytes[members] * ratio >= limits.filled_bytes(devices, first=members not in closed):
                close(members)
                closed.add(members)
    for members in list(open_pieces):
        close(members)
    return filled


_Members = tuple[int, tuple[int, ...], tuple[int, ...], tuple[tuple[int, ...], ...]]
"""The stage, the devices that hold terms of a sum, those that need it, and those of other ranks that sum alike."""


def update_seconds(profile: Profile, piece: Replicas) -> float:
    """Seconds at speed 1 of the optimizer's update of a parameter piece."""
    layer = profile.layers[piece.layer]
    return layer.update_s * piece.parameter_bytes / layer.parameter_bytes
