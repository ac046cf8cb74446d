"""Typical fixed costs: their closed form, who gets them, what reports say of them, and where the table is from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_networks import chain, switched

import partitioners
from simulator import cli, files
from simulator.errors import InputError
from simulator.lowering.costs.shard_costs import shard_seconds
from simulator.lowering.costs.typical_scaling import (
    BOUNDS,
    Bound,
    Direction,
    FixedCost,
    device_class,
    fixed_share,
    typical_costs,
)
from simulator.plan import StepSettings
from simulator.report.metrics import Report
from simulator.run import run
from simulator.workload import Profile, ScalingPoint


def on(device: str, *points: ScalingPoint, kind: str = "linear") -> Profile:
    """One layer of 4 ms forward and 8 ms backward at batch 8."""
    profile = chain([12e-3])
    layer = replace(profile.layers[0], kind=kind, scaling=points)
    return replace(profile, device=device, layers=(layer,))


def seconds(profile: Profile, samples: float, channels: float = 1.0, bound: Bound = "typical") -> tuple[float, float]:
    return shard_seconds(profile, profile.layers[0], samples, channels, bound=bound)


def cost_of(direction: Direction) -> float:
    """Of a matrix product of 12 ms on a GPU."""
    return typical_costs()["GPU", direction, "matrix product"].seconds(12e-3)


@given(st.floats(0.01, 1.0))
def test_a_fraction_takes_its_share_and_the_rest_of_the_fixed_cost(fraction: float) -> None:
    share = cost_of(Direction.BATCH) / 12e-3
    assert 0 < share < 1
    factor = fraction + (1 - fraction) * share
    assert seconds(on("Tesla V100"), 8 * fraction) == pytest.approx((4e-3 * factor, 8e-3 * factor))


def test_half_of_the_channels_of_half_of_the_batch() -> None:
    """The fixed cost of the channels is in seconds, whatever the batch."""
    profile = on("Tesla V100")
    half = seconds(profile, 4)
    fixed = cost_of(Direction.CHANNELS)
    assert sum(seconds(profile, 4, 0.5)) == pytest.approx(sum(half) / 2 + fixed / 2)


def test_a_small_layer_takes_as_long_for_any_part() -> None:
    """Its fixed cost is all of it."""
    cost = FixedCost(
        device_class="GPU", direction=Direction.BATCH, family="every", cost_at_1ms_s=5e-4, exponent=0.0, low=0.5,
        high=2.0, layers=1, networks=("a",),
    )  # fmt: skip
    assert [cost.seconds(whole_s) for whole_s in (1e-5, 5e-4, 1e-2)] == [1e-5, 5e-4, 5e-4]
    assert [cost.seconds(1e-2, bound) for bound in BOUNDS] == pytest.approx([2.5e-4, 5e-4, 1e-3])


def test_measured_points_are_as_they_were() -> None:
    """One direction with points does not say anything of the other."""
    batch = ScalingPoint(batch_size=4, forward_s=3e-3, backward_s=5e-3)
    profile = on("Tesla V100", batch)
    assert seconds(profile, 4) == (3e-3, 5e-3)
    assert seconds(profile, 2) == pytest.approx((2.5e-3, 3.5e-3))
    assert sum(seconds(profile, 8, 0.5)) == pytest.approx(6e-3 + cost_of(Direction.CHANNELS) / 2)
    profile = on("Tesla V100", ScalingPoint(batch_size=8, channel_fraction=0.5, forward_s=3e-3, backward_s=6e-3))
    assert seconds(profile, 8, 0.25) == pytest.approx((2.5e-3, 5e-3))
    assert sum(seconds(profile, 4)) == pytest.approx(6e-3 + cost_of(Direction.BATCH) / 2)


def test_an_unknown_device_scales_in_proportion() -> None:
    assert [device_class(name) for name in ("none", "", "TPU v4", "d")] == [""] * 4
    assert seconds(on("none"), 2, 0.5) == pytest.approx((0.5e-3, 1e-3))


def test_every_device_of_the_library_is_known() -> None:
    known = {name: device_class(files.read_profile(name).device) for name in files.library()}
    assert {name for name, kind in known.items() if kind == "GPU"} == {
        name for name in known if name.rpartition("_")[2] in ("v100", "a100", "h100", "mi250", "gh200", "4gh200")
    }
    assert set(known.values()) == {"GPU", "CPU"}
    assert [device_class(name) for name in ("A100-SXM4-40GB", "H200", "AMD EPYC 7763", "RTX 4090")] == [
        "GPU", "GPU", "CPU", "GPU",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["GPU", "CPU"])
@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("name", ["conv2d", "linear", "attention", "relu", "unheard-of"])
def test_the_spread_holds_the_typical_cost(kind: str, direction: Direction, name: str) -> None:
    layer = on("", kind=name).layers[0]
    low, typical, high = (fixed_share(kind, direction, layer, bound) for bound in BOUNDS)
    assert 0 <= low <= typical <= high <= 1 and typical > 0


def report(profile: Profile, batch_size: int, microbatches: int = 1) -> Report:
    cluster = switched([1.0, 1.0], bandwidth_bytes_per_s=1e15)
    step = StepSettings(batch_size=batch_size, microbatches=microbatches)
    return run(profile, cluster, partitioners.make_plan("data", profile, cluster, step)).report


def test_a_report_says_what_was_not_measured_and_how_far_it_may_be_off() -> None:
    profile = on("Tesla V100")
    full, part = report(profile, 16), report(profile, 4)
    assert (full.sizes_note, full.step_band_s) == ("", None)
    low_s, high_s = (sum(seconds(profile, 2, bound=bound)) for bound in ("low", "high"))
    assert part.step_band_s == pytest.approx((low_s, high_s), rel=1e-6)
    assert low_s < part.step_s < high_s
    percents = f"{low_s / part.step_s - 1:+.0%}..{high_s / part.step_s - 1:+.0%}".replace("%..", "..").replace(
        "%", " %"
    )
    assert part.sizes_note == f"times at 2 of 8 samples: typical curve of GPUs, {percents}"
    assert part.to_dict()["sizes_note"] == part.sizes_note


def test_proportional_and_measured_times_have_no_band() -> None:
    unknown = report(on("none"), 4)
    assert unknown.step_band_s is None
    assert unknown.sizes_note == "times at 2 of 8 samples: in proportion, as no curve is known for device 'none'"
    measured = report(on("Tesla V100", ScalingPoint(batch_size=4, forward_s=3e-3, backward_s=5e-3)), 4)
    assert (measured.sizes_note, measured.step_band_s) == ("", None)


def test_the_command_line_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files.write_profile(on("Tesla V100"), tmp_path / "one.json")
    command = ["compare", str(tmp_path / "one.json"), "--cluster", "p3-8xlarge", "--devices", "2"]
    assert cli.main([*command, "--strategies", "data"]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.endswith("batch 16 (8 per device: weak scaling)") and not any("typical" in line for line in rest)
    assert cli.main([*command, "--strategies", "data", "--batch-size", "4"]) == 0
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.endswith("batch 4") and last.startswith("note: data: the profile lacks sizes that it computes at")
    assert cli.main([*command, "--strategies", "data", "--batch-size", "4", "--verbose"]) == 0
    *_, last = capsys.readouterr().out.splitlines()
    assert last.startswith("note: data, times at 2 of 8 samples: typical curve of GPUs, ") and "; step " in last
    assert cli.main([*command, "--strategies", "data", "--batch-size", "4", "--json"]) == 0
    low_s, high_s = json.loads(capsys.readouterr().out)["strategies"][0]["report"]["step_band_s"]
    assert 0 < low_s < high_s


def test_the_table_is_what_its_command_makes() -> None:
    """And networks that it was not made of are predicted better than in proportion."""
    typical_scaling = pytest.importorskip("benchmarks.library.typical_scaling")
    try:
        profiles = typical_scaling.measured_profiles()
    except (FileNotFoundError, InputError) as error:
        pytest.skip(f"published measurements: {error}")
    parts = [part for profile in profiles for part in typical_scaling.measured_parts(profile)]
    made = typical_scaling.costs_of(parts)
    assert made.keys() == typical_costs().keys()
    for key, cost in typical_costs().items():
        assert made[key].networks == cost.networks and made[key].layers == cost.layers
        for name in ("cost_at_1ms_s", "exponent", "low", "high"):
            assert getattr(made[key], name) == pytest.approx(getattr(cost, name), rel=1e-3), (key, name)
    outcomes = list(typical_scaling.held_out(profiles))
    assert len(outcomes) > 50
    for kind, most in (("GPU", 0.6), ("CPU", 0.5)):  # of GPUs one network alone shows the channels of convolutions
        group = [each for each in outcomes if device_class(each.profile.device) == kind and each.fraction < 0.5]
        before = sum(abs(each.proportional_s / each.measured_s - 1) for each in group)
        after = sum(abs(each.typical_s / each.measured_s - 1) for each in group)
        assert after < most * before
