"""From repeated measurements of sizes to curves and rates. Whatever was measured, a curve comes out; no torch here.

Points of one curve are (bytes, mean seconds, interquartile range in seconds), in the order of bytes.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from simulator.cluster import AchievedShare
from simulator.curve import Curve

Points = Sequence[tuple[float, float, float]]

SHORTEST_S = 1e-9
"""No measurement is shorter; a clock may say so."""
BAND_TO_RANGE = 1.22
"""5 and 95 % lie 1.645 standard deviations from the middle, the quartiles 0.674: this many interquartile ranges."""
MOST_OFF = 0.9
"""A band is kept this close to the mean, as a share of it, however wide the measurements lie."""
PARTS = 5
"""Of a measurement whose means `typical_mean` compares."""


def typical_mean(seconds: Sequence[float]) -> float:
    """The mean of at least one value, to six significant digits, which few large values do not move: the median of the
    means of PARTS parts, every fifth value in each ("median of means").

    gloo's all-reduces take one of two times, up to 4 ms apart, as its threads wait for each other or not (see
    `link_probe`): their median is one of the two by chance, and a step adds up both.
    """
    means = [statistics.fmean(seconds[first::PARTS]) for first in range(min(PARTS, len(seconds)))]
    return float(f"{statistics.median(means):.6g}")


def curve_of(points: Points) -> Curve:
    """The means, those that fall with a larger size replaced by their own mean until none does (isotonic regression by
    pooling adjacent violators: Ayer et al., Ann. Math. Statist. 26(4), 1955)."""
    pools: list[list[float]] = []
    for _, seconds, _ in points:
        pools.append([max(seconds, SHORTEST_S)])
        while len(pools) > 1 and statistics.fmean(pools[-2]) > statistics.fmean(pools[-1]):
            pools[-2:] = [[*pools[-2], *pools[-1]]]
    rising = [statistics.fmean(pool) for pool in pools for _ in pool]
    return Curve(points=tuple((size, seconds) for (size, _, _), seconds in zip(points, rising, strict=True)))


def band_of(points: Points) -> AchievedShare:
    """The share of the measured rate that the largest size got: 1 in the middle, and between 5 and 95 %."""
    _, mean_s, range_s = points[-1]
    deviation = min(BAND_TO_RANGE * range_s / max(mean_s, SHORTEST_S), MOST_OFF)
    return AchievedShare(median=1.0, low=1 / (1 + deviation), high=1 / (1 - deviation))


def sizes_to(largest_bytes: int, sizes_bytes: Sequence[int]) -> tuple[int, ...]:
    """`sizes_bytes`, and beyond the last of them by factors of four to `largest_bytes`, which is one of them."""
    sizes = {size for size in sizes_bytes if size < largest_bytes} | {largest_bytes}
    size = max(sizes_bytes)
    while (size := 4 * size) < largest_bytes:
        sizes.add(size)
    return tuple(sorted(sizes | set(sizes_bytes)))
