"""shardscope model and compare of cards: ranked grids with a launch command, profiles, calibration."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from simulator.cli import main
from simulator.files import read_profile
from simulator.language_models.modelled_profile import read_profile_or_card
from simulator.language_models.training_stack import nearest_stack, read_stack, stack_of_runtime

ROW = "1B,4,2048,16,8192,32768,2048,0"
HEADER = "model,layers,hidden,heads,ffn,vocab,seq,tied_embeddings,dp,tp,pp,zero,mbs,grad_acc,step_s,mem_gb"


def test_cards_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model"]) == 0
    text = capsys.readouterr().out
    assert "llama3-70b" in text and "2 of 8 experts" in text and "8.03 billion parameters" in text


COMPARED = ("--cluster", "dgx-h100", "--devices", "8", "--batch-size", "16", "--sequence", "4096")


def test_grids_of_a_card_are_ranked_and_the_best_is_launched(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["compare", "llama3-8b", *COMPARED, "--strategies", "data,megatron"]
    assert main([*asked, "--top", "3", "--runtime", "torchtitan"]) == 0
    text = capsys.readouterr().out
    assert "modelled, not measured: fsdp-h100" in text and "off at the median of" in text
    assert "data 8 x ZeRO-0: needs at least 1" in text  # 18 bytes for each of 8 billion parameters
    assert main([*asked, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    best = printed["grids"][0]
    assert best["data"] * best["context"] * best["tensor"] * best["pipeline"] == 8
    assert best["low_s"] < best["step_s"] < best["high_s"] and 0 < best["peak_bytes"] < 80 * 2**30
    assert f"tensor_parallel_degree {best['tensor']}" in text
    assert best["fit"] in ("fits", "border") and printed["bounded"]["no_step_below_s"] > best["step_s"]
    assert "fsdp" not in {row["strategy"] for row in printed["grids"]}


@pytest.mark.parametrize(
    ("strategy", "runtime", "cluster", "said"),
    [
        ("megatron", None, "dgx-h100", True),
        ("megatron", "megatron", "dgx-h100", False),
        ("fsdp", None, "dgx-h100", False),
        ("fsdp", None, "dgx-h200", False),
    ],
)
def test_a_launch_by_other_software_than_was_predicted_says_so(
    strategy: str, runtime: str | None, cluster: str, said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["compare", "llama3-1b", *COMPARED, "--cluster", cluster, "--strategies", strategy, "--top", "1"]
    assert main([*asked, *(["--runtime", runtime] if runtime else [])]) == 0
    hint = "# steps above are by fsdp-h100; compare --runtime megatron predicts those of:\n# Megatron-LM"
    text = capsys.readouterr().out
    assert (hint in text) == ("steps above" in text) == said


@pytest.mark.parametrize(
    ("gpu", "stack"),
    [("v100", "fsdp-a100"), ("a100-40", "fsdp-a100"), ("h100", "fsdp-h100"), ("b200", "fsdp-h100")],
)
def test_the_stack_is_that_of_the_nearest_gpu(gpu: str, stack: str) -> None:
    """Plain torch asked for by name is the same as where nobody asks."""
    assert nearest_stack(gpu).name == stack_of_runtime("torchtitan", gpu) == stack_of_runtime("fsdp2", gpu) == stack
    assert stack_of_runtime("megatron", gpu) == "megatron-a100" and stack_of_runtime("ddp", gpu) is None
    assert stack_of_runtime("nemo", gpu) == "nemo-h100"


def test_a_card_is_modelled_on_the_gpus_of_its_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    card = tmp_path / "small.yaml"
    card.write_text(
        "schema: 1\nname: small\nlayers: 8\nhidden: 4096\nheads: 32\nffn: 16384\nvocabulary: 256\nsequence: 2048\n"
    )
    steps_s = {}
    for cluster in ("dgx-a100", "dgx-h100"):
        plan = str(tmp_path / f"{cluster}.json")
        asked = ("--cluster", cluster, "--devices", "1", "--strategy", "data", "--plan-out", plan, "--json")
        assert main(["simulate", str(card), *asked]) == 0
        steps_s[cluster] = json.loads(capsys.readouterr().out)["step_s"]
        assert main(["explain", plan, "--cluster", cluster, "--devices", "1", "--profile", str(card), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["report"]["step_s"] == steps_s[cluster]
    # 312 x 0.82 against 989 x 0.72 x 0.93 TFLOP/s in matrix products, 2.0 against 3.35 TB/s beside them
    assert 1.4 < steps_s["dgx-a100"] / steps_s["dgx-h100"] < 2.6


def test_a_runtime_gets_the_best_grid_that_it_can_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "llama3-8b", *COMPARED, "--strategies", "fsdp,megatron", "--runtime", "nanotron"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("best: data") and "ZeRO-3" not in text  # which nanotron has not
    assert "zero_stage: 1" in text
    assert main(["compare", "llama3-8b", *COMPARED, "--zero", "3", "--runtime", "nanotron"]) == 2
    assert "nanotron has ZeRO-0 and -1" in capsys.readouterr().err


def test_a_card_stands_for_a_profile(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    card = tmp_path / "tiny.yaml"
    card.write_text("schema: 1\nname: tiny\nlayers: 2\nhidden: 64\nheads: 4\nffn: 128\nvocabulary: 256\nsequence: 64\n")
    asked = ["simulate", str(card), "--cluster", "dgx-h100", "--devices", "4", "--strategy", "megatron"]
    assert main([*asked, "--set", "tensor=2", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["step_s"] > 0 and "modelled, not measured" in captured.err


def test_a_profile_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "gpt2.json"
    assert main(["model", "gpt2", "--output", str(path), "--batch-size", "4", "--device", "a100"]) == 0
    assert "modelled" in capsys.readouterr().out
    profile = read_profile(path)
    assert profile.batch_size == 4 and profile.device == "NVIDIA A100 80GB SXM4" and "not measured" in profile.notes


def test_a_modelled_profile_says_the_command_that_makes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = read_profile_or_card("gpt2", sequence=512, precision="fp8")
    assert main(shlex.split(shown.command)[1:]) == 0
    made = read_profile("profile.json")
    assert (made.layers, made.batch_size, made.device) == (shown.layers, shown.batch_size, shown.device)


def test_a_stack_is_calibrated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs, path = tmp_path / "runs.csv", tmp_path / "stack.json"
    grids = ("2,1,1,0,1,1,0.1,20", "1,2,1,0,2,1,0.2,20")
    runs.write_text("\n".join([HEADER, *(f"{ROW},{grid}" for grid in grids)]))
    assert main(["model", "--calibrate", str(runs), "--cluster", "dgx-h100", "--stack-output", str(path)]) == 0
    assert "hardly told by these steps" in capsys.readouterr().out
    assert read_stack(path).device != read_stack("nanotron-h100").device


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model", "llama4"], "unknown model card"),
        (["model", "llama3-8b", "--stack", "nemo"], "unknown training stack"),
        (["model", "llama3-8b", "--device", "h1"], "unknown accelerator"),
        (["compare", "llama3-405b", "--cluster", "dgx-h100"], "no grid of them fits llama3-405b"),
        (["compare", "llama3-8b", "--cluster", "cpu-1g"], "a model card needs one kind of"),
        (["compare", "llama3-8b", "--cluster", "dgx-h100", "--sync", "ring"], "--sync: has no effect on the grids"),
        (["compare", "llama3-8b", "--cluster", "dgx-h100", "--strategies", "owt"], "unknown strategy of model cards"),
        (["compare", "llama3-8b", "--cluster", "dgx-h100", "--runtime", "nemo"], "unknown runtime"),
        (["compare", "vgg_digits", "--cluster", "cpu-1g", "--sequence", "8"], "counts only where PROFILE is a model"),
    ],
)
def test_wrong_requests_are_named(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert message in capsys.readouterr().err
