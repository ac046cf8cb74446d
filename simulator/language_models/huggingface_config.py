"""A decoder from the config.json of its checkpoint, as Hugging Face's transformers writes it, by its model_type."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from simulator.errors import InputError, require_name
from simulator.language_models.model_card import LatentAttention, ModelCard

LONGEST_SEQUENCE = 8192
"""Tokens taken where a configuration allows longer ones: models are extended to those after most of their training."""
Fields = dict[str, Any]
DEFAULTS: Mapping[str, Fields] = {
    "qwen3": {"head_dim": 128}, "gemma": {"head_dim": 256}, "gemma2": {"head_dim": 256}, "gpt_oss": {"head_dim": 64},
    "gemma3_text": {
        "vocab_size": 262_208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "max_position_embeddings": 131_072,
    },
}  # fmt: skip
"""By type, what its class in transformers has where a configuration leaves it out, and no card would."""
_HARMLESS = re.compile(
    r"token_id|initializer|rope|rotary|_dropout|dropout|_pdrop|epsilon|(^|_)eps$|dtype|architectures|_version|use_cache|"
    r"^(model_type|auto_map|hidden_act\w*|activation_function|_name_or_path|pretraining_tp|scale_|reorder_|logit|"
    r"output_|return_|summary_|task_specific|offset_alpha|is_\w+|aux_loss_alpha|router_aux|router_jitter|router_z|seq_aux|"
    r"norm_topk|routed_scaling|scoring_func|topk_|n_group|ep_size|initial_context|query_pre_attn|final_logit|attn_logit|"
    r"cache_implementation|max_position|max_window_layers|n_ctx|unk_index|apply_residual|skip_bias|masked_softmax|"
    r"attention_softmax|slow_but_exact|gradient_checkpointing|for_llm|init_config|init_device|emb_|learned_pos|logit_|"
    r"verbose|tokenizer_name|_attn_implementation\w*|partial_\w+|qk_layernorm|clip_qkv|language_model_\w+|resid\w*|"
    r"embd\w*|swiglu_limit|original_max\w*|use_bfloat16|seq_length|classifier\w*|hidden_dropout\w*|vision\w*|"
    r"image\w*|boi\w*|eoi\w*|mm_tokens\w*|for_causal\w*|attention_bias|mlp_bias|no_rope_layers|attention_chunk_size|"
    r"attn_scale|attn_temperature\w*|floor_scale|use_qk_norm|hidden_activation|n_special|predict_special|afn|name_or_path|"
    r"transformers\w*|head_dim|sliding_window\w*|layer_types|_sliding\w*|use_parallel_residual|ff_factor|rms_norm\w*)"
)
"""Fields that change no step, or are read by those types that have them."""


_IN_TURN = "blocks with and without experts take turns, which no card can say"


class _ConfigFields:
    """The fields of a configuration; those that were asked for are remembered."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields, self._read = fields, set[str]()

    def __call__(self, *names: str) -> int:
        """The whole number under the first of `names` that is there. Raises InputError where there is none."""
        value = self.get(*names)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InputError(f"{names[0]} is {value!r}: a configuration of this type has a whole number from 0 there")
        return value

    def get(self, *names: str, default: Any = None) -> Any:
        """The value under the first of `names` that is there and not null, else `default`."""
        self._read.update(names)
        return next((self._fields[name] for name in names if self._fields.get(name) is not None), default)

    def count(self, *names: str, default: int = 0) -> int:
        return default if self.get(*names) is None else self(*names)

    def left(self) -> tuple[str, ...]:
        """Fields that say something, were not read and may change a step."""
        said = {name: value for name, value in self._fields.items() if value not in (None, False, 0, "", [], {})}
        matter = (name for name in sorted(said) if name not in self._read and not _HARMLESS.search(name))
        return tuple(f"{name} {_short(said[name])}" for name in matter)


def is_config(text: str) -> bool:
    """Whether a JSON text is a model's configuration."""
    return re.search(r'"model_type"\s*:', text) is not None and '"schema"' not in text


def card_of_config(content: Any, name: str) -> ModelCard:
    """The decoder that a configuration describes. Raises UnknownNameError for a model_type that is not known,
    InputError for what no card can say."""
    if not isinstance(content, dict) or not isinstance(content.get("model_type"), str):
        raise InputError("model_type is missing: is this the config.json of a model?")
    nested = content.get("text_config")
    fields = nested if isinstance(nested, dict) and "hidden_size" in nested else content
    kind = fields.get("model_type") or content["model_type"]
    require_name("model_type", kind, TYPES)
    read = _ConfigFields({**DEFAULTS.get(kind, {}), **fields})
    made = TYPES[kind](read)
    most = made.pop("sequence", None) or read("max_position_embeddings")
    left = read.left()
    return ModelCard(
        name=name, sequence=min(most, LONGEST_SEQUENCE), not_counted=left,
        source=f"config.json of model_type {kind}, for sequences of up to {most:,} tokens", **made,
    )  # fmt: skip


def _decoder(read: _ConfigFields, *, tied: bool = False) -> Fields:
    """What most types call the same."""
    return {
        "layers": read("num_hidden_layers"), "hidden": read("hidden_size"), "heads": read("num_attention_heads"),
        "kv_heads": read.count("num_key_value_heads") or None, "head_width": read.count("head_dim") or None,
        "ffn": read("intermediate_size"), "vocabulary": read("vocab_size"),
        "tied_embeddings": bool(read.get("tie_word_embeddings", default=tied)),
    }  # fmt: skip


def _experts(read: _ConfigFields, *names: str) -> Fields:
    """Of a mixture; names: other ones of their number, which come first."""
    of_token = read("num_experts_per_tok", "experts_per_token")
    return {"experts": read(*names, "num_local_experts"), "experts_per_token": of_token}


def _llama(read: _ConfigFields) -> Fields:
    attention, others = bool(read.get("attention_bias")), bool(read.get("mlp_bias"))
    if others and not attention:
        raise InputError("mlp_bias is true without attention_bias: no card says that")
    return {**_decoder(read), "biases": attention and others, "qkv_biases": attention and not others}


def _mistral(read: _ConfigFields) -> Fields:
    return {**_decoder(read), "window": read.count("sliding_window")}


def _qwen2(read: _ConfigFields) -> Fields:
    window = read.count("sliding_window") if read.get("use_sliding_window") else 0
    return {**_decoder(read), "qkv_biases": True, "window": window}


def _qwen3(read: _ConfigFields) -> Fields:
    return {**_qwen2(read), "qkv_biases": bool(read.get("attention_bias")), "query_key_norm": "head"}


def _qwen3_moe(read: _ConfigFields) -> Fields:
    if read.count("decoder_sparse_step", default=1) != 1 or read.get("mlp_only_layers"):
        raise InputError(f"decoder_sparse_step, mlp_only_layers: {_IN_TURN}")
    return {**_qwen3(read), "ffn": read("moe_intermediate_size"), **_experts(read, "num_experts")}


def _gelu(**fields: Any) -> Fields:
    """LayerNorm, biases, and feed-forward layers of two matrices."""
    return {"gated": False, "norm_vectors": 2, "biases": True, **fields}


def _gpt2(read: _ConfigFields) -> Fields:
    hidden, positions = read("n_embd", "hidden_size"), read("n_positions", "n_ctx")
    return _gelu(
        layers=read("n_layer"), hidden=hidden, heads=read("n_head"), ffn=read.count("n_inner") or 4 * hidden,
        vocabulary=read("vocab_size"), positions=positions, sequence=positions,
        tied_embeddings=bool(read.get("tie_word_embeddings", default=True)),
    )  # fmt: skip


def _bloom(read: _ConfigFields) -> Fields:
    hidden = read("hidden_size", "n_embed")
    return _gelu(
        layers=read("n_layer", "num_hidden_layers"), hidden=hidden, heads=read("n_head", "num_attention_heads"),
        ffn=4 * hidden, vocabulary=read("vocab_size"), embedding_norm=True, tied_embeddings=True,
        sequence=read.count("seq_length", default=2048),
    )  # fmt: skip


def _mpt(read: _ConfigFields) -> Fields:
    hidden, plain = read("d_model"), bool(read.get("no_bias", default=True))
    attention = read.get("attn_config", default={})
    keys = attention.get("kv_n_heads") if attention.get("attn_type") == "grouped_query_attention" else None
    return {
        "layers": read("n_layers"), "hidden": hidden, "heads": read("n_heads"), "kv_heads": keys,
        "ffn": hidden * read.count("expansion_ratio", default=4), "vocabulary": read("vocab_size"),
        "sequence": read("max_seq_len"), "gated": False, "biases": not plain, "norm_vectors": 1 if plain else 2,
        "tied_embeddings": True, "positions": 0 if attention.get("alibi") else read("max_seq_len"),
    }  # fmt: skip


def _gemma2(read: _ConfigFields) -> Fields:
    return {
        **_decoder(read, tied=True),
        "norms": 4,
        "window": read.count("sliding_window", default=4096),
        "whole_every": 2,
    }


def _gemma3(read: _ConfigFields) -> Fields:
    every = read.count("sliding_window_pattern", "_sliding_window_pattern", default=6)
    return {**_gemma2(read), "query_key_norm": "head", "whole_every": every}


def _falcon(read: _ConfigFields) -> Fields:
    hidden, heads = read("hidden_size"), read("num_attention_heads", "n_head")
    newer = bool(read.get("new_decoder_architecture"))
    keys = read("num_kv_heads", "n_head_kv") if newer else 1 if read.get("multi_query", default=True) else heads
    norms = 2 if newer or not read.get("parallel_attn", default=True) else 1
    return _gelu(
        layers=read("num_hidden_layers", "n_layer"), hidden=hidden, heads=heads, kv_heads=keys, norms=norms,
        ffn=read.count("ffn_hidden_size") or 4 * hidden, vocabulary=read("vocab_size"), biases=bool(read.get("bias")),
        tied_embeddings=bool(read.get("tie_word_embeddings", default=True)), sequence=2048,
    )  # fmt: skip


def _deepseek(read: _ConfigFields) -> Fields:
    if read.count("moe_layer_freq", default=1) != 1:
        raise InputError(f"moe_layer_freq is above 1: {_IN_TURN}")
    expert, dense = read("moe_intermediate_size"), read.count("first_k_dense_replace")
    latent = LatentAttention(
        query_rank=read.count("q_lora_rank"), key_rank=read("kv_lora_rank"), rotary=read("qk_rope_head_dim"),
        key_width=read("qk_nope_head_dim"), value_width=read("v_head_dim"),
    )  # fmt: skip
    return {
        **_decoder(read), "kv_heads": None, "head_width": None, "latent": latent, "ffn": expert,
        "experts": read("n_routed_experts"), "experts_per_token": read("num_experts_per_tok"),
        "expert_groups": read.count("n_group", default=1), "groups_per_token": read.count("topk_group", default=1),
        "shared_ffn": expert * read.count("n_shared_experts"), "dense_layers": dense,
        "dense_ffn": read("intermediate_size") if dense else 0,
        "router_bias": read.get("topk_method") == "noaux_tc",
    }  # fmt: skip


def _gpt_oss(read: _ConfigFields) -> Fields:
    window = {"window": read.count("sliding_window"), "whole_every": 2}
    return {**_decoder(read), **_experts(read), **window, "biases": True, "router_bias": True, "sinks": True}


def _llama4(read: _ConfigFields) -> Fields:
    if read.count("interleave_moe_layer_step", default=1) != 1:
        raise InputError(f"interleave_moe_layer_step is above 1: {_IN_TURN}")
    read.get("intermediate_size_mlp", "moe_layers")
    return {**_decoder(read), **_experts(read), "shared_ffn": read("intermediate_size")}


TYPES: Mapping[str, Callable[[_ConfigFields], Fields]] = {
    "llama": _llama, "granite": _llama, "mistral": _mistral, "phi3": _mistral, "qwen2": _qwen2, "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe, "gpt2": _gpt2, "bloom": _bloom, "mpt": _mpt, "gemma2": _gemma2, "gemma3_text": _gemma3,
    "falcon": _falcon, "deepseek_v2": _deepseek, "deepseek_v3": _deepseek, "kimi_k2": _deepseek, "gpt_oss": _gpt_oss,
    "llama4_text": _llama4,
    "mixtral": lambda read: {**_mistral(read), **_experts(read)},
    "gpt_neox": lambda read: {**_decoder(read), **_gelu(biases=bool(read.get("attention_bias", default=True)))},
    "gemma": lambda read: _decoder(read, tied=True),
    "phi": lambda read: {**_decoder(read), **_gelu(norms=1, head_bias=True)},
    "olmo": lambda read: {**_llama(read), "norm_vectors": 0},
    "olmo2": lambda read: {**_llama(read), "query_key_norm": "all"},
    "nemotron": lambda read: {**_llama(read), "gated": False, "norm_vectors": 2},
}  # fmt: skip
"""What is read of each type."""


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
