"""Every predicted time that the dashboard shows stands with its interval, the one that the command line prints."""

from __future__ import annotations

from dataclasses import replace
from html import escape

import pytest
from dashboard_advice import advised
from hypothesis import given
from hypothesis import strategies as st
from small_networks import branches

from dashboard.figures.candidates import candidates
from dashboard.figures.standalone import Section, standalone
from dashboard.figures.sweep import quantity_over_parameters, trade_off
from dashboard.figures.validation import published_steps
from dashboard.frame.panels import as_html
from dashboard.pages._explore_strategies import strategies_table
from dashboard.pages._explore_words import advice_line, chips, kpi_row, why
from dashboard.pages.sweep import _table_rows
from dashboard.pages.validate import _set_name
from dashboard.state.alternatives import alternatives
from dashboard.state.simulating import Outcome, glance_of
from dashboard.state.store import Store
from dashboard.state.sweeps import Sweep
from dashboard.state.validations import at_hand, published_sets
from dashboard.words.comparison import measured, results
from dashboard.words.kpis import seconds_range
from dashboard.words.sweep import best_by_value, expected
from simulator.report.interval import step_interval
from simulator.sweep.evaluate import COLUMNS, METRICS
from simulator.units import format_time


@pytest.fixture(scope="module")
def store() -> Store:
    return Store({"small": replace(branches(), device="Tesla V100", step_s=0.1, step_spread_s=0.01)})


@pytest.fixture(scope="module")
def outcome(store: Store) -> Outcome:
    return store.outcome(replace(store.default(), strategy="data", devices=4))


def ends(outcome: Outcome) -> str:
    assert outcome.run is not None and outcome.cluster is not None
    interval = step_interval(outcome.run.report, outcome.profile, outcome.cluster)
    words = seconds_range((interval.low_s, interval.high_s))
    assert interval.low_s < outcome.run.report.step_s < interval.high_s and " to " in words
    return words


@given(st.floats(1e-7, 1e4), st.floats(1.0, 3.0))
def test_a_range_says_a_shared_unit_once(low_s: float, factor: float) -> None:
    words, (low, high) = seconds_range((low_s, low_s * factor)), (format_time(low_s), format_time(low_s * factor))
    if low == high:
        assert words == ""
    else:
        assert words in (f"{low} to {high}", f"{low.split()[0]} to {high}")
        assert words.count(" ") == (3 if low.split()[1] == high.split()[1] else 4)
    assert seconds_range(None) == ""


def test_tiles_sentence_and_strip(store: Store, outcome: Outcome) -> None:
    words = ends(outcome)
    assert f"90% sure: {words}" in as_html(kpi_row(outcome, None))
    assert words in as_html(why(outcome))
    options = alternatives(outcome.configuration, outcome.profile)
    glances = [(option, glance_of(store.outcome(option))) for option in options]
    table = as_html(strategies_table([*glances]))
    ran = [glance for _, glance in glances if glance.ran]
    assert len(ran) > 1 and all(seconds_range(glance.interval_s) in table for glance in ran)
    dots = candidates((), {"data": ran[0]}, "data")["data"][0]
    assert f"({words})" in dots["customdata"][0]


def test_advice_says_the_interval_of_each_change(store: Store, outcome: Outcome) -> None:
    slow = store.outcome(replace(outcome.configuration, strategy="pipeline", microbatches=1))
    advice = advised(store, slow)
    assert seconds_range(advice.offered[0][1].interval_s)
    assert f"90% sure of {seconds_range(advice.offered[0][1].interval_s)}" in as_html(advice_line(advice, slow))


def test_both_sides_of_a_comparison_but_no_actual_run(store: Store, outcome: Outcome) -> None:
    other = store.outcome(replace(outcome.configuration, devices=2))
    row = next(row for row in results(other, outcome) if row.name == "90% sure of")
    assert (row.before, row.after) == (ends(other), ends(outcome))
    actual = next(row for row in measured(outcome, outcome) if row.name == "90% sure of")
    assert (actual.before, actual.after) == (ends(outcome), "")


def test_the_report_that_stands_alone(outcome: Outcome) -> None:
    assert outcome.cluster is not None
    page = standalone([Section(title="t", profile=outcome.profile, cluster=outcome.cluster, run=outcome.run)])
    assert f"90% sure: {ends(outcome)}" in page


def test_points_of_a_sweep_show_their_intervals() -> None:
    assert set(COLUMNS) - set(METRICS) == {"step_low_s", "step_high_s"}
    row = {"number": 0, "strategy": "data", "devices": 2, "step_s": 0.03, "step_low_s": 0.025, "step_high_s": 0.04,
           "peak_memory_bytes": 1.0}  # fmt: skip
    assert expected(row) == " (25.00 to 40.00 ms)" and expected({**row, "step_low_s": None}) == ""
    assert quantity_over_parameters([row], ("devices",), "step_s")["data"][0]["text"] == [" (25.00 to 40.00 ms)"]
    assert quantity_over_parameters([row], ("devices",), "peak_memory_bytes")["data"][0]["text"] == [""]
    assert trade_off([row], "step_s", "peak_memory_bytes")["data"][0]["text"] == [" (25.00 to 40.00 ms)"]
    heat = quantity_over_parameters([{**row, "speed": 1.0}], ("devices", "speed"), "step_s")["data"][0]
    assert heat["text"] == [[" (25.00 to 40.00 ms)"]] and heat["z"] == [[30.0]]
    assert "30.00 ms (25.00 to 40.00 ms)" in best_by_value([row], ("devices",))


def test_no_two_published_sets_look_alike() -> None:
    looks = [
        (trace["marker"]["color"], trace["marker"]["symbol"]) for trace in published_steps(published_sets())["data"][2:]
    ]
    assert len(set(looks)) == len(looks) == len(published_sets()) > 8


def test_published_steps_are_those_of_the_page(outcome: Outcome) -> None:
    sets = published_sets()
    assert len(sets) > 5 and sum(each.steps for each in sets) > 100
    listed = next(each for each in sets if "Sailor" in each.title)
    assert len(listed.rows) == 15 and listed.steps == 11
    for each, trace in zip(sets, published_steps(sets)["data"][-len(sets) :], strict=True):
        assert each.rows and trace["y"] == pytest.approx([step.predicted_s * 1e3 for step in each.rows])
        assert escape(each.title) in as_html(_set_name(each, 0))
    text = as_html(chips(outcome, at_hand()["home"].validation))
    once = sum(each.steps - each.failed for each in sets if "unnamed" not in each.title)  # those are of other sets
    assert f"at the median of {once}" in text
    assert "published" not in as_html(chips(replace(outcome, profile=branches()), at_hand()["home"].validation))


def test_a_chip_says_that_the_profile_was_measured_on_another_device(store: Store, outcome: Outcome) -> None:
    elsewhere = store.outcome(replace(store.default(), strategy="data", devices=4, cluster="dgx-h100"))
    here, there = (" ".join(as_html(chip) for chip in chips(each, None)) for each in (outcome, elsewhere))
    assert "measured on" not in here
    assert "measured on Tesla V100, simulated on NVIDIA H100 80GB SXM5" in there and "set the device speed" in there


def test_a_winner_is_so_far_until_the_sweep_is_over() -> None:
    rows = [{"strategy": name, "devices": 2, "step_s": step_s} for name, step_s in (("data", 0.02), ("owt", 0.03))]
    swept = ("strategy", "devices")
    assert best_by_value(rows, swept, over=False) == f"So far: {best_by_value(rows, swept)}"
    assert best_by_value(rows, swept).startswith("Data wins")


def test_what_does_not_fit_wins_no_sweep() -> None:
    points = (("data", 2, 1.0, 0), ("fsdp", 2, 2.0, 1), ("data", 4, 1.0, 0), ("fsdp", 4, 3.0, 1))
    rows = [{"strategy": name, "tensor": n, "step_s": step_s, "fits": fits} for name, n, step_s, fits in points]
    assert best_by_value(rows, ("strategy", "tensor")) == "Fsdp wins from 2 to 4. Nowhere fits: data."
    assert best_by_value(rows[::2], ("strategy", "tensor"), over=False) == "So far: No point fits into memory."
    faster = [{**row, "inter_bandwidth_bytes_per_s": 1e9} for row in rows]
    said = best_by_value(faster, ("strategy", "tensor", "inter_bandwidth_bytes_per_s"))
    assert "is of fsdp with tensor 2, inter bandwidth 8.00 Gbit/s" in said
    points_so_far = [{**row, "number": n, "status": "done"} for n, row in enumerate(rows)]
    sweep = Sweep(number=1, swept=("strategy", "tensor"), points=None, rows=points_so_far)  # type: ignore[arg-type]
    shown = [(row["number"], row["status"]) for row in _table_rows(sweep, frozenset())]
    assert shown == [(1, "done"), (3, "done"), (0, "does not fit"), (2, "does not fit")]


def test_winners_are_named_where_a_parameter_makes_a_difference() -> None:
    points = (("data", None, 1.0), ("megatron", 2, 2.0), ("pipeline", 2, 3.0), ("megatron", 4, 0.5))
    rows = [{"strategy": name, "tensor": tensor, "step_s": step_s} for name, tensor, step_s in points]
    assert best_by_value(rows, ("strategy", "tensor")) == "Megatron wins from 2 to 4; pipeline never."
    assert best_by_value(rows[:1], ("strategy", "tensor"), over=False) == ""
