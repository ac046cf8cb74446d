"""What would be faster, and a plan in words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_closed_forms import ONE_BUCKET, chain, replicated, staged, star

from simulator.curve import Curve
from simulator.plan import Sharding
from simulator.run import run
from simulator.studies.explain import crossing_words, describe, explain
from simulator.studies.what_if import gains


def test_gains_follow_from_the_parts_of_the_step() -> None:
    """Without overlap a step is compute + bandwidth + latency terms; doubling one halves just that term."""
    profile, cluster = chain(4, batch=4), star(4)
    plan = replicated(profile, 4, synchronisation=ONE_BUCKET)
    compute_s, wire_s, latency_s = 4 * 0.03 / 4, 1.5 * profile.parameter_bytes / 1e9, 6 * 1e-5
    step_s = compute_s + wire_s + latency_s
    speedups = {gain.change: gain.speedup for gain in gains(profile, cluster, plan)}
    assert speedups == {
        "devices twice as fast": pytest.approx(step_s / (step_s - compute_s / 2)),
        "link links with twice the bandwidth": pytest.approx(step_s / (step_s - wire_s / 2)),
        "link links with half the latency": pytest.approx(step_s / (step_s - latency_s / 2)),
    }
    assert [gain.resource for gain in gains(profile, cluster, plan)] == ["compute", "link", "link"]


def test_a_measured_link_is_doubled_too() -> None:
    profile = chain(2)
    curve = Curve(points=((1.0, 1e-9), (1e9, 10.0)))
    cluster = star(2)
    measured = replace(cluster, links=tuple(replace(link, curve=curve, latency_s=0.0) for link in cluster.links))
    plan = staged(profile, 2, 1, "dataflow")
    speedups = {gain.change: gain.speedup for gain in gains(profile, measured, plan)}
    step_s = run(profile, measured, plan).timeline.step_s
    wire_s = step_s - 2 * 0.03
    assert speedups["link links with twice the bandwidth"] == pytest.approx(step_s / (step_s - wire_s / 2), rel=1e-3)


@pytest.mark.parametrize(
    ("degrees", "devices", "words"),
    [
        ((1, 1, 1, 1), (3,), "whole on device 3"),
        ((4, 1, 1, 1), (0, 1, 2, 3), "4 by sample on devices 0-3"),
        ((2, 2, 1, 1), (0, 1, 4, 5), "2 by sample x 2 by channel on devices 0-1, 4-5"),
        ((1, 1, 2, 2), (0, 0, 0, 1), "2 by height x 2 by width: 3 on 0, 1 on 1"),
    ],
)
def test_placements_in_words(degrees: tuple[int, int, int, int], devices: tuple[int, ...], words: str) -> None:
    assert describe(Sharding(degrees=degrees, devices=devices)) == words


def test_explanation_names_splits_crossings_and_bottleneck() -> None:
    profile, cluster = chain(4), star(2)
    explanation = explain(profile, cluster, run(profile, cluster, staged(profile, 2, 1, "dataflow")))
    assert explanation.splits == (("l0", "l1", "whole on device 0"), ("l2", "l3", "whole on device 1"))
    assert [crossing_words(use) for use in explanation.crossings] == [
        "l1: 1.50 KiB activations, 1.50 KiB their gradients (computes 30.0 ms)"
    ]
    assert explanation.bottleneck.startswith("compute")
    assert explanation.gains[0].resource == "compute"
    assert explanation.gains[0].speedup == pytest.approx(2, rel=1e-2)
