"""What Megatron-LM's arguments change is counted, named as not counted, or refused as it refuses them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from simulator.errors import InputError
from simulator.language_models.card_files import read_card
from simulator.language_models.training_grid import TrainingGrid
from simulator.readers import StartedRun, read_configuration

NETWORK = (
    "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --swiglu "
    "--position-embedding-type rope --micro-batch-size 1 --global-batch-size 64 --bf16 --hidden-dropout 0.0"
)
SPREAD = "--tensor-model-parallel-size 4 --sequence-parallel --use-distributed-optimizer"


def read(said: str = "", network: str = NETWORK) -> StartedRun:
    return read_configuration(f"torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py {network} {SPREAD} {said}", None)


@pytest.mark.parametrize(
    ("said", "recomputation", "unread"),
    [
        ("uniform --recompute-num-layers 1", "full", ()),
        ("block --recompute-num-layers 16 --pipeline-model-parallel-size 2", "full", ()),
        ("block --recompute-num-layers 0", "none", ()),
        ("block --recompute-num-layers 2", "none", ("recompute-num-layers 2 of 32 blocks of a stage (none taken)",)),
        ("block --recompute-num-layers 3 --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 4",
         "full", ("recompute-num-layers 3 of 4 blocks of a stage (all taken)",)),
    ],
)  # fmt: skip
def test_the_first_blocks_of_a_stage_recompute_as_all_or_none(
    said: str, recomputation: str, unread: tuple[str, ...]
) -> None:
    started = read(f"--recompute-granularity full --recompute-method {said}")
    assert (started.grid.recomputation, started.unread) == (recomputation, unread)


@pytest.mark.parametrize(
    ("said", "kernel"),
    [
        ("", None),
        ("--attention-backend auto", None),
        ("--attention-backend flash --transformer-impl transformer_engine", None),
        ("--attention-backend unfused", "scores"),
        ("--attention-backend local", "scores"),
        ("--transformer-impl local", "scores"),
        ("--transformer-impl local --use-flash-attn", None),
    ],
)
def test_attention_that_is_not_fused_writes_its_scores(said: str, kernel: str | None) -> None:
    started = read(said)
    assert started.attention == kernel and not started.unread
    assert ("scores of the attention in memory" in started.described()) == (kernel is not None)


@pytest.mark.parametrize(
    "said",
    ["exp-avg-dtype bf16", "exp-avg-sq-dtype fp8",
     "use-precision-aware-optimizer", "rampup-batch-size 16 16 5859375", "attention-dropout 0.1",
     "decoder-first-pipeline-num-layers 3"],
)  # fmt: skip
def test_what_changes_bytes_is_named(said: str) -> None:
    assert read(f"--{said}").unread == (said,)


@pytest.mark.parametrize(
    ("said", "dtype"),
    [
        ("", "float32"),
        ("--grad-reduce-in-bf16", "bfloat16"),
        ("--main-grads-dtype bf16", "bfloat16"),
        ("--accumulate-allreduce-grads-in-fp32", "float32"),
    ],
)
def test_gradients_are_added_up_and_summed_in_what_is_said(said: str, dtype: str) -> None:
    """Of fp16 in that, where nobody says otherwise."""
    started = read(said)
    assert (started.gradient_dtype, started.unread) == (dtype, ())
    assert ("gradients in bfloat16" in started.described()) == (dtype == "bfloat16")
    halves = read(said, NETWORK.replace("--bf16", "--fp16"))
    assert halves.gradient_dtype == ("float32" if "accumulate" in said else "float16")


def test_what_says_the_usual_is_not_named() -> None:
    assert not read("--main-grads-dtype fp32 --exp-avg-dtype fp32 --attention-dropout 0.0 --hidden-dropout 0").unread


def test_masks_of_a_dropout_are_counted() -> None:
    started = read("--hidden-dropout 0.1 --attention-dropout 0.1")
    assert started.card.dropout and not started.unread and not read("--hidden-dropout 0.0").card.dropout
    silent = read(network=NETWORK.replace("--hidden-dropout 0.0", ""))
    assert silent.card == started.card and not silent.unread and "dropout" in silent.described()


def test_defaults_are_megatrons() -> None:
    assert read("--group-query-attention").card.kv_heads == 1
    assert read("--use-megatron-fsdp").grid.zero_stage == 0
    for kind, positions in (("yarn", 0), ("mrope", 0), ("learned_absolute", 4096)):
        network = NETWORK.replace("embedding-type rope", f"embedding-type {kind}")
        assert read(network=network).card.positions == positions


@pytest.mark.parametrize("frequency", ["([1]*32)", "[1]*32", "[1]*16+[1]*16", "1", f"[{','.join('1' * 32)}]"])
def test_blocks_that_are_all_mixtures(frequency: str) -> None:
    assert read(f"--num-experts 8 --moe-layer-freq {frequency}").card.dense_layers == 0


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("--micro-batch-size 0", "micro-batch-size is 0: it is at least 1"),
        ("--tensor-model-parallel-size 0", "tensor-model-parallel-size is 0: it is at least 1"),
        ("--context-parallel-size -1", "context-parallel-size is -1: it is at least 1"),
        ("--global-batch-size -8", "global-batch-size is -8: it is at least 0"),
        ("--seq-length 0", "seq-length is 0: it is at least 1"),
        ("--group-query-attention --num-query-groups 0", "num-query-groups is 0: it is at least 1"),
        ("--tensor-model-parallel-size 1 --pipeline-model-parallel-size 16 --num-layers 24", "multiple of 16 stages"),
        ("--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 3", "multiple of 2 stages x 3"),
        ("--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 3", "multiple of 4 stages x 3"),
        ("--num-virtual-stages-per-pipeline-rank 2", "size is 1: 2 virtual stages of a device need more than one"),
        ("--num-layers-per-virtual-pipeline-stage 8", "size is 1: 4 virtual stages of a device need more than one"),
        ("--pipeline-model-parallel-layout Et*16|t*16L", "2 stages of 32 blocks; 1 and 32 are read"),
        ("--num-distributed-optimizer-instances 3", "instances is 3: it divides data x context, 4"),
        ("--num-experts 8 --moe-layer-freq [1]*64", "are 32"),
        ("--num-experts 8 --moe-layer-freq ([1]*16+[0]*16)", "are 32"),
    ],
)
def test_what_megatron_refuses_is_refused(said: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        read(said)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "said",
    ["--decoder-first-pipeline-num-layers 3", "--num-layers 23 --account-for-embedding-in-pipeline-split",
     "--num-layers 23 --pipeline-model-parallel-layout Et*11|t*12L"],
)  # fmt: skip
def test_stages_may_be_said_to_be_unequal(said: str) -> None:
    assert read(f"--pipeline-model-parallel-size 2 {said}").grid.pipeline == 2


@pytest.mark.parametrize(
    ("said", "gated", "ffn"),
    [
        ("activation_func: swiglu", True, 10880),
        ("gated_linear_unit: true", True, 16384),
        ("gated_linear_unit: false", False, 16384),
    ],
)
def test_names_of_megatrons_files(said: str, gated: bool, ffn: int, tmp_path: Path) -> None:
    path = tmp_path / "gpt.yaml"
    path.write_text(
        "num_layers: 4\nhidden_size: 4096\nnum_attention_heads: 32\nseq_length: 64\nnum_moe_experts: 8\n"
        "add_bias_linear: false\nnum_query_groups: 8\nmoe_layer_freq: [0, 1, 1, 1]\nrecompute_granularity: selective\n"
        f"recompute_modules: [core_attn, mlp]\n{said}\n"
    )
    started = read_configuration(None, str(path), devices=8)
    card = started.card
    assert (card.gated, card.ffn, card.biases, card.experts) == (gated, ffn, False, 8)
    assert (card.dense_layers, card.kv_heads, started.grid.recomputation) == (1, 8, "core_attn+mlp")
    assert not started.unread


def test_a_file_of_nemo_is_read(tmp_path: Path) -> None:
    path = tmp_path / "gpt.yaml"
    path.write_text(
        "trainer: {devices: 8, num_nodes: 4, precision: bf16}\nmodel:\n  num_layers: 80\n  hidden_size: 8192\n"
        "  ffn_hidden_size: 28672\n  num_attention_heads: 64\n  num_query_groups: 8\n  encoder_seq_length: 8192\n"
        "  tensor_model_parallel_size: 4\n  pipeline_model_parallel_size: 4\n  sequence_parallel: true\n"
        "  virtual_pipeline_model_parallel_size: 5\n  activation: fast-swiglu\n  normalization: rmsnorm\n"
        "  bias: false\n"
        "  position_embedding_type: rope\n  share_embeddings_and_output_weights: false\n  hidden_dropout: 0.0\n"
        "  optim: {name: distributed_fused_adam, overlap_grad_sync: true, grad_sync_dtype: bf16}\n"
        "  tokenizer: {library: huggingface}\n"
    )
    started = read_configuration(None, str(path))
    card = replace(read_card("llama3-70b"), vocabulary=50257)
    assert started.card.parameters == card.parameters and started.card.flops_per_token == card.flops_per_token
    assert started.grid == TrainingGrid(data=2, tensor=4, pipeline=4, chunks=5, zero_stage=1)
    assert (started.precision, started.gradient_dtype) == ("bf16", "bfloat16")
    assert started.unread == ("tokenizer huggingface: a vocabulary of 50,257 is taken; --vocab-size says it",)
