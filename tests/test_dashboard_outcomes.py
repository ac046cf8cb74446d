"""What becomes of a request: a run, numbers before it or instead of it, figures alone. By hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from small_networks import branches, chain, switched

from dashboard.state import simulating
from dashboard.state.caps import MOST_TASKS
from dashboard.state.configuration import Configuration
from dashboard.state.simulating import Outcome, Request, _named, compute, glance_of, simulated, stopped
from dashboard.state.store import Store
from simulator.network.catalogue import ClusterFile, read_cluster
from simulator.plan import Plan, Sharding
from simulator.run import run
from simulator.runtime import IDEAL

NOW = Configuration(profile="small", cluster="cpu-1g", strategy="data", devices=4, batch_size=16, microbatches=2)
TASKS = 32
"""Two passes of two layers without parameters on four devices for each of two micro-batches."""


def request(**changes: Any) -> Request:
    store = Store({"small": chain([1.0, 2.0])})
    return store.request(store.resolved(replace(NOW, **changes)))


def always_counted(asked: list[int]) -> Callable[..., bool]:
    """Equal replicas wherever there are more than so many tasks, which is told."""

    def is_counted(*arguments: Any) -> bool:
        asked.append(arguments[-1])
        return True

    return is_counted


@pytest.mark.parametrize(
    ("changed", "light", "shows", "few", "shown", "ran"),
    [
        ({"EARLY_TASKS": TASKS - 1}, False, True, TASKS - 1, True, True),
        ({"EARLY_TASKS": TASKS}, False, True, TASKS, False, True),
        ({"EARLY_TASKS": TASKS - 1, "MOST_TASKS": TASKS}, False, True, TASKS - 1, True, True),
        ({"EARLY_TASKS": TASKS - 2, "MOST_TASKS": TASKS - 1}, False, True, TASKS - 2, False, False),
        ({"MOST_TASKS": TASKS}, False, False, TASKS, False, True),
        ({"MOST_TASKS": TASKS - 1}, False, False, TASKS - 1, False, False),
        ({"MOST_BEHIND_TASKS": TASKS}, True, False, TASKS, False, True),
        ({"MOST_BEHIND_TASKS": TASKS - 1}, True, False, TASKS - 1, False, False),
    ],
)
def test_a_step_of_equal_replicas_has_numbers_before_its_tasks_or_alone(
    changed: dict[str, int], light: bool, shows: bool, few: int, shown: bool, ran: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Before them where more than a few are drawn, instead where they are too many."""
    asked, early = list[int](), list[Outcome]()
    monkeypatch.setattr(simulating, "is_counted", always_counted(asked))
    for name, most in changed.items():
        monkeypatch.setattr(simulating, name, most)
    outcome = compute(replace(request(), light=light), show=early.append if shows else None)
    assert asked == [few] and (outcome.run is not None) is ran and (outcome.counted is None) is ran
    assert [(each.counted.early, each.run) for each in early if each.counted] == [(True, None)] * shown
    assert all(each.undrawn == f"{TASKS} tasks are being simulated" for each in early)
    assert outcome.undrawn == ("" if ran else f"{TASKS} tasks are too many to draw")
    assert outcome.report is not None and outcome.report.tasks == TASKS
    assert outcome.plan is not None and ran == bool(outcome.report.layers)
    assert outcome.interval is not None and outcome.interval.middle_s == pytest.approx(outcome.report.step_s)


def test_a_search_shows_its_plans_and_not_the_numbers_of_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, early = list[int](), list[Outcome]()
    monkeypatch.setattr(simulating, "is_counted", always_counted(asked))
    monkeypatch.setattr(simulating, "EARLY_TASKS", 1)
    plan = compute(request()).plan
    searched = replace(request(strategy="hypergraph"), plan=plan)
    assert compute(searched, show=early.append).run is not None
    assert (asked[-1], early) == (MOST_TASKS, [])


def test_behind_a_page_large_runs_stay_where_they_are_and_figures_come(monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(request(), light=True)
    outcome, figures = simulated(request())
    assert outcome is not None and outcome.run is not None and figures is None
    for most, stays in ((TASKS, False), (TASKS - 1, True)):
        monkeypatch.setattr(simulating, "MOST_SHIPPED_TASKS", most)
        behind, figures = simulated(small)
        assert (behind is None) is stays and figures is not None and figures.step_s == outcome.run.report.step_s
    refused, figures = simulated(replace(request(microbatches=8), light=True))
    assert refused is not None and refused.run is None and figures is not None
    assert figures.reason == refused.reason != "" and not figures.ran


def test_a_glance_counts_the_devices_that_compute_at_all() -> None:
    """Two of three, each for less than a second; none without a step, which has one micro-batch."""
    profile, cluster = chain([0.3, 0.6]), switched([1.0] * 3)
    plan = Plan(model="small", batch_size=8, placements={"a": Sharding(devices=(0,)), "b": Sharding(devices=(2,))})
    done = Outcome(configuration=NOW, profile=profile, cluster=cluster, run=run(profile, cluster, plan))
    none = glance_of(replace(done, run=None))
    assert (glance_of(done).computing, none.computing, none.microbatches) == (2, 0, 1)


def test_a_step_whose_error_is_not_known_has_no_interval() -> None:
    outcome = compute(request())
    assert outcome.interval is not None and not outcome.interval.parts and outcome.interval_s is None
    store = Store({"small": branches()})
    known = compute(store.request(store.resolved(NOW)))
    assert known.interval is not None and known.interval_s == (known.interval.low_s, known.interval.high_s)


def test_a_request_has_the_runtime_of_its_uploaded_cluster() -> None:
    slow = replace(IDEAL, task_overhead_s=1e-3)
    uploaded = ClusterFile.of(read_cluster("cpu-1g", devices=4), slow)
    overheads_s = [each.runtime.task_overhead_s for each in (request(), replace(request(), uploaded=uploaded))]
    assert overheads_s == [0.0, 1e-3]


@pytest.mark.parametrize(("made_by", "named"), [("", "hypergraph"), ("data", "hypergraph (as data)")])
def test_a_plan_of_a_search_is_named_by_both(made_by: str, named: str) -> None:
    plan = Plan(model="small", batch_size=8, placements={"a": Sharding(devices=(0,))}, strategy=made_by)
    assert _named(plan, replace(NOW, strategy="hypergraph")) == replace(plan, strategy=named)


@pytest.mark.parametrize(("strategy", "doing"), [("data", "simulating"), ("hypergraph", "searching")])
def test_what_was_ended_says_what_it_was_doing_for_how_long(strategy: str, doing: str) -> None:
    ended = stopped(request(strategy=strategy), "cancelled", 2.5)
    assert ended.reason == ended.undrawn == f"{doing} {strategy} was cancelled after 2.50 s"
    assert ended.took_s == 2.5 and ended.report is None and ended.plan is None and ended.cluster is not None
    assert stopped(replace(request(), configuration=replace(NOW, devices=0)), "cancelled", 0.0).cluster is None


@pytest.mark.parametrize(
    ("strategy", "shows", "listens"),
    [("pipeline", True, False), ("pipeline", False, False), ("hypergraph", True, True), ("hypergraph", False, False)],
)
def test_only_a_search_that_somebody_watches_is_shown_as_it_goes_on(
    strategy: str, shows: bool, listens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, shown = compute(request()).plan, list[Outcome]()

    @contextmanager
    def recorded(kept: list[Any], cluster: object, within_s: float, tell: Any) -> Iterator[None]:
        assert within_s == simulating.SEARCH_S and (tell is not None) is listens
        kept.append("a plan")
        if tell is not None:
            tell(plan)
        yield

    monkeypatch.setattr(simulating, "recorded_candidates", recorded)
    monkeypatch.setattr(simulating, "build_plan", lambda *_: plan)
    last = compute(request(strategy=strategy, effort=0.02), show=shown.append if shows else None)
    assert last.run is not None and (last.note, last.candidates, last.plan) == ("", ("a plan",), plan)
    assert [(each.note, each.plan and each.plan.strategy) for each in shown] == [
        ("the best of 1 plans so far: the search goes on", "hypergraph (as data)")
    ] * listens


def test_an_outcome_took_as_long_as_the_clock_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it ran or was refused; with a plan of its own nothing is refused before."""
    clock = iter(range(100, 200, 7))
    monkeypatch.setattr(simulating, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    assert compute(request()).took_s == 7.0
    large = request(strategy="hypergraph", devices=512)
    refused = compute(large)
    assert refused.took_s == 7.0 and "plans hypergraph for up to 256 devices" in refused.reason
    planned = compute(replace(large, plan=compute(request()).plan))
    assert planned.run is not None and planned.took_s == 7.0
