"""Uploaded clusters: read strictly, explored like a preset, swept, and named by their files in commands. No browser."""

from __future__ import annotations

import json
import shlex
import time
from dataclasses import replace
from pathlib import Path

import pytest
from dashboard_advice import advised
from small_networks import branches

from dashboard.frame.controls import cluster_options
from dashboard.frame.remarks import remarks
from dashboard.frame.routes import command, snippet
from dashboard.state import uploads
from dashboard.state.configuration import Configuration
from dashboard.state.store import Store
from dashboard.state.sweeps import DONE, RUNNING, Sweeps, configuration_of, fixed
from simulator.cluster import Cluster
from simulator.errors import InputError
from simulator.network.catalogue import ClusterFile, read_cluster, read_preset, write_cluster
from simulator.units import parse_bandwidth


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    """Four devices, whose links are half as wide as the preset's."""
    preset = read_preset("cpu-1g").build(4)
    return preset.with_tier("inter", bandwidth_bytes_per_s=preset.bandwidth_bytes_per_s(0, 1) / 2)


@pytest.fixture
def store() -> Store:
    return Store({"small": branches()})


@pytest.fixture
def uploaded(store: Store, cluster: Cluster, tmp_path: Path) -> Configuration:
    write_cluster(cluster, tmp_path / "mine.yaml")
    upload = uploads.cluster((tmp_path / "mine.yaml").read_bytes(), "mine.yaml")
    assert upload.cluster == cluster
    return replace(store.default(), cluster=store.clusters.put("mine.yaml", upload), microbatches=4)


def test_it_is_what_the_preset_would_be_with_these_links(store: Store, uploaded: Configuration) -> None:
    from_file = store.outcome(uploaded).run
    preset = store.outcome(replace(uploaded, cluster="cpu-1g", inter_bandwidth=0.5)).run
    assert from_file is not None and preset is not None
    assert from_file.report.step_s == pytest.approx(preset.report.step_s)


def test_fewer_devices_may_be_used_but_not_more(store: Store, uploaded: Configuration) -> None:
    assert store.outcome(replace(uploaded, devices=2)).run is not None
    outcome = store.outcome(replace(uploaded, devices=5))
    assert outcome.run is None and "has 4 workers" in outcome.reason
    assert "has 4 workers" in remarks(outcome)["inter_bandwidth"].text


def test_it_can_be_chosen_and_survives_a_link(store: Store, uploaded: Configuration) -> None:
    assert {"value": uploaded.cluster, "label": "mine"} in cluster_options(store)
    assert store.read(uploaded.query()) == (uploaded, [])


def test_a_link_to_one_that_is_gone_says_so(store: Store, uploaded: Configuration) -> None:
    configuration, problems = Store({"small": branches()}).read(uploaded.query())
    assert configuration.cluster == "cpu-1g" and "drop its file again" in problems[0]


def test_commands_name_its_file(store: Store, uploaded: Configuration) -> None:
    outcome = store.outcome(replace(uploaded, inter_bandwidth=2.0, collective="tree"))
    words = shlex.split(command(outcome))
    assert words[words.index("--cluster") + 1] == "mine.yaml"
    (inter,) = [word for word in words if word.startswith("inter=")]
    preset = read_cluster("cpu-1g")
    assert parse_bandwidth(inter.removeprefix("inter=")) == pytest.approx(preset.bandwidth_bytes_per_s(0, 1))
    assert "read_cluster('mine.yaml', devices=4)" in snippet(outcome)


def test_links_of_a_tier_without_controls_are_left_as_they_are(store: Store, cluster: Cluster) -> None:
    """An uploaded file may leave the tier out, which is then "link": no factor, no advice and no sweep asks for it."""
    links = tuple(replace(link, tier="link") for link in cluster.links)
    key = store.clusters.put("plain.yaml", ClusterFile.of(replace(cluster, links=links)))
    outcome = store.outcome(replace(store.default(), cluster=key, microbatches=4, inter_bandwidth=0.5))
    assert outcome.cluster is not None and outcome.cluster.links == links
    advice = advised(store, outcome)
    assert advice.settings > 0 and not any(move.hardware for move, _ in advice.helpful)
    assert not {name for name in fixed(outcome.configuration, 8, outcome.cluster) if name.startswith("link")}


def test_it_is_swept(store: Store, uploaded: Configuration) -> None:
    sweeps, uploaded = Sweeps(store), replace(uploaded, microbatches=None)
    number = sweeps.start(uploaded, ["data"], {"devices": "2..4 by x2"})
    end = time.monotonic() + 600
    while (sweep := sweeps.get(number)) is not None and sweep.state == RUNNING and time.monotonic() < end:
        time.sleep(0.05)
    assert sweep is not None and sweep.state == DONE and [row["status"] for row in sweep.rows] == ["done"] * 2
    for row in sweep.rows:
        run = store.outcome(configuration_of(row, uploaded, store)).run
        assert run is not None and run.report.step_s == pytest.approx(row["step_s"])


def test_what_is_no_cluster_says_where_and_why(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cluster(cluster, tmp_path / "mine.yaml")
    text = (tmp_path / "mine.yaml").read_text()
    with pytest.raises(InputError, match=r"^mine.yaml: .*did you mean 'devices'"):
        uploads.cluster(text.replace("devices:", "device:", 1).encode(), "mine.yaml")
    with pytest.raises(InputError, match=r"^mine.yaml: "):
        uploads.cluster(json.dumps([1]).encode(), "mine.yaml")
    monkeypatch.setattr(uploads, "MOST_CLUSTER_DEVICES", 3)
    with pytest.raises(InputError, match="devices is 4: at most 3"):
        uploads.cluster(text.encode(), "mine.yaml")
