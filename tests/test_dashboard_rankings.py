"""How long rankings and sweeps go on, what of them is kept and when they tell of themselves: on clocks of the tests."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from small_networks import branches

from dashboard.state import plans as plans_module
from dashboard.state import sweeps as sweeps_module
from dashboard.state.configuration import Configuration
from dashboard.state.plans import Plans, Ranked, _choices, _follow, _ordered, _RankingJob, asked, rank
from dashboard.state.store import Store
from dashboard.state.sweeps import CANCELLED, DONE, PAUSED, RUNNING, Sweep, Sweeps, _watch
from dashboard.state.worker_process import NotStartedError
from simulator.errors import InputError
from simulator.network.catalogue import read_cluster
from simulator.report.metrics import Report
from simulator.run import step_report

NOW = Configuration(profile="small@0", cluster="cpu-1g", strategy="data", devices=2)


class Clock:
    """Waiting takes so long, and may do something else."""

    def __init__(self, step_s: float) -> None:
        self.now_s, self.step_s, self.waits = 0.0, step_s, 0
        self.then: Callable[[], object] = lambda: None

    def monotonic(self) -> float:
        return self.now_s

    def wait(self, within_s: float) -> bool:
        self.now_s += self.step_s
        self.waits += 1
        self.then()
        return self.waits > 99


def sweep_of(number: int = 1, **fields: Any) -> Sweep:
    points: Any = None
    return Sweep(number=number, swept=("devices",), points=points, **{"seen_s": 0.0, **fields})


def watched(sweep: Sweep, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether its processes were ended."""
    ended: list[bool] = []
    engine: Any = SimpleNamespace(end=lambda: ended.append(True))
    over: Any = clock
    monkeypatch.setattr(sweeps_module, "time", clock)
    _watch(sweep, engine, over)
    return bool(ended)


def test_a_sweep_that_nobody_asks_for_is_paused_after_twenty_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep, clock = sweep_of(), Clock(10.0)
    assert watched(sweep, clock, monkeypatch) and (sweep.left, clock.now_s) == (PAUSED, 30.0)


def test_a_sweep_is_paused_after_a_quarter_of_an_hour_whoever_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep, clock = sweep_of(), Clock(300.0)
    clock.then = lambda: setattr(sweep, "seen_s", clock.now_s)
    assert watched(sweep, clock, monkeypatch) and (sweep.left, clock.now_s) == (PAUSED, 1200.0)


def test_a_cancelled_sweep_ends_at_once_and_stays_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep, clock = sweep_of(), Clock(10.0)
    clock.then = lambda: setattr(sweep, "left", CANCELLED)
    assert watched(sweep, clock, monkeypatch) and (sweep.left, clock.now_s) == (CANCELLED, 10.0)
    late = sweep_of(left=CANCELLED)
    assert watched(late, Clock(1000.0), monkeypatch) and late.left == CANCELLED


def test_a_sweep_that_is_over_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep, clock = sweep_of(), Clock(0.1)
    assert not watched(sweep, clock, monkeypatch) and sweep.left == "" and clock.waits == 100


@pytest.fixture
def sweeps(monkeypatch: pytest.MonkeyPatch) -> Sweeps:
    """Of which none begins."""
    made = Sweeps(Store({"small": branches()}))
    monkeypatch.setattr(made, "_points", lambda base, strategies, values: None)
    monkeypatch.setattr(made, "_begin", lambda sweep: None)
    return made


def test_the_latest_sweeps_are_kept_and_all_that_run(sweeps: Sweeps) -> None:
    """Eight, and those beside them that are not over."""
    first = sweeps.start(NOW, ["data"], {"devices": "1, 2"})
    assert (first, sweeps.get(first).swept) == (1, ("devices",))  # type: ignore[union-attr]
    for _ in range(9):
        number = sweeps.start(NOW, ["data", "owt"], {"devices": "1, 2"})
        done = sweeps.get(number)
        assert done is not None and done.swept == ("strategy", "devices")
        done.state = DONE
    assert sweeps.get(None) is None
    assert [number for number in range(1, 12) if sweeps.get(number)] == [1, 4, 5, 6, 7, 8, 9, 10]
    assert sweeps.start(NOW, ["data"], {"devices": "1, 2"}) == 11
    assert [number for number in range(1, 12) if sweeps.get(number)] == [1, 5, 6, 7, 8, 9, 10, 11]


def test_cancelled_and_paused_sweeps_go_on(sweeps: Sweeps, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    number = sweeps.start(NOW, ["data"], {"devices": "1, 2"})
    monkeypatch.setattr(sweeps, "_begin", lambda sweep: begun.append(sweep.number))
    sweep = sweeps.get(number)
    assert sweep is not None
    sweeps.cancel(number)
    assert sweep.left == CANCELLED
    for state, goes_on in ((RUNNING, False), (DONE, False), (CANCELLED, True), (PAUSED, True)):
        sweep.state, sweep.left, sweep.reason = state, state, "why"
        begun.clear()
        sweeps.resume(number)
        assert begun == [number] * goes_on
        if goes_on:
            assert (sweep.state, sweep.left, sweep.reason) == (RUNNING, "", "")
    sweeps.cancel(99)
    sweeps.resume(99)


def test_a_ranking_is_told_of_every_four_tenths_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, sent = Clock(0.0), list[Any]()
    pipe: Any = SimpleNamespace(send=sent.append)
    request: Any = None

    def ranked(request: object, tell: Callable[[Callable[[], Ranked]], None]) -> Ranked:
        for now_s in (0.375, 0.4, 0.5, 0.875, 1.0, 1.375, 1.5):
            clock.now_s = now_s
            tell(lambda now_s=now_s: Ranked(words=f"{now_s}"))  # type: ignore[misc]
        return Ranked(words="last", over=True)

    monkeypatch.setattr(plans_module, "time", clock)
    monkeypatch.setattr(plans_module, "ranked_plans", ranked)
    assert rank(request, pipe) == ("ranked", Ranked(words="last", over=True))
    assert sent == [("so far", Ranked(words=f"{now_s}")) for now_s in (0.5, 1.0, 1.5)]

    def refused(request: object, tell: object) -> Ranked:
        raise InputError("no such grid")

    monkeypatch.setattr(plans_module, "ranked_plans", refused)
    assert rank(request, pipe) == ("failed", "no such grid")


def test_those_that_run_come_first_by_their_steps_and_fewer_stages_of_zero() -> None:
    rows = [
        {"fits": fits, "step_s": step_s, "zero_stage": stage, "name": name}
        for name, fits, step_s, stage in (
            ("d", False, 0.5, 0),
            ("b", True, 1.0, 3),
            ("a", True, 1.0, 1),
            ("c", True, 2.0, 0),
        )
    ]
    assert [(row["name"], row["number"]) for row in _ordered(rows)] == [("a", 1), ("b", 2), ("c", 3), ("d", 4)]


def test_of_each_strategy_one_is_simulated_at_once_until_time_is_over_but_one_at_least(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each takes 10 s; what has several micro-batches, and a bound far above, waits for the next strategies' first."""
    clock, announced = Clock(0.0), list[Ranked]()
    monkeypatch.setattr(plans_module, "time", clock)

    def slow(*args: Any, **more: Any) -> Report:
        clock.now_s += 10.0
        return step_report(*args, **more)

    monkeypatch.setattr(plans_module, "step_report", slow)
    store = Store({"small": branches()})
    request = store.request(store.resolved(replace(store.default(), profile="small", batch_size=8)))
    cluster = read_cluster("cpu-1g", devices=4)
    ranked = _choices(request, cluster, 65.0, lambda so_far: announced.append(so_far()))
    assert {row["strategy"] for row in ranked.rows} == {"model", "metis", "owt", "spatial", "data"}
    done, of, said = re.match(r"(\d+) of (\d+) plans simulated(.*)", ranked.words).groups()  # type: ignore[union-attr]
    assert ranked.over and (done, said) == ("7", " (time ran out: one of them may be the best)") and of == "36"
    assert [each.words for each in announced[:2]] == ["1 plan simulated so far", "2 plans simulated so far"]
    clock.now_s = 100.0
    assert len(_choices(request, cluster, 25.0, lambda so_far: None).rows) == 1


def test_a_ranking_of_choices_ends_when_nothing_left_is_among_the_best() -> None:
    store = Store({"small": branches()})
    request = store.request(store.resolved(replace(store.default(), profile="small", batch_size=8)))
    ranked = _choices(request, read_cluster("cpu-1g", devices=4), math.inf, lambda so_far: None)
    best = dict[str, float]()
    for row in ranked.rows:
        best.setdefault(row["strategy"], row["step_s"])
    assert ranked.words == "17 of 36 plans simulated; none of the others is faster than 5.42 s"
    assert sorted(best.values())[4] < 5.42 and next(iter(best)) == "hypergraph"


@pytest.mark.parametrize("card", ["", "gpt2"])
def test_a_ranking_has_a_minute_of_the_machine_as_it_was_changed(card: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for: list[Any] = []
    monkeypatch.setattr(plans_module, "time", SimpleNamespace(monotonic=lambda: 7.0))
    for name in ("_grids", "_choices"):
        monkeypatch.setattr(plans_module, name, lambda *asked, name=name: asked_for.append((name, *asked[1:3])))
    store = Store({"small": branches()})
    now = store.resolved(replace(store.default(), profile="small", speed=2.0))
    plans_module.ranked_plans(replace(store.request(now), card=card))
    ((name, cluster, ends_s),) = asked_for
    assert (name, ends_s) == ("_grids" if card else "_choices", 67.0)
    assert {device.speed for device in cluster.devices} == {2.0}


def test_two_configurations_that_differ_in_what_a_ranking_chooses_have_one() -> None:
    changed = replace(
        NOW,
        strategy="pipeline",
        microbatches=4,
        schedule="gpipe",
        zero_stage=2,
        tensor=2,
        pipeline=2,
        chunks=2,
        plan="x",
    )
    assert asked(changed) == asked(NOW) == NOW and asked(replace(NOW, batch_size=8)) != asked(NOW)


def test_the_latest_rankings_are_kept_and_those_without_an_answer_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[_RankingJob] = []
    thread: Any = lambda target, args, daemon: SimpleNamespace(start=lambda: begun.append(args[0]))  # noqa: E731
    monkeypatch.setattr(plans_module, "threading", SimpleNamespace(Thread=thread))
    store = Store({"small": branches()})
    plans, now = Plans.__new__(Plans), store.resolved(replace(store.default(), profile="small"))
    plans._store, plans._jobs, plans._lock = store, {}, __import__("threading").Lock()
    assert plans.ask(now) is plans.ask(replace(now, strategy="pipeline")) and len(begun) == 1
    first = begun[0]
    for ranked, anew in (
        (Ranked(rows=({},)), False),
        (Ranked(rows=({},), over=True), False),
        (Ranked(over=True, failed=True), False),
        (Ranked(over=True), True),
    ):
        first.ranked = ranked
        begun.clear()
        plans.ask(now)
        assert bool(begun) is anew
    for batch_size in range(2, 10):
        plans.ask(replace(now, batch_size=batch_size))
    assert len(plans._jobs) == 8 and begun[0].seen_s == -20.0 and begun[1].seen_s > 0


class Process:
    """In place of a worker process: words at times, and whether it was ended."""

    def __init__(self, clock: Clock, words: Iterator[tuple[str, Any]]) -> None:
        self.clock, self.words, self.pipe, self.killed, self.sent = clock, words, self, False, list[Any]()
        self.looks = 0

    def started(self, within_s: float) -> bool:
        assert within_s == 0.1
        self.looks += 1
        return self.looks > 2

    def send(self, request: Any) -> None:
        self.sent.append(request)

    def poll(self, within_s: float) -> bool:
        assert within_s == 0.1
        self.clock.wait(within_s)
        return self.clock.waits % 2 == 0

    def receive(self) -> tuple[str, Any]:
        return next(self.words)

    def kill(self) -> None:
        self.killed = True


@pytest.mark.parametrize(
    ("step_s", "words", "ranked"),
    [
        (1.0, [("so far", Ranked(words="a")), ("ranked", Ranked(words="b", over=True))], Ranked(words="b", over=True)),
        (1.0, [("failed", "why")], Ranked(words="why", over=True, failed=True)),
        (5.0, [("so far", Ranked(words="a", rows=({},)))] * 3, Ranked(words="a", over=True)),
        (
            1.0,
            [("so far", Ranked(words="a", rows=({},)))],
            Ranked(words="ended by the machine (broken)", rows=({},), over=True, failed=True),
        ),
    ],
)
def test_a_ranking_is_followed_until_it_is_over_or_nobody_asks(
    step_s: float, words: list[tuple[str, Any]], ranked: Ranked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For 20 s; what was ended so has no rows, so that it begins anew, and what broke off keeps them."""
    clock, request = Clock(step_s), SimpleNamespace()
    clock.now_s = 50.0

    def said() -> Iterator[tuple[str, Any]]:
        yield from words
        raise OSError("broken")

    def started(context: object, niceness: int, answer: object) -> Any:
        assert (niceness, answer) == (0, rank)
        return process

    process: Any = Process(clock, said())
    monkeypatch.setattr(plans_module, "time", clock)
    monkeypatch.setattr(plans_module, "WorkerProcess", started)
    job, any_request = _RankingJob(seen_s=50.0), request
    _follow(job, any_request)  # type: ignore[arg-type]
    assert job.ranked == ranked and process.killed and process.sent == [request] and process.looks == 3
    assert clock.now_s - 50.0 == (20.0 if step_s == 5.0 else 2.0 * (len(words) + ("broken" in ranked.words)))


def test_a_ranking_whose_process_does_not_start_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise NotStartedError("no room")

    monkeypatch.setattr(plans_module, "WorkerProcess", refused)
    job, request = _RankingJob(), SimpleNamespace()
    _follow(job, request)  # type: ignore[arg-type]
    assert job.ranked == Ranked(words="ended by the machine (no room)", over=True, failed=True)
