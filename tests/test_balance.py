"""Samples over unequal devices: optimal by brute force, and the simulated step beside total work / total speed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import planned
from small_networks import chain, switched

from simulator.errors import InputError
from simulator.files import read_profile
from simulator.lowering.costs.sample_shares import Seconds, split_by_time
from simulator.report.metrics import load_balance_ratio
from simulator.run import run, step_seconds
from simulator.studies.what_if import gains

SPEEDS = (1.0, 1.0, 0.5, 0.25)


def line(fixed_s: float, each_s: float) -> Seconds:
    return lambda count: fixed_s + each_s * count


def splits(samples: int, devices: int) -> Iterator[tuple[int, ...]]:
    """Every way to give each device at least one."""
    if devices == 1:
        yield (samples,)
        return
    for first in range(1, samples - devices + 2):
        yield from ((first, *rest) for rest in splits(samples - first, devices - 1))


def slowest(split: tuple[int, ...], seconds: list[Seconds]) -> float:
    return max(time_of(count) for count, time_of in zip(split, seconds, strict=True))


costs = st.tuples(st.floats(0, 5), st.floats(0, 3))


@given(st.lists(costs, min_size=1, max_size=4), st.integers(0, 9))
def test_no_other_split_is_better(drawn: list[tuple[float, float]], extra: int) -> None:
    seconds = [line(*cost) for cost in drawn]
    counts = split_by_time(len(drawn) + extra, seconds)
    assert sum(counts) == len(drawn) + extra and min(counts) >= 1
    assert slowest(counts, seconds) == min(slowest(other, seconds) for other in splits(sum(counts), len(drawn)))


@given(st.lists(st.lists(st.floats(0, 5), min_size=12, max_size=12), min_size=2, max_size=3), st.integers(0, 9))
def test_nor_for_any_times_that_grow_with_samples(steps: list[list[float]], extra: int) -> None:
    """Kernels' times rise in jumps."""
    seconds: list[Seconds] = [lambda count, rises=rises: sum(rises[:count]) for rises in steps]
    counts = split_by_time(len(steps) + extra, seconds)
    assert slowest(counts, seconds) == min(slowest(other, seconds) for other in splits(sum(counts), len(steps)))


def test_all_end_together_where_samples_allow() -> None:
    """x_i = (T - a_i) / b_i at T = 9: (9 - 1) / 1, (9 - 3) / 2 and (9 - 0) / 3."""
    assert split_by_time(14, [line(1, 1), line(3, 2), line(0, 3)]) == (8, 3, 3)


def test_each_device_needs_a_sample() -> None:
    with pytest.raises(InputError, match="samples is 2: each of 3 devices needs one"):
        split_by_time(2, [line(0, 1)] * 3)


def test_a_load_balance_ratio_is_the_longest_over_the_mean() -> None:
    assert load_balance_ratio(np.array([1.0, 5.0, 0.0])) == 2.5
    assert load_balance_ratio(np.zeros(3)) == 1.0


def test_the_balanced_step_is_near_total_work_over_total_speed() -> None:
    """Even shares wait for the device of a quarter's speed: 2.75 / (4 x 0.25) = 2.75 times as long."""
    profile, cluster = chain([3.0, 6.0, 3.0]), switched(SPEEDS)
    bound_s = 12.0 * 88 / 8 / sum(SPEEDS)
    balanced = planned("data", profile, cluster, batch_size=88)
    assert set(balanced.placements.values()) == {balanced.placements["a"]}
    assert balanced.placements["a"].samples == (32, 32, 16, 8)
    assert step_seconds(profile, cluster, balanced) == pytest.approx(bound_s, rel=1e-9)
    even = planned("data", profile, cluster, batch_size=88, balance=False)
    assert step_seconds(profile, cluster, even) == pytest.approx(2.75 * bound_s, rel=1e-9)


def test_a_measured_network_is_within_3_percent_of_the_bound() -> None:
    """Links of 1 TB/s, so that the split alone counts. Each device also has an update, a fixed cost, as work."""
    profile, cluster = read_profile("resnet_small"), switched(SPEEDS, bandwidth_bytes_per_s=1e12)
    batch = 256
    balanced = run(profile, cluster, planned("data", profile, cluster, batch_size=batch)).report
    loads = [device.compute_s for device in balanced.devices]
    work = sum(load * speed for load, speed in zip(loads, SPEEDS, strict=True))
    assert balanced.step_s == pytest.approx(work / sum(SPEEDS), rel=0.03)
    assert balanced.load_balance_ratio < 1.03
    even = run(profile, cluster, planned("data", profile, cluster, batch_size=batch, balance=False)).report
    assert even.load_balance_ratio > 1.5 and even.step_s > 2 * balanced.step_s


def test_equal_devices_keep_equal_shares_and_small_batches_are_refused() -> None:
    profile = chain([3.0])
    plan = planned("data", profile, switched([2.0] * 3), batch_size=8)
    assert plan.placements["a"].samples == ()
    uneven = planned("data", profile, switched(SPEEDS), batch_size=8)
    with pytest.raises(InputError, match=r"has parts of .* samples, 8 in all, but a micro-batch has 16"):
        step_seconds(profile, switched(SPEEDS), replace(uneven, batch_size=16))


def test_a_straggler_takes_the_time_of_its_share() -> None:
    """Seen from whatif: faster devices double the pace of balanced shares, as every device binds."""
    profile, cluster = chain([3.0]), switched(SPEEDS)
    plan = planned("data", profile, cluster, batch_size=88)
    assert gains(profile, cluster, plan)[0].speedup == pytest.approx(2.0)


@pytest.mark.parametrize("speeds", [(1.0, 0.25), (1.0, 1.0, 0.5, 0.25)])
def test_stages_are_sized_to_devices(speeds: tuple[float, ...]) -> None:
    """22 equal layers: each stage's share of them is its device's share of the speed, within a layer."""
    profile, cluster = chain([1.0] * 22), switched(speeds)
    plan = planned("pipeline", profile, cluster, judged=False, batch_size=8, microbatches=8)
    held = [
        sum(sharding.devices == (device,) for sharding in plan.placements.values()) for device in range(len(speeds))
    ]
    assert held == pytest.approx([22 * speed / sum(speeds) for speed in speeds], abs=1)
