"""What a shard of a layer costs, interpolated from the layer's measured points.

Time over the batch is piecewise linear through the measured batch sizes (a kernel's time is a fixed cost
plus a cost per sample, with steps that the points carry); time over output channels is a factor, measured at
the profile's batch size and piecewise linear too. A part of the height or width counts as that many fewer
samples, because a convolution's work is proportional to samples x area.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from simulator.workload import Layer, Profile


def shard_seconds(
    profile: Profile, layer: Layer, samples: float, channel_fraction: float = 1.0, area_fraction: float = 1.0
) -> tuple[float, float]:
    """(forward_s, backward_s) of `samples` samples of a fraction of the layer's channels and output area.

    On the device of the profile; divide by a device's relative speed.
    """
    forward, backward = _curves(layer, profile.batch_size)
    work = samples * area_fraction
    return _at(forward, work, channel_fraction), _at(backward, work, channel_fraction)


Points = tuple[tuple[float, ...], tuple[float, ...]]


@lru_cache(maxsize=8192)
def _curves(layer: Layer, batch_size: int) -> tuple[tuple[Points, Points], tuple[Points, Points]]:
    """For forward and backward: (batch size, seconds) and (channel fraction, factor) points."""
    points = [point for point in layer.scaling if point.input_channel_fraction == 1]
    by_batch = {point.batch_size: point for point in points if point.channel_fraction == 1}
    by_fraction = {point.channel_fraction: point for point in points if point.batch_size == batch_size}

    def curve(name: str) -> tuple[Points, Points]:
        whole: float = getattr(layer, name)
        batches = {float(b): getattr(point, name) for b, point in by_batch.items()} | {float(batch_size): whole}
        factors = {f: getattr(point, name) / whole for f, point in by_fraction.items() if whole > 0} | {1.0: 1.0}
        return _sorted(batches), _sorted(factors)

    return curve("forward_s"), curve("backward_s")


def _sorted(points: dict[float, float]) -> Points:
    xs = sorted(points)
    return tuple(xs), tuple(points[x] for x in xs)


def _at(curve: tuple[Points, Points], work: float, channel_fraction: float) -> float:
    batches, factors = curve
    return _line(batches, work) * (1.0 if channel_fraction == 1 else _line(factors, channel_fraction))


def _line(points: Points, x: float) -> float:
    """Piecewise linear through `points`, never below 0.

    Outside, the nearest segment goes on, but no steeper than in proportion to x: a fixed cost can be
    extrapolated, a negative one cannot. A single point means proportionality.
    """
    xs, ys = points
    if xs[0] <= x <= xs[-1]:
        return float(np.interp(x, xs, ys))
    near, far = (0, 1) if x < xs[0] else (-1, -2)
    slope = ys[near] / xs[near]
    if len(xs) > 1:
        slope = min(max((ys[near] - ys[far]) / (xs[near] - xs[far]), 0.0), slope)
    return float(ys[near] + slope * (x - xs[near]))
