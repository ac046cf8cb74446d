"""Measured times of messages by their size."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import exp, inf, log

from simulator.errors import MOST_BYTES, require, require_from_0, require_time

NOISE = 0.2
"""By how much a measured time may fall below that of a smaller message."""
_LEAST_S = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Measured times of messages by their size, interpolated log-log."""

    points: tuple[tuple[float, float], ...]
    """(bytes, seconds), sizes increasing. Below the first point its time holds, the latency; beyond the last the last
    segment's bandwidth holds."""

    def __post_init__(self) -> None:
        require(len(self.points) >= 2, "points", len(self.points), "a curve has at least 2 (bytes, seconds) points")
        require(all(b > 0 and t > 0 for b, t in self.points), "points", self.points, "bytes and seconds are positive")
        sizes = [b for b, _ in self.points]
        require(sizes == sorted(set(sizes)), "points", sizes, "sizes are strictly increasing")
        for size, seconds in self.points:
            require_from_0("points", size, MOST_BYTES)
            require_time("points", seconds)

    def require_rising(self, where: str) -> None:
        """Raise InputError where a larger message takes a shorter time, by more than it varies."""
        for (small, before_s), (large, after_s) in pairwise(self.points):
            rule = f"more bytes do not take less time than the {before_s:g} s of {small:g}; measure again"
            require(after_s >= before_s * (1 - NOISE), f"{where}: points", f"{after_s:g} s at {large:g} bytes", rule)

    @property
    def bytes_per_s(self) -> float:
        """What a long message gets: the slope of the last segment that rises, else the last size over its time."""
        (last_bytes, last_s), *before = reversed(self.points)
        for size, seconds in before:
            if seconds < last_s:
                return (last_bytes - size) / (last_s - seconds)
        return last_bytes / last_s

    def rescaled(self, slower: float, added_s: float) -> Curve:
        """This curve where what is above its shortest time takes `slower` times as long, and all `added_s` longer.

        The shortest time is latency, which no bandwidth shortens; it stays above 0. By how much a time is above that of
        a larger message it varied; that stays the same share of it.
        """
        least_s = [*accumulate((seconds for _, seconds in reversed(self.points)), min)][::-1]
        latency_s = max(least_s[0] + added_s, _LEAST_S)
        rising_s = (max(latency_s + (least - least_s[0]) * slower, _LEAST_S) for least in least_s)
        of_each = zip(self.points, least_s, rising_s, strict=True)
        return Curve(points=tuple((size, rising * (seconds / least)) for (size, seconds), least, rising in of_each))

    def seconds(self, size_bytes: float) -> float:
        """Time of a message of `size_bytes`."""
        (b_last, t_last), (b_prev, t_prev) = self.points[-1], self.points[-2]
        if size_bytes <= self.points[0][0]:
            return self.points[0][1]
        if size_bytes >= b_last:
            slope = (t_last - t_prev) / (b_last - b_prev)
            return t_last + max(slope, t_last / b_last if slope <= 0 else 0.0) * (size_bytes - b_last)
        i = bisect_left(self.points, (size_bytes, -inf))
        (b0, t0), (b1, t1) = self.points[i - 1], self.points[i]
        return exp(log(t0) + log(t1 / t0) * log(size_bytes / b0) / log(b1 / b0))
