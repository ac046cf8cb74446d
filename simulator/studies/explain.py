"""A plan in words: how layers are sharded, what they communicate, and what would make the step faster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from simulator.cluster import Cluster
from simulator.plan import Sharding
from simulator.report.layer_use import LayerUse
from simulator.run import Run
from simulator.studies.what_if import Gain, gains
from simulator.units import format_bytes, format_time
from simulator.workload import Profile

_DIMENSIONS = ("sample", "channel", "height", "width")


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """splits: (first layer, last layer, how); crossings: layers by bytes sent, most first."""

    splits: tuple[tuple[str, str, str], ...]
    crossings: tuple[LayerUse, ...]
    bottleneck: str
    gains: tuple[Gain, ...]


def explain(profile: Profile, cluster: Cluster, result: Run) -> Explanation:
    """Explain a simulated plan; re-simulates it with each resource doubled."""
    placements = result.plan.placements
    runs = groupby(profile.layers, key=lambda layer: describe(placements[layer.name]))
    splits = []
    for how, layers in runs:
        names = [layer.name for layer in layers]
        splits.append((names[0], names[-1], how))
    crossings = sorted((use for use in result.report.layers if _crossing_bytes(use) > 0), key=_crossing_bytes)
    return Explanation(
        splits=tuple(splits),
        crossings=tuple(crossings[::-1]),
        bottleneck=str(result.report.bottleneck),
        gains=tuple(gains(profile, cluster, result.plan, result.runtime)),
    )


def describe(sharding: Sharding) -> str:
    """A sharding in words, e.g. "4 by sample on devices 0-3" or "8 by sample x 8 by channel: 40 on 0, 24 on 1"."""
    parts = [f"{n} by {name}" for n, name in zip(sharding.degrees, _DIMENSIONS, strict=True) if n > 1]
    split = " x ".join(parts) or "whole"
    counts = Counter(sharding.devices)
    if len(counts) == 1:
        return f"{split} on device {sharding.devices[0]}"
    if len(set(counts.values())) == 1:
        return f"{split} on devices {', '.join(number_runs(sorted(counts)))}"
    return f"{split}: " + ", ".join(f"{count} on {device}" for device, count in sorted(counts.items()))


def number_runs(numbers: Sequence[int]) -> list[str]:
    """Ascending numbers with runs shortened: 0-3, 7."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]


def _crossing_bytes(use: LayerUse) -> float:
    return use.forward_bytes + use.backward_bytes + use.synchronisation_bytes


def crossing_words(use: LayerUse) -> str:
    """What crosses because of one layer."""
    parts = {
        "activations": use.forward_bytes,
        "their gradients": use.backward_bytes,
        "parameter gradients": use.synchronisation_bytes,
    }
    sizes = ", ".join(f"{format_bytes(size)} {what}" for what, size in parts.items() if size > 0)
    return f"{use.name}: {sizes} (computes {format_time(use.compute_s)})"
