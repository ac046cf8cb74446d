"""What many cuts into stages ask of a cluster, however fast its links are: kept with the profile, as a sweep of
bandwidths asks for the same at every point.

K cuts of L layers with E edges between these; D groups of devices at most, each known by its first device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from partitioners._stages.contiguous import StageCut
from partitioners._stages.stage_costs import needed_bytes
from simulator import collectives
from simulator.cluster import Cluster
from simulator.collectives.ring import around
from simulator.kept import Kept
from simulator.lowering import schedules
from simulator.lowering.costs.shard_costs import layer_seconds
from simulator.parameter_states import REPLICATED
from simulator.plan import StepSettings
from simulator.taskgraph import Floats, Ints, Kind, Route
from simulator.workload import Profile


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Groups:
    """Layers of all cuts, those of one group one after the other: entries of (L, K) values, where those of each of the
    G groups begin, and the cell of each group of (K, D)."""

    entry: Ints
    first: Ints
    cell: Ints
    shape: tuple[int, int]

    def joined(self, values: Floats, join: np.ufunc) -> Floats:
        """Values of layers, shape (L, K), joined by their group, shape (K, D); 0 where there is none.

        join: exact in any order, such as the least or the most.
        """
        joined = np.zeros(self.shape)
        joined.ravel()[self.cell] = join.reduceat(values.ravel()[self.entry], self.first)
        return joined


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rings:
    """The rings in which replicas of stages sum gradients, R of them.

    first_way: where their pairs begin among the ways; members: how many each has, shape (R,). cell, ring, sent_bytes:
    of each sum its cell among (K, D), its ring and what it sums.
    """

    first_way: Ints
    members: Ints
    cell: Ints
    ring: Ints
    sent_bytes: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageLayout:
    """Where cuts lie, and what they compute and send.

    forward_s, backward_s: of one micro-batch on the fastest device of its group, shape (L, K). busy_s: of all
    micro-batches on the slowest, last_backward_s: of one backward pass there, update_s: of the update, or 0 where
    nothing bounds what follows the passes, rounds: how many spans follow one another, 0 where a schedule does not say;
    shape (K, D).
    edges: (layer, reader). routes: of all pairs of devices between which anything moves. apart: which edges are between
    two groups, shape (E, K); sent_bytes: over each of the N of them; ways: the routes of these, of the first and of the
    last devices of the groups, there and then back, shape (2, 2, N). carried_bytes: of activations and gradients by
    link, a row for cuts that carry the same; carried_row: shape (K,). rings: None where sums are not bounded.
    kept: what follows from the routes.
    """

    groups: Groups
    forward_s: Floats
    backward_s: Floats
    busy_s: Floats
    last_backward_s: Floats
    update_s: Floats
    rounds: Floats
    edges: tuple[tuple[int, int], ...]
    routes: tuple[Route, ...]
    apart: npt.NDArray[np.bool_]
    sent_bytes: Floats
    ways: Ints
    carried_bytes: Floats
    carried_row: Ints
    rings: Rings | None
    kept: Kept = field(default_factory=Kept, repr=False)


def stage_layout(
    profile: Profile, cluster: Cluster, step: StepSettings, schedule: str, cuts: Sequence[StageCut]
) -> StageLayout:
    """The layout of the cuts; kept with the profile."""
    ends = tuple((link.source, link.target) for link in cluster.links)
    devices = tuple(device.name for device in cluster.devices), cluster.speeds, cluster.is_formula
    key = stage_layout, ends, devices, step.batch_size, step.synchronisation, step.states, schedule, tuple(cuts)
    return profile.kept.get(key, lambda: _laid_out(profile, cluster, step, schedule, cuts))


def _laid_out(
    profile: Profile, cluster: Cluster, step: StepSettings, schedule: str, cuts: Sequence[StageCut]
) -> StageLayout:
    replicas, microbatches = np.array([(cut.replicas, cut.microbatches) for cut in cuts]).T  # (K,)
    device = _first_devices(len(profile.layers), cuts)  # (K, L)
    slowest, fastest = _group_speeds(cluster, device, replicas)
    forward_s, backward_s = _pass_seconds(profile, step.batch_size // microbatches // replicas)  # (K, L) at speed 1
    needed = needed_bytes(profile)
    edges = tuple(needed)
    ends = np.array(edges, dtype=np.int64).reshape(-1, 2)
    source, target = device.T[ends[:, 0]], device.T[ends[:, 1]]  # (E, K)
    apart = source != target
    outer = np.stack([np.zeros_like(source), np.broadcast_to(replicas - 1, source.shape)])[:, apart]  # (2, N)
    there = np.stack([source[apart] + outer, target[apart] + outer])  # (from and to, first and last, N)
    devices = len(cluster.devices)
    numbers = np.stack([there[0] * devices + there[1], there[1] * devices + there[0]])  # (there and back, ., N)
    pairs, ways = np.unique(numbers, return_inverse=True)
    of_sample = np.array([*needed.values()])[:, None]  # (E, 1)
    sent_bytes = (of_sample * (step.batch_size // microbatches // replicas))[apart]
    rows: dict[tuple[tuple[int, ...], int, int], int] = {}
    carried_row = [rows.setdefault((cut.stages.starts, cut.replicas, cut.groups), len(rows)) for cut in cuts]
    first = np.unique(carried_row, return_index=True)[1].tolist()
    carried = [_carried_bytes(profile, cluster, step.batch_size, device[cut], cuts[cut].replicas) for cut in first]
    update_s, held_bytes = _after_passes(profile, step, device, slowest)
    rings, ring_pairs = _rings(profile, cluster, step, cuts, held_bytes, len(pairs))
    known = [divmod(pair, devices) for pair in pairs.tolist()]
    return StageLayout(
        groups=_groups(device),
        forward_s=np.ascontiguousarray((forward_s / fastest).T),
        backward_s=np.ascontiguousarray((backward_s / fastest).T),
        busy_s=microbatches[:, None] * _added(device, (forward_s + backward_s) / slowest),
        last_backward_s=_added(device, backward_s / slowest),
        update_s=update_s,
        rounds=_rounds(schedule, cuts, int(device.max()) + 1),
        edges=edges,
        routes=tuple(Route((pair,)) for pair in [*known, *ring_pairs]),
        apart=apart,
        sent_bytes=sent_bytes,
        ways=ways.reshape(numbers.shape),
        carried_bytes=np.array(carried),
        carried_row=np.array(carried_row),
        rings=rings,
    )


def _first_devices(layers: int, cuts: Sequence[StageCut]) -> Ints:
    """The first device of each layer's group, shape (K, L)."""
    numbers = np.arange(layers)
    stage = np.array([np.searchsorted(cut.stages.starts, numbers, side="right") - 1 for cut in cuts])
    groups, replicas = np.array([(cut.groups, cut.replicas) for cut in cuts]).T[:, :, None]  # (K, 1)
    return np.asarray(stage % groups * replicas)


def _groups(device: Ints) -> Groups:
    """By the first device of each layer's group, shape (K, L)."""
    shape = len(device), int(device.max()) + 1
    cell = (np.arange(len(device))[:, None] * shape[1] + device).T.ravel()  # of each entry of (L, K)
    entry = np.argsort(cell, kind="stable")
    occupied, first = np.unique(cell[entry], return_index=True)
    return Groups(entry=entry, first=first, cell=occupied, shape=shape)


def _added(device: Ints, values: Floats) -> Floats:
    """Values of layers, (K, L), added up by group in the order of layers, (K, D)."""
    sums = np.zeros((len(device), int(device.max()) + 1))
    np.add.at(sums, (np.arange(len(device))[:, None], device), values)
    return sums


def _pass_seconds(profile: Profile, samples: Ints) -> tuple[Floats, Floats]:
    """(forward_s, backward_s) of every layer with so many samples, shape (K, L) each."""
    sizes, which = np.unique(samples, return_inverse=True)
    table = np.array([layer_seconds(profile, size) for size in sizes.tolist()])  # (sizes, L, 2)
    seconds = table[which.ravel()]  # (K, L, 2)
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


@lru_cache(maxsize=4096)
def _window(schedule: str, stages: int, stage: int, microbatches: int) -> int:
    """How many micro-batches a stage has begun but not yet finished, at most."""
    order = schedules.load(schedule).order
    assert order is not None
    changes = [1 if task.kind == Kind.FORWARD else -1 for task in order(stages, stage, microbatches, 1)]
    return int(np.cumsum(changes).max())


def most_in_flight(schedule: str, stages: int, microbatches: int) -> Ints:
    """Micro-batches that each stage has begun but not yet finished at some moment, shape (stages,); 1 where a schedule
    does not say."""
    known = schedules.load(schedule)
    if known.order is None or known.several_stages:
        return np.ones(stages, dtype=np.int64)
    return np.array([_window(schedule, stages, stage, microbatches) for stage in range(stages)])


def _rounds(schedule: str, cuts: Sequence[StageCut], devices: int) -> Floats:
    """How many spans follow one another on the first device of each group, shape (K, D); 0 on the others."""
    rounds = np.zeros((len(cuts), devices))
    known = schedules.load(schedule)
    if known.order is None or known.several_stages:
        return rounds
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
    """Bytes of activations of a step, at least, from the first device of a group to that of another."""
    largest: dict[tuple[int, int], float] = {}  # of what readers on one device need of one layer
    crossing: dict[tuple[int, int], float] = {}
    places = device.tolist()
    for (source, reader), size_bytes in needed_bytes(profile).items():
        if places[reader] != places[source]:
            to = source, places[reader]
            largest[to] = max(largest.get(to, 0.0), size_bytes)
    for (source, target), size_bytes in largest.items():
        pair = places[source], target
        crossing[pair] = crossing.get(pair, 0.0) + size_bytes * batch_size
    return crossing


def _is_bounded(step: StepSettings) -> bool:
    """Whether updates, on the devices themselves, follow the passes."""
    return step.states == REPLICATED and not collectives.load(step.synchronisation.collective).updates_on_server


def _after_passes(profile: Profile, step: StepSettings, device: Ints, slowest: Floats) -> tuple[Floats, Floats]:
    """Seconds of the update, and bytes of the parameters, of each group, shape (K, D) each."""
    if not _is_bounded(step):
        return (np.zeros((len(device), int(device.max()) + 1)),) * 2
    parameters = np.array([float(layer.parameter_bytes) for layer in profile.layers])
    update_s = _added(device, np.array([layer.update_s for layer in profile.layers]) / slowest)
    return update_s, _added(device, np.broadcast_to(parameters, device.shape))


def _rings(
    profile: Profile, cluster: Cluster, step: StepSettings, cuts: Sequence[StageCut], held_bytes: Floats, ways: int
) -> tuple[Rings | None, list[tuple[int, int]]]:
    """The rings, and the pairs of devices in them, which follow `ways` others."""
    if not _is_bounded(step) or step.synchronisation.collective != "ring" or not cluster.is_formula:
        return None, []
    numbers: dict[tuple[int, int], int] = {}
    sums = [
        (number, first, numbers.setdefault((first, cut.replicas), len(numbers)))
        for number, cut in enumerate(cuts)
        if cut.replicas > 1
        for first in range(0, cut.workers, cut.replicas)
    ]
    if not sums:
        return None, []
    rings = [around(tuple(range(first, first + size))) for first, size in numbers]
    held = [float(held_bytes[number, first]) for number, first, _ in sums]
    made = Rings(
        first_way=ways + np.cumsum([0, *map(len, rings[:-1])]),
        members=np.array([len(ring) for ring in rings], dtype=np.int64),
        cell=np.array([number * held_bytes.shape[1] + first for number, first, _ in sums]),
        ring=np.array([ring for *_, ring in sums]),
        sent_bytes=np.array([step.synchronisation.sent_bytes(size_bytes, profile.dtype) for size_bytes in held]),
    )
    return made, [pair for ring in rings for pair in ring]
