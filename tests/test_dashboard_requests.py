"""What a desk remembers, whom it works for and what it drops, with a clock and workers of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_networks import chain

from dashboard.state import desk as desk_module
from dashboard.state.configuration import Configuration
from dashboard.state.desk import GONE_S, Desk
from dashboard.state.simulating import Glance, Outcome, Request, compute, simulated, stopped
from dashboard.state.workers import BACKGROUND, CLICKS, SEARCHES, Simulation

PROFILE = chain([1.0, 2.0])
NOW = Configuration(profile="chain", cluster="cpu-1g", strategy="data", devices=2, batch_size=2)


def request(configuration: Configuration) -> Request:
    return Request(configuration=configuration, profile=PROFILE)


def numbered(number: int, strategy: str = "data") -> Configuration:
    return replace(NOW, seed=number, strategy=strategy)


def outcome(number: int, tasks: int = 0) -> Outcome:
    """What a configuration came to, of so many tasks; none: it cannot run."""
    run: Any = SimpleNamespace(report=SimpleNamespace(tasks=tasks)) if tasks else None
    return Outcome(configuration=numbered(number), profile=PROFILE, run=run)


@pytest.fixture
def submitted() -> Iterator[list[Simulation]]:
    """Jobs that nobody simulates; they end with the test."""
    jobs: list[Simulation] = []
    yield jobs
    for job in jobs:
        job.outcome = Outcome(configuration=job.request.configuration, profile=PROFILE, reason="over")
        job.end()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The desk's: clock.now seconds."""
    clock = SimpleNamespace(now=100.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(desk_module, "time", clock)
    return clock


@pytest.fixture
def desk(submitted: list[Simulation], clock: SimpleNamespace) -> Desk:
    workers: Any = SimpleNamespace(submit=submitted.append)
    return Desk(request, workers)


@given(st.lists(st.tuples(st.integers(0, 6), st.none() | st.sampled_from([0, 4, 5, 10, 11])), max_size=12))
def test_outcomes_asked_for_last_stay_as_far_as_they_are_few_and_small(steps: list[tuple[int, int | None]]) -> None:
    """Steps: an outcome of so many tasks comes, or (None) is asked for again. The latest stays, however large."""
    desk, kept = Desk(request), list[tuple[int, int]]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(desk_module, "_OUTCOMES", 3)
        patch.setattr(desk_module, "_REMEMBERED_TASKS", 10)
        for number, tasks in steps:
            again = [each for each in kept if each[0] == number]
            kept = [each for each in kept if each[0] != number]
            if tasks is None:
                assert (desk.known(numbered(number)) is not None) == bool(again)
                kept += again
                continue
            desk.keep(numbered(number), outcome(number, tasks), None)
            kept.append((number, tasks))
            ends = [kept[first:] for first in range(len(kept))]
            kept = next(end for end in ends if len(end) == 1 or (len(end) <= 3 and sum(t for _, t in end) <= 10))
    assert [configuration.seed for configuration in desk._outcomes] == [number for number, _ in kept]


def test_the_latest_glances_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk_module, "_GLANCES", 3)
    desk = Desk(request)
    for number in range(5):
        desk.keep(numbered(number), None, Glance(configuration=numbered(number), step_s=number))
    seen = [desk.glance(numbered(number)) for number in range(5)]
    assert [glance.step_s if glance else None for glance in seen] == [None, None, 2, 3, 4]


def test_figures_counted_alone_give_way_to_those_of_a_run() -> None:
    """Others stay, and so do all where nothing ran."""
    desk, done = Desk(request), compute(request(NOW))
    assert done.run is not None
    counted = Glance(configuration=NOW, step_s=7.0)
    desk.keep(NOW, None, counted)
    desk.keep(NOW, replace(done, run=None), None)
    assert desk.glance(NOW) is counted
    desk.keep(NOW, done, None)
    of_run = desk.glance(NOW)
    assert of_run is not None and of_run.step_s == done.run.report.step_s and of_run.by_layer is not None
    desk.keep(NOW, done, None)
    assert desk.glance(NOW) is of_run


def test_a_tab_is_closed_once_it_has_been_silent_for_longer_than_its_time(
    desk: Desk, submitted: list[Simulation], clock: SimpleNamespace
) -> None:
    desk.ask(numbered(1), "silent", 0.0)
    clock.now += GONE_S
    desk.ask(numbered(2), "other", 0.0)
    assert [job.cancelled.is_set() for job in submitted] == [False, False] and desk.jobs() == submitted
    clock.now += 0.1
    desk.want([], "other")
    assert [job.cancelled.is_set() for job in submitted] == [True, False] and desk.jobs() == submitted[1:]


def test_a_job_goes_to_the_lane_of_its_kind(desk: Desk, submitted: list[Simulation]) -> None:
    """One whose plan is known from its glance is not searched again."""
    plan = compute(request(NOW)).plan
    searched, planned = numbered(1, "hypergraph"), numbered(2, "hypergraph")
    desk.keep(planned, None, Glance(configuration=planned, plan=plan))
    for each in (NOW, searched, planned):
        desk.ask(each, "tab", 0.0, beside=NOW)
    desk.want([numbered(3), numbered(4, "hypergraph"), planned, NOW], "tab")
    assert [(job.request.configuration.seed, job.lane, job.request.light) for job in submitted] == [
        (0, CLICKS, False), (1, SEARCHES, False), (2, CLICKS, False), (3, BACKGROUND, True), (4, BACKGROUND, True),
    ]  # fmt: skip
    assert [job.request.plan for job in submitted] == [None, None, plan, None, None]


def test_what_a_tab_asks_for_takes_the_place_of_what_it_asked_before(desk: Desk, submitted: list[Simulation]) -> None:
    """But for what it shows beside that; what is wanted behind it is apart."""
    desk.ask(numbered(1), "tab", 0.0)
    desk.want([numbered(8), numbered(9)], "tab")
    desk.ask(numbered(2), "tab", 0.0, beside=numbered(1))
    assert [job.request.configuration.seed for job in desk.jobs()] == [1, 8, 9, 2]
    desk.want([numbered(9)], "tab")
    desk.ask(numbered(3), "tab", 0.0)
    assert [job.request.configuration.seed for job in desk.jobs()] == [9, 3]
    desk.ask(numbered(3), "other", 0.0)
    desk.leave("tab")
    assert [(job.request.configuration.seed, job.tabs) for job in desk.jobs()] == [(3, {"other"})]
    assert [job.request.configuration.seed for job in submitted if job.cancelled.is_set()] == [1, 8, 9, 2]


@pytest.fixture
def prompt() -> tuple[Desk, list[Simulation]]:
    """A desk whose workers answer as they are asked, and what they did; what is light and of seed 9 stays behind."""

    def submit(job: Simulation) -> None:
        outcome, glance = simulated(job.request)
        stays = job.request.light and job.request.configuration.seed == 9
        job.outcome, job.glance = None if stays else outcome, glance
        started.append(job)
        job.end()

    started = list[Simulation]()
    workers: Any = SimpleNamespace(submit=submit)
    return Desk(request, workers), started


def test_what_workers_bring_is_kept_and_asked_of_them_once(prompt: tuple[Desk, list[Simulation]]) -> None:
    desk, started = prompt
    first, asked = desk.outcome(NOW), desk.ask(numbered(1), "tab", 60.0)
    assert first.run is not None and first is desk.outcome(NOW) is desk.ask(NOW, "tab", 0.0) is desk.known(NOW)
    assert isinstance(asked, Outcome) and asked.run is not None and asked is desk.known(numbered(1))
    assert [job.request.configuration.seed for job in started] == [0, 1] and desk.jobs() == []


def test_what_stays_behind_is_simulated_once(prompt: tuple[Desk, list[Simulation]]) -> None:
    """Until somebody asks for all of it; its figures are there."""
    desk, started = prompt
    desk.want([numbered(9)], "tab")
    desk._follow(started[0])
    assert desk.known(numbered(9)) is None and desk.glance(numbered(9)) is started[0].glance
    assert len(started) == 1 and desk.want([numbered(9)], "tab") == [] and desk.jobs() == []
    assert desk.outcome(numbered(9)).run is not None
    assert [(job.lane, job.request.plan is None) for job in started] == [(BACKGROUND, True), (CLICKS, False)]


def test_without_workers_whoever_asks_computes() -> None:
    desk = Desk(request)
    asked = desk.ask(NOW, "tab", 0.0, number=2)
    assert isinstance(asked, Outcome) and asked.run is not None and asked is desk.outcome(NOW)
    assert desk.ask(NOW, "tab", 0.0, number=1) is asked  # overtaken, and known all the same
    assert desk.want([NOW, numbered(1)], "tab") == []
    assert desk.glance(numbered(1)) is not None and desk.known(numbered(1)) is not None
    assert desk.jobs() == [] and not desk._running


@pytest.mark.parametrize(
    ("cancelled", "ran", "kept"), [(False, False, True), (False, True, True), (True, False, False), (True, True, True)]
)
def test_what_is_cancelled_is_kept_where_it_ran_all_the_same(
    desk: Desk, submitted: list[Simulation], cancelled: bool, ran: bool, kept: bool
) -> None:
    """As is what was given up, which would end in the same way again."""
    desk.ask(NOW, "tab", 0.0)
    if cancelled:
        desk.cancel(NOW, "tab")
    job = submitted[0]
    job.outcome = compute(request(NOW)) if ran else stopped(request(NOW), "given up", 1.0)
    job.end()
    desk._follow(job)
    assert desk.known(NOW) is (job.outcome if kept else None) and desk.jobs() == []


def test_a_cancelled_search_says_how_long_it_ran(desk: Desk, submitted: list[Simulation]) -> None:
    desk.ask(numbered(1, "hypergraph"), "tab", 0.0)
    submitted[0].asked_s = 95.0
    desk.cancel(numbered(1, "hypergraph"), "tab")
    answer = desk.ask(numbered(1, "hypergraph"), "tab", 0.0)
    assert isinstance(answer, Outcome) and answer.reason == "searching hypergraph was cancelled after 5.00 s"
    assert desk.so_far(numbered(1, "hypergraph")) is answer and desk.so_far(numbered(2)) is None


def test_the_numbers_of_the_tabs_heard_of_last_are_remembered(monkeypatch: pytest.MonkeyPatch, desk: Desk) -> None:
    """A tab whose number is forgotten begins anew."""
    monkeypatch.setattr(desk_module, "_REMEMBERED_REQUESTS", 2)
    for tab, number in (("a", 5), ("b", 5), ("a", 6), ("c", 5)):
        desk.ask(numbered(1), tab, 0.0, number=number)
    answers = {tab: desk.ask(numbered(1), tab, 0.0, number=4) for tab in "acb"}
    assert [type(answers[tab]) for tab in "abc"] == [Outcome, Simulation, Outcome]


def test_the_end_of_a_tab_is_overtaken_by_what_it_shows_or_wants_later(desk: Desk, submitted: list[Simulation]) -> None:
    desk.ask(numbered(1), "shows", 0.0, number=5)
    desk.want([numbered(2)], "wants", number=5)
    for tab in ("shows", "wants"):
        desk.leave(tab, 4)
    assert desk.jobs() == submitted and len(submitted) == 2
    for tab in ("shows", "wants"):
        desk.leave(tab, 5)
    assert desk.jobs() == []


def test_what_was_cancelled_answers_for_itself_alone(desk: Desk, submitted: list[Simulation]) -> None:
    """Not for what is asked beside it, after which it stays cancelled; something else is forgiven."""
    desk.cancel(numbered(1), "tab")
    assert isinstance(desk.ask(numbered(2), "tab", 0.0, beside=numbered(1)), Simulation)
    ended = desk.ask(numbered(1), "tab", 0.0, beside=numbered(2))
    assert isinstance(ended, Outcome) and "was cancelled" in ended.reason
    desk.ask(numbered(3), "tab", 0.0)
    assert isinstance(desk.ask(numbered(1), "tab", 0.0), Simulation)


def test_only_what_a_tab_shows_has_a_best_plan_so_far(desk: Desk, submitted: list[Simulation]) -> None:
    desk.ask(numbered(1), "tab", 0.0)
    desk.want([numbered(2)], "tab")
    for job in submitted:
        job.best = outcome(job.request.configuration.seed)
    assert desk.so_far(numbered(1)) is submitted[0].best and desk.so_far(numbered(2)) is None


def test_a_job_whose_tabs_are_silent_for_longer_than_their_time_is_ended(
    desk: Desk, submitted: list[Simulation], clock: SimpleNamespace
) -> None:
    desk.ask(numbered(1), "tab", 0.0)
    ended, later = list[bool](), iter([GONE_S, 0.1, 0.0])

    def wait(seconds: float) -> bool:
        ended.append(submitted[0].cancelled.is_set())
        clock.now += next(later)
        return len(ended) == 3

    job: Any = SimpleNamespace(
        over=SimpleNamespace(wait=wait), tabs={"tab"}, request=submitted[0].request, cancelled=submitted[0].cancelled,
        outcome=None, glance=None,
    )  # fmt: skip
    desk._follow(job)
    assert ended == [False, False, True] and desk.jobs() == []
