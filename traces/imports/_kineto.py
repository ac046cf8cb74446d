"""The profile that recordings of torch.profiler make, with the structure of the model.

Several files of one batch size are ranks of one run, or more steps: layers are medians over all of them, collectives
the least over ranks and steps, since whoever comes first waits. Files of other batch sizes become scaling points.
"""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from simulator.errors import InputError
from simulator.units import format_bytes, format_time
from simulator.workload import Layer, Profile, ScalingPoint
from traces.capture.command import summary
from traces.capture.measurement_rounds import median, rounded, spread
from traces.imports._attribution import COPIES, RECOMPUTED, RecordedStep, attribute
from traces.imports._collectives import CollectiveCall, curves, is_collective, least
from traces.imports._imported import Imported, ImportOptions
from traces.imports._recording import Recording, read_recording
from traces.imports._structure import Structure, recorded_input, structure
from traces.zoo.networks import ZOO, Network

MOST_WITHOUT_OPERATOR = 0.1
MOST_UNMATCHED = 0.001
LEAST_BUSY = 0.8
RATIOS = (0.8, 1.25)
_TF32 = re.compile(r"tf32|tensorop_s1688gemm", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecordedSteps:
    """What recordings of one batch size say. wall_s: of every kept step, from the end of one to the end of the next."""

    batch_size: int
    network: Structure
    recordings: tuple[Recording, ...]
    steps: tuple[RecordedStep, ...]
    wall_s: tuple[float, ...]
    remarks: tuple[str, ...]

    def seconds(self, name: str) -> float:
        """The median over steps of one of their times."""
        return float(statistics.median(getattr(step, name) for step in self.steps))

    @property
    def busy_share(self) -> float:
        """Of the wall clock, how long anything ran; at most 1."""
        shares = [step.active_s / wall for step, wall in zip(self.steps, self.wall_s, strict=True) if wall > 0]
        return min(statistics.median(shares), 1.0) if shares else 0.0

    @property
    def on_gpu(self) -> bool:
        return any(recording.device != "cpu" for recording in self.recordings)

    @property
    def host_bound(self) -> bool:
        return self.on_gpu and self.busy_share < LEAST_BUSY

    @property
    def step_s(self) -> float:
        """The wall clock, unless the host or other ranks slowed it: then the time that this GPU computed for itself.

        Recomputation is left out of both: it is the plan's, not the network's.
        """
        busy_s = self.seconds("busy_s") - self.apart_s.get(COPIES, 0.0)
        whole_s = busy_s if self.host_bound or self.communicates else statistics.median(self.wall_s)
        return whole_s - self.apart_s.get(RECOMPUTED, 0.0)

    @property
    def communicates(self) -> bool:
        return any(step.collectives for step in self.steps)

    @property
    def apart_s(self) -> dict[str, float]:
        """Medians over steps of what stands beside the layers."""
        names = {name for step in self.steps for name in step.apart_s}
        return {name: statistics.median(step.apart_s.get(name, 0.0) for step in self.steps) for name in names}


def read_recordings(paths: Sequence[Path], options: ImportOptions) -> Imported:
    """The profile that recordings of a model make. Raises InputError where they cannot be trusted, naming why."""
    if not options.model:
        raise InputError(
            f"model is missing: {paths[0]} does not say whose it is; known: {', '.join(ZOO)}, or module:name"
        )
    recordings = [read_recording(path) for path in paths]
    for recording in recordings:
        _check_operators(recording)
    network, sizes, dtype, wider = recorded_input(recordings, options)
    runs = [
        _run(network, size, dtype, [r for r, s in zip(recordings, sizes, strict=True) if s == size])
        for size in sorted(set(sizes), reverse=True)
    ]
    run = runs[0]
    tf32 = dtype == "float32" and any(_TF32.search(work.name) for r in run.recordings for work in r.work)
    remarks = (*run.remarks, *_remarks(run, tf32))
    here = run.recordings[0].device
    profile = Profile(
        model=options.model,
        device=options.device or ("CPU of a torch.profiler trace" if here == "cpu" else here),
        batch_size=run.batch_size,
        dtype="tf32" if tf32 else dtype,
        step_s=rounded(run.step_s),
        step_spread_s=spread(run.wall_s) if not run.host_bound else 0.0,
        software=dict(run.recordings[0].software),
        command=options.command,
        notes=f"imported from torch.profiler's {', '.join(path.name for path in paths)}; medians of {len(run.steps)} "
        "steps; structure from the model; the update is shared out by parameters" + "".join(f"; {x}" for x in remarks),
        layers=tuple(_layers(runs, wider)),
    )
    profile = replace(profile, layers_to_step=rounded(profile.layers_s / run.step_s))
    _check_ratio(profile, options.force)
    calls = least([step.collectives for step in run.steps])
    lines = (summary(profile), *remarks, *_collective_lines(calls), _unmatched_line(run))
    return Imported(profile=profile, collectives=curves(calls), remarks=lines)


def _run(network: Network, batch_size: int, dtype: str, recordings: Sequence[Recording]) -> _RecordedSteps:
    built = structure(network, batch_size, dtype)
    steps: list[RecordedStep] = []
    walls: list[float] = []
    remarks = []
    for recording in recordings:
        recorded, remark = attribute(recording, built)
        wall_s = list(_wall_s(recorded)) if recording.device != "cpu" else [step.duration_s for step in recorded]
        first = _warmed_up(recorded, wall_s)
        steps += recorded[first:]
        walls += wall_s[first:]
        remarks += [remark] if remark else []
        remarks += [f"the first {first} of {len(recorded)} steps dropped, host-bound"] if first else []
    run = _RecordedSteps(
        batch_size=batch_size,
        network=built,
        recordings=tuple(recordings),
        steps=tuple(steps),
        wall_s=tuple(walls),
        remarks=tuple(remarks),
    )
    _check_unmatched(run)
    return run


def _wall_s(steps: Sequence[RecordedStep]) -> Iterator[float]:
    """From the end of one step's last kernel to that of the next; the host may run steps ahead of the GPU."""
    for number, step in enumerate(steps):
        before = steps[number - 1] if number else None
        follows = before is not None and step.start_s - (before.start_s + before.duration_s) < 0.05 * step.duration_s
        if before is not None and follows and step.end_s > before.end_s:
            yield step.end_s - before.end_s
        else:
            yield max(step.duration_s, step.active_s)


def _warmed_up(steps: Sequence[RecordedStep], wall_s: Sequence[float]) -> int:
    """How many first steps to drop: those in which the GPU waited, where it does not in most."""
    shares = [step.active_s / wall if wall > 0 else 0.0 for step, wall in zip(steps, wall_s, strict=True)]
    if statistics.median(shares) < LEAST_BUSY:
        return 0
    return next(number for number, share in enumerate(shares) if share >= LEAST_BUSY)


def _layers(runs: Sequence[_RecordedSteps], wider: int) -> Iterator[Layer]:
    """The layers of the largest batch size, with those of the smaller ones as points.

    wider: how many times the parameters are wider than the activations, under automatic mixed precision.
    """
    run = runs[0]
    total_bytes = sum(layer.parameter_bytes for layer in run.network.layers) or 1
    for i, layer in enumerate(run.network.layers):
        forward, backward = _times(run, i)
        points = [(other.batch_size, *_times(other, i)) for other in runs[:0:-1]]
        yield replace(
            layer,
            forward_s=median(forward),
            backward_s=median(backward),
            update_s=rounded(run.seconds("update_s") * layer.parameter_bytes / total_bytes),
            forward_spread_s=spread(forward),
            backward_spread_s=spread(backward),
            parameter_bytes=layer.parameter_bytes * wider,
            scaling=tuple(
                ScalingPoint(batch_size=size, forward_s=median(smaller), backward_s=median(after))
                for size, smaller, after in points
            ),
        )


def _times(run: _RecordedSteps, layer: int) -> tuple[list[float], list[float]]:
    return [step.forward_s[layer] for step in run.steps], [step.backward_s[layer] for step in run.steps]


def _check_operators(recording: Recording) -> None:
    total_s = sum(work.duration_s for work in recording.work if not is_collective(work))
    without_s = sum(w.duration_s for w in recording.work if w.origin is None and not is_collective(w))
    if total_s <= 0:
        raise InputError(f"{recording.path}: nothing ran in it; record at least one training step")
    if without_s > MOST_WITHOUT_OPERATOR * total_s:
        raise InputError(
            f"{recording.path}: kernels without operators are {without_s / total_s:.0%} of the time: CUDA graphs and "
            "compiled models hide theirs; record an eager run, with activities=[CPU, CUDA]"
        )


def _check_unmatched(run: _RecordedSteps) -> None:
    busy_s = sum(step.busy_s for step in run.steps)
    unmatched: dict[str, float] = defaultdict(float)
    for name, seconds in (entry for step in run.steps for entry in step.unmatched_s.items()):
        unmatched[name] += seconds
    worst = max(unmatched, key=lambda name: unmatched[name], default="")
    if worst and unmatched[worst] > MOST_UNMATCHED * busy_s:
        raise InputError(
            f"{run.recordings[0].path}: operator {worst[:80]!r} has {unmatched[worst] / max(busy_s, 1e-12):.2%} "
            "of the time and is none of the model's; name the model recorded, your own as package.module:callable"
        )


def _check_ratio(profile: Profile, force: bool) -> None:
    ratio = profile.layers_to_step or 0.0
    if not force and not RATIOS[0] <= ratio <= RATIOS[1]:
        raise InputError(
            f"layers over step is {ratio:.2f}: between {RATIOS[0]} and {RATIOS[1]} the layers make the step; see what "
            "else it did (recomputation, copies, another model), or take it as it is with --force"
        )


def _remarks(run: _RecordedSteps, tf32: bool) -> Iterator[str]:
    if run.host_bound:
        yield (
            f"host-bound: the GPU was busy for {run.busy_share:.2f} of the step of {format_time(_wall(run))}, so "
            "step_s is the time that it computed, not the wall clock"
        )
    elif run.communicates:
        yield f"step_s is the time that the GPU computed, without collectives (wall clock {format_time(_wall(run))})"
    elif run.on_gpu:
        yield f"busy for {run.busy_share:.3f} of the step"
    if tf32:
        yield "kernels in TensorFloat-32: dtype is tf32"
    if run.apart_s:
        parts = ", ".join(f"{name} {format_time(seconds)}" for name, seconds in sorted(run.apart_s.items()))
        yield f"beside the layers, per step: {parts}"


def _wall(run: _RecordedSteps) -> float:
    return statistics.median(run.wall_s)


def _collective_lines(calls: Sequence[CollectiveCall]) -> Iterator[str]:
    """One line per collective and number of devices."""
    for name, devices in dict.fromkeys((call.name, call.devices) for call in calls):
        same = [call for call in calls if (call.name, call.devices) == (name, devices)]
        size, seconds = sum(call.size_bytes for call in same), sum(call.seconds for call in same)
        rate = f", {size / seconds / 1e9:.3g} GB/s" if size and seconds else ""
        yield (
            f"{name} over {devices}: {len(same)} per step, {format_bytes(size)} in {format_time(seconds)}{rate} "
            "(each in its least time over ranks and steps, which may still hold waiting)"
        )


def _unmatched_line(run: _RecordedSteps) -> str:
    unmatched_s = statistics.median(sum(s.unmatched_s.values()) + s.without_operator_s for s in run.steps)
    paired, operators = run.steps[0].paired, run.steps[0].backward_operators
    return (
        f"unmatched {format_time(unmatched_s)} ({unmatched_s / max(run.seconds('busy_s'), 1e-12):.2%}), {paired} of "
        f"{operators} backward operators paired"
    )
