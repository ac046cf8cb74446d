"""Plans: the ranking is that of `compare`, and every plan opens on Explore with the same step. No browser."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from small_networks import branches
from test_dashboard_grids import CARD

from dashboard.figures.sweep import MOST_BARS, steps
from dashboard.pages.plans import best_of_splits, over_degrees, title
from dashboard.state import plans
from dashboard.state.configuration import Configuration
from dashboard.state.measures import utilisation
from dashboard.state.plans import Plans, Ranked, asked, ranked_plans
from dashboard.state.store import Store, given_cards
from simulator.cli import main

NOW = Configuration(profile="dense", cluster="dgx-h100", strategy="megatron", devices=16, batch_size=64)


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cards") / "dense.yaml"
    path.write_text(CARD.format(name="dense"))
    return path


@pytest.fixture(scope="module")
def store(card: Path) -> Store:
    return Store({"net": branches()}, cards=given_cards([str(card)]))


def ranked(store: Store, now: Configuration) -> Ranked:
    return ranked_plans(store.request(asked(store.resolved(now))))


def test_a_card_is_ranked_as_compare_ranks_it(store: Store, card: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = ranked(store, NOW)
    assert main(["compare", str(card), "--cluster", "dgx-h100", "--devices", "16", "--batch-size", "64", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert shown.over and [row["step_s"] for row in shown.rows] == [grid["step_s"] for grid in printed["grids"]]
    for of_compare, name in (("mfu", "mfu"), ("tokens_per_s", "per_device_per_s")):
        devices = 1 if of_compare == name else NOW.devices
        assert [row[name] * devices for row in shown.rows] == pytest.approx(
            [grid[of_compare] for grid in printed["grids"]]
        )
    assert shown.rows[0]["command"] == printed["command"]
    assert f"of {printed['bounded']['grids'] + len(shown.rows)} grids simulated" in shown.words


MEASURED = replace(NOW, profile="net", cluster="cpu-1g", devices=4, batch_size=8)


def test_plans_of_a_measured_profile_are_told_apart(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MOST_STRATEGIES", 99)  # until all are simulated
    rows = ranked(store, MEASURED).rows
    named = [(title(row), row["micro"]) for row in rows if row["strategy"] == "pipeline"]
    assert {"pipeline, gpipe", "pipeline, 1f1b"} <= {name for name, _ in named} and len(set(named)) == len(named)


@pytest.mark.parametrize("now", [NOW, MEASURED])
def test_every_plan_opens_with_its_own_step(store: Store, now: Configuration) -> None:
    opened = [row for row in ranked(store, now).rows if row["query"]]
    assert len(opened) > 8
    for row in opened:
        again, problems = store.read(row["query"])
        outcome = store.outcome(again)
        report, cluster = outcome.report, outcome.cluster
        assert not problems and report is not None and cluster is not None
        assert (report.step_s, report.peak_memory_bytes) == (row["step_s"], row["peak_memory_bytes"]), row
        assert utilisation(outcome.profile, cluster, report) == (row.get("mfu") and pytest.approx(row["mfu"]))


def test_a_ranking_comes_from_a_process_and_is_made_once(store: Store) -> None:
    all_of_them = Plans(store)
    ends_s = time.monotonic() + 600
    while not (last := all_of_them.ask(NOW)).over:
        assert time.monotonic() < ends_s
        time.sleep(0.05)
    assert not last.failed and last.rows[0]["fits"]
    assert all_of_them.ask(replace(NOW, strategy="fsdp", tensor=2, zero_stage=3)) is last


def test_what_cannot_be_ranked_is_said(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    all_of_them = Plans(store)
    now = replace(NOW, devices=7, batch_size=1)
    ends_s = time.monotonic() + 600
    while not (last := all_of_them.ask(now)).over:
        assert time.monotonic() < ends_s
        time.sleep(0.05)
    assert last.failed and "batch_size is 1" in last.words


def test_nobody_waits_for_a_ranking(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "GONE_S", -1.0)
    all_of_them = Plans(store)
    all_of_them.ask(NOW)
    job = all_of_them._jobs[asked(store.resolved(NOW))]
    ends_s = time.monotonic() + 600
    while not job.ranked.over:
        assert time.monotonic() < ends_s
        time.sleep(0.05)
    assert job.ranked.rows == ()


def test_plans_are_named_by_what_differs(store: Store) -> None:
    rows = ranked(store, NOW).rows
    assert all(row["number"] == rank for rank, row in enumerate(rows, start=1))
    firsts = best_of_splits(rows)
    assert len(firsts) < len(rows) and firsts[0] is rows[0]
    named = [{**row, "title": title(row)} for row in rows]
    assert any("tensor 2" in row["title"] for row in named) and any("ZeRO-" in row["title"] for row in named)
    bars = steps(named)["data"][0]
    assert bars["y"][-1] == "1" and len(bars["y"]) == min(MOST_BARS, len(rows))
    assert bars["x"][-1] == min(bars["x"]) == pytest.approx(rows[0]["step_s"] * 1e3)


def test_the_shortest_step_stands_at_each_degree() -> None:
    pairs = ((2, 3.0), (1, 2.0), (1, 1.0), (2, 4.0))
    rows = [{"number": 1, "strategy": "megatron", "tensor": t, "pipeline": 1, "step_s": s} for t, s in pairs]
    (line,) = over_degrees(rows)["data"]
    assert line["x"] == [1, 2] and line["y"] == pytest.approx([1e3, 3e3])
