"""torchtitan: its command line with the configuration that this changes, or the TOML file of versions before."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from simulator.errors import require
from simulator.exports.torchtitan import CONFIGURATIONS, SCHEDULES
from simulator.language_models.card_files import read_card
from simulator.language_models.model_card import ModelCard
from simulator.readers._source import Options, Source, StartedRun, flat, grid_of

CHANGES = re.compile(
    r"^(parallelism|compile|quantiz|float8|mx|activation_checkpoint|model\.converters|training\.(dtype|mixed|enable_cpu))"
)
FLAVORS = {
    ("llama3", "1B"): "llama3-1b", ("llama3", "3B"): "llama3-3b", ("llama3", "8B"): "llama3-8b",
    ("llama3", "70B"): "llama3-70b", ("llama3", "405B"): "llama3-405b", ("deepseek_v3", "16B"): "deepseek-v2-lite",
    ("deepseek_v3", "671B"): "deepseek-v3", ("llama4", "17bx16e"): "llama4-scout",
}  # fmt: skip
"""Cards by the name and the flavor of a TOML file's [model]."""
MODES = {"full": "full", "none": "none", "selective": "op"}
"""Recomputation by its activation checkpointing."""
LOOPED = ("Interleaved", "LoopedBFS", "ZBV", "DualPipe")
"""Beginnings of schedules in which a device has several stages."""
ENDS = ("first", "last")
"""Stages that may have fewer layers."""
EIGHT_BITS = {"float8": "fp8", "mx": "mxfp8"}
"""Precisions by what model.converters names."""
SEQUENCE, MICROBATCH = 2048, 8
"""Of a TOML file that does not say."""
OF_FILES = {"activation_checkpoint.selective_ac_option": ("2",)}
"""Likewise: every second block is recomputed; today's configurations recompute by operator."""


def recognises(source: Source) -> bool:
    said = any(name.startswith(("parallelism.", "training.")) for name in source.options)
    return "torchtitan" in source.script or said or {"training", "parallelism"} <= set(source.content)


def read(source: Source) -> StartedRun:
    """Raises InputError where it does not say what is trained."""
    line = {name.replace("-", "_") if "." in name else name: words for name, words in source.options.items()}
    options = {**(OF_FILES if source.content else {}), **flat(source.content), **line}
    own = Options(options, source.name)
    card = _card(own, source)
    sequence = own.count("training.max_context_length", "training.seq_len", default=SEQUENCE)
    context, tensor, pipeline = (
        own.count(f"parallelism.{kind}_parallel_degree", default=1) for kind in ("context", "tensor", "pipeline")
    )
    expert = own.count("parallelism.expert_parallel_degree", default=1)
    grid = grid_of(
        source, tensor=tensor, pipeline=pipeline, context=context, zero_stage=0, expert=expert,
        expert_tensor=int(expert > 1 < tensor), recomputation=_recomputation(own), **_tokens(own, sequence, pipeline),
    )  # fmt: skip
    replicate = own.count("parallelism.data_parallel_replicate_degree", default=1)
    shard = own.count("parallelism.data_parallel_shard_degree", default=-1)
    whole_shard = shard if shard > 0 else grid.data // max(1, replicate)
    rule = f"it and shard {whole_shard} multiply to the {grid.data} replicas of {source.world} devices"
    require(replicate * whole_shard == grid.data, "data_parallel_replicate_degree", replicate, rule)
    if whole_shard * context > 1:
        after = own.text("parallelism.fsdp_reshard_after_forward") or "default"
        whole = after == "never" or (after == "default" and pipeline > 1)
        group = whole_shard * context if replicate > 1 else 0
        grid = replace(grid, zero_stage=2 if whole else 3, shard_group=group)
    own.text("training.disable_cuda_graphs")
    schedule = own.text("parallelism.pipeline_parallel_schedule") or SCHEDULES["1f1b"]
    if pipeline > 1:
        ours = next((name for name, theirs in SCHEDULES.items() if theirs == schedule), "")
        usual = ours in ("1f1b", "interleaved")
        grid = replace(grid, chunks=_chunks(own, schedule, card.layers, pipeline), schedule="" if usual else ours)
    precision = own.named("model.converters", EIGHT_BITS) or "bf16"
    precision = "fp8" if own.has("float8.enable_float8_linear") else precision
    if precision == "bf16":
        own.has(*(name for name in options if name.startswith(("float8.", "mx."))))
    unread = own.left(CHANGES)
    if pipeline > 1 and schedule not in SCHEDULES.values():
        unread = (*unread, f"parallelism.pipeline_parallel_schedule {schedule}")
    card = replace(card, sequence=sequence)
    return StartedRun(
        runtime="torchtitan", card=card, grid=grid, precision=precision, unread=unread, options=options
    )  # fmt: skip


def _card(own: Options, source: Source) -> ModelCard:
    configuration, name, flavor = own.text("config"), own.text("model.name"), own.text("model.flavor")
    module = own.text("module")
    words = (configuration or "").split()
    started = next((card for card, of in CONFIGURATIONS.items() if words and of == (module, words[0])), None)
    started = started or FLAVORS.get((name or "", flavor or ""))
    said = configuration or " ".join(filter(None, (name, flavor)))
    return read_card(started) if started and not source.model else source.read_card(said and f"no card of {said}")


def _chunks(own: Options, schedule: str, blocks: int, pipeline: int) -> int:
    """Stages of each device: of a looped schedule by the layers of a stage, embedding and output counted, else 2."""
    of_stage = own.count("parallelism.pipeline_parallel_layers_per_stage", default=0)
    around = sum(own.count(f"parallelism.pipeline_parallel_{end}_stage_less_layers", default=1) for end in ENDS)
    if not schedule.startswith(LOOPED):
        return 1
    return max(2, -(-(blocks + around) // of_stage) // pipeline) if of_stage else 2


def _tokens(own: Options, sequence: int, pipeline: int) -> dict[str, Any]:
    """Sequences of a micro-batch and of a step, by today's options or those of before."""
    today = own.count("training.num_tokens_per_microbatch_per_dp_rank", default=0)
    if today:
        microbatch = max(1, today // sequence)
        whole = own.count("training.num_tokens_per_train_step", default=-1)
        again = own.count("parallelism.num_pp_microbatches", default=1) if pipeline > 1 else 1
        said = {"batch": whole // sequence} if whole > 0 else {"accumulation": again}
        return {"microbatch": microbatch, **said}
    local = own.count("training.local_batch_size", "training.batch_size", default=MICROBATCH)
    batch = own.count("training.global_batch_size", default=-1)
    small = own.count("parallelism.pipeline_parallel_microbatch_size", default=1) if pipeline > 1 else local
    divides = small > 0 and local % small == 0
    require(divides, "pipeline_parallel_microbatch_size", small, f"it divides local_batch_size, {local}")
    said = {"batch": batch} if batch > 0 else {"accumulation": local // small}
    return {"microbatch": small, **said}


def _recomputation(own: Options) -> str:
    """By operator where nothing else is said; what cannot be expressed stays unread."""
    again = own.named("activation_checkpoint.mode", MODES) or "op"
    for mode, kind in MODES.items():
        if own.has(f"activation-checkpoint:{mode}", f"activation_checkpoint:{mode}"):
            again = kind
    if again != "op":
        own.text("activation_checkpoint.selective_ac_option")
        return again
    return own.named("activation_checkpoint.selective_ac_option", {"op": "op", "1": "full"}) or "op"
