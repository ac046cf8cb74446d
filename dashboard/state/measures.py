"""Numbers beyond the report: where devices' time goes, how long tensors are in flight, MFU, and whose device it is."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from simulator.cluster import Cluster
from simulator.device_names import unlike
from simulator.errors import InputError
from simulator.language_models.accelerators import accelerator
from simulator.language_models.training_stack import accelerator_of
from simulator.report.metrics import Report
from simulator.report.resource_use import DeviceUse
from simulator.report.step_totals import PHASES
from simulator.report.time_spans import covered_s, length, union
from simulator.report.traffic import touches
from simulator.run import Run
from simulator.taskgraph import Floats, Kind
from simulator.workload import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One part of the step: its name, seconds of device time, ratio of all of it, and whether it is a loss."""

    name: str
    seconds: float
    ratio: float
    lost: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Where the step goes, for all workers together and for each; every list has the same names in one order."""

    total: tuple[Share, ...]
    devices: tuple[tuple[Share, ...], ...]


# "overlapped" is compute, too: with transfers from or to the device in flight beside it.
COMPUTE, OVERLAPPED = "compute", "overlapped"
_AWAITED = {"forward": "activations", "backward": "gradients", "synchronisation": "all-reduce"}
EXPOSED = {phase: f"wait: {_AWAITED.get(phase, phase)}" for phase in PHASES}
"""What a device that does not compute waits for, by the phase of the transfers in flight."""
LAUNCHES, BUBBLE, IDLE = "host launches", "bubble", "no work"
NAMES = (COMPUTE, OVERLAPPED, *EXPOSED.values(), LAUNCHES, BUBBLE, IDLE)
_LOST = frozenset((*EXPOSED.values(), LAUNCHES, BUBBLE, IDLE))
_SEQUENCES = ("attention", "transformer", "embedding")


def shares(run: Run, cluster: Cluster) -> Shares:
    """Split every worker's step by what it did or waited for; the parts add up to the step.

    A moment without compute but with transfers from or to the device counts for the phase of those, for
    synchronisation last where several are in flight.
    """
    step_s, seconds = run.report.step_s, _device_seconds(run, cluster)
    parts = tuple(_as_shares(row, step_s) for row in seconds)
    return Shares(total=_as_shares(seconds.sum(axis=0), step_s * cluster.workers), devices=parts)


def fullest(report: Report) -> DeviceUse:
    """The device that came nearest to its capacity; where there is none, the one that used the most."""
    return max(report.devices, key=lambda d: (d.peak_memory_bytes / (d.memory_bytes or inf), d.peak_memory_bytes))


def transfer_seconds(run: Run, layer: int) -> float:
    """Seconds during which a tensor of `layer` (activation or its gradient) is in flight."""
    graph, timeline = run.graph, run.timeline
    in_flight = (graph.layer == layer) & ((graph.kind == Kind.ACTIVATION) | (graph.kind == Kind.GRADIENT))
    return length(union(np.stack([timeline.start_s[in_flight], timeline.end_s[in_flight]], axis=1)))


def _device_seconds(run: Run, cluster: Cluster) -> Floats:
    """Seconds of every worker by NAMES, shape (workers, names)."""
    graph, timeline, count = run.graph, run.timeline, len(cluster.devices)
    start_s, end_s = timeline.start_s, timeline.end_s
    tasks = np.flatnonzero(graph.route < 0)
    owner = graph.device[tasks]
    transfers, ends = touches(graph, np.ones(count, dtype=np.bool_))
    busy = seen = covered_s(start_s[tasks], end_s[tasks], owner, count)
    exposed = []
    for kind in PHASES.values():
        of_kind = graph.kind[transfers] == kind
        tasks, owner = np.append(tasks, transfers[of_kind]), np.append(owner, ends[of_kind])
        covered = covered_s(start_s[tasks], end_s[tasks], owner, count) if of_kind.any() else seen
        exposed.append(covered - seen)
        seen = covered
    beside = busy + covered_s(start_s[transfers], end_s[transfers], ends, count) - seen
    waiting, works = run.report.step_s - seen, busy > 0
    bubble = np.minimum([device.bubble_s for device in run.report.devices], waiting)  # the others wait for their host
    rest = [np.where(works, waiting - bubble, 0.0), np.where(works, bubble, 0.0), np.where(works, 0.0, waiting)]
    seconds: Floats = np.maximum(np.stack([busy - beside, beside, *exposed, *rest], axis=1), 0.0)
    return seconds[: cluster.workers]


def _as_shares(seconds: Floats, whole_s: float) -> tuple[Share, ...]:
    return tuple(
        Share(name=name, seconds=float(s), ratio=float(s) / whole_s if whole_s else 0.0, lost=name in _LOST)
        for name, s in zip(NAMES, seconds, strict=True)
    )


def mismatch(profile: Profile, cluster: Cluster) -> str:
    """A sentence where the profile was measured on another kind of device than the cluster's, else empty."""
    if not (others := unlike(cluster, profile.device)):
        return ""
    return f"measured on {profile.device}, simulated on {', '.join(others)}: set the device speed to what theirs is"


def utilisation(profile: Profile, cluster: Cluster, report: Report) -> float | None:
    """Model FLOP per second over the devices' peak, None where unknown."""
    flops = profile.flops_per_sample * report.batch_size
    if not profile.device or unlike(cluster, profile.device) or not flops or not report.step_s:
        return None
    try:
        sheet = accelerator(accelerator_of(cluster))
    except InputError:
        return None
    others = {"float32": sheet.fp32_flops_per_s, "tf32": sheet.tf32_flops_per_s}
    peak = others.get(profile.dtype, sheet.flops_per_s)
    return flops / report.step_s / (peak * cluster.workers) if peak else None


def sequence_length(profile: Profile) -> int:
    """Tokens of a sample of a network over sequences, 0 of another."""
    if not any(layer.kind.lower().startswith(_SEQUENCES) for layer in profile.layers):
        return 0
    return max(layer.output_shape[1] for layer in profile.layers)
