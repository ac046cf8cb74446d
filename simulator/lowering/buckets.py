"""Buckets: which parameter gradients travel together in one collective."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from simulator import collectives
from simulator.cluster import Cluster
from simulator.collectives import CollectiveTask
from simulator.lowering.crossings import Replicas
from simulator.plan import Plan
from simulator.workload import Profile


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
        settings = plan.synchronisation
        return collectives.load(settings.collective).tasks(
            cluster, self.group, self.sent_bytes, self.update_s, settings.serving_workers
        )


def filled_buckets(profile: Profile, plan: Plan, pieces: Sequence[Replicas]) -> list[Bucket]:
    """Buckets of parameter pieces in the order in which they fill: gradients are ready from the last layer to the
    first. The first bucket of each group of devices may hold less than the others."""
    limits = plan.synchronisation
    first = limits.bucket_bytes if limits.first_bucket_bytes is None else limits.first_bucket_bytes
    limit: dict[tuple[int, ...], int] = defaultdict(lambda: first)
    open_pieces: dict[tuple[int, ...], list[Replicas]] = defaultdict(list)
    filled: list[Bucket] = []

    def close(group: tuple[int, ...]) -> None:
        joined = tuple(open_pieces.pop(group))
        size = sum(piece.parameter_bytes for piece in joined)
        sent = limits.sent_bytes(size, profile.dtype)
        update_s = sum(update_seconds(profile, piece) for piece in joined)
        filled.append(Bucket(group=group, pieces=joined, size_bytes=size, sent_bytes=sent, update_s=update_s))

    for piece in reversed(pieces):
        if len(piece.devices) > 1 and piece.parameter_bytes:
            open_pieces[piece.devices].append(piece)
            held = sum(other.parameter_bytes for other in open_pieces[piece.devices])
            if held >= limit[piece.devices]:
                close(piece.devices)
                limit[piece.devices] = limits.bucket_bytes
    for group in list(open_pieces):
        close(group)
    return filled


def update_seconds(profile: Profile, piece: Replicas) -> float:
    """Seconds at speed 1 of the optimizer's update of a parameter piece."""
    layer = profile.layers[piece.layer]
    return layer.update_s * piece.parameter_bytes / layer.parameter_bytes
