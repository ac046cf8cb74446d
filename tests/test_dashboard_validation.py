"""Stored validations in the dashboard: groups, figures, and the tasks behind an error. No browser."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plans import planned
from small_networks import chain

from dashboard.figures.validation import QUANTITIES, error_over, errors, predicted_against_actual
from dashboard.pages._validate_words import causes, details, kpis, machine, rows
from dashboard.state import uploads
from dashboard.state.validations import GROUPINGS, Stored, at_hand, grouped
from simulator import files
from simulator.errors import InputError
from simulator.network.catalogue import write_cluster
from simulator.run import run
from simulator.runtime import IDEAL
from simulator.timeline import Timeline
from simulator.workload import Profile
from traces.results.executions import Execution, write_execution
from traces.results.validation_cases import Case, LabNetwork, with_habits_of
from traces.results.validations import Overhead, Round, ValidatedRun, Validation, plan_path, timeline_path

CASE = Case(model="small", network=LabNetwork(ranks=2, mbit=1000), strategy="pipeline", via="execute", batch_size=8)


MADE = Round(
    step_s=0.1, spread_s=0.001, steps=16, sent_bytes=1.25e6, peak_bytes=None, load=0.5, date="2026-11-21 03:00"
)


def outcome(error: float, **case: Any) -> ValidatedRun:
    """A run of 100 ms that was predicted with this error."""
    return ValidatedRun(
        case=replace(CASE, **case), predicted_s=0.1 * (1 + error), predicted_bytes=1e6, predicted_memory_bytes=5e6,
        rounds=(MADE,),
    )  # fmt: skip


RUNS = (outcome(0.02), outcome(-0.3, model="b"), outcome(0.09, via="ddp", strategy="data"))


def test_groups_and_their_runs_come_worst_first() -> None:
    groups = grouped(RUNS, "strategy")
    assert [group.name for group in groups] == ["pipeline, executor", "data, DDP"]
    assert [validated.error for validated in groups[0].outcomes] == pytest.approx([-0.3, 0.02])
    assert groups[0].mean_absolute_error == pytest.approx(0.16)
    assert {by: len(grouped(RUNS, by)) for by in GROUPINGS} == {"strategy": 2, "ranks": 1, "network": 2, "rate": 1}


def test_runs_are_named_by_what_was_run() -> None:
    """torch's pipelines by their schedule, where the case says which, else as the strategy that made the plan."""
    of_case: dict[str, dict[str, Any]] = {
        "data, DDP": {"via": "ddp", "strategy": "data"},
        "data, straggler": {"via": "ddp", "strategy": "data", "straggler": 0},
        "1f1b": {"via": "pipelining", "options": {"schedule": "1f1b"}},
        "pipeline": {"via": "pipelining"},
        "pipeline, executor": {"options": {"schedule": "1f1b"}},
    }
    for name, case in of_case.items():
        assert [group.name for group in grouped([outcome(0.1, **case)], "strategy")] == [name]


def test_a_perfect_prediction_lies_on_the_diagonal() -> None:
    groups = grouped(RUNS, "strategy")
    dots = predicted_against_actual(groups, RUNS[1].case.name)["data"][2]
    assert (dots["x"], dots["y"]) == (pytest.approx([100.0, 100.0]), pytest.approx([70.0, 102.0]))
    assert dots["marker"]["line"]["width"] == [2.5, 0]


def test_cards_save_the_runs_and_not_where_they_are_drawn() -> None:
    groups = grouped(RUNS, "strategy")
    figures = predicted_against_actual(groups), errors(groups), error_over(groups, "volume")
    for table in (figure["layout"]["meta"]["table"] for figure in figures):
        saved = {row[1]: dict(zip(table["columns"], row, strict=True)) for row in table["rows"]}
        assert set(saved) == {each.case.name for each in RUNS}
        for each in RUNS:
            row = saved[each.case.name]
            assert (row["predicted_s"], row["actual_s"]) == (each.predicted_s, each.actual_s)
            assert (row["predicted_bytes"], row["counted_bytes"]) == (each.predicted_bytes, each.counted_bytes)


def test_bars_leave_a_gap_between_groups() -> None:
    first, second = errors(grouped(RUNS, "strategy"))["data"]
    assert errors(grouped(RUNS, "strategy"))["layout"]["yaxis"]["ticksuffix"] == "%"  # as words have it: no space
    assert (first["x"], second["x"]) == ([0, 1], [3])
    assert first["y"] == pytest.approx([-30.0, 2.0])


def test_what_was_not_measured_is_left_out() -> None:
    groups = grouped(RUNS, "strategy")
    assert error_over(groups, "memory")["data"] == []
    assert error_over(groups, "volume")["data"][0]["y"] == pytest.approx([-20.0, -20.0])
    for quantity in QUANTITIES:
        json.dumps(error_over(groups, quantity), allow_nan=False)


def test_the_numbers_on_top_sum_up_the_runs() -> None:
    values = {kpi.label: kpi.value for kpi in kpis(RUNS)}
    assert values["Mean absolute error"] == "13.7%" and values["Bias"] == "-6.3%"
    assert values["Within 10%"] == "2 of 3" and values["Worst"] == "-30.0%" and values["Volume, worst"] == "-20.0%"


def test_runs_that_the_host_disturbed_are_marked_wherever_runs_are() -> None:
    disturbed, calm, unknown = (
        replace(run, rounds=(replace(MADE, stolen_share=share),))
        for run, share in zip(RUNS, (0.021, 0.02, None), strict=True)
    )
    runs = (disturbed, calm, unknown)
    assert [row["stolen"] for row in rows(runs)] == [0.021, 0.02, None]
    stored = Stored(validation=Validation(machine="m", cores=2, software={}, outcomes=runs))
    assert "1 of these while the machine's host took over 2% of its core time" in machine(stored)
    assert "mean absolute error 2.0%, bias +2.0%" in machine(stored)  # of `disturbed`
    pipelines, _ = grouped(runs, "strategy")
    assert pipelines.outcomes == (calm, disturbed)  # worst first
    dots = predicted_against_actual([replace(pipelines, outcomes=(disturbed, calm))])["data"][2]
    assert dots["marker"]["symbol"] == ["circle", "circle-open"] and dots["y"] == pytest.approx([70.0, 102.0])
    assert errors([pipelines])["data"][0]["marker"]["pattern"]["shape"] == ["", "/"]
    said = [repr(details(stored, run)) for run in runs]
    assert "2.1% of the core time in the worst round: over 2%, so the run was disturbed" in said[0]
    assert "2.0% of the core time in the worst round'" in said[1] and "'not known'" in said[2]


def test_shipped_validations_open_by_themselves() -> None:
    field, home = at_hand().values()
    assert len(home.validation.outcomes) > 10 and home.explained(home.validation.outcomes[0]) is None
    assert "`field`" in repr(details(home, home.validation.outcomes[0]))
    outcomes = field.validation.outcomes
    for via in ("ddp", "pipelining"):  # what everyone can look into, task by task
        for shown in [outcome for outcome in outcomes if outcome.case.via == via][:3]:
            compared = field.explained(shown)
            assert compared is not None and len(compared.graph) > 10 and (compared.longest(1) or compared.latest(1))
            assert "No timeline" not in repr(details(field, shown))


def stored_in(folder: Path, profile: Profile, slow: float) -> Stored:
    """A validation of one run in which the second layer's forward pass lasted `slow` seconds longer."""
    cluster = CASE.network.cluster([0, 1])
    plan = planned("pipeline", profile, cluster, judged=False, batch_size=8, microbatches=2)
    predicted = run(profile, CASE.with_straggler(cluster), plan, runtime=with_habits_of(CASE.via, IDEAL))
    late = int(np.flatnonzero(predicted.graph.layer == 1)[0])
    end_s = predicted.timeline.end_s.copy()
    end_s[late] += slow
    actual = Timeline(start_s=predicted.timeline.start_s, end_s=end_s)
    for part in ("profiles", "clusters", "overheads", "plans", "timelines"):
        (folder / part).mkdir()
    files.write_profile(profile, folder / "profiles" / "small.json")
    write_cluster(cluster, folder / "clusters" / f"{CASE.network.name}.yaml")
    (folder / "overheads" / "small.json").write_text(files.to_json(Overhead(task_overhead_s=0.0, pass_overhead_s=0.0)))
    files.write_plan(plan, plan_path(folder, CASE))
    sent = np.zeros(len(predicted.graph))
    execution = Execution(steps_s=(actual.step_s,), losses=(1.0,), sent_bytes=sent, timeline=actual)
    write_execution(execution, timeline_path(folder, CASE))
    validation = Validation(machine="m", cores=2, software={}, outcomes=(outcome(0.1),))
    (folder / "validation.json").write_text(files.to_json(validation))
    return at_hand(folder)[folder.name]


def test_the_task_that_caused_the_error_is_named(tmp_path: Path) -> None:
    stored = stored_in(tmp_path, chain([1.0, 2.0, 1.0]), slow=50.0)
    comparison = stored.explained(stored.validation.outcomes[0])
    assert comparison is not None and comparison.graph.layer[comparison.longest(1)[0].task] == 1
    shown = repr(causes(comparison))
    assert "longest over prediction" in shown and "+50.0 s" in shown
    assert "No timeline" not in repr(details(stored, stored.validation.outcomes[0]))


def test_a_timeline_of_another_plan_is_refused_in_words(tmp_path: Path) -> None:
    stored = stored_in(tmp_path, chain([1.0, 2.0, 1.0]), slow=1.0)
    files.write_profile(chain([1.0, 2.0, 1.0, 1.0]), tmp_path / "profiles" / "small.json")
    assert "cannot be compared" in repr(details(stored, stored.validation.outcomes[0]))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [({"predicted_s": 0}, "predicted_s is 0"), ({"rounds": "x"}, "rounds"), ({"case": {}}, "missing")],
)
def test_a_broken_validation_says_where(change: dict[str, Any], complaint: str) -> None:
    validation = Validation(machine="m", cores=2, software={}, outcomes=RUNS)
    content = json.loads(files.to_json(validation))
    content["outcomes"][1] |= change
    with pytest.raises(InputError) as error:
        uploads.validation(json.dumps(content).encode(), "mine.json")
    assert complaint in str(error.value) and str(error.value).startswith("mine.json")


def test_too_many_runs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MOST_OUTCOMES", 2)
    text = files.to_json(Validation(machine="m", cores=2, software={}, outcomes=RUNS)).encode()
    with pytest.raises(InputError, match="outcomes is 3: at most 2"):
        uploads.validation(text, "mine.json")
