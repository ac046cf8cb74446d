"""When a plan beats another, is searched on, fits into memory, and what judging it costs: by hand."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest
from test_closed_forms import chain, star

from partitioners._judge.judge import Judge, TimeSpent, Verdict, watching
from simulator.plan import Plan, Sharding
from simulator.run import run
from simulator.runtime import Runtime

PROFILE, CLUSTER = chain(4, parameter_bytes=1000), star(4, bandwidth=1e9)


def whole(device: int = 0) -> Plan:
    placements = {f"l{i}": Sharding(devices=(device,)) for i in range(4)}
    return Plan(model="chain", batch_size=48, placements=placements)


def spread() -> Plan:
    """A layer on each device."""
    return replace(whole(), placements={f"l{i}": Sharding(devices=(i,)) for i in range(4)})


def verdict(cost: float, step_s: float = 1.0, excess_bytes: float = 0.0) -> Verdict:
    known: Any = None
    return Verdict(excess_bytes=excess_bytes, cost=cost, step_s=step_s, plan=whole(), graph=known, timeline=known)


@pytest.mark.parametrize(
    ("first", "other", "beats"),
    [
        (verdict(1.0), None, True),
        (verdict(1.0), verdict(1.0), False),
        (verdict(1 - 0.9e-9), verdict(1.0), False),
        (verdict(1 - 1.5e-9), verdict(1.0), True),
        (verdict(1 + 1.5e-9, 0.5), verdict(1.0), False),
        (verdict(1 + 0.9e-9, 0.5), verdict(1.0), True),
        (verdict(1.0, 1 - 0.9e-9), verdict(1.0), False),
        (verdict(1.0, 1 - 1.5e-9), verdict(1.0), True),
        (verdict(9.0, 9.0, 1.0), verdict(1.0, 1.0, 2.0), True),
        (verdict(1.0, 1.0, 2.0), verdict(9.0, 9.0, 1.0), False),
        (verdict(1.0, 1.0, 2.0), verdict(9.0, 9.0, 0.0), False),
        (verdict(1.0, 1.0, 2.0), verdict(9.0, 9.0, 2.0), True),
        (verdict(1e9), verdict(1e9 + 0.9), False),
        (verdict(1e9), verdict(1e9 + 1.5), True),
    ],
)
def test_a_plan_beats_another_by_more_than_rounding(first: Verdict, other: Verdict | None, beats: bool) -> None:
    """First by how much it lacks of memory, then by its cost, then by its step."""
    assert first.beats(other) is beats


def test_plans_a_fifth_slower_than_the_best_are_searched_on() -> None:
    judge = Judge(profile=PROFILE, cluster=CLUSTER)
    assert judge.is_near(1e9)
    judge.best = verdict(10.0)
    assert judge.is_near(12.0) and not judge.is_near(12.001)
    judge.best = verdict(10.0, excess_bytes=1.0)
    assert judge.is_near(1e9)  # none fits yet


@pytest.mark.parametrize("objective", ["step", "volume"])
def test_a_plan_is_simulated_for_as_many_tasks_as_it_has(objective: str) -> None:
    """Its cost is its step, or the bytes that cross between devices."""
    judge = Judge(profile=PROFILE, cluster=CLUSTER, objective=objective, budget=1000.0)
    seen = judge.consider(spread(), "a plan")
    report = run(PROFILE, CLUSTER, spread()).report
    assert (judge.budget, judge.trials) == (1000.0 - len(seen.graph), 1) and judge.best is seen
    assert seen.step_s == report.step_s
    assert seen.cost == (report.step_s if objective == "step" else report.communication_bytes.total)
    worse = judge.consider(spread(), "again")
    assert judge.best is seen and judge.trials == 2 and not worse.beats(seen)


def test_who_watches_is_told_of_every_plan_and_progress_of_the_best() -> None:
    heard, said = list[tuple[float, str, bool]](), list[str]()
    judge = Judge(profile=PROFILE, cluster=CLUSTER, progress=said.append)
    before = watching.set(lambda seen, label, best: heard.append((seen.step_s, label, best)))
    try:
        first, second = judge.consider(spread(), "apart"), judge.consider(whole(), "whole")
    finally:
        watching.reset(before)
    is_better = second.beats(first)
    assert heard == [(first.step_s, "apart", True), (second.step_s, "whole", is_better)]
    assert [text.split(",")[0] for text in said] == ["1 plans", "2 plans"] and said[1].endswith("last whole")


def test_time_that_is_spent_leaves_no_budget_and_is_not_given_back() -> None:
    asked: list[str] = []

    def progress(text: str) -> None:
        asked.append(text)
        if len(asked) == 2:
            raise TimeSpent

    judge = Judge(profile=PROFILE, cluster=CLUSTER, progress=progress)
    judge.grant(50.0)
    assert judge.budget == 50.0
    for _ in range(3):
        judge.consider(spread())
    assert judge.spent and len(asked) == 2 and judge.budget <= 0
    judge.grant(inf)
    assert judge.budget == 0.0


def test_what_lacks_of_memory_is_that_of_the_worst_device() -> None:
    report = run(PROFILE, CLUSTER, spread()).report
    peaks = [device.peak_memory_bytes for device in report.devices]
    sizes = [peaks[0] - 100, peaks[1] - 300, None, peaks[3] + 50]
    devices = tuple(replace(d, memory_bytes=size and int(size)) for d, size in zip(CLUSTER.devices, sizes, strict=True))
    judge = Judge(profile=PROFILE, cluster=replace(CLUSTER, devices=devices))
    assert judge.consider(spread()).excess_bytes == pytest.approx(300.0, abs=1.0)
    assert judge.excess_bytes(spread()) == pytest.approx(300.0, abs=1.0) and judge.trials == 2
    roomy = Judge(profile=PROFILE, cluster=CLUSTER)
    assert roomy.excess_bytes(spread()) == 0.0 and roomy.trials == 0  # which is sure without simulating it


def test_a_judge_simulates_as_its_runtime_runs() -> None:
    slow = Judge(profile=PROFILE, cluster=CLUSTER, runtime=Runtime(task_overhead_s=1.0)).consider(whole())
    assert slow.step_s > Judge(profile=PROFILE, cluster=CLUSTER).consider(whole()).step_s + 8
