"""What a local search looks at, in which order, what it keeps of that, and what looking costs: by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import laws
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_inputs import clusters, plans, profiles
from test_closed_forms import chain, star

from partitioners._judge.judge import Judge
from partitioners._search.judged_plan import Judged, LocalChange
from partitioners._search.loads import LoadTables
from partitioners._search.local_search import LocalSearch
from partitioners._search.promises import promises_s
from partitioners._search.window_bounds import NONE, Library, Window, window_of
from simulator.cluster import Cluster
from simulator.plan import Plan, Sharding
from simulator.runtime import IDEAL
from simulator.taskgraph import Floats
from simulator.workload import Geometry, Profile

Change = tuple[dict[int, int], float]


def whole(device: int = 0, microbatches: int = 1) -> Plan:
    """Four layers on one device."""
    placements = {f"l{i}": Sharding(devices=(device,)) for i in range(4)}
    return Plan(model="chain", batch_size=48, microbatches=microbatches, placements=placements)


def searching(workers: int = 4, microbatches: bool = True) -> tuple[Judge, LocalSearch]:
    """Of layers that read all channels, so that each is a group of its own."""
    layers = tuple(replace(layer, geometry=Geometry(mixes_channels=True)) for layer in chain(4).layers)
    judge = Judge(profile=replace(chain(4), layers=layers), cluster=star(workers, bandwidth=1e9))
    return judge, LocalSearch(judge, microbatches)


@pytest.mark.parametrize(("workers", "lookup"), [(4, 150), (16, 150), (32, 1200)])
def test_looking_costs_what_simulating_so_many_tasks_takes(workers: int, lookup: int) -> None:
    """2 tasks for each of the four layers of a promise, 20 of a window, 150 for what was not known, 8 times that on
    twice 16 devices."""
    judge, search = searching(workers, microbatches=False)
    (start,) = search.judged(judge.consider(whole()))
    judge.budget = 0.0
    search._promises_s(start.loads, [1])
    assert judge.budget == -2 * 4
    other = search._tables.of(whole(3))
    known, judge.budget = search._tables.lookups, 0.0
    library = search._library(other)
    assert search._tables.lookups > known and judge.budget == -lookup * (search._tables.lookups - known)
    judge.budget = 0.0
    search._library(start.loads)
    assert judge.budget == 0.0
    known, promises = search._tables.lookups, list[int]()
    promised = search._promises_s
    search._promises_s = lambda *asked: promises.append(1) or promised(*asked)  # type: ignore[method-assign, func-returns-value]
    search._best_of(library, start.loads, 1, search._window(1, 3), 1e9, 6, [1])
    assert judge.budget == -20 * 4 - 2 * 4 * len(promises) - lookup * (search._tables.lookups - known)


class Bounds:
    """In place of a library: these changes, and how many were asked for."""

    def __init__(self, changes: Sequence[Change]) -> None:
        self.changes, self.asked = changes, 0

    def bounds_s(
        self, here: object, window: object, counts: object, excess: Floats, limit_s: float
    ) -> Iterator[Change]:
        for change in self.changes:
            self.asked += 1
            yield change


def kept_of(
    promised_s: Sequence[dict[int, float]],
    bounds_s: Sequence[float],
    kept: int,
    monkeypatch: pytest.MonkeyPatch,
    limit_s: float = 100.0,
) -> tuple[list[tuple[int, int, float]], int]:
    """(change, micro-batches, promise) of what is kept, of changes that promise this with each number of micro-batches;
    steps of two micro-batches take three times their promise. And how many were looked at."""
    _, search = searching()
    search._excess = {1: 1.0, 2: 3.0}
    library: Any = Bounds([({0: number}, bound_s) for number, bound_s in enumerate(bounds_s)])
    monkeypatch.setattr(search._tables, "after", lambda here, numbers: numbers[0])
    monkeypatch.setattr(search, "_counts", lambda after, asked: sorted(promised_s[after]))
    monkeypatch.setattr(search, "_promises_s", lambda after, counts: [promised_s[after][count] for count in counts])
    here: Any = None
    changes = search._best_of(library, here, 2, search._window(0, 1), limit_s, kept, [1, 2])
    return [(change.numbers[0], change.microbatches, change.promise_s) for change in changes], library.asked


def test_of_a_window_those_that_likely_take_least_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the micro-batches that take least, and with those of before where several are kept."""
    promised_s = [{1: 9.0, 2: 2.0}, {1: 4.0, 2: 2.0}, {1: 200.0, 2: 1.5}, {}, {1: 101.0, 2: 40.0}]
    kept, _ = kept_of(promised_s, [0.0] * 5, 6, monkeypatch)
    assert kept == [(1, 1, 4.0), (2, 2, 1.5), (0, 2, 2.0), (1, 2, 2.0)]
    assert kept_of(promised_s, [0.0] * 5, 3, monkeypatch)[0] == kept[:3]
    assert kept_of(promised_s, [0.0] * 5, 1, monkeypatch)[0] == kept[:1]
    assert kept_of(promised_s[:1], [0.0], 1, monkeypatch)[0] == [(0, 2, 2.0)]
    assert kept_of(promised_s, [0.0] * 5, 6, monkeypatch, limit_s=4.6)[0] == [(1, 1, 4.0), (2, 2, 1.5)]
    assert kept_of(promised_s, [0.0] * 5, 6, monkeypatch, limit_s=4.0)[0] == []


def test_of_a_window_twelve_promises_are_worked_out_and_none_of_a_bound_above_what_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept, looked_at = kept_of([{1: 50.0 - number} for number in range(20)], [0.0] * 20, 6, monkeypatch)
    assert [number for number, _, _ in kept] == [11, 10, 9, 8, 7, 6] and looked_at == 13
    kept, looked_at = kept_of([{1: 5.0}, {1: 6.0}, {1: 1.0}], [1.0, 2.0, 6.0], 2, monkeypatch)
    assert [number for number, _, _ in kept] == [0, 1] and looked_at == 3
    kept, looked_at = kept_of([{1: 5.0}, {1: 6.0}, {1: 1.0}], [1.0, 2.0, 5.9], 2, monkeypatch)
    assert [number for number, _, _ in kept] == [2, 0] and looked_at == 3


def looked_at(search: LocalSearch, each: int, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Window, float, int]]:
    """Windows, limits and how many are kept; every window has so many changes that promise 1 s, 2 s and so on, less a
    millionth for each window before, and takes 10 tasks."""
    asked: list[tuple[Window, float, int]] = []

    def best(_: object, here: object, count: int, window: Window, limit_s: float, kept: int, counts: object) -> Any:
        asked.append((window, limit_s, kept))
        search._judge.budget -= 10
        return [LocalChange(1.0 + k - 1e-6 * len(asked), {len(asked): k}, 1) for k in range(each)]

    monkeypatch.setattr(search, "_best_of", best)
    return asked


def test_runs_placed_alike_come_first_then_the_shortest_windows_of_those_that_send_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judge, search = searching()
    (start, *_) = search.judged(judge.consider(whole()))
    judge.budget = 1e6
    monkeypatch.setattr(search._tables, "sent_s", lambda loads: [1.0, 3.0, 4.0, 2.0])
    asked = looked_at(search, 1, monkeypatch)
    search._promising_changes(start, 0.0)
    assert [window.layers for window, _, _ in asked] == [
        (0, 1, 2, 3), (2,), (1,), (3,), (0,), (1, 2), (2, 3), (0, 1), (1, 2, 3), (0, 1, 2),
    ]  # fmt: skip
    assert {kept for _, _, kept in asked} == {6}
    assert [limit_s for _, limit_s, _ in asked] == pytest.approx([1.06 * start.verdict.step_s] * 10)


def test_changes_of_all_windows_are_kept_up_to_ninety_six_which_lower_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of ten windows has twelve; after nine of them only what takes less than the 96th is asked for."""
    judge, search = searching()
    (start, *_) = search.judged(judge.consider(whole()))
    judge.budget = 1e6
    search._excess = {1: 2.0}
    asked = looked_at(search, 12, monkeypatch)
    kept = search._promising_changes(start, 0.0)
    first_s = 1.06 * start.verdict.step_s
    limits_s = [limit_s for _, limit_s, _ in asked]
    assert limits_s[:9] == pytest.approx([first_s] * 9) and len(kept) == 96
    promised = sorted(1.0 + k - 1e-6 * number for number in range(1, 10) for k in range(12))
    assert limits_s[9] == pytest.approx(2.0 * promised[95], abs=1e-9)
    assert sorted(change.promise_s for change in kept) == pytest.approx(
        sorted([*promised[:96], *(1.0 + k - 1e-5 for k in range(12))])[:96], abs=1e-9
    )


@pytest.mark.parametrize(
    ("budget", "least", "windows"), [(30.0, 0.0, 3), (29.9, 0.0, 3), (28.0, 0.0, 2), (60.0, 30.0, 3)]
)
def test_looking_for_changes_may_take_seven_tenths_of_the_budget(
    budget: float, least: float, windows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is above the least, at 10 tasks a window."""
    judge, search = searching()
    (start, *_) = search.judged(judge.consider(whole()))
    asked = looked_at(search, 1, monkeypatch)
    monkeypatch.setattr(search, "_library", lambda here: None)
    judge.budget = budget
    search._promising_changes(start, least)
    assert len(asked) == windows


@pytest.mark.parametrize("free", [False, True])
def test_a_descent_takes_from_window_after_window_what_promises_a_thousandth_less(
    free: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every window once, each change taken at once, and all again while one gained; with half of the budget for it."""
    judge, search = searching()
    start = search.judged(judge.consider(whole(microbatches=2)))[0]
    judge.budget, asked = 1e6, list[tuple[tuple[int, ...], float, int, list[int]]]()
    gains, lately = iter([(3, 8.0, 1), (5, 6.0, 2)]), list[tuple[int, float, int]]()
    monkeypatch.setattr(search, "_simulated_on", lambda way, start, least: way)
    search._known_counts = {1, 2, 4}

    def best(_: object, here: Any, count: int, window: Window, limit_s: float, kept: int, counts: Any) -> Any:
        assert kept == 1
        asked.append((window.layers, limit_s, count, list(counts)))
        if not lately:
            lately.extend([gain] if (gain := next(gains, None)) else [])
        if lately and lately[0][0] == len(asked):
            _, promise_s, count = lately.pop()
            return [LocalChange(promise_s, {0: search._tables.number(Sharding(devices=(count,)))}, count)]
        return []

    start = replace(start, excess={1: 1.0, 2: 3.0})
    monkeypatch.setattr(search, "_best_of", best)
    way: Any = search.descend(start, 0.0, free=free)
    assert [change.microbatches for _, change in way] == [1, 2]
    windows = [window.layers for window in search._windows]
    assert [layers for layers, _, _, _ in asked[: len(windows)]] == windows
    runs = [layers for layers, _, _, _ in asked[len(windows) : -len(windows)]]
    assert (0, 1, 2, 3) in runs
    step_s = start.verdict.step_s
    limits_s = [step_s * 0.999] * 3 + [8.0 * 0.999] * 2 + [18.0 * 0.999] * (len(asked) - 5)
    assert [limit_s for _, limit_s, _, _ in asked] == pytest.approx(limits_s)
    assert [count for _, _, count, _ in asked] == [2] * 3 + [1] * 2 + [2] * (len(asked) - 5)
    assert {tuple(counts) for _, _, _, counts in asked} == {(1, 2, 4) if free else (2,)}
    asked.clear()
    monkeypatch.setattr(search, "_library", lambda here: setattr(judge, "budget", 65.0))
    judge.budget = 100.0
    search._best_of = lambda *_: setattr(judge, "budget", judge.budget - 3.0) or asked.append(_) or []  # type: ignore
    search.descend(start, 20.0, free=free)
    assert len(asked) == 2  # 65 and 62 are above (100 + 20) / 2, 59 is not


def test_a_change_that_likely_takes_more_than_six_hundredths_longer_is_not_simulated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judge, search = searching(microbatches=False)
    (start,) = search.judged(judge.consider(whole()))
    own_s = search._promises_s(start.loads, [1])[0]
    (number,) = {search._tables.number(Sharding(devices=(1,)))}
    for more, simulated in ((1.059, 1), (1.061, 0)):
        search._seen.clear()
        judge.budget, trials = 1e6, judge.trials
        offered = iter([[LocalChange(0.0, {0: number, 1: number}, 1)]])
        monkeypatch.setattr(search, "_promising_changes", lambda *_, offered=offered: next(offered, []))
        monkeypatch.setattr(search, "_promises_s", lambda loads, counts, more=more: [
            own_s * (1.0 if loads is start.loads else more)
        ])  # fmt: skip
        search.refine(start, 3, 0.0)
        assert judge.trials - trials == simulated


def test_numbers_of_micro_batches_that_are_known() -> None:
    """Powers of two times and parts of those of plans from elsewhere, up to 128."""
    judge, search = searching()
    assert isinstance(search.judged(judge.consider(whole(microbatches=12)))[0], Judged)
    assert search._known_counts == {12 * 2**k for k in range(8)} | {6, 3}
    assert search._counts(search._tables.of(whole()), search._known_counts) == [3, 6, 12, 24, 48]
    assert np.isclose(search._excess_of(5), search._excess[6])


def test_layers_that_cannot_be_placed_ask_for_nothing() -> None:
    """Nor do messages to them, of which nobody knows how they are cut."""
    _, search = searching(microbatches=False)
    tables, plan = search._tables, whole()
    sharding = tables.number(Sharding(devices=(1,)))
    tables.number(Sharding(devices=(2,)))
    known = tables.lookups
    columns = Library(tables, plan, range(4))._columns_of((sharding, NONE, sharding, sharding))
    assert tables.lookups - known == 3 + 2  # passes of three layers, messages of the last two
    assert [bool(seconds.any()) for seconds in columns.passes_s] == [True, False, True, True]
    assert not columns.links_s.any() and columns.alone_s[1] == 0.0 and not columns.sending_s.any()


@settings(max_examples=laws.examples(30, 150), deadline=None)
@given(profiles(), clusters(), st.data())
def test_without_sums_and_latency_the_bound_of_a_window_is_what_it_promises(
    profile: Profile, cluster: Cluster, data: st.DataObject
) -> None:
    """For every number of micro-batches, whatever the window: nothing of a change is left out."""
    layers = tuple(replace(layer, parameter_bytes=0, scaling=()) for layer in profile.layers)
    profile = replace(profile, layers=layers)
    cluster = replace(cluster, links=tuple(replace(link, latency_s=0.0) for link in cluster.links))
    plan, other = (data.draw(plans(profile, cluster)) for _ in range(2))
    other = replace(other, batch_size=plan.batch_size, microbatches=plan.microbatches)
    tables = LoadTables(profile, cluster, IDEAL)
    try:
        here, numbers = tables.of(plan), tables.of(other).numbers
    except ValueError:  # the other's cuts are finer than the batch of this one
        return
    order, counts = list(range(len(numbers))), [plan.microbatches, 2 * plan.microbatches]
    library = Library(tables, plan, order)
    library.add(tuple(numbers))
    first = data.draw(st.integers(0, len(order) - 1))
    window = window_of(tables.inputs, order, first, data.draw(st.integers(first + 1, len(order))))
    for change, bound_s in library.bounds_s(here, window, counts, np.array([1.0, 1.25]), np.inf):
        promised_s = promises_s(tables, tables.after(here, change), counts) * [1.0, 1.25]
        assert bound_s == pytest.approx(promised_s.min(), rel=1e-9)
