"""What OptCNN's search weighs: the configurations of every layer and what each of them costs.

Jia et al., ICML 2018, section 5.1: the cost of a strategy is the sum over layers of t_c (compute) and t_s
(synchronisation of the parameters), and over edges of t_x (what the consumer reads and its device does not
hold, forward, and its gradient back). Shard i is on device i. Nothing overlaps in this sum, and a piece that two
layers read on one device is counted for each, which a simulated step does not do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import product
from math import inf, prod

import numpy as np

from partitioners._layerwise.region_traffic import RegionTraffic
from partitioners._network.fabric import Fabric
from partitioners._network.wiring import Traffic, Wave, Wiring
from simulator import collectives
from simulator.cluster import Cluster, Device
from simulator.errors import InputError
from simulator.lowering.costs.shard_costs import shard_seconds
from simulator.lowering.exchange.shard_regions import Interval, channel_bytes, reads, shards, split
from simulator.plan import Degrees, Sharding, StepSettings, Synchronisation
from simulator.taskgraph import Floats, Ints
from simulator.workload import Layer, Profile

Size = tuple[int, int, int]
"""Samples, channels and area of a shard."""
DIMENSIONS = "nchw"
"""Letters of the paper for sample, channel, height and width."""
_KEPT = 32
"""Networks, batches and wirings of which tables are kept: a sweep asks for the same ones over and over."""


def configurations(layer: Layer, samples: int, workers: int, dimensions: str = DIMENSIONS) -> tuple[Degrees, ...]:
    """Degrees by sample, channel, height and width that make at most one shard per worker.

    A degree is a divisor of the number of workers, a power of two, or all there is to split where that is less.
    Dimensions whose letter is not in `dimensions` stay whole. Raises InputError on an unknown letter.
    """
    unknown = set(dimensions) - set(DIMENSIONS)
    if unknown:
        raise InputError(f"dimensions is {dimensions!r}: it has only letters of {DIMENSIONS!r}, not {min(unknown)!r}")
    allowed = []
    for letter, extent in zip(DIMENSIONS, (samples, *layer.output_shape), strict=True):
        most = min(extent, workers) if letter in dimensions else 1
        allowed.append([d for d in range(1, most + 1) if d == most or workers % d == 0 or d & (d - 1) == 0])
    return tuple((n, c, h, w) for n, c, h, w in product(*allowed) if n * c * h * w <= workers)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostTables:
    """Seconds of one step, per layer over its configurations, and per edge over those of both ends.

    transfer_s[i, j]: shape (configurations of layer i, of its reader j). held_bytes: what the largest shard
    keeps of parameters, gradients, optimizer state and activations for the backward pass. received_bytes[i, j]: what
    the device keeps that receives most of layer i for its reader j.
    """

    configurations: tuple[tuple[Degrees, ...], ...]
    compute_s: tuple[Floats, ...]
    synchronise_s: tuple[Floats, ...]
    held_bytes: tuple[Floats, ...]
    transfer_s: Mapping[tuple[int, int], Floats]
    received_bytes: Mapping[tuple[int, int], Floats]


def cost_tables(profile: Profile, cluster: Cluster, step: StepSettings, dimensions: str = DIMENSIONS) -> CostTables:
    """The tables, in seconds and bytes, for the batch, micro-batches, synchronisation and optimizer of `step`.

    What does not depend on the speed of links is found once for all clusters that differ in it alone.
    """
    fabric = Fabric.of(cluster, cluster.workers)
    speeds, samples = cluster.speeds[: cluster.workers], step.microbatch_size
    microbatches = step.microbatches or 1
    choices = _choices(profile, samples, cluster.workers, dimensions)
    traffic = _traffic(profile, samples, cluster.workers, dimensions, fabric.wiring)
    seconds = {id(sent): microbatches * fabric.seconds(sent) for sent, _ in traffic.values()}
    held = _held_bytes(profile, samples, microbatches, step.optimizer_ratio, cluster.workers, dimensions)
    return CostTables(
        configurations=choices,
        compute_s=tuple(microbatches * each for each in _compute_s(profile, samples, speeds, dimensions)),
        synchronise_s=_synchronise_s(profile, cluster, step.synchronisation, samples, dimensions),
        held_bytes=held,
        transfer_s={edge: seconds[id(sent)] for edge, (sent, _) in traffic.items()},
        received_bytes={edge: microbatches * received for edge, (_, received) in traffic.items()},
    )


@cache
def sharding_of(degrees: Degrees) -> Sharding:
    """Shard i on device i."""
    return Sharding(degrees=degrees, devices=tuple(range(prod(degrees))))


@lru_cache(maxsize=_KEPT)
def _choices(profile: Profile, samples: int, workers: int, dimensions: str) -> tuple[tuple[Degrees, ...], ...]:
    """The configurations of every layer."""
    return tuple(configurations(layer, samples, workers, dimensions) for layer in profile.layers)


@lru_cache(maxsize=_KEPT)
def _compute_s(profile: Profile, samples: int, speeds: tuple[float, ...], dimensions: str) -> tuple[Floats, ...]:
    """Forward and backward of one micro-batch on the slowest shard, of each layer and configuration."""
    choices = _choices(profile, samples, len(speeds), dimensions)

    @cache
    def slowest_by_size(output_shape: tuple[int, int, int], options: tuple[Degrees, ...]) -> list[dict[Size, float]]:
        """Of each configuration, the least speed of the shards of each size."""
        by_degrees = []
        for degrees in options:
            axes = zip((samples, *output_shape), degrees, strict=True)
            sizes = product(*(_lengths(split(extent, degree)) for extent, degree in axes))
            slowest: dict[Size, float] = {}
            for (n, c, h, w), speed in zip(sizes, speeds, strict=False):
                slowest[n, c, h * w] = min(slowest.get((n, c, h * w), inf), speed)
            by_degrees.append(slowest)
        return by_degrees

    def slowest_s(layer: Layer, options: tuple[Degrees, ...]) -> Floats:
        plane = layer.output_shape[1] * layer.output_shape[2]

        @cache
        def seconds(samples: int, channels: int, area: int) -> tuple[float, float]:
            return shard_seconds(profile, layer, samples, channels / layer.channels, area / plane)

        return np.array(
            [
                sum(max(seconds(*size)[way] / speed for size, speed in slowest.items()) for way in (0, 1))
                for slowest in slowest_by_size(layer.output_shape, options)
            ]
        )

    return tuple(slowest_s(layer, options) for layer, options in zip(profile.layers, choices, strict=True))


def _lengths(intervals: list[Interval]) -> list[int]:
    return [last - first for first, last in intervals]


@lru_cache(maxsize=_KEPT)
def _held_bytes(
    profile: Profile, samples: int, microbatches: int, optimizer_state: float, workers: int, dimensions: str
) -> tuple[Floats, ...]:
    """Bytes on the device of the largest shard, of each layer and configuration."""

    def held(layer: Layer, degrees: Degrees) -> float:
        largest = [max(_lengths(axis)) for axis in shards(layer, samples, degrees)]
        activations = layer.saved_bytes / profile.batch_size * largest[0] * microbatches
        area = largest[2] * largest[3] / (layer.output_shape[1] * layer.output_shape[2])
        return largest[1] / layer.channels * (layer.parameter_bytes * (2 + optimizer_state) + activations * area)

    layers = zip(profile.layers, _choices(profile, samples, workers, dimensions), strict=True)
    return tuple(np.array([held(layer, degrees) for degrees in options]) for layer, options in layers)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinklessCluster:
    """What of a cluster makes a difference to which tasks a collective has: all but bandwidths and latencies."""

    devices: tuple[Device, ...]
    wiring: Wiring
    cluster: Cluster = field(compare=False)


def _synchronise_s(
    profile: Profile, cluster: Cluster, synchronisation: Synchronisation, samples: int, dimensions: str
) -> tuple[Floats, ...]:
    """t_s of every layer: the collectives of all channel slots together, then the optimizer on the slowest device."""
    fabric = Fabric.of(cluster, len(cluster.devices))
    machine = LinklessCluster(devices=cluster.devices, wiring=fabric.wiring, cluster=cluster)
    distinct, layers = _collectives(profile, machine, synchronisation, samples, dimensions)
    seconds = np.array([fabric.waves_s(waves) for waves in distinct])
    return tuple(seconds[which] + local_s for which, local_s in layers)


@lru_cache(maxsize=_KEPT)
def _collectives(
    profile: Profile, machine: LinklessCluster, synchronisation: Synchronisation, samples: int, dimensions: str
) -> tuple[tuple[tuple[Wave, ...], ...], tuple[tuple[Ints, Floats], ...]]:
    """The different waves of collectives, and by layer, for every configuration, the number of its own and seconds of
    the optimizer on a device."""
    cluster, speeds = machine.cluster, np.array(machine.cluster.speeds)
    choices = _choices(profile, samples, cluster.workers, dimensions)
    collective = collectives.load(synchronisation.collective)

    @cache
    def asked(channels: int, parameter_bytes: int, update_s: float, degrees: Degrees) -> tuple[tuple[Wave, ...], float]:
        devices, groups, local_s = sharding_of(degrees).array, [], 0.0
        for slot, interval in enumerate(split(channels, degrees[1])):
            group, size = devices[:, slot].ravel(), channel_bytes(parameter_bytes, channels, interval)
            slot_s = update_s * size / parameter_bytes if size else 0.0
            if len(group) > 1 and size:
                sent_bytes = synchronisation.sent_bytes(size, profile.dtype)
                groups.append(
                    collective.tasks(cluster, group.tolist(), sent_bytes, slot_s, synchronisation.serving_workers)
                )
            if not (len(group) > 1 and collective.updates_on_server):
                local_s = max(local_s, slot_s / float(speeds[group].min()))
        return machine.wiring.waves(groups), local_s

    numbers: dict[tuple[Wave, ...], int] = {(): 0}

    def of(layer: Layer, options: tuple[Degrees, ...]) -> tuple[Ints, Floats]:
        which, local_s = np.zeros(len(options), dtype=np.int64), np.zeros(len(options))
        for option, (n, c, h, w) in enumerate(options if layer.parameter_bytes else ()):
            # the devices of a channel slot are the same however its plane is cut
            of_option = asked(layer.channels, layer.parameter_bytes, layer.update_s, (n, c, h * w, 1))
            which[option], local_s[option] = numbers.setdefault(of_option[0], len(numbers)), of_option[1]
        return which, local_s

    layers = tuple(of(layer, options) for layer, options in zip(profile.layers, choices, strict=True))
    return tuple(numbers), layers


@lru_cache(maxsize=_KEPT)
def _traffic(
    profile: Profile, samples: int, workers: int, dimensions: str, wiring: Wiring
) -> dict[tuple[int, int], tuple[Traffic, Floats]]:
    """What every edge sends in a micro-batch and the bytes of the device that gets most of it, over the configurations
    of both ends; like edges share one."""
    choices = _choices(profile, samples, workers, dimensions)
    known, traffic = RegionTraffic(wiring, workers), dict[tuple[int, int], tuple[Traffic, Floats]]()
    alike: dict[tuple[int, int], tuple[Traffic, Floats]] = {}
    for i, layer in enumerate(profile.layers):
        for number, j in enumerate(profile.consumers[i]):
            edge = profile.read_alike[i], number
            if edge not in alike:
                reader = profile.layers[j]
                held = [shards(layer, samples, degrees) for degrees in choices[i]]
                needed = [reads(profile, reader, layer, shards(reader, samples, degrees)) for degrees in choices[j]]
                alike[edge] = known.between(held, needed, profile.element_bytes(i))
            traffic[i, j] = alike[edge]
    return traffic
