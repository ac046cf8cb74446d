"""Lower bounds on the steps of many cuts into stages at once, without lowering them.

Of one micro-batch, a layer's *head* is the longest path of forward passes and messages before it, its *tail* that of
messages and backward passes after it, its *span* that from the begin of its forward to the end of its backward pass.

- A device starts no earlier than the least head of its layers and computes all M micro-batches of them; then what it
  computed last has its tail still to come, or the device its synchronisation and update:
  step >= head + M x (forward + backward) + max(tail, synchronisation, update)
- Where a schedule lets a device begin a micro-batch only after the one w before it has come back (1F1B: w is the number
  of stages from here to the last), M micro-batches need as many spans: step >= head + ceil(M / w) x span + tail
- A link carries all activations and gradients of the stages on both its sides.

What links carry for others in the meantime and what runtimes add only make a step longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from partitioners._contiguous import Stages, pass_seconds, ring_s
from simulator import collectives
from simulator.cluster import Cluster
from simulator.lowering import schedules
from simulator.parameter_states import REPLICATED
from simulator.plan import Partition, StepSettings
from simulator.taskgraph import Floats, Ints, Kind
from simulator.workload import Profile


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageCut:
    """Stages of equally many replicas, of a number of micro-batches; stage i is on group i modulo `groups`."""

    stages: Stages
    microbatches: int
    groups: int

    @property
    def replicas(self) -> int:
        """Devices of each stage."""
        return self.stages.replicas[0]

    @property
    def workers(self) -> int:
        """Devices of all stages."""
        return self.groups * self.replicas

    def partition(self, profile: Profile, schedule: str) -> Partition:
        """What a strategy decides with it."""
        placements = self.stages.placements(profile, self.workers)
        return Partition(placements=placements, microbatches=self.microbatches, schedule=schedule)


def step_bounds_s(
    profile: Profile, cluster: Cluster, step: StepSettings, schedule: str, cuts: Sequence[StageCut]
) -> tuple[Floats, Floats]:
    """At least so many seconds takes a step of each of the K cuts, and rather so many: with links one at a time, (K,).

    Paths and the busiest link overlap wholly in the first and not at all in the second.
    """
    replicas = np.array([cut.replicas for cut in cuts])  # (K,)
    microbatches = np.array([cut.microbatches for cut in cuts])
    layout = _layout(profile, cluster, step.batch_size, cuts)
    stage, device = layout.stage, layout.device
    samples = step.batch_size // microbatches // replicas
    forward_s, backward_s = _pass_seconds(profile, samples)  # (K, L) each, at speed 1
    slowest, fastest = layout.slowest, layout.fastest
    busy_s = microbatches[:, None] * _by_device(device, (forward_s + backward_s) / slowest)  # (K, D)
    s_per_byte = np.array([0.0 if link.curve else 1 / link.bandwidth_bytes_per_s for link in cluster.links])
    links_s = (layout.carried_bytes * s_per_byte).max(axis=1, initial=0.0)[layout.carried_row]
    known = schedules.load(schedule)
    if known.stashes_weights or known.splits_backward:  # passes that nobody waits for fill the ends
        return np.maximum(busy_s.max(axis=1), links_s), busy_s.max(axis=1) + links_s
    sizes_bytes = np.array([[layer.output_bytes / profile.batch_size] for layer in profile.layers]) * samples  # (L, K)
    there_s, back_s = _messages_seconds(cluster, layout, sizes_bytes)
    messages_s = {edge: (there_s[:, e], back_s[:, e]) for e, edge in enumerate(layout.edges)}
    paths = _paths(stage.shape, forward_s / fastest, backward_s / fastest, messages_s)
    begins_s, drains_s = (_by_device(device, seconds, np.minimum, np.inf) for seconds in paths[:2])
    begins_s, drains_s = (np.where(np.isfinite(seconds), seconds, 0.0) for seconds in (begins_s, drains_s))
    ends_s = _ends_seconds(profile, cluster, step, cuts, device, slowest, _by_device(device, backward_s / slowest))
    by_device_s = begins_s + busy_s + np.maximum(drains_s, ends_s)
    if known.order is not None and not known.several_stages:
        spans_s = _by_device(device, paths[2], np.maximum)
        by_device_s = np.maximum(by_device_s, begins_s + _rounds(schedule, cuts, spans_s.shape[1]) * spans_s + drains_s)
    return np.maximum(by_device_s.max(axis=1), links_s), by_device_s.max(axis=1) + links_s


def _paths(
    shape: tuple[int, ...],
    forward_s: Floats,
    backward_s: Floats,
    messages_s: dict[tuple[int, int], tuple[Floats, Floats]],
) -> tuple[Floats, Floats, Floats]:
    """Heads, tails and spans of every layer of one micro-batch, shape (K, L) each; messages by (source, reader)."""
    head_s, tail_s, span_s = np.zeros(shape), np.zeros(shape), forward_s + backward_s
    for (source, reader), (there_s, back_s) in messages_s.items():  # sources in topological order
        path_s = head_s[:, source] + forward_s[:, source] + there_s
        head_s[:, reader] = np.maximum(head_s[:, reader], path_s)
        path_s = tail_s[:, source] + backward_s[:, source] + back_s
        tail_s[:, reader] = np.maximum(tail_s[:, reader], path_s)
    for (source, reader), (there_s, back_s) in reversed(messages_s.items()):
        path_s = forward_s[:, source] + there_s + span_s[:, reader] + back_s + backward_s[:, source]
        span_s[:, source] = np.maximum(span_s[:, source], path_s)
    return head_s, tail_s, span_s


def _pass_seconds(profile: Profile, samples: Ints) -> tuple[Floats, Floats]:
    """(forward_s, backward_s) of every layer with so many samples, shape (K, L) each."""
    sizes, which = np.unique(samples, return_inverse=True)
    table = np.array([pass_seconds(profile, size) for size in sizes.tolist()])  # (sizes, L, 2)
    seconds = table[which.reshape(-1)]  # (K, L, 2)
    return seconds[..., 0], seconds[..., 1]


def _group_speeds(cluster: Cluster, device: Ints, replicas: Ints) -> tuple[Floats, Floats]:
    """The speeds of the slowest and the fastest device of each layer's stage, shape (K, L) each."""
    speeds = np.array(cluster.speeds)
    slowest, fastest = np.empty(device.shape), np.empty(device.shape)
    for count in np.unique(replicas).tolist():
        windows = np.lib.stride_tricks.sliding_window_view(speeds, count)  # (devices - count + 1, count)
        rows = replicas == count
        slowest[rows], fastest[rows] = windows.min(axis=1)[device[rows]], windows.max(axis=1)[device[rows]]
    return slowest, fastest


def _by_device(device: Ints, values: Floats, join: np.ufunc = np.add, start: float = 0.0) -> Floats:
    """Values of layers joined by the first device of their group, shape (K, D) of (K, L)."""
    joined = np.full((len(device), int(device.max()) + 1), start)
    join.at(joined, (np.arange(len(device))[:, None], device), values)
    return joined


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Layout:
    """Where K cuts of L layers lie on a cluster, however fast its links are.

    stage, device: of each layer its stage and the first device of its group; slowest, fastest: the speeds of the
    slowest and the fastest device of the group, shape (K, L). edges: (layer, reader), E of them; apart: which are
    between two groups, shape (K, E). pairs: devices between which anything moves; ways: their numbers for the N
    messages that are apart, of the first and of the last devices of the groups, there and then back, shape (2, 2, N).
    carried_bytes: of activations and gradients by link, a row for cuts that carry the same; carried_row: shape (K,).
    """

    stage: Ints
    device: Ints
    slowest: Floats
    fastest: Floats
    edges: tuple[tuple[int, int], ...]
    apart: npt.NDArray[np.bool_]
    pairs: tuple[tuple[int, int], ...]
    ways: Ints
    carried_bytes: Floats
    carried_row: Ints


def _layout(profile: Profile, cluster: Cluster, batch_size: int, cuts: Sequence[StageCut]) -> _Layout:
    """The layout of the cuts, kept with the profile: a sweep of bandwidths asks for the same at every point."""
    ends = tuple((link.source, link.target) for link in cluster.links)
    key = _layout, ends, tuple(device.name for device in cluster.devices), cluster.speeds, batch_size, tuple(cuts)
    if key not in profile.derived:
        profile.derived[key] = _laid_out(profile, cluster, batch_size, cuts)
    layout: _Layout = profile.derived[key]
    return layout


def _laid_out(profile: Profile, cluster: Cluster, batch_size: int, cuts: Sequence[StageCut]) -> _Layout:
    layers, last = np.arange(len(profile.layers)), np.array([[cut.replicas - 1] for cut in cuts])
    stage = np.array([np.searchsorted(cut.stages.starts, layers, side="right") - 1 for cut in cuts])  # (K, L)
    device = stage % np.array([[cut.groups] for cut in cuts]) * (last + 1)
    slowest, fastest = _group_speeds(cluster, device, last[:, 0] + 1)
    edges = tuple((source, reader) for source, readers in enumerate(profile.consumers) for reader in readers)
    ends = np.array(edges, dtype=np.int64).reshape(-1, 2)
    source, target = device[:, ends[:, 0]], device[:, ends[:, 1]]  # (K, E)
    apart = source != target
    outer = np.stack([np.zeros_like(source), np.broadcast_to(last, source.shape)])[:, apart]  # (2, N)
    there = np.stack([source[apart] + outer, target[apart] + outer])  # (from and to, first and last, N)
    devices = len(cluster.devices)
    numbers = np.stack([there[0] * devices + there[1], there[1] * devices + there[0]])  # (there and back, ., N)
    pairs, ways = np.unique(numbers, return_inverse=True)
    rows: dict[tuple[tuple[int, ...], int], int] = {}
    carried_row = [rows.setdefault((cut.stages.starts, cut.replicas), len(rows)) for cut in cuts]
    first = np.unique(carried_row, return_index=True)[1].tolist()
    carried = [_carried_bytes(profile, cluster, batch_size, device[cut], cuts[cut].replicas) for cut in first]
    return _Layout(
        stage=stage,
        device=device,
        slowest=slowest,
        fastest=fastest,
        edges=edges,
        apart=apart,
        pairs=tuple(divmod(pair, devices) for pair in pairs.tolist()),
        ways=ways.reshape(numbers.shape),
        carried_bytes=np.array(carried),
        carried_row=np.array(carried_row),
    )


def _messages_seconds(cluster: Cluster, layout: _Layout, sizes_bytes: Floats) -> tuple[Floats, Floats]:
    """Of each layer's output to each reader, there and back, shape (K, E) each: the quicker of the outer pairs.

    None inside a group. sizes_bytes: of each layer, shape (L, K).
    """
    sent_bytes = sizes_bytes[[source for source, _ in layout.edges]].T[layout.apart]  # (N,)
    known = np.array([_way(cluster, pair) for pair in layout.pairs]).reshape(-1, 2)
    latency_s, s_per_byte = known[layout.ways].transpose(3, 0, 1, 2)  # (there and back, first and last, N)
    seconds = np.zeros((2, *layout.apart.shape))
    seconds[:, layout.apart] = (latency_s + sent_bytes * s_per_byte).min(axis=1)
    return seconds[0], seconds[1]


def _way(cluster: Cluster, pair: tuple[int, int]) -> tuple[float, float]:
    """(latency_s, seconds per byte); nothing of links with measured curves, which the bound leaves out."""
    if any(cluster.links[link].curve for link in cluster.route(*pair)):
        return 0.0, 0.0
    return cluster.latency_s(*pair), 1 / cluster.bandwidth_bytes_per_s(*pair)


@lru_cache(maxsize=4096)
def _window(schedule: str, stages: int, stage: int, microbatches: int) -> int:
    """How many micro-batches a stage has begun but not yet finished, at most."""
    order = schedules.load(schedule).order
    assert order is not None
    changes = [1 if task.kind == Kind.FORWARD else -1 for task in order(stages, stage, microbatches, 1)]
    return int(np.cumsum(changes).max())


def _rounds(schedule: str, cuts: Sequence[StageCut], devices: int) -> Floats:
    """How many spans follow one another on the first device of each group, shape (K, D); 0 on the others."""
    rounds = np.zeros((len(cuts), devices))
    for number, cut in enumerate(cuts):
        for stage in range(cut.groups):
            window = _window(schedule, cut.groups, stage, cut.microbatches)
            rounds[number, stage * cut.replicas] = -(-cut.microbatches // window)
    return rounds


def _carried_bytes(profile: Profile, cluster: Cluster, batch_size: int, device: Ints, replicas: int) -> Floats:
    """Activations and gradients of a step over each link, by the first device of each layer's group."""
    carried = np.zeros(len(cluster.links))
    for (source, reader), size_bytes in _crossing_bytes(profile, batch_size, device).items():
        for k in range(replicas):
            carried[[*cluster.route(source + k, reader + k)]] += size_bytes / replicas
            carried[[*cluster.route(reader + k, source + k)]] += size_bytes / replicas
    return carried


def _crossing_bytes(profile: Profile, batch_size: int, device: Ints) -> dict[tuple[int, int], float]:
    """Bytes of activations of a step from the first device of a group to that of another."""
    crossing: dict[tuple[int, int], float] = {}
    places = device.tolist()
    for source, readers in enumerate(profile.consumers):
        for target in {places[reader] for reader in readers} - {places[source]}:
            pair = places[source], target
            size_bytes = profile.layers[source].output_bytes / profile.batch_size * batch_size
            crossing[pair] = crossing.get(pair, 0.0) + size_bytes
    return crossing


def _ends_seconds(
    profile: Profile,
    cluster: Cluster,
    step: StepSettings,
    cuts: Sequence[StageCut],
    device: Ints,
    slowest: Floats,
    backward_s: Floats,
) -> Floats:
    """At least so long synchronisation and update go on after each device's last backward pass, shape (K, D).

    backward_s: of one micro-batch on each device, which synchronisation may overlap.
    """
    if step.states != REPLICATED or collectives.load(step.synchronisation.collective).updates_on_server:
        return np.zeros(backward_s.shape)
    update_s = _by_device(device, np.array([layer.update_s for layer in profile.layers]) / slowest)
    if step.synchronisation.collective != "ring" or cluster.collectives:
        return update_s
    parameters = np.array([float(layer.parameter_bytes) for layer in profile.layers])
    held_bytes = _by_device(device, np.broadcast_to(parameters, device.shape))
    synchronised_s = np.zeros(backward_s.shape)
    replicas, workers = np.array([(cut.replicas, cut.workers) for cut in cuts]).T
    for size in np.unique(replicas[replicas > 1]).tolist():
        for first in range(0, int(workers[replicas == size].max()), size):
            alike = np.flatnonzero((replicas == size) & (workers > first))  # all sum over the same devices
            held = held_bytes[alike, first].tolist()
            sent_bytes = np.array([step.synchronisation.sent_bytes(size_bytes, profile.dtype) for size_bytes in held])
            synchronised_s[alike, first] = ring_s(cluster, range(first, first + size), sent_bytes)
    return np.asarray(np.maximum(synchronised_s - backward_s, update_s))
