"""nanotron's configuration, a YAML file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from simulator.errors import InputError
from simulator.language_models.model_card import ModelCard
from simulator.readers._source import Source, StartedRun, grid_of


def recognises(source: Source) -> bool:
    return {"parallelism", "model", "tokens"} <= set(source.content)


def read(source: Source) -> StartedRun:
    """Raises InputError where a number is missing."""
    content = source.content
    spread, tokens = _section(content, "parallelism"), _section(content, "tokens")
    optimizer = content.get("optimizer") if isinstance(content.get("optimizer"), dict) else {}
    data, tensor, pipeline = (_count(spread, name) for name in ("dp", "tp", "pp"))
    context = _count(spread, "context_parallel_size", 1)
    started = replace(source, devices=source.devices or data * tensor * pipeline * context)
    grid = grid_of(
        started, tensor=tensor, pipeline=pipeline, context=context, microbatch=_count(tokens, "micro_batch_size"),
        accumulation=_count(tokens, "batch_accumulation_per_replica"),
        zero_stage=_count(optimizer or {}, "zero_stage", 0), expert=_count(spread, "expert_parallel_size", 1),
        recomputation="full" if spread.get("recompute_layer") else "none",
    )  # fmt: skip
    if grid.data != data:
        raise InputError(f"{source.name}: dp is {data}: {started.world} devices leave {grid.data} replicas")
    unread = tuple(
        f"parallelism.{name} {spread[name]}" for name, usual in (("pp_engine", "1f1b"), ("tp_mode", "REDUCE_SCATTER"))
        if pipeline * tensor > 1 and str(spread.get(name, usual)).lower() != usual.lower()
    )  # fmt: skip
    return StartedRun(runtime="nanotron", card=_card(content, tokens, source.name), grid=grid, unread=unread)


def _card(content: Mapping[str, Any], tokens: Mapping[str, Any], name: str) -> ModelCard:
    model = _section(_section(content, "model"), "model_config")
    experts = model.get("moe_config")
    mixture: dict[str, Any] = {}
    if isinstance(experts, dict):
        shared = _count(experts, "shared_expert_intermediate_size", 5632) if experts.get("enable_shared_expert") else 0
        mixture = {"experts": _count(experts, "num_experts", 8), "experts_per_token": _count(experts, "top_k", 2),
                   "ffn": _count(experts, "moe_intermediate_size", 1408), "shared_ffn": shared}  # fmt: skip
    heads = _count(model, "num_attention_heads")
    fields = {
        "layers": _count(model, "num_hidden_layers"), "hidden": _count(model, "hidden_size"), "heads": heads,
        "kv_heads": _count(model, "num_key_value_heads", heads), "ffn": _count(model, "intermediate_size"),
        "vocabulary": _count(model, "vocab_size"), "sequence": _count(tokens, "sequence_length"),
        "tied_embeddings": bool(model.get("tie_word_embeddings")), "qkv_biases": bool(model.get("attention_bias")),
        **mixture,
    }  # fmt: skip
    return ModelCard(name=f"the model of {name}", source=f"configuration {name}", **fields)


def _section(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = content.get(name)
    if not isinstance(part, dict):
        raise InputError(f"{name} is {part!r}: a configuration of nanotron has a section there")
    return part


def _count(section: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = section.get(name, default)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{name} is {value!r}: it is a whole number")
    return value
