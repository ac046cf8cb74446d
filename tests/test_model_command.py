"""shardscope model: cards, ranked grids with a launch command, profiles, calibration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator.cli import main
from simulator.files import read_profile
from simulator.transformers.training_stack import read_stack

ROW = "8B,32,4096,32,14336,131072,4096,0"
HEADER = "model,layers,hidden,heads,ffn,vocab,seq,tied_embeddings,dp,tp,pp,zero,mbs,grad_acc,step_s,mem_gb"


def test_cards_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model"]) == 0
    text = capsys.readouterr().out
    assert "llama3-70b" in text and "2 of 8 experts" in text and "8.03 billion parameters" in text


def test_grids_are_ranked_and_the_best_is_launched(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["model", "llama3-8b", "--devices", "16", "--batch-size", "64", "--sequence", "4096", "--top", "3"]
    assert main([*asked, "--runtime", "nanotron"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("modelled, not measured") and lines[2].split()[:3] == ["data", "tensor", "pipe"]
    data, tensor, pipe = lines[3].split()[:3]
    assert int(data) * int(tensor) * int(pipe) == 16 and lines[6].startswith("left out, e.g. ")
    assert any(f"dp: {data}, tp: {tensor}, pp: {pipe}" in line for line in lines)
    assert main([*asked, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    rows = printed["grids"] if "grids" in printed else printed
    assert rows[0]["data"] == int(data) and rows[0]["low_s"] < rows[0]["step_s"] < rows[0]["high_s"]
    assert {row["fit"] for row in rows} >= {"fits", "does not fit"}
    assert rows[0]["memory_bytes"][0]["parameters"] > 0


def test_a_profile_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "gpt2.json"
    assert main(["model", "gpt2", "--output", str(path), "--batch-size", "4", "--device", "a100"]) == 0
    assert "modelled" in capsys.readouterr().out
    profile = read_profile(path)
    assert profile.batch_size == 4 and profile.device == "NVIDIA A100 80GB SXM4" and "not measured" in profile.notes


def test_a_stack_is_calibrated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs, path = tmp_path / "runs.csv", tmp_path / "stack.json"
    grids = ("4,2,1,0,1,8,3.1,60", "2,4,1,0,1,8,2.1,50", "1,8,1,0,2,8,1.6,30")
    runs.write_text("\n".join([HEADER, *(f"{ROW},{grid}" for grid in grids)]))
    assert main(["model", "--calibrate", str(runs), "--stack-output", str(path)]) == 0
    assert "hardly told by these steps" in capsys.readouterr().out
    assert read_stack(path).constants != read_stack("nanotron-h100").constants


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["llama3-8b"], "name --devices to rank grids, or --output"),
        (["llama4"], "unknown model card"),
        (["llama3-8b", "--devices", "8", "--stack", "nemo"], "unknown training stack"),
        (["llama3-8b", "--devices", "8", "--device", "h1"], "unknown accelerator"),
        (["llama3-405b", "--devices", "8"], "no grid of them fits llama3-405b"),
        (["mixtral-8x7b", "--output", "x.json"], "only dense decoders"),
        (["mixtral-8x7b", "--devices", "64"], "only dense decoders are ranked"),
    ],
)
def test_wrong_requests_are_named(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", *arguments]) == 2
    assert message in capsys.readouterr().err
