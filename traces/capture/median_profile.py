"""Several captures of one network as one profile."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from simulator.errors import require
from simulator.workload import Layer, Profile, ScalingPoint


def median_profile(captures: Sequence[Profile]) -> Profile:
    """The first of `captures` with the median of all for every time and spread; notes stay the first's.

    Raises InputError when they are not of the same network at the same points.
    """
    first = captures[0]
    for other in captures[1:]:
        alike = _measured_points(other) == _measured_points(first)
        require(alike, "captures", other.model, f"all measure the layers of {first.model!r} at the same points")
    layers = tuple(_median_layer([capture.layers[i] for capture in captures]) for i in range(len(first.layers)))
    steps_s = [capture.step_s for capture in captures if capture.step_s is not None]
    spread_s = statistics.median(capture.step_spread_s for capture in captures)
    step_s = statistics.median(steps_s) if steps_s else None
    ratios = [capture.layers_to_step for capture in captures if capture.layers_to_step is not None]
    return replace(
        first,
        layers=layers,
        step_s=step_s,
        step_spread_s=spread_s,
        layers_to_step=statistics.median(ratios) if ratios else None,
        doubt=next((capture.doubt for capture in captures if capture.doubt), ""),
    )


def _median_layer(layers: Sequence[Layer]) -> Layer:
    columns = zip(*(layer.scaling for layer in layers), strict=True)
    return replace(
        layers[0],
        forward_s=statistics.median(layer.forward_s for layer in layers),
        backward_s=statistics.median(layer.backward_s for layer in layers),
        update_s=statistics.median(layer.update_s for layer in layers),
        forward_spread_s=statistics.median(layer.forward_spread_s for layer in layers),
        backward_spread_s=statistics.median(layer.backward_spread_s for layer in layers),
        scaling=tuple(_median_point(points) for points in columns),
    )


def _median_point(points: Sequence[ScalingPoint]) -> ScalingPoint:
    return replace(
        points[0],
        forward_s=statistics.median(point.forward_s for point in points),
        backward_s=statistics.median(point.backward_s for point in points),
    )


def _measured_points(profile: Profile) -> object:
    points = [[(point.batch_size, point.channel_fraction) for point in layer.scaling] for layer in profile.layers]
    return profile.batch_size, [layer.name for layer in profile.layers], points
