"""Megatron-LM's arguments, on a command line or in YAML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from simulator.errors import InputError, UnknownNameError, require
from simulator.exports.launch import pinned
from simulator.language_models.card_files import read_card
from simulator.language_models.device_model import SCORES
from simulator.language_models.model_card import LatentAttention, ModelCard
from simulator.plan_rules import COMBINED
from simulator.readers._source import DTYPES, Options, Source, StartedRun, grid_of

SCRIPTS = ("pretrain_gpt", "pretrain_mamba", "pretrain_hybrid", "pretrain_bert")
CHANGES = re.compile(
    r"^(fp8|fp4|recompute|overlap|no-overlap|tp-comm|cpu-offload|offload|cuda-graph|enable-cuda|moe-|virtual|"
    r"num-layers-per-virtual|num-virtual|attention-backend|transformer-impl|window|mtp|decoder-|account-for|delay-wgrad|"
    r"use-tp-pp|num-distributed-optimizer|optimizer|calculate-per-token|empty-unused|hybrid|mamba|"
    r"is-hybrid|no-bias|no-masked|no-gradient-acc|multi-|squared|ckpt-assume|async|defer|mixed|context-parallel|cp-comm|"
    r"main-(grads|params)|grad-reduce|exp-avg|use-precision-aware|rampup|attention-dropout|num-layers-in-)"
)
"""Arguments that may change a step."""
HARMLESS = ("moe-aux-loss-coeff", "moe-z-loss-coeff", "moe-router-load-balancing-type", "cp-comm-type", "async-save",
            "moe-token-dispatcher-type", "moe-grouped-gemm", "transformer-impl", "attention-backend",
            "moe-permute-fusion", "moe-router-dtype", "fp8-margin", "fp8-interval", "fp8-amax-history-len",
            "fp8-amax-compute-algo")  # fmt: skip
"""What we take as given, or what changes no step."""
RECIPES: dict[str, tuple[str, ...]] = {"overlap-grad-reduce": (), "overlap-param-gather": ()}
"""What a file that is silent of it is taken to say, as NVIDIA's recipes do, and not to drop out; a command line asks
for it, and drops out 0.1 unless it says otherwise."""
UNEVEN = re.compile(r"pipeline-model-parallel-layout|num-layers-in-|decoder-(first|last)|account-for|hybrid-")
"""Arguments with which stages may have unequally many blocks."""
OF_FILES = {
    f"--{name}" for name in ("add-bias-linear", "devices", "num-nodes", "precision", "activation-func", "mcore-gpt",
                             "share-embeddings-and-output-weights", "name", "library")
}  # fmt: skip
"""Names of its configuration classes, and of NeMo's files, that are no arguments."""
OF_NEMO = {
    "overlap-grad-sync": "overlap-grad-reduce", "overlap-param-sync": "overlap-param-gather", "bias": "add-bias-linear",
    "virtual-pipeline-model-parallel-size": "num-virtual-stages-per-pipeline-rank", "activation": "activation-func",
    "grad-sync-dtype": "main-grads-dtype",
}  # fmt: skip
"""Names in its files of what Megatron-LM calls otherwise."""
ATTENTION = {"unfused": SCORES, "local": SCORES}
"""Kernels by --attention-backend and --transformer-impl, where these are no fused ones."""
FP8 = {"delayed": "fp8", "tensorwise": "fp8", "blockwise": "fp8-block", "mxfp8": "mxfp8"}
"""Precisions by --fp8-recipe."""
TOKENIZERS = {
    "GPT2BPETokenizer": 50257,
    "Llama2Tokenizer": 32000,
    "SentencePieceTokenizer": 32000,
    "Llama3Tokenizer": 128256,
}


def recognises(source: Source) -> bool:
    named = any(script in source.script for script in SCRIPTS)
    return named or "num-layers" in source.options or "num-layers" in _flat(source.content)


def read(source: Source) -> StartedRun:
    """Raises InputError where an argument is missing or none of Megatron-LM's."""
    options = dict(source.options) or {
        OF_NEMO.get(name, name): () if value is True else ("false",) if value is False else _words(value)
        for name, value in _flat(source.content).items()
        if value is not None
    }
    own = Options(options if source.options else RECIPES | options, source.name)
    if not source.options and not source.devices and own.text("devices"):
        source = replace(source, processes=own.count("devices"), nodes=own.count("num-nodes", default=1))
    card = _card(own, source)
    tensor, pipeline, context, expert = (
        own.count(f"{kind}-parallel-size", default=1)
        for kind in ("tensor-model", "pipeline-model", "context", "expert-model")
    )
    text = own.text("pipeline-model-parallel-layout")
    uneven = any(UNEVEN.match(name) and words != ("false",) for name, words in options.items())
    chunks, further = _chunks(own, card.layers, pipeline, uneven=uneven), own.count("mtp-num-layers", default=0)
    recomputation, partly = _recomputation(own, card.layers // (pipeline * chunks))
    if further and text is None and pipeline > 1:  # their blocks are on the last stage
        of_stage = "t" * (card.layers // pipeline // chunks)
        text = f"E{'|'.join([of_stage] * pipeline * chunks)}{'m' * further}L"
    card = replace(card, layers=card.layers + further, next_tokens=further)
    grid = grid_of(
        source, tensor=tensor, pipeline=pipeline, context=context, expert=expert,
        expert_tensor=own.count("expert-tensor-parallel-size", default=0), zero_stage=_zero_stage(own),
        microbatch=own.count("micro-batch-size", default=1),
        batch=own.count("global-batch-size", default=0) or None,
        recomputation=recomputation, layout=_layout(text and text.replace("m", "t"), card, pipeline), chunks=chunks,
        sequence_parallel=own.has("sequence-parallel") or tensor == 1,
        schedule=COMBINED if own.has("overlap-moe-expert-parallel-comm") else "",
    )  # fmt: skip
    groups = own.count("num-distributed-optimizer-instances", default=1)
    rule = f"it divides data x context, {grid.replicas}"
    require(grid.replicas % groups == 0, "num-distributed-optimizer-instances", groups, rule)
    if groups > 1:
        grid = replace(grid, shard_group=grid.replicas // groups)
    said = own.text("precision") or ""
    precision = "bf16" if own.has("bf16") or said.startswith("bf16") else "fp16" if own.has("fp16") else "fp32"
    gradient_dtype = _gradient_dtype(own, precision)
    recipe = own.named("fp8-recipe", FP8) or FP8["delayed"]
    precision = recipe if own.has("fp8-format", "fp8") else precision
    attention = own.named("attention-backend", ATTENTION)
    attention = attention or (None if own.has("use-flash-attn") else own.named("transformer-impl", ATTENTION))
    own.has(*HARMLESS)
    once = own.has("moe-enable-deepep") or own.text("moe-flex-dispatcher-backend") in ("deepep", "hybridep")
    overlaps = once if card.experts else grid.tensor > 1 and own.has("tp-comm-overlap")
    if overlaps or grid.tensor == 1:
        own.has("tp-comm-overlap")
    sums, gathers = (own.has(name) or grid.zero_stage > 1 for name in RECIPES)  # FSDP moves layers as they come
    return StartedRun(
        runtime="megatron", card=card, grid=grid, precision=precision, attention=attention, overlaps=overlaps,
        gradient_dtype=gradient_dtype, fused_experts=own.has("use-transformer-engine-op-fuser"),
        overlaps_sums=sums, overlaps_gathers=gathers, options=options,
        unread=own.left(CHANGES) + partly + _vocabulary(own)[1] + _foreign(options),
    )  # fmt: skip


def _gradient_dtype(own: Options, precision: str) -> str:
    """Gradients of bf16 are fp32 unless it is said otherwise, those of fp16 where it is said."""
    main, whole = own.text("main-grads-dtype") or "fp32", own.text("grad-reduce-in-fp32") != "false"
    if own.has("accumulate-allreduce-grads-in-fp32") or precision == "fp32":
        return DTYPES["fp32"]
    halved = own.has("grad-reduce-in-bf16") or main != "fp32" or not whole
    return DTYPES[precision if halved or precision == "fp16" else "fp32"]


def _flat(content: Mapping[str, Any]) -> dict[str, Any]:
    """A YAML file's arguments with hyphens, which may stand in sections."""
    flat: dict[str, Any] = {}
    for name, value in content.items():
        flat |= _flat(value) if isinstance(value, dict) else {name.replace("_", "-"): value}
    return flat


def _words(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else (str(value),)


def _foreign(options: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Options that Megatron-LM has not, the first three."""
    known = pinned("megatron").arguments | OF_FILES
    return tuple(f"{name} (none of Megatron-LM's)" for name in options if f"--{name}" not in known)[:3]


def _card(own: Options, source: Source) -> ModelCard:
    if source.model:
        named = read_card(source.model)
        if own.count("num-layers", default=named.layers) != named.layers:
            raise InputError(f"{source.name}: num-layers is not that of {named.name}, {named.layers}")
    hidden, heads = own.count("hidden-size"), own.count("num-attention-heads")
    swiglu = own.has("swiglu") or own.text("activation-func") in ("swiglu", "fast-swiglu")
    wide = own.count("ffn-hidden-size", default=int(4 * hidden * 2 / 3 / 64) * 64 if swiglu else 4 * hidden)
    experts = own.count("num-experts", "num-moe-experts", default=0)
    layers, sequence = own.count("num-layers"), own.count("seq-length", "encoder-seq-length")
    latent = _latent(own) if own.has("multi-latent-attention") else None
    embedding = own.text("position-embedding-type")
    rotary = own.has("use-rotary-position-embeddings") or embedding not in (None, "learned_absolute")
    positions = own.count("max-position-embeddings", default=sequence)
    normed = own.has("qk-layernorm") and not latent
    tied = not own.has("untie-embeddings-and-output-weights")
    tied = tied and own.text("share-embeddings-and-output-weights") != "false"
    grouped = own.has("group-query-attention") or (not source.options and own.has("num-query-groups"))
    groups = own.count("num-query-groups", default=1) if grouped else None
    dropout = bool(re.search("[1-9]", own.text("hidden-dropout") or ("0.1" if source.options else "0")))
    if dropout:
        own.text("attention-dropout")
    dense = _dense_layers(own.text("moe-layer-freq"), layers) if experts else 0
    return ModelCard(
        name=f"the model of {source.name}", layers=layers, hidden=hidden, heads=heads, sequence=sequence,
        ffn=own.count("moe-ffn-hidden-size", default=wide) if experts else wide, latent=latent,
        gated=swiglu or own.has("gated-linear-unit"),
        vocabulary=_vocabulary(own)[0], kv_heads=groups, head_width=own.count("kv-channels", default=0) or None,
        experts=experts,
        experts_per_token=own.count("moe-router-topk", default=2) if experts else 0,
        expert_groups=own.count("moe-router-num-groups", default=1) if experts else 1,
        groups_per_token=own.count("moe-router-group-topk", default=1) if experts else 1,
        shared_ffn=own.count("moe-shared-expert-intermediate-size", default=0), dense_layers=dense,
        dense_ffn=wide if dense else 0, tied_embeddings=tied,
        norm_vectors=1 if (own.text("normalization") or "").lower() == "rmsnorm" else 2,
        query_key_norm="head" if normed else "",
        biases=not own.has("disable-bias-linear") and own.text("add-bias-linear") != "false",
        qkv_biases=own.has("add-qkv-bias"),
        positions=0 if rotary else positions, dropout=dropout, source=f"arguments of {source.name}",
    )  # fmt: skip


def _latent(own: Options) -> LatentAttention:
    return LatentAttention(
        query_rank=own.count("q-lora-rank", default=0), key_rank=own.count("kv-lora-rank", default=32),
        rotary=own.count("qk-pos-emb-head-dim", default=64), key_width=own.count("qk-head-dim", default=128),
        value_width=own.count("v-head-dim", default=128),
    )  # fmt: skip


def _vocabulary(own: Options) -> tuple[int, tuple[str, ...]]:
    """As it is said, or by the tokenizer; and which tokenizer is not known."""
    named, kind = own.text("tokenizer-model", "tokenizer-name-or-path"), own.text("tokenizer-type")
    known = own.count("vocab-size", "padded-vocab-size", default=0) or TOKENIZERS.get(kind or "", 0)
    if known:
        return known, ()
    try:
        return read_card(named or "").vocabulary, ()
    except (UnknownNameError, OSError, InputError):
        taken = TOKENIZERS["GPT2BPETokenizer"]
        said = named or kind or own.text("library")
        return taken, (f"tokenizer {said}: a vocabulary of {taken:,} is taken; --vocab-size says it",) if said else ()


def _dense_layers(text: str | None, layers: int) -> int:
    """The first blocks without experts, of "([0]*3+[1]*58)"."""
    if text is None or text.strip() == "1":
        return 0
    runs = re.findall(r"\[([01, ]+)\](?:\*(\d+))?", text if "[" in text else f"[{text}]")
    kinds = [kind for some, times in runs for kind in re.findall(r"\d", some) * min(int(times or 1), layers + 1)]
    if len(kinds) != layers or "1" not in kinds or kinds != sorted(kinds):
        raise InputError(f"moe-layer-freq is {text}: blocks with experts stand behind those without, and are {layers}")
    return kinds.count("0")


def _zero_stage(own: Options) -> int:
    strategy = own.text("data-parallel-sharding-strategy")
    stages = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
    if own.has("use-megatron-fsdp", "use-custom-fsdp"):
        own.has("use-distributed-optimizer", "ckpt-format")
        return stages.get(strategy or "no_shard", 3)
    if own.has("use-torch-fsdp2"):
        return 3
    return 1 if own.has("use-distributed-optimizer") or own.text("name") == "distributed_fused_adam" else 0


def _chunks(own: Options, layers: int, pipeline: int, *, uneven: bool) -> int:
    """Virtual stages of a device. Raises InputError where blocks are no multiple of stages, or all are one device's, as
    Megatron-LM does."""
    chunks = own.count("num-virtual-stages-per-pipeline-rank", default=1)
    of_chunk = own.count("num-layers-per-virtual-pipeline-stage", default=0)
    parts = of_chunk or chunks
    rule = f"it is a multiple of {pipeline} stages" + f" x {parts}" * (parts > 1)
    require(uneven or layers % (pipeline * parts) == 0, "num-layers", layers, rule)
    chunks = max(1, layers // pipeline // of_chunk) if of_chunk else chunks
    rule = f"{chunks} virtual stages of a device need more than one"
    require(pipeline > 1 or chunks == 1, "pipeline-model-parallel-size", pipeline, rule)
    return chunks


def _recomputation(own: Options, of_stage: int) -> tuple[str, tuple[str, ...]]:
    """Its name, and what that does not count; of_stage: blocks of a virtual stage.

    Groups of blocks count as whole blocks that are recomputed, which keeps more and takes as long; the first blocks of
    each stage as all or none, whichever is nearer.
    """
    kind = own.text("recompute-granularity") or ("selective" if own.has("recompute-activations") else "none")
    modules, method = own.text("recompute-modules") or "core_attn", own.text("recompute-method")
    again = own.count("recompute-num-layers", default=0)
    if kind == "full" and method == "block" and again < of_stage:
        kind, taken = ("full", "all") if 2 * again >= of_stage else ("none", "none")
        partly = f"recompute-num-layers {again} of {of_stage} blocks of a stage ({taken} taken)"
        return kind, (partly,) if again else ()
    return "+".join(modules.split()) if kind == "selective" and modules != "core_attn" else kind, ()


def _layout(text: str | None, card: ModelCard, pipeline: int) -> str:
    """Blocks by stage, such as "9,8", of "Et*9|t*8L"; what says more, such as "Ett|(tt|)*3,tL", as it stands."""
    if not text:
        return ""
    unrolled = text.replace(",", "")
    for pattern in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)"):
        unrolled = re.sub(pattern, lambda match: match.group(1) * min(int(match.group(2)), 2000), unrolled)
    counts = tuple(stage.count("t") for stage in unrolled.split("|"))
    rule = f"it has {len(counts)} stages of {sum(counts)} blocks; {pipeline} and {card.layers} are read"
    fits = len(counts) % pipeline == 0 and sum(counts) == card.layers and (pipeline > 1 or len(counts) == 1)
    require(fits, "pipeline-model-parallel-layout", repr(text[:60]), rule)
    plain = len(counts) == pipeline and unrolled.startswith("E") and unrolled.endswith("L") and "|L" not in unrolled
    return ",".join(map(str, counts)) if plain else text
