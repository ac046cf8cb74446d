"""What a shard of a layer costs, interpolated from the layer's measured points.

Time over the batch is piecewise linear through the measured batch sizes (a kernel's time is a fixed cost
plus a cost per sample, with steps that the points carry). A fraction of the channels that was measured at several batch
sizes has such a curve of its own. Otherwise time over output channels is a factor, measured at the profile's batch size
and piecewise linear too, and so is time over input channels. Without points of its own that is time over output
channels, because a product of matrices does as much for either. A part of the height or width counts
as that many fewer samples, because a convolution's work is proportional to samples x area. A profile without any point
along the batch or the channels takes typical_scaling's fixed cost for its class of device and kind of layer instead.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from simulator.lowering.costs.typical_scaling import Bound, Direction, class_without_points, fixed_share
from simulator.taskgraph import Floats
from simulator.workload import Layer, Profile, ScalingPoint


def shard_seconds(
    profile: Profile,
    layer: Layer,
    samples: float,
    channel_fraction: float = 1.0,
    area_fraction: float = 1.0,
    bound: Bound = "typical",
    input_channel_fraction: float = 1.0,
) -> tuple[float, float]:
    """(forward_s, backward_s) of `samples` samples of a fraction of the layer's channels and output area.

    With a fraction of its input channels it computes a term of its output. On the device of the profile; divide by a
    device's relative speed. `bound` is the end of the spread of typical costs to take, where one stands in for points.
    """
    by_batch = class_without_points(profile, Direction.BATCH)
    by_channels = class_without_points(profile, Direction.CHANNELS)
    forward, backward = _curves(layer, profile.batch_size, by_batch, by_channels, bound)
    work = samples * area_fraction
    fractions = channel_fraction, input_channel_fraction
    return forward.seconds(work, *fractions), backward.seconds(work, *fractions)


def layer_seconds(profile: Profile, samples: int, bound: Bound = "typical") -> Floats:
    """(forward_s, backward_s) of every layer with so many samples at speed 1, shape (layers, 2); bound: as above."""
    return profile.kept.get(
        (layer_seconds, samples, bound),
        lambda: np.array([shard_seconds(profile, layer, samples, bound=bound) for layer in profile.layers]),
    )


Points = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassCurve:
    """One pass of a layer: (batch size, seconds) points, and (channel fraction, factor) points or the fixed seconds.

    inputs: (input channel fraction, factor) points, the whole alone where none was measured. parts: by (channel, input
    channel) fraction that was measured at several batch sizes, its (batch size, seconds) points.
    """

    batches: Points
    channels: Points
    inputs: Points
    channels_fixed_s: float
    parts: Mapping[tuple[float, float], Points]

    def seconds(self, work: float, channel_fraction: float, input_fraction: float) -> float:
        own = self.parts.get((channel_fraction, input_fraction))
        if own is not None:
            return _line(own, work)
        whole_s = _line(self.batches, work)
        if input_fraction != 1 and len(self.inputs[0]) > 1:
            return self._part_s(whole_s * _line(self.inputs, input_fraction), channel_fraction)
        return self._part_s(whole_s, channel_fraction * input_fraction)

    def _part_s(self, whole_s: float, channel_fraction: float) -> float:
        if channel_fraction == 1:
            return whole_s
        if self.channels_fixed_s:
            return channel_fraction * whole_s + (1 - channel_fraction) * min(self.channels_fixed_s, whole_s)
        return whole_s * _line(self.channels, channel_fraction)


@lru_cache(maxsize=8192)
def _curves(
    layer: Layer, batch_size: int, by_batch: str, by_channels: str, bound: Bound
) -> tuple[PassCurve, PassCurve]:
    """Of forward and backward. by_batch, by_channels: class of device whose fixed costs stand in for points, if any."""
    points = [point for point in layer.scaling if point.input_channel_fraction == 1]
    batch_points = {point.batch_size: point for point in points if point.channel_fraction == 1}
    fractions = {point.channel_fraction: point for point in points if point.batch_size == batch_size}
    at_batch = [point for point in layer.scaling if point.batch_size == batch_size]
    inputs = {point.input_channel_fraction: point for point in at_batch if point.channel_fraction == 1}
    parts: dict[tuple[float, float], list[ScalingPoint]] = {}
    for point in layer.scaling:
        parts.setdefault((point.channel_fraction, point.input_channel_fraction), []).append(point)
    parts.pop((1.0, 1.0), None)
    batch_share = fixed_share(by_batch, Direction.BATCH, layer, bound)
    channel_share = fixed_share(by_channels, Direction.CHANNELS, layer, bound)

    def curve(name: str) -> PassCurve:
        whole: float = getattr(layer, name)
        batches = {float(b): getattr(point, name) for b, point in batch_points.items()} | {float(batch_size): whole}
        factors, terms = (
            {f: getattr(point, name) / whole for f, point in measured.items() if whole > 0} | {1.0: 1.0}
            for measured in (fractions, inputs)
        )
        if batch_share:
            batches[batch_size / 2] = whole * (1 + batch_share) / 2
        return PassCurve(
            batches=_sorted(batches),
            channels=_sorted(factors),
            inputs=_sorted(terms),
            channels_fixed_s=whole * channel_share,
            parts={
                fractions: _sorted({float(point.batch_size): getattr(point, name) for point in measured})
                for fractions, measured in parts.items()
                if len(measured) > 1
            },
        )

    return curve("forward_s"), curve("backward_s")


def _sorted(points: dict[float, float]) -> Points:
    xs = sorted(points)
    return tuple(xs), tuple(points[x] for x in xs)


def _line(points: Points, x: float) -> float:
    """Piecewise linear through `points`, never below 0.

    Outside, the nearest segment goes on, but no steeper than in proportion to x: a fixed cost can be
    extrapolated, a negative one cannot. A single point means proportionality.
    """
    xs, ys = points
    if xs[0] <= x <= xs[-1]:
        i = bisect_right(xs, x) - 1
        return float(ys[i] if xs[i] == x else (ys[i + 1] - ys[i]) / (xs[i + 1] - xs[i]) * (x - xs[i]) + ys[i])
    near, far = (0, 1) if x < xs[0] else (-1, -2)
    slope = ys[near] / xs[near]
    if len(xs) > 1:
        slope = min(max((ys[near] - ys[far]) / (xs[near] - xs[far]), 0.0), slope)
    return float(ys[near] + slope * (x - xs[near]))
