"""What may be alike in a plan: its replicas, and their ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import gcd

import numpy as np

from simulator import collectives
from simulator.cluster import Cluster
from simulator.distinct import distinct
from simulator.lowering import schedules
from simulator.lowering.symmetry.symmetry import Symmetry, shards_of
from simulator.plan import Plan, Sharding
from simulator.runtime import Runtime
from simulator.taskgraph import Floats, Ints
from simulator.workload import Profile


def symmetries_of(
    profile: Profile, plan: Plan, cluster: Cluster, runtime: Runtime, stragglers: Mapping[int, float]
) -> Iterator[Symmetry]:
    """What may be alike in a plan, the most first: ranks of replicas, then replicas alone, if anything.

    There are as many replicas as all layers' samples are cut into. stragglers: see `lower_once`.
    """
    if not _may_collapse(plan, cluster, runtime):
        return
    placements = plan.distinct_placements
    replicas, meets = gcd(*(sharding.degrees[0] for sharding in placements)), plan.exchange != "messages"
    if replicas == 1 and not meets:
        return
    if any(sharding.samples or plan.microbatch_size % sharding.degrees[0] for sharding in placements):
        return
    if any(sharding.copy > 1 and not _has_copies_apart(sharding, replicas) for sharding in placements):
        return
    if any(layer.tied_to and plan.placements[layer.name].copy > 1 for layer in profile.layers):
        return
    images = _images(placements, replicas)
    if images is None:
        return
    delays = [stragglers.get(device, 1.0) for device in range(len(cluster.devices))]
    pace = np.array([cluster.speeds, delays]).T  # (devices, 2)
    unlike = np.concatenate([pace[images], _parted(images, cluster)[..., None]], axis=2)
    symmetry = Symmetry(plan, images, _replica_classes(unlike), images[:1])
    first = images[symmetry.simulated]
    if (first[symmetry.class_of] > images).any():
        return
    ranks = _ranks(placements, replicas) if meets and len(first) == 1 else images[:1]
    if len(ranks) > 1 and not _replica_classes(pace[ranks]).any():
        yield replace(symmetry, ranks=ranks)
    if len(first) < replicas:
        yield symmetry


def _may_collapse(plan: Plan, cluster: Cluster, runtime: Runtime) -> bool:
    """Whether samples take as long as each other, messages meet nobody, and devices share no hosts and no servers."""
    synchronisation = collectives.load(plan.synchronisation.collective)
    return not (
        synchronisation.updates_on_server
        or plan.work
        or cluster.host_cores
        or runtime.rendezvous
        or runtime.busy_latency_s
        or schedules.load(plan.schedule).stashes_weights
    )


def _has_copies_apart(sharding: Sharding, replicas: int) -> bool:
    """Whether the shards of one replica are all on different devices."""
    own = sharding.devices[: len(sharding.devices) // replicas]
    return len(set(own)) == len(own)


def _replica_classes(unlike: Floats) -> Ints:
    """See Symmetry.class_of; unlike: what tells apart devices of each replica, shape (replicas, devices of one, n)."""
    if (unlike == unlike[0]).all():
        return np.zeros(len(unlike), dtype=np.int64)
    _, first, number = np.unique(unlike.reshape(len(unlike), -1), axis=0, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number.ravel()]


def _images(placements: Sequence[Sharding], replicas: int) -> Ints | None:
    """See Symmetry.images; None where layers differ in it, or replicas share a device."""
    shards = np.concatenate([shards_of(sharding, replicas) for sharding in placements], axis=1)
    _, first, which = np.unique(shards[0], return_index=True, return_inverse=True)
    images = shards[:, first]  # (replicas, devices of one)
    if (images[:, which.ravel()] != shards).any() or len(distinct(images)) < images.size:
        return None
    return images


def _parted(images: Ints, cluster: Cluster) -> Floats:
    """Whether a device of a replica stands on another host than the one before it, 1 or 0, of the shape of `images`:
    tiers of links part them there. Replicas that hosts part differently do not send alike."""
    parted = np.zeros(images.shape)
    if len(cluster.tiers) > 1:
        hosts = np.unique([device.host for device in cluster.devices], return_inverse=True)[1][images]
        parted[:, 1:] = np.diff(hosts, axis=1) != 0
    return parted


def _ranks(placements: Sequence[Sharding], replicas: int) -> Ints:
    """See Symmetry.ranks: a layer's devices in replica 0, one shard each; none where layers have unequally many.

    Returns an array of shape (ranks, groups), or (0, 0).
    """
    groups = {tuple(sorted(shards_of(sharding, replicas)[0].tolist())) for sharding in placements}
    ranks = np.array(sorted(groups)).T if len({*map(len, groups)}) == 1 else np.zeros((0, 0), dtype=np.int64)
    return ranks if len(distinct(ranks)) == ranks.size else ranks[:0]
