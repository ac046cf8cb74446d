"""`partition` and `explain`, as a user runs them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import report
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


def test_rows_of_repeated_blocks_are_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """GPT-2 medium has 24 blocks; between two of them a run of layers begins in one and ends in the next."""
    plan = str(tmp_path / "plan.json")
    made = ["partition", "gpt2-medium", "--cluster", "dgx-h100", "--devices", "4", "--strategy", "megatron"]
    assert run(capsys, *made, "--set", "tensor=4", "--output", plan)[0] == 0
    _, out, _ = run(capsys, "explain", plan)
    assert len(out.splitlines()) < 40 and re.search(r"^blocks\.0-22\.\w+ \.\. blocks\.1-23\.\w+  ", out, re.MULTILINE)
    assert re.search(r"^blocks\.0-23\.down: .* activations", out, re.MULTILINE)
    _, out, _ = run(capsys, "explain", plan, "--verbose")
    assert len(out.splitlines()) > 24 * 7 and "0-22" not in out and "more that send less" not in out


def test_explain_asks_for_a_cluster_when_the_plan_names_none(
    profile: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = str(tmp_path / "plan.json")
    main(["partition", profile, "--cluster", "cpu-1g", "--devices", "2", "--strategy", "data", "--output", plan])
    files.write_plan(replace(files.read_plan(plan), command=""), plan)
    capsys.readouterr()
    for command, remedy in (
        (["explain", plan], "say --cluster and --profile"),
        (["explain", plan, "--cluster", "cpu-1g"], "the plan, of chain, does not record of which it was made"),
        (["export", plan, "--to", "ddp", "--output", "x.py"], "it was made; say --profile"),
        (["export", plan, "--to", "chakra", "--output", "x"], "simulate --plan FILE --plan-out FILE writes one that"),
    ):
        code, out, err = run(capsys, *command)
        assert (code, out) == (2, "") and remedy in err and err.count("\n") == 1
    code, out, _ = run(capsys, "explain", plan, "--profile", profile, "--cluster", "cpu-1g", "--devices", "2")
    assert code == 0 and "2 by sample on devices 0-1" in out


@pytest.mark.parametrize(
    "made",
    [
        ["simulate", "resnet50_v100", "--strategy", "data"],
        ["accumulate", "resnet50_v100", "--batch-size", "128"],
        ["search", "resnet50_v100", "--budget", "1s"],
    ],
)
def test_what_writes_a_plan_records_how(made: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The profile too, beside another of the same model, resnet50, 100 times as slow."""
    plan, on = str(tmp_path / "plan.json"), ["--cluster", "p3-8xlarge", "--devices", "4"]
    assert main([*made, *on, "--plan-out", plan]) == 0
    capsys.readouterr()
    step_s = pytest.approx(report(capsys, "simulate", "resnet50_v100", *on, "--plan", plan)["step_s"], rel=1e-9)
    assert report(capsys, "explain", plan, *on)["report"]["step_s"] == step_s
    assert report(capsys, "--timeout", "10min", "explain", plan)["report"]["step_s"] == step_s
    script, traces = tmp_path / "train.py", tmp_path / "traces"
    assert main(["export", plan, "--to", "chakra", "--output", str(traces), "--ranks", "0"]) == 0
    if made[0] != "search":  # which may find what DDP cannot run
        named = ["--model", "mine:net", "--input-shape", "3x224x224"]
        assert main(["export", plan, "--to", "ddp", *named, "--output", str(script)]) == 0
        assert float(script.read_text().partition("PREDICTED_S = ")[2].split()[0]) == step_s


def test_a_plan_simulated_elsewhere_records_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = str(tmp_path / "a.json"), str(tmp_path / "b.json")
    made = ["--cluster", "cpu-1g", "--devices", "2", "--strategy", "data", "--output", first]
    assert main(["partition", "vgg_digits", *made]) == 0
    capsys.readouterr()
    elsewhere = ["--cluster", "gcp-v100", "--devices", "2", "--plan", first, "--plan-out", second]
    step_s = pytest.approx(report(capsys, "simulate", "vgg_digits", *elsewhere)["step_s"], rel=1e-9)
    assert report(capsys, "explain", second)["report"]["step_s"] == step_s
    assert report(capsys, "explain", first)["report"]["step_s"] != step_s


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
