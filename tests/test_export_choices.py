"""What an exported plan recomputes, and its schedule, is what the runtime has, or the nearest and said so."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import exported, shardscope

from simulator.readers import read_configuration

GPT = ("gpt_1_3b_v100", "--cluster", "p3-16xlarge", "--batch-size", "16")
OTHERWISE = "it recomputes {}; the plan {}"
BLOCKS, OPERATORS = "whole blocks", "all but the attention and every other product"


@pytest.mark.parametrize(
    ("options", "titan", "megatron", "others"),
    [
        ((), "none", "", ("", "")),
        (("--set", "recomputation=selective"), "selective", "selective --recompute-modules core_attn",
         (OTHERWISE.format(OPERATORS, "the attention alone"), "")),
        (("--set", "recomputation=op"), "selective", "full", ("", OTHERWISE.format(BLOCKS, OPERATORS))),
        (("--set", "recomputation=full"), "full", "full", ("", "")),
        (("--recompute", "4"), "full", "full", (OTHERWISE.format(BLOCKS, "other segments"),) * 2),
        (("--set", "recomputation=mlp"), "full", "selective --recompute-modules mlp",
         (OTHERWISE.format(BLOCKS, "mlp"), "")),
        (("--set", "recomputation=layernorm+core_attn"), "full", "selective --recompute-modules core_attn layernorm",
         (OTHERWISE.format(BLOCKS, "core_attn and layernorm"), "")),
    ],
)  # fmt: skip
def test_recomputation_is_that_of_the_runtime_or_said(
    options: tuple[str, ...], titan: str, megatron: str, others: tuple[str, str], tmp_path: Path
) -> None:
    made = (*GPT, "--strategy", "megatron" if "--set" in options else "data", *options)
    said = (f"activation-checkpoint:{titan} ", f"--recompute-granularity {megatron}" if megatron else "")
    for runtime, words, other in zip(("torchtitan", "megatron"), said, others, strict=True):
        text = exported(tmp_path, made, runtime, "--profile", GPT[0])
        assert words in text and other in text
        assert ("it recomputes" in text, "--recompute-gran" in text) == (
            bool(other),
            bool(megatron) and runtime == "megatron",
        )


@pytest.mark.parametrize(
    ("card", "modules"),
    [
        ("qwen3-30b-a3b", "layernorm+moe_act"),
        ("deepseek-v2-lite", "core_attn+mlp+moe+mla_up_proj"),
        ("gpt2", "layernorm"),
    ],
)
def test_modules_that_are_recomputed_are_read_back(card: str, modules: str, tmp_path: Path) -> None:
    options = ("--set", f"recomputation={modules}", "--set", "tensor=2")
    made = (card, "--cluster", "dgx-h100", "--devices", "8", "--strategy", "megatron", *options)
    (tmp_path / "train.sh").write_text(exported(tmp_path, made, "megatron", "--profile", card))
    started = read_configuration(str(tmp_path / "train.sh"), None)
    assert started.grid.recomputation == modules and not started.unread


def test_a_schedule_of_several_stages_a_device_has_them(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    step = ("--microbatches", "4", "--schedule", "zero-bubble", "--set", "pipeline=4")
    for chunks, status in ((1, 2), (2, 0)):
        made = (*GPT, "--strategy", "megatron", *step, "--set", f"chunks={chunks}", "--output", path)
        assert shardscope("partition", *made) == 0
        export = ("export", path, "--profile", GPT[0], "--to", "torchtitan", "--output", tmp_path / "train.sh")
        assert shardscope(*export) == status
