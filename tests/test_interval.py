"""The interval of a predicted step: its causes in closed form, and that nothing known leaves nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from math import hypot

import pytest
from command_line import shardscope
from plans import planned

from simulator import files
from simulator.cluster import AchievedShare, Cluster
from simulator.language_models.accelerators import sheet_of
from simulator.language_models.card_files import read_card
from simulator.language_models.modelled_profile import modelled_profile
from simulator.language_models.training_stack import read_stack, stack_for
from simulator.network.catalogue import read_cluster
from simulator.network.topologies import Wire, flat_switch
from simulator.report.evidence import evidence_of, kind_of, known_evidence
from simulator.report.interval import BAND_TO_RANGE, CPU_DRIFT, capture_spread, step_interval, widened
from simulator.report.metrics import Report
from simulator.run import run
from simulator.units import format_time
from simulator.workload import Profile

PROFILE = files.read_profile("vgg_small")
PAIR = flat_switch(2, Wire(bandwidth_bytes_per_s=125e6, tier="wire"))
BAND = AchievedShare(median=1.0, low=0.8, high=1.25)


def report_of(profile: Profile, cluster: Cluster) -> Report:
    return run(profile, cluster, planned("data", profile, cluster, batch_size=32)).report


def banded(share: AchievedShare) -> Cluster:
    return replace(PAIR, links=tuple(replace(link, achieved=share) for link in PAIR.links))


def test_every_cause_has_its_seconds_and_squares_add_up() -> None:
    profile, cluster = replace(PROFILE, step_s=0.1, step_spread_s=0.004), banded(BAND)
    report = report_of(profile, cluster)
    wire_s = sum(seconds for name, seconds in report.path_s.items() if name.startswith("wire"))
    compute_s = report.step_s - wire_s
    interval = step_interval(report, profile, cluster)
    assert interval.parts["captures"] == pytest.approx((compute_s * BAND_TO_RANGE * 0.04,) * 2)
    assert interval.parts["calibration"] == pytest.approx((wire_s * (1 - 1 / 1.25), wire_s * (1 / 0.8 - 1)))
    assert interval.parts["drift"] == pytest.approx((CPU_DRIFT * report.step_s,) * 2)
    above = hypot(*(part[1] for part in interval.parts.values()))
    assert interval.high_s == pytest.approx(report.step_s + above) and interval.unknown == ()
    assert 0 < interval.low_s < report.step_s


@pytest.mark.parametrize("rate", [16e9, 8e9, 4e9, 1e9])
def test_links_that_hide_behind_compute_may_be_too_slow_for_that(rate: float) -> None:
    """At the ends of a band of 4 times as slow to twice as fast, whether links or compute decide there and here."""
    profile, share = files.read_profile("vgg16_v100"), AchievedShare(median=1.0, low=0.25, high=2.0)
    pair = flat_switch(2, Wire(bandwidth_bytes_per_s=rate, tier="wire"))
    cluster = replace(pair, links=tuple(replace(link, achieved=share) for link in pair.links))
    slower_s, step_s, faster_s = (
        report_of(profile, replace(cluster, links=tuple(link.times(factor) for link in pair.links))).step_s
        for factor in (share.low, 1.0, share.high)
    )
    parts = step_interval(report_of(profile, cluster), profile, cluster).parts
    below_s, above_s = parts.get("calibration", (0.0, 0.0))
    assert 0.9 * slower_s <= step_s + above_s <= slower_s * (1 + 1e-9)
    assert step_s - below_s == pytest.approx(faster_s, rel=0.01)


def test_links_that_are_used_late_may_be_too_slow_for_what_is_left() -> None:
    """Gradients of four micro-batches are summed behind the last backward pass, and at the low end long after it."""
    profile, cluster = files.read_profile("vgg16_v100"), read_cluster("p3-16xlarge", devices=16)
    plan = planned("data", profile, cluster, batch_size=4096)
    share = next(link.achieved for link in cluster.links if link.tier == "inter")
    assert share is not None
    slower = cluster.with_links("inter", lambda link: link.times(share.low / share.median))
    report, slower_s = run(profile, cluster, plan).report, run(profile, slower, plan).report.step_s
    _, above_s = step_interval(report, profile, cluster).parts["calibration"]
    assert slower_s > 1.2 * report.step_s
    assert report.step_s + above_s == pytest.approx(slower_s, rel=0.02)


def test_messages_that_have_more_of_a_link_than_collectives_do_not_widen_it() -> None:
    """At the low end of the band of Ethernet, of which messages get three times what collectives get."""
    profile, cluster = files.read_profile("vgg16_v100"), read_cluster("azure-v100-10g", devices=8)
    plan = planned("owt", profile, cluster, batch_size=512)
    share = next(link.achieved for link in cluster.links if link.tier == "inter")
    assert share is not None
    slower = cluster.with_links("inter", lambda link: link.times(share.low / share.median))
    report = run(profile, cluster, plan).report
    _, above_s = step_interval(report, profile, cluster).parts["calibration"]
    assert report.step_s + above_s == pytest.approx(run(profile, slower, plan).report.step_s, rel=0.01)


def test_it_lies_around_the_step_of_devices_that_vary() -> None:
    profile = replace(PROFILE, step_s=0.1, step_spread_s=0.004)
    report = report_of(profile, PAIR)
    plain, shifted = (step_interval(report, profile, PAIR, middle_s) for middle_s in (None, report.step_s + 0.01))
    assert (plain.middle_s, shifted.middle_s) == (report.step_s, report.step_s + 0.01)
    assert shifted.parts == plain.parts
    ends = [(each.low_s - each.middle_s, each.high_s - each.middle_s) for each in (plain, shifted)]
    assert ends[0] == pytest.approx(ends[1])


def test_what_no_file_says_adds_nothing_and_is_named() -> None:
    layers = tuple(replace(layer, forward_spread_s=0.0, backward_spread_s=0.0) for layer in PROFILE.layers)
    profile = replace(PROFILE, device="no such device", step_spread_s=0.0, layers=layers)
    report = report_of(profile, PAIR)
    interval = step_interval(report, profile, PAIR)
    assert (interval.low_s, interval.high_s, interval.parts) == (report.step_s, report.step_s, {})
    assert interval.unknown == ("the profile has no spreads", "wire links have no measured band")


def test_the_band_of_a_share_is_around_its_median() -> None:
    share, profile = AchievedShare(median=0.4, low=0.32, high=0.5), replace(PROFILE, step_s=0.1)
    report = report_of(profile, PAIR)
    parts = [step_interval(report, profile, banded(band)).parts["calibration"] for band in (share, BAND)]
    assert parts[0] == pytest.approx(parts[1])


def test_without_a_whole_step_the_spread_is_that_of_the_layers() -> None:
    spreads = [s for layer in PROFILE.layers for s in (layer.forward_spread_s, layer.backward_spread_s)]
    share = capture_spread(replace(PROFILE, step_s=None))
    assert share == pytest.approx(BAND_TO_RANGE * hypot(*spreads) / PROFILE.layers_s)


def test_sizes_that_were_not_measured_widen_it() -> None:
    layers = tuple(replace(layer, scaling=()) for layer in PROFILE.layers)
    profile = replace(PROFILE, layers=layers)
    report = report_of(profile, PAIR)
    assert report.step_band_s is not None
    interval = step_interval(report, profile, PAIR)
    assert interval.parts["sizes"] == pytest.approx(
        (report.step_s - report.step_band_s[0], report.step_band_s[1] - report.step_s)
    )


def test_steps_carry_what_published_ones_of_their_kind_missed() -> None:
    profile = replace(PROFILE, device="NVIDIA H100")
    report = report_of(profile, PAIR)
    timed = known_evidence()["timed"]
    assert kind_of(profile) == "timed" and kind_of(PROFILE) == "captured"
    low, high = (pytest.approx(value * report.step_s) for value in (1 - timed.low, timed.high - 1))
    assert step_interval(report, profile, PAIR).parts["model"] == (low, high)
    other = replace(timed, low=0.5, high=2.0)
    interval = widened(step_interval(report, profile, PAIR), report.step_s, other)
    assert interval.parts["model"] == pytest.approx((0.5 * report.step_s, report.step_s))


def test_the_kind_of_a_card_is_that_of_its_stack() -> None:
    card, stack = read_card("gpt2"), read_stack("nanotron-h100")
    assert kind_of(modelled_profile(card, stack)) == "calibrated"
    assert kind_of(modelled_profile(card, stack_for(read_cluster("dgx-h100")))) == "unnamed"
    assert kind_of(modelled_profile(card, replace(stack, accelerator="a100"))) == "stated"
    mixture = modelled_profile(replace(read_card("mixtral-8x7b"), layers=1), stack)
    assert kind_of(mixture) == "mixture" and kind_of(replace(mixture, software={})) == "timed"
    assert kind_of(replace(PROFILE, device="no such device")) is None
    assert "off at the median of" in known_evidence()["stated"].words


def test_the_command_line_says_the_step_of_devices_that_vary(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("simulate", "vgg_small", "--cluster", "cpu-1g", "--strategy", "data")
    assert shardscope(*words, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert 1.01 < said["interval"]["middle_s"] / said["step_s"] < 1.1
    assert shardscope(*words) == 0
    row = f"({format_time(said['interval']['middle_s'])} as devices vary)"
    assert row in " ".join(capsys.readouterr().out.split())
    assert shardscope(*words, "--straggler", "1=1.01") == 0
    assert "as devices vary" not in capsys.readouterr().out


def test_a_card_is_as_sure_as_what_was_published_of_its_kind_or_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = modelled_profile(
        read_card("gpt2"), read_stack("nanotron-h100"), batch_size=4, stack_source="nanotron-h100"
    )
    assert kind_of(profile) == "calibrated"
    known = dict(known_evidence())
    monkeypatch.setattr("simulator.report.evidence.known_evidence", lambda: known)
    assert evidence_of(profile) == known.pop("calibrated")
    assert evidence_of(profile) == known["stated"]


@pytest.mark.parametrize(("accelerator", "uncertain"), [("h100", False), ("b200", True)])
def test_what_a_sheet_leaves_uncertain_is_a_cause_of_modelled_profiles_alone(accelerator: str, uncertain: bool) -> None:
    stack = replace(read_stack("nanotron-h100"), accelerator=accelerator)
    modelled = modelled_profile(read_card("gpt2"), stack)
    measured = replace(modelled, software={})
    report, sheet = report_of(modelled, PAIR), sheet_of(modelled.device)
    assert sheet is not None and bool(sheet.uncertainty) == uncertain
    above_s = sheet.uncertainty * report.step_s
    assert step_interval(report, modelled, PAIR).parts.get("gpu") == ((above_s, above_s) if uncertain else None)
    assert "gpu" not in step_interval(report, measured, PAIR).parts
