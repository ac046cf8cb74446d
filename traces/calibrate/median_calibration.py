"""From repeated measurements of sizes to curves and rates, and from several calibrations of one cluster to one.

Whatever was measured, a curve comes out. Points of one curve are (bytes, mean seconds, interquartile range in seconds),
in the order of bytes. Of several calibrations what a shared machine did during one of them is outvoted: one made while
the machine's host took a quarter of its core time gave 98 kB 8 ms over a link where they take 4, and charged each
received byte with 26 ns where other calibrations say 1 to 2. No torch here.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from simulator.cluster import AchievedShare, Cluster, Link
from simulator.curve import Curve
from simulator.errors import require
from simulator.runtime import Runtime
from traces.capture.median_profile import medians

Points = Sequence[tuple[float, float, float]]

SHORTEST_S = 1e-9
"""No measurement is shorter; a clock may say so."""
BAND_TO_RANGE = 1.22
"""5 and 95 % lie 1.645 standard deviations from the middle, the quartiles 0.674: this many interquartile ranges."""
MOST_OFF = 0.9
"""A band is kept this close to the mean, as a share of it, however wide the measurements lie."""
PARTS = 5
"""Of a measurement whose means `typical_mean` compares."""
Calibration = tuple[Cluster, Runtime]
RUNTIME = {
    "send_cpu_s_per_byte": "core time per byte sent",
    "receive_cpu_s_per_byte": "core time per byte received",
    "busy_latency_s": "a round's wait beside compute",
    "pass_overhead_s": "what pipelines add to a pass",
}
"""What is measured of a runtime, and what it is called."""
STEADY = 0.10
"""A figure that differs by a larger share between passes is measured again, then said to be uncertain."""


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


def median_calibration(calibrations: Sequence[Calibration]) -> Calibration:
    """The first of `calibrations` with the median of all for every time and rate, and the widest band of its links.

    Raises InputError when they did not measure the same sizes on the same links.
    """
    clusters, runtimes = [cluster for cluster, _ in calibrations], [runtime for _, runtime in calibrations]
    first = clusters[0]
    for other in clusters[1:]:
        alike = _measured(other) == _measured(first)
        require(alike, "calibrations", other.name, f"all measure the links of {first.name!r} at the same sizes")
    links = tuple(_median_link(same) for same in zip(*(cluster.links for cluster in clusters), strict=True))
    collectives = {
        name: {count: _median_curve([cluster.collectives[name][count] for cluster in clusters]) for count in counts}
        for name, counts in first.collectives.items()
    }
    sources = [source for cluster in clusters for source in cluster.sources]
    runtime = replace(runtimes[0], **medians(runtimes, *RUNTIME))
    links = tuple(_with_collectives(link, clusters) for link in links)
    return replace(first, links=links, collectives=collectives, sources=tuple(dict.fromkeys(sources))), runtime


def figures(calibrations: Sequence[Calibration]) -> Mapping[str, list[float]]:
    """Seconds of the largest message of each tier and of the largest collectives, core seconds per byte and waits, in
    every calibration."""
    clusters, runtimes = [cluster for cluster, _ in calibrations], [runtime for _, runtime in calibrations]
    links = {link.tier: number for number, link in enumerate(clusters[0].links) if link.curve is not None}
    messages = {
        f"{tier} messages": [_largest_s(each.links[number].curve) for each in clusters]
        for tier, number in links.items()
    }
    habits = {words: [getattr(each, name) for each in runtimes] for name, words in RUNTIME.items()}
    return messages | _collectives_s(clusters) | habits


def unsteady(calibrations: Sequence[Calibration]) -> dict[str, float]:
    """The figures that differ by more than STEADY between calibrations: the range of them over the median."""
    ranges = {name: _range(values) for name, values in figures(calibrations).items()}
    return {name: share for name, share in ranges.items() if share > STEADY}


def _range(values: Sequence[float]) -> float:
    middle = statistics.median(values)
    return (max(values) - min(values)) / middle if middle else 0.0


def _collectives_s(clusters: Sequence[Cluster]) -> dict[str, list[float]]:
    """Seconds of the largest of each collective, in every calibration."""
    return {
        f"{name} of {count}": [_largest_s(each.collectives[name][count]) for each in clusters]
        for name, counts in clusters[0].collectives.items()
        for count in counts
    }


def _largest_s(curve: Curve | None) -> float:
    return curve.points[-1][1] if curve else 0.0


def _with_collectives(link: Link, clusters: Sequence[Cluster]) -> Link:
    """A measured link whose band holds by how much the largest collectives differed between calibrations, too."""
    by_curve = _collectives_s(clusters).values()
    if link.achieved is None or not by_curve:
        return link
    slowest = max(max(seconds) / statistics.median(seconds) for seconds in by_curve)
    fastest = min(min(seconds) / statistics.median(seconds) for seconds in by_curve)
    band = link.achieved
    return replace(link, achieved=replace(band, low=min(band.low, 1 / slowest), high=max(band.high, 1 / fastest)))


def _median_link(links: Sequence[Link]) -> Link:
    rate = statistics.median(link.bandwidth_bytes_per_s for link in links)
    bands = [(link.bandwidth_bytes_per_s / rate, link.achieved) for link in links if link.achieved is not None]
    curves = [link.curve for link in links if link.curve is not None]
    return replace(
        links[0],
        bandwidth_bytes_per_s=rate,
        latency_s=statistics.median(link.latency_s for link in links),
        curve=_median_curve(curves) if curves else None,
        achieved=AchievedShare(
            median=1.0,
            low=min(share * band.low / band.median for share, band in bands),
            high=max(share * band.high / band.median for share, band in bands),
        )
        if bands
        else None,
    )


def _median_curve(curves: Sequence[Curve]) -> Curve:
    """Each size's median."""
    sizes = zip(*(curve.points for curve in curves), strict=True)
    return Curve(points=tuple((same[0][0], statistics.median(seconds for _, seconds in same)) for same in sizes))


def _measured(cluster: Cluster) -> object:
    links = [(link.source, link.target, link.curve and _sizes(link.curve)) for link in cluster.links]
    curves = {name: {n: _sizes(curve) for n, curve in by.items()} for name, by in cluster.collectives.items()}
    return links, curves


def _sizes(curve: Curve) -> list[float]:
    return [size for size, _ in curve.points]
