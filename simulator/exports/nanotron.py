"""A grid of a card as nanotron's configuration, a YAML file. Its models are Llama's and Qwen 2's, also with experts."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.errors import InputError, require
from simulator.exports.launch import Launch


def command(launch: Launch) -> str:
    """The command and its file. Raises InputError for what nanotron has not."""
    card, grid = launch.card, launch.grid
    _check(launch)
    kind = "is_qwen2_config" if card.experts or card.qkv_biases else "is_llama_config"
    biases = ", attention_bias: true" if card.qkv_biases else ""
    experts = ""
    if card.experts:
        shared = f"true, shared_expert_intermediate_size: {card.shared_ffn}" if card.shared_ffn else "false"
        experts = (
            f",\n  moe_config: {{num_experts: {card.experts}, top_k: {card.experts_per_token}, "
            f"moe_intermediate_size: {card.ffn}, enable_shared_expert: {shared}}}"
        )
    return f"""CUDA_DEVICE_MAX_CONNECTIONS=1 {launch.torchrun} run_train.py --config-file config.yaml
# config.yaml
general: {{project: {card.name}, ignore_sanity_checks: true}}
parallelism: {{dp: {grid.data}, tp: {grid.tensor}, pp: {grid.pipeline}, context_parallel_size: {grid.context},
  expert_parallel_size: 1, pp_engine: 1f1b, tp_mode: REDUCE_SCATTER, tp_linear_async_communication: true,
  recompute_layer: {str(grid.recomputation == "full").lower()}}}
optimizer: {{zero_stage: {grid.zero_stage}, accumulate_grad_in_fp32: true, weight_decay: 0.01, clip_grad: 1.0,
  optimizer_factory: {{name: adamW, adam_eps: 1.0e-8, adam_beta1: 0.9, adam_beta2: 0.95, torch_adam_is_fused: true}},
  learning_rate_scheduler: {{learning_rate: 1.0e-4, lr_warmup_style: linear, lr_decay_style: linear}}}}
tokens: {{micro_batch_size: {grid.microbatch}, batch_accumulation_per_replica: {grid.accumulation},
  sequence_length: {card.sequence}, train_steps: 20}}
model: {{dtype: bfloat16, init_method: {{std: 0.02}}, model_config: {{{kind}: true,
  num_hidden_layers: {card.layers}, hidden_size: {card.hidden}, intermediate_size: {card.ffn},
  num_attention_heads: {card.heads}, num_key_value_heads: {card.key_heads}, vocab_size: {card.vocabulary},
  max_position_embeddings: {card.sequence},
  tie_word_embeddings: {str(card.tied_embeddings).lower()}{biases}{experts}}}}}"""


def otherwise(launch: Launch) -> Iterator[str]:
    """What nanotron does otherwise than planned."""
    if launch.grid.pipeline > 1:
        yield "stages are cut by parameters, as nanotron does"
    if launch.card.window:
        yield f"attention looks at all tokens, not at {launch.card.window}"


def _check(launch: Launch) -> None:
    card, grid = launch.card, launch.grid
    if grid.zero_stage > 1 or grid.recomputation not in ("none", "full"):
        raise InputError(
            f"zero_stage is {grid.zero_stage}, recomputation {grid.recomputation}: nanotron has ZeRO-0 and -1 and "
            f"recomputes whole blocks; take megatron or torchtitan"
        )
    if grid.chunks > 1 or grid.layout or grid.shard_group:
        raise InputError(
            f"chunks is {grid.chunks}, layout {grid.layout!r}, shard_group {grid.shard_group}: nanotron lays one "
            "stage on each device by itself and shares states over all replicas; take megatron"
        )
    require(grid.expert == 1, "expert", grid.expert, "nanotron 0.4 lays its mesh out for 1; take megatron")
    if launch.precision != "bf16":
        raise InputError(f"accelerator is {launch.accelerator}: nanotron's attention needs bf16; take megatron")
    own = (
        card.gated and card.norm_vectors == 1 and card.norms == 2 and not (card.biases or card.positions or card.latent)
        and card.width * card.heads == card.hidden and not (card.query_key_norm or card.sinks or card.dense_layers)
    )  # fmt: skip
    if not own:
        raise InputError(f"card {card.name}: nanotron trains Llama's and Qwen 2's blocks alone; take megatron")
