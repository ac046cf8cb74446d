"""How a runtime is told a grid: the options that carry its degrees, every one in its place.

Data, checkpoints, learning rate and logging are left to the user.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from simulator.errors import InputError, UnknownNameError
from simulator.language_models.model_card import ModelCard
from simulator.language_models.training_grid import TrainingGrid


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
    if grid.zero_stage >= 2 and grid.expert > 1:
        raise InputError(
            f"zero_stage is {grid.zero_stage} with experts on {grid.expert} devices: its FSDP shards dense "
            f"blocks; take zero_stage 1 or torchtitan"
        )
    uneven = card.layers % grid.pipeline
    if grid.recomputation == "op":
        raise InputError("recomputation is op: Megatron-LM recomputes modules or blocks; take torchtitan")
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
    if card.dropout:
        options.append("--attention-dropout 0.1 --hidden-dropout 0.1")
    if grid.tensor > 1 and grid.sequence_parallel:
        options.append("--sequence-parallel")
    if grid.layout:
        options.append(f'--pipeline-model-parallel-layout "{layout_notation(grid.layout)}"')
    elif grid.chunks > 1:
        options.append(f"--num-virtual-stages-per-pipeline-rank {grid.chunks}")
    if grid.context > 1:
        options.append(f"--context-parallel-size {grid.context} --cp-comm-type p2p")
    if card.experts:
        options.append(f"--num-experts {card.experts} --moe-router-topk {card.experts_per_token}")
        options.append(f"--expert-model-parallel-size {grid.expert} --moe-token-dispatcher-type alltoall")
    if grid.zero_stage == 1:
        options.append("--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather")
    if grid.shard_group and grid.zero_stage == 1:
        options.append(f"--num-distributed-optimizer-instances {grid.replicas // grid.shard_group}")
    if grid.zero_stage >= 2:
        sharded = "optim_grads" if grid.zero_stage == 2 else "optim_grads_params"
        options.append(f"--use-megatron-fsdp --use-distributed-optimizer --data-parallel-sharding-strategy {sharded}")
    if grid.recomputation == "full":
        options.append("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1")
    elif grid.recomputation != "none":
        modules = "core_attn" if grid.recomputation == "selective" else grid.recomputation.replace("+", " ")
        options.append(f"--recompute-granularity selective --recompute-modules {modules}")
    if uneven and not grid.layout:
        options.append("--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split")
    return " \\\n  ".join([f"{_torchrun(grid)} pretrain_gpt.py", *options])


def layout_notation(layout: str) -> str:
    """Blocks by stage, such as "9,8,8,7", in the notation of Megatron-LM; what is in it stays as it is."""
    if not layout.replace(",", "").isdecimal():
        return layout
    stages = [f"t*{count}" if int(count) > 1 else "t" * int(count) for count in layout.split(",")]
    return f"E{'|'.join(stages)},L"


def nanotron(card: ModelCard, grid: TrainingGrid) -> str:
    """nanotron, run_train.py with these parts of its configuration."""
    if grid.zero_stage > 1 or grid.recomputation != "none" or grid.chunks > 1 or grid.layout or grid.shard_group:
        raise InputError(
            f"zero_stage is {grid.zero_stage}, recomputation {grid.recomputation}, chunks {grid.chunks}: nanotron has "
            f"ZeRO-0 and -1 over all replicas, recomputes nothing and lays one stage on each device by itself; take "
            f"megatron or torchtitan"
        )
    tied = str(card.tied_embeddings).lower()
    return f"""CUDA_DEVICE_MAX_CONNECTIONS=1 {_torchrun(grid)} run_train.py --config-file config.yaml
# config.yaml
parallelism: {{dp: {grid.data}, tp: {grid.tensor}, pp: {grid.pipeline}, context_parallel_size: {grid.context},
  expert_parallel_size: {grid.expert}, pp_engine: 1f1b, tp_mode: REDUCE_SCATTER, tp_linear_async_communication: true}}
optimizer: {{zero_stage: {grid.zero_stage}, accumulate_grad_in_fp32: true}}
tokens: {{micro_batch_size: {grid.microbatch}, batch_accumulation_per_replica: {grid.accumulation},
  sequence_length: {card.sequence}}}
model: {{model_config: {{num_hidden_layers: {card.layers}, hidden_size: {card.hidden}, intermediate_size: {card.ffn},
  num_attention_heads: {card.heads}, num_key_value_heads: {card.key_heads}, vocab_size: {card.vocabulary},
  tie_word_embeddings: {tied}}}}}"""


def torchtitan(card: ModelCard, grid: TrainingGrid) -> str:
    """torchtitan. shard is its FSDP, ZeRO-2 where parameters stay whole from forward to backward; replicate keeps every
    state whole, also the optimizer's, which ZeRO-1 here shares."""
    modes = {"none": "none", "full": "full", "op": "selective --activation_checkpoint.selective_ac_option op"}
    if grid.recomputation not in modes or grid.layout:
        raise InputError(
            f"recomputation is {grid.recomputation}, layout {grid.layout!r}: torchtitan recomputes by operator or "
            f"whole blocks, and splits stages by itself; take megatron"
        )
    sharded = grid.zero_stage >= 2
    shard = (grid.shard_group // grid.context or grid.data) if sharded else 1
    replicate, schedule = grid.data // shard, "Interleaved1F1B" if grid.chunks > 1 else "1F1B"
    extra = []
    if sharded:
        extra.append(f"--parallelism.fsdp_reshard_after_forward {'always' if grid.zero_stage == 3 else 'never'}")
    if grid.context > 1:
        extra.append(f"--parallelism.context_parallel_degree {grid.context}")
    if card.experts:
        extra.append(f"--parallelism.expert_parallel_degree {grid.expert}")
    local = grid.batch // grid.data if grid.pipeline > 1 else grid.microbatch  # else it accumulates by itself
    mode = modes[grid.recomputation]
    return " \\\n  ".join(
        [
            f"{_torchrun(grid)} -m torchtitan.train --job.config_file CONFIG.toml",
            f"--parallelism.data_parallel_replicate_degree {replicate}",
            f"--parallelism.data_parallel_shard_degree {shard}",
            f"--parallelism.tensor_parallel_degree {grid.tensor}",
            f"--parallelism.pipeline_parallel_degree {grid.pipeline}",
            f"--parallelism.pipeline_parallel_schedule {schedule}",
            f"--parallelism.pipeline_parallel_microbatch_size {grid.microbatch}",
            *extra,
            f"--activation_checkpoint.mode {mode} --training.global_batch_size {grid.batch}",
            f"--training.local_batch_size {local} --training.seq_len {card.sequence}",
        ]
    )


def fsdp2(card: ModelCard, grid: TrainingGrid) -> str:
    """Plain torch: fully_shard over the replicas, DistributedDataParallel without shared states."""
    if grid.strategy == "megatron":
        raise InputError(
            f"tensor {grid.tensor} x pipeline {grid.pipeline} x context {grid.context} x expert {grid.expert}: plain "
            f"FSDP2 has data parallelism alone; take megatron, nanotron or torchtitan"
        )
    if grid.recomputation not in ("none", "full"):
        raise InputError(f"recomputation is {grid.recomputation}: the lines here wrap whole blocks; take torchtitan")
    if grid.zero_stage < 2:
        sharing = "ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, ...)" if grid.zero_stage else "AdamW"
        return f"""{_torchrun(grid)} train.py
# train.py, around the model of {card.layers} blocks on {grid.data} replicas
model = DistributedDataParallel(model, gradient_as_bucket_view=True)
optimizer = {sharing}
# {grid.accumulation} micro-batches of {grid.microbatch} sequences, all but the last in model.no_sync()"""
    checkpoint = (
        """
for block in model.layers:
    checkpoint_wrapper(block)"""
        if grid.recomputation == "full"
        else ""
    )
    mesh = f"({grid.data // grid.shard_group}, {grid.shard_group})" if grid.shard_group else f"({grid.data},)"
    return f"""{_torchrun(grid)} train.py
# train.py, around the model of {card.layers} blocks
mesh = init_device_mesh("cuda", {mesh})
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32){checkpoint}
for block in model.layers:
    fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward={grid.zero_stage == 3})
fully_shard(model, mesh=mesh, mp_policy=policy)
# {grid.accumulation} micro-batches of {grid.microbatch} sequences, gradients scattered at every one"""


RUNTIMES: Mapping[str, Callable[[ModelCard, TrainingGrid], str]] = {
    "megatron": megatron,
    "nanotron": nanotron,
    "torchtitan": torchtitan,
    "fsdp2": fsdp2,
}
