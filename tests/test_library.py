"""The profiles that come with Shardscope, captured and imported: complete, consistent, and small enough to ship."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from simulator.files import library, read_profile

CAPTURED = ("alexnet", "inception_v3", "resnet50", "resnet_small", "vgg16", "vgg_small")


def test_the_library_holds_the_networks_of_the_readme() -> None:
    assert set(CAPTURED) <= set(library())


HERE = [name for name in library() if not read_profile(name).source]
"""Those captured by this project's own program."""
IMPORTED = [name for name in library() if name not in HERE]


@pytest.mark.parametrize("name", HERE)
def test_a_library_profile_says_where_it_comes_from_and_adds_up(name: str) -> None:
    profile = read_profile(name)
    assert profile.device and profile.date and profile.software["torch"]
    assert profile.command.startswith("python -m traces.capture")
    assert profile.step_s and profile.layers_to_step
    assert profile.layers_to_step == pytest.approx(profile.layers_s / profile.step_s, rel=1e-5)
    assert abs(profile.layers_to_step - 1) < 0.1


def test_the_library_stays_under_a_megabyte() -> None:
    folder = resources.files("traces") / "library"
    assert sum(len(entry.read_bytes()) for entry in folder.iterdir()) < 1_000_000


def test_ten_profiles_are_of_real_gpus() -> None:
    assert len(IMPORTED) >= 10
    assert {"resnet50_v100", "resnet50_a100", "resnet50_h100", "gpt2_large_h100", "bert_large_mi250"} <= set(IMPORTED)


@pytest.mark.parametrize("name", IMPORTED)
def test_an_imported_profile_says_whose_it_is(name: str) -> None:
    profile = read_profile(name)
    assert profile.source.partition("https://")[2] and profile.attribution.startswith("Copyright (c) ")
    assert profile.licence == "MIT"
    assert profile.command.startswith(("shardscope import ", f"python -m benchmarks.library.gpu_library {name}  # of "))
    assert profile.device and profile.notes and profile.dtype in ("float32", "tf32", "float16")
    if profile.step_s is not None:
        assert profile.layers_to_step == pytest.approx(profile.layers_s / profile.step_s, rel=1e-4)
        assert 0.95 < profile.layers_to_step < 1.06


@pytest.mark.parametrize("name", IMPORTED)
def test_the_notices_name_every_imported_profile(name: str) -> None:
    notices = (Path(__file__).parent.parent / "THIRD_PARTY.md").read_text(encoding="utf-8")
    assert f"`{name}`" in notices
    assert read_profile(name).source in notices


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("resnet50_v100", 25.557032),
        ("resnet50_a100", 25.557032),
        ("resnet50_h100", 25.557032),
        ("vgg13_h100", 133.047848),
        ("vgg16_v100", 138.357544),
        ("gpt2_large_h100", 774.030080),
        ("bert_large_v100", 336.226108),
        ("bert_large_mi250", 336.226108),
    ],
)
def test_imported_profiles_have_the_published_parameters(name: str, millions: float) -> None:
    assert read_profile(name).parameter_bytes / 4e6 == pytest.approx(millions, abs=1e-9)


def test_the_largest_imported_networks_have_about_their_parameters() -> None:
    """Aceso rounds its sizes to kilobytes; Sailor counts the output layer apart from the embedding it shares."""
    assert read_profile("gpt_1_3b_v100").parameter_bytes / 2e9 == pytest.approx(1.317, abs=0.001)
    assert read_profile("wide_resnet_500m_v100").parameter_bytes / 4e6 == pytest.approx(500, rel=0.02)
    assert read_profile("opt_350m_gh200").parameter_bytes / 4e6 == pytest.approx(
        53.608448 + 24 * 12.596224 + 51.513344, abs=1e-6
    )


@pytest.mark.parametrize("name", HERE)
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


@pytest.mark.parametrize("name", IMPORTED)
def test_the_page_of_profiles_has_every_imported_one_with_its_ratio(name: str) -> None:
    page = (Path(__file__).parent.parent / "docs" / "profiles.md").read_text(encoding="utf-8")
    (row,) = [line.split("|") for line in page.splitlines() if line.startswith(f"| {name} ")]
    profile = read_profile(name)
    assert row[3].strip() == profile.dtype and row[4].split(";")[0].strip() == str(profile.batch_size)
    ratio = "not measured" if profile.layers_to_step is None else f"{profile.layers_to_step:.3f}"
    assert row[5].strip().startswith(ratio)
