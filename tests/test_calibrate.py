"""Calibration: what curves say of links in closed form, and real measurements in the lab and over loopback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install 'shardscope[capture]'")

from simulator import cli
from simulator.cluster import Cluster, Curve
from simulator.errors import InputError
from simulator.network.catalogue import read_cluster, read_runtime, write_cluster
from simulator.network.topologies import Wire, flat_switch, two_tier
from traces.calibrate import links as program
from traces.calibrate.links import Measurement, apply, calibrate
from traces.lab import namespaces
from traces.lab.shaped_network import Lab

REASON = namespaces.available()
pytestmark = pytest.mark.alone
needs_lab = pytest.mark.skipif(REASON is not None, reason=f"no network lab: {REASON}")

RATE = 25e6  # 200 Mbit/s
PAIR = flat_switch(2, Wire(bandwidth_bytes_per_s=RATE))
SIZES = (4, 1 << 14, 1 << 18, 1 << 20)


def line(latency_s: float, bytes_per_s: float) -> list[tuple[float, float, float]]:
    """Points of an exact line; a message of 0 bytes would take the latency."""
    return [(size, latency_s + size / bytes_per_s, 0.0) for size in (1e-6, 1e3, 1e6)]


def measurement(messages: dict[tuple[int, int], list[tuple[float, float, float]]]) -> Measurement:
    return Measurement(
        messages=messages, all_reduces={2: line(1e-3, 1e6)}, send_cpu_s_per_byte=1e-9, receive_cpu_s_per_byte=2e-9,
        busy_latency_s=1e-3,
        spread=0.01,
    )  # fmt: skip


def rising(curve: Curve | None) -> bool:
    assert curve is not None
    times = [seconds for _, seconds in curve.points]
    return times == sorted(times)


def test_an_exact_line_comes_back_as_bandwidth_and_latency() -> None:
    cluster, runtime = apply(PAIR, measurement({(0, 1): line(40e-6, 0.9 * RATE)}), "on paper")
    assert (runtime.send_cpu_s_per_byte, runtime.receive_cpu_s_per_byte, runtime.busy_latency_s) == (1e-9, 2e-9, 1e-3)
    for link in cluster.links:
        assert link.bandwidth_bytes_per_s == pytest.approx(0.9 * RATE, rel=1e-9)
        assert link.latency_s == pytest.approx(20e-6, rel=1e-6)
    assert cluster.transfer_s(0, 1, 1e6) == pytest.approx(40e-6 + 1e6 / (0.9 * RATE), rel=1e-9)
    assert cluster.collectives["all_reduce"][2].seconds(1e6) == pytest.approx(1e-3 + 1.0, rel=1e-9)
    assert "on paper" in cluster.sources[-2]
    assert cluster.sources[-1] == "CPU per byte sent 1.00 ns, received 2.00 ns"


def test_each_tier_learns_from_the_shortest_route_that_crosses_it() -> None:
    intra, inter = Wire(bandwidth_bytes_per_s=1e9, tier="intra"), Wire(bandwidth_bytes_per_s=1e8, tier="inter")
    given = two_tier(4, 2, intra, inter)
    cluster, _ = apply(given, measurement({(0, 1): line(10e-6, 0.8e9), (0, 2): line(50e-6, 0.9e8)}), "on paper")
    found = {link.tier: link for link in cluster.links}
    assert found["intra"].bandwidth_bytes_per_s == pytest.approx(0.8e9, rel=1e-9)
    assert found["inter"].bandwidth_bytes_per_s == pytest.approx(0.9e8, rel=1e-9)
    assert (found["intra"].latency_s, found["inter"].latency_s) == pytest.approx((5e-6, 20e-6), rel=1e-5)
    assert cluster.latency_s(0, 2) == pytest.approx(50e-6, rel=1e-5)


def test_a_disturbed_short_message_takes_no_longer_than_a_longer_one() -> None:
    points = [(4, 3e-3, 0.0), (1e3, 1e-4, 0.0), (1e6, 5e-2, 0.0)]
    curve = apply(PAIR, measurement({(0, 1): points}), "on paper")[0].links[0].curve
    assert curve == Curve(points=((4, 1e-4), (1e3, 1e-4), (1e6, 5e-2)))


@needs_lab
def test_a_lab_of_two_hosts_gives_rising_curves_at_its_rate(tmp_path: Path) -> None:
    with Lab(PAIR) as lab:
        cluster, runtime = calibrate(PAIR, lab, sizes_bytes=SIZES)
    curve = cluster.links[0].curve
    assert rising(curve) and rising(cluster.collectives["all_reduce"][2])
    assert cluster.links[0].bandwidth_bytes_per_s == pytest.approx(RATE * 1448 / 1514, rel=0.1)
    assert 0 < cluster.latency_s(0, 1) < 20e-3
    assert cluster.transfer_s(0, 1, 1 << 20) == pytest.approx((1 << 20) / RATE, rel=0.25)
    # a ring all-reduce of S bytes over 2 devices moves S bytes over each link
    assert cluster.collectives["all_reduce"][2].seconds(1 << 20) == pytest.approx((1 << 20) / RATE, rel=0.4)
    write_cluster(cluster, tmp_path / "measured.yaml", runtime)
    assert read_cluster(tmp_path / "measured.yaml") == cluster
    assert read_runtime(tmp_path / "measured.yaml") == runtime


def test_loopback_is_measured_where_there_is_no_lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(namespaces, "available", lambda: "making network namespaces needs root")
    monkeypatch.setattr(program, "SIZES_BYTES", SIZES)
    write_cluster(PAIR, tmp_path / "pair.yaml")
    assert cli.main(["calibrate", str(tmp_path / "pair.yaml"), "-o", str(tmp_path / "out.yaml")]) == 0
    out, err = capsys.readouterr()
    assert err == "making network namespaces needs root; measuring loopback without shaping instead\n"
    cluster = read_cluster(tmp_path / "out.yaml")
    assert rising(cluster.links[0].curve)
    assert "over loopback, unshaped" in cluster.sources[0] and cluster.sources[0] in out


@pytest.mark.parametrize(
    "cluster, options, told",
    [
        (flat_switch(1, Wire(bandwidth_bytes_per_s=1.0)), {}, "at least 2"),
        (PAIR, {"counts": (3,)}, "each is in 2 to 2"),
        (PAIR, {"sizes_bytes": (4,)}, "a curve needs at least 2"),
    ],
)
def test_what_cannot_be_measured_is_refused(cluster: Cluster, options: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        calibrate(cluster, **options)
