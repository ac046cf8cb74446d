"""Asking a sweep: rankings, who leads where, fronts, charts, files, and the commands around them."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from command_line import shardscope
from small_networks import chain

from simulator import files
from simulator.cli._results import print_rows
from simulator.errors import InputError, UnknownNameError
from simulator.sweep.chart import Chart, Series, chart, chart_text, column_title, value_text
from simulator.sweep.export import figure, write_parquet, write_png
from simulator.sweep.queries import Lead, across, best, leads, pareto

SWEEP = """schema: 1
parameters:
  profile: {profile}
  cluster: gcp-v100
  devices: [2, 4]
  strategy: [data, pipeline]
  inter_bandwidth_bytes_per_s: 1Mbps..1Gbps by x10
  microbatches: [1, 4]
where: [microbatches == 1 or strategy == 'pipeline']
"""


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished sweep of 24 points; beside it the sweep's file."""
    folder = tmp_path_factory.mktemp("sweep")
    files.write_profile(chain([0.1, 0.2, 0.3, 0.2]), folder / "chain.json")
    (folder / "sweep.yaml").write_text(SWEEP.format(profile=folder / "chain.json"))
    assert shardscope("sweep", folder / "sweep.yaml", "--output", folder / "out", "--jobs", 1) == 0
    return folder / "out"


def rows(*pairs: tuple[float, float]) -> list[dict[str, float]]:
    return [{"step_s": x, "samples_per_s": y, "number": number} for number, (x, y) in enumerate(pairs)]


def numbers(selected: Sequence[Any]) -> list[int]:
    return [row["number"] for row in selected]


def test_front_of_two_costs() -> None:
    points = [
        {"step_s": x, "tasks": y, "number": i} for i, (x, y) in enumerate([(3, 1), (1, 3), (2, 2), (2, 3), (3, 3)])
    ]
    assert numbers(pareto(points, "step_s", "tasks")) == [1, 2, 0]


def test_front_knows_where_more_is_better() -> None:
    assert numbers(pareto(rows((1, 5), (2, 9), (3, 9), (2, 4)), "step_s", "samples_per_s")) == [0, 1]


def test_front_keeps_one_of_equals_and_leaves_out_what_is_empty() -> None:
    points: list[dict[str, Any]] = [*rows((1, 5), (1, 5)), {"step_s": 0.5, "samples_per_s": None, "number": 2}]
    assert numbers(pareto(points, "step_s", "samples_per_s")) == [0]
    assert pareto([], "step_s", "samples_per_s") == []
    with pytest.raises(UnknownNameError, match="unknown column 'steps', did you mean 'step_s'"):
        pareto(points, "steps", "samples_per_s")


def test_who_leads_where() -> None:
    groups = {
        "data": [{"speed": s, "step_s": t} for s, t in ((1, 9), (2, 5), (4, 1))],
        "pipeline": [{"speed": s, "step_s": t} for s, t in ((1, 4), (2, 4), (4, 4))],
    }
    assert leads(groups, "speed", "step_s") == [
        Lead(name="pipeline", first=1, last=2),
        Lead(name="data", first=4, last=4),
    ]


def test_best_of_each_value_and_group() -> None:
    ranked = [
        {"strategy": s, "devices": d, "n": n} for n, (s, d) in enumerate([("a", 4), ("a", 2), ("b", 4), ("a", 4)])
    ]
    groups = across(ranked, "devices", "strategy")
    assert {name: [row["n"] for row in of] for name, of in groups.items()} == {"a": [1, 0], "b": [2]}
    with pytest.raises(InputError, match="strategy is 'a': results are shown across a number"):
        across(ranked, "strategy", "devices")
    with pytest.raises(UnknownNameError, match="unknown column 'device'"):
        across(ranked, "device", "strategy")


def test_best_is_sorted_and_filtered(swept: Path) -> None:
    ranked = best(swept, "step_s")
    assert len(ranked) == 24
    assert [row["step_s"] for row in ranked] == sorted(row["step_s"] for row in ranked)
    fastest = best(swept, "samples_per_s", ("devices = 2",))
    assert {row["devices"] for row in fastest} == {2}
    assert [row["samples_per_s"] for row in fastest] == sorted((r["samples_per_s"] for r in fastest), reverse=True)


def test_the_table_cannot_be_changed_by_a_question(swept: Path) -> None:
    with pytest.raises(InputError):
        best(swept, "step_s", ("1); DELETE FROM points; SELECT (1",))
    assert len(best(swept, "step_s")) == 24


def test_a_chart_is_logarithmic_where_values_span_much() -> None:
    groups = {"a": [{"x": 1, "y": 1.0}, {"x": 100, "y": 2.0}], "b": [{"x": 10, "y": 0.5}]}
    scatter = chart("t", groups, "x", "y", joined="a")
    assert (scatter.x_log, scatter.y_log) == (True, False)
    assert [series.joined for series in scatter.series] == [True, False]
    drawing = figure(scatter)
    assert drawing["layout"]["xaxis"]["type"] == "log" and drawing["layout"]["yaxis"]["type"] == "linear"
    assert [trace["mode"] for trace in drawing["data"]] == ["lines+markers", "markers"]
    assert drawing["data"][0]["x"] == [1.0, 100.0]


def test_a_narrow_table_of_rows_keeps_what_is_sought(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("simulator.cli._tables.PLAIN_WIDTH", 40)
    row = {"strategy": "data", "samples_per_s": 12.0, "step_s": 0.5, "bottleneck": "inter"}
    print_rows("of 1", [row], list(row), ("samples_per_s",))
    head, *_, last = capsys.readouterr().out.splitlines()
    assert head.split() == ["of", "1", "strategy", "samples/s", "step"]
    assert last == "left out to fit 40 columns: bottleneck; --json has them"


def test_a_chart_drawn_in_characters() -> None:
    two = (Series(name="up", x=(0, 5, 10), y=(0, 1, 2)), Series(name="flat", x=(0, 10), y=(1, 1)))
    assert chart_text(Chart(title="", x="devices", y="tasks", series=two), width=11, height=3).splitlines() == [
        "tasks over devices",
        "2 |          o",
        "  |+    o    +",
        "0 |o",
        "  +-----------",
        "   0        10",
        "   o up   + flat",
    ]


@pytest.mark.parametrize(
    ("column", "value", "text", "head"),
    [
        ("step_s", 0.0123, "12.3 ms", "step"),
        ("samples_per_s", 1213.4, "1213", "samples/s"),
        ("peak_memory_bytes", 2**30, "1.00 GiB", "peak memory"),
        ("inter_bandwidth_bytes_per_s", 1.25e9, "10.0 Gbit/s", "inter bandwidth"),
        ("dollars_per_step", 7.25e-5, "$7.25e-05", "dollars per step"),
        ("dollars_per_sample", 4.5e-6, "$4.5", "$/million samples"),
        ("microbatches", None, "-", "microbatches"),
        ("tasks", 12345, "12,345", "tasks"),
    ],
)
def test_values_for_a_person(column: str, value: Any, text: str, head: str) -> None:
    assert (value_text(column, value), column_title(column)) == (text, head)


def test_sweep_command_says_how_many_and_where_the_time_went(
    swept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = swept.parent / "sweep.yaml"
    assert shardscope("sweep", file, "--dry-run", "--json") == 0
    estimate = json.loads(capsys.readouterr().out)
    assert estimate["points"] == 24 and estimate["estimate_s"] > 0
    assert [point["number"] for point in estimate["first"]] == [0, 1, 2, 3, 4]
    assert shardscope("sweep", file, "--output", tmp_path / "out", "--jobs", 1, "--json") == 0
    account = json.loads(capsys.readouterr().out)
    assert (account["points"], account["ran"], account["done"]) == (24, 24, 24)
    assert set(account["stage_wall_s"]) == {"partition", "lower", "simulate", "measure"}
    assert shardscope("sweep", file, "--output", tmp_path / "out", "--resume") == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("24 points: 24 done\n") and not captured.err


def test_best_command_answers_from_where_to_where(swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    across_bandwidth = ("best", swept, "--across", "inter_bandwidth_bytes_per_s")
    assert shardscope(*across_bandwidth, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert [len(printed["groups"][name]) for name in ("data", "pipeline")] == [4, 4]
    assert printed["leads"][0]["first"] == 1.25e5 and printed["leads"][-1]["last"] == 1.25e8
    assert shardscope(*across_bandwidth) == 0
    out = capsys.readouterr().out
    assert " leads at 1.00 Mbit/s to 1.00 Gbit/s" in out
    assert "step over inter bandwidth (" in out


def test_the_best_command_ranks_and_filters(swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shardscope("best", swept, "--top", 3, "--objective", "memory") == 0
    out = capsys.readouterr().out
    assert out.startswith("of 24") and "peak memory" in out.splitlines()[0]
    for command in ("best", "pareto"):
        assert shardscope(command, swept, "--top", 1, "--json") == 0
        assert len(json.loads(capsys.readouterr().out)["points"]) == 1
    assert shardscope("best", swept, "--where", "devices = 3") == 0
    assert "no point ran" in capsys.readouterr().out


def test_best_by_cost_asks_for_prices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files.write_profile(chain([0.1, 0.2]), tmp_path / "chain.json")
    text = "schema: 1\nparameters: {profile: PROFILE, cluster: cpu-1g, devices: [2], strategy: [data]}\n"
    (tmp_path / "sweep.yaml").write_text(text.replace("PROFILE", str(tmp_path / "chain.json")))
    assert shardscope("sweep", tmp_path / "sweep.yaml", "--output", tmp_path / "out", "--jobs", 1) == 0
    assert shardscope("best", tmp_path / "out", "--objective", "cost") == 2
    assert "no cluster of this sweep has prices; add dollars_per_hour" in capsys.readouterr().err


def test_a_files_suffix_says_what_is_written(swept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("rows.csv", "plot.html")
    outputs = [part for name in names for part in ("--output", tmp_path / name)]
    assert shardscope("best", swept, *outputs) == 0
    with (tmp_path / "rows.csv").open() as stream:
        table = list(csv.DictReader(stream))
    assert [float(row["step_s"]) for row in table] == [row["step_s"] for row in best(swept, "step_s")]
    page = (tmp_path / "plot.html").read_text()
    assert "Plotly.newPlot" in page and 'src="http' not in page
    assert shardscope("best", swept, "--output", tmp_path / "rows.xls") == 2
    assert "its suffix says what to write, one of .csv, .parquet, .html, .png" in capsys.readouterr().err


def test_a_chart_is_written_as_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra `png`: make test installs it")
    write_png(chart("t", {"a": [{"x": 1, "y": 2.0}, {"x": 2, "y": 30.0}]}, "x", "y"), tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_rows_survive_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra `parquet`")
    table = [{"name": "a", "step_s": 1.5, "fits": None}, {"name": "b", "step_s": 2.5, "fits": 1}]
    write_parquet(table, tmp_path / "rows.parquet")
    assert parquet.read_table(tmp_path / "rows.parquet").to_pylist() == table


def test_the_pareto_command_prints_the_front(swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shardscope("pareto", swept, "--json") == 0
    front = json.loads(capsys.readouterr().out)["points"]
    steps, peaks = ([row[name] for row in front] for name in ("step_s", "peak_memory_bytes"))
    assert steps == sorted(steps) and peaks == sorted(peaks, reverse=True)
    assert shardscope("pareto", swept, "--x", "samples_per_s", "--y", "communication_bytes") == 0
    assert "o front" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (("best", "nowhere"), "nowhere holds no sweep"),
        (("sweep", "nowhere.yaml", "--output", "x"), "nowhere.yaml: No such file"),
        (("best", "OUT", "--objective", "stepp"), "unknown column 'stepp', did you mean 'step_s'?"),
        (("best", "OUT", "--objective", "status"), "status is 'done': points are compared by a column of numbers"),
        (("pareto", "OUT", "--x", "status"), "status is 'done': points are compared by a column of numbers"),
        (("pareto", "OUT", "--y", "strategy"), "strategy is 'data': points are compared by a column of numbers"),
        (("best", "OUT", "--where", "devics = 2"), "no such column 'devics', did you mean 'devices'?"),
        (("sweep", "FILE"), "output is missing"),
        (("sweep", "FILE", "--output", "OUT"), "add --resume"),
        (("sweep", "FILE", "--output", "OUT/../new", "--scheduler", "nonsense"), "scheduler nonsense does not answer"),
    ],
)
def test_mistakes_are_refused_in_one_line(
    swept: Path, command: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"OUT": str(swept), "FILE": str(swept.parent / "sweep.yaml"), "OUT/../new": str(swept.parent / "new")}
    assert shardscope(*(names.get(part, part) for part in command)) == 2
    error = capsys.readouterr().err
    assert complaint in error and error.count("\n") == 1
