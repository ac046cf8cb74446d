"""What a ranking says of each plan and of those that it did not simulate: by value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from small_networks import branches

from dashboard.state import plans as plans_module
from dashboard.state.configuration import DEGREES, Configuration
from dashboard.state.plans import Ranked, _choice_row, _grid_row, _grids, _tried
from dashboard.state.simulating import Request
from dashboard.state.store import Store
from partitioners import StrategyChoice
from partitioners._grids.ranking import Ranking, SimulatedGrid, ranked_grids
from simulator.language_models.card_files import read_card
from simulator.language_models.grids import default_batch
from simulator.language_models.training_stack import stack_for
from simulator.network.catalogue import read_cluster
from simulator.parameter_states import ParameterStates
from simulator.plan import StepSettings
from simulator.run import expected_interval, step_report

NOW = Configuration(profile="small", cluster="cpu-1g", strategy="data", devices=4, batch_size=16, seed=3, effort=0.5)
STEP = StepSettings(batch_size=16)


def request(**changes: Any) -> Request:
    store = Store({"small": branches()})
    return store.request(store.resolved(replace(NOW, **changes)))


def test_what_is_tried_has_the_seed_and_effort_of_the_page_and_searches_come_last() -> None:
    """After those of few choices those of many; no baseline."""
    of_strategies = list(_tried(request(), read_cluster("cpu-1g", devices=4), STEP))
    names, tried = [name for name, _ in of_strategies], [each for _, choices in of_strategies for each in choices]
    assert names[-2:] == ["hypergraph", "layerwise"] and not {"greedy", "shuffle"} & {*names}
    counts = [sum(choice.strategy == name for choice in tried) for name in names[:-2]]
    assert counts == sorted(counts) and counts[0] == 1
    assert {choice.own["seed"] for choice in tried} == {3}
    assert {choice.own.get("effort") for choice in tried[-2:]} == {0.5} and "effort" not in tried[0].own


def row_of(strategy: str, own: Mapping[str, Any], step: StepSettings = STEP) -> dict[str, Any]:
    profile, cluster = branches(), read_cluster("cpu-1g", devices=4)
    choice = StrategyChoice(strategy=strategy, own=own, step=step)
    plan = choice.plan(profile, cluster)
    report = step_report(profile, cluster, plan)
    interval = expected_interval(report, profile, cluster, plan)
    row = _choice_row(NOW, choice, plan, report, interval)
    assert (row["step_s"], row["step_low_s"], row["step_high_s"]) == (report.step_s, interval.low_s, interval.high_s)
    assert (row["fits"], row["fit"], row["limited"]) == (report.fits, report.fit, str(report.bottleneck))
    assert row["peak_memory_bytes"] == report.peak_memory_bytes and row["bubble_ratio"] == report.bubble_ratio
    assert row["per_device_per_s"] == report.samples_per_s / 4 and row["command"] == ""
    return row


@pytest.mark.parametrize(
    ("strategy", "own", "step", "opened", "more"),
    [
        ("data", {}, {"microbatches": 2}, {"microbatches": 2}, []),
        ("pipeline", {}, {"schedule": "gpipe"}, {"schedule": "gpipe"}, ["gpipe"]),
        ("megatron", {"pipeline": 2, "chunks": 2}, {"microbatches": 4},
         {"pipeline": 2, "chunks": 2, "microbatches": 4}, []),
        ("fsdp", {"recomputation": "full"}, {"states": ParameterStates(stage=3, group=2)},
         {"recomputation": "full", "zero_stage": 3, "shard_group": 2}, []),
        ("pipeline", {"replicas": True, "judged": False}, {"microbatches": 2, "schedule": "1f1b"}, None,
         ["1f1b", "replicas"]),
        ("layerwise", {"objective": "sum", "effort": 0.02}, {}, None, ["objective sum"]),
    ],
)  # fmt: skip
def test_a_row_opens_as_its_choice_unless_no_control_has_it(
    strategy: str, own: dict[str, Any], step: dict[str, Any], opened: dict[str, Any] | None, more: list[str]
) -> None:
    row = row_of(strategy, own, replace(STEP, **step))
    assert row["more"] == more and row["strategy"] == strategy
    assert row["query"] == ("" if opened is None else replace(NOW, strategy=strategy, **opened).query())
    expected = {"recomputation": "none", "shard_group": 0, "chunks": 0, "expert_tensor": 0, **dict.fromkeys(DEGREES, 1)}
    assert {name: row[name] for name in expected} == {
        name: (opened or {}).get(name, value) for name, value in expected.items()
    }
    assert row["zero_stage"] == (opened or {}).get("zero_stage", 0)
    assert row["micro"] == str(step.get("microbatches", int(row["micro"])))


def test_without_a_known_error_a_row_has_no_range() -> None:
    profile, cluster = branches(), read_cluster("cpu-1g", devices=4)
    choice = StrategyChoice(strategy="data", step=STEP)
    plan = choice.plan(profile, cluster)
    report = step_report(profile, cluster, plan)
    interval = replace(expected_interval(report, profile, cluster, plan), parts={})
    row = _choice_row(NOW, choice, plan, report, interval)
    assert row["step_low_s"] is None and row["step_high_s"] is None


@pytest.fixture(scope="module")
def grid() -> SimulatedGrid:
    """The best of a small card on eight devices."""
    card, cluster = read_card("gpt2"), read_cluster("dgx-h100", devices=8)
    stack = stack_for(cluster)
    from simulator.language_models.modelled_profile import modelled_profile

    ranking = ranked_grids(card, modelled_profile(card, stack), cluster, stack, 64, time_left_s=lambda: 0.0)
    return ranking.simulated[0]


def test_a_ranking_tells_which_bounds_it_works_out() -> None:
    """The closer ones of a large mixture take longer than the others, and nothing is simulated before them."""
    from simulator.language_models.modelled_profile import modelled_profile

    card, cluster, said = read_card("gpt2"), read_cluster("dgx-h100", devices=8), list[str]()
    stack = stack_for(cluster)
    profile = modelled_profile(card, stack)
    ranked_grids(card, profile, cluster, stack, 64, progress=said.append, time_left_s=lambda: 0.0)
    kinds = [words.split(" ")[0] for words in said]
    assert list(dict.fromkeys(kinds)) == ["bounds,", "closer", "simulated"]


def test_a_grid_opens_with_its_degrees_and_is_launched_by_a_command(grid: SimulatedGrid) -> None:
    now, stack = replace(NOW, cluster="dgx-h100", devices=8), stack_for(read_cluster("dgx-h100", devices=8))
    for chunks in (1, 2):
        each = replace(grid, grid=replace(grid.grid, chunks=chunks))
        row = _grid_row(now, each, stack)
        assert row["chunks"] == (2 if chunks == 2 else 0)
        assert (row["mfu"], row["per_device_per_s"]) == (each.mfu, pytest.approx(each.tokens_per_s / 8))
        assert row["micro"] == f"{each.grid.microbatch} × {each.grid.accumulation}" and row["data"] == each.grid.data
        for name in (*DEGREES, "recomputation", "shard_group", "expert_tensor", "strategy", "zero_stage"):
            assert row[name] == getattr(each.grid, name)
        assert f"&batch_size={each.grid.batch}&microbatches={each.grid.accumulation}&" in row["query"]
    assert row["command"]


@pytest.mark.parametrize(
    ("bounded", "certain", "left_out", "words"),
    [
        (0, True, 0, "2 of 2 grids simulated"),
        (2, True, 0, "2 of 4 grids simulated; none of the others is faster than 1.25 s"),
        (1, False, 0, "2 of 3 grids simulated; none of the others is faster than 1.25 s (time ran out: one of them may "
                      "be the best)"),
        (0, True, 3, "2 of 2 grids simulated; 3 do not fit or are refused"),
    ],
)  # fmt: skip
def test_a_ranking_of_grids_says_what_it_left_out(
    bounded: int, certain: bool, left_out: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Progress is told of until there is a grid, each of which has its row made once; time is what is left of it."""
    made, announced, seen = list[float](), list[Callable[[], Ranked]](), dict[str, Any]()

    def row(now: Configuration, each: Any, stack: object) -> dict[str, Any]:
        made.append(each.report.step_s)
        return {"fits": True, "step_s": each.report.step_s, "zero_stage": 0}

    def ranked(card: object, profile: object, cluster: object, stack: object, batch: int, **tell: Any) -> Ranking:
        seen.update(batch=batch, left_s=tell["time_left_s"]())
        simulated: list[Any] = [
            SimpleNamespace(report=SimpleNamespace(step_s=s, fits=True), runs=True) for s in (3.0, 2.0)
        ]
        kinds: Any = {"too_large": [None] * (left_out and 2), "refused": [None] * (left_out and 1)}
        tell["progress"]("bounding 12 grids")
        tell["show"](Ranking(simulated=simulated[:1], bounded=[None] * 9, **kinds))  # type: ignore[list-item]
        assert announced[1]().words == "1 grid simulated so far" + ("; 3 do not fit or are refused" if left_out else "")
        tell["progress"]("simulating")
        return Ranking(simulated=simulated, bounded=[None] * bounded, bound_s=1.25, certain=certain, **kinds)  # type: ignore[list-item]

    monkeypatch.setattr(plans_module, "_grid_row", row)
    monkeypatch.setattr(plans_module, "ranked_grids", ranked)
    monkeypatch.setattr(plans_module, "time", SimpleNamespace(monotonic=lambda: 10.0))
    asked, cluster = replace(request(batch_size=24), card="gpt2"), read_cluster("dgx-h100", devices=8)
    last = _grids(asked, cluster, 25.0, announced.append)
    assert (last.words, last.over, [each["step_s"] for each in last.rows]) == (words, True, [2.0, 3.0])
    assert sorted(made) == [2.0, 3.0] and seen == {"batch": 24, "left_s": 15.0}
    assert len(announced) == 2 and announced[0]() == Ranked(words="bounding 12 grids")
    announced.clear()
    _grids(replace(asked, configuration=replace(asked.configuration, batch_size=None)), cluster, 25.0, announced.append)
    assert seen["batch"] == default_batch(read_card("gpt2"), 8)
