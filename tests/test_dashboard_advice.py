"""Single changes worth a try, and which of them are told of: by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from small_networks import branches, chain

from dashboard.state import advice as advice_module
from dashboard.state.advice import MOST_S, Move, advise, moves
from dashboard.state.configuration import Configuration
from dashboard.state.planning import usual_cluster
from dashboard.state.simulating import Counted, Glance, Outcome, compute
from dashboard.state.store import Store
from simulator.language_models.card_files import read_card
from simulator.language_models.modelled_profile import modelled_profile
from simulator.language_models.training_stack import read_stack
from simulator.lowering.schedules import SCHEDULES
from simulator.plan import Plan, Sharding
from simulator.workload import Profile

NOW = Configuration(profile="net@0", cluster="cpu-1g", strategy="pipeline", devices=4)
PLAN = Plan(model="net", batch_size=8, placements={"a": Sharding(devices=(0,))})


def changes(field: str, now: Configuration, profile: Profile | None = None, **more: Any) -> list[Any]:
    """What single changes of one field alone set it to."""
    seen = Outcome(configuration=now, profile=profile or branches(), **more)
    others = [move.configuration for move in moves(seen)]
    return [getattr(each, field) for each in others if each == replace(now, **{field: getattr(each, field)}) != now]


@pytest.mark.parametrize(
    ("microbatches", "tried"),
    [(None, [2]), (1, [2]), (2, [4, 1]), (3, [6, 1]), (512, [1024, 256]), (513, [256]), (1024, [512])],
)
def test_micro_batches_are_doubled_and_halved(microbatches: int | None, tried: list[int]) -> None:
    """At least one, at most 1,024; those of the plan where there is one."""
    now = replace(NOW, microbatches=microbatches)
    assert changes("microbatches", now) == tried
    planned: Any = Counted(plan=replace(PLAN, microbatches=8), report=None, early=False)  # type: ignore[arg-type]
    assert changes("microbatches", now, counted=planned) == [16, 4]
    assert changes("microbatches", replace(now, strategy="model")) == []
    words = [move.words for move in moves(Outcome(configuration=now, profile=branches(), counted=planned))]
    assert words[:2] == ["micro-batches 8 → 16", "micro-batches 8 → 4"]


@pytest.mark.parametrize(
    ("field", "kept", "changed", "tried"),
    [("overlap", True, False, [True]), ("collective", "ring", "tree", ["ring"])],
)
def test_what_costs_nothing_is_tried_where_it_is_not_so(field: str, kept: Any, changed: Any, tried: list[Any]) -> None:
    assert changes(field, replace(NOW, **{field: kept})) == []
    assert changes(field, replace(NOW, **{field: changed})) == tried


def test_a_ring_in_place_of_a_server_says_so() -> None:
    words = {
        name: [move.words for move in moves(Outcome(configuration=replace(NOW, collective=name), profile=branches()))]
        for name in ("ps", "tree")
    }
    assert "ring all-reduce, no parameter server" in words["ps"] and "ring all-reduce" in words["tree"]


def test_only_a_pipeline_has_other_schedules_and_an_uploaded_plan_other_strategies_alone() -> None:
    assert "gpipe" in changes("schedule", NOW) and changes("schedule", replace(NOW, strategy="data")) == []
    planned: Any = Counted(plan=replace(PLAN, schedule="gpipe"), report=None, early=False)  # type: ignore[arg-type]
    words = [move.words for move in moves(Outcome(configuration=NOW, profile=branches(), counted=planned))]
    others = [each for each in words if each.startswith("schedule gpipe → ")]
    assert len(others) == len(SCHEDULES) - 1 and "schedule gpipe → gpipe" not in others
    assert "pipeline" not in changes("strategy", NOW) and "data" in changes("strategy", NOW)
    assert not {"hypergraph", "layerwise"} & {*changes("strategy", NOW)}
    seen = Outcome(configuration=replace(NOW, plan="mine@0"), profile=branches())
    tried = [move.configuration for move in moves(seen)]
    assert {each.plan for each in tried} == {""} and "pipeline" in [each.strategy for each in tried]
    assert all(replace(each, strategy="pipeline") == NOW for each in tried)


@pytest.mark.parametrize(
    ("changed", "anew"),
    [({}, False), ({"microbatches": 4}, True), ({"schedule": "gpipe"}, True), ({"overlap": False}, False)],
)
def test_other_strategies_are_tried_with_micro_batches_of_their_own_where_some_are_set(
    changed: dict[str, Any], anew: bool
) -> None:
    now = replace(NOW, **changed)
    tried = [move for move in moves(Outcome(configuration=now, profile=branches())) if "strategy" in move.words]
    freed = [move for move in tried if move.words.endswith(", its own micro-batches")]
    assert len(freed) == (len(tried) // 2 if anew else 0)
    assert all((each.configuration.microbatches, each.configuration.schedule) == (None, "own") for each in freed)


def test_links_twice_as_fast_are_those_that_the_cluster_has() -> None:
    now = replace(NOW, cluster="azure-v100-10g", devices=8, inter_bandwidth=0.5, intra_bandwidth=3.0)
    cluster = usual_cluster(now, None)
    assert changes("inter_bandwidth", now, cluster=cluster) == [1.0]
    assert changes("intra_bandwidth", now, cluster=cluster) == [6.0]
    seen = Outcome(configuration=now, profile=branches(), cluster=cluster)
    assert [move.words for move in moves(seen) if move.hardware] == [
        "inter links twice as fast", "intra links twice as fast",
    ]  # fmt: skip
    assert changes("inter_bandwidth", now) == []
    one_host = replace(now, cluster="cpu-1g")
    assert changes("intra_bandwidth", one_host, cluster=usual_cluster(one_host, None)) == []


@pytest.fixture(scope="module")
def blocks() -> Profile:
    return modelled_profile(read_card("llama3-8b"), read_stack("megatron-a100"), batch_size=1)


GRID = Configuration(profile="llama3-8b", cluster="dgx-h100", strategy="megatron", devices=16, batch_size=64)


@pytest.mark.parametrize(
    ("field", "changed", "tried"),
    [
        ("tensor", {"tensor": 4}, [8, 2]),
        ("tensor", {}, [2]),
        ("tensor", {"tensor": 8}, [16, 4]),
        ("tensor", {"tensor": 16}, [8]),
        ("pipeline", {"pipeline": 2, "tensor": 4}, [4, 1]),
        ("context", {"context": 2}, [4, 1]),
        ("expert", {}, []),
        ("tensor", {"strategy": "fsdp"}, []),
        ("zero_stage", {}, [1]),
        ("zero_stage", {"zero_stage": 1}, [2]),
        ("zero_stage", {"zero_stage": 2}, [3, 1]),
        ("zero_stage", {"zero_stage": 3}, [2]),
        ("zero_stage", {"zero_stage": 2, "strategy": "pipeline"}, []),
        ("recomputation", {}, ["selective"]),
        ("recomputation", {"recomputation": "selective"}, ["none", "full"]),
        ("recomputation", {"recomputation": "full"}, ["selective"]),
        ("recomputation", {"recomputation": "op"}, []),
        ("recomputation", {"strategy": "data"}, []),
    ],
)
def test_of_a_grid_one_degree_stage_or_kind_further_is_tried(
    field: str, changed: dict[str, Any], tried: list[Any], blocks: Profile
) -> None:
    """Of 32 heads, 8 of keys, on 16 devices; of networks without sequences none of it."""
    now = replace(GRID, **changed)
    assert changes(field, now, blocks) == tried and changes(field, now, chain([1.0, 1.0])) == []
    words = [move.words for move in moves(Outcome(configuration=now, profile=blocks))]
    shown = "ZeRO stage" if field == "zero_stage" else field
    set_to = getattr(now, field)
    assert [each for each in words if each.startswith(f"{shown} ")] == [f"{shown} {set_to} → {to}" for to in tried]
    if field == "zero_stage" and "strategy" not in changed:
        planned: Any = Counted(plan=replace(PLAN, states=replace(PLAN.states, stage=2)), report=None, early=False)  # type: ignore[arg-type]
        words = [move.words for move in moves(Outcome(configuration=now, profile=blocks, counted=planned))]
        assert [each for each in words if "ZeRO" in each] == ["ZeRO stage 2 → 3", "ZeRO stage 2 → 1"]


def glance(step_s: float, total_bytes: float = 0.0, ran: bool = True) -> Glance:
    return Glance(configuration=NOW, step_s=step_s, total_bytes=total_bytes, fit="fits", plan=PLAN if ran else None)


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    store = Store({"net": branches()})
    return compute(store.request(store.resolved(replace(NOW, profile="net", strategy="data"))))


def asked_of(known: Sequence[tuple[str, bool, Glance | None]], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A store whose desk knows these changes: words, whether of the hardware, what they come to."""
    every = {replace(NOW, seed=number): each for number, each in enumerate(known)}
    tried = [Move(words=words, configuration=now, hardware=hw) for now, (words, hw, _) in every.items()]
    monkeypatch.setattr(advice_module, "moves", lambda outcome: tried)
    monkeypatch.setattr(advice_module, "_of_table", lambda outcome, tried: ())
    return SimpleNamespace(desk=SimpleNamespace(glance=lambda now: every[now][2]))


def test_changes_that_help_come_best_first_and_settings_that_were_tried_are_counted(
    outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert outcome.report is not None
    step_s = outcome.report.step_s
    store = asked_of(
        [
            ("half", False, glance(step_s / 2)),
            ("unknown", False, None),
            ("worse", False, glance(step_s * 2)),
            ("cannot run", False, glance(0.0, ran=False)),
            ("links", True, glance(step_s / 4)),
            ("unknown links", True, None),
            ("fewer bytes", False, glance(step_s / 2, -1.0)),
        ],
        monkeypatch,
    )
    advice = advise(store, outcome)
    assert [move.words for move, _ in advice.helpful] == ["links", "fewer bytes", "half"]
    assert [move.words for move, _ in advice.offered] == ["fewer bytes", "half", "links"]
    assert (advice.settings, advice.note) == (4, "")
    stuck = advise(store, replace(outcome, run=None))
    assert "worse" in [move.words for move, _ in stuck.helpful] and len(stuck.helpful) == 4
    slow = advise(store, replace(outcome, took_s=MOST_S + 1))
    assert (slow.helpful, slow.settings, slow.loss) == ((), 0, None) and "takes 6.00 s to simulate" in slow.note


@pytest.mark.parametrize(("factor", "helps"), [(1 - 0.005, False), (1 - 0.0051, True)])
def test_half_a_percent_shorter_does_not_help(
    factor: float, helps: bool, outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert outcome.report is not None
    store = asked_of([("shorter", False, glance(outcome.report.step_s * factor))], monkeypatch)
    assert len(advise(store, outcome).helpful) == helps


def test_strategies_of_the_table_are_tried_where_they_are_known_and_no_single_change(
    outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert outcome.report is not None
    now, better = outcome.configuration, glance(outcome.report.step_s / 2)
    searched, single, later = (replace(now, strategy=name) for name in ("hypergraph", "owt", "layerwise"))
    grid = replace(now, strategy="megatron", tensor=2)
    table = {now: better, searched: better, single: better, later: None, grid: better}
    monkeypatch.setattr(advice_module, "moves", lambda outcome: [Move(words="single", configuration=single)])
    monkeypatch.setattr(advice_module, "alternatives", lambda now, profile: tuple(table))
    store: Any = SimpleNamespace(desk=SimpleNamespace(glance=table.get))
    assert [move.words for move, _ in advise(store, outcome).helpful] == [
        "single", "strategy data → hypergraph", "strategy data → megatron, tensor 2",
    ]  # fmt: skip
