"""`partition` and `explain`, as a user runs them."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_closed_forms import chain

from simulator import files
from simulator.cli import main


@pytest.fixture
def profile(tmp_path: Path) -> str:
    path = str(tmp_path / "chain.json")
    files.write_profile(chain(6), path)
    return path


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(argv)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_partition_writes_a_plan_that_explain_reads_alone(
    profile: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, hgr = str(tmp_path / "plan.json"), tmp_path / "shards.hgr"
    made = ["partition", profile, "--cluster", "gcp-v100", "--devices", "2", "--strategy", "pipeline"]
    code, out, _ = run(capsys, *made, "--microbatches", "4", "--output", plan, "--hgr", str(hgr))
    assert code == 0
    assert out.splitlines()[0].startswith("chain, pipeline: step ")
    assert hgr.read_text().split()[1] == "6"  # vertices
    code, out, _ = run(capsys, "explain", plan)
    assert code == 0
    assert f"made by: shardscope {' '.join(made)}" in out
    assert "l0 .. l2 whole on device 0" in " ".join(out.split())
    assert "l2: " in out and "activations" in out
    assert "devices twice as fast: " in out


def test_explain_asks_for_a_cluster_when_the_plan_names_none(
    profile: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = str(tmp_path / "plan.json")
    main(["simulate", profile, "--cluster", "cpu-1g", "--devices", "2", "--strategy", "data", "--plan-out", plan])
    capsys.readouterr()
    code, out, err = run(capsys, "explain", plan)
    assert (code, out) == (2, "")
    assert "say --cluster and --profile" in err and err.count("\n") == 1
    code, out, _ = run(capsys, "explain", plan, "--profile", profile, "--cluster", "cpu-1g", "--devices", "2")
    assert code == 0 and "2 by sample on devices 0-1" in out


def test_strategy_options_reach_the_strategy(profile: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = str(tmp_path / "plan.json")
    base = ["partition", profile, "--cluster", "cpu-1g", "--devices", "2", "--strategy", "hypergraph", "--output", plan]
    code, _, _ = run(capsys, *base, "--effort", "0.05", "--set", "grid=4x1", "--set", "others=false")
    assert code == 0
    assert files.read_plan(plan).placements["l0"].degrees == (4, 1, 1, 1)


@pytest.mark.parametrize(
    ("extra", "complaint"),
    [
        (["--set", "grit=4x1"], "has no such option, did you mean grid?"),
        (["--set", "grid"], "is not NAME=VALUE"),
        (["--set", "imbalance=-1"], "imbalance is -1"),
        (["--set", "objective=speed"], "it is 'step' or 'volume'"),
        (["--effort", "0"], "is not a number above 0"),
        (["--set", "grid=0x2"], "grid is"),
        (["--set", "grid=7"], "grid is 7"),
        (["--set", "others=perhaps"], "--set others: 'perhaps' is neither true nor false"),
    ],
)
def test_wrong_options_are_one_line(
    profile: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], extra: list[str], complaint: str
) -> None:
    plan = tmp_path / "plan.json"
    base = ["partition", profile, "--cluster", "cpu-1g", "--devices", "2", "--strategy", "hypergraph"]
    try:
        code = main([*base, "--output", str(plan), *extra])
    except SystemExit as ended:  # argparse's own complaints
        code = int(str(ended.code))
    err = capsys.readouterr().err
    assert code == 2
    assert complaint in err and err.count("\n") == 1
    assert not plan.exists()
