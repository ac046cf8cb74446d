"""Running a sweep: the same table whatever the workers, the deaths and the interruptions."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sweep_strategies
from conftest import ROOT
from small_networks import chain, network

import partitioners
from partitioners import options, strategies
from partitioners._layerwise import optcnn
from simulator import files
from simulator.errors import InputError
from simulator.network.catalogue import read_cluster
from simulator.plan import StepSettings
from simulator.run import _lowered, run
from simulator.sweep.engines import Dask, Processes
from simulator.sweep.evaluate import PointResult, SweepContext, evaluate
from simulator.sweep.inputs import load_inputs
from simulator.sweep.points import Point, Points, expand
from simulator.sweep.results_table import ResultsTable, read_only
from simulator.sweep.specification import Specification
from simulator.sweep.sweeping import Pace, context_of, lots, run_sweep
from simulator.version import version


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "chain.json"
    files.write_profile(chain([1.0, 2.0, 3.0]), path)
    return path


def table(folder: Path) -> list[tuple[Any, ...]]:
    with read_only(folder) as connection:
        return [tuple(row) for row in connection.execute("SELECT * FROM points ORDER BY number")]


def sweep(points: Points, folder: Path, jobs: int = 2, resume: bool = False) -> list[tuple[Any, ...]]:
    run_sweep(points, sweep_strategies.make_plan, folder, partial(Processes, jobs=jobs), ignore, resume=resume)
    return table(folder)


def ignore(results: list[PointResult], pace: Pace) -> None:
    """Watch nothing."""


def context(points: Points) -> SweepContext:
    return context_of(points, sweep_strategies.make_plan)


def column(folder: Path, name: str) -> list[Any]:
    with read_only(folder) as connection:
        return [row[0] for row in connection.execute(f"SELECT {name} FROM points ORDER BY number")]


def test_a_row_holds_what_the_simulator_says(profile: Path, tmp_path: Path) -> None:
    points = sweep_strategies.points(profile, devices=3, inter_latency_s="1ms", intra_latency_s="2ms")
    (row,) = sweep(points, tmp_path / "out", jobs=1)
    cluster = read_cluster("gcp-v100", devices=3)
    cluster = cluster.with_tier("inter", latency_s=1e-3).with_tier("intra", latency_s=2e-3)
    read = files.read_profile(profile)
    report = run(read, cluster, sweep_strategies.make_plan("turns", read, cluster, StepSettings(batch_size=24))).report
    with read_only(tmp_path / "out") as connection:
        stored = dict(connection.execute("SELECT * FROM points").fetchone())
    assert stored["step_s"] == report.step_s > 6
    assert stored["communication_bytes"] == report.communication_bytes.total > 0
    assert (stored["status"], stored["error"], stored["fits"]) == ("done", "", 1)
    assert stored["inter_latency_s"] == 1e-3
    assert re.fullmatch("[0-9a-f]{16}", stored["profile_hash"]) and stored["profile_hash"] != stored["cluster_hash"]
    assert row[0] == 0


def test_same_rows_whatever_the_number_of_workers(profile: Path, tmp_path: Path) -> None:
    points = sweep_strategies.points(profile, shift=[0, 1], microbatches=[1, 2, 4], inter_latency_s=[0, 1e-3])
    serial = sweep(points, tmp_path / "one", jobs=1)
    assert len(serial) == 12
    assert sweep(points, tmp_path / "three", jobs=3) == serial


def test_sharing_between_points_changes_no_row(tmp_path: Path) -> None:
    """Points that differ only in their links share lowered plans, routes and tables; rows are as alone."""
    specification = Specification(
        parameters={
            "inter_bandwidth_bytes_per_s": ["1Gbps", "7Gbps", "90Gbps"],
            "inter_latency_s": ["5us", "1ms"],
            "profile": "vgg_small",
            "cluster": "gcp-v100",
            "strategy": ["data", "pipeline", "layerwise", "owt"],
            "speed": [1, 30],
            "devices": 4,
        }
    )
    points = expand(specification, {name: tuple(options(name)) for name in strategies()})
    assert [len(lot) for lot in lots(points.points)] == [6] * 8
    run_sweep(points, partitioners.make_plan, tmp_path / "out", partial(Processes, jobs=2), ignore)
    with read_only(tmp_path / "out") as connection:
        rows = [dict(row) for row in connection.execute("SELECT * FROM points ORDER BY number")]
    for point, row in list(zip(points.points, rows, strict=True))[::5]:
        for cache in (optcnn._choices, optcnn._traffic, optcnn._collectives, optcnn._compute_s):
            cache.cache_clear()
        _lowered.clear()
        alone = evaluate(context_of(replace(points, inputs=load_inputs([point.values])), partitioners.make_plan), point)
        assert alone.status == row["status"] == "done"
        assert dict(alone.metrics) == {name: row[name] for name in alone.metrics}


def test_points_of_one_speed_share_what_follows_from_their_links() -> None:
    parameters = {
        "inter_bandwidth_bytes_per_s": ["1Gbps", "8Gbps"],
        "intra_latency_s": ["5us", "1ms"],
        "profile": "vgg_small",
        "cluster": "gcp-v100",
        "strategy": "data",
        "speed": 30,
        "devices": 4,
    }
    points = expand(Specification(parameters=parameters), {"data": ()})
    machine = next(iter(points.inputs.machines.values()))
    for point in points.points:
        cluster = points.inputs.cluster(point.values)
        assert cluster.ways is points.inputs.cluster(points.points[0].values).ways
        assert cluster.speeds == tuple(30 * speed for speed in machine.speeds)
        by_tier = {link.tier: link for link in cluster.links}
        assert by_tier["inter"].bandwidth_bytes_per_s == point.values["inter_bandwidth_bytes_per_s"]
        assert by_tier["intra"].latency_s == point.values["intra_latency_s"]


def test_one_bad_point_never_ends_a_sweep(profile: Path, tmp_path: Path) -> None:
    points = sweep_strategies.points(profile, strategy=["turns", "raises", "refuses", "turns"], seed=[0, 1])
    sweep(points, tmp_path / "out")
    assert column(tmp_path / "out", "status") == ["done"] * 2 + ["failed"] * 2 + ["infeasible"] * 2
    assert column(tmp_path / "out", "error")[2:5:2] == [
        "ZeroDivisionError: an accident",
        "seed is 1: this strategy never agrees",
    ]


def test_a_point_that_kills_its_worker_is_retried_twice_and_then_failed(profile: Path, tmp_path: Path) -> None:
    """Points in flight with it are not blamed."""
    only_one = ("strategy != 'dies' OR seed == 1",)
    points = sweep_strategies.points(profile, only_one, strategy=["turns", "dies", "plain"], seed=[0, 1, 2])
    sweep(points, tmp_path / "out")
    assert column(tmp_path / "out", "status") == ["done"] * 3 + ["failed"] + ["done"] * 3
    assert column(tmp_path / "out", "error")[3].startswith("its worker died 3 times: ")


def test_a_worker_that_dies_once_costs_nothing(profile: Path, tmp_path: Path) -> None:
    points = sweep_strategies.points(profile, strategy="dies_once", trace=str(tmp_path / "died"), seed=[0, 1])
    sweep(points, tmp_path / "out")
    assert (tmp_path / "died").exists()
    assert column(tmp_path / "out", "status") == ["done", "done"]


def test_fits_leaves_out_what_does_not(profile: Path, tmp_path: Path) -> None:
    changes: dict[str, dict[str, Any]] = {
        "parameters": {"parameter_bytes": 6 * 2**30},
        "saved": {"saved_bytes": 20 * 2**30},
    }
    for name, change in changes.items():
        grown = replace(chain([1.0]).layers[0], **change)
        files.write_profile(network(grown), tmp_path / f"{name}.json")
    profiles = [str(profile), str(tmp_path / "parameters.json"), str(tmp_path / "saved.json")]
    for where, statuses in (("fits",), ["done", "dropped", "dropped"]), ((), ["done"] * 3):
        folder = tmp_path / f"out{len(where)}"
        sweep(sweep_strategies.points(profile, where, profile=profiles), folder)
        assert column(folder, "status") == statuses
    assert column(tmp_path / "out1", "error")[1:] == [
        "does not fit: node0/gpu0 needs 18.0 GiB of 16.0 GiB for parameters, gradients and optimizer state alone",
        "does not fit: node0/gpu0 needs 40.0 GiB of 16.0 GiB, mostly saved activations",
    ]
    assert column(tmp_path / "out0", "fits") == [1, 0, 0]


def test_a_folder_with_a_sweep_is_not_overwritten(profile: Path, tmp_path: Path) -> None:
    points = sweep_strategies.points(profile, seed=[0, 1])
    rows = sweep(points, tmp_path / "out", jobs=1)
    with pytest.raises(InputError, match=r"holds a sweep \(2 of 2 points run\): add --resume"):
        sweep(points, tmp_path / "out")
    assert sweep(points, tmp_path / "out", resume=True) == rows
    with pytest.raises(InputError, match="holds a sweep of another list of points"):
        sweep(sweep_strategies.points(profile, seed=[0, 2]), tmp_path / "out", resume=True)
    files.write_profile(chain([1.0, 2.0, 4.0]), profile)
    with pytest.raises(InputError, match="holds a sweep of another profile"):
        sweep(sweep_strategies.points(profile, seed=[0, 1]), tmp_path / "out", resume=True)


def test_a_sweep_that_never_began_is_in_nobodys_way(profile: Path, tmp_path: Path) -> None:
    points = sweep_strategies.points(profile, seed=[0, 1])
    with closing(ResultsTable(tmp_path, points, "source", resume=False)) as results_table:
        assert results_table.pending() == {0, 1}
    other = sweep_strategies.points(profile, devices=[2, 3, 4])
    with closing(ResultsTable(tmp_path, other, "source", resume=False)) as results_table:
        assert results_table.pending() == {0, 1, 2}


def test_resume_runs_only_what_is_missing(profile: Path, tmp_path: Path) -> None:
    points = sweep_strategies.points(profile, seed="0..9")
    whole = sweep(points, tmp_path / "whole", jobs=1)
    (tmp_path / "out").mkdir()
    with closing(ResultsTable(tmp_path / "out", points, version(), resume=False)) as results_table:
        results_table.record([evaluate(context(points), point) for point in points.points[:7]])
    ran: list[int] = []
    pace = run_sweep(
        points, sweep_strategies.make_plan, tmp_path / "out", partial(Processes, jobs=1),
        lambda results, pace: ran.extend(result.number for result in results), resume=True,
    )  # fmt: skip
    assert (sorted(ran), pace.ran, pace.to_run) == ([7, 8, 9], 3, 3)
    assert table(tmp_path / "out") == whole


def test_two_sweeps_in_one_folder_are_refused(profile: Path, tmp_path: Path) -> None:
    points = sweep_strategies.points(profile, seed=[0, 1])
    started, release = threading.Event(), threading.Event()

    def hold(results: list[PointResult], pace: Pace) -> None:
        started.set()
        assert release.wait(600)

    first = threading.Thread(
        target=run_sweep, args=(points, sweep_strategies.make_plan, tmp_path / "out", partial(Processes, jobs=1), hold)
    )
    first.start()
    assert started.wait(600)
    try:
        for resume in (False, True):
            with pytest.raises(InputError, match="another sweep is running in it"):
                sweep(points, tmp_path / "out", resume=resume)
    finally:
        release.set()
        first.join()
    assert column(tmp_path / "out", "status") == ["done", "done"]


def test_a_folder_that_cannot_be_written(profile: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written"):
        sweep(sweep_strategies.points(profile), tmp_path / "file" / "out")


def test_a_full_disk_loses_nothing_that_was_written(profile: Path, tmp_path: Path) -> None:
    points = sweep_strategies.points(profile, seed="0..299")
    results = [evaluate(context(points), point) for point in points.points]
    with closing(ResultsTable(tmp_path, points, "source", resume=False)) as results_table:
        results_table.record(results[:20])
        results_table._connection.execute("PRAGMA max_page_count = 1")  # SQLite raises it to the present size
        with pytest.raises(InputError, match=r"database or disk is full; .* --resume runs the rest"):
            for result in results[20:]:
                results_table.record([result])
    with closing(ResultsTable(tmp_path, points, "source", resume=True)) as results_table:
        left = results_table.pending()
        assert 0 < len(left) <= 280 and not left & set(range(20))
        results_table.record(result for result in results if result.number in left)
        assert not results_table.pending()


SCRIPT = """
import os
import signal
import sys
import threading
from functools import partial
from pathlib import Path
import sweep_strategies
from simulator.sweep.engines import Processes
from simulator.sweep.sweeping import run_sweep
from simulator.version import version

def watch(results, pace):
    if int(sys.argv[3]) and pace.ran >= int(sys.argv[3]) and not timers:
        timers.append(threading.Timer(float(sys.argv[4]), os.kill, (os.getpid(), signal.SIGKILL)))
        timers[0].start()

if __name__ == "__main__":
    timers = []
    points = sweep_strategies.points(Path(sys.argv[1]), seed="0..79")
    run_sweep(points, sweep_strategies.make_plan, Path(sys.argv[2]), partial(Processes, jobs=2), watch, resume=True)
"""


def test_killed_at_random_moments_and_resumed_the_table_is_the_same(profile: Path, tmp_path: Path) -> None:
    script, folder, drawn = tmp_path / "script.py", tmp_path / "out", random.Random(6)
    script.write_text(SCRIPT)
    for ends in (-9, -9, 0):
        killed_after = drawn.randrange(1, 20) if ends else 0
        command = [sys.executable, script, profile, folder, str(killed_after), str(drawn.uniform(0, 0.01))]
        assert subprocess.run(command, env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}).returncode == ends
        assert killed_after <= 80 - column(folder, "status").count("pending")
    points = sweep_strategies.points(profile, seed="0..79")
    assert table(folder) == sweep(points, tmp_path / "whole", jobs=2)


def test_dask_workers_give_the_same_table(profile: Path, tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="needs the extra `cluster`: make test installs it")
    points = sweep_strategies.points(profile, strategy=["turns", "raises"], microbatches=[1, 2, 4])
    start = partial(Dask, address=None, jobs=2)
    run_sweep(points, sweep_strategies.make_plan, tmp_path / "dask", start, ignore)
    assert table(tmp_path / "dask") == sweep(points, tmp_path / "processes", jobs=1)


def test_a_scheduler_that_is_not_there(profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="needs the extra `cluster`: make test installs it")
    monkeypatch.setattr("simulator.sweep.engines.CONNECT_S", 0.2)
    with pytest.raises(InputError, match=r"scheduler tcp://127\.0\.0\.1:9 does not answer"):
        Dask(context(sweep_strategies.points(profile)), "tcp://127.0.0.1:9", jobs=1)


class Vanishing:
    """An engine that runs two points and then is gone."""

    width, retries = 1, 2
    lost: tuple[type[BaseException], ...] = (ZeroDivisionError,)

    def __init__(self, context: SweepContext, last_error: BaseException | None) -> None:
        self._context, self._error, self._left = context, last_error, 2

    def submit(self, points: Sequence[Point]) -> Future[list[PointResult]]:
        future: Future[list[PointResult]] = Future()
        if self._left:
            self._left -= 1
            future.set_result([evaluate(self._context, points[0])])
        elif self._error is None:
            future.cancel()
            future.set_running_or_notify_cancel()
        else:
            future.set_exception(self._error)
        return future

    def close(self) -> None:
        """Nothing to close."""


@pytest.mark.parametrize("error", [None, RuntimeError("the scheduler\nis gone")])
def test_an_engine_that_vanishes_is_one_clear_line(profile: Path, tmp_path: Path, error: BaseException | None) -> None:
    points = sweep_strategies.points(profile, seed="0..4")
    with pytest.raises(InputError, match="the workers cannot go on") as caught:
        run_sweep(points, sweep_strategies.make_plan, tmp_path, lambda context: Vanishing(context, error), ignore)
    assert "\n" not in str(caught.value)
    assert column(tmp_path, "status") == ["done"] * 2 + ["pending"] * 3
