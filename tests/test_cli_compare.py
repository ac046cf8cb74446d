"""shardscope compare: a row for each strategy, best first, and a reason where one cannot be built."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command_line import REPORT_KEYS, report, shardscope, written_tiny


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    return written_tiny(tmp_path)


def test_compare_ranks_by_step_time(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = report(capsys, "compare", tiny, "--cluster", "cpu-1g", "--strategies", "model,data,pipeline")["strategies"]
    steps = [row["report"]["step_s"] for row in rows]
    assert steps == sorted(steps)
    assert {row["strategy"] for row in rows} == {"data", "model", "pipeline"}
    assert all(row["report"].keys() >= REPORT_KEYS for row in rows)


def test_compare_gives_micro_batches_to_pipelines_only(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("compare", tiny, "--cluster", "cpu-1g", "--strategies", "data,model,pipeline", "--microbatches", 8)
    rows = report(capsys, *command)["strategies"]
    parts = {row["strategy"]: row["report"]["microbatches"] for row in rows}
    assert parts == {"data": 1, "model": 1, "pipeline": 8}


def test_a_strategy_that_cannot_be_built_is_a_row_with_its_reason(
    tiny: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ("--devices", 6, "--strategies", "data,model", "--set", "judged=false")
    command = ("compare", tiny, "--cluster", "cpu-1g", *settings)
    rows = report(capsys, *command)["strategies"]
    assert [row["strategy"] for row in rows] == ["data", "model"]
    assert "4 layers" in rows[1]["error"]
    assert shardscope(*command) == 0
    text = capsys.readouterr().out
    assert re.search(r"^model .* cannot be built", text, re.MULTILINE)
    assert re.search(r"^model: .*4 layers", text, re.MULTILINE)


def test_compare_fails_when_no_strategy_can_be_built(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    settings = ("--devices", 6, "--strategies", "model", "--set", "judged=false")
    assert shardscope("compare", tiny, "--cluster", "cpu-1g", *settings) == 2
    out, err = capsys.readouterr()
    assert out == "" and "6 devices need 6 stages, but 'tiny' has 4 layers" in err


def test_compare_takes_every_strategy_of_the_folder(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    import partitioners

    rows = report(capsys, "compare", tiny, "--cluster", "cpu-1g", "--devices", 2)["strategies"]
    assert {row["strategy"] for row in rows} == set(partitioners.strategies()) - set(partitioners.BASELINES)


def test_compare_writes_a_trace_of_the_best(tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "best.json"
    command = ("compare", tiny, "--cluster", "cpu-1g", "--strategies", "data,model", "--trace-out", trace)
    rows = report(capsys, *command)["strategies"]
    events = json.loads(trace.read_text())["traceEvents"]
    last = max(event["ts"] + event["dur"] for event in events if event["ph"] == "X")
    assert last * 1e-6 == pytest.approx(rows[0]["report"]["step_s"], rel=1e-5)


def test_what_does_not_fit_is_said(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    batch = ("--batch-size", 2**21, "--microbatches", 1)
    command = ("compare", tiny, "--cluster", "t4-g4dn", *batch, "--strategies", "data")
    assert shardscope(*command) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert re.search(r"data \(as megatron\): does not fit: \S*gpu0 needs ", text)


def test_a_row_has_the_name_that_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """Recomputation, without which data parallelism does not fit here, is megatron's option."""
    command = ("compare", "bert_large_v100", "--cluster", "p3-16xlarge", "--devices", 8, "--strategies", "data")
    (row,) = report(capsys, *command)["strategies"]
    assert row["strategy"] == "data" and row["report"]["strategy"] == "data (as megatron)"
    assert {"--strategy", "megatron", "recomputation=selective"} <= set(row["simulate"].split())
    assert shardscope(*command) == 0
    assert "best: data (as megatron), recomputation selective, step" in capsys.readouterr().out
