"""Which network is needed: plans whose steps are known by hand, and the command."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from partitioners import make_plan
from partitioners._grids import ranking as ranking_module
from partitioners._grids.ranking import Ranking, ranked_grids
from simulator import cli, files
from simulator.cli import network, search
from simulator.cluster import Cluster
from simulator.network import catalogue
from simulator.plan import StepSettings
from simulator.studies.bandwidth_need import BandwidthNeed, nearest_between_nodes, per_device_bytes_per_s, scaled

SENT_BYTES = {"sends much": 400e9, "sends little": 40e9}
"""Each device and step; what sends little computes longer."""
COMPUTE_S = {"sends much": 1.0, "sends little": 1.5}


def by_hand(name: str, cluster: Cluster) -> float:
    return COMPUTE_S[name] + SENT_BYTES[name] / per_device_bytes_per_s(cluster, "inter")


@pytest.fixture(name="cluster")
def two_nodes() -> Cluster:
    return catalogue.read_cluster("dgx-h100", devices=16)


def test_bandwidth_is_that_of_a_device_s_share(cluster: Cluster) -> None:
    assert per_device_bytes_per_s(cluster, "inter") == pytest.approx(0.94 * 50e9)  # a card of 400 Gb/s each


def test_servers_take_none_of_a_device_s_share() -> None:
    plain = catalogue.read_cluster("cpu-1g", devices=4)
    served = catalogue.read_cluster("cpu-1g", devices=4, servers=1)
    assert per_device_bytes_per_s(served, "inter") == per_device_bytes_per_s(plain, "inter")


def test_all_tiers_between_nodes_are_scaled(cluster: Cluster) -> None:
    spine = (replace(link, source="core", target="spine", tier="spine") for link in cluster.links[-1:])
    three = scaled(replace(cluster, links=(*cluster.links, *spine)), "inter", 4.0)
    was, now = ({link.tier: link.bandwidth_bytes_per_s for link in each.links} for each in (cluster, three))
    assert now == {"intra": was["intra"], "inter": 4 * was["inter"], "spine": 4 * was["inter"]}


def test_links_between_nodes_are_those_that_a_node_does_not_share(cluster: Cluster) -> None:
    """Whatever they are called: of a file with an NVLink domain of two hosts those between the domains."""
    named = {"intra": "nvlink", "inter": "rack"}
    links = tuple(replace(link, tier=named[link.tier]) for link in cluster.links)
    assert nearest_between_nodes(replace(cluster, links=links)) == "rack"
    hosts = tuple(replace(device, host=f"{device.host}/{number // 4}") for number, device in enumerate(cluster.devices))
    assert nearest_between_nodes(replace(cluster, links=links, devices=hosts)) == "rack"
    assert nearest_between_nodes(catalogue.read_cluster("dgx-h100", devices=8)) is None


def test_the_best_plan_changes_where_both_take_as_long(cluster: Cluster) -> None:
    """1 + 400/b = 1.5 + 40/b at b = 720 GB/s, which is 15.3 times what there is."""
    need = BandwidthNeed(list(COMPUTE_S), by_hand, cluster, "inter")
    best = {factor: need.at(factor).plan for factor in (64.0, 16.0, 15.0, 1.0)}
    assert best == {64.0: "sends much", 16.0: "sends much", 15.0: "sends little", 1.0: "sends little"}
    assert need.at(1.0).step_s == pytest.approx(1.5 + 40 / 47)


def test_enough_is_where_the_step_is_5_percent_longer(cluster: Cluster) -> None:
    """1 + 400/b = 1.05 at b = 8,000 GB/s, found to 5 % above it."""
    need = BandwidthNeed(["sends much"], by_hand, cluster, "inter")
    enough = need.enough([1.0, 64.0, 256.0])
    assert 8e12 <= enough.per_device_bytes_per_s <= 8e12 * 1.06


def test_a_plan_that_was_slower_on_a_faster_network_is_not_simulated(cluster: Cluster) -> None:
    asked: list[str] = []

    def counted(name: str, changed: Cluster) -> float:
        asked.append(name)
        return {"fast": 1.0, "slow": 9.0}[name]

    need = BandwidthNeed(["fast", "slow"], counted, cluster, "inter")
    assert [need.at(factor).plan for factor in (4.0, 2.0, 1.0)] == ["fast"] * 3
    assert asked == ["fast", "slow", "fast", "fast"]


def test_the_command_says_what_is_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, words = tmp_path / "network.csv", ["network", "gpt2", "--cluster", "dgx-h100", "--devices", "16"]
    assert cli.main([*words, "--json", "--output", str(rows)]) == 0
    answer = json.loads(capsys.readouterr().out)
    steps = [point["step_s"] for point in answer["points"]]
    # Max-min shares: gathers between nodes that cards bound less take more of the NVLink that others share.
    assert all(faster <= slower * (1 + 1e-4) for slower, faster in pairwise(steps))
    assert answer["unlimited"]["step_s"] <= steps[-1] and answer["enough"]["step_s"] <= 1.05 * steps[-1]
    assert len(rows.read_text().splitlines()) == 1 + len(steps)


def test_one_node_needs_no_network(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["network", "gpt2", "--cluster", "dgx-h100", "--devices", "8"]) == 2
    assert "no links between nodes" in capsys.readouterr().err


def test_a_measured_network_is_searched_on_slow_networks_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a thirty-second of the bandwidth no plan of one's own network is the best of VGG-16."""
    factors: list[float] = []
    own = catalogue.read_cluster("gcp-v100", devices=8)

    def searched(args: Any, budget_s: float, progress: Any, cluster: Cluster) -> Any:
        factors.append(per_device_bytes_per_s(cluster, "inter") / per_device_bytes_per_s(own, "inter"))
        name = "data" if factors[-1] == 1 else "pipeline"
        step = StepSettings(batch_size=1024, microbatches=8 if name == "pipeline" else None)
        plan = make_plan(name, files.read_profile("vgg16_v100"), cluster, step)
        return SimpleNamespace(tally=SimpleNamespace(best={name: SimpleNamespace(plan=plan)}))

    monkeypatch.setattr(search, "searched", searched)
    assert cli.main(["network", "vgg16_v100", "--cluster", "gcp-v100", "--devices", "8"]) == 0
    assert factors == list(network.SEARCHED)


def test_of_a_card_so_many_grids_are_simulated_on_each_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the best is certain before; bounds do not count."""
    rankings: list[Ranking] = []

    def ranked(*inputs: Any, **options: Any) -> Ranking:
        rankings.append(ranked_grids(*inputs, **options))
        return rankings[-1]

    monkeypatch.setattr(ranking_module, "ranked_grids", ranked)
    monkeypatch.setattr(network, "TRIED", 3)
    assert cli.main(["network", "llama3-1b", "--cluster", "dgx-h100", "--devices", "32"]) == 0
    assert len(rankings) == len(network.SEARCHED)
    assert all(each.certain or len(each.simulated) == 3 for each in rankings)
    assert any(len(each.simulated) == 3 for each in rankings)
