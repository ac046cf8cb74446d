"""Searching without a grid: bounds that nothing beats, and a best that is never worse than what was tried."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from plans import planned
from small_networks import chain, layer, network

import partitioners
from partitioners import make_plan
from partitioners._choice_search import best_of_strategy
from partitioners._plan_search import OBJECTIVES, PlanSearch
from partitioners._search.annealing import Annealing, Scored
from simulator import cli, files
from simulator.cli import search as cli_search
from simulator.cluster import Cluster
from simulator.errors import MissingExtraError, StuckError
from simulator.language_models.training_stack import runtime_of
from simulator.network.catalogue import read_cluster
from simulator.network.topologies import Wire, flat_switch
from simulator.plan import Plan, Sharding, StepSettings
from simulator.run import step_seconds
from simulator.workload import Profile

WIRE = Wire(bandwidth_bytes_per_s=1e9, latency_s=1e-5)


def clock(looks: int) -> Callable[[], float]:
    """The time that is left, spent after so many looks at it."""
    left = iter(range(looks, 0, -1))
    return lambda: float(next(left, 0))


def searched(
    profile: Profile,
    cluster: Cluster,
    names: Sequence[str] = ("data", "model", "owt", "pipeline"),
    objective: str = "step",
    looks: int = 60,
    seed: int = 0,
    microbatches: int | None = None,
) -> PlanSearch:
    """looks: how often the search may look at the clock before the time is spent."""
    search = PlanSearch(
        profile=profile,
        cluster=cluster,
        objective=OBJECTIVES[objective],
        step=StepSettings(batch_size=profile.batch_size, microbatches=microbatches),
        names=names,
        time_left_s=clock(looks),
        seed=seed,
    )
    search.run()
    return search


def test_the_best_is_at_least_as_good_as_every_strategy() -> None:
    profile = chain([1.0, 2.0, 3.0, 2.0, 4.0], channels=[8, 64, 64, 16, 8])
    cluster = flat_switch(3, Wire(bandwidth_bytes_per_s=2e4, latency_s=1e-3))
    search = searched(profile, cluster)
    assert search.best is not None and search.tally.complete
    for name in ("data", "model", "owt", "pipeline"):
        plan = planned(name, profile, cluster, batch_size=8)
        assert search.best.score <= step_seconds(profile, cluster, plan) * (1 + 1e-12)
    assert search.bound <= search.best.score == step_seconds(profile, cluster, search.best.plan)


def test_of_grids_whose_bounds_are_alike_those_that_are_cut_less_come_first() -> None:
    """A tensor group of 2 in replicas that share parameters, not one of 8, which no bound on compute tells apart."""
    profile, cluster = files.read_profile("bert_large_v100"), read_cluster("p3-16xlarge")
    runtime = runtime_of(profile)
    step = StepSettings(batch_size=8 * cluster.workers, runtime=runtime)
    best = best_of_strategy("megatron", profile, cluster, step, {})
    assert best.report.fits and best.choice.own["tensor"] == 2
    eight = make_plan("megatron", profile, cluster, step, tensor=8, recomputation="full")
    assert best.report.step_s < 0.7 * step_seconds(profile, cluster, eight, runtime)


@pytest.mark.parametrize(("devices", "batch"), [(4, 300), (3, 1024), (12, 1020)])
@pytest.mark.parametrize("name", ["data", "fsdp"])
def test_batches_that_are_no_power_of_2_are_not_cut_to_samples(name: str, devices: int, batch: int) -> None:
    """Neither parts of 75 samples nor unequal shares take longer than what the strategy does by itself."""
    profile, cluster = files.read_profile("vgg16_v100"), read_cluster("gcp-v100", devices=devices)
    step = StepSettings(batch_size=batch, runtime=runtime_of(profile))
    best = best_of_strategy(name, profile, cluster, step, {})
    asked = replace(step, microbatches=2 if devices == 3 else 1)  # which fit
    own_s = step_seconds(profile, cluster, make_plan(name, profile, cluster, asked), step.runtime)
    assert best.report.fits and best.report.step_s <= own_s * (1 + 1e-9)


def test_a_change_that_deadlocks_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def stuck(*inputs: Any) -> Scored:
        raise StuckError("2 of 4 tasks are blocked")

    def rounds(self: Annealing, plans: Sequence[Scored], score: Callable[[Plan], float | None]) -> Iterator[None]:
        monkeypatch.setattr(PlanSearch, "_simulated", stuck)
        assert score(plans[0].plan) is None
        yield

    monkeypatch.setattr(Annealing, "rounds", rounds)
    assert searched(chain([1.0, 2.0, 3.0]), flat_switch(3, WIRE)).best is not None


def test_the_hypergraph_search_starts_from_other_strategies_here_too() -> None:
    """Where data parallelism alone was improved, by local search, its plan is the best."""
    pytest.importorskip("kahypar")
    profile = chain([1.0, 2.0, 3.0, 2.0, 4.0], channels=[8, 64, 64, 16, 8])
    cluster = flat_switch(4, Wire(bandwidth_bytes_per_s=2e4, latency_s=1e-3))
    search = searched(profile, cluster, ("data", "hypergraph"))
    alone = planned("hypergraph", profile, cluster, batch_size=8)
    cuts = planned("hypergraph", profile, cluster, batch_size=8, others=False)
    alone_s, cuts_s = (step_seconds(profile, cluster, plan) for plan in (alone, cuts))
    assert search.best is not None and search.best.score <= alone_s * (1 + 1e-12)
    assert alone_s <= cuts_s * (1 + 1e-12) and alone.strategy == "hypergraph (as data)"


@pytest.mark.parametrize("made", [1, 0])
def test_a_strategy_that_searches_is_asked_again_with_more_effort(made: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as much each time, with other seeds, while three times as long as the last time is left and it makes a
    plan."""
    asked: list[tuple[float, int]] = []
    left_s = [100.0]

    def ask_all(search: PlanSearch, effort: float, seed: int) -> bool:
        asked.append((effort, seed))
        left_s[0] -= 10.0 * 2 ** (len(asked) - 1)
        search.tally.simulated += made
        return True

    monkeypatch.setattr(PlanSearch, "_ask_all", ask_all)
    monkeypatch.setattr(PlanSearch, "_anneal", lambda search: None)
    monkeypatch.setattr(PlanSearch, "_is_sure", lambda search: False)
    search = PlanSearch(
        profile=chain([1.0, 2.0]),
        cluster=flat_switch(2, WIRE),
        objective=OBJECTIVES["step"],
        step=StepSettings(batch_size=8),
        names=("data",),
        time_left_s=lambda: left_s[0],
        seed=7,
    )
    search.run()
    every = [(0.05, 7), (1.0, 7), (2.0, 8)]  # after 10, 20 and 40 s: 30 s are left, less than 120
    assert asked == (every if made else every[:2])


def test_where_links_are_slow_plans_that_send_little_are_among_the_first() -> None:
    """Bounds hold no bytes: in their order data parallelism in all its ways is simulated before one weird trick."""
    profile, cluster = files.read_profile("vgg16_v100"), read_cluster("azure-v100-10g", devices=8)
    search = PlanSearch(
        profile=profile,
        cluster=cluster,
        objective=OBJECTIVES["step"],
        step=StepSettings(batch_size=1024),
        names=("data", "layerwise"),
        time_left_s=lambda: 1.0 if search.tally.simulated < 4 else 0.0,
    )
    search.run()
    plan = planned("layerwise", profile, cluster, batch_size=1024)
    assert search.best is not None and not search.tally.complete
    assert search.best.score <= step_seconds(profile, cluster, plan) < 0.3 * 2.97


def test_free_links_and_whole_shares_leave_no_gap() -> None:
    search = searched(chain([1.0, 2.0, 3.0]), flat_switch(4, Wire(bandwidth_bytes_per_s=1e15)))
    assert search.best is not None
    assert search.best.score == pytest.approx(search.bound, rel=1e-6)
    assert search.bound == pytest.approx(1.5)


def test_bounds_leave_plans_unsimulated() -> None:
    """When data parallelism is as good as can be, one device after the other is not simulated."""
    search = searched(chain([1.0, 2.0, 3.0]), flat_switch(4, Wire(bandwidth_bytes_per_s=1e15)), ("data", "greedy"))
    assert search.tally.bounded > 0 and search.tally.complete
    assert search.best is not None and search.best.score <= search.tally.least
    assert set(search.tally.best) == {"data"}


def test_annealing_moves_runs_of_layers() -> None:
    """Longest first puts a, c on one device and b, d on the other; with slow links a run of neighbours is better."""
    profile = network(
        *(
            layer(name, *before, seconds=seconds, parameter_bytes=8, shape=(512, 4, 4))
            for name, before, seconds in (("a", (), 3), ("b", ("a",), 2.9), ("c", ("b",), 2), ("d", ("c",), 2.1))
        )
    )
    cluster = flat_switch(2, Wire(bandwidth_bytes_per_s=1e5))
    search, again, longer = (searched(profile, cluster, ("greedy",), looks=looks) for looks in (40, 40, 80))
    assert search.best is not None and search.best.refined
    start = planned("greedy", profile, cluster, batch_size=8)
    assert search.best.score < step_seconds(profile, cluster, start)
    assert search.best.plan.placements != start.placements
    assert again.best is not None and again.best.plan == search.best.plan, "the seed decides the path"
    assert longer.best is not None and longer.best.score <= search.best.score


@pytest.mark.parametrize("count", [2, None])
def test_micro_batches_that_are_given_stay(count: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of everything that is simulated, annealed or not; otherwise annealing tries more than a strategy has."""
    seen: list[int] = []
    simulated = PlanSearch._simulated

    def noted(search: PlanSearch, plan: Plan, cluster: Cluster) -> Any:
        seen.append(plan.microbatches)
        return simulated(search, plan, cluster)

    monkeypatch.setattr(PlanSearch, "_simulated", noted)
    profile = network(*(layer(name, *before, parameter_bytes=10**6) for name, before in (("a", ()), ("b", ("a",)))))
    searched(profile, flat_switch(2, Wire(bandwidth_bytes_per_s=1e5)), ("greedy",), microbatches=count)
    assert len(seen) > 9 and (len({*seen}) == 1) is (count is not None)


@pytest.mark.parametrize(("first", "gain"), [(0.0, 0.0), (1e-9, 0.0), (0.0, 1e-6)])
def test_annealing_knows_its_best_plan_after_every_change(first: float, gain: float) -> None:
    """The first of those that a rounding tells apart, and the last where each is a little better than all before."""
    profile, cluster, asked = chain([1.0, 2.0, 3.0]), flat_switch(4, WIRE), [2.0 - first]
    start = Scored(plan=planned("model", profile, cluster, batch_size=8), score=2.0)

    def score(plan: Plan) -> float:
        asked.append(asked[-1] - gain)
        return asked[-1]

    for best in islice(Annealing(profile, cluster, fixed=False, seed=0).rounds([start], score), 40):
        assert best is start if gain == 0 or len(asked) == 1 else best.score == asked[-1]
    assert len(asked) > 10


def test_annealing_keeps_what_is_better_than_the_best_of_all_strategies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what is better than its own strategy's alone: the best plan again, under the name of a worse strategy."""

    def rounds(_: Annealing, starts: Sequence[Scored], score: Callable[[Plan], float | None]) -> Iterator[Scored]:
        best, worst = (end(starts, key=lambda each: each.score) for end in (min, max))
        assert score(replace(best.plan, strategy=worst.plan.strategy)) == best.score < worst.score
        yield best

    monkeypatch.setattr(Annealing, "rounds", rounds)
    heavy = network(layer("a", parameter_bytes=2 * 10**9), layer("b", "a", parameter_bytes=2 * 10**9))  # sums take 4 s
    tally = searched(heavy, flat_switch(2, WIRE), ("data", "model")).tally
    assert len(tally.best) == 2 and not any(each.refined for each in tally.best.values())


def test_annealing_passes_over_what_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two layers of 180 kB with their gradients and optimizer state, on one device of 300 kB."""
    scores: list[float | None] = []

    def rounds(_: Annealing, starts: Sequence[Scored], score: Callable[[Plan], float | None]) -> Iterator[Scored]:
        whole = dict.fromkeys(starts[0].plan.placements, Sharding(devices=(0,)))
        scores.append(score(replace(starts[0].plan, placements=whole)))
        yield starts[0]

    monkeypatch.setattr(Annealing, "rounds", rounds)
    profile = network(layer("a", parameter_bytes=60_000), layer("b", "a", parameter_bytes=60_000))
    small = flat_switch(2, WIRE)
    small = replace(small, devices=tuple(replace(d, memory_bytes=300_000) for d in small.devices))
    assert searched(profile, small, ("model",)).best is not None and scores == [None]


def test_what_does_not_fit_is_no_answer() -> None:
    profile = network(layer("a", parameter_bytes=600), layer("b", "a", parameter_bytes=600))
    small = flat_switch(2, WIRE)
    small = replace(small, devices=tuple(replace(d, memory_bytes=3000) for d in small.devices))
    search = searched(profile, small, ("data", "model"))
    assert search.tally.too_large >= 2  # 1200 bytes x 3 on each device under data parallelism
    assert search.best is None or search.best.report.fits


def test_memory_is_an_objective() -> None:
    profile = network(layer("a", parameter_bytes=60_000), layer("b", "a", parameter_bytes=60_000))
    cluster = flat_switch(2, WIRE)
    by_step, by_memory = (searched(profile, cluster, objective=name).best for name in ("step", "memory"))
    assert by_step is not None and by_memory is not None
    assert by_memory.score < by_step.report.peak_memory_bytes
    assert by_memory.score >= searched(profile, cluster, objective="memory").bound == 180_000


def test_cost_may_leave_devices_unused() -> None:
    """At 1 s of compute and slow links two devices save no time, and each is paid for."""
    cluster = flat_switch(4, Wire(bandwidth_bytes_per_s=10.0))
    priced = replace(cluster, devices=tuple(replace(d, dollars_per_hour=36.0) for d in cluster.devices))
    profile = network(layer("a", seconds=1.0, parameter_bytes=1000), layer("b", "a", seconds=1.0, parameter_bytes=1000))
    search = searched(profile, priced, objective="cost")
    assert search.best is not None
    assert search.best.cluster.workers == 1
    assert search.best.score == pytest.approx(search.bound) == pytest.approx(2 * 36 / 3600)


def test_out_of_time_the_first_that_fits_is_the_answer() -> None:
    search = searched(chain([1.0, 2.0]), flat_switch(2, WIRE), looks=0)
    assert not search.tally.complete
    assert search.best is not None
    assert search.best.score == step_seconds(chain([1.0, 2.0]), search.best.cluster, search.best.plan)


@pytest.mark.parametrize(("card", "devices"), [("gpt2", "8"), ("gpt2", "16")])
def test_a_search_finds_at_least_what_the_ranking_of_a_card_finds(
    card: str, devices: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of cards and of profiles alike the grids are among what is searched."""
    machine = ["--cluster", "dgx-h100", "--devices", devices, "--batch-size", "64"]
    assert cli.main(["compare", card, *machine, "--json"]) == 0
    ranked = json.loads(capsys.readouterr().out)["grids"][0]
    parser = argparse.ArgumentParser()
    cli_search.add_arguments(parser)
    search = cli_search.plan_search(parser.parse_args([card, *machine, "--budget", "1s"]), clock(20))
    search.run()
    assert search.best is not None and search.best.score <= ranked["step_s"] * (1 + 1e-9)


def test_a_modelled_profile_in_a_file_is_searched_as_its_card_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = str(tmp_path / "gpt2.json")
    assert cli.main(["model", "gpt2", "--output", written]) == 0
    bests = []
    for source in ("gpt2", written):
        parser = argparse.ArgumentParser()
        cli_search.add_arguments(parser)
        machine = [source, "--cluster", "dgx-h100", "--devices", "8", "--batch-size", "64"]
        search = cli_search.plan_search(parser.parse_args(machine), clock(10))
        search.run()
        assert search.best is not None
        bests.append((search.best.score, search.best.plan.placements))
    assert bests[0] == bests[1]


def test_sharded_states_are_searched_where_nothing_else_fits() -> None:
    """BERT-large on 8 V100 of 16 GiB: 33 s with replicas that fit, 0.9 s fully sharded."""
    profile, cluster = files.read_profile("bert_large_v100"), read_cluster("p3-16xlarge", devices=8)
    search = searched(profile, cluster, ("data", "fsdp", "megatron", "owt", "model"), looks=120)
    fsdp = partitioners.make_plan("fsdp", profile, cluster, StepSettings(batch_size=profile.batch_size))
    assert search.best is not None
    assert search.best.score <= step_seconds(profile, cluster, fsdp)


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    files.write_profile(chain([0.1, 0.2, 0.3]), tmp_path / "tiny.json")
    return str(tmp_path / "tiny.json")


def test_the_command_prints_the_best_plan_and_its_bound(
    tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    command = ["search", tiny, "--cluster", "gcp-v100", "--devices", "2", "--budget", "3s", "--plan-out", str(plan)]
    assert cli.main([*command, "--json"]) == 0
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert printed["score"] == printed["strategies"][0]["step_s"]
    whole_s = 2 * 0.6  # one batch size, so each of two devices has it
    assert printed["bound"] == pytest.approx(whole_s / 2) and printed["score"] >= whole_s / 2 * (1 - 1e-9)
    assert printed["gap_ratio"] == pytest.approx(printed["score"] / printed["bound"] - 1, abs=1e-9)
    cluster = read_cluster("gcp-v100", devices=2)
    assert step_seconds(files.read_profile(tiny), cluster, files.read_plan(plan)) == printed["score"]
    assert cli.main(command) == 0
    out = capsys.readouterr().out
    assert "layers cut in any way take" in out and out.startswith("best simulated ")
    assert re.search(r"choices were not simulated: some may beat their row, none has less than", out)


def test_a_strategy_that_is_not_installed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    made = partitioners.make_plan

    def make_plan(name: str, *args: Any, **options: Any) -> Plan:
        if name == "metis":
            raise MissingExtraError("metis needs pymetis")
        return made(name, *args, **options)

    monkeypatch.setattr(partitioners, "make_plan", make_plan)
    search = searched(chain([1.0, 2.0]), flat_switch(2, WIRE), names=("model", "metis"), looks=40)
    assert search.best is not None and search.best.plan.strategy == "model"
    assert search.tally.infeasible == 2 and search.tally.complete, "metis with one micro-batch, and with several"


@pytest.mark.parametrize(("options", "stage"), [((), 0), (("--zero", "3"), 3)])
def test_states_asked_for_are_searched_with(
    options: Sequence[str], stage: int, tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "plan.json"
    command = ["search", tiny, "--cluster", "gcp-v100", "--devices", "2", "--budget", "3s", "--plan-out", str(written)]
    assert cli.main([*command, *options]) == 0
    assert files.read_plan(written).states.stage == stage


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--schedule", "gpipe"], "a search chooses schedules itself"),
        (["--objective", "cost", "--cluster", "p100-4x4"], "has no prices"),
    ],
)
def test_wrong_options_are_refused_in_one_line(
    tiny: str, options: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["search", tiny, "--cluster", "gcp-v100", *options]) == 2
    error = capsys.readouterr().err
    assert complaint in error and error.count("\n") == 1
