"""Scaling studies: closed forms of each point, names, the bottleneck with its evidence, usage over the step."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli import shardscope
from test_closed_forms import BANDWIDTH, LATENCY, ONE_BUCKET, chain, replicated, star

from partitioners import make_plan
from simulator import files
from simulator.cluster import Cluster
from simulator.errors import InputError, UnknownNameError
from simulator.network.catalogue import read_cluster
from simulator.network.topologies import Wire, two_tier
from simulator.one_line_parser import doublings
from simulator.plan import Plan, StepSettings, Synchronisation
from simulator.report.usage import usage_of
from simulator.run import run, step_seconds
from simulator.studies.architectures import architecture
from simulator.studies.bottleneck import find_bottleneck
from simulator.studies.scaling import ScalingResult, ScalingStudy, scale, usage_at
from simulator.studies.scaling_figure import PANELS, figure, throughput

EXACT = 1e-9
COMPUTE_S = 4 * 0.03
SIZE = chain(4).parameter_bytes


def study(weak: bool = True, batch_size: int = 48, **options: Any) -> ScalingStudy:
    profile = options.setdefault("profile", chain(4, batch=48))

    def plan_of(cluster: Cluster, samples: int, synchronisation: Synchronisation) -> Plan:
        return make_plan("data", profile, cluster, StepSettings(batch_size=samples, synchronisation=synchronisation))

    options.setdefault("cluster_of", star)
    return ScalingStudy(plan_of=plan_of, batch_size=batch_size, weak=weak, **options)


def points(names: str, counts: list[int], scaling: ScalingStudy) -> list[ScalingResult]:
    return list(scale(scaling, [architecture(name, ONE_BUCKET) for name in names.split(",")], counts))


@pytest.mark.parametrize("n", [1, 2, 4, 16])
def test_weak_scaling_of_a_ring(n: int) -> None:
    """compute / (compute + 2(N-1)/N S/B + 2(N-1) latency)."""
    (point,) = points("ring", [n], study())
    wire_s = 2 * (n - 1) / n * SIZE / BANDWIDTH + 2 * (n - 1) * LATENCY
    assert point.step_s == pytest.approx(COMPUTE_S + wire_s, EXACT)
    assert point.batch_size == 48 * n
    assert point.efficiency == pytest.approx(COMPUTE_S / (COMPUTE_S + wire_s), EXACT)
    assert point.speedup == pytest.approx(n * point.efficiency, EXACT)
    assert point.communication_share == pytest.approx(wire_s / (COMPUTE_S + wire_s), EXACT, abs=1e-12)
    assert point.exposed_communication_s == pytest.approx(wire_s, EXACT, abs=1e-12)
    assert point.sent_bytes == pytest.approx(2 * (n - 1) * SIZE, EXACT)


@pytest.mark.parametrize("n", [2, 8])
def test_strong_scaling_divides_the_batch(n: int) -> None:
    (point,) = points("ring", [n], study(weak=False))
    wire_s = 2 * (n - 1) / n * SIZE / BANDWIDTH + 2 * (n - 1) * LATENCY
    assert point.batch_size == 48
    assert point.speedup == pytest.approx(COMPUTE_S / (COMPUTE_S / n + wire_s), EXACT)


@pytest.mark.parametrize("weak", [True, False])
def test_unequal_devices_have_the_plan_of_strategy_data(weak: bool) -> None:
    def cluster_of(devices: int, servers: int) -> Cluster:
        equal = star(devices, servers)
        slower = (replace(device, speed=0.5) if i in (2, 3) else device for i, device in enumerate(equal.devices))
        return replace(equal, devices=tuple(slower))

    unequal = replace(study(weak), cluster_of=cluster_of)
    (point,) = points("ring", [4], unequal)
    step = StepSettings(batch_size=48 * 4 if weak else 48, synchronisation=ONE_BUCKET)
    plan = make_plan("data", unequal.profile, cluster_of(4, 0), step)
    assert point.step_s == pytest.approx(step_seconds(unequal.profile, cluster_of(4, 0), plan), EXACT)
    (ahead,) = points("ps-workers-async", [4], unequal)
    waits_s = ahead.step_s - step.batch_size / 48 * COMPUTE_S / 3
    assert 0 < waits_s < 0.2 * ahead.step_s, "compute by the speeds, 1 + 1 + 1/2 + 1/2, and what a step sends"


def test_workers_that_always_compute_have_no_overhead() -> None:
    profile = files.read_profile("vgg16_v100")
    scaling = study(profile=profile, cluster_of=lambda n, k: read_cluster("gcp-v100", devices=n), batch_size=128)
    (point,) = scale(scaling, [architecture("ps-workers-async", Synchronisation())], [4])
    assert f"{point.communication_share:.1%}" == "0.0%"


def test_a_ring_scales_and_one_server_does_not() -> None:
    """What the 2019 thesis measured: bytes at a ring's members stop growing, at a single server they do not."""
    results = points("ring,ps", [4, 64], study())
    ring4, ring64, ps4, ps64 = (point.efficiency for point in results)
    assert ring64 > 0.9 * ring4
    assert ps64 < 0.3 * ps4


def test_dollars_and_hours_of_an_epoch() -> None:
    def cluster_of(devices: int, servers: int) -> Cluster:
        return read_cluster("gcp-v100", devices=devices, servers=servers)

    (point,) = points("ring", [8], study(cluster_of=cluster_of, epoch_samples=10**6))
    assert point.epoch_s == pytest.approx(10**6 / point.samples_per_s, EXACT)
    assert point.dollars_per_epoch == pytest.approx(point.epoch_s * 2 * 11.44 / 3600, EXACT)
    assert points("ring", [2], study(epoch_samples=10))[0].dollars_per_epoch is None


def test_servers_and_running_ahead_come_from_the_name() -> None:
    results = points("ps,ps:4,ps-async,ps-ssp:2,ps-workers:2", [8], study())
    assert [sum(use.kind == "server" for use in point.uses) for point in results] == [1, 4, 1, 2, 0]
    assert results[1].samples_per_s > results[0].samples_per_s
    assert results[2].step_s == pytest.approx(results[0].step_s, 1e-2)  # equal workers stay in step


@pytest.mark.parametrize(
    ("text", "error", "complaint"),
    [
        ("rang", UnknownNameError, "unknown synchronisation 'rang', did you mean 'ring'?"),
        ("ring-async", UnknownNameError, "unknown synchronisation 'ring-async'"),
        ("ring:2", InputError, "only ps and ps-workers take a number of servers"),
        ("ps:0", InputError, "only ps and ps-workers take a number of servers"),
    ],
)
def test_wrong_names_are_refused(text: str, error: type[Exception], complaint: str) -> None:
    with pytest.raises(error) as raised:
        architecture(text, Synchronisation())
    assert complaint in str(raised.value)


@pytest.mark.parametrize(
    ("text", "counts"),
    [("1..64", (1, 2, 4, 8, 16, 32, 64)), ("8", (8,)), ("1,8,3", (1, 3, 8)), ("1..8,12", (1, 2, 4, 8, 12))],
)
def test_numbers_of_devices_are_read_from_lists_and_ranges(text: str, counts: tuple[int, ...]) -> None:
    assert doublings(text) == counts


@pytest.mark.parametrize("text", ["", "0", "8..4", "1..x", "1..", "1..100000", "-1"])
def test_wrong_numbers_of_devices(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert shardscope("scale", "vgg16", "--cluster", "gcp-v100", f"--devices={text}") == 2
    assert "devices" in capsys.readouterr().err


def test_more_devices_than_samples() -> None:
    with pytest.raises(InputError, match="gives 48 samples to 64 devices, and each needs one"):
        points("ring", [64], study(weak=False))


# The bottleneck.


def evidence(n: int, inter: float, name: str = "ring") -> tuple[Any, float, float]:
    """The Evidence of a step on nodes of 2 devices, its compute seconds and its seconds on the wire between nodes."""
    profile = chain(4, batch=n)
    wire = Wire(bandwidth_bytes_per_s=inter, tier="inter")
    cluster = two_tier(n, 2, Wire(bandwidth_bytes_per_s=1e15, tier="intra"), wire)
    plan = replicated(profile, n, synchronisation=ONE_BUCKET)
    done = run(profile, cluster, plan)
    bottleneck = find_bottleneck(done.graph, cluster, done.timeline, lambda c: step_seconds(profile, c, plan))
    return bottleneck, COMPUTE_S / n, 2 * (n - 1) / n * SIZE / inter


def test_a_narrow_link_is_named_with_its_evidence() -> None:
    bottleneck, compute_s, wire_s = evidence(4, 1e8)
    step_s = compute_s + wire_s
    assert (bottleneck.resource, bottleneck.name) == ("inter", "node0/switch->core")
    assert bottleneck.busy == pytest.approx(wire_s / step_s, EXACT)
    assert bottleneck.path_share == pytest.approx(wire_s / step_s, EXACT)
    assert [gain.speedup for gain in bottleneck.gains] == pytest.approx(
        [step_s / (compute_s + wire_s / 2), step_s / (compute_s / 2 + wire_s)], 1e-6
    )
    assert str(bottleneck) == (
        "inter-node link node0/switch->core is busy 67% of the step and on the critical path for 67%; "
        "twice its bandwidth would make the step 1.50x faster, devices twice as fast 1.20x"
    )


def test_a_slow_device_is_named_when_links_are_wide() -> None:
    bottleneck, _, _ = evidence(4, 1e13)
    assert (bottleneck.resource, bottleneck.busy) == ("compute", pytest.approx(1.0, 1e-3))
    assert str(bottleneck).startswith(
        "device node0/gpu" if "gpu" in bottleneck.name else "device node0/device0 is busy 100%"
    )
    assert bottleneck.gains[0].speedup == pytest.approx(2, 1e-3)


def test_a_server_that_computes_long_is_told_from_workers() -> None:
    """The optimizer runs on the one server: as much again as the workers' compute."""
    from dataclasses import replace

    profile = chain(4, batch=4)
    heavy = replace(profile, layers=tuple(replace(layer, update_s=0.1) for layer in profile.layers))
    plan = replicated(heavy, 4, synchronisation=Synchronisation(collective="ps", overlap=False, bucket_bytes=10**12))
    cluster = star(4, servers=1, bandwidth=1e12, latency_s=0.0)
    done = run(heavy, cluster, plan)
    bottleneck = find_bottleneck(done.graph, cluster, done.timeline, lambda c: step_seconds(heavy, c, plan))
    assert (bottleneck.resource, bottleneck.name) == ("server", "d4")
    assert done.report.bottleneck.resource == "server"
    assert bottleneck.busy == pytest.approx(0.4 / 0.43, 1e-3)
    assert bottleneck.gains[0].speedup == pytest.approx(0.43 / 0.23, 1e-3)
    assert "server d4 is busy 93% of the step" in str(bottleneck)


def test_the_link_that_many_share_is_named_not_the_first_of_the_route() -> None:
    """64 workers push to one server over equal links: its own link is the one that is full."""
    (point,) = points("ps", [64], study())
    assert point.bottleneck is not None and point.bottleneck.name in ("switch->d64", "d64->switch")


# Usage over the step.


def test_usage_adds_up_to_the_report() -> None:
    profile = chain(4, batch=4)
    cluster = star(4, servers=1)
    plan = replicated(profile, 4, synchronisation=Synchronisation(collective="ps", bucket_bytes=0))
    done = run(profile, cluster, plan)
    usage = usage_of(done.graph, cluster, done.timeline, intervals=37)
    width_s = done.report.step_s / 37
    assert usage.edges_s[-1] == done.report.step_s
    assert usage.compute.sum(axis=1) * width_s == pytest.approx([d.compute_s for d in done.report.devices], EXACT)
    assert usage.link_bytes_per_s.sum(axis=1) * width_s == pytest.approx([x.bytes for x in done.report.links], EXACT)
    assert usage.memory_bytes.max(axis=1) == pytest.approx([d.peak_memory_bytes for d in done.report.devices], EXACT)


def test_usage_shows_compute_then_the_ring() -> None:
    """Without overlap a device computes first and its link is full afterwards."""
    usage, cluster = usage_at(study(), architecture("ring", ONE_BUCKET), 4)
    done_s = COMPUTE_S
    before, after = usage.edges_s[1:] <= done_s, usage.edges_s[:-1] >= done_s
    assert np.allclose(usage.compute[0][before], 1) and np.allclose(usage.compute[0][after], 0)
    up = [link.name for link in cluster.links].index("d0->switch")
    assert np.allclose(usage.link_bytes_per_s[up][before], 0)
    assert usage.link_bytes_per_s[up][after] == pytest.approx(1.5 * SIZE / (1.5 * SIZE / BANDWIDTH + 6 * LATENCY), 1e-6)


# Pictures and the command.


def test_the_figure_shows_every_point_in_every_panel() -> None:
    results = points("ring,ps", [1, 4], study())
    drawn = figure(results, "title")
    perfect, *lines = drawn["data"]
    assert perfect["y"] == pytest.approx([results[0].samples_per_s, 4 * results[0].samples_per_s])
    assert [(line["name"], line["x"]) for line in lines] == [("ring", [1, 4]), ("ps", [1, 4])] * len(PANELS)
    assert lines[0]["y"] == [results[0].samples_per_s, results[1].samples_per_s]
    assert lines[2]["y"] == [100 * results[0].efficiency, 100 * results[1].efficiency]
    assert lines[-1]["y"] == [None, None]
    assert lines[0]["text"][1] == str(results[1].bottleneck)


@pytest.fixture
def profile_file(tmp_path: Path) -> str:
    path = tmp_path / "chain.json"
    files.write_profile(chain(4, batch=48), path)
    return str(path)


def test_the_command_prints_and_plots_every_point(
    profile_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plot, usage = tmp_path / "plot.html", tmp_path / "usage.html"
    options = ("--cluster", "gcp-v100", "--devices", "1..4", "--sync", "ring,ps,ps-async", "--epoch-samples", 1000)
    options += ("--bandwidth", "inter=100Mbps")
    assert shardscope("scale", profile_file, *options, "--plot", plot, "--usage", usage) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "chain on gcp-v100, batch 48 per device" in text
    assert re.search(r"ps on 4: inter-node link \S*(core|server0)\S* is busy \d+% of the step", text)
    assert "plotly" in plot.read_text() and "plotly" in usage.read_text()
    assert shardscope("scale", profile_file, *options, "--json") == 0
    rows = json.loads(capsys.readouterr().out)["points"]
    assert [(row["architecture"], row["devices"]) for row in rows] == [
        (name, n) for name in ("ring", "ps", "ps-async") for n in (1, 2, 4)
    ]
    assert rows[4]["bottleneck_words"].startswith("inter-node link")
    assert {use["kind"] for use in rows[4]["uses"]} == {"worker", "server", "intra", "inter"}


def test_throughput_is_drawn_beside_perfect_scaling() -> None:
    drawn = throughput(points("ring,ps", [1, 2, 4], study()), "title")
    lines = {series.name: series for series in drawn.series}
    assert list(lines) == ["ring", "ps", "perfect"]
    assert lines["perfect"].y == pytest.approx([n * lines["ring"].y[0] for n in (1, 2, 4)])
    assert all(a <= b for a, b in zip(lines["ring"].y, lines["perfect"].y, strict=True))


def test_a_plot_that_is_neither_html_nor_png_is_refused(
    profile_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plot = tmp_path / "plot.pdf"
    assert shardscope("scale", profile_file, "--cluster", "gcp-v100", "--plot", plot) == 2
    assert "its suffix says what to write, one of .html, .png" in " ".join(capsys.readouterr().err.split())
    assert not plot.exists()


def test_scale_command_options(profile_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    def step_s(*options: object) -> float:
        command = ("scale", profile_file, "--cluster", "p3-8xlarge", "--devices", 8, "--sync", "ring", "--no-overlap")
        assert shardscope(*command, *options, "--json") == 0
        return float(json.loads(capsys.readouterr().out)["points"][0]["step_s"])

    wide = [word for tier in ("inter", "intra") for word in ("--bandwidth", f"{tier}=1e12GB/s")]
    quick = [word for tier in ("inter", "intra") for word in ("--latency", f"{tier}=0us")]
    free = step_s(*wide, *quick)
    wire = step_s() - free
    assert free == pytest.approx(COMPUTE_S, 1e-6)
    assert step_s("--efficiency", "inter=0.25") - free > 3 * (step_s("--efficiency", "inter=1") - free)
    assert step_s("--half-precision") - free < 0.7 * wire
    assert step_s("--compression", 100, "--compression-cost", "1s") == pytest.approx(free + 4e-3, rel=0.05)
    assert step_s("--strong") < free


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--devices", "8..2"), "'8..2' is empty: write the smaller number first"),
        (("--sync", "rong"), "did you mean 'ring'?"),
        (("--efficiency", "inter=half"), "efficiency 'half': write a share"),
        (("--efficiency", "inter=-1"), "efficiency '-1': write a share"),
        (("--efficiency", "outer=1"), "'outer', did you mean 'inter'?"),
        (("--strong", "--weak"), "not allowed with"),
        (("--staleness", "-1", "--sync", "ps-ssp"), "argument --staleness: '-1' is not a whole number"),
        (("--staleness", "5", "--sync", "ring,ps-async"), "--staleness: --sync ring,ps-async heeds none; leave it out"),
        (("--servers", "2", "--sync", "ring,ps:4"), "--servers: --sync ring,ps:4 heeds none; leave it out"),
        (("--compression", "0.5"), "compression_ratio is 0.5"),
    ],
)
def test_wrong_options_are_refused(
    options: tuple[str, ...], complaint: str, profile_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shardscope("scale", profile_file, "--cluster", "gcp-v100", "--devices", "2", *options) == 2
    assert complaint in capsys.readouterr().err


def test_cards_are_priced_by_the_token_as_simulate_prices_them(capsys: pytest.CaptureFixture[str]) -> None:
    def said(*command: object) -> tuple[float, float]:
        """Tokens per second and dollars per million of them."""
        assert shardscope(*command, "gpt2", "--cluster", "dgx-h100", "--devices", 8) == 0
        text = " ".join(capsys.readouterr().out.split())
        rate, price = re.search(r"([\d,]+)(?:\.\d)? tokens/s", text), re.search(r"\$([\d.]+) per million tokens", text)
        assert rate and price
        return float(rate[1].replace(",", "")), float(price[1])

    simulated = said("simulate", "--strategy", "data")
    assert said("scale", "--sync", "ring") == pytest.approx(simulated, rel=0.002)


def test_of_a_card_it_says_what_simulate_says_of_strategy_data(capsys: pytest.CaptureFixture[str]) -> None:
    """Micro-batches of a sequence each, whose activations do not add up."""
    asked = ("llama3-8b", "--cluster", "dgx-h100", "--devices", 2, "--json")
    assert shardscope("simulate", *asked, "--strategy", "data") == 0
    report = json.loads(capsys.readouterr().out)
    report = report.get("report", report)
    assert shardscope("scale", *asked, "--sync", "ring") == 0
    (point,) = json.loads(capsys.readouterr().out)["points"]
    assert point["step_s"] == pytest.approx(report["step_s"], EXACT)
    assert point["verdict"] == report["verdict"]


def test_servers_without_a_price_are_named_and_their_links_too(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("scale", "vgg16_v100", "--cluster", "p3-16xlarge", "--devices", "2", "--sync")
    assert shardscope(*words, "ps") == 0
    served = " ".join(capsys.readouterr().out.split())
    assert "note: costs leave out 1 server without a price" in served and "inter 70% (26% to 95%)" in served
    assert shardscope(*words, "ring") == 0
    alone = capsys.readouterr().out
    assert "leave out" not in alone and "inter 70%" not in alone
