"""Which profile, card, cluster and plan the names of a link stand for, and what of them is at hand: by value."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from small_networks import branches, chain

from dashboard.state.inventory import label
from dashboard.state.simulating import Outcome, compute, glance_of
from dashboard.state.store import Store
from simulator.errors import UnknownNameError
from simulator.network.catalogue import ClusterFile, read_cluster
from simulator.plan import Plan, Sharding
from simulator.runtime import IDEAL

PLAN = Plan(model="small", batch_size=8, placements={"a": Sharding(devices=(0,))})
MINE = ClusterFile.of(read_cluster("cpu-1g", devices=4), replace(IDEAL, task_overhead_s=1e-3))


@pytest.fixture
def store() -> Store:
    return Store({"small": branches(), "chain": chain([1.0, 2.0])})


def test_a_link_says_what_of_it_is_not_kept_here(store: Store) -> None:
    """Of what is kept, and of names without a hash, nothing."""
    cluster, plan = store.clusters.put("mine.yaml", MINE), store.plans.put("mine.json", PLAN)
    whole = store.identity("chain")
    kept, problems = store.read(f"?profile={whole}&cluster={cluster}&plan={plan}")
    assert (kept.profile, kept.cluster, kept.plan, problems) == (whole, cluster, plan, [])
    assert store.read("profile=chain")[0].profile == whole and store.read("profile=chain")[1] == []
    assert store.read("") == (store.default(), [])
    now, problems = store.read("profile=chain@0123456789&cluster=gone@1&plan=gone@2&devices=2")
    assert (now.profile, now.cluster, now.plan, now.devices) == (whole, store.default().cluster, "", 2)
    assert problems == [
        f"the profile of the link is not kept here; using {whole}",
        "the cluster gone@1 is not kept here: drop its file again",
        "the plan gone@2 is not kept here: drop its file again",
    ]
    assert store.read(f"plan={'x' * 61}")[1] == [f"the plan {'x' * 60} is not kept here: drop its file again"]


def test_a_measured_profile_goes_before_a_card_of_its_name(store: Store) -> None:
    assert store.identity("llama3-8b") == "llama3-8b"
    measured = Store({"llama3-8b": branches()})
    assert label(measured.identity("llama3-8b")) == "llama3-8b" != measured.identity("llama3-8b")
    assert store.identity("meta-llama/Llama-3-8B") == "llama3-8b"  # as people call it
    assert store.profile_names()[:2] == ["small", "chain"] and "llama3-8b" in store.profile_names()[2:]
    for name in ("llama3-8z", "chain-2"):
        assert not store.has_profile(name)
        with pytest.raises(UnknownNameError, match="unknown profile or model card"):
            store.identity(name)
    own = Store({"small": branches()}, cards={"mine": "folder/mine.yaml"}, first="mine")
    assert own.identity("mine") == "mine" and own.cards["mine"] == "folder/mine.yaml"


def test_a_card_has_a_profile_on_each_cluster_made_once(store: Store) -> None:
    now = replace(store.default(), profile="llama3-8b", cluster="dgx-h100")
    first, other = store.profile(now), store.profile(replace(now, cluster="dgx-a100"))
    assert store.profile(replace(now, devices=2)) is first and "H100" in first.device and "A100" in other.device
    assert store.request(now).card == "llama3-8b" and store.request(store.resolved(store.default())).card == ""


def test_an_uploaded_cluster_has_the_runtime_of_its_file(store: Store) -> None:
    now = store.resolved(replace(store.default(), cluster=store.clusters.put("mine.yaml", MINE), devices=3))
    assert store.runtime(now).task_overhead_s == 1e-3 and store.request(now).uploaded == MINE
    assert len(store.usual_cluster(now).devices) == 3
    preset = replace(now, cluster="cpu-1g")
    assert store.runtime(preset) == IDEAL and store.request(preset).uploaded is None
    planned = replace(now, plan=store.plans.put("mine.json", PLAN))
    assert store.request(planned).plan == PLAN and store.request(now).plan is None


@pytest.mark.parametrize("known", ["outcome", "figures", "so far", ""])
def test_what_is_at_hand_begins_nothing(known: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the outcome of what is known in figures."""
    now = store.resolved(replace(store.default(), strategy="data", devices=2))
    done, asked = compute(store.request(now)), list[object]()
    store.desk.keep(now, done if known == "outcome" else None, glance_of(done) if known == "figures" else None)
    workers: Any = SimpleNamespace(submit=asked.append)
    store.desk.workers = workers

    def outcome(configuration: object) -> Outcome:
        asked.append(configuration)
        return done

    monkeypatch.setattr(store.desk, "outcome", outcome)
    monkeypatch.setattr(store.desk, "so_far", lambda configuration: done if known == "so far" else None)
    seen = store.at_hand(replace(now, profile=label(now.profile)))
    assert asked == ([now] if known in ("outcome", "figures") else [])
    assert (seen is done) is bool(known)
    if not known:
        assert (seen.configuration, seen.reason, seen.run) == (now, "this was not simulated", None)
        store.desk.workers = None
        assert store.at_hand(now) is done and asked == [now]
