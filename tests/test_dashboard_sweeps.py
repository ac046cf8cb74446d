"""What a sweep holds still, varies and refuses before it begins: by value. No process starts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from small_networks import branches

from dashboard.state.configuration import Configuration
from dashboard.state.store import Store
from dashboard.state.sweeps import Sweeps, _require_small, _row, configuration_of, fixed
from simulator.errors import InputError, UnknownNameError
from simulator.network.catalogue import ClusterFile, read_cluster
from simulator.sweep.evaluate import PointResult

NOW = Configuration(profile="small", cluster="azure-v100-10g", strategy="data", devices=8)
LISTED = ", ".join(map(str, range(1, 402)))


@pytest.mark.parametrize(
    ("strategies", "values", "complaint"),
    [
        (1, {"devices": "1024"}, ""),
        (1, {"devices": "2, 1025"}, "devices is 1,025: at most 1,024 here"),
        (1, {"microbatches": "1024"}, ""),
        (1, {"microbatches": "1025"}, "microbatches is 1,025: at most 1,024 here"),
        (1, {"batch_size": "65536"}, ""),
        (1, {"batch_size": "65537"}, "batch_size is 65,537: at most 65,536 here"),
        (1, {"bucket_bytes": "100GiB", "collective": "ring"}, ""),
        (1, {"devices": " , "}, "devices is empty: write values such as 2..8 by x2"),
        (1, {"microbatches": LISTED.rpartition(",")[0]}, ""),
        (1, {"microbatches": LISTED}, "points is 401: at most 400 here"),
        (4, {"devices": "1..10", "microbatches": "1..10"}, ""),
        (4, {"devices": "1..10", "microbatches": "1..11"}, "points is 440: at most 400 here"),
    ],
)
def test_a_sweep_is_refused_before_its_points_are_made(strategies: int, values: dict[str, str], complaint: str) -> None:
    names = ["data", "owt", "pipeline", "fsdp"][:strategies]
    if not complaint:
        _require_small(names, values)
        return
    with pytest.raises(InputError) as caught:
        _require_small(names, values)
    assert complaint in str(caught.value)


def test_what_a_sweep_holds_still_is_what_the_controls_say() -> None:
    usual = read_cluster(NOW.cluster, devices=8)
    plain = {
        "cluster": "azure-v100-10g", "devices": 8, "batch_size": 96, "collective": "ring", "overlap": True, "seed": 0,
        "effort": 0.1, "tensor": 1, "pipeline": 1, "context": 1, "expert": 1, "recomputation": "none",
    }  # fmt: skip
    assert fixed(NOW, 96, usual) == plain and fixed(replace(NOW, batch_size=64), 96, usual)["batch_size"] == 64
    changed = replace(
        NOW, expert_tensor=1, chunks=2, shard_group=4, zero_stage=3, microbatches=5, optimizer="adam",
        schedule="gpipe", speed=2.0, inter_bandwidth=0.5, intra_latency=3.0,
    )  # fmt: skip
    first = {tier: next(link for link in usual.links if link.tier == tier) for tier in ("inter", "intra")}
    assert fixed(changed, 96, usual) == {
        **plain, "expert_tensor": 1, "chunks": 2, "shard_group": 4, "zero_stage": 3, "microbatches": 5,
        "optimizer_state": 2.0, "schedule": "gpipe", "speed": 2.0,
        "inter_bandwidth_bytes_per_s": first["inter"].nominal_bytes_per_s * 0.5,
        "intra_latency_s": first["intra"].latency_s * 3,
    }  # fmt: skip


def test_a_row_opens_with_its_own_values_and_links_by_their_factors() -> None:
    store, base = Store({"small": branches()}), replace(NOW, microbatches=4, seed=7)
    usual = read_cluster(NOW.cluster, devices=4)
    first = {tier: next(link for link in usual.links if link.tier == tier) for tier in ("inter", "intra")}
    row: dict[str, Any] = {
        "number": 3, "strategy": "pipeline", "devices": 4.0, "tensor": None, "schedule": "gpipe", "cluster": "else",
        "inter_bandwidth_bytes_per_s": first["inter"].nominal_bytes_per_s * 2, "inter_latency_s": None,
        "intra_latency_s": first["intra"].latency_s / 4, "status": "done",
    }  # fmt: skip
    opened = configuration_of(row, base, store)
    assert (opened.inter_bandwidth, opened.intra_latency) == pytest.approx((2.0, 0.25))
    assert replace(opened, inter_bandwidth=1.0, intra_latency=1.0) == replace(
        base, strategy="pipeline", devices=4, schedule="gpipe", microbatches=None
    )
    assert configuration_of({**row, "microbatches": 2}, base, store).microbatches == 2


@pytest.fixture(scope="module")
def sweeps() -> Sweeps:
    return Sweeps(Store({"small": branches()}))


def values_of(sweeps: Sweeps, base: Configuration, strategies: list[str], **values: str) -> list[dict[str, Any]]:
    return [dict(point.values) for point in sweeps._points(base, strategies, values).points]


def test_strategies_beside_each_other_have_micro_batches_of_their_own(sweeps: Sweeps) -> None:
    """One alone has those that are set, and what it does not take is left out."""
    base = replace(NOW, microbatches=4, batch_size=64, tensor=2, effort=0.5)
    (alone,) = values_of(sweeps, base, ["pipeline"], devices="4")
    assert (alone["microbatches"], alone["devices"], alone["batch_size"]) == (4, 4, 64)
    assert "tensor" not in alone and "effort" not in alone and alone["overlap"] is True
    beside = values_of(sweeps, base, ["data", "pipeline"], devices="2, 4")
    assert sorted((each["strategy"], each["devices"]) for each in beside) == [
        ("data", 2), ("data", 4), ("pipeline", 2), ("pipeline", 4),
    ]  # fmt: skip
    assert not any("microbatches" in each for each in beside)
    (searched,) = values_of(sweeps, base, ["hypergraph"], devices="4")
    assert searched["effort"] == 0.5
    (swept,) = values_of(sweeps, base, ["pipeline"], microbatches="8")
    assert (swept["microbatches"], swept["devices"]) == (8, 8)


def test_a_sweep_names_what_it_varies_and_a_card_by_its_file(sweeps: Sweeps) -> None:
    with pytest.raises(InputError, match=r"strategies is \[\]: a sweep names at least one"):
        values_of(sweeps, NOW, [], devices="4")
    with pytest.raises(UnknownNameError, match="unknown parameter 'seed'"):
        values_of(sweeps, NOW, ["data"], seed="4")
    card = replace(NOW, profile="llama3-8b", cluster="dgx-h100", batch_size=8)
    (of_card,) = values_of(sweeps, card, ["data"], devices="8")
    assert of_card["profile"] == "llama3-8b"
    (measured,) = values_of(sweeps, NOW, ["data"], devices="8")
    assert measured["profile"].endswith("profile.json") and measured["batch_size"] == branches().batch_for(8)


def test_an_uploaded_cluster_is_swept_from_its_file() -> None:
    store = Store({"small": branches()})
    key = store.clusters.put("mine.yaml", ClusterFile.of(replace(read_cluster("cpu-1g", devices=4), name="mine")))
    (point,) = values_of(Sweeps(store), replace(NOW, cluster=key, devices=4), ["data"], devices="4")
    assert point["cluster"].endswith("cluster.yaml")


def test_a_row_has_the_values_of_its_point_but_not_where_its_profile_lay(sweeps: Sweeps) -> None:
    points = sweeps._points(NOW, ["data"], {"devices": "2, 4"})
    result = PointResult(number=1, status="done", error="", metrics={"step_s": 0.5})
    row = _row(points, result)
    assert (row["number"], row["devices"], row["status"], row["error"], row["step_s"]) == (1, 4, "done", "", 0.5)
    assert "profile" not in row
