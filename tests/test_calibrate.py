"""Calibration: what curves say of links in closed form, and real measurements in the lab and over loopback."""

from __future__ import annotations

import os
import random
import statistics
from dataclasses import replace
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is not installed; make test installs it")

from plans import planned

from simulator import cli, files
from simulator.cluster import Cluster
from simulator.curve import Curve
from simulator.errors import InputError
from simulator.network.catalogue import read_cluster, read_runtime, write_cluster
from simulator.network.topologies import Wire, flat_switch, two_tier
from simulator.plan import Synchronisation
from traces.calibrate import command, link_probe, links
from traces.calibrate.command import largest_sent_bytes
from traces.calibrate.links import CoreGroup, Measurement, apply, calibrate, core_groups, notes, with_cores
from traces.calibrate.median_calibration import band_of, curve_of, sizes_to, typical_mean
from traces.lab import namespaces
from traces.lab.launch import launch
from traces.lab.link_shaping import Shaping
from traces.lab.rank import Rank
from traces.lab.shaped_network import Lab

REASON = namespaces.available()
pytestmark = pytest.mark.usefixtures("forked_python")
needs_lab = pytest.mark.skipif(REASON is not None, reason=f"no network lab: {REASON}")

RATE = 25e6  # 200 Mbit/s
PAIR = flat_switch(2, Wire(bandwidth_bytes_per_s=RATE))
SIZES = (4, 1 << 14, 1 << 18, 1 << 20)


def line(latency_s: float, bytes_per_s: float) -> list[tuple[float, float, float]]:
    """Points of an exact line; a message of 0 bytes would take the latency."""
    return [(size, latency_s + size / bytes_per_s, 0.0) for size in (1e-6, 1e3, 1e6)]


def measurement(messages: dict[tuple[int, int], list[tuple[float, float, float]]], **changes: Any) -> Measurement:
    values: dict[str, Any] = {
        "messages": messages, "collectives": {"all_reduce": {2: line(1e-3, 1e6)}},
        "send_s_per_byte": 1e-9, "receive_s_per_byte": 2e-9, "round_wait_s": 1e-3,
    }  # fmt: skip
    return Measurement(**(values | changes))


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
    assert "on paper" in cluster.sources[-1]
    assert runtime.rendezvous and runtime.gradient_scaling == 2 / 8


def test_each_tier_learns_from_the_shortest_route_that_crosses_it() -> None:
    intra, inter = Wire(bandwidth_bytes_per_s=1e9, tier="intra"), Wire(bandwidth_bytes_per_s=1e8, tier="inter")
    nominal = two_tier(4, 2, intra, inter)
    cluster, _ = apply(nominal, measurement({(0, 1): line(10e-6, 0.8e9), (0, 2): line(50e-6, 0.9e8)}), "on paper")
    by_tier = {link.tier: link for link in cluster.links}
    assert by_tier["intra"].bandwidth_bytes_per_s == pytest.approx(0.8e9, rel=1e-9)
    assert by_tier["inter"].bandwidth_bytes_per_s == pytest.approx(0.9e8, rel=1e-9)
    assert (by_tier["intra"].latency_s, by_tier["inter"].latency_s) == pytest.approx((5e-6, 20e-6), rel=1e-5)
    assert cluster.latency_s(0, 2) == pytest.approx(50e-6, rel=1e-5)


def test_a_short_message_that_took_longer_than_longer_ones_takes_what_they_take_on_average() -> None:
    points = [(4, 3e-3, 0.0), (1e3, 1e-3, 0.0), (2e3, 2e-3, 0.0), (1e6, 5e-2, 0.0)]
    curve = apply(PAIR, measurement({(0, 1): points}), "on paper")[0].links[0].curve
    assert curve == Curve(points=((4, 2e-3), (1e3, 2e-3), (2e3, 2e-3), (1e6, 5e-2)))


@given(st.lists(st.floats(1e-6, 10), min_size=2, max_size=12))
def test_a_curve_keeps_the_sum_of_the_means_and_those_that_rise(means: list[float]) -> None:
    curve = curve_of([(4.0**number, seconds, 0.0) for number, seconds in enumerate(means)])
    assert rising(curve) and sum(seconds for _, seconds in curve.points) == pytest.approx(sum(means))
    assert curve_of([(size, seconds, 0.0) for size, seconds in curve.points]) == curve


def test_a_typical_mean_is_that_of_both_of_two_times_and_not_of_a_disturbance() -> None:
    twofold = [1e-3, 5e-3, 5e-3, 1e-3, 1e-3] * 6
    random.Random(0).shuffle(twofold)
    assert typical_mean(twofold) == pytest.approx(2.6e-3, rel=0.15)
    assert typical_mean([*twofold[:-1], 1.0]) == pytest.approx(2.6e-3, rel=0.3)
    assert typical_mean([3.0]) == 3.0 and typical_mean([1.0, 2.0, 9.0]) == 2.0
    assert typical_mean([0, 10, 20, 30, 40, 2, 12]) == 20  # of 1, 11, 20, 30 and 40


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=2, max_size=10))
def test_any_measurement_gives_a_curve_a_rate_and_a_band(measured: list[tuple[float, float]]) -> None:
    points = [(4.0**number, *each) for number, each in enumerate(measured)]
    cluster, _ = apply(PAIR, measurement({(0, 1): points}, collectives={"all_gather": {2: points}}), "on paper")
    link = cluster.links[0]
    assert rising(link.curve) and 0 < link.bandwidth_bytes_per_s < inf and link.latency_s >= 0
    assert link.achieved is not None and link.achieved.low <= 1 <= link.achieved.high
    assert cluster.transfer_s(0, 1, 1e9) >= cluster.transfer_s(0, 1, 4.0)


def test_equal_times_at_the_two_largest_sizes_leave_the_rate_of_the_segment_before() -> None:
    points = [(1e3, 1e-3, 0.0), (2e3, 2e-3, 0.0), (8e3, 3e-3, 0.0), (16e3, 3e-3, 0.0)]
    assert curve_of(points).bytes_per_s == pytest.approx(14e3 / 1e-3)
    assert curve_of([(1e3, 1e-3, 0.0), (2e3, 1e-3, 0.0)]).bytes_per_s == 2e6


def test_a_band_is_1_22_interquartile_ranges_to_each_side() -> None:
    band = band_of([(1.0, 1.0, 0.0), (1.5, 1.0, 1.0), (2.0, 2.0, 0.2)])
    assert (band.low, band.median, band.high) == pytest.approx((1 / 1.122, 1.0, 1 / 0.878))


def test_sizes_go_up_to_what_a_plan_sends() -> None:
    assert sizes_to(50, (1, 16)) == (1, 16, 50)
    assert sizes_to(1000, (1, 16)) == (1, 16, 64, 256, 1000)
    assert sizes_to(8, (1, 16)) == (1, 8, 16)


def test_a_plan_sends_at_most_its_largest_bucket_or_message() -> None:
    profile = files.read_profile("vgg_small")
    data = planned("data", profile, PAIR, batch_size=32, synchronisation=Synchronisation(bucket_bytes=1 << 20))
    sizes = [layer.parameter_bytes for layer in profile.layers]
    assert max(sizes) <= largest_sent_bytes(profile, data, PAIR) < max(sizes) + (1 << 20)
    pipeline = planned("pipeline", profile, PAIR, judged=False, batch_size=32, microbatches=4, schedule="gpipe")
    crossing = {round(layer.output_bytes / 4) for layer in profile.layers}
    assert largest_sent_bytes(profile, pipeline, PAIR) in crossing


def test_without_a_profile_a_plan_is_of_the_one_that_it_was_made_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not of one that its network's name calls: this one's is called like another that ships."""
    profile, plan = tmp_path / "mine.json", tmp_path / "plan.json"
    files.write_profile(replace(files.read_profile("vgg_digits"), model="vgg16"), profile)
    command_line = ["partition", str(profile), "--cluster", "cpu-1g", "--devices", "2", "--strategy", "data"]
    assert cli.main([*command_line, "--output", str(plan)]) == 0
    largest = list[int]()

    def ended(most: int, shortest: object) -> None:
        largest.append(most)
        raise InputError("known")

    monkeypatch.setattr(command, "sizes_to", ended)
    monkeypatch.setattr(command, "_check_place", lambda cluster: None)
    calibrate = ["calibrate", "cpu-1g", "--devices", "2", "-o", str(tmp_path / "measured.yaml"), "--plan", str(plan)]
    assert [cli.main([*calibrate, *options]) for options in ([], ["--profile", str(profile)])] == [2, 2]
    assert largest == [files.read_profile(profile).parameter_bytes] * 2


def test_ranks_share_the_cores_that_they_have_in_common() -> None:
    groups = core_groups([("a", [0]), ("a", [1]), ("a", [0]), ("b", [0, 1]), ("b", [1, 2])])
    assert groups == [
        CoreGroup(ranks=(0, 2), cores=1), CoreGroup(ranks=(1,), cores=1), CoreGroup(ranks=(3, 4), cores=3)
    ]  # fmt: skip


def test_a_cluster_whose_file_says_other_cores_is_corrected_and_says_so() -> None:
    stated = flat_switch(4, Wire(bandwidth_bytes_per_s=RATE))
    hosts = [device.host for device in stated.devices]
    stated = replace(stated, host_cores=dict.fromkeys(hosts, 1.0))
    cores = (CoreGroup(ranks=(0, 1, 2, 3), cores=2),)
    cluster, _ = apply(stated, measurement({(0, 1): line(1e-3, RATE)}, cores=cores), "on paper")
    assert cluster.host_cores == {hosts[0]: 2.0} and {device.host for device in cluster.devices} == {hosts[0]}
    assert cluster.sources[-2:] == (
        "ranks 0, 1, 2, 3 share 2 cores of one machine: they compute in turns, and so does a prediction",
        f"{', '.join(hosts)} had 4 cores in the cluster's file; ranks 0, 1, 2, 3 have 2",
    )
    apart = core_groups([("a", [0]), ("a", [1])])
    assert (
        len(with_cores(replace(PAIR, devices=tuple(replace(d, host="h") for d in PAIR.devices)), apart).host_cores) == 2
    )
    assert notes(replace(PAIR, host_cores={}), [CoreGroup(ranks=(0, 1), cores=2)]) == []  # one for each


def test_links_rest_three_times_as_long_as_the_last_transfer_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    rested_s: list[float] = []
    monkeypatch.setattr(link_probe, "compute", rested_s.append)
    for transfer_s in (0.0, 0.01, 1.0):
        link_probe._rest(transfer_s)
    assert rested_s == pytest.approx([0.005, 0.03, 0.05])


def test_products_of_matrices_are_counted_as_they_are_made() -> None:
    over = iter([False, False, True])
    per_s, seconds = link_probe._products(lambda start_s: next(over))
    assert per_s * seconds == pytest.approx(3)


class CountedCollectives:
    """All-reduces of two seconds each on a clock that nothing else moves."""

    now_s = 0.0

    def barrier(self) -> None:
        pass

    def all_reduce(self, tensor: object, async_op: bool = False) -> SimpleNamespace:
        self.now_s += 0.0 if async_op else 2.0
        return SimpleNamespace(is_completed=lambda: True)


@pytest.mark.parametrize("ranks", [2, 3])
def test_each_round_of_a_ring_waits_for_its_share(ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """26 s beside compute, 2 s without: 24 s more over the 2 (N - 1) rounds; the first time does not count."""
    group = CountedCollectives()
    monkeypatch.setattr(link_probe, "dist", group)
    monkeypatch.setattr(link_probe, "time", SimpleNamespace(perf_counter=lambda: group.now_s))
    busy_s = iter([100.0, 26.0, 26.0, 100.0, 26.0])
    monkeypatch.setattr(link_probe, "_products", lambda done: (0.0, next(busy_s)))
    rank = cast(Rank, SimpleNamespace(ranks=ranks))
    assert link_probe.round_waits(rank, [2, 1]) == pytest.approx([24 / (2 * (ranks - 1))] * 3)


@pytest.mark.parametrize(("size", "whole", "part"), [(64, 16, 4), (72, 18, 4), (3, 1, 1)])
def test_collectives_of_so_many_bytes_are_measured_on_floats(
    size: int, whole: int, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four ranks; a whole one has four parts, and an empty one is one float."""
    group = SimpleNamespace(
        all_gather_into_tensor=lambda whole, part, group: (len(whole), len(part), group),
        reduce_scatter_tensor=lambda part, whole, group: (len(whole), len(part), group),
        all_reduce=lambda whole, group: (len(whole), group),
    )
    monkeypatch.setattr(link_probe, "dist", group)
    for name in ("all_gather", "reduce_scatter"):
        assert link_probe._prepared(name, "ranks", 4, size)() == (4 * part, part, "ranks")
    assert link_probe._prepared("all_reduce", "ranks", 4, size)() == (whole, "ranks")


def test_a_size_is_measured_again_while_its_times_lie_apart() -> None:
    quiet, disturbed = [0.044] * 6, [0.044, 0.054, 0.044, 0.063, 0.044, 0.058]
    assert link_probe._unsteady(quiet[:5], 6) and not link_probe._unsteady(quiet, 6)
    assert link_probe._unsteady(disturbed, 6) and not link_probe._unsteady(disturbed + 9 * [0.044], 6)
    assert not link_probe._unsteady(disturbed * 5, 6)  # 30 times
    assert not link_probe._unsteady([20 * seconds for seconds in disturbed], 6)  # 6 seconds


@pytest.mark.alone
def test_messages_go_there_and_back_as_often_as_their_size_asks_for() -> None:
    """Over loopback; the times are the first rank's, and above 0."""
    sizes = [1, 1 << 12]
    first, second = launch(
        "traces.calibrate.link_probe:_messages",
        2,
        arguments={"pair": [0, 1], "sizes": sizes, "rate": 1e9},
        timeout_s=600,
    )
    assert second == [[], []]
    for size, seconds in zip(sizes, first, strict=True):
        assert link_probe._repeats(size, 1e9) <= len(seconds) <= link_probe.MAX_REPEATS and min(seconds) > 0


@pytest.mark.alone
@needs_lab
def test_a_message_after_a_rest_passes_a_token_bucket_at_full_speed() -> None:
    size = 1 << 16
    task = {"pair": [0, 1], "sizes": [size], "rate": RATE}
    quartiles_s: list[float] = []
    with Lab(PAIR, Shaping(discipline="htb", burst_s=5e-3)) as lab:  # a bucket of 125,000 bytes
        # there and back without rests each bucket refills half of the time, so that a message takes size / rate / 2;
        # what else the machine does only adds to that
        while min(quartiles_s, default=inf) >= 0.6 * size / RATE / 2 and len(quartiles_s) < 3:
            (seconds,) = launch("traces.calibrate.link_probe:_messages", 2, lab=lab, arguments=task)[0]
            quartiles_s.append(statistics.quantiles(seconds, n=4)[0])
    assert min(quartiles_s) < 0.6 * size / RATE / 2


@pytest.mark.alone
@needs_lab
def test_a_lab_of_two_hosts_gives_rising_curves_at_its_rate(tmp_path: Path) -> None:
    with Lab(PAIR) as lab:
        for _ in range(3):  # until one says itself that nothing else held its longest messages up
            cluster, runtime = calibrate(PAIR, lab, sizes_bytes=SIZES)
            achieved = cluster.links[0].achieved
            if achieved is not None and achieved.low > 0.95:
                break
    curve = cluster.links[0].curve
    assert rising(curve) and rising(cluster.collectives["all_reduce"][2])
    assert cluster.links[0].bandwidth_bytes_per_s == pytest.approx(RATE * 1448 / 1514, rel=0.1)
    assert 0 < cluster.latency_s(0, 1) < 20e-3
    assert cluster.transfer_s(0, 1, 1 << 20) == pytest.approx((1 << 20) / RATE, rel=0.25)
    # a ring all-reduce of S bytes over 2 devices moves S bytes over each link
    assert cluster.collectives["all_reduce"][2].seconds(1 << 20) == pytest.approx((1 << 20) / RATE, rel=0.4)
    assert 0 < runtime.send_cpu_s_per_byte < 1e-6 and 0 < runtime.receive_cpu_s_per_byte < 1e-6
    assert rising(cluster.collectives["all_gather"][2]) and rising(cluster.collectives["reduce_scatter"][2])
    write_cluster(cluster, tmp_path / "measured.yaml", runtime)
    assert read_cluster(tmp_path / "measured.yaml") == cluster
    assert read_runtime(tmp_path / "measured.yaml") == runtime


@pytest.mark.alone
def test_loopback_is_measured_where_there_is_no_lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(namespaces, "available", lambda: "making network namespaces needs root")
    monkeypatch.setattr(links, "SIZES_BYTES", SIZES)
    write_cluster(PAIR, tmp_path / "pair.yaml")
    written = str(tmp_path / "out.yaml")
    assert cli.main(["calibrate", str(tmp_path / "pair.yaml"), "--budget", "1s", "-o", written]) == 0
    out, err = capsys.readouterr()
    assert err == "making network namespaces needs root; measuring loopback without shaping instead\n"
    cluster = read_cluster(tmp_path / "out.yaml")
    assert rising(cluster.links[0].curve)
    assert "over loopback, unshaped" in cluster.sources[0] and cluster.sources[0] in out
    runtime = read_runtime(tmp_path / "out.yaml")
    assert runtime.rendezvous and runtime.pass_overhead_s > 0 and "a pass of torch's pipelines" in out
    assert "copies gradients in" in cluster.sources[-1] and cluster.sources[-1] in out
    advised = cluster.sources[-1].partition("is set: ")[2].removesuffix(" (a GB) predicts it").split()
    command = ["simulate", "vgg_small", "--cluster", str(tmp_path / "out.yaml"), "--strategy", "data"]
    assert cli.main([*command, *advised]) == 0 and len(advised) == 4
    assert sum(cluster.host_cores.values()) == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    "cluster, options, complaint",
    [
        (flat_switch(1, Wire(bandwidth_bytes_per_s=1.0)), {}, "at least 2"),
        (PAIR, {"counts": (3,)}, "each is in 2 to 2"),
        (PAIR, {"sizes_bytes": (4,)}, "a curve needs at least 2"),
    ],
)
def test_what_cannot_be_measured_is_refused(cluster: Cluster, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        calibrate(cluster, **options)


@pytest.mark.parametrize(
    ("all_reduces_s", "budget", "passes", "band"),
    [
        ((1.0, 1.0, 1.0), "10min", 3, (1.0, 1.0)),
        ((1.0, 1.25, 0.8, 1.0), "2min", 4, (1 / 1.25, 1 / 0.8)),
        ((1.0, 1.25), "70s", 2, (1.125 / 1.25, 1.125)),
        ((1.0,), "10s", 1, (1.0, 1.0)),
    ],
)
def test_calibration_goes_on_until_passes_agree_or_the_budget_is_spent(
    all_reduces_s: tuple[float, ...],
    budget: str,
    passes: int,
    band: tuple[float, float],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Passes of 30 s: three that agree, else as many as fit; how far all-reduces differ is in the links' band."""
    slower = iter(all_reduces_s)

    def measured(cluster: Cluster, task: dict[str, Any], timeout_s: float) -> tuple[list[Any], str]:
        pair = [[30.0] for _ in task["sizes"]]
        times = {"all_reduce": [[[seconds] for _ in task["sizes"]] for seconds in [next(slower)]]}
        each = {
            "messages": [pair], "collectives": {"all_gather": [pair], "reduce_scatter": [pair], **times},
            "round_waits_s": [1e-3], "lost_s_per_byte": [1e-9], "cores": None, "stolen_share": None,
            "pass_cost": (1e-3, 0.0), "copies_s_per_byte": 1e-10, "taken_s": 30.0,
        }  # fmt: skip
        return [each, each], "on paper"

    monkeypatch.setattr(command, "_on_ranks", measured)
    monkeypatch.setattr(command.time, "sleep", lambda seconds: None)
    monkeypatch.setattr("traces.calibrate.links.core_groups", lambda cores: ())
    write_cluster(PAIR, tmp_path / "pair.yaml")
    out = tmp_path / "out.yaml"
    assert cli.main(["calibrate", str(tmp_path / "pair.yaml"), "--budget", budget, "-o", str(out)]) == 0
    cluster, said = read_cluster(out), capsys.readouterr()
    assert f"the median of {passes} pass(es): core time per byte sent 1.00 ns" in " ".join(cluster.sources)
    assert said.err.count("measuring again") == passes - 1
    share = cluster.links[0].achieved
    assert share is not None and (share.low, share.high) == pytest.approx(band)
    differ = "all_reduce of 2 by" in " ".join(cluster.sources)
    assert differ == (max(all_reduces_s) / min(all_reduces_s) > 1.1) == ("uncertain" in said.out)


def test_a_probe_measures_powers_of_two_and_all_devices_of_every_kind_of_route() -> None:
    """Fast messages are timed as if a link carried 10 GB/s, or they are over before they are seen."""
    wires = Wire(bandwidth_bytes_per_s=1e12, tier="intra"), Wire(bandwidth_bytes_per_s=1e6, tier="inter")
    asked = links.probe_arguments(two_tier(6, 2, *wires))
    assert asked["counts"] == [2, 4, 6] and asked["sizes"] == sorted(links.SIZES_BYTES)
    assert asked["pairs"] == [(0, 1), (0, 2)] and asked["rates"] == [1e10, 1e6]
    assert asked["collectives"] == list(links.COLLECTIVES)
    assert links.probe_arguments(flat_switch(129, wires[0]))["counts"] == [2, 4, 8, 16, 32, 64, 128, 129]
    assert links.probe_arguments(flat_switch(8, wires[0]))["counts"] == [2, 4, 8]
    own = links.probe_arguments(PAIR, [8, 4, 8], [2], ["broadcast"])
    assert (own["sizes"], own["counts"], own["collectives"]) == ([4, 8], [2], ["broadcast"])


@pytest.mark.parametrize(
    ("devices", "sizes", "counts", "complaint"),
    [(1, None, None, "devices is 1"), (2, [4, 4], None, "sizes_bytes"), (2, None, [3], "counts"), (2, None, [1], "c")],
)
def test_a_probe_needs_two_devices_and_two_sizes(
    devices: int, sizes: list[int] | None, counts: list[int] | None, complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        links.probe_arguments(flat_switch(devices, Wire(bandwidth_bytes_per_s=RATE)), sizes, counts)
