"""The best contiguous stages, by exact dynamic programming over measured times and transfer costs.

The objective is PipeDream's (Narayanan et al., SOSP 2019, section 3.1): a pipeline is as fast as the slowest
of its stages and of the transfers between them, its *pace* in seconds per micro-batch; among stages of equal
pace the ones with the least time in transfers win.

- A stage is a run of layers in topological order, on one device or replicated over consecutive ones. It
  takes the forward and backward seconds of its layers on the largest share of whole samples, on its slowest device.
- Replicas sum gradients by a ring once per step, overlapped with compute: a stage's pace is the larger of its
  compute and 1/M of the ring's time, for M micro-batches.
- A cut carries every tensor made before and read after it, once forward and once as a gradient, between the
  neighbouring devices on both sides; q senders and r receivers share the bytes min(q, r) ways. A tensor that
  skips a stage counts at each cut that it crosses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from simulator.cluster import Cluster
from simulator.collectives.ring import ring
from simulator.errors import InputError
from simulator.lowering.costs import shard_seconds
from simulator.plan import Sharding
from simulator.taskgraph import Floats, Ints
from simulator.workload import Profile

ROUNDING = 1e-9
"""Paces this close (relative) are equal: the same seconds summed in another order."""


def contiguous_stages(
    profile: Profile,
    cluster: Cluster,
    *,
    microbatch_size: int,
    microbatches: int = 1,
    replicas: bool = False,
    chunks: int = 1,
) -> Stages:
    """The best stages over all workers of `cluster`, one device each unless `replicas` are allowed.

    With several `chunks`, stage i is on worker i modulo their number, and no stage has replicas.
    With replicas, the number of stages p is the one of the smallest (M + p - 1) x pace, the time of a whole step.
    Raises InputError when there are more workers than the layers can occupy.
    """
    layers, devices, most_replicas = len(profile.layers), cluster.workers, microbatch_size if replicas else 1
    if devices > layers * most_replicas:
        raise InputError(
            f"{devices} devices need {-(-devices // most_replicas)} stages, but {profile.model!r} has {layers} layers "
            f"and every stage holds at least one; use at most {layers * most_replicas} devices"
        )
    costs = measured_costs(profile, cluster, microbatch_size, microbatches)
    if chunks > 1:
        return best_stages(costs.round(devices), layers=layers, devices=devices * chunks)
    return best_stages(
        costs,
        layers=layers,
        devices=devices,
        most_replicas=min(most_replicas, devices),
        fill=1 / microbatches,
    )


def best_stages(costs: Costs, *, layers: int, devices: int, most_replicas: int = 1, fill: float = 0.0) -> Stages:
    """The stages of the smallest (1 + fill x (stages - 1)) x pace that use every device.

    Two passes, because the smallest maximum and the smallest sum do not share their optimal prefixes: the first
    finds the pace, the second the least transfer time among the stages that keep it.
    """
    paces = _sweep(costs, np.maximum, layers, devices, most_replicas, devices)[devices][:, :, -1].min(axis=1).tolist()
    stages = min(range(1, devices + 1), key=lambda p: (1 + fill * (p - 1)) * paces[p])
    kept = costs.within(paces[stages] * (1 + ROUNDING))
    transfers = _sweep(kept, np.add, layers, devices, most_replicas, stages)
    return Stages(*_walk_back(kept, np.add, transfers, stages, devices), pace_s=paces[stages])


def stages_of_counts(costs: Costs, *, layers: int, counts: Sequence[int], group: int = 1) -> list[Stages]:
    """The best stages of each of `counts`, one of the costs' groups of so many devices for each.

    The first pass, over the most stages, has the paces of fewer as well.
    """
    paces = _sweep(costs, np.maximum, layers, max(counts), 1, max(counts))
    made = []
    for count in counts:
        pace = float(paces[count][count, 1, -1])
        kept = costs.within(pace * (1 + ROUNDING))
        transfers = _sweep(kept, np.add, layers, count, 1, count)
        starts, _ = _walk_back(kept, np.add, transfers, count, count)
        made.append(Stages(starts, (group,) * count, pace_s=pace))
    return made


@dataclass(frozen=True, slots=True)
class Stages:
    """Stage i holds layers starts[i] to starts[i + 1] - 1, on replicas[i] devices after those of stage i - 1."""

    starts: tuple[int, ...]
    replicas: tuple[int, ...]
    pace_s: float

    def step_s(self, microbatches: int) -> float:
        """Seconds of a step if every stage took the pace: GPipe's bubble fraction is (p - 1) / (M + p - 1)."""
        return (microbatches + len(self.starts) - 1) * self.pace_s

    def placements(self, profile: Profile, workers: int | None = None) -> dict[str, Sharding]:
        """The sharding of every layer of `profile`; stages go round `workers` where there are more of them.

        It is kept with the profile: searches and sweeps come to the same stages over and over.
        """
        key = Stages.placements, self.starts, self.replicas, workers
        if key not in profile.derived:
            profile.derived[key] = self._placements(profile, workers)
        placements: dict[str, Sharding] = profile.derived[key]
        return placements

    def _placements(self, profile: Profile, workers: int | None) -> dict[str, Sharding]:
        firsts = np.cumsum((0, *self.replicas)) % (workers or sum(self.replicas) + 1)
        stage_of = np.searchsorted(self.starts, np.arange(len(profile.layers)), side="right") - 1
        shardings = [
            Sharding(degrees=(count, 1, 1, 1), devices=tuple(range(first, first + count)))
            for count, first in zip(self.replicas, firsts[:-1].tolist(), strict=True)
        ]
        return {layer.name: shardings[stage] for layer, stage in zip(profile.layers, stage_of.tolist(), strict=True)}


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds per micro-batch of every possible stage and cut, for L layers.

    stage_s(device, r): shape (L+1, L+1), entry [i, j] a stage of layers i to j-1 on devices device to
    device+r-1; infinite unless i < j. transfer_s(device, q, r): shape (L+1,), entry [i] the cut before layer i,
    from q devices that end before `device` to r that begin there.
    """

    stage_s: Callable[[int, int], Floats]
    transfer_s: Callable[[int, int, int], Floats]

    def round(self, devices: int) -> Costs:
        """The same for stages that go round and round the devices; from the last to the first as the costliest cut."""

        def transfer_s(device: int, q: int, r: int) -> Floats:
            if device % devices or not device:
                return self.transfer_s(device % devices, q, r)
            around = [self.transfer_s(d, q, r) for d in range(1, devices)]
            return np.max(around, axis=0) if around else 0.0 * self.transfer_s(0, q, r)

        return Costs(lambda device, r: self.stage_s(device % devices, r), transfer_s)

    def at(self, positions: Ints) -> Costs:
        """The same for stages that begin and end at some of the positions alone."""
        inside = np.ix_(positions, positions)
        return Costs(
            lambda device, r: self.stage_s(device, r)[inside],
            lambda device, q, r: self.transfer_s(device, q, r)[positions],
        )

    def within(self, limit: float) -> Costs:
        """The same transfers and free stages, both infinite above `limit` seconds."""
        return Costs(
            lambda device, r: np.where(self.stage_s(device, r) <= limit, 0.0, np.inf),
            lambda device, q, r: _above_is_infinite(self.transfer_s(device, q, r), limit),
        )


def measured_costs(
    profile: Profile, cluster: Cluster, microbatch_size: int, microbatches: int, group: int = 1
) -> Costs:
    """The costs that the module's docstring states, in seconds per micro-batch; a device is a group of so many."""
    count = len(profile.layers)
    crossing = crossing_bytes(profile) * (microbatch_size / profile.batch_size)
    parameters = _differences(np.array([layer.parameter_bytes for layer in profile.layers], dtype=np.float64))
    empty = np.arange(count + 1)[:, None] >= np.arange(count + 1)  # (L+1, L+1): where i >= j

    @cache
    def compute_s(replicas: int) -> Floats:
        samples = -(-microbatch_size // replicas)  # the replica with the most has this many
        return _differences(pass_seconds(profile, samples).sum(axis=1))

    @cache
    def stage_s(device: int, replicas: int) -> Floats:
        members = range(device * group, (device + replicas) * group)
        seconds = compute_s(len(members)) / min(cluster.speeds[d] for d in members)
        if len(members) > 1:
            seconds = np.maximum(seconds, ring_s(cluster, members, parameters) / microbatches)
        return np.where(empty, np.inf, seconds)

    @cache
    def shared_s(device: int, ways: int) -> Floats:
        sizes, last, first = crossing / ways, (device * group - 1) % cluster.workers, device * group
        return _messages_s(cluster, last, first, sizes) + _messages_s(cluster, first, last, sizes)

    return Costs(stage_s, lambda device, q, r: shared_s(device, min(q, r) * group))


def pass_seconds(profile: Profile, samples: int) -> Floats:
    """(forward_s, backward_s) of every layer with so many samples at speed 1, shape (L, 2)."""
    key = pass_seconds, samples
    if key not in profile.derived:
        profile.derived[key] = np.array([shard_seconds(profile, layer, samples) for layer in profile.layers])
    return np.asarray(profile.derived[key])


def crossing_bytes(profile: Profile) -> Floats:
    """Shape (L+1,): bytes, for the profile's batch, of the tensors made before layer i and read by it or later."""
    change = np.zeros(len(profile.layers) + 1)
    for i, (layer, readers) in enumerate(zip(profile.layers, profile.consumers, strict=True)):
        if readers:
            change[i + 1] += layer.output_bytes
            change[max(readers) + 1] -= layer.output_bytes
    return np.cumsum(change)


def _messages_s(cluster: Cluster, source: int, target: int, sizes_bytes: Floats) -> Floats:
    """`Cluster.transfer_s` of each of several sizes."""
    if source == target or any(cluster.links[link].curve for link in cluster.route(source, target)):
        return np.array([cluster.transfer_s(source, target, size) for size in sizes_bytes.tolist()])
    return cluster.latency_s(source, target) + sizes_bytes / cluster.bandwidth_bytes_per_s(source, target)


def ring_s(cluster: Cluster, group: range, size_bytes: Floats) -> Floats:
    """Seconds of an uncontended ring all-reduce of each of `size_bytes` over `group`, by the closed form."""
    (task,) = ring(cluster, group, 1.0)
    pairs = task.route.pairs if task.route else ()
    bandwidth = min(cluster.bandwidth_bytes_per_s(a, b) for a, b in pairs)
    latency = max(cluster.latency_s(a, b) for a, b in pairs)
    return size_bytes * (task.bytes / bandwidth) + 2 * (len(group) - 1) * latency * (size_bytes > 0)


def _differences(values: Floats) -> Floats:
    """Entry [i, j] is the sum of values i to j-1; shape (L+1, L+1) of values (L,)."""
    sums = np.concatenate(([0.0], np.cumsum(values)))  # (L+1,)
    return sums[None, :] - sums[:, None]  # (L+1, L+1)


def _above_is_infinite(values: Floats, limit: float) -> Floats:
    return np.where(values <= limit, values, np.inf)


def _sweep(costs: Costs, join: np.ufunc, layers: int, devices: int, most_replicas: int, stages: int) -> list[Floats]:
    """The least value of every state, where `join` adds a cost to a value; infinite where there is none.

    By the devices so far, shape (stages+1, replicas+1, L+1): stages so far, replicas of the last stage (0 before the
    first), layers so far. All numbers of stages are filled at once.
    """
    values = [np.full((stages + 1, min(most_replicas, used) + 1, layers + 1), np.inf) for used in range(devices + 1)]
    values[0][0, 0, 0] = 0.0
    for used in range(1, devices + 1):
        for r in range(1, min(most_replicas, used) + 1):
            # stages before that can have used the other devices
            before = slice(-(-(used - r) // most_replicas), min(used - r, stages - 1) + 1)
            after = slice(before.start + 1, before.stop + 1)
            if before.start < before.stop:
                begun = _entries(costs, join, values[used - r][before], used - r, r).min(axis=1)  # (stages, L+1)
                ended = join(begun[:, :, None], costs.stage_s(used - r, r))  # (stages, first layer, layer behind last)
                values[used][after, r] = ended.min(axis=1)
    return values


def _entries(costs: Costs, join: np.ufunc, values: Floats, device: int, r: int) -> Floats:
    """Values of the states before a stage of r replicas from `device` on, with its cut; shape (..., replicas+1, L+1).

    A stage on the first device has no cut.
    """
    if device == 0:
        return values  # nothing is sent to the first stage
    cuts = [costs.transfer_s(device, max(q, 1), r) for q in range(values.shape[-2])]
    entries: Floats = join(values, np.stack(cuts))
    return entries


def _walk_back(
    costs: Costs, join: np.ufunc, values: list[Floats], stages: int, devices: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The first layer and the replicas of every stage of the least value of all layers on all devices."""
    used, end, r = devices, -1, int(values[devices][stages, :, -1].argmin())
    starts, replicas = [], []
    for p in range(stages, 0, -1):
        replicas.append(r)
        entries = _entries(costs, join, values[used - r][p - 1], used - r, r)  # (replicas before, L+1)
        end = int(join(entries.min(axis=0), costs.stage_s(used - r, r)[:, end]).argmin())
        starts.append(end)
        used, r = used - r, int(entries[:, end].argmin())
    return tuple(reversed(starts)), tuple(reversed(replicas))
