"""Presets: published figures, a source beside every number, and nodes that fill in order."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from benchmarks.networks.collective_times import CONSTANTS, p3_16xlarge
from benchmarks.networks.link_shares import SHARES
from simulator import cli
from simulator.cluster import AchievedShare, Cluster
from simulator.errors import InputError, UnknownNameError
from simulator.network import catalogue
from simulator.network.catalogue import Join, Node, Preset, read_cluster, write_cluster

GB = 1e9
GIB = 2**30

# name: default devices, per node, memory, line rate in bytes/s per device inside a node, and per node between nodes
FACTS = {
    "a100-omnipath": (8, 8, 80 * GIB, 300 * GB, 4 * 100 * GB / 8),
    "azure-v100-10g": (4, 4, 16 * GIB, 15.75 * GB, 10 * GB / 8),
    "cpu-1g": (4, 1, None, None, 1 * GB / 8),
    "dgx-a100": (8, 8, 40 * GIB, 300 * GB, 8 * 200 * GB / 8),
    "dgx-a100-80": (8, 8, 80 * GIB, 300 * GB, 8 * 200 * GB / 8),
    "dgx-b200": (8, 8, 180 * GIB, 900 * GB, 8 * 400 * GB / 8),
    "dgx-b300": (8, 8, 270 * GIB, 900 * GB, 8 * 800 * GB / 8),
    "dgx-h100": (8, 8, 80 * GIB, 450 * GB, 8 * 400 * GB / 8),
    "dgx-h200": (8, 8, 141 * GIB, 450 * GB, 8 * 400 * GB / 8),
    "gb200-nvl72": (72, 72, 186 * GIB, 900 * GB, 72 * 400 * GB / 8),
    "gb300-nvl72": (72, 72, 278 * GIB, 900 * GB, 72 * 800 * GB / 8),
    "gcp-v100": (4, 4, 16 * GIB, 100 * GB, 32 * GB / 8),
    "h100-pcie": (8, 8, 80 * GIB, 63 * GB, 400 * GB / 8),
    "mi300x": (8, 8, 192 * GIB, 7 * 64 * GB, 8 * 400 * GB / 8),
    "p100-4x4": (16, 4, 16 * GIB, 80 * GB, 100 * GB / 8),
    "p3-16xlarge": (8, 8, 16 * GIB, 150 * GB, 25 * GB / 8),
    "p3-8xlarge": (4, 4, 16 * GIB, 100 * GB, 10 * GB / 8),
    "p4de": (8, 8, 80 * GIB, 300 * GB, 400 * GB / 8),
    "p5": (8, 8, 80 * GIB, 450 * GB, 3200 * GB / 8),
    "t4-g4dn": (4, 4, 16 * GIB, 15.75 * GB, 50 * GB / 8),
    "workstation-4gpu": (4, 4, 48 * GIB, 31.5 * GB, 10 * GB / 8),
}


def line_rates(cluster: Cluster) -> Cluster:
    for tier in cluster.tiers:
        cluster = cluster.with_efficiency(tier, 1, "as asked for")
    return cluster


def test_the_presets_are_these() -> None:
    assert catalogue.presets() == tuple(FACTS)


@pytest.mark.parametrize("name", FACTS)
def test_a_preset_has_its_published_figures(name: str) -> None:
    default, per_node, memory, intra, inter = FACTS[name]
    preset = catalogue.read_preset(name)
    assert (preset.name, preset.default_devices, preset.node.devices) == (name, default, per_node)
    cluster = preset.build(2 * per_node, servers=1)
    assert cluster.devices[0].memory_bytes == memory
    assert cluster.tiers == (("intra", "inter") if per_node > 1 else ("inter",))
    shares = {link.tier: link.bandwidth_bytes_per_s / (link.line_rate_bytes_per_s or 1) for link in cluster.links}
    assert shares == {tier: pytest.approx(getattr(preset, tier).achieved.median, rel=1e-12) for tier in cluster.tiers}
    cluster = line_rates(cluster)
    assert cluster.bandwidth_bytes_per_s(0, 2 * per_node - 1) == min(inter, intra or inter)
    assert cluster.bandwidth_bytes_per_s(0, 2 * per_node) == min(inter, intra or inter)  # the server
    if intra is not None:
        assert cluster.bandwidth_bytes_per_s(0, 1) == intra


@pytest.mark.parametrize("name", FACTS)
@pytest.mark.parametrize("part", ["node", "intra", "inter"])
def test_every_number_has_a_source(name: str, part: str) -> None:
    content = getattr(catalogue.read_preset(name), part)
    if content is None:
        return
    plain = {field.name: getattr(content, field.name) for field in fields(content)}
    numbers = {key for key, value in plain.items() if isinstance(value, int | float) and not isinstance(value, bool)}
    if part != "node":
        numbers = (numbers - {"wires"} if plain["wires"] == 1 else numbers) | {"achieved"}
    assert numbers == set(content.sources)
    assert all(len(text) > 10 for text in content.sources.values())


@pytest.mark.parametrize("name", FACTS)
def test_latencies_are_between_a_tenth_of_a_microsecond_and_a_millisecond(name: str) -> None:
    cluster = read_cluster(name, devices=FACTS[name][1] + 1)
    latencies = [cluster.latency_s(0, 1), cluster.latency_s(0, cluster.workers - 1)]
    assert all(1e-7 < latency < 1e-3 for latency in latencies)
    assert latencies[0] <= latencies[1]


@pytest.mark.parametrize(
    ("devices", "of_each"), [(64, 64), (72, 72), (73, 72), (128, 64), (144, 72), (256, 64), (1024, 64)]
)
def test_racks_that_are_not_filled_have_as_many_devices_each(devices: int, of_each: int) -> None:
    """What no number of racks up to twice the fewest divides fills them in order: 73."""
    cluster = read_cluster("gb200-nvl72", devices=devices)
    hosts = [device.host for device in cluster.devices[: cluster.workers]]
    assert cluster.devices_per_host == of_each and hosts.count(hosts[0]) == of_each


@pytest.mark.parametrize(("devices", "nodes"), [(1, 1), (4, 1), (5, 2), (16, 4)])
def test_nodes_fill_in_order_and_are_added_as_needed(devices: int, nodes: int) -> None:
    cluster = read_cluster("p3-8xlarge", devices=devices)
    hosts = [device.host for device in cluster.devices]
    assert hosts == [f"node{i // 4}" for i in range(devices)]
    assert len(set(hosts)) == nodes


def test_without_a_number_a_preset_has_its_default() -> None:
    assert read_cluster("dgx-h100").workers == 8
    assert read_cluster("p100-4x4").workers == 16


def test_the_price_of_a_node_is_shared_by_its_devices() -> None:
    cluster = read_cluster("p3-16xlarge", devices=16)
    assert sum(device.dollars_per_hour or 0 for device in cluster.devices) == pytest.approx(2 * 24.48, rel=1e-12)


def test_cpu_hosts_have_a_core_each() -> None:
    cluster = read_cluster("cpu-1g", devices=3, servers=1)
    assert cluster.host_cores == {"host0": 1, "host1": 1, "host2": 1}


def test_the_sources_travel_with_the_cluster(tmp_path: Path) -> None:
    cluster = read_cluster("dgx-a100")
    assert any(source.startswith("intra.bandwidth_bytes_per_s: NVIDIA A100 data sheet") for source in cluster.sources)
    write_cluster(cluster, tmp_path / "mine.yaml")
    assert read_cluster(tmp_path / "mine.yaml") == cluster


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(
        UnknownNameError, match=r"'dgx-h10', did you mean 'dgx-h100'\? known: a100-omnipath, azure-v100-10g"
    ):
        read_cluster("dgx-h10")


def test_a_name_as_the_cloud_writes_it_is_no_missing_file() -> None:
    with pytest.raises(UnknownNameError, match=r"'p3\.16xlarge', did you mean 'p3-16xlarge'\?"):
        read_cluster("p3.16xlarge")


def test_of_many_names_the_nearest_are_listed() -> None:
    with pytest.raises(UnknownNameError, match=r"did you mean 'n10'\? known: n10, .* and 195 more$"):
        raise UnknownNameError.of("thing", "n10x", [f"n{i}" for i in range(200)])


def test_a_node_of_several_devices_needs_something_that_joins_them() -> None:
    inter = Join(what="x", bandwidth_bytes_per_s=1.0, latency_s=0.0, sources={})
    with pytest.raises(InputError, match="a node of several devices says what joins them"):
        Preset(name="x", title="x", default_devices=2, node=Node(devices=2, kind="x"), inter=inter)


@pytest.mark.parametrize(("name", "tier"), SHARES)
def test_achieved_shares_are_what_the_published_measurements_say(
    name: str, tier: str, shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDSCOPE_DATA", str(shared_data))
    assert getattr(catalogue.read_preset(name), tier).achieved == SHARES[name, tier]()


@pytest.mark.parametrize("name", CONSTANTS)
def test_libraries_are_what_their_sources_say(name: str, shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What measured collectives are taken apart into, within 5 %; what a preset has from elsewhere says so."""
    pytest.importorskip("pyarrow")
    pytest.importorskip("scipy")
    monkeypatch.setenv("SHARDSCOPE_DATA", str(shared_data))
    fitted, cluster = CONSTANTS[name](), read_cluster(name, devices=16)
    for what in ("launch_s", "fill_s", "short_share", "copy_bytes_per_s", "switch_share"):
        assert getattr(cluster.library, what) == (fitted.get(what) and pytest.approx(fitted[what], rel=0.05)), what
    assert cluster.latency_s(0, 1) == pytest.approx(fitted["inside_s"], rel=0.05)
    assert cluster.bandwidth_bytes_per_s(0, 1) == pytest.approx(fitted["inside_bytes_per_s"], rel=0.05)
    if name in ("dgx-a100", "p4de", "p5"):
        assert cluster.latency_s(0, 8) == pytest.approx(fitted["between_s"], rel=0.05)
        assert cluster.bandwidth_bytes_per_s(0, 8) == pytest.approx(fitted["between_bytes_per_s"], rel=0.05)
        assert cluster.library is not None and cluster.library.step_ratio == pytest.approx(
            fitted["step_ratio"], rel=0.05
        )


def test_a_mesh_of_links_keeps_its_measured_curves(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDSCOPE_DATA", str(shared_data))
    assert catalogue.read_preset("p3-16xlarge").collectives == p3_16xlarge()


def test_every_tier_of_every_preset_has_a_measured_share() -> None:
    tiers = {
        (name, tier) for name in FACTS for tier in ("intra", "inter") if getattr(catalogue.read_preset(name), tier)
    }
    assert {(name, tier) for name, tier in tiers if catalogue.read_preset(name).library is None} == set(SHARES)


def test_links_give_their_measured_share_until_the_line_rate_is_asked_for(tmp_path: Path) -> None:
    cluster = read_cluster("azure-v100-10g", devices=8)
    assert cluster.bandwidth_bytes_per_s(0, 7) == pytest.approx(0.285 * 1.25e9)
    at_line_rate = cluster.with_efficiency("inter", 1, "as asked for")
    assert at_line_rate.bandwidth_bytes_per_s(0, 7) == 1.25e9
    assert at_line_rate.bandwidth_bytes_per_s(0, 1) == cluster.bandwidth_bytes_per_s(0, 1)
    assert at_line_rate.sources[-1] == "inter.efficiency 1: as asked for"
    assert at_line_rate.with_efficiency("inter", 0.5, "again").bandwidth_bytes_per_s(0, 7) == 0.625e9
    with pytest.raises(UnknownNameError):
        cluster.with_efficiency("rail", 1, "as asked for")
    write_cluster(cluster, tmp_path / "cluster.yaml")
    assert line_rates(read_cluster(tmp_path / "cluster.yaml")).links == line_rates(cluster).links


def test_another_bandwidth_is_a_line_rate_of_which_links_give_their_share() -> None:
    cluster = read_cluster("dgx-a100", devices=16)
    before = next(link for link in cluster.links if link.tier == "inter")
    changed = cluster.with_tier("inter", bandwidth_bytes_per_s=1e9)
    after = next(link for link in changed.links if link.tier == "inter")
    assert before.line_rate_bytes_per_s and before.achieved and before.message_bytes_per_s
    share = before.bandwidth_bytes_per_s / before.line_rate_bytes_per_s
    assert share < 1
    assert (after.line_rate_bytes_per_s, after.achieved) == (1e9, before.achieved)
    assert after.bandwidth_bytes_per_s == pytest.approx(1e9 * share)
    of_message = before.message_bytes_per_s / before.line_rate_bytes_per_s
    assert after.message_bytes_per_s == pytest.approx(1e9 * of_message)
    assert changed.library == cluster.library


def test_clusters_have_up_to_131_072_devices() -> None:
    with pytest.raises(InputError, match="devices is 131073: a cluster has at most 131,072 of them here"):
        read_cluster("dgx-h100", devices=131_073)


def test_an_achieved_share_needs_its_source_and_its_order() -> None:
    with pytest.raises(InputError, match="low <= median <= high"):
        AchievedShare(median=0.5, low=0.6, high=0.7)
    with pytest.raises(InputError, match="an achieved share says where it was measured"):
        Join(
            what="x",
            bandwidth_bytes_per_s=1.0,
            latency_s=0.0,
            achieved=AchievedShare(median=0.5, low=0.4, high=0.7),
            sources={},
        )


def test_reports_say_what_share_links_give(capsys: pytest.CaptureFixture[str]) -> None:
    """Of the tiers that a step can cross, until the line rate is asked for."""
    command = ["simulate", "vgg16_v100", "--cluster", "p3-8xlarge", "--strategy", "data"]
    note = "inter 28% (26% to 32%); --efficiency TIER=1: at full rate"
    for options, expected in ((["--devices", "8"], True), (["--devices", "4"], False)):
        assert cli.main([*command, *options]) == 0
        printed = capsys.readouterr().out
        assert (note in printed) == expected and "measured share of line rate: intra 51% (36% to 78%)" in printed
    assert cli.main([*command, "--devices", "8", "--efficiency", "inter=1", "--efficiency", "intra=1"]) == 0
    assert "line rate" not in capsys.readouterr().out


RENTED = ("AWS", "Azure", "Google Cloud", "Oracle", "CoreWeave", "Lambda")


@pytest.mark.parametrize("name", catalogue.presets())
def test_what_is_rented_has_a_price_with_its_source_and_year(name: str) -> None:
    preset = catalogue.read_preset(name)
    source = preset.node.sources.get("dollars_per_hour", "")
    if any(provider in preset.title for provider in RENTED):
        assert preset.node.dollars_per_hour
    assert bool(preset.node.dollars_per_hour) == bool(re.search(r"list price of 20\d\d", source))
