"""Presets: published figures, a source beside every number, and nodes that fill in order."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from benchmarks.link_shares import SHARES
from simulator import cli
from simulator.cluster import AchievedShare
from simulator.errors import InputError, UnknownNameError
from simulator.network import catalogue
from simulator.network.catalogue import Join, Node, Preset, read_cluster, write_cluster

GB = 1e9
GIB = 2**30

# name: default devices, per node, memory, bytes/s per device inside a node, bytes/s per node between nodes
FACTS = {
    "azure-v100-10g": (4, 4, 16 * GIB, 15.75 * GB, 10 * GB / 8),
    "cpu-1g": (4, 1, None, None, 1 * GB / 8),
    "dgx-a100": (8, 8, 40 * GIB, 300 * GB, 8 * 200 * GB / 8),
    "dgx-h100": (8, 8, 80 * GIB, 450 * GB, 8 * 400 * GB / 8),
    "gcp-v100": (4, 4, 16 * GIB, 100 * GB, 32 * GB / 8),
    "p100-4x4": (16, 4, 16 * GIB, 80 * GB, 100 * GB / 8),
    "p3-16xlarge": (8, 8, 16 * GIB, 150 * GB, 25 * GB / 8),
    "p3-8xlarge": (4, 4, 16 * GIB, 100 * GB, 10 * GB / 8),
    "t4-g4dn": (4, 4, 16 * GIB, 15.75 * GB, 50 * GB / 8),
    "workstation-4gpu": (4, 4, 48 * GIB, 31.5 * GB, 10 * GB / 8),
}


def test_the_presets_are_these() -> None:
    assert catalogue.presets() == tuple(FACTS)


@pytest.mark.parametrize("name", FACTS)
def test_figures(name: str) -> None:
    default, per_node, memory, intra, inter = FACTS[name]
    preset = catalogue.read_preset(name)
    assert (preset.name, preset.default_devices, preset.node.devices) == (name, default, per_node)
    cluster = preset.build(2 * per_node, servers=1)
    assert cluster.devices[0].memory_bytes == memory
    assert cluster.bandwidth_bytes_per_s(0, 2 * per_node - 1) == inter
    assert cluster.bandwidth_bytes_per_s(0, 2 * per_node) == inter  # the server
    assert cluster.tiers == (("intra", "inter") if per_node > 1 else ("inter",))
    if intra is not None:
        assert cluster.bandwidth_bytes_per_s(0, 1) == intra


@pytest.mark.parametrize("name", FACTS)
@pytest.mark.parametrize("part", ["node", "intra", "inter"])
def test_every_number_has_a_source(name: str, part: str) -> None:
    told = getattr(catalogue.read_preset(name), part)
    if told is None:
        return
    plain = {field.name: getattr(told, field.name) for field in fields(told)}
    numbers = {key for key, value in plain.items() if isinstance(value, int | float)}
    if part != "node":
        numbers -= {name for name in ("wires", "efficiency") if plain[name] == 1}  # their default
        numbers |= {"achieved"} if plain["achieved"] else set()
    assert numbers == set(told.sources)
    assert all(len(text) > 10 for text in told.sources.values())


@pytest.mark.parametrize("name", FACTS)
def test_latencies_are_between_a_tenth_of_a_microsecond_and_a_millisecond(name: str) -> None:
    cluster = read_cluster(name, devices=FACTS[name][1] + 1)
    latencies = [cluster.latency_s(0, 1), cluster.latency_s(0, cluster.workers - 1)]
    assert all(1e-7 < latency < 1e-3 for latency in latencies)
    assert latencies[0] <= latencies[1]


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
    with pytest.raises(UnknownNameError, match=r"'dgx-h10', did you mean 'dgx-h100'\? known: azure-v100-10g, cpu-1g"):
        read_cluster("dgx-h10")


def test_a_node_of_several_devices_needs_something_that_joins_them() -> None:
    inter = Join(what="x", bandwidth_bytes_per_s=1.0, latency_s=0.0, sources={})
    with pytest.raises(InputError, match="a node of several devices says what joins them"):
        Preset(name="x", title="x", default_devices=2, node=Node(devices=2, kind="x"), inter=inter)


def test_a_measured_efficiency_needs_its_source_and_narrows_the_wire() -> None:
    line = {"what": "Ethernet", "bandwidth_bytes_per_s": 1e9, "latency_s": 1e-5, "wires": 2}
    sources = {"bandwidth_bytes_per_s": "standard", "latency_s": "guide", "wires": "photo"}
    with pytest.raises(InputError, match="an efficiency other than 1 says where it was measured"):
        Join(**line, efficiency=0.3, sources=sources)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="efficiency is 0"):
        Join(**line, efficiency=0.0, sources=sources)  # type: ignore[arg-type]
    measured = Join(**line, efficiency=0.3, sources={**sources, "efficiency": "our own runs"})  # type: ignore[arg-type]
    assert measured.wire("inter").bandwidth_bytes_per_s == pytest.approx(0.3 * 2e9)
    preset = Preset(name="p", title="t", default_devices=2, node=Node(devices=1, kind="k"), inter=measured)
    assert "inter.efficiency: our own runs" in preset.build().sources


@pytest.mark.parametrize(("name", "tier"), SHARES)
def test_achieved_shares_are_what_the_published_measurements_say(
    name: str, tier: str, shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDSCOPE_DATA", str(shared_data))
    assert getattr(catalogue.read_preset(name), tier).achieved == SHARES[name, tier]()


def test_an_achieved_share_narrows_links_when_it_is_asked_for(tmp_path: Path) -> None:
    cluster = read_cluster("azure-v100-10g", devices=8)
    measured = cluster.with_achieved("inter")
    assert cluster.bandwidth_bytes_per_s(0, 7) == 1.25e9
    assert measured.bandwidth_bytes_per_s(0, 7) == pytest.approx(0.285 * 1.25e9)
    assert measured.bandwidth_bytes_per_s(0, 1) == cluster.bandwidth_bytes_per_s(0, 1)
    assert measured.sources[-1] == "inter.efficiency 0.285: as inter.achieved says"
    with pytest.raises(InputError, match="efficiency of inter: nothing was measured on these links; give a share"):
        measured.with_achieved("inter")
    with pytest.raises(UnknownNameError):
        cluster.with_achieved("rail")
    write_cluster(cluster, tmp_path / "cluster.yaml")
    assert read_cluster(tmp_path / "cluster.yaml").with_achieved("inter").links == measured.links


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


def test_a_line_rate_that_training_does_not_reach_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    """Until the share is asked for, and only where a step can cross such links."""
    command = ["simulate", "vgg16_v100", "--cluster", "p3-8xlarge", "--strategy", "data"]
    note = "inter links are at line rate, of which training reached 28%"
    for options, expected in ((["--devices", "8"], True), (["--devices", "4"], False)):
        assert cli.main([*command, *options]) == 0
        assert (note in capsys.readouterr().out) == expected
    assert cli.main([*command, "--devices", "8", "--efficiency", "inter=measured"]) == 0
    assert "line rate" not in capsys.readouterr().out
