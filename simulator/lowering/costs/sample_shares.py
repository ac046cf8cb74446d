"""Sharing samples out over devices of unequal speed so that the slowest is done as early as possible.

Where device i takes a_i + b_i x_i for x_i samples and fractions were allowed, all end together, at the T for which the
x_i = (T - a_i) / b_i add up to the batch. Samples are whole; what is best then is found one sample at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from heapq import heapify, heapreplace

from simulator.cluster import Cluster
from simulator.errors import InputError, require
from simulator.lowering.costs.shard_costs import shard_seconds
from simulator.ordered_sum import ordered_sum
from simulator.workload import Profile

MOST_SHARED = 1_000_000
"""One sample at a time takes a second or two for that many."""
Seconds = Callable[[int], float]
"""What a device takes for a number of samples; more samples never take less."""


def split_by_time(samples: int, seconds: Sequence[Seconds]) -> tuple[int, ...]:
    """Samples for each device, at least one, such that the slowest takes the least.

    Each further sample goes to the device that would then be done first. That is optimal: were there a better split,
    it would have fewer samples somewhere, on a device that took its last one when none had an earlier end to offer.
    Raises InputError when there are fewer samples than devices.
    """
    if samples < len(seconds):
        raise InputError(f"samples is {samples}: each of {len(seconds)} devices needs one; use a larger batch")
    rule = f"at most {MOST_SHARED:,} are shared out by time; use a smaller batch"
    require(samples <= MOST_SHARED, "samples", f"{samples:,}", rule)
    shares = [1] * len(seconds)
    offers = [(seconds_of(2), device) for device, seconds_of in enumerate(seconds)]
    heapify(offers)
    for _ in range(samples - len(seconds)):
        device = offers[0][1]
        shares[device] += 1
        heapreplace(offers, (seconds[device](shares[device] + 1), device))
    return tuple(shares)


def balanced_shares(profile: Profile, cluster: Cluster, samples: int) -> tuple[int, ...]:
    """`samples` shared out over the workers, by the measured time of that many and the devices' speeds.

    Empty where all are as fast. Updates do not count: they follow the synchronisation, for which all wait, and take as
    long for any share.
    """
    speeds = cluster.speeds[: cluster.workers]
    if len(set(speeds)) == 1:
        return ()

    @cache
    def at_speed_1(count: int) -> float:
        return ordered_sum(sum(shard_seconds(profile, layer, count)) for layer in profile.layers)

    def of(speed: float) -> Seconds:
        return lambda count: at_speed_1(count) / speed

    return split_by_time(samples, [of(speed) for speed in speeds])
