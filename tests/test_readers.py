"""What a run was started with is read back: exported lines by property, scripts and files of others, refusals."""

from __future__ import annotations

import contextlib
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import laws
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simulator.errors import InputError, UnknownNameError
from simulator.exports.launch import launch_command
from simulator.language_models.card_files import cards, read_card
from simulator.language_models.grids import candidate_grids
from simulator.language_models.model_card import ModelCard
from simulator.language_models.training_grid import RECOMPUTATION, TrainingGrid
from simulator.readers import read_configuration

FOLDER = Path(tempfile.mkdtemp())
KEYS = st.sampled_from(
    ["parallelism", "model", "tokens", "dp", "tp", "pp", "micro_batch_size", "batch_accumulation_per_replica",
     "sequence_length", "model_config", "num_hidden_layers", "hidden_size", "training", "seq_len", "name", "flavor",
     "zero_optimization", "stage", "train_batch_size", "train_micro_batch_size_per_gpu", "fsdp_config", "num_layers",
     "num_processes", "num_machines", "distributed_type", "bf16", "tensor_parallel_degree", "batch_size", "moe_config",
     "num_attention_heads", "mode", "activation_checkpoint", "gradient_accumulation_steps", "optimizer"]
)  # fmt: skip
AGAIN = (*RECOMPUTATION, "op", "core_attn+mlp")
GRIDS = [
    (name, grid)
    for name in ("llama3-8b", "mixtral-8x7b", "qwen3-14b", "deepseek-v3", "gpt2-xl", "llama3-70b")
    for grid in candidate_grids(read_card(name), 64, 64)
]


def counted(card: ModelCard) -> ModelCard:
    """Without names and what a command line does not say."""
    heads = {"kv_heads": card.key_heads, "head_width": None if card.latent else card.width}
    return replace(card, name="", source="", router_bias=False, **heads)


@settings(max_examples=laws.examples(60, 300), deadline=None)
@given(
    st.sampled_from(GRIDS),
    st.sampled_from((*RECOMPUTATION, "op", "core_attn+mlp")),
    st.sampled_from(["megatron", "torchtitan", "nanotron"]),
    st.booleans(),
)
def test_an_exported_line_reads_back_as_its_grid(
    pair: tuple[str, TrainingGrid], again: str, runtime: str, overlaps: bool
) -> None:
    """Only Megatron-LM has arguments for what moves beside products, which say nothing where no tensor group is."""
    card, grid = read_card(pair[0]), replace(pair[1], recomputation=again)
    try:
        line = launch_command(runtime, card, grid, overlaps=overlaps)
    except InputError:
        assume(False)
    if runtime == "nanotron":
        path = Path(gettempdir()) / f"shardscope-test-{pair[0]}.yaml"
        path.write_text(line.partition("# config.yaml\n")[2].partition("\n#")[0])
        started = read_configuration(None, str(path))
    else:
        started = read_configuration(line, None)
    sharded = grid.replicas > 1 or runtime == "nanotron"
    started = replace(started, grid=replace(started.grid, layout=""))
    assert started.grid == (grid if sharded else replace(grid, zero_stage=started.grid.zero_stage))
    assert counted(started.card) == counted(card) and started.runtime == runtime and not started.unread
    exchanged = card.experts > 0 or (grid.tensor > 1 and grid.sequence_parallel)
    assert started.overlaps == (overlaps and runtime == "megatron" and exchanged)
    assert started.overlaps_sums or grid.replicas == 1
    assert started.overlaps_gathers or grid.zero_stage == 0


@pytest.mark.parametrize("name", sorted(set(cards()) - {name for name in cards() if name.startswith(("mpt", "olmo-"))}))
def test_every_card_reads_back_from_megatrons_line(name: str) -> None:
    """But for what Megatron-LM has not, which the line says."""
    card = read_card(name)
    line = launch_command("megatron", card, TrainingGrid(data=8, zero_stage=1))
    started = read_configuration(line, None).card
    if "it has not" in line or card.query_key_norm == "all":
        assert started.parameters == pytest.approx(card.parameters, rel=0.01)
    else:
        assert counted(started) == counted(card)


SCRIPT = """#!/bin/bash
# pretrains GPT-3 175B
GPUS_PER_NODE=8
export NUM_NODES=16
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes ${NUM_NODES:-1}
)
GPT_MODEL_ARGS="
    --num-layers 96
    --hidden-size 12288
    --num-attention-heads 96
    --seq-length 2048
    --max-position-embeddings 2048
"
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \\
    $GPT_MODEL_ARGS --micro-batch-size 1 --global-batch-size=1536 \\
    --tensor-model-parallel-size 8 --pipeline-model-parallel-size 16 --fp16 \\
    --num-layers-per-virtual-pipeline-stage 2 --tokenizer-type GPT2BPETokenizer --lr 6e-5 --made-up 3
"""


def test_a_script_of_megatron(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT)
    started = read_configuration(str(path), None)
    assert counted(started.card) == replace(counted(read_card("gpt3-175b")), dropout=True)
    assert started.grid == TrainingGrid(
        data=1, tensor=8, pipeline=16, accumulation=1536, chunks=3, sequence_parallel=False
    )
    assert started.precision == "fp16"
    assert "made-up (none of Megatron-LM's)" in started.unread


SMALL = "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 8 --use-distributed-optimizer"


def test_megatrons_lines_overlap_what_they_ask_for_and_files_what_recipes_do(tmp_path: Path) -> None:
    """Its FSDP gathers and scatters layer by layer, whatever they say."""
    line = f"torchrun --nproc-per-node 8 pretrain_gpt.py {SMALL}"
    for asked, sums, gathers in (
        ("", False, False),
        ("--overlap-grad-reduce", True, False),
        ("--overlap-grad-reduce --overlap-param-gather", True, True),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params", True, True),
    ):
        started = read_configuration(f"{line} {asked}", None)
        assert (started.overlaps_sums, started.overlaps_gathers) == (sums, gathers)
        assert ("behind the backward pass" in started.described()) == (not sums) and not started.unread
    path = tmp_path / "recipe.yaml"
    sizes = "num_layers: 2\nhidden_size: 64\nnum_attention_heads: 4\nseq_length: 8\n"
    for said, sums in (("", True), ("overlap_grad_reduce: false", False)):
        path.write_text(f"{sizes}ddp:\n  use_distributed_optimizer: true\n  {said}\n")
        assert read_configuration(None, str(path), devices=8).overlaps_sums == sums


@pytest.mark.parametrize(
    ("said", "precision", "unread"),
    [
        ("--bf16", "bf16", ()),
        ("--bf16 --fp8-recipe mxfp8", "bf16", ()),  # without a format there are no 8 bits
        ("--bf16 --fp8-format hybrid --fp8-amax-history-len 1024", "fp8", ()),
        ("--bf16 --fp8-format e4m3 --fp8-recipe blockwise", "fp8-block", ()),
        ("--bf16 --fp8-format e4m3 --fp8-recipe mxfp8 --fp8-param-gather", "mxfp8", ("fp8-param-gather",)),
        ("--bf16 --fp8-format hybrid --fp8-recipe custom", "fp8", ("fp8-recipe custom",)),
    ],
)
def test_products_of_8_bits_are_read_of_megatrons_lines(said: str, precision: str, unread: tuple[str, ...]) -> None:
    started = read_configuration(f"torchrun --nproc-per-node 8 pretrain_gpt.py {SMALL} {said}", None)
    assert (started.precision, started.unread) == (precision, unread)
    assert (f"products in {precision}" in started.described()) == (precision != "bf16")


TITAN = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 2
seq_len = 8192
[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 2
[activation_checkpoint]
mode = "selective"
[quantize.linear.float8]
enable_fsdp_float8_all_gather = true
"""


def test_files_of_torchtitan_deepspeed_and_accelerate(tmp_path: Path) -> None:
    toml, speed, fsdp = (tmp_path / name for name in ("train.toml", "ds_config.json", "fsdp.yaml"))
    toml.write_text(TITAN)
    started = read_configuration(None, str(toml), devices=128)
    expected = TrainingGrid(data=64, tensor=2, zero_stage=3, recomputation="op", microbatch=2)
    assert started.grid == expected and started.card == read_card("llama3-8b")
    default = "activation_checkpoint.selective_ac_option 2"  # its own, where nobody says "op"
    assert started.unread == (default, "quantize.linear.float8.enable_fsdp_float8_all_gather true")
    zero = {"stage": 3, "offload_optimizer": {"device": "cpu"}}
    sizes = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "train_batch_size": "auto"}
    speed.write_text(json.dumps({"zero_optimization": zero, "bf16": {"enabled": True}, **sizes}))
    started = read_configuration(None, str(speed), model="mistralai/Mistral-7B-v0.1", devices=16)
    assert started.grid == TrainingGrid(data=16, zero_stage=3, microbatch=4, accumulation=2)
    assert started.unread == ("zero_optimization.offload_optimizer.device cpu",) and started.precision == "bf16"
    fsdp.write_text(
        "distributed_type: FSDP\nmixed_precision: bf16\nnum_machines: 2\nnum_processes: 16\n"
        "fsdp_config:\n  fsdp_sharding_strategy: SHARD_GRAD_OP\n"
    )
    assert read_configuration(None, str(fsdp), model="qwen3-8b").grid == TrainingGrid(data=16, zero_stage=2)


@pytest.mark.parametrize(
    ("said", "precision", "unread"),
    [
        ("converters = []", "bf16", ()),
        ("converters = ['quantize.linear.float8']", "fp8", ()),
        ("converters = ['mx']", "mxfp8", ()),
        ("converters = ['own']", "bf16", ("model.converters ['own']",)),
    ],
)
def test_products_of_8_bits_are_read_of_torchtitans_files(
    said: str, precision: str, unread: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "train.toml"
    text = TITAN.partition("[quantize")[0].replace('"selective"', '"selective"\nselective_ac_option = "op"')
    path.write_text(text.replace("[model]", f"[model]\n{said}"))
    started = read_configuration(None, str(path), devices=128)
    assert (started.precision, started.unread) == (precision, unread)


LOOPS = "torchrun --nproc-per-node 8 -m torchtitan.train --module llama3 --config llama3_8b"
PIPELINE, OF_STAGE = "--parallelism.pipeline_parallel_degree 4", "--parallelism.pipeline_parallel_layers_per_stage"


@pytest.mark.parametrize(
    ("said", "chunks", "unread"),
    [
        ("", 1, ()),
        ("1F1B", 1, ()),
        ("Interleaved1F1B", 2, ()),
        (f"Interleaved1F1B {OF_STAGE} 3", 3, ()),  # 32 blocks, embedding and output are 34 layers: 12 stages
        ("ZBVZeroBubble", 2, ()),
        ("DualPipeV", 2, ("parallelism.pipeline_parallel_schedule DualPipeV",)),
    ],
)
def test_chunks_of_torchtitan_are_those_of_its_schedule(said: str, chunks: int, unread: tuple[str, ...]) -> None:
    schedule = f"--parallelism.pipeline_parallel_schedule {said}" if said else ""
    started = read_configuration(f"{LOOPS} {PIPELINE} {schedule}", None)
    assert (started.grid.chunks, started.unread) == (chunks, unread)
    assert started.grid.schedule == ("zb-v" if said == "ZBVZeroBubble" else "")


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        ("", "no Python program"),
        ("python train.py", "no runtime's; known: accelerate"),
        ("torchrun pretrain_gpt.py --num-layers", "hidden-size is missing"),
        ("torchrun 'pretrain_gpt.py", "not a command line"),
        ("torchrun pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 8",
         "--devices N"),
        ("torchrun --nproc-per-node 3 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 "
         "--seq-length 8 --tensor-model-parallel-size 2", "3 devices are no multiple of tensor 2"),
        ("torchrun --nproc-per-node 2 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 "
         "--seq-length 8 --global-batch-size 3", "no multiple of 2 replicas"),
        ("torchrun -m torchtitan.train --module llama3 --config llama3_debugmodel", "no card of llama3_debugmodel"),
    ],
)  # fmt: skip
def test_what_says_no_plan_is_refused_in_one_line(launch: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_configuration(launch, None)


WORDS = st.sampled_from(
    ["torchrun", "pretrain_gpt.py", "-m", "torchtitan.train", "--num-layers", "--hidden-size", "--nnodes=2", "8", "0",
     "--nproc-per-node", "--seq-length", "--num-attention-heads", "--swiglu", "--config", "llama3_8b", "--module", "x=",
     "$A", "A=3\n", "(", "-9", "1e9", "--moe-layer-freq", "([0]*3+[1]*9)", "--num-experts", "--kv-channels", "\\\n",
     "--pipeline-model-parallel-layout", "Et*9|t*9L", "llama3", "--tensor-model-parallel-size", "99999999999999999999"]
)  # fmt: skip


@settings(max_examples=laws.examples(60, 300), deadline=None)
@given(st.lists(WORDS | st.text(max_size=8), max_size=30).map(" ".join))
def test_any_line_is_read_or_refused(line: str) -> None:
    with contextlib.suppress(InputError, UnknownNameError):
        assert read_configuration(line, None).grid.devices >= 1


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 2**40) | st.text(max_size=6) | st.sampled_from(["auto", "full", "8B"]),
    lambda parts: st.lists(parts, max_size=2) | st.dictionaries(KEYS, parts, max_size=6), max_leaves=30,
)  # fmt: skip


@settings(max_examples=laws.examples(60, 300), deadline=None)
@given(st.dictionaries(KEYS, PLAIN, max_size=8))
def test_any_file_is_read_or_refused(content: dict[str, Any]) -> None:
    path = FOLDER / "drawn.json"
    path.write_text(json.dumps(content))
    with contextlib.suppress(InputError, UnknownNameError):
        assert read_configuration(None, str(path), model="gpt2", devices=8).grid.devices >= 1


@pytest.mark.parametrize("text", ["", "[1, 2]", "a: b", "\x00", "{", "parallelism: 3\nmodel: 1\ntokens: 2"])
def test_damaged_files_end_in_one_line(text: str, tmp_path: Path) -> None:
    for suffix in (".yaml", ".json", ".toml"):
        path = tmp_path / f"x{suffix}"
        path.write_text(text)
        with pytest.raises(InputError):
            read_configuration(None, str(path))


def test_further_tokens_have_blocks_of_their_own_on_the_last_stage() -> None:
    """DeepSeek-V3's 61 blocks and one more, in one group, in equal stages, and in a layout."""
    card = replace(read_card("deepseek-v3"), layers=62, next_tokens=1)
    line = launch_command("megatron", card, TrainingGrid(data=8, expert=8)).partition("\n")[2].replace("\\\n", " ")
    assert "--num-layers 61" in line and "--mtp-num-layers 1" in line and "layout" not in line
    assert counted(read_configuration(line, None).card) == counted(card)
    for layout, said in (("30,32", "Et*30|t*31mL"), ("Et*30|t*32L", "Et*30|t*31mL"), ("", "Et*31|t*30mL")):
        grid = TrainingGrid(data=4, expert=4, pipeline=2, accumulation=2, layout=layout)
        line = launch_command("megatron", card, grid).partition("\n")[2].replace("\\\n", " ")
        assert f'--pipeline-model-parallel-layout "{said}"' in line
        read = read_configuration(line, None)
        assert counted(read.card) == counted(card) and read.grid.layout == ("30,32" if layout else "31,31")
    shorter = line.partition("--pipeline-model-parallel-layout")[0].replace("61", "60").replace("*58", "*57")
    assert read_configuration(shorter, None).grid.layout == "30,31"


def test_fused_experts_are_those_of_the_option() -> None:
    line = launch_command("megatron", read_card("qwen3-30b-a3b"), TrainingGrid(data=8, expert=8)).partition("\n")[2]
    fused = line.replace("\\\n", " ") + " --use-transformer-engine-op-fuser"
    assert [read_configuration(text, None).fused_experts for text in (fused, line)] == [True, False]


def test_further_tokens_are_on_the_last_stage() -> None:
    card = replace(read_card("llama3-8b"), layers=5, next_tokens=2)
    with pytest.raises(InputError, match="next_tokens is 2: their blocks are on the last stage, which has 1"):
        launch_command("megatron", card, TrainingGrid(pipeline=2, accumulation=2, layout="4,1"))
    line = launch_command(
        "megatron", replace(card, next_tokens=1), TrainingGrid(pipeline=2, accumulation=2, layout="Et*4|tL")
    )
    assert '--pipeline-model-parallel-layout "Et*4|mL"' in line
    with pytest.raises(InputError, match="next_tokens is 5: it is less than the blocks"):
        replace(card, next_tokens=5)
