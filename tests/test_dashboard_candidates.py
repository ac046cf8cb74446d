"""Plans that a search tried, as they are told of: on a clock that the tests tell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_networks import branches
from test_closed_forms import chain, star

from dashboard.state import candidates
from dashboard.state.candidates import Candidate, SearchOverError, recorded_candidates
from partitioners import make_plan
from partitioners._judge.judge import Judge
from simulator.network.catalogue import read_cluster
from simulator.plan import Plan, Sharding, StepSettings
from simulator.run import run
from simulator.workload import Profile


def whole(device: int) -> Plan:
    return Plan(model="chain", batch_size=48, placements={f"l{i}": Sharding(devices=(device,)) for i in range(4)})


class Clock:
    """Each time it is asked some seconds have passed, and telling takes longer."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("apart_s", "telling_s", "announced_s"),
    [
        (1.0, 0.0, [1.0, 3.0, 5.0]),
        (1.0, 0.125, [1.0, 3.125, 5.25]),
        (1.0, 0.25, [1.0, 4.25]),
        (1.5, 0.0, [1.5, 3.0, 4.5, 6.0, 7.5]),
    ],
)
def test_best_plans_are_told_of_now_and_then(
    apart_s: float, telling_s: float, announced_s: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Now and then a better plan; at most each 1.5 s, and with a tenth of the time at most."""
    clock, announced, kept = Clock(), list[float](), list[Candidate]()
    monkeypatch.setattr(candidates, "time", clock)
    profile, cluster = chain(4), star(4, bandwidth=1e9)

    def tell(plan: Plan) -> None:
        announced.append(clock.now_s)
        clock.now_s += telling_s

    speeds = [replace(cluster, devices=tuple(replace(d, speed=1.0 + k) for d in cluster.devices)) for k in range(5)]
    with recorded_candidates(kept, cluster, tell=tell):
        best = None
        for faster in speeds:
            judge = Judge(profile=profile, cluster=faster)
            judge.best = best
            clock.now_s += apart_s
            best = judge.consider(whole(0), "a plan")
    assert announced == announced_s and [each.best for each in kept] == [True] * 5
    assert [each.label for each in kept] == ["a plan"] * 5


def test_what_is_no_better_is_not_told_of_and_time_ends_with_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, announced, kept = Clock(), list[Plan](), list[Candidate]()
    monkeypatch.setattr(candidates, "time", clock)
    clock.now_s = 100.0
    judge = Judge(profile=chain(4), cluster=star(4, bandwidth=1e9))
    with pytest.raises(SearchOverError) as over, recorded_candidates(kept, judge.cluster, 10.0, announced.append):
        for number, now_s in enumerate((101.0, 105.0, 110.0, 110.5)):
            clock.now_s = now_s
            judge.consider(whole(number), "")
    assert announced == [whole(0)] and over.value.plan == whole(0)
    assert [each.best for each in kept] == [True, False, False, False]
    assert {each.label for each in kept} == {"a change of the best"}
    judge.consider(whole(0))
    assert len(kept) == 4  # nobody listens any more


@pytest.mark.parametrize("profile", [branches(), chain(4)], ids=["branches", "chain"])
@pytest.mark.parametrize("strategy", ["data", "pipeline"])
def test_a_candidate_moves_and_balances_as_its_report_says(profile: Profile, strategy: str) -> None:
    cluster, kept = read_cluster("azure-v100-10g", devices=8), list[Candidate]()
    plan = make_plan(strategy, profile, cluster, StepSettings(batch_size=48))
    with recorded_candidates(kept, cluster):
        Judge(profile=profile, cluster=cluster).consider(plan, "x")
    done = run(profile, cluster, plan)
    volume, hosts = done.report.communication_bytes, np.array([device.host for device in cluster.devices])
    apart = hosts[list(volume.source)] != hosts[list(volume.target)]
    (each,) = kept
    assert each.total_bytes == pytest.approx(volume.total)
    assert each.between_bytes == pytest.approx(float(np.array(volume.size_bytes)[apart].sum()))
    assert (each.step_s, each.load_balance_ratio) == pytest.approx((done.report.step_s, done.report.load_balance_ratio))
