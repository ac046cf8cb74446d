"""Hugging Face accelerate's YAML, beside which --model says what is trained and Trainer's options how much of it at a
time."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from simulator.errors import require, require_name
from simulator.language_models.training_grid import TrainingGrid
from simulator.readers import deepspeed
from simulator.readers._source import Options, Source, StartedRun, flat, grid_of, source_of

TYPES = {name: name for name in ("NO", "MULTI_GPU", "TP", "FSDP", "DEEPSPEED", "MEGATRON_LM")}
STRATEGIES = {
    "FULL_SHARD": (3, False), "SHARD_GRAD_OP": (2, False), "NO_SHARD": (0, False), "HYBRID_SHARD": (3, True),
    "HYBRID_SHARD_ZERO2": (2, True),
}  # fmt: skip
"""ZeRO stage of FSDP's, in the order of their numbers, and whether the devices of a node share, nodes being copies."""
ALIASES = {**dict(zip("12345", STRATEGIES, strict=True)), "TRUE": "FULL_SHARD", "FALSE": "SHARD_GRAD_OP"}
"""Numbers, and what FSDP 2 says of resharding after the forward pass."""
MICROBATCH = "per_device_train_batch_size"
CHECKPOINTS = ("gradient_checkpointing", "fsdp_config.fsdp_activation_checkpointing")
"""Of Trainer's line, or of the file."""
CHANGES = re.compile(
    r"^(distributed_type|dynamo_config\.dynamo_backend|parallelism_config|fsdp_config\.fsdp_offload_params|"
    r"megatron_lm_config\.megatron_lm_(?!gradient_clipping))"
)


def recognises(source: Source) -> bool:
    return "distributed_type" in source.content or "fsdp_config" in source.content


def read(source: Source) -> StartedRun:
    """Raises InputError without a model. The file has no micro-batch: where no line says it, one sequence is taken."""
    line = {name.replace("-", "_"): tuple(map(str.lower, words)) for name, words in source.options.items()}
    said = {name: words for name, words in flat(source.content).items() if words != ("auto",)}
    own = Options({**said, **line}, source.name)
    processes, machines = own.count("num_processes", default=0), own.count("num_machines", default=0) or 1
    if processes and not source.processes:
        require(processes % machines == 0, "num_processes", processes, f"{machines} machines have as many each")
        source = replace(source, nodes=machines, processes=processes // machines)
    of = own.named("distributed_type", TYPES) or ("FSDP" if "distributed_type" not in source.content else "")
    own.named("dynamo_config.dynamo_backend", {"NO": "no", "no": "no"})
    again = own.count("gradient_accumulation_steps", default=1)
    if of == "DEEPSPEED":
        started = deepspeed.read(replace(source, content=_of_deepspeed(own, again)))
        return replace(started, unread=(*started.unread, *_left(own)))
    overlaps = of != "MEGATRON_LM"
    grid = _torch(own, source, again, shards=of == "FSDP") if overlaps else _megatron(own, source, again)
    precision = own.text("mixed_precision") or "no"
    return StartedRun(
        runtime="fsdp2" if overlaps else "megatron", card=source.read_card(), grid=grid, overlaps_sums=overlaps,
        overlaps_gathers=overlaps, precision={"no": "fp32", "false": "fp32"}.get(precision, precision),
        unread=(*_left(own), *(() if own.text(MICROBATCH) else ("micro-batch: one sequence is taken",))),
    )  # fmt: skip


def _left(own: Options) -> tuple[str, ...]:
    """Without sizes of 1."""
    return tuple(each for each in own.left(CHANGES) if not each.endswith(" 1"))


def _torch(own: Options, source: Source, again: int, *, shards: bool) -> TrainingGrid:
    """DistributedDataParallel, or FSDP where it `shards`, as accelerate's own parallelism spreads it."""
    name = "parallelism_config.parallelism_config_"
    sizes = [own.count(f"{name}{kind}_size", default=0) for kind in ("dp_replicate", "dp_shard", "tp", "cp")]
    replicate, shard, tensor, context = (size or 1 for size in sizes)
    if context == 1:
        own.text(f"{name}cp_comm_strategy")
    grid = grid_of(
        source, tensor=tensor, context=context, sequence_parallel=tensor == 1, accumulation=again,
        microbatch=own.count(MICROBATCH, default=1), recomputation="full" if own.has(*CHECKPOINTS) else "none",
    )  # fmt: skip
    spread = any(sizes)
    rule = f"it and dp_shard_size {shard} multiply to the {grid.data} replicas of {source.world} devices"
    require(not spread or replicate * shard == grid.data, "dp_replicate_size", replicate, rule)
    said = own.text("fsdp_config.fsdp_reshard_after_forward", "fsdp_config.fsdp_sharding_strategy") or "FULL_SHARD"
    strategy = ALIASES.get(said.upper(), said.upper())
    require_name("fsdp_sharding_strategy", strategy, STRATEGIES)
    stage, hybrid = STRATEGIES[strategy]
    group = source.node_devices if hybrid and grid.data > source.node_devices else 0
    if spread:
        group = shard * context if replicate > 1 else 0
    shards = shards and grid.replicas > 1 and group != 1
    return replace(grid, zero_stage=stage * shards, shard_group=group * (shards and stage > 0))


def _of_deepspeed(own: Options, again: int) -> dict[str, Any]:
    """DeepSpeed's file: the one that is named, or what accelerate makes of its questions."""
    if file := own.text("deepspeed_config.deepspeed_config_file"):
        return dict(source_of(None, file, None, None).content)
    devices = {name: own.text(f"deepspeed_config.offload_{name}_device") or "none" for name in ("optimizer", "param")}
    offloads = {f"offload_{name}": {"device": device} for name, device in devices.items()}
    return {
        "zero_optimization": {"stage": own.count("deepspeed_config.zero_stage", default=2), **offloads},
        "gradient_accumulation_steps": own.count("deepspeed_config.gradient_accumulation_steps", default=again),
        own.text("mixed_precision") or "no": {"enabled": True},
    }


def _megatron(own: Options, source: Source, again: int) -> TrainingGrid:
    name = "megatron_lm_config.megatron_lm_"
    tensor = own.count(f"{name}tp_degree", default=1)
    return grid_of(
        source, tensor=tensor, pipeline=own.count(f"{name}pp_degree", default=1),
        accumulation=own.count(f"{name}num_micro_batches", default=again), microbatch=own.count(MICROBATCH, default=1),
        sequence_parallel=own.has(f"{name}sequence_parallelism") or tensor == 1,
        recomputation="selective" if own.has(f"{name}recompute_activations") else "none",
        zero_stage=int(own.has(f"{name}use_distributed_optimizer")),
    )  # fmt: skip
