"""The hypergraph strategy: never worse than what it can copy, clear about what cannot be had."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf

import numpy as np
import pytest
from counted_volume import communication_volume
from plans import planned
from test_closed_forms import chain, star

from partitioners._hypergraphs.hypergraph import build, grid_of
from partitioners._judge.judge import Judge, TimeSpent, Verdict
from partitioners._search import refinement
from partitioners._search.annealing import Annealing, Scored
from partitioners._search.local_search import LocalSearch
from partitioners._search.migrate import Cut, migrate
from partitioners.hypergraph import plan_imbalance
from simulator.cluster import Cluster
from simulator.errors import InputError, ShardscopeError
from simulator.lowering.sharded_model import ShardedModel
from simulator.run import step_seconds
from simulator.workload import Geometry, Profile

OTHERS = ("data", "model", "pipeline", "owt")


def network(parameter_bytes: int = 4 * 10**7) -> Profile:
    """Convolution-like layers of few parameters, then two fully connected ones that hold nearly all."""
    profile = chain(6, parameter_bytes=10**5, batch=64)
    layers = [replace(layer, geometry=Geometry(mixes_channels=True), kind="conv") for layer in profile.layers]
    for i in (4, 5):
        layers[i] = replace(
            layers[i], kind="linear", parameter_bytes=parameter_bytes, forward_s=0.002, backward_s=0.004
        )
    return replace(profile, layers=tuple(layers))


def slow_star() -> Cluster:
    return star(4, bandwidth=1e9)


def test_step_is_never_worse_than_the_other_strategies() -> None:
    profile = network()
    for cluster in (slow_star(), star(4, bandwidth=1e11)):
        step_s = step_seconds(profile, cluster, planned("hypergraph", profile, cluster, batch_size=64, effort=0.2))
        for name in OTHERS:
            other = planned(name, profile, cluster, batch_size=64)
            assert step_s <= step_seconds(profile, cluster, other) * 1.01


def test_volume_is_never_above_that_of_others_as_balanced() -> None:
    profile, cluster = network(), slow_star()
    plan = planned("hypergraph", profile, cluster, batch_size=64, objective="volume", effort=0.2)
    size = communication_volume(ShardedModel(profile, plan), cluster).total
    assert plan_imbalance(profile, cluster, plan) <= 0.03 + 1e-6
    data = communication_volume(ShardedModel(profile, planned("data", profile, cluster, batch_size=64)), cluster).total
    assert size < data / 10  # the fully connected layers stay in one place
    for name in OTHERS:
        other = planned(name, profile, cluster, batch_size=64)
        if plan_imbalance(profile, cluster, other) <= 0.03:
            assert size <= communication_volume(ShardedModel(profile, other), cluster).total


def test_says_which_strategy_it_came_from() -> None:
    """On a network without latency or limit nothing beats data parallelism's balance."""
    profile, cluster = chain(6, batch=64), star(4, bandwidth=1e30, latency_s=0.0)
    assert planned("hypergraph", profile, cluster, batch_size=64, effort=0.1).strategy == "hypergraph (as data)"


def test_same_seed_same_plan() -> None:
    profile, cluster = network(), slow_star()
    options = {"batch_size": 64, "effort": 0.03, "others": False, "seed": 5}
    assert planned("hypergraph", profile, cluster, **options) == planned("hypergraph", profile, cluster, **options)


def test_time_that_is_spent_leaves_the_best_so_far() -> None:
    """After so many plans the search ends with no more than a plan of each step that it was in."""
    profile, cluster, said = network(), slow_star(), list[str]()

    def progress(text: str) -> None:
        said.append(text)
        if len(said) >= 12:
            raise TimeSpent

    stopped = planned("hypergraph", profile, cluster, batch_size=64, progress=progress)
    steps_s = [float(text.split("best ")[1].split(" ms")[0]) / 1e3 for text in said]
    assert len(said) == 12 and step_seconds(profile, cluster, stopped) <= steps_s[-1] * (1 + 1e-2)


def test_changes_and_annealing_go_on_from_each_other_while_they_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    """The local search starts again from what annealing found, and stops after a round that saves too little."""
    saves, costs = iter([0.9, 0.8, 0.9995]), list[float]()

    def improved(judge: Judge, search: LocalSearch, starts: Sequence[Verdict], *, patience: int) -> None:
        costs.append(min(start.cost for start in starts))

    def annealed(judge: Judge, starts: Sequence[Verdict], *, fixed: bool, seed: int) -> None:
        best = judge.best
        assert best is not None
        judge.best = replace(best, cost=best.cost * next(saves))

    monkeypatch.setattr(refinement, "_improve", improved)
    monkeypatch.setattr(refinement, "_anneal", annealed)
    monkeypatch.setattr(Judge, "is_near", lambda judge, cost: True)
    planned("hypergraph", network(), slow_star(), batch_size=64)
    assert [cost / costs[0] for cost in costs] == pytest.approx([1, 0.9, 0.72]) and next(saves, None) is None


def test_only_plain_plans_that_fit_are_annealed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what is shorter but too large, nor what recomputes, of which a change of placements is no plan."""
    profile, cluster, annealed = network(), slow_star(), list[Sequence[Scored]]()
    judge = Judge(profile=profile, cluster=cluster)
    best = judge.consider(planned("data", profile, cluster, batch_size=64))
    too_large = replace(best, excess_bytes=1.0, cost=best.cost / 2)
    recomputing = replace(best, plan=replace(best.plan, recomputed=(("l0",),)), cost=best.cost / 3)
    worse = replace(best, plan=planned("model", profile, cluster, batch_size=64), cost=best.cost * 2)

    def rounds(_: Annealing, starts: Sequence[Scored], score: object) -> Iterator[Scored]:
        annealed.append(starts)
        yield from starts

    monkeypatch.setattr(Annealing, "rounds", rounds)
    refinement._anneal(judge, [too_large, recomputing, worse], fixed=True, seed=0)
    assert annealed == [[Scored(plan=each.plan, score=each.cost) for each in (best, worse)]]
    judge.best = None
    refinement._anneal(judge, [too_large, recomputing], fixed=True, seed=0)
    assert len(annealed) == 1


@pytest.mark.parametrize(("patience", "budget", "tried"), [(3, inf, 3), (0, inf, 0), (3, 0.0, 0), (99, 1.0, 1)])
def test_shards_migrate_while_patience_and_budget_last(patience: int, budget: float, tried: int) -> None:
    """Where every device has a quarter of each layer's samples no move gains."""
    profile, cluster = network(), star(4, bandwidth=1e12)
    plan = planned("data", profile, cluster, batch_size=64)
    grid = grid_of(profile, 4, 1, batch_size=64)
    parts = np.arange(grid.vertices) % 4
    judge = Judge(profile=profile, cluster=cluster)
    verdict = judge.consider(replace(plan, placements=grid.placements(profile, parts)))
    judge.budget = budget
    migrate(judge, Cut(grid=grid, hypergraph=build(profile, grid), parts=parts, verdict=verdict), patience)
    assert judge.trials - 1 == tried


def test_unequal_devices_get_unequal_parts() -> None:
    profile = network()
    cluster = slow_star()
    speeds = (1.0, 1.0, 0.5, 0.25)
    devices = tuple(replace(d, speed=s) for d, s in zip(cluster.devices, speeds, strict=True))
    unequal = replace(cluster, devices=devices)
    plan = planned("hypergraph", profile, unequal, batch_size=64, imbalance=0.1, effort=0.1, others=False)
    assert plan_imbalance(profile, unequal, plan) <= 0.1 + 1e-6


def test_imbalance_that_cannot_be_met_names_the_smallest() -> None:
    """Three equal layers, whole, on two devices: 2 against 1 is the best."""
    profile = chain(3, batch=64)
    with pytest.raises(InputError, match=r"imbalance is 0.01: no cut keeps to it; the smallest found is 0\.333"):
        fixed = replace(
            profile, layers=tuple(replace(x, geometry=Geometry(mixes_channels=True)) for x in profile.layers)
        )
        planned("hypergraph", fixed, star(2), batch_size=64, grid=(1, 1), imbalance=0.01, others=False)


def test_memory_that_nothing_fits_names_the_need() -> None:
    cluster = slow_star()
    tiny = replace(cluster, devices=tuple(replace(d, memory_bytes=10**6) for d in cluster.devices))
    with pytest.raises(InputError, match=r"memory_bytes is 977 KiB: no plan found fits; the best needs .* MiB"):
        planned("hypergraph", network(), tiny, batch_size=64, effort=0.05)


def test_memory_decides_between_plans() -> None:
    """Data parallelism is fastest on a free network, but a device cannot hold all parameters three times."""
    profile, cluster = network(), star(4, bandwidth=1e12, latency_s=0.0)
    capacity = int(profile.parameter_bytes * 3 * 0.7)
    limited = replace(cluster, devices=tuple(replace(d, memory_bytes=capacity) for d in cluster.devices))
    plan = planned("hypergraph", profile, limited, batch_size=64, effort=0.3)
    assert "as data" not in plan.strategy


@pytest.mark.parametrize(("option", "value"), [("effort", 0.0), ("objective", "speed")])
def test_bad_options_are_named(option: str, value: object) -> None:
    with pytest.raises(ShardscopeError, match=f"{option} is"):
        planned("hypergraph", chain(3), star(2), batch_size=48, **{option: value})  # type: ignore[arg-type]
