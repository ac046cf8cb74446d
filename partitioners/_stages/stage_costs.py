"""What contiguous stages and the cuts between them take, by measured times and transfer costs.

- A stage is a run of layers in topological order, on one device or replicated over consecutive ones. It
  takes the forward and backward seconds of its layers on the largest share of whole samples, on its slowest device.
- Replicas sum gradients by a ring once per step, overlapped with compute: a stage's pace is the larger of its
  compute and 1/M of the ring's time, for M micro-batches.
- A cut carries every tensor made before and read after it, once forward and once as a gradient, between the
  neighbouring devices on both sides; q senders and r receivers share the bytes min(q, r) ways. A tensor that
  skips a stage counts at each cut that it crosses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np

from simulator.cluster import Cluster
from simulator.collectives.ring import around
from simulator.lowering.costs.shard_costs import layer_seconds
from simulator.lowering.exchange.shard_regions import reads, shards
from simulator.network.transfers import paths
from simulator.taskgraph import Floats, Ints, Route
from simulator.workload import Profile


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds per micro-batch of every possible stage and cut, for L layers.

    stage_s(device, r): shape (L+1, L+1), entry [i, j] a stage of layers i to j-1 on devices device to
    device+r-1; infinite unless i < j. transfer_s(ways): shape (devices, L+1), entry [device, i] the cut before
    layer i, from devices that end before `device` to those that begin there, shared as many ways as the fewer of
    both are.
    """

    stage_s: Callable[[int, int], Floats]
    transfer_s: Callable[[int], Floats]

    def round(self, devices: int, rounds: int) -> Costs:
        """The same for stages that go round the devices so often; from the last to the first as the costliest cut."""

        @cache
        def transfer_s(ways: int) -> Floats:
            once = self.transfer_s(ways)[:devices].copy()
            once[0] = once[1:].max(axis=0, initial=0.0)
            return np.tile(once, (rounds, 1))

        return Costs(lambda device, r: self.stage_s(device % devices, r), transfer_s)

    def at(self, positions: Ints) -> Costs:
        """The same for stages that begin and end at some of the positions alone."""
        inside = np.ix_(positions, positions)
        parts, cuts = _changed_once(lambda seconds: seconds[inside]), _changed_once(lambda cut: cut[:, positions])
        return Costs(lambda device, r: parts(self.stage_s(device, r)), lambda ways: cuts(self.transfer_s(ways)))

    def within(self, limit: float) -> Costs:
        """The same transfers and free stages, both infinite above `limit` seconds."""
        free = _changed_once(lambda seconds: np.where(seconds <= limit, 0.0, np.inf))
        low = _changed_once(lambda seconds: np.where(seconds <= limit, seconds, np.inf))
        return Costs(lambda device, r: free(self.stage_s(device, r)), lambda ways: low(self.transfer_s(ways)))


def _changed_once(change: Callable[[Floats], Floats]) -> Callable[[Floats], Floats]:
    """`change`, asked once for each array: equal devices share it."""
    known: dict[int, tuple[Floats, Floats]] = {}

    def changed(seconds: Floats) -> Floats:
        if id(seconds) not in known:
            known[id(seconds)] = seconds, change(seconds)
        return known[id(seconds)][1]

    return changed


def measured_costs(
    profile: Profile, cluster: Cluster, microbatch_size: int, microbatches: int, group: int = 1
) -> Costs:
    """The costs that the module's docstring states, in seconds per micro-batch; a device is a group of so many."""
    crossing = crossing_bytes(profile) * (microbatch_size / profile.batch_size)
    routes = _neighbours(cluster.workers, group)
    over = paths(routes, cluster)

    @cache
    def stage_s(device: int, replicas: int) -> Floats:
        members = tuple(range(device * group, (device + replicas) * group))
        samples = -(-microbatch_size // len(members))  # the replica with the most has this many
        speed = min(cluster.speeds[d] for d in members)
        if len(members) == 1:
            return _stage_seconds(profile, samples, speed)
        pairs = around(members)
        slowest = min(cluster.bandwidth_bytes_per_s(*pair) for pair in pairs)
        return replicated_s(len(members), samples, speed, slowest, max(cluster.latency_s(*pair) for pair in pairs))

    @cache
    def replicated_s(members: int, samples: int, speed: float, bandwidth: float, latency: float) -> Floats:
        sums_s = ring_s(members, bandwidth, latency, _stage_bytes(profile))
        return np.maximum(_stage_seconds(profile, samples, speed), sums_s / microbatches)

    @cache
    def shared_s(ways: int) -> Floats:
        sizes = crossing / ways
        seconds = over.delay_s[:, None] + sizes / over.rate_bytes_per_s[:, None]  # (routes, L+1)
        for way in np.flatnonzero(over.measured).tolist():
            seconds[way] = [cluster.transfer_s(*routes[way].pairs[0], size) for size in sizes.tolist()]
        return np.asarray(seconds[::2] + seconds[1::2])  # there and back, (groups, L+1)

    return Costs(stage_s, lambda ways: shared_s(ways * group))


def _neighbours(workers: int, group: int) -> tuple[Route, ...]:
    """For each group of devices a message to its first from the device before it, round them all, and one back."""
    return tuple(
        Route((pair,))
        for first in range(0, workers, group)
        for pair in (((first - 1) % workers, first), (first, (first - 1) % workers))
    )


def _stage_seconds(profile: Profile, samples: int, speed: float) -> Floats:
    """Both passes of layers i to j-1 with so many samples, infinite unless i < j, shape (L+1, L+1)."""

    def seconds() -> Floats:
        count = np.arange(len(profile.layers) + 1)
        compute_s = _differences(layer_seconds(profile, samples).sum(axis=1)) / speed
        return np.where(count[:, None] >= count, np.inf, compute_s)

    return profile.kept.get((_stage_seconds, samples, speed), seconds)


def _stage_bytes(profile: Profile) -> Floats:
    """Bytes of the parameters of layers i to j-1, shape (L+1, L+1)."""
    sizes = [float(layer.parameter_bytes) for layer in profile.layers]
    return profile.kept.get(_stage_bytes, lambda: _differences(np.array(sizes)))


def crossing_bytes(profile: Profile) -> Floats:
    """Shape (L+1,): bytes, for the profile's batch, of the tensors made before layer i and read by it or later."""
    return profile.kept.get(crossing_bytes, lambda: _crossing_bytes(profile))


def _crossing_bytes(profile: Profile) -> Floats:
    change = np.zeros(len(profile.layers) + 1)
    for i, (layer, readers) in enumerate(zip(profile.layers, profile.consumers, strict=True)):
        if readers:
            change[i + 1] += layer.output_bytes
            change[max(readers) + 1] -= layer.output_bytes
    return np.cumsum(change)


def ring_s(
    members: int | Ints, bandwidth_bytes_per_s: float | Floats, latency_s: float | Floats, size_bytes: Floats
) -> Floats:
    """Seconds of an uncontended ring all-reduce of each of `size_bytes`, by the closed form; see `collectives.ring`.

    bandwidth_bytes_per_s and latency_s: of its slowest pair.
    """
    sent_times = 2 * (members - 1) / members
    return size_bytes * (sent_times / bandwidth_bytes_per_s) + 2 * (members - 1) * latency_s * (size_bytes > 0)


def _differences(values: Floats) -> Floats:
    """Entry [i, j] is the sum of values i to j-1; shape (L+1, L+1) of values (L,)."""
    sums = np.concatenate(([0.0], np.cumsum(values)))  # (L+1,)
    return sums[None, :] - sums[:, None]  # (L+1, L+1)


def needed_bytes(profile: Profile) -> dict[tuple[int, int], float]:
    """By layer and reader the bytes of a sample of its output that this reads: windows may leave out rows."""

    def needed(source: int, reader: int) -> float:
        producer, layer = profile.layers[source], profile.layers[reader]
        read = reads(profile, layer, producer, shards(layer, 1, (1, 1, 1, 1)))
        share = prod(last - first for ((first, last),) in read[1:]) / prod(producer.output_shape)
        return producer.output_bytes / profile.batch_size * share

    edges = [(source, reader) for source, readers in enumerate(profile.consumers) for reader in readers]
    return profile.kept.get(needed_bytes, lambda: {edge: needed(*edge) for edge in edges})
