"""What commands print first is the answer: step, how sure, fits, what limits it, the best change, the price."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from command_line import report, shardscope

import partitioners
from simulator.cli import _tables
from simulator.cli.compare import strategy_names

LONGEST_NOTE = 160
"""Characters of two lines of 80 columns."""
V100 = ("--cluster", "p3-16xlarge", "--devices", "16", "--strategy", "data")
COMMANDS = {
    "data parallelism between nodes": ("simulate", "vgg16_v100", *V100),
    "a pipeline": ("simulate", "vgg16_v100", *V100[:5], "pipeline", "--microbatches", "8"),
    "a language model": ("simulate", "llama3-8b", "--cluster", "dgx-h100", "--devices", "16", "--strategy", "fsdp"),
    "grids of a card": ("compare", "gpt2", "--cluster", "dgx-h100", "--devices", "4"),
    "a comparison": ("compare", "resnet50_v100", *V100[:4], "--strategies", "data,pipeline"),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_the_first_five_lines_of_80_columns_answer(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert shardscope(*command) == 0
    lines = capsys.readouterr().out.splitlines()
    title, step, fits, limit, change = lines[:5]
    assert all(len(line) <= 80 for line in (title, step, fits, limit, change))
    assert re.search(r"step [\d.]+ m?s, 90% sure of [\d.]+ m?s to [\d.]+ m?s; [\d,.]+ (samples|tokens)/s", step)
    assert re.match(r"(fits: needs|does not fit: \S+ needs|border: \S+ needs) [\d.]+ [KMGT]iB of", fits)
    assert re.match(r"limited by .* \(\d+% of the step, mostly \S+\)", limit)
    assert change.startswith("best change: ")
    assert all(len(line) <= LONGEST_NOTE for line in lines if line.startswith("note: "))


def test_the_best_change_is_the_resource_that_binds(capsys: pytest.CaptureFixture[str]) -> None:
    """Twice the bandwidth between nodes, simulated, where the links between them limit the step."""
    assert shardscope("simulate", "vgg16_v100", *V100, "--bandwidth", "inter=2Gbps") == 0
    _, _, _, limit, change, *_ = capsys.readouterr().out.splitlines()
    factor = re.fullmatch(r"best change: inter links with twice the bandwidth would make it ([\d.]+)x faster", change)
    assert limit.startswith("limited by inter links") and factor and 1.3 < float(factor[1]) <= 2


def test_uncertainty_of_the_model_is_not_called_variation_of_steps(capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS.values():
        assert shardscope(*command) == 0
    assert "9 of 10" not in capsys.readouterr().out


def test_a_price_is_per_step_and_per_million(capsys: pytest.CaptureFixture[str]) -> None:
    """Eight GPUs of p3-16xlarge, 24.48 dollars an hour, for 699 ms and 1,024 samples."""
    assert shardscope("simulate", "vgg16_v100", "--cluster", "p3-16xlarge", "--strategy", "data") == 0
    cost = re.search(
        r"^cost: \$([\d.]+) a step, \$([\d.]+) per million samples$", capsys.readouterr().out, re.MULTILINE
    )
    assert cost and float(cost[1]) == pytest.approx(24.48 * 0.699 / 3600, rel=0.01)
    assert float(cost[2]) == pytest.approx(float(cost[1]) / 1024 * 1e6, rel=0.01)


def test_many_equal_devices_are_one_row(capsys: pytest.CaptureFixture[str]) -> None:
    command = ("simulate", "vgg16_v100", "--cluster", "p3-16xlarge", "--devices", "1024", "--strategy", "data")
    assert shardscope(*command) == 0
    out = capsys.readouterr().out
    assert "1024: 0-1023 " in out and len(out.splitlines()) < 30
    assert shardscope(*command, "--verbose") == 0
    assert "1023 node127/gpu7 " in capsys.readouterr().out


def test_devices_that_differ_are_groups(capsys: pytest.CaptureFixture[str]) -> None:
    """One straggler among 24; the others are equal but for those that wait for it."""
    assert shardscope("simulate", "vgg16_v100", *V100[:3], "24", *V100[4:], "--straggler", "3=2") == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if re.match(r"\d+: ", line)]
    counts = [int(row.partition(":")[0]) for row in rows]
    assert sum(counts) == 24 and len(rows) <= 8 and any(row.startswith("1: 3 ") for row in rows)


def test_a_table_of_16384_rows_is_printed_within_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    table = _tables.new_table("device", *"abcdefgh")
    for number in range(16_384):
        table.add_row(f"{number} node/gpu", *["12.3 ms"] * 8)
    began_s = time.process_time()
    _tables.print_table(table, ("a", "b"))
    assert time.process_time() - began_s < 5
    assert len(capsys.readouterr().out.splitlines()) == 16_384 + 2


def test_wide_and_joined_characters_keep_columns_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    table = _tables.new_table("name", "value")
    for name in ("\u5c64", "e\u0301tage", "layer"):
        table.add_row(name, "1")
    _tables.print_table(table)
    rows = capsys.readouterr().out.splitlines()[2:]
    assert len({_tables.text_width(row) for row in rows}) == 1


def test_all_strategies_are_those_to_train_by() -> None:
    assert set(partitioners.strategies()) - set(strategy_names("all")) == {"greedy", "shuffle"}
    assert strategy_names("shuffle,data") == ["shuffle", "data"]


def test_what_fits_is_listed_before_what_is_faster(capsys: pytest.CaptureFixture[str]) -> None:
    """GPT-1.3B on 16 GiB: data parallelism does not fit, fully sharded it does, and takes longer."""
    command = ("compare", "gpt_1_3b_v100", "--cluster", "p3-16xlarge", "--strategies", "data,fsdp", "--zero", "3")
    assert shardscope(*command, "--batch-size", "8", "--recompute", "stages") in (0, 2)
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith(("data ", "fsdp "))]
    fits = ["yes" in row for row in rows]
    assert fits == sorted(fits, reverse=True)


def test_grids_are_judged_by_the_memory_of_the_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """V100 are sold with 16 GiB, as this preset has them, and with 32, as the data sheet has them, too."""
    grids = ("--strategies", "data", "--zero", "0", "--batch-size", "8", "--runtime", "megatron")
    assert shardscope("compare", "llama3-1b", "--cluster", "p3-16xlarge", *grids) == 2
    said = capsys.readouterr()
    assert "devices is 8: no grid of them fits" in said.err
    assert "0 simulated; none fits\n1 split cannot run" in said.out
    larger = tmp_path / "v100-32.yaml"
    assert shardscope("clusters", "p3-16xlarge", "--output", larger) == 0
    larger.write_text(larger.read_text().replace("memory_bytes: 17179869184", "memory_bytes: 34359738368"))
    capsys.readouterr()
    (grid, *_) = report(capsys, "compare", "llama3-1b", "--cluster", larger, *grids)["grids"]
    assert 16 * 2**30 < grid["peak_bytes"] <= 32 * 2**30 and grid["fit"] == "fits"


@pytest.mark.parametrize("devices", ["2", "8"])
def test_what_would_make_virtual_stages_fit_is_looked_for(devices: str, capsys: pytest.CaptureFixture[str]) -> None:
    """2 devices take 8 samples, so that micro-batches cannot become smaller."""
    options = ("--cluster", "dgx-h100", "--devices", devices, "--strategy", "megatron", "--set", "pipeline=2")
    assert shardscope("simulate", "llama3-8b", *options, "--set", "chunks=2") == 0
    assert "best change: " in capsys.readouterr().out


PIPELINE = ("simulate", "llama3-8b", "--cluster", "dgx-h100", "--devices", "16", "--strategy", "megatron")


@pytest.mark.parametrize("noise", [("--straggler", "3=1.5"), ("--jitter", "0.3")])
def test_the_best_change_keeps_the_noise_of_the_step(
    noise: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("simulate", "resnet50_v100", "--cluster", "p3-16xlarge", "--devices", "8", "--strategy", "data", *noise)
    assert shardscope(*command) == 0
    faster = re.search(r"best change: devices twice as fast would make it ([\d.]+)x faster", capsys.readouterr().out)
    assert faster and 1.9 < float(faster[1]) <= 2


@pytest.mark.parametrize("most_tasks", [0, 2_000_000])
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("simulate", *COMMANDS["a language model"][1:], "--microbatches", "1"), "--microbatches 4"),
        ((*PIPELINE, "--set", "pipeline=4"), "--zero 1"),
        ((*PIPELINE, "--set", "pipeline=4", "--zero", "1", "--microbatches", "8"), "--microbatches 16"),
        ((*PIPELINE, "--set", "tensor=2", "--zero", "1", "--sequence", "32768"), "--set recomputation=full"),
        (("simulate", "gpt2_large_h100", *PIPELINE[2:7], "data", "--batch-size", "256"), "--microbatches 4"),
        (("simulate", "llama3-8b", *PIPELINE[2:7], "data"), "--zero 3"),
    ],
)
def test_what_would_make_it_fit_does(
    command: tuple[str, ...],
    expected: str,
    most_tasks: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Judged by the whole step, and by few of its micro-batches."""
    monkeypatch.setattr("simulator.cli._answers.MOST_TASKS", most_tasks)
    assert shardscope(*command) == 0
    _, _, fits, _, change, *_ = capsys.readouterr().out.splitlines()
    options = re.fullmatch(r"best change: (.*) \(([\d.]+) GiB(?:, step ([\d.]+ m?s))?\)", change)
    assert (
        fits.startswith("does not fit") and options and options[1] == expected and bool(options[3]) == bool(most_tasks)
    )
    assert shardscope(*command, *options[1].split()) == 0
    _, step, fits, *_ = capsys.readouterr().out.splitlines()
    needs = re.fullmatch(r"fits: needs ([\d.]+) GiB of 80.0 GiB", fits)
    assert needs and float(needs[1]) == pytest.approx(float(options[2]), rel=0.02 if not most_tasks else 1e-9)
    assert not most_tasks or step.startswith(f"step {options[3]},")


@pytest.mark.parametrize(("precision", "said"), [("bf16", False), ("fp8", True)])
def test_a_ranking_in_8_bits_says_of_which_peak_its_mfu_is(
    precision: str, said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("compare", "llama3-1b", "--cluster", "dgx-h100", "--strategies", "data", "--budget", "1ms")
    assert shardscope(*command, "--precision", precision) == 0
    assert ("MFU: of the dense peak in bf16" in capsys.readouterr().out) == said


def test_experts_that_show_their_exchanges_are_told_of_the_schedule_that_hides_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ("simulate", "qwen3-30b-a3b", "--cluster", "dgx-h200", "--devices", "8", "--batch-size", "64")
    options = ("--strategy", "megatron", "--zero", "1", "--set", "expert=8", "--microbatches", "8")
    steps_s = []
    for schedule in ((), ("--schedule", "combined-1f1b")):
        assert shardscope(*command, *options, *schedule, "--json") == 0
        steps_s.append(json.loads(capsys.readouterr().out)["step_s"])
    assert shardscope(*command, *options) == 0
    change = capsys.readouterr().out.splitlines()[4]
    gain = f"{steps_s[0] / steps_s[1]:.2f}x"
    assert change == f"best change: --schedule combined-1f1b (Megatron-LM's) would make it {gain} faster"
