"""A sweep whose points try what `compare` tries."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from partitioners import options, strategies
from partitioners._choice_search import plan_by_choice
from simulator import cli
from simulator.sweep.engines import Processes
from simulator.sweep.points import Points, expand
from simulator.sweep.results_table import read_only
from simulator.sweep.specification import Specification
from simulator.sweep.sweeping import run_sweep

WHERE = {"profile": "vgg_small", "cluster": "cpu-1g", "devices": 4}


def points(**parameters: object) -> Points:
    specification = Specification(parameters={**WHERE, **parameters})
    return expand(specification, {name: tuple(options(name)) for name in strategies()})


def steps(folder: Path, *columns: str) -> dict[tuple[object, ...], float]:
    with read_only(folder) as connection:
        rows = connection.execute(f"SELECT {', '.join(columns)}, step_s FROM points").fetchall()
    return {tuple(row)[:-1]: row["step_s"] for row in rows}


def test_the_best_of_a_point_is_what_compare_finds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Strategies with a choice of micro-batches and of shared states."""
    machine = ["vgg_small", "--cluster", "cpu-1g", "--devices", "4"]
    assert cli.main(["compare", *machine, "--strategies", "data,pipeline", "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)["strategies"]
    asked = points(strategy=["data", "pipeline"], choice=["default", "best"])
    run_sweep(asked, plan_by_choice, tmp_path, partial(Processes, jobs=1), lambda results, pace: None)
    swept = steps(tmp_path, "strategy", "choice")
    assert len(compared) == 2 and len(swept) == 4
    for each in compared:
        best = swept[each["strategy"], "best"]
        assert best == pytest.approx(each["report"]["step_s"], rel=1e-9) and best <= swept[each["strategy"], "default"]
    assert swept["pipeline", "best"] < swept["pipeline", "default"]


def test_what_a_point_says_holds_for_its_choices(tmp_path: Path) -> None:
    asked = points(strategy="data", choice="best", microbatches=[1, 4])
    run_sweep(asked, plan_by_choice, tmp_path, partial(Processes, jobs=1), lambda results, pace: None)
    assert set(steps(tmp_path, "microbatches", "plan_microbatches")) == {(1, 1), (4, 4)}
