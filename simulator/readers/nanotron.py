"""nanotron's configuration, a YAML file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from simulator.errors import InputError
from simulator.language_models.model_card import ModelCard
from simulator.readers._source import DTYPES, Options, Source, StartedRun, count_in, flat, grid_of

PRECISIONS = {"float32": "fp32", "float16": "fp16"}
USUAL = {
    "model.dtype": "bfloat16",
    "model.model_config._attn_implementation": "flash_attention_2", "model.model_config.is_starcoder2_config": "false",
}  # fmt: skip
SPREAD = {"parallelism.pp_engine": "1f1b", "parallelism.tp_mode": "REDUCE_SCATTER"}
"""What is counted, of pipelines and tensor groups and of all; other values are named."""


def recognises(source: Source) -> bool:
    return {"parallelism", "model", "tokens"} <= set(source.content)


def read(source: Source) -> StartedRun:
    """Raises InputError where a number is missing."""
    content = source.content
    spread, tokens = _section(content, "parallelism"), _section(content, "tokens")
    optimizer = content.get("optimizer") if isinstance(content.get("optimizer"), dict) else {}
    data, tensor, pipeline = (count_in(spread, name) for name in ("dp", "tp", "pp"))
    context = count_in(spread, "context_parallel_size", 1)
    started = replace(source, devices=source.devices or data * tensor * pipeline * context)
    grid = grid_of(
        started, tensor=tensor, pipeline=pipeline, context=context, microbatch=count_in(tokens, "micro_batch_size"),
        accumulation=count_in(tokens, "batch_accumulation_per_replica"),
        zero_stage=count_in(optimizer or {}, "zero_stage", 0), expert=count_in(spread, "expert_parallel_size", 1),
        recomputation="full" if spread.get("recompute_layer") else "none",
    )  # fmt: skip
    if grid.data != data:
        raise InputError(f"{source.name}: dp is {data}: {started.world} devices leave {grid.data} replicas")
    own = Options(flat(content), source.name)
    usual = USUAL | SPREAD if pipeline * tensor > 1 else USUAL
    said = {name: own.text(name) or usual[name] for name in usual}
    unread = tuple(f"{name} {word}" for name, word in said.items() if word.lower() != usual[name].lower())
    precision = PRECISIONS.get(said["model.dtype"], "bf16")
    whole = own.text("optimizer.accumulate_grad_in_fp32") != "false"
    return StartedRun(
        runtime="nanotron", card=_card(content, tokens, source.name), grid=grid, unread=unread,
        precision=precision, gradient_dtype=DTYPES["fp32" if whole else precision],
    )  # fmt: skip


def _card(content: Mapping[str, Any], tokens: Mapping[str, Any], name: str) -> ModelCard:
    model = _section(_section(content, "model"), "model_config")
    experts = model.get("moe_config")
    mixture: dict[str, Any] = {}
    if isinstance(experts, dict):
        mixture = {
            "experts": count_in(experts, "num_experts", 8),
            "experts_per_token": count_in(experts, "top_k", 2),
            "ffn": count_in(experts, "moe_intermediate_size", 1408),
        }
        if experts.get("enable_shared_expert"):
            mixture["shared_ffn"] = count_in(experts, "shared_expert_intermediate_size", 5632)
    heads = count_in(model, "num_attention_heads")
    fields = {
        "layers": count_in(model, "num_hidden_layers"), "hidden": count_in(model, "hidden_size"), "heads": heads,
        "kv_heads": count_in(model, "num_key_value_heads", heads), "ffn": count_in(model, "intermediate_size"),
        "vocabulary": count_in(model, "vocab_size"), "sequence": count_in(tokens, "sequence_length"),
        "tied_embeddings": bool(model.get("tie_word_embeddings")), "qkv_biases": bool(model.get("attention_bias")),
        "window": max(0, count_in(model, "sliding_window_size", 0)),
        **mixture,
    }  # fmt: skip
    return ModelCard(name=f"the model of {name}", source=f"configuration {name}", **fields)


def _section(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = content.get(name)
    if not isinstance(part, dict):
        raise InputError(f"{name} is {part!r}: a configuration of nanotron has a section there")
    return part
