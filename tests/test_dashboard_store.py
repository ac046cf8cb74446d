"""The store: simulate once, say why not, read uploads; and the advice that comes out of it. No Dash."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from conftest import ROOT
from dashboard_advice import advised
from small_networks import branches, chain

from dashboard.frame.controls import profile_options
from dashboard.state import candidates, caps, plans, simulating, sweeps, uploads, workers
from dashboard.state import desk as desk_module
from dashboard.state.advice import AS_LONG, moves
from dashboard.state.caps import require_size, require_small
from dashboard.state.configuration import NUMBERS, Configuration
from dashboard.state.simulating import Outcome, Request, compute
from dashboard.state.store import Store
from dashboard.state.worker_process import _simulate
from simulator import files
from simulator.errors import InputError, UnknownNameError
from simulator.files import write_profile
from simulator.network.catalogue import read_cluster
from simulator.plan import Plan, Sharding
from simulator.run import run
from simulator.runtime import IDEAL
from simulator.workload import Profile


@pytest.fixture
def store() -> Store:
    return Store({"small": branches(), "chain": chain([3.0, 3.0, 3.0, 3.0])})


def configured(store: Store, **changes: object) -> Configuration:
    default = replace(store.default(), devices=2, microbatches=4)
    return replace(default, **changes)  # type: ignore[arg-type]


def written(profile: Profile, folder: Path) -> bytes:
    write_profile(profile, folder / "upload.json")
    return (folder / "upload.json").read_bytes()


def test_the_default_is_feasible(store: Store) -> None:
    outcome = store.outcome(configured(store))
    assert outcome.run is not None and outcome.reason == "" and outcome.run.report.fits


def test_equal_configurations_are_simulated_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Configuration] = []
    real = desk_module.compute

    def counted(request: Request, *rest: Any) -> Outcome:
        seen.append(request.configuration)
        return real(request, *rest)

    monkeypatch.setattr(desk_module, "compute", counted)
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(store.outcome, [configured(store)] * 16))
    assert len(seen) == 1 and all(outcome is outcomes[0] for outcome in outcomes)


def test_old_outcomes_are_forgotten(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk_module, "_OUTCOMES", 2)
    first = store.outcome(configured(store))
    for seed in (1, 2):
        store.outcome(configured(store, seed=seed))
    assert store.outcome(configured(store)) is not first


def test_links_follow_the_factors(store: Store) -> None:
    plain, fast = (store.outcome(configured(store, inter_bandwidth=f)).cluster for f in (1.0, 4.0))
    assert plain is not None and fast is not None
    assert fast.links[0].bandwidth_bytes_per_s == 4 * plain.links[0].bandwidth_bytes_per_s
    assert fast.links[0].latency_s == plain.links[0].latency_s
    served = store.usual_cluster(configured(store, collective="ps"))
    assert len(served.servers) == 1


def test_a_wish_of_the_user_reaches_the_plan(store: Store) -> None:
    plan = store.outcome(configured(store, strategy="data", schedule="dataflow", optimizer="adam", overlap=False)).run
    assert plan is not None
    assert (plan.plan.optimizer_state, plan.plan.synchronisation.overlap) == (2.0, False)
    assert plan.plan.microbatches == 4


def test_an_infeasible_configuration_is_an_answer(store: Store) -> None:
    outcome = store.outcome(configured(store, devices=64, batch_size=8, strategy="data"))
    assert outcome.run is None and "64" in outcome.reason and outcome.cluster is not None


def test_a_step_beyond_the_limit_is_refused_before_it_is_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = chain([1.0] * 20, [64] * 20)
    halves = [Sharding(degrees=(1, 64, 1, 1), devices=tuple((i + shift) % 64 for i in range(64))) for shift in (0, 1)]
    placements = {layer.name: halves[i % 2] for i, layer in enumerate(profile.layers)}
    plan = Plan(model="small", batch_size=8, microbatches=8, placements=placements)
    cluster = read_cluster("dgx-h100", devices=64)
    lowered = run(profile, cluster, plan).report.tasks
    monkeypatch.setattr(caps, "MOST_TASKS", lowered - 1)
    with pytest.raises(InputError, match=f"the step has {lowered:,} tasks"):
        require_size(profile, plan, cluster, IDEAL)
    monkeypatch.setattr(caps, "MOST_TASKS", lowered)
    require_size(profile, plan, cluster, IDEAL)
    monkeypatch.setattr(caps, "MOST_LOWERED", 1000)
    # 20 layers of 64 shards; 19 of them sent to 64 devices; both ways, 8 micro-batches
    with pytest.raises(InputError, match=f"{2 * 64 * 8 * (20 + 19 * 64):,} tasks"):
        require_size(profile, plan, cluster, IDEAL)


def test_caps_are_checked_before_planning(store: Store) -> None:
    profile = store.profiles.get("chain")
    with pytest.raises(InputError, match="plans layerwise for up to 32 devices"):
        require_small(configured(store, strategy="layerwise", devices=64), profile)
    with pytest.raises(InputError, match=f"simulates up to {caps.MOST_TASKS:,}"):
        require_small(configured(store, strategy="owt", devices=1024, microbatches=1024), profile)
    require_small(configured(store, strategy="pipeline", devices=1024, microbatches=1024), profile)


def test_the_caps_are_those_that_the_guide_names() -> None:
    words = " ".join((ROOT / "docs" / "dashboard.md").read_text().split())
    assert (
        f"{caps.MOST_TASKS:,} tasks a step, layer-wise plans up to {caps.MOST_SEARCHED['layerwise']} devices" in words
    )
    others = {most for name, most in caps.MOST_SEARCHED.items() if name != "layerwise"}
    assert {*caps.MOST_SEARCHED} == {"layerwise", "hypergraph", "metis", "spatial", "shuffle"} and len(others) == 1
    assert (
        f"hypergraph, metis, spatial and shuffle plans up to {others.pop()}, {sweeps.MOST_POINTS} points and" in words
    )
    assert f"points and {NUMBERS['devices'].high:,} devices in a sweep" in words and sweeps.WIDTH == 2
    assert "two at a time" in words and f"asked for in {sweeps.GONE_S:g} s, or that has run for" in words
    assert f"has run for {sweeps.BUDGET_S / 60:g} minutes, is paused" in words
    assert f"in a process of its own for at most {plans.BUDGET_S:g} s" in words
    assert f"ends {plans.GONE_S:g} s after the last page that asked for it is closed" in words
    assert f"search ends after {simulating.SEARCH_S:g} s with the best plan that it has tried" in words
    assert f"has tried none is given up after {workers.BUDGET_S:g} s." in words
    assert f"else by {desk_module.GONE_S:g} s of silence" in words
    assert f"One of {caps.EARLY_TASKS:,} tasks or more has these numbers first" in words
    assert f"changes with more than {simulating.MOST_BEHIND_TASKS:,} tasks, these numbers are all" in words
    paused_s, share = candidates._PAUSE_S, candidates._SHARE
    assert f"at most every {paused_s:g} s and for at most a {({0.1: 'tenth'})[share]} of the search's time" in words


def test_an_upload_is_known_by_its_content(store: Store, tmp_path: Path) -> None:
    text = written(chain([1.0, 2.0]), tmp_path)
    key = store.profiles.put("mine.json", uploads.profile(text, "mine.json"))
    assert key == store.profiles.identity("mine", chain([1.0, 2.0]))
    assert store.profiles.get(key).model == "small"
    assert store.profiles.get("mine@0000000000").layers[1].name == "b"
    with pytest.raises(UnknownNameError, match="unknown profile 'absent'"):
        store.profiles.get("absent")


def test_uploads_push_out_older_uploads_but_nothing_given(store: Store) -> None:
    for i in range(25):
        store.profiles.put("mine.json", chain([1.0 + i]))
    assert len(store.profiles.everything()) == 2 + 20 and "small" in next(iter(store.profiles.everything()))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"{", "bad.json: line 1, column 2: not valid JSON"),
        (b"[" * 100_000, "bad.json: "),
        (b'{"schema": 1, "modle": "x"}', "did you mean 'model'"),
        (b"\xff\xfe", "not UTF-8"),
        (json.dumps({"schema": 1, "model": "m", "device": "d", "batch_size": 0, "layers": []}).encode(), "batch_size"),
    ],
)
def test_a_broken_upload_says_where_and_why(text: bytes, complaint: str) -> None:
    with pytest.raises(InputError) as error:
        uploads.profile(text, "folder/bad.json")
    assert complaint in str(error.value) and "/tmp" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"forward_s": 1e8}, "at most 100,000 here"),
        ({"parameter_bytes": 10**16}, r"at most 1e\+15 here"),
        ({"flops": 1e22}, r"at most 1e\+21 here"),
    ],
)
def test_what_no_layer_has_is_refused(tmp_path: Path, change: dict[str, Any], rule: str) -> None:
    plain = chain([1.0, 2.0])
    strange = replace(plain, layers=(replace(plain.layers[0], **change), *plain.layers[1:]))
    with pytest.raises(InputError, match=rule):
        uploads.profile(written(strange, tmp_path), "strange.json")


def test_a_plan_of_a_size_that_no_page_takes_is_refused() -> None:
    plan = Plan(model="m", placements={"a": Sharding(devices=(0,))}, batch_size=7)
    for size, rule in ((10**9, "at most"), (10**400, "at most 63")):
        text = files.to_json(plan).replace('"batch_size": 7', f'"batch_size": {size}')
        with pytest.raises(InputError, match=rule):
            uploads.plan(text.encode(), "plan.json")


def test_uploads_of_one_name_are_told_apart(store: Store) -> None:
    for seconds in (1.0, 2.0):
        store.profiles.put("mine.json", chain([seconds]))
    labels = [
        item["label"] for group in profile_options(store) for item in group["items"] if item["label"].startswith("mine")
    ]
    assert len(set(labels)) == 2


def test_advice_and_the_menu_give_the_same_number(store: Store) -> None:
    shown = store.outcome(configured(store, microbatches=4))
    for move, glance in advised(store, shown).helpful:
        if move.words == "strategy pipeline → owt":
            run = store.outcome(replace(shown.configuration, strategy="owt")).run
            assert run is not None and run.report.step_s == glance.step_s
    assert {move.configuration.microbatches for move in moves(shown) if move.words == "strategy pipeline → data"} == {4}


def test_a_plan_file_is_simulated_as_it_is(store: Store, tmp_path: Path) -> None:
    run = store.outcome(configured(store, strategy="owt")).run
    assert run is not None
    key = store.plans.put("kept.json", uploads.plan(files.to_json(run.plan).encode(), "kept.json"))
    again = store.outcome(configured(store, strategy="pipeline", plan=key)).run
    assert again is not None and again.report.step_s == run.report.step_s


def test_an_upload_of_too_many_layers_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MOST_LAYERS", 1)
    with pytest.raises(InputError, match="layers is 2: at most 1"):
        uploads.profile(written(chain([1.0, 2.0]), tmp_path), "big.json")


def test_advice_is_what_its_move_simulates_to(store: Store) -> None:
    outcome = store.outcome(configured(store, microbatches=1))
    advice = advised(store, outcome)
    assert outcome.run is not None and advice.loss is not None
    again = store.outcome(advice.offered[0][0].configuration).run
    assert again is not None and again.report.step_s == advice.offered[0][1].step_s < outcome.run.report.step_s
    steps_s = [glance.step_s for _, glance in advice.helpful]
    assert all(
        step_s <= next_s * (1 + 2 * AS_LONG) for step_s, next_s in pairwise(steps_s)
    )  # and of equals fewer bytes first


def test_every_move_changes_something_and_none_searches(store: Store) -> None:
    outcome = store.outcome(configured(store, overlap=False, collective="ps"))
    tried = list(moves(outcome))
    assert all(move.configuration != outcome.configuration for move in tried)
    assert {"overlap gradient synchronisation", "ring all-reduce, no parameter server"} <= {m.words for m in tried}
    assert not any(move.configuration.strategy == "hypergraph" for move in tried)
    assert outcome.cluster is not None
    for tier in outcome.cluster.tiers:
        (faster,) = (move.configuration for move in tried if move.words == f"{tier} links twice as fast")
        assert faster.link_factors(tier)[0] == 2 * outcome.configuration.link_factors(tier)[0]


def test_a_large_step_that_nobody_waits_for_stays_where_it_was_simulated(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulating, "MOST_SHIPPED_TASKS", 0)
    request = store.request(store.resolved(configured(store)))
    pipe = cast(Connection, SimpleNamespace(send=lambda words: None))
    waited_for, beside = (_simulate(replace(request, light=light), pipe) for light in (False, True))
    assert waited_for[0] == beside[0] == "done" and beside[1][0] is None and waited_for[1][1] is None
    outcome, glance = waited_for[1][0], beside[1][1]
    assert outcome.profile is None and outcome.run.report.step_s == glance.step_s


def test_an_outcome_says_how_long_it_took(store: Store) -> None:
    for now in (configured(store), configured(store, strategy="data", devices=16, batch_size=8)):
        began_s = time.perf_counter()
        outcome = compute(store.request(now))
        assert 0 < outcome.took_s < time.perf_counter() - began_s
    assert outcome.run is None  # what cannot run took its time, too


def test_advice_helps_out_of_an_infeasible_configuration(store: Store) -> None:
    outcome = store.outcome(configured(store, strategy="data", devices=16, batch_size=8))
    assert outcome.run is None
    assert advised(store, outcome).offered
