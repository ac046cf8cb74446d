"""Who waits for what: worker processes that can be ended, the latest request of a tab, closed tabs, time budgets."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection

import pytest
from small_networks import branches

from dashboard.app import create_app, listen
from dashboard.frame.controls import CONTROLS
from dashboard.frame.panels import as_html
from dashboard.frame.remarks import remarks
from dashboard.pages._explore_step import opened
from dashboard.pages._explore_words import chips
from dashboard.state import desk as desk_module
from dashboard.state import simulating, worker_process
from dashboard.state import workers as workers_module
from dashboard.state.alternatives import alternatives
from dashboard.state.configuration import Configuration
from dashboard.state.simulating import Outcome, compute, stopped
from dashboard.state.store import Store
from dashboard.state.workers import BACKGROUND, CLICKS, RUNNING, Simulation, Workers
from simulator.files import library, read_profile

pytestmark = pytest.mark.skipif("vgg16_v100" not in library(), reason="the library has no profile vgg16_v100")


PATIENT_S = 600.0
"""As long as anything that surely comes may take, on a machine that others keep busy."""


@pytest.fixture(autouse=True, scope="module")
def _no_tab_is_gone() -> Iterator[None]:
    """A tab here asks once: it is not taken to be closed while a busy machine starts a process for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(desk_module, "GONE_S", PATIENT_S)
        yield


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    """With workers that give way to nobody and are given up by nobody, however busy the machine."""
    with pytest.MonkeyPatch.context() as patch:
        for lane in workers_module._NICENESS:
            patch.setitem(workers_module._NICENESS, lane, 0)
        store = Store({"vgg16_v100": read_profile("vgg16_v100"), "small": branches()})
        workers = Workers(budget_s=PATIENT_S)
        store.desk.workers = workers
        yield store
        store.desk.workers = None
        workers.close()


def quick(store: Store, **changes: object) -> Configuration:
    changed = replace(store.default(), profile="small", strategy="data", devices=2, **changes)  # type: ignore[arg-type]
    return store.resolved(changed)


def slow(store: Store, seed: int) -> Configuration:
    """A search of half a minute and more."""
    return store.resolved(replace(store.default(), strategy="hypergraph", effort=1.0, batch_size=512, seed=seed))


def soon(condition: Callable[[], bool], within_s: float = PATIENT_S) -> bool:
    end = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def is_broken_off(job: Simulation) -> bool:
    """Whether a search ends, and not because it is through."""
    return job.over.wait(PATIENT_S) and job.outcome is not None and "was cancelled" in job.outcome.reason


def running(store: Store) -> list[Configuration]:
    return [job.request.configuration for job in store.desk.jobs()]


def test_what_is_quick_is_answered_at_once_and_equals_what_is_computed_here(store: Store) -> None:
    outcome = store.desk.ask(quick(store), "a", PATIENT_S)
    assert isinstance(outcome, Outcome) and outcome.run is not None
    here = Store({"small": branches()}).outcome(outcome.configuration)
    assert here.run is not None and here.run.report.step_s == outcome.run.report.step_s
    assert store.desk.ask(quick(store), "b", 0.0) is outcome


def test_a_search_says_how_it_gets_on_and_blocks_nobody(store: Store) -> None:
    job = store.desk.ask(slow(store, 1), "a", 0.1)
    assert isinstance(job, Simulation) and job.words.startswith("searching a hypergraph plan")
    assert soon(lambda: "best so far" in job.words)
    assert isinstance(store.desk.ask(quick(store, seed=7), "b", PATIENT_S), Outcome)
    assert job.state == RUNNING
    store.desk.leave("a")
    assert is_broken_off(job)


def test_the_latest_request_of_a_tab_wins(store: Store) -> None:
    first = store.desk.ask(slow(store, 2), "a", 0.0)
    second = store.desk.ask(slow(store, 3), "a", 0.0)
    assert isinstance(first, Simulation) and isinstance(second, Simulation)
    assert is_broken_off(first) and slow(store, 2) not in running(store)
    shared = store.desk.ask(slow(store, 3), "b", 0.0)
    assert shared is second  # one search serves both
    store.desk.leave("a")
    assert not second.cancelled.is_set()
    store.desk.leave("b")
    assert second.cancelled.is_set()


def test_cancelling_is_an_answer_until_something_else_is_asked(store: Store) -> None:
    assert isinstance(store.desk.ask(slow(store, 4), "a", 0.2), Simulation)
    store.desk.cancel(slow(store, 4), "a")
    answer = store.desk.ask(slow(store, 4), "a", 0.0)
    assert isinstance(answer, Outcome) and "cancelled" in answer.reason + answer.note
    assert isinstance(store.desk.ask(quick(store), "a", PATIENT_S), Outcome)
    again = store.desk.ask(slow(store, 4), "a", 0.0)
    assert isinstance(again, Simulation)
    store.desk.leave("a")


def test_cancelling_names_the_search_whatever_else_the_tab_waits_for(store: Store) -> None:
    baseline, shown = slow(store, 13), slow(store, 14)
    assert isinstance(store.desk.ask(baseline, "a", 0.0, beside=shown), Simulation)
    assert isinstance(store.desk.ask(shown, "a", 0.0, beside=baseline), Simulation)
    store.desk.cancel(shown, "a")
    answer = store.desk.ask(shown, "a", 0.0, beside=baseline)
    assert isinstance(answer, Outcome) and answer.configuration == shown and "cancelled" in answer.reason
    store.desk.leave("a")


def test_what_is_wanted_behind_a_search_does_not_overtake_its_end(store: Store) -> None:
    job = store.desk.ask(slow(store, 16), "a", 0.0, number=1)
    store.desk.want([], "a", 3)
    store.desk.cancel(slow(store, 16), "a", 2)
    assert isinstance(job, Simulation) and is_broken_off(job)
    store.desk.leave("a")


def test_a_search_that_is_cancelled_before_it_is_asked_for_does_not_begin(store: Store) -> None:
    before = running(store)
    store.desk.cancel(slow(store, 15), "a", 2)
    overtaken, later = (store.desk.ask(slow(store, 15), "a", 0.0, number=number) for number in (1, 3))
    assert isinstance(overtaken, Outcome) and overtaken.run is None
    assert isinstance(later, Outcome) and later.reason == "searching hypergraph was cancelled after 0 s"
    assert running(store) == before
    store.desk.leave("a")


def test_whoever_waits_for_a_search_gets_its_first_plan_as_soon_as_there_is_one(store: Store) -> None:
    job = store.desk.ask(slow(store, 9), "a", PATIENT_S)
    assert isinstance(job, Simulation) and job.best is not None and job.state == RUNNING
    store.desk.leave("a")


def test_a_search_shows_what_its_best_plan_so_far_comes_to(store: Store) -> None:
    job = store.desk.ask(slow(store, 8), "a", 0.0)
    assert isinstance(job, Simulation) and soon(lambda: job.best is not None)
    seen = store.at_hand(slow(store, 8))
    assert seen.run is not None and seen.candidates and f"best of {len(seen.candidates)} plans so far" in seen.note
    assert seen.run.report.step_s == pytest.approx(min(tried.step_s for tried in seen.candidates))
    assert store.desk.known(slow(store, 8)) is None and store.desk.glance(slow(store, 8)) is None
    store.desk.cancel(slow(store, 8), "a")
    kept = store.desk.ask(slow(store, 8), "a", 0.0)
    assert isinstance(kept, Outcome) and kept.run is not None and "cancelled: this is the best of" in kept.note
    assert store.at_hand(slow(store, 8)) is kept
    others = store.desk.ask(slow(store, 8), "b", 0.0)
    assert isinstance(others, Simulation)  # who has not cancelled it has it searched
    store.desk.leave("a")
    store.desk.leave("b")
    assert store.at_hand(slow(store, 8)).run is None


def test_a_tab_that_is_not_heard_of_is_closed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk_module, "GONE_S", 0.5)
    job = store.desk.ask(slow(store, 5), "a", 0.0)
    assert isinstance(job, Simulation) and is_broken_off(job)


def test_a_request_that_its_tab_has_overtaken_starts_nothing(store: Store) -> None:
    desk, before = store.desk, running(store)
    desk.leave("b", 3)
    late = desk.ask(slow(store, 11), "b", 0.0, number=2)
    assert isinstance(late, Outcome) and late.run is None
    wanted = [slow(store, 11), slow(store, 12)]
    assert desk.want(wanted, "b", 1) == wanted and running(store) == before
    job = desk.ask(slow(store, 11), "b", 0.0, number=4)  # the page is shown again
    assert isinstance(job, Simulation)
    desk.leave("b", 3)
    desk.cancel(slow(store, 11), "b", 2)
    older = desk.ask(slow(store, 12), "b", 0.0, number=3)
    assert isinstance(older, Outcome) and running(store) == [*before, slow(store, 11)] and not job.cancelled.is_set()
    desk.leave("b", 5)
    assert is_broken_off(job) and running(store) == before


def test_a_tab_that_ends_while_it_asks_leaves_no_search(store: Store) -> None:
    """Whatever the order in which its requests and its end are handled."""
    before = running(store)
    for seed in range(20, 40):
        ask, tab = partial(store.desk.ask, slow(store, seed)), f"tab {seed}"
        sent: list[Callable[[], object]] = [partial(ask, tab, 0.0, number=number) for number in range(4)]
        sent.append(partial(store.desk.leave, tab, 4))
        random.Random(seed).shuffle(sent)
        with ThreadPoolExecutor(len(sent)) as threads:
            for each in sent:
                threads.submit(each)
        assert running(store) == before


def test_a_connection_that_is_closed_ends_the_search(store: Store) -> None:
    values = [control.shown(getattr(slow(store, 13), control.field)) for control in CONTROLS]
    body = json.dumps({"values": values, "base": None, "tab": "wire", "number": 1}).encode()
    server = listen(create_app(store), "127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with socket.create_connection(("127.0.0.1", server.server_port)) as wire:
            head = "POST /panel/step HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            wire.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            assert soon(lambda: slow(store, 13) in running(store))
            (job,) = [each for each in store.desk.jobs() if each.request.configuration == slow(store, 13)]
        assert is_broken_off(job)
    finally:
        server.shutdown()
        server.server_close()


def test_a_link_is_simulated_while_its_document_is_read(store: Store) -> None:
    """The tab takes it over as its page is made, and ends it alone."""
    app, now = create_app(store), slow(store, 21)
    assert app.server.test_client().get(f"/?{now.query()}").status_code == 200
    assert soon(lambda: now in running(store))
    (job,) = [each for each in store.desk.jobs() if each.request.configuration == now]
    assert opened(store, "page", now, None) == {} and soon(lambda: job.tabs == {"page"})
    store.desk.leave("page")
    assert is_broken_off(job)


def test_strategies_are_simulated_behind_the_page(store: Store) -> None:
    now = quick(store, effort=0.02)
    options = alternatives(now, store.profiles.get(now.profile))
    assert [option.strategy for option in options][:2] == ["data", "owt"]
    assert soon(lambda: not store.desk.want(options, "a"))
    glances = [store.desk.glance(option) for option in options]
    assert all(glance is not None and glance.ran for glance in glances)
    for option, glance in zip(options, glances, strict=True):
        run = store.outcome(option).run
        assert run is not None and glance is not None and run.report.step_s == glance.step_s


def test_a_search_over_its_time_is_given_up_and_stays_so(store: Store) -> None:
    workers, hurried = Workers(budget_s=0.4), Store({"vgg16_v100": read_profile("vgg16_v100")})
    hurried.desk.workers = workers
    try:
        outcome = hurried.outcome(slow(hurried, 6))
        assert outcome.run is None and "given up" in outcome.reason
        assert hurried.desk.ask(slow(hurried, 6), "a", 0.0) is outcome
    finally:
        workers.close()


def test_a_search_that_has_had_its_time_gives_its_best_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store({"vgg16_v100": read_profile("vgg16_v100")})
    now = replace(store.default(), strategy="hypergraph", devices=4)
    whole = compute(store.request(store.resolved(now)))
    monkeypatch.setattr(simulating, "SEARCH_S", 0.0)
    hurried = compute(store.request(store.resolved(now)))
    assert whole.run is not None and hurried.run is not None and not whole.note
    assert len(hurried.candidates) == 1 and "best of 1 plans" in hurried.note
    assert hurried.run.report.step_s == pytest.approx(hurried.candidates[0].step_s)
    assert hurried.run.report.step_s >= whole.run.report.step_s
    assert hurried.run.plan.strategy.startswith("hypergraph") and "best of 1" in as_html(chips(hurried, None))


def test_a_search_without_an_answer_leaves_the_links_in_place() -> None:
    store = Store({"vgg16_v100": read_profile("vgg16_v100")})
    request = store.request(store.resolved(replace(store.default(), inter_bandwidth=2.0)))
    ended = stopped(request, "given up", 90.0)
    assert ended.usual is not None and ended.cluster is not None
    link = next(link for link in ended.cluster.links if link.tier == "inter")
    usual = next(link for link in ended.usual.links if link.tier == "inter")
    assert link.bandwidth_bytes_per_s == 2 * usual.bandwidth_bytes_per_s
    assert not remarks(ended)["inter_bandwidth"].disabled


def _talks_at_length(pipe: Connection, niceness: int, answer: object) -> None:
    """A worker's life with one answer that no pipe holds."""
    pipe.send(("ready", None))
    pipe.recv()
    pipe.send(("failed", "x" * 20_000_000))


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="processes cannot be stopped here")
def test_a_process_that_was_stopped_amid_its_answer_ends_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "_work", _talks_at_length)
    process = worker_process.WorkerProcess(multiprocessing.get_context("spawn"), 0)
    job = Simulation(store.request(quick(store)), BACKGROUND, began_s=time.monotonic())
    assert process.started(PATIENT_S)
    process.send(job.request)
    assert process.pipe.poll(PATIENT_S)  # the answer has begun, and there is no room for the rest
    assert process.rest(True)
    workers = Workers({BACKGROUND: 0})
    threading.Thread(target=workers._run, args=(job, process), daemon=True).start()
    assert job.over.wait(PATIENT_S), "nobody lets it go on"
    assert job.outcome is not None and "ended by the machine" in job.outcome.reason
    process.kill()


class _Refusing:
    """A context of multiprocessing on a machine that has no room for another process, until `room` says so.

    instead: what a process does in place of its work.
    """

    def __init__(self, instead: dict[str, object]) -> None:
        self.usual, self.room, self.refused = multiprocessing.get_context("spawn"), bool(instead), 0
        self.instead = instead

    def Pipe(self) -> tuple[Connection, Connection]:
        return self.usual.Pipe()

    def Process(self, **arguments: object) -> object:
        if self.room:
            return self.usual.Process(**arguments | self.instead)  # type: ignore[arg-type]
        self.refused += 1
        raise BlockingIOError(errno.EAGAIN, "no room for another process")


@pytest.mark.parametrize("why", ["no room for another process", "it ended as it began"])
def test_where_no_process_starts_a_sentence_is_the_answer_and_the_next_request_tries_again(
    monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    ends_at_once = {"target": os._exit, "args": (3,)}  # before its first word
    context = _Refusing(ends_at_once if why == "it ended as it began" else {})
    monkeypatch.setattr(workers_module, "process_context", lambda: context)
    store = Store({"small": branches()})
    workers = Workers({CLICKS: 1})
    store.desk.workers = workers
    for seed in (1, 1, 2):
        answer = store.desk.ask(quick(store, seed=seed), "a", PATIENT_S)
        assert isinstance(answer, Outcome) and answer.run is None
        assert "no worker process starts here: " in answer.reason and why in answer.reason
    assert store.desk.jobs() == [] and (context.room or context.refused == 4)  # the lane's start, and each request
    context.room, context.instead = True, {}
    try:
        answer = store.desk.ask(quick(store, seed=1), "a", PATIENT_S)
        assert isinstance(answer, Outcome) and answer.run is not None
    finally:
        store.desk.workers = None
        workers.close()
