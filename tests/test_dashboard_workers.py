"""When a worker's job is ended, spared, let rest or answered: on a clock and with processes that the tests tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from small_networks import branches

from dashboard.state import workers as workers_module
from dashboard.state.simulating import stopped
from dashboard.state.store import Store
from dashboard.state.worker_process import NotStartedError
from dashboard.state.workers import BACKGROUND, CLICKS, OVER, RUNNING, SEARCHES, Simulation, Workers, _end


class Scripted:
    """A clock, and a process: every look at its pipe takes `step_s`, and finds something from a time on."""

    def __init__(self, step_s: float, *, answers_s: float = 1e9, starts: bool = True) -> None:
        self.now_s, self.step_s, self.answers_s, self.starts = 1.0, step_s, answers_s, starts
        self.pipe, self.alive, self.still, self.killed = self, True, False, False
        self.rests: list[bool] = []
        self.said: Iterator[tuple[str, Any]] = iter(())
        self.sent: list[Any] = []
        self.then: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.now_s

    def poll(self, within_s: float) -> bool:
        assert within_s == 0.02
        self.now_s += self.step_s
        self.then()
        return self.now_s >= self.answers_s

    def started(self, within_s: float) -> bool:
        return self.poll(within_s) and self.starts

    def rest(self, rests: bool) -> bool:
        self.rests.append(rests)
        return rests

    def send(self, request: Any) -> None:
        self.sent.append(request)

    def receive(self) -> tuple[str, Any]:
        return next(self.said)

    def kill(self) -> None:
        self.killed = True


@pytest.fixture
def idle() -> Iterator[Workers]:
    """Without any process."""
    workers = Workers({CLICKS: 0})
    yield workers
    workers.close()


def scripted(monkeypatch: pytest.MonkeyPatch, step_s: float, **more: Any) -> Any:
    process = Scripted(step_s, **more)
    monkeypatch.setattr(workers_module, "time", SimpleNamespace(monotonic=process.monotonic))
    return process


def job(lane: str = SEARCHES) -> Simulation:
    store = Store({"small": branches()})
    return Simulation(store.request(replace(store.default(), profile="small")), lane, asked_s=-4.0, began_s=1.0)


def reason(done: Simulation) -> str:
    assert done.outcome is not None and done.glance is not None and done.glance.reason == done.outcome.reason
    assert done.state == OVER and done.over.is_set() and done.shows.is_set()
    return done.outcome.reason


def test_a_job_is_given_up_once_it_has_run_for_longer_than_its_budget(
    idle: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After 90 s: not yet. What is given up is the answer, though somebody cancelled it too."""
    process, given_up = scripted(monkeypatch, 30.0), job()
    given_up.cancelled.set()
    monkeypatch.setattr(workers_module, "SPARED_S", 1e9)
    assert not idle._patient(given_up, process)
    assert process.now_s == 121.0 and "given up (this page gives a search 90" in reason(given_up)
    assert not given_up.cancelled.is_set()


def test_a_cancelled_job_is_spared_for_a_second_and_then_ended(idle: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    process, cancelled = scripted(monkeypatch, 0.5), job()
    cancelled.cancelled.set()
    assert not idle._patient(cancelled, process)
    assert process.now_s == 2.5 and "was cancelled after 1.5" in reason(cancelled)
    process, answered = scripted(monkeypatch, 0.5, answers_s=2.0), job()
    answered.cancelled.set()
    assert idle._patient(answered, process) and answered.outcome is None


def test_workers_that_close_end_what_runs_at_once(idle: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    process, closed = scripted(monkeypatch, 0.25), job()
    process.then = lambda: setattr(idle, "_closed", process.now_s >= 1.5)
    assert not idle._patient(closed, process)
    assert process.now_s == 1.5 and closed.cancelled.is_set() and "cancelled" in reason(closed)


def test_a_process_that_ends_amid_a_job_is_an_error(idle: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    process = scripted(monkeypatch, 0.25)
    process.alive = False
    with pytest.raises(EOFError):
        idle._patient(job(), process)


@pytest.mark.parametrize("lane", [BACKGROUND, SEARCHES])
def test_what_runs_behind_a_page_rests_while_clicks_are_simulated_and_drawn(
    lane: str, idle: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For 0.8 s after the last of them; what it rests is not its own time."""
    process, behind = scripted(monkeypatch, 0.25, answers_s=3.0), job(lane)
    idle._clicks = 1
    process.then = lambda: (
        process.now_s == 1.5 and (setattr(idle, "_clicks", 0) or setattr(idle, "_clicked_s", process.now_s))
    )
    assert idle._patient(behind, process)
    assert process.rests == ([True] * 5 + [False] * 2 if lane == BACKGROUND else [])
    assert behind.began_s == pytest.approx(1 + 0.02 * 5 if lane == BACKGROUND else 1.0)
    assert idle.budget_s == 90.0 and Workers({CLICKS: 0})._clicked_s == -0.8


def test_what_runs_behind_goes_on_as_soon_as_clicks_are_drawn(idle: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    process, behind = scripted(monkeypatch, 0.8, answers_s=2.5), job(BACKGROUND)
    idle._clicked_s = 1.0
    assert idle._patient(behind, process) and process.rests == [False]


def test_nobody_waits_for_a_process_to_start_for_a_job_that_was_cancelled(
    idle: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, cancelled = scripted(monkeypatch, 0.25, answers_s=9.0), job()
    process.then = lambda: process.now_s == 1.75 and cancelled.cancelled.set()
    assert not idle._started(cancelled, process)
    assert process.now_s == 1.75 and "cancelled" in reason(cancelled)
    process, waiting = scripted(monkeypatch, 0.25, answers_s=1.5), job()
    assert idle._started(waiting, process) and waiting.outcome is None
    process, closed = scripted(monkeypatch, 0.25, answers_s=9.0), job()
    idle._closed = True
    assert not idle._started(closed, process) and "cancelled" in reason(closed)
    idle._closed, process = False, scripted(monkeypatch, 0.25, answers_s=9.0)
    process.alive = False
    with pytest.raises(NotStartedError, match="it ended as it began"):
        idle._started(job(), process)


def test_a_job_hears_how_it_gets_on_and_has_its_own_profile_again(
    idle: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, heard = scripted(monkeypatch, 0.25, answers_s=0.0), job()
    without = replace(stopped(heard.request, "", 0.0), profile=None)  # type: ignore[arg-type]
    process.said = iter([("progress", "12 plans, best 9.4 s, last"), ("best", without), ("done", (without, "figures"))])
    process.now_s = 7.0
    assert idle._run(heard, process)
    assert process.sent == [heard.request] and heard.began_s == 7.0 and heard.progress.startswith("12 plans")
    for outcome in (heard.best, heard.outcome):
        assert outcome is not None and outcome.profile is heard.request.profile
    assert heard.glance == "figures" and heard.over.is_set()
    process, failed = scripted(monkeypatch, 0.25, answers_s=0.0), job()
    process.said = iter([("failed", "ValueError: no")])
    assert not idle._run(failed, process) and "ended by the machine (ValueError: no)" in reason(failed)


@pytest.mark.parametrize(("started", "ran", "kept"), [(True, True, True), (True, False, False), (False, True, True)])
def test_a_process_is_used_again_unless_its_job_ended_it(
    started: bool, ran: bool, kept: bool, idle: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose job was cancelled before it had started goes on starting."""
    process = scripted(monkeypatch, 0.25)
    monkeypatch.setattr(idle, "_started", lambda job, process: started)
    monkeypatch.setattr(idle, "_run", lambda job, process: ran)
    assert (idle._served(job(), process) is process) is kept and process.killed is not kept


def test_jobs_of_a_lane_are_served_in_order_and_clicks_counted(idle: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    process = scripted(monkeypatch, 0.25)
    monkeypatch.setattr(workers_module, "WorkerProcess", lambda context, niceness: (process, None)[niceness])
    served: list[Simulation] = []

    def serve(job: Simulation, process: Any) -> Any:
        served.append(job)
        assert job.state == RUNNING and job.began_s == process.now_s
        process.now_s += 3.0
        return process

    monkeypatch.setattr(idle, "_served", serve)
    jobs = [job(CLICKS), job(CLICKS), job(BACKGROUND)]
    for each in jobs:
        idle.submit(each)
    assert idle._clicks == 2
    jobs[1].cancelled.set()
    offered = iter([*jobs[:2], None])
    taken = [idle._next(CLICKS), idle._next(CLICKS)]
    assert taken == jobs[:2]
    monkeypatch.setattr(idle, "_next", lambda lane: next(offered))
    idle._serve(CLICKS)
    assert served == jobs[:1] and "cancelled" in reason(jobs[1]) and process.killed
    assert jobs[1].cancelled.is_set()  # so that asking again begins anew
    assert (idle._clicks, idle._clicked_s) == (0, 4.0)


def test_two_processes_simulate_clicks_and_one_each_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """On threads that end with their server."""
    served: list[str] = []
    monkeypatch.setattr(Workers, "_serve", lambda self, lane: served.append(lane))
    workers = Workers()
    workers.close()
    assert sorted(served) == [BACKGROUND, CLICKS, CLICKS, SEARCHES] and workers._closed
    assert all(thread.daemon for thread in workers._threads) and Workers({CLICKS: 0})._threads == []


def test_how_long_an_ended_job_ran_is_since_it_began_or_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    process = scripted(monkeypatch, 0.25)
    process.now_s = 7.0
    for began_s, words in ((4.0, "3.0"), (None, "11")):
        ended = replace(job(), began_s=began_s) if began_s else job()
        ended.began_s = began_s
        _end(ended, "cancelled", final=False)
        assert f"cancelled after {words}" in reason(ended)


def test_what_a_job_says_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    process = scripted(monkeypatch, 0.25)
    process.now_s = 13.0
    waiting = job()
    assert waiting.words.endswith(": waiting for its turn")
    waiting.state, waiting.progress = RUNNING, "12 plans, best 9.4 s, last a cut"
    assert waiting.words.endswith(", 12 s, best so far 9.4 s")
    waiting.began_s, waiting.progress = None, ""
    assert waiting.words.endswith(", 17 s")
