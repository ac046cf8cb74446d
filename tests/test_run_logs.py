"""Logs of runs: every program's lines, what disturbs steps, damaged files, and long ones streamed."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import InputError
from simulator.readers import _log
from simulator.readers._log import read_log, steady

FOLDER = Path(tempfile.mkdtemp())
LINES = {
    "megatron": (
        " [2025-05-01 10:00:00.0] iteration {n:8d}/     100 | consumed samples:     256 | elapsed time per iteration "
        "(ms): 4213.5 | throughput per GPU (TFLOP/s/GPU): 410.2 | global batch size:   128 | lm loss: 1.1E+01 |",
        "step_s", 4.2135, {"device_tflops": 410.2, "loss": 11.0},
    ),
    "torchtitan": (
        "[rank0]:[titan] 2025-01-01 10:00:00,000 - root - INFO - \x1b[31mstep: {n:2}  \x1b[32mloss:  8.10000  "
        "grad_norm: "
        " 1.2  \x1b[36mmemory: 47.33GiB(59.90%)  \x1b[34mtps: 6,514  tflops: 377.20  \x1b[35mmfu: 38.14%\x1b[39m",
        "device_tokens_per_s", 6514, {"mfu": 0.3814, "memory_bytes": 47.33 * 2**30, "loss": 8.1},
    ),
    "torchtitan of before": ("[rank0]: step: {n}  loss: 9.1  memory: 40.0GiB(50%)  wps: 2,812  mfu: 16.7%",
                             "device_tokens_per_s", 2812, {"mfu": 0.167}),
    "nanotron": (
        "[INFO|DP=0|PP=0|TP=0]: iteration: {n} / 20 | consumed_tokens: 1.05M | time_per_iteration_ms: 1.22K | "
        "tokens_per_sec: 107K | tokens_per_sec_per_gpu: 13.4K | global_batch_size: 131K | lm_loss: 9.7 | "
        "model_tflops_per_gpu: 455",
        "step_s", 1.22, {"device_tflops": 455, "loss": 9.7},
    ),
    "NeMo": ("Epoch 0: 3%| | {n}/100, reduced_train_loss=9.95, train_step_timing in s=3.210, global_step={n}.0",
             "step_s", 3.21, {}),
    "DeepSpeed": ("[2024] [INFO] [logging.py:96:log_dist] [Rank 0] step={n}, skipped=0 "
                  "RunningAvgSamplesPerSec=10.1, CurrSamplesPerSec=10.24, MemAllocated=2.1GB, MaxMemAllocated=32.5GB",
                  "samples_per_s", 10.24, {"memory_bytes": 32.5 * 2**30}),
    "Hugging Face": (" 10%|#         | {n}/100 [00:32<04:48,  3.20s/it]", "step_s", 3.2, {}),
    "Composer": ("[batch={n}/100]: Train throughput/device/tokens_per_sec: 7500.5 Train throughput/device/mfu: 0.4644 "
                 "Train loss/train/total: 9.1", "device_tokens_per_s", 7500.5, {"mfu": 0.4644, "loss": 9.1}),
    "fms-fsdp": ("step: {n} loss: 3.2 current token per gpu per sec: 1,004", "device_tokens_per_s", 1004, {}),
}  # fmt: skip


@pytest.mark.parametrize("program", LINES)
def test_every_program_says_how_long_a_step_took(program: str, tmp_path: Path) -> None:
    line, kind, value, others = LINES[program]
    path = tmp_path / "train.log"
    path.write_text("Starting up\n" + "\n".join(line.format(n=number) for number in range(1, 9)) + "\nDone\n")
    log = read_log(path)
    assert log.kind == kind and log.speeds == pytest.approx((value,) * 8)
    assert {name: log.middle[name] for name in others} == pytest.approx(others)


TRAINER = {"train_runtime": 60.0, "train_samples_per_second": 16.0, "train_steps_per_second": 0.5, "train_loss": 2.1}
EVALUATED = {"eval_loss": 2.3, "eval_runtime": 12.2, "eval_samples_per_second": 81.1, "eval_steps_per_second": 10.2}


def test_what_hugging_face_s_trainer_prints_and_keeps(tmp_path: Path) -> None:
    """Its dictionaries, and trainer_state.json: the run's samples a second, never those of an evaluation."""
    printed, kept = tmp_path / "train.log", tmp_path / "trainer_state.json"
    printed.write_text(f"{{'loss': 2.3, 'epoch': 0.3}}\n{EVALUATED}\n{TRAINER}\n")
    history = [{"epoch": 0.3, "loss": 2.3, "step": 10}, EVALUATED | {"step": 15}, TRAINER | {"step": 30}]
    kept.write_text(json.dumps({"global_step": 30, "log_history": history}, indent=2))
    for path in (printed, kept):
        log = read_log(path)
        assert (log.kind, log.speeds) == ("samples_per_s", (16.0,))


def test_a_table_and_the_parameters_of_a_model(tmp_path: Path) -> None:
    table, log = tmp_path / "steps.csv", tmp_path / "train.log"
    table.write_text("step,step_time_s,loss\n1,4.5,9\n2,4.1,8\n")
    assert read_log(table).speeds == (4.5, 4.1)
    log.write_text("Model llama3 8B size: 8,030,261,248 total parameters\nstep: 1 tps: 10\n")
    assert read_log(log).parameters == 8_030_261_248


def test_disturbed_steps_are_told_apart(tmp_path: Path) -> None:
    lines = []
    for number in range(1, 41):
        step_s = {1: 30.0, 2: 9.0, 20: 12.0, 30: 5.5, 35: 6.0}.get(number, 4.0 + 0.01 * (number % 5))
        if number == 20:
            lines.append("saving checkpoint at iteration 19 to /checkpoints")
        if number == 30:
            lines.append("validation loss at iteration 29 | lm loss value: 8.1")
        lines.append(f" iteration {number}/ 40 | elapsed time per iteration (ms): {1000 * step_s} |")
    path = tmp_path / "train.log"
    path.write_text("\n".join(lines))
    log = read_log(path)
    steps = steady(log.steps_s(1, 1, 1, 1, 1), log.marks)
    assert steps.apart == {"warm-up": 3, "checkpoint": 1, "evaluation": 1, "straggling": 1}
    assert steps.step_s == pytest.approx(4.02) and steps.count == 34 and 4.0 <= steps.low_s <= steps.high_s <= 4.04
    assert steps.lost_s == pytest.approx((8 + 1.5 + 2) / 37, rel=0.05)


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=60))
def test_steady_steps_lie_between_the_recorded(steps_s: list[float]) -> None:
    steps = steady(steps_s)
    assert min(steps_s) <= steps.low_s <= steps.step_s <= steps.high_s <= max(steps_s)
    assert steps.count + sum(steps.apart.values()) >= len(steps_s)


@pytest.mark.parametrize(
    "content", [b"", b"hello\nworld\n", b"\x00\xff" * 500, b"step step step\n", b"{", b"loss: 3\n" * 9]
)
def test_what_is_no_log_ends_in_one_line(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(content)
    with pytest.raises(InputError, match="it says no step's time"):
        read_log(path)


PIECES = st.sampled_from(
    ["iteration 3/ 9 |", "elapsed time per iteration (ms): ", "1e999", "0", "-5", "4,213.5", "tps: ", "mfu: ", "38.1%",
     "step: 7 ", "\n", "\r", "| 3/9 [00:32<04:48, ", "0.0it/s]", "n_params: 99999999999999999999", "saving checkpoint",
     "tokens_per_sec: 1.2K", "validation ", "NaN", "inf", "throughput per GPU (TFLOP/s/GPU): "]
)  # fmt: skip


@given(st.lists(PIECES | st.text(max_size=5), max_size=40).map("".join))
def test_any_text_is_a_log_or_refused(text: str) -> None:
    path = FOLDER / "drawn.log"
    path.write_text(text, encoding="utf-8", errors="replace")
    with contextlib.suppress(InputError):
        log = read_log(path)
        steps = steady(log.steps_s(2**20, 2**10, 8, 1e9, 1e15), log.marks)
        assert 0 < steps.low_s <= steps.step_s <= steps.high_s < float("inf")


def test_of_a_log_that_is_very_long_parts_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "train.log"
    lines = [
        f"iteration {number}/9999 | elapsed time per iteration (ms): {400 + number % 7} |" for number in range(5000)
    ]
    path.write_text("\n".join(lines))
    monkeypatch.setattr(_log, "MOST_READ", 64_000)
    steps = read_log(path)
    assert 500 < len(steps.speeds) < 1500
    assert steady(steps.speeds).step_s == pytest.approx(0.403, abs=0.001)


def test_long_logs_are_streamed(tmp_path: Path) -> None:
    """20 MB, most of it chatter, in less than 3 s on a busy machine."""
    path = tmp_path / "train.log"
    with path.open("w") as file:
        for number in range(1000):
            file.write("[rank3]: W0101 nothing of interest is said in here " * 4 * 100 + "\n")
            file.write(f"iteration {number}/1000 | elapsed time per iteration (ms): 400.0 |\n")
    start_s = time.process_time()
    assert len(read_log(path).speeds) == 1000
    assert time.process_time() - start_s < 3
