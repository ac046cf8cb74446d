"""Verdicts on runs: public cases, published runs that are as fast as they should be, causes planted and found."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import laws
import pytest

from benchmarks.accuracy import dgxc, llm_foundry, torchtitan
from simulator import cli, file_gate
from simulator.cli import _run_causes, _run_verdict, _started_run
from simulator.readers import StartedRun
from simulator.readers._log import RunLog

CASES = file_gate.yaml_content((Path(__file__).parent / "public_runs.yaml").read_text())
QUICK = [number for number, case in enumerate(CASES) if not case.get("slow")]


@pytest.mark.parametrize("case", laws.some(CASES, *QUICK), ids=lambda case: case["name"].partition(",")[0])
def test_a_public_run_gets_its_verdict(
    case: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["check"]
    if "log" in case:
        log = tmp_path / "train.log"
        log.write_text("\n".join(case["log"].replace("{n}", str(number)) for number in range(1, 6)))
        asked.append(str(log))
    if "config" in case:
        config = tmp_path / "config.json"
        config.write_text(json.dumps(case["config"]))
        asked += ["--config", str(config)]
    if "launch" in case:
        asked += ["--launch", case["launch"]]
    assert cli.main([*asked, *shlex.split(case["options"])]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(case["word"]), lines
    assert case.get("cause", "") in lines[1] if case["word"] != "as expected" else case.get("cause", "") in str(lines)


def planned(runtime: str, run: Any) -> _started_run.PlannedRun:
    asked = ["check", "--model", run.card.name, "--cluster", run.preset, "--devices", str(run.grid.devices)]
    args = cli.parse([*asked, *(("--stack", run.stack) if run.stack else ())])
    return _started_run.planned_run(StartedRun(runtime=runtime, card=run.card, grid=run.grid), args)


def test_no_alarm_on_published_runs(shared_data: Path) -> None:
    """Of all that their makers published as good, every fifth in the suite: none is called slow, or impossible."""
    published = [
        *(("megatron", run) for run in dgxc.runs()),
        *(("torchtitan", run) for run in torchtitan.runs()),
        *(("fsdp2", run) for run in llm_foundry.runs()[::8]),
    ]
    assert len(published) >= 20
    tried = laws.some(published, *range(0, len(published), 5))
    alarms = []
    for runtime, run in tried:
        verdict = _run_verdict.verdict_of(planned(runtime, run), RunLog(kind="step_s", speeds=(run.measured_s,)))
        if verdict.word in (_run_verdict.SLOWER, _run_verdict.TOO_FAST):
            alarms.append((run.name, verdict.lines[0]))
    assert len(alarms) <= len(tried) // 20 + 1, alarms  # nine of ten such steps lie inside


@pytest.mark.parametrize(
    ("name", "factor"),
    [("inter", 12.0), ("compute", 1.9), ("straggler", 1.8), ("launches", 7.0), ("checks", 3.1), ("stall", 150.0)],
)
def test_a_cause_that_was_planted_is_found_with_its_number(name: str, factor: float) -> None:
    """Of those named, the one that was planted has the number that it was planted with."""
    args = cli.parse(
        ["check", "--model", "llama3-1b", "--cluster", "dgx-h100", "--devices", "16", "--sequence", "2048"]
    )
    run = _started_run.planned(args).simulated
    cause = next(cause for cause in _run_causes.causes(run) if cause.name == name)
    step_s = cause.changed(run, factor).step_s
    tried = {each.cause.name: each for each in _run_causes.tried_causes(run, step_s)}
    assert tried[name].named and tried[name].factor == pytest.approx(factor, rel=0.06)
    assert all(each.share >= _run_causes.EXPLAINED for each in tried.values() if each.named)


TRAINED = (
    "torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py --num-layers 16 --hidden-size 2048 --swiglu "
    "--num-attention-heads 32 --group-query-attention --num-query-groups 8 --ffn-hidden-size 8192 --seq-length 2048 "
    "--max-position-embeddings 2048 --normalization RMSNorm --disable-bias-linear --position-embedding-type rope "
    "--vocab-size 128256 --tensor-model-parallel-size 8 --sequence-parallel --micro-batch-size 1 "
    "--global-batch-size 64 --bf16 --tp-comm-overlap --delay-wgrad-compute"
)


def test_a_run_that_was_started_is_simulated_and_bettered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    on = ["--cluster", "dgx-h100", "--launch", TRAINED]
    assert cli.main(["simulate", *on, "--json", "--plan-out", str(tmp_path / "plan.json")]) == 0
    printed = capsys.readouterr()
    step_s = json.loads(printed.out)["step_s"]
    assert "data 2 x tensor 8, ZeRO-0" in printed.err and "not counted: delay-wgrad-compute" in printed.err
    assert cli.main(["explain", str(tmp_path / "plan.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["report"]["step_s"] == pytest.approx(step_s, rel=1e-9)
    run = _started_run.planned(cli.parse(["check", *on]))
    assert (run.stack.name, run.simulated.step_s) == ("nemo-h100", step_s)  # for the argument --tp-comm-overlap
    assert cli.main(["compare", *on, "--budget", "1ms"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"yours {step_s:.3f} s a step; best ")
    gone, added = re.findall(r"^(?:leave out|add): (.*)$", text, re.M)
    assert "--tensor-model-parallel-size 8" in gone and "--tensor-model-parallel-size 1" in added
    assert all(option in TRAINED for option in re.split(r" (?=--)", gone))
    assert not any(option in TRAINED.split(" --") for option in added.split(" --")) and "torchrun" not in added
    assert cli.main(["compare", *on, "--budget", "1ms", "--json"]) == 0
    printed_json = json.loads(capsys.readouterr().out)
    assert printed_json["own_step_s"] == step_s > printed_json["better"][0]["step_s"]
    for command in ("simulate", "compare"):
        assert cli.main([command, *on, "--zero", "1"]) == 2
        assert "--zero: the run that was started says that" in capsys.readouterr().err
        assert cli.main([command, "--cluster", "dgx-h100"]) == 2
        assert "PROFILE is missing" in capsys.readouterr().err


def test_changes_are_of_the_lines_own_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has neither overlap, nor what it says in its own words; of a file the whole command is said."""
    own = TRAINED.replace("--bf16", "--bf16 --recompute-activations --use-distributed-optimizer")
    config = tmp_path / "ds_config.json"
    accumulated = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 8}
    config.write_text(json.dumps({"zero_optimization": {"stage": 3}, **accumulated}))
    on = ["compare", "--cluster", "dgx-h100", "--budget", "1ms"]
    assert cli.main([*on, "--launch", own]) == 0
    gone, added = re.findall(r"^(?:leave out|add): (.*)$", capsys.readouterr().out, re.M)
    assert "--recompute-activations" in gone and "--recompute-granularity" not in gone and "overlap-grad" not in gone
    assert "--use-distributed-optimizer" not in added
    assert cli.main([*on, "llama3-1b", "--config", str(config), "--devices", "16"]) == 0
    text = capsys.readouterr().out
    assert "leave out" not in text and "torchrun --nnodes 2 --nproc-per-node 8" in text


def test_sums_and_gathers_stand_alone_unless_the_line_overlaps_them() -> None:
    alone = f"{TRAINED} --use-distributed-optimizer".replace("--tensor-model-parallel-size 8", "")
    steps_s = [
        _started_run.planned(cli.parse(["check", "--cluster", "dgx-h100", "--launch", alone + more])).simulated.step_s
        for more in ("", " --overlap-grad-reduce", " --overlap-grad-reduce --overlap-param-gather")
    ]
    assert steps_s[0] > 1.03 * steps_s[1] > 1.06 * steps_s[2]


def test_a_launch_line_recomputes_latents_only_where_there_are_some(capsys: pytest.CaptureFixture[str]) -> None:
    again = " --recompute-granularity selective --recompute-modules mla_up_proj"
    assert cli.main(["simulate", "--cluster", "dgx-h100", "--launch", TRAINED + again]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "'the model of --launch' has no multi-head latent attention; leave mla_up_proj out" in said
    latent = TRAINED.replace(
        "--group-query-attention --num-query-groups 8", "--multi-latent-attention --v-head-dim 192"
    )
    assert cli.main(["simulate", "--cluster", "dgx-h100", "--launch", latent + again]) == 0


def test_products_of_8_bits_are_predicted_and_judged_by_their_peak(capsys: pytest.CaptureFixture[str]) -> None:
    whole = TRAINED.replace("--tensor-model-parallel-size 8", "") + " --overlap-grad-reduce"
    on, eight = ["check", "--cluster", "dgx-h100", "--launch"], f"{whole} --fp8-format hybrid"
    wide, narrow = (_started_run.planned(cli.parse([*on, line])).simulated.step_s for line in (whole, eight))
    assert narrow < 0.95 * wide
    for line, mfu, said in (
        (whole, "90", "90% of the dense peak:"),
        (eight, "180", "90% of the dense peak of 8 bits:"),
    ):
        assert cli.main([*on, line, "--mfu", mfu]) == 0
        text = capsys.readouterr().out
        assert text.startswith("faster than possible") and f"it would need {said}" in text
    assert cli.main([*on, eight, "--mfu", "90"]) == 0
    text = capsys.readouterr().out
    assert not text.startswith("faster than possible") and "90.0% of the dense bf16 peak" in text
    planned = _started_run.planned(cli.parse([*on, eight]))
    own_mfu = _run_verdict.verdict_of(planned, RunLog(kind="step_s", speeds=(narrow,))).mfu
    log = RunLog(kind="step_s", speeds=(narrow,), middle={"mfu": own_mfu / 2})
    assert "it is of the 8-bit peak" in str(_run_verdict.verdict_of(planned, log).notes)


def test_what_nothing_explains_is_said_to_be_so() -> None:
    args = cli.parse(["check", "--model", "llama3-8b", "--cluster", "dgx-h100", "--devices", "8"])
    run = _started_run.planned(args)
    verdict = _run_verdict.verdict_of(run, RunLog(kind="step_s", speeds=(60 * run.simulated.step_s,)))
    assert verdict.lines[1] == "not explained" and len(verdict.excluded) >= 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "say what ran"),
        ("--launch x --config y --cluster dgx-h100 --mfu 4", "launch and config are both there"),
        ("--model llama3-8b --mfu 4", "cluster is not said"),
        ("--model llama3-8b --mfu 4 --cluster dgx-h100", "devices is not given"),
        ("--model llama3-8b --cluster dgx-h100 --devices 8", "give a log, or one of"),
        ("--model llama3-8b --cluster dgx-h100 --devices 8 --mfu 4 --tflops 3", "give a log, or one of"),
        ("--model llama9-8b --cluster dgx-h100 --devices 8 --mfu 4", "did you mean 'llama3-8b'"),
        ("/dev/null --model llama3-8b --cluster dgx-h100 --devices 8", "it says no step's time"),
    ],
)
def test_wrong_requests_end_in_one_line(options: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", *shlex.split(options)]) == 2
    assert message in capsys.readouterr().err


def test_the_lines_that_are_read_first_fit() -> None:
    args = cli.parse(["check", "--model", "llama3-8b", "--cluster", "dgx-h100", "--devices", "8"])
    run = _started_run.planned(args)
    verdict = _run_verdict.verdict_of(run, RunLog(kind="step_s", speeds=(1.1 * run.simulated.step_s,)))
    assert verdict.word == _run_verdict.AS_EXPECTED and re.search(r"1\.10 times the", verdict.lines[0])
    assert replace(verdict, causes=("x",)).lines[1] == "x"


@pytest.mark.parametrize(
    ("stack", "option", "fused"),
    [
        ("nemo-h100", "", False),
        ("nemo-h100", " --use-transformer-engine-op-fuser", True),
        ("nemo-fused-h100", "", True),
    ],
)
def test_a_named_stack_keeps_its_experts_and_the_option_fuses_them(stack: str, option: str, fused: bool) -> None:
    line = "torchrun --nproc-per-node 8 " + TRAINED.partition("--nproc-per-node 8 ")[2]
    experts = " --num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 1024" + option
    arguments = ["check", "--cluster", "dgx-h100", "--launch", line + experts, "--stack", stack]
    assert _started_run.planned(cli.parse(arguments)).stack.device.fused_experts == fused
