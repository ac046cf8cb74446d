"""Which of a step's compute times were not measured at their size, in words, and how far the step may be off for it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from simulator.lowering.costs.typical_scaling import BOUNDS, Direction, device_class
from simulator.lowering.sharded_model import ShardedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmeasuredSizes:
    """Sizes at which a plan computes and its profile has no points along that direction.

    note: a sentence, empty when there are none. low, high: the plan's compute seconds at either end of the spread of
    typical costs, over those of the report; None without such sizes, and where times are in proportion, since nobody
    knows how far off that is.
    """

    note: str = ""
    low: float | None = None
    high: float | None = None

    def band_s(self, step_s: float, compute_s: float) -> tuple[float, float] | None:
        """(low, high) of a step whose binding chain computes for compute_s: as far as the chain stays the same."""
        if self.low is None or self.high is None:
            return None
        return step_s - compute_s * (1 - self.low), step_s + compute_s * (self.high - 1)


def unmeasured_sizes(model: ShardedModel) -> UnmeasuredSizes:
    """Of all layers in all shards of one micro-batch."""
    profile = model.profile
    sizes = _sizes(model)
    if not sizes:
        return UnmeasuredSizes()
    kind = device_class(profile.device)
    if not kind:
        return UnmeasuredSizes(note=f"{sizes}: in proportion, as no curve is known for device {profile.device!r}")
    low_s = typical_s = high_s = 0.0
    sums: dict[tuple[int, int], tuple[float, float, float]] = {}
    for position in range(len(profile.layers)):
        cut = _cut(model, position)
        if cut not in sums:
            sums[cut] = _bounds_s(model, position)
        low_s, typical_s, high_s = (
            total + value for total, value in zip((low_s, typical_s, high_s), sums[cut], strict=True)
        )
    if not typical_s:
        return UnmeasuredSizes()
    low_share, high_share = low_s / typical_s, high_s / typical_s
    percent = f"{(low_share - 1) * 100:+.0f}..{(high_share - 1) * 100:+.0f} %"
    return UnmeasuredSizes(note=f"{sizes}: typical curve of {kind}s, {percent}", low=low_share, high=high_share)


def _bounds_s(model: ShardedModel, position: int) -> tuple[float, float, float]:
    """Seconds of a layer's shards at the ends of the spread and between them, kept for other plans of the profile."""

    def bounds_s() -> tuple[float, float, float]:
        low, typical, high = (model.of_all(model.pass_seconds(position, bound=bound)) for bound in BOUNDS)
        # Each (2, shards). Beyond the measured size the larger cost gives the shorter time.
        least, most = np.minimum(low, high), np.maximum(low, high)
        return float(least.sum()), float(typical.sum()), float(most.sum())

    cut, classes = model.placements[position], model.replica_classes
    key = "bounds_s", model.profile.alike[position], model.plan.microbatch_size, cut.shape, cut.samples
    return model.profile.kept.get((*key, classes.tobytes()), bounds_s, len(cut.devices) * len(classes))


def _cut(model: ShardedModel, position: int) -> tuple[int, int]:
    """Of layers that are alike and cut alike the same."""
    return model.profile.alike[position], id(model.placements[position])


def _sizes(model: ShardedModel) -> str:
    """Such as "times at 4 of 32 samples and 1/2 of the channels"; empty when all sizes were measured."""
    profile = model.profile
    if {Direction.BATCH, Direction.CHANNELS} <= profile.measured_directions:
        return ""
    samples: set[float] = set()
    channels: set[Fraction] = set()
    for position in {_cut(model, position): position for position in range(len(profile.layers))}.values():
        layer = model.layer(position)
        sample, channel, height, width = model.intervals(position)
        plane = layer.output_shape[1] * layer.output_shape[2]
        areas = {(bottom - top) * (right - left) / plane for top, bottom in height for left, right in width}
        samples |= {(last - first) * area for first, last in sample for area in areas}
        channels |= {Fraction(last - first, layer.channels) for first, last in channel}
    parts = []
    if Direction.BATCH not in profile.measured_directions and samples != {profile.batch_size}:
        parts.append(f"{_span(samples)} of {profile.batch_size} samples")
    if Direction.CHANNELS not in profile.measured_directions and channels != {Fraction(1)}:
        parts.append(f"{min(channels).limit_denominator(64)} of the channels")
    return f"times at {' and '.join(parts)}" if parts else ""


def _span(values: set[float]) -> str:
    low, high = (f"{value:.4g}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
