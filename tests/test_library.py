"""The captured profiles that come with Shardscope: complete, consistent, and small enough to ship."""

from __future__ import annotations

from importlib import resources

import pytest

from simulator.files import library, read_profile

CAPTURED = ("alexnet", "inception_v3", "resnet50", "resnet_small", "vgg16", "vgg_small")


def test_the_library_holds_the_networks_of_the_readme() -> None:
    assert set(CAPTURED) <= set(library())


@pytest.mark.parametrize("name", library())
def test_a_library_profile_says_where_it_comes_from_and_adds_up(name: str) -> None:
    profile = read_profile(name)
    assert profile.device and profile.date and profile.software["torch"]
    assert profile.command.startswith("python -m traces.capture")
    assert profile.step_s and profile.layers_to_step
    assert profile.layers_to_step == pytest.approx(profile.layers_s / profile.step_s, rel=1e-5)
    assert abs(profile.layers_to_step - 1) < 0.1
    size = len((resources.files("traces") / "library" / f"{name}.json").read_bytes())
    assert size < 1_000_000


@pytest.mark.parametrize("name", library())
def test_a_library_profile_is_measured_at_every_power_of_two_and_at_fractions(name: str) -> None:
    profile = read_profile(name)
    below = [1 << i for i in range((profile.batch_size - 1).bit_length())]
    for layer in profile.layers:
        assert [point.batch_size for point in layer.scaling if point.channel_fraction == 1] == below
        if layer.kind == "conv2d":
            fractions = [point.channel_fraction for point in layer.scaling if point.channel_fraction < 1]
            assert fractions == [f for f in (0.5, 0.25, 0.125) if layer.channels * f % 1 == 0]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("alexnet", 61_100_840), ("inception_v3", 23_834_568), ("resnet50", 25_557_032), ("vgg16", 138_357_544)],
)
def test_library_profiles_have_the_published_parameters(name: str, parameters: int) -> None:
    assert read_profile(name).parameter_bytes == 4 * parameters
