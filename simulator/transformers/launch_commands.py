"""How a runtime is told a grid: the options that carry its degrees, every one in its place.

Data, checkpoints, learning rate and logging are left to the user.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from simulator.errors import InputError, UnknownNameError
from simulator.transformers.model_card import ModelCard
from simulator.transformers.training_grid import TrainingGrid


def launch_command(runtime: str, card: ModelCard, grid: TrainingGrid) -> str:
    """The command for `runtime`, one of RUNTIMES. Raises UnknownNameError, InputError where it cannot run the grid."""
    if runtime not in RUNTIMES:
        raise UnknownNameError.of("runtime", runtime, RUNTIMES)
    return RUNTIMES[runtime](card, grid)


def _torchrun(grid: TrainingGrid) -> str:
    per_node = min(grid.devices, grid.node_devices)
    nodes = f"--nnodes {grid.nodes} --nproc-per-node {per_node}"
    return f"torchrun {nodes}" + (" --rdzv-backend c10d --rdzv-endpoint $HOST:29500" if grid.nodes > 1 else "")


def megatron(card: ModelCard, grid: TrainingGrid) -> str:
    """Megatron-LM, pretrain_gpt.py. Its 1F1B puts as many blocks on every stage."""
    uneven = card.layers % grid.pipeline
    options = [
        f"--num-layers {card.layers} --hidden-size {card.hidden} --num-attention-heads {card.heads}",
        f"--ffn-hidden-size {card.ffn} --seq-length {card.sequence} --max-position-embeddings {card.sequence}",
        f"--tensor-model-parallel-size {grid.tensor} --pipeline-model-parallel-size {grid.pipeline}",
        f"--micro-batch-size {grid.microbatch} --global-batch-size {grid.batch} --bf16",
    ]
    if card.key_heads != card.heads:
        options.append(f"--group-query-attention --num-query-groups {card.key_heads}")
    if card.gated:
        options.append("--swiglu --normalization RMSNorm --disable-bias-linear --use-rotary-position-embeddings")
    if not card.tied_embeddings:
        options.append("--untie-embeddings-and-output-weights")
    if grid.tensor > 1:
        options.append("--sequence-parallel")
    if grid.zero_stage:
        options.append("--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather")
    if uneven:
        options.append("--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split")
    return " \\\n  ".join([f"{_torchrun(grid)} pretrain_gpt.py", *options])


def nanotron(card: ModelCard, grid: TrainingGrid) -> str:
    """nanotron, run_train.py with these parts of its configuration."""
    tied = str(card.tied_embeddings).lower()
    return f"""CUDA_DEVICE_MAX_CONNECTIONS=1 {_torchrun(grid)} run_train.py --config-file config.yaml
# config.yaml
parallelism: {{dp: {grid.data}, tp: {grid.tensor}, pp: {grid.pipeline}, pp_engine: 1f1b, tp_mode: REDUCE_SCATTER,
  tp_linear_async_communication: true}}
optimizer: {{zero_stage: {grid.zero_stage}, accumulate_grad_in_fp32: true}}
tokens: {{micro_batch_size: {grid.microbatch}, batch_accumulation_per_replica: {grid.accumulation},
  sequence_length: {card.sequence}}}
model: {{model_config: {{num_hidden_layers: {card.layers}, hidden_size: {card.hidden}, intermediate_size: {card.ffn},
  num_attention_heads: {card.heads}, num_key_value_heads: {card.key_heads}, vocab_size: {card.vocabulary},
  tie_word_embeddings: {tied}}}}}"""


def torchtitan(card: ModelCard, grid: TrainingGrid) -> str:
    """torchtitan. Its data parallelism shards parameters; replicate keeps them whole, as ZeRO-0 and -1 do here."""
    return " \\\n  ".join(
        [
            f"{_torchrun(grid)} -m torchtitan.train --job.config_file CONFIG.toml",
            f"--parallelism.data_parallel_replicate_degree {grid.data} --parallelism.data_parallel_shard_degree 1",
            f"--parallelism.tensor_parallel_degree {grid.tensor}",
            f"--parallelism.pipeline_parallel_degree {grid.pipeline} --parallelism.pipeline_parallel_schedule 1F1B",
            f"--parallelism.pipeline_parallel_microbatch_size {grid.microbatch}",
            f"--training.local_batch_size {grid.batch // grid.data} --training.seq_len {card.sequence}",
        ]
    )


def fsdp2(card: ModelCard, grid: TrainingGrid) -> str:
    """Plain torch: fully_shard over the replicas."""
    if grid.tensor > 1 or grid.pipeline > 1:
        raise InputError(
            f"tensor {grid.tensor} x pipeline {grid.pipeline}: plain FSDP2 has data parallelism alone; take "
            f"megatron, nanotron or torchtitan"
        )
    return f"""{_torchrun(grid)} train.py
# train.py, around the model of {card.layers} blocks
mesh = init_device_mesh("cuda", ({grid.data},))
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for block in model.layers:
    fully_shard(block, mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=policy)
# {grid.accumulation} micro-batches of {grid.microbatch} sequences; model.set_requires_gradient_sync(is_last)"""


RUNTIMES: Mapping[str, Callable[[ModelCard, TrainingGrid], str]] = {
    "megatron": megatron,
    "nanotron": nanotron,
    "torchtitan": torchtitan,
    "fsdp2": fsdp2,
}
