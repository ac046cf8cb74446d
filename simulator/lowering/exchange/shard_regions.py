"""Which part of a layer a shard is, and which part of its input it needs.

Everything is separable: a shard is a product of intervals along (sample, channel, height, width), and so is
what it reads of each producer, so each dimension is treated alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise

from simulator.plan import Degrees
from simulator.workload import Layer, Profile

Interval = tuple[int, int]
"""Half open: (first, last + 1); empty when the two are equal."""


def split(extent: int, degree: int) -> list[Interval]:
    """`extent` cut into `degree` intervals as equal as integers allow."""
    return list(_intervals(extent, degree))


@lru_cache(maxsize=256)
def _intervals(extent: int, degree: int) -> tuple[Interval, ...]:
    return tuple((extent * i // degree, extent * (i + 1) // degree) for i in range(degree))


def shards(layer: Layer, samples: int, degrees: Degrees, parts: Sequence[int] = ()) -> list[list[Interval]]:
    """The four lists of intervals whose product are the shards of `samples` samples of `layer`.

    parts: how many samples each part by sample has; empty: as equal as integers allow.
    """
    axes = [split(extent, degree) for extent, degree in zip((samples, *layer.output_shape), degrees, strict=True)]
    if parts:
        axes[0] = list(pairwise(accumulate(parts, initial=0)))
    return axes


def channel_bytes(total_bytes: int, channels: int, interval: Interval) -> int:
    """The part of a layer's parameter bytes that belongs to an interval of its output channels."""
    return total_bytes * interval[1] // channels - total_bytes * interval[0] // channels


def reads(
    profile: Profile, layer: Layer, producer: Layer, own: list[list[Interval]], reduce: int = 1
) -> list[list[Interval]]:
    """For each of `layer`'s intervals (as from `shards`), the interval of `producer`'s output that it needs.

    With `reduce`, of a layer that sums over its input channels, that many stand in turn for each interval by channel.
    Experts stand along the width: what is no layer of theirs reads those of all of them.
    """
    sample, channel, height, width = own
    offset = _concat_offset(profile, layer, producer)
    flat = layer.kind == "flatten"
    aligned = producer.name in layer.geometry.aligned_inputs
    whole_plane = flat or (layer.geometry.kernel is None and not aligned)
    planes = [
        [(0, extent)] * len(intervals) if whole_plane else [_window(layer, axis, extent, x) for x in intervals]
        for axis, (extent, intervals) in enumerate(zip(producer.output_shape[1:], (height, width), strict=True))
    ]
    if producer.routing and not layer.routing:
        planes[1] = [(0, producer.routing.experts)] * len(width)
    if reduce > 1:
        return [sample, split(producer.channels, reduce) * len(channel), *planes]
    if aligned and producer.channels == layer.channels:
        return [sample, channel, *planes]
    return [sample, [_channels(layer, producer, offset, x) for x in channel], *planes]


def _concat_offset(profile: Profile, layer: Layer, producer: Layer) -> int | None:
    """Where `producer`'s channels begin in a concatenation's output; None for other layers."""
    if layer.kind != "concat":
        return None
    before = layer.inputs[: layer.inputs.index(producer.name)]
    return sum(profile.layers[profile.index[name]].channels for name in before)


def _channels(layer: Layer, producer: Layer, offset: int | None, own: Interval) -> Interval:
    first, last = own
    available, geometry = producer.channels, layer.geometry
    if offset is not None:
        first, last = (min(max(x - offset, 0), available) for x in own)
        return first, last
    area = producer.output_shape[1] * producer.output_shape[2]
    if layer.kind == "flatten" and layer.channels == available * area:
        return first // area, -(-last // area)
    if geometry.mixes_channels:
        lower, upper = first * geometry.groups // layer.channels, -(-last * geometry.groups // layer.channels)
        return lower * available // geometry.groups, upper * available // geometry.groups
    return own if layer.channels == available else (0, available)


def _window(layer: Layer, axis: int, extent: int, own: Interval) -> Interval:
    """Input rows (or columns) under the sliding window of output rows `own`; one broadcast row serves all."""
    geometry = layer.geometry
    if geometry.kernel is None:
        return own
    if extent == 1:
        return 0, extent
    kernel, stride, padding = geometry.kernel[axis], geometry.stride[axis], geometry.padding[axis]
    reach = geometry.dilation[axis] * (kernel - 1) + 1
    first, last = own[0] * stride - padding, (own[1] - 1) * stride - padding + reach
    first, last = (min(max(x, 0), extent) for x in (first, last))
    return first, last
