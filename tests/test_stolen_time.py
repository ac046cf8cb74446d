"""Core time that the host of a virtual machine took: counted, noted by what was measured meanwhile, reported apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; make test installs it")

from test_calibrate import PAIR, line, measurement
from test_validate import made, outcome

from benchmarks.machines import validation as tables
from simulator.timeline import Timeline
from traces.calibrate.links import apply
from traces.capture.machine_settings import StolenTime, largest, stolen_words
from traces.results.executions import Execution, read_execution, write_execution
from traces.results.validations import ValidatedRun, Validation

FIRST = "cpu  1000 50 300 9000 200 10 40 100 70 5\ncpu0 1 2 3 4 5 6 7 8 9 10\n"
# later by 60 ticks of users, 20 of nice programs, 10 of the system, 500 idle, 30 of waiting for disks, 10 stolen; what
# guests of this machine used (70, then 90) is in its users' time
LATER = "cpu  1060 70 310 9500 230 10 40 110 90 5\ncpu0 1 2 3 4 5 6 7 8 9 10\n"


def test_the_share_is_of_the_time_that_programs_asked_for(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text(FIRST)
    stolen = StolenTime(stat)
    assert stolen.share() == 0.0  # nothing was asked for
    stat.write_text(LATER)
    assert stolen.share() == 10 / (60 + 20 + 10 + 10)


def test_a_kernel_that_does_not_count_says_nothing(tmp_path: Path) -> None:
    old = tmp_path / "stat"
    old.write_text("cpu  1000 50 300 9000 200 10 40\n")
    assert StolenTime(old).share() is None
    assert StolenTime(tmp_path / "absent").share() is None
    assert largest([None, 0.01, 0.03]) == 0.03 and largest([None]) is None


@pytest.mark.parametrize("counting", [0, 1])
def test_counters_that_are_there_only_once_say_nothing(tmp_path: Path, counting: int) -> None:
    stat = tmp_path / "stat"
    texts = ["cpu  1000 50 300 9000 200 10 40\n"] * 2
    texts[counting] = FIRST
    stat.write_text(texts[0])
    stolen = StolenTime(stat)
    stat.write_text(texts[1])
    assert stolen.share() is None


def test_what_was_measured_meanwhile_says_so() -> None:
    points = {(0, 1): line(40e-6, 1e6)}
    cluster, _ = apply(PAIR, measurement(points, stolen_share=0.034), "on paper")
    assert cluster.sources[-1] == "the machine's host took 3.4% of its core time meanwhile"
    assert "host took" not in "".join(apply(PAIR, measurement(points), "on paper")[0].sources)
    assert stolen_words(None) == ""


def test_an_execution_keeps_its_share_and_older_files_have_none(tmp_path: Path) -> None:
    timeline = Timeline(start_s=np.zeros(2), end_s=np.ones(2))
    execution = Execution(steps_s=(1.0,), losses=(), sent_bytes=np.zeros(2), timeline=timeline)
    for share in (None, 0.25):
        write_execution(replace(execution, stolen_share=share), tmp_path / "run.npz")
        assert read_execution(tmp_path / "run.npz").stolen_share == share


def with_share(error: float, share: float | None) -> ValidatedRun:
    run = outcome(error)
    return replace(run, rounds=tuple(replace(made(each.step_s), stolen_share=share) for each in run.rounds))


def test_disturbed_runs_are_reported_apart_and_still_count() -> None:
    runs = [with_share(-0.20, 0.05), with_share(0.02, 0.001), with_share(0.04, None)]
    assert [run.disturbed for run in runs] == [True, False, False]
    assert [run.stolen_share for run in runs] == [0.05, 0.001, None]
    field = [replace(run, case=replace(run.case, model=f"m:NETWORK_7_{i}")) for i, run in enumerate(runs)]
    software = {"torch": "2", "python": "3"}
    table = tables.field(Validation(machine="a CPU", cores=2, software=software, outcomes=tuple(field)))
    assert "| whose host took over 2% of the core time | 1 | 20.0% | -20.0% |" in table
    assert "| all others | 2 | 3.0% | +3.0% |" in table
    assert "| **all** | 3 | 8.7% | -4.7% |" in table
    assert "Of their core time the machine's host took 2.6% in the median of 6 runs, at most 5.0%." in table
    calm = tables.field(Validation(machine="a CPU", cores=2, software=software, outcomes=(field[2],)))
    assert "host" not in calm
