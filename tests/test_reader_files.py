"""What files of accelerate, DeepSpeed, torchtitan and nanotron say is counted, named as not counted, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simulator.errors import InputError, UnknownNameError
from simulator.language_models.training_grid import TrainingGrid
from simulator.readers import StartedRun, read_configuration

ONE = "micro-batch: one sequence is taken"


def started(content: dict[str, Any], folder: Path, devices: int | None = 16, line: str | None = None) -> StartedRun:
    """The run of a file of GPT-2, which `line` may end in."""
    path = folder / "configuration.json"
    path.write_text(json.dumps(content))
    return read_configuration(f"{line} {path}" if line else None, str(path), "gpt2", devices)


def fsdp(**said: Any) -> dict[str, Any]:
    return {"distributed_type": "FSDP", "fsdp_config": {f"fsdp_{name}": value for name, value in said.items()}}


def spread(**sizes: int) -> dict[str, Any]:
    return {"parallelism_config": {f"parallelism_config_{name}_size": size for name, size in sizes.items()}}


def megatron(**said: Any) -> dict[str, Any]:
    section = {f"megatron_lm_{name}": value for name, value in said.items()}
    return {"distributed_type": "MEGATRON_LM", "megatron_lm_config": section}


SPEED = {"distributed_type": "DEEPSPEED", "mixed_precision": "bf16"}
STRATEGIES = (
    ((1, "1", "FULL_SHARD"), 3, 0), ((2, "SHARD_GRAD_OP"), 2, 0), ((3, "NO_SHARD"), 0, 0), ((4, "HYBRID_SHARD"), 3, 8),
    ((5, "HYBRID_SHARD_ZERO2"), 2, 8),
)  # fmt: skip
"""Names, the stage and the devices that share states."""
SPEED_QUESTIONS = {"zero_stage": 3, "gradient_accumulation_steps": 8, "offload_param_device": "none"}


@pytest.mark.parametrize(
    ("content", "grid", "unread"),
    [
        ({**SPEED, "deepspeed_config": SPEED_QUESTIONS}, {"zero_stage": 3, "accumulation": 8}, ()),
        ({**SPEED, "deepspeed_config": {"offload_optimizer_device": "cpu"}}, {"zero_stage": 2},
         ("zero_optimization.offload_optimizer.device cpu",)),
        (megatron(tp_degree=2, pp_degree=4, num_micro_batches=8, use_distributed_optimizer=True),
         {"data": 2, "tensor": 2, "pipeline": 4, "accumulation": 8, "zero_stage": 1, "sequence_parallel": False}, ()),
        (megatron(sequence_parallelism=True, tp_degree=4, recompute_activations=True, gradient_clipping=1.0),
         {"data": 4, "tensor": 4, "recomputation": "selective"}, ()),
        ({**fsdp(version=2), **spread(dp_replicate=2, dp_shard=4, tp=2), "gradient_accumulation_steps": 4},
         {"data": 8, "tensor": 2, "zero_stage": 3, "shard_group": 4, "accumulation": 4, "sequence_parallel": False},
         ()),
        ({**fsdp(), **spread(dp_shard=8, cp=2, sp=1)}, {"data": 8, "context": 2, "zero_stage": 3}, ()),
        ({**fsdp(), **spread(dp_replicate=16)}, {}, ()),
        ({"distributed_type": "XLA", "dynamo_config": {"dynamo_backend": "INDUCTOR"}}, {},
         ("distributed_type XLA", "dynamo_config.dynamo_backend INDUCTOR")),
        ({"distributed_type": "MULTI_GPU", "dynamo_config": {"dynamo_backend": "NO"}}, {}, ()),
        (fsdp(offload_params=True), {"zero_stage": 3}, ("fsdp_config.fsdp_offload_params true",)),
        (fsdp(reshard_after_forward="SHARD_GRAD_OP"), {"zero_stage": 2}, ()),
        (fsdp(reshard_after_forward=False, sharding_strategy="FULL_SHARD"), {"zero_stage": 2}, ()),
        *((fsdp(sharding_strategy=name), {"zero_stage": stage, "shard_group": group}, ())
          for names, stage, group in STRATEGIES for name in names),
    ],
)  # fmt: skip
def test_files_of_accelerate(
    content: dict[str, Any], grid: dict[str, Any], unread: tuple[str, ...], tmp_path: Path
) -> None:
    run = started({**content, "num_machines": 2, "num_processes": 16}, tmp_path)
    assert run.grid == TrainingGrid(**{"data": 16, **grid})
    assert set(run.unread) == {*unread, ONE}
    assert (run.runtime == "megatron") == (content["distributed_type"] == "MEGATRON_LM") == (not run.overlaps_sums)


def test_accelerate_opens_the_file_of_deepspeed(tmp_path: Path) -> None:
    own = tmp_path / "speed.json"
    own.write_text(json.dumps({"zero_optimization": {"stage": 1}, "train_micro_batch_size_per_gpu": 2}))
    run = started({**SPEED, "deepspeed_config": {"deepspeed_config_file": str(own)}}, tmp_path)
    assert run.grid == TrainingGrid(data=16, zero_stage=1, microbatch=2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (fsdp(sharding_strategy="SHARD_ALL"), "unknown fsdp_sharding_strategy 'SHARD_ALL'"),
        ({**fsdp(), "num_machines": 3, "num_processes": 16}, "num_processes is 16: 3 machines have as many each"),
        ({**fsdp(), **spread(dp_shard=4, tp=2)}, "dp_replicate_size is 1: it and dp_shard_size 4 multiply to the 8"),
        (megatron(tp_degree=3), "16 devices are no multiple of tensor 3"),
    ],
)
def test_what_accelerate_refuses(content: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises((InputError, UnknownNameError), match=message):
        started(content, tmp_path)


AUTO = {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}
SIZES = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4}
TRAINER = (
    "torchrun --nproc-per-node 8 --nnodes 2 train.py --per_device_train_batch_size 4 --gradient-accumulation-steps 2 "
    "--gradient_checkpointing True --bf16 --deepspeed"
)


@pytest.mark.parametrize(
    ("content", "line", "grid", "unread"),
    [
        ({**SIZES, "zero_optimization": {}, "train_batch_size": 128}, None,
         {"zero_stage": 0, "microbatch": 2, "accumulation": 4}, ()),
        ({**SIZES, "zero_optimization": {"stage": "3"}}, None, {"microbatch": 2, "accumulation": 4}, ()),
        ({**AUTO}, TRAINER, {"microbatch": 4, "accumulation": 2, "recomputation": "full"}, ()),
        ({**AUTO}, None, {}, (ONE,)),
        ({"zero_optimization": {"stage": 3, "offload_param": {"device": "none"}, "mics_shard_size": 8}, **SIZES},
         None, {"microbatch": 2, "accumulation": 4}, ("zero_optimization.mics_shard_size 8",)),
        ({"train_batch_size": 16, "train_micro_batch_size_per_gpu": 2, "tensor_parallel": {"autotp_size": 4}}, None,
         {"data": 4, "tensor": 4, "microbatch": 2, "accumulation": 2, "sequence_parallel": False}, ()),
        ({"train_batch_size": 16, "sequence_parallel_size": 2}, None, {"data": 8, "context": 2, "microbatch": 2},
         ("sequence_parallel_size 2: exchanged as ring attention",)),
        ({**SIZES, "optimizer": {"type": "AdamW"}, "activation_checkpointing": {"cpu_checkpointing": False}}, None,
         {"microbatch": 2, "accumulation": 4}, ()),
        ({**SIZES, "optimizer": {"type": "OneBitAdam"}, "activation_checkpointing": {"partition_activations": True},
          "communication_data_type": "fp16", "pipeline": {"stages": 2}}, None, {"microbatch": 2, "accumulation": 4},
         ("optimizer.type OneBitAdam", "activation_checkpointing.partition_activations true", "pipeline.stages 2",
          "communication_data_type fp16")),
    ],
)  # fmt: skip
def test_files_of_deepspeed(
    content: dict[str, Any], line: str | None, grid: dict[str, Any], unread: tuple[str, ...], tmp_path: Path
) -> None:
    run = started({"zero_optimization": {"stage": 3}, **content}, tmp_path, line=line)
    assert run.grid == TrainingGrid(**{"data": 16, "zero_stage": 3, **grid})
    assert set(run.unread) == {*unread}
    assert run.precision == ("bf16" if line else "fp32")


@pytest.mark.parametrize(
    ("said", "dtype", "unread"),
    [
        ({}, "bfloat16", ()),
        ({"bf16": {"enabled": False}}, "float32", ()),
        ({"data_types": {"grad_accum_dtype": "fp32"}}, "float32", ()),
        ({"data_types": {"grad_accum_dtype": "fp32"}, "communication_data_type": "fp32"}, "float32", ()),
        ({"communication_data_type": "fp32"}, "bfloat16", ("communication_data_type fp32",)),
    ],
)
def test_gradients_of_deepspeed_are_as_parameters_unless_said(
    said: dict[str, Any], dtype: str, unread: tuple[str, ...], tmp_path: Path
) -> None:
    """And summed in the same, else it is named."""
    run = started({**SIZES, "zero_optimization": {"stage": 2}, "bf16": {"enabled": True}, **said}, tmp_path)
    assert (run.gradient_dtype, run.unread) == (dtype, unread)


def test_deepspeed_refuses_a_batch_that_is_not_its_parts(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="train_batch_size is 100: it is 128: 16 replicas x 4 micro-batches of 2"):
        started({**SIZES, "train_batch_size": 100}, tmp_path)


NANOTRON = {
    "parallelism": {"dp": 8, "tp": 1, "pp": 1, "pp_engine": "afab"}, "optimizer": {"accumulate_grad_in_fp32": True},
    "tokens": {"micro_batch_size": 1, "batch_accumulation_per_replica": 1, "sequence_length": 8192},
}  # fmt: skip
NETWORK = {
    "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 256, "vocab_size": 512,
    "sliding_window_size": None, "_attn_implementation": "flash_attention_2",
}  # fmt: skip


@pytest.mark.parametrize(
    ("network", "others", "unread"),
    [
        ({}, {}, ()),
        ({}, {"optimizer": {"accumulate_grad_in_fp32": False}}, ()),
        ({"_attn_implementation": "sdpa"}, {}, ("model.model_config._attn_implementation sdpa",)),
        ({"is_starcoder2_config": True}, {}, ("model.model_config.is_starcoder2_config true",)),
        (
            {},
            {"parallelism": {"dp": 4, "tp": 2, "pp": 1, "tp_mode": "ALL_REDUCE"}},
            ("parallelism.tp_mode ALL_REDUCE",),
        ),
    ],
)
def test_files_of_nanotron(
    network: dict[str, Any], others: dict[str, Any], unread: tuple[str, ...], tmp_path: Path
) -> None:
    model = {"dtype": "bfloat16", "model_config": {**NETWORK, **network}}
    run = started({**NANOTRON, "model": model, **others}, tmp_path, devices=None)
    assert (run.unread, run.precision, run.card.window) == (unread, "bf16", 0)
    assert run.gradient_dtype == ("bfloat16" if "optimizer" in others else "float32")


def test_nanotrons_precision_and_window(tmp_path: Path) -> None:
    model = {"dtype": "float32", "model_config": {**NETWORK, "sliding_window_size": 4096}}
    run = started({**NANOTRON, "model": model}, tmp_path, devices=None)
    assert (run.unread, run.precision, run.card.window) == (("model.dtype float32",), "fp32", 4096)


def test_accelerates_file_is_opened_where_its_line_names_it(tmp_path: Path) -> None:
    """What the line says counts before the file, and Trainer's options say the micro-batch."""
    path = tmp_path / "fsdp.yaml"
    path.write_text(json.dumps({**fsdp(sharding_strategy="SHARD_GRAD_OP"), "num_processes": 8, "num_machines": 1}))
    line = f"accelerate launch --config_file {path} {{}} train.py --per_device_train_batch_size 4"
    trained = "--gradient_accumulation_steps 2 --gradient_checkpointing True"
    run = read_configuration(f"{line.format('--mixed_precision bf16')} {trained}", None, "gpt2")
    expected = TrainingGrid(data=8, zero_stage=2, microbatch=4, accumulation=2, recomputation="full")
    assert (run.grid, run.precision, run.unread) == (expected, "bf16", ())
    wider = read_configuration(line.format("--num_machines 2 --num_processes 16"), None, "gpt2")
    assert wider.grid == TrainingGrid(data=16, zero_stage=2, microbatch=4)
    with pytest.raises(OSError, match=r"other\.yaml"):
        read_configuration(f"accelerate launch --config_file {tmp_path / 'other.yaml'} train.py", None, "gpt2")
