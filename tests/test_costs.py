"""Interpolation between measured points."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_closed_forms import chain

from simulator.files import read_profile
from simulator.lowering.costs.shard_costs import shard_seconds
from simulator.workload import Layer, Profile, ScalingPoint


def profile_with(*points: ScalingPoint) -> Profile:
    """One layer, 10 ms forward and 20 ms backward at batch 48, with `points`."""
    return replace(chain(1), layers=(replace(chain(1).layers[0], scaling=points),))


def seconds(profile: Profile, samples: float, channels: float = 1.0, area: float = 1.0) -> tuple[float, float]:
    return shard_seconds(profile, profile.layers[0], samples, channels, area)


def test_without_points_time_is_proportional() -> None:
    profile = profile_with()
    assert seconds(profile, 48) == (0.01, 0.02)
    assert seconds(profile, 12) == pytest.approx((0.0025, 0.005))
    assert seconds(profile, 96, 0.5) == pytest.approx((0.01, 0.02))
    assert seconds(profile, 48, 1.0, 0.25) == pytest.approx((0.0025, 0.005))


def test_a_batch_that_is_not_stated_is_the_profiles_on_every_worker() -> None:
    profile = profile_with(ScalingPoint(batch_size=24, forward_s=0.006, backward_s=0.01))
    assert [profile.batch_for(workers) for workers in (1, 2, 49)] == [48, 96, 49 * 48]


def test_between_batch_sizes_time_is_linear() -> None:
    profile = profile_with(ScalingPoint(batch_size=16, forward_s=0.006, backward_s=0.02))
    assert seconds(profile, 16) == pytest.approx((0.006, 0.02))
    assert seconds(profile, 32) == pytest.approx((0.008, 0.02))


def test_beyond_the_points_a_fixed_cost_stays_fixed() -> None:
    """0.004 s + 0.000125 s a sample through (16, 0.006) and (48, 0.010); a constant backward stays constant."""
    profile = profile_with(ScalingPoint(batch_size=16, forward_s=0.006, backward_s=0.02))
    assert seconds(profile, 8) == pytest.approx((0.005, 0.02))
    assert seconds(profile, 64) == pytest.approx((0.012, 0.02))


def test_below_the_points_time_is_at_most_proportional() -> None:
    """Points that curve the other way would go below zero; proportionality is the limit."""
    profile = profile_with(ScalingPoint(batch_size=24, forward_s=0.001, backward_s=0.002))
    assert seconds(profile, 12) == pytest.approx((0.0005, 0.001))


def test_channel_fractions_are_measured_factors() -> None:
    profile = profile_with(
        ScalingPoint(batch_size=48, channel_fraction=0.5, forward_s=0.008, backward_s=0.01),
        ScalingPoint(batch_size=24, forward_s=0.005, backward_s=0.01),
    )
    assert seconds(profile, 48, 0.5) == pytest.approx((0.008, 0.01))
    assert seconds(profile, 48, 0.75) == pytest.approx((0.009, 0.015))
    assert seconds(profile, 24, 0.5) == pytest.approx((0.004, 0.005))


@given(st.integers(1, 96), st.sampled_from((0.25, 0.5, 1.0)), st.floats(0.01, 1.0))
def test_never_negative_and_never_faster_for_more(samples: int, channels: float, area: float) -> None:
    profile = profile_with(
        ScalingPoint(batch_size=1, forward_s=0.001, backward_s=0.003),
        ScalingPoint(batch_size=24, forward_s=0.004, backward_s=0.009),
        ScalingPoint(batch_size=48, channel_fraction=0.5, forward_s=0.006, backward_s=0.01),
    )
    less, more = seconds(profile, samples, channels, area), seconds(profile, samples + 1, channels, area)
    assert all(0 < a <= b for a, b in zip(less, more, strict=True))


@pytest.mark.parametrize("axis", ["channel_fraction", "input_channel_fraction"])
def test_a_left_out_tensor_parallel_degree_of_a_real_gpu(axis: str) -> None:
    """GPT-1.3B on V100 (Aceso's tables): of degrees 2, 4 and 8 each in turn from the others, 5 % at most on average."""
    profile = read_profile("gpt_1_3b_v100")
    errors = []
    for degree in (2, 4, 8):
        for layer in profile.layers:
            kept = tuple(point for point in layer.scaling if getattr(point, axis) != 1 / degree)
            for point in set(layer.scaling) - set(kept):
                if point.batch_size == profile.batch_size:
                    fractions = point.channel_fraction, point.input_channel_fraction
                    whole = replace(layer, scaling=kept)
                    predicted = shard_seconds(
                        profile, whole, profile.batch_size, fractions[0], input_channel_fraction=fractions[1]
                    )
                    errors.append(abs(sum(predicted) / (point.forward_s + point.backward_s) - 1))
    assert len(errors) >= 3 * 48 and sum(errors) / len(errors) <= 0.05


def test_equal_profiles_have_one_hash_that_stays_in_its_process() -> None:
    """It is kept with the profile; texts have another one in other processes, where it is found anew."""
    first, second = chain(2), chain(2)
    assert first is not second and first == second and hash(first) == hash(second)
    assert hash(replace(first, batch_size=first.batch_size + 1)) != hash(first)
    assert not {"_hash", "kept"} & pickle.loads(pickle.dumps(first)).__dict__.keys()


def test_a_part_measured_at_several_batches_has_a_curve_of_its_own() -> None:
    """A product of matrices that takes 1 ms whatever its size, and 2 ms a sample: a factor would scale both."""

    def seconds(samples: float, fraction: float) -> float:
        return 1e-3 + 2e-3 * samples * fraction

    points = tuple(
        ScalingPoint(
            batch_size=batch, channel_fraction=fraction, forward_s=seconds(batch, fraction),
            backward_s=2 * seconds(batch, fraction),
        )
        for batch, fraction in ((2, 1.0), (2, 0.5), (8, 0.5), (8, 0.25))
    )  # fmt: skip
    layer = Layer(
        name="l", kind="linear", output_shape=(8, 1, 1), forward_s=seconds(8, 1), backward_s=2 * seconds(8, 1),
        output_bytes=8 * 8 * 4, scaling=points,
    )  # fmt: skip
    profile = Profile(model="one", device="none", batch_size=8, layers=(layer,))
    for samples in (2, 4, 8, 16):
        expected = seconds(samples, 0.5), 2 * seconds(samples, 0.5)
        assert shard_seconds(profile, layer, samples, 0.5) == pytest.approx(expected)
    factor = seconds(8, 0.25) / seconds(8, 1)  # measured at one batch size: a factor
    assert shard_seconds(profile, layer, 2, 0.25)[0] == pytest.approx(factor * seconds(2, 1))
