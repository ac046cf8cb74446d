"""A plan as torchtitan's options: of a card a whole command, of other networks a script to be completed."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.errors import InputError, require
from simulator.exports import pipelining
from simulator.exports.launch import Launch
from simulator.exports.plan_shape import PlanShape, grid_of, recomputed_otherwise
from simulator.language_models.training_grid import TrainingGrid
from simulator.plan import Plan
from simulator.plan_rules import COMBINED
from simulator.workload import Profile

SCHEDULES = {**pipelining.SCHEDULES, "zb-v": "ZBVZeroBubble"}
CONFIGURATIONS = {
    "llama3-8b": ("llama3", "llama3_8b"), "llama3-70b": ("llama3", "llama3_70b"),
    "llama3-405b": ("llama3", "llama3_405b"), "qwen3-0.6b": ("qwen3", "qwen3_0_6b"),
    "qwen3-1.7b": ("qwen3", "qwen3_1_7b"), "qwen3-14b": ("qwen3", "qwen3_14b"), "qwen3-32b": ("qwen3", "qwen3_32b"),
    "qwen3-30b-a3b": ("qwen3", "qwen3_30b_a3b"), "deepseek-v2-lite": ("deepseek_v3", "deepseek_v3_16b"),
    "deepseek-v3": ("deepseek_v3", "deepseek_v3_671b"), "gpt-oss-20b": ("gpt_oss", "gpt_oss_20b"),
    "gpt-oss-120b": ("gpt_oss", "gpt_oss_120b"),
}  # fmt: skip
"""The module and the configuration of each card that torchtitan has."""
DEGREES = ("data_parallel_replicate", "data_parallel_shard", "tensor_parallel", "context_parallel", "pipeline_parallel")
MODES = {"none": "none", "full": "full", "op": "selective"}
"""Its activation checkpointing by recomputation."""


def check(plan: Plan, shape: PlanShape) -> None:
    """Raise InputError where replicas differ or the schedule is not torch's."""
    if len(set(shape.shares)) > 1:
        raise InputError(f"plan: replicas have {', '.join(map(str, shape.shares))} samples, and torchtitan's as many")
    if len(shape.stages) > 1 and plan.schedule not in SCHEDULES:
        raise InputError(f"plan: schedule {plan.schedule!r} is none of torchtitan's: {', '.join(SCHEDULES)}")
    if plan.schedule not in ("dataflow", "gpipe", "1f1b") and 1 < len(shape.stages) == len(set(shape.homes)):
        theirs = SCHEDULES[plan.schedule]
        raise InputError(f"plan: schedule {plan.schedule!r} has a stage a device, and {theirs} two at least; take 1f1b")


def limits(plan: Plan, shape: PlanShape) -> Iterator[str]:
    yield "torchtitan trains the models that it defines; the stages are named as this network names its modules"
    if plan.schedule == COMBINED:
        yield "what experts exchange is not hidden behind other micro-batches"
    if shape.tensor > 1:
        yield "which layers are split by channel is torchtitan's choice per model"
    if plan.states.stage == 1:
        yield "torchtitan shares out all states or none; the plan is of stage 1"
    if shape.recomputation not in MODES:
        yield recomputed_otherwise(shape, "op" if shape.recomputation == "selective" else "full")
    if shape.data > 1:
        yield "gradients are reduced by its own settings, not in buckets of the plan's size"


def text(plan: Plan, shape: PlanShape, command: str, lines: list[str], profile: Profile, torchrun: str) -> str:
    """The script, which begins with `torchrun`, to be completed by module, configuration and tokens of a sequence."""
    grid = grid_of(plan, shape)
    stages = [f"# parallelism.module_fqns_per_model_part of the configuration: {_modules(shape)}"] * (grid.pipeline > 1)
    arguments = [
        f'{torchrun} -m torchtitan.train --module "$MODULE" --config "$CONFIG"',
        *_spread(grid, "$SEQUENCE", SCHEDULES.get(plan.schedule, "")),
        *["--training.disable_cuda_graphs"] * (grid.pipeline > 1),
        f'activation-checkpoint:{(MODES | {"selective": "selective"}).get(shape.recomputation, "full")} "$@"',
    ]
    return "\n".join(
        [
            "#!/bin/sh",
            f"# exported by: {command}",
            *(f"# not as planned: {line}" for line in lines),
            *stages,
            ': "${MODULE:?of models of torchtitan}" "${CONFIG:?a configuration of it}" "${SEQUENCE:?its tokens}"',
            " \\\n  ".join(arguments),
            "",
        ]
    )


def _spread(grid: TrainingGrid, sequence: str, schedule: str) -> Iterator[str]:
    """Degrees and sizes; sequence: its tokens, a number or a shell's variable. shard is torchtitan's FSDP, ZeRO-2 where
    parameters stay whole from forward to backward; replicate keeps all states whole."""

    def tokens(sequences: int) -> str:
        return f"{sequences * int(sequence)}" if sequence.isdecimal() else f"$(({sequences} * {sequence.lstrip('$')}))"

    sharded = grid.zero_stage >= 2
    shard = (grid.shard_group // grid.context or grid.data) if sharded else 1
    degrees = (grid.data // shard, shard, grid.tensor, grid.context, grid.pipeline)
    yield from (f"--parallelism.{name}_degree {degree}" for name, degree in zip(DEGREES, degrees, strict=True))
    yield f"--training.max_context_length {sequence}"
    yield f"--training.num_tokens_per_microbatch_per_dp_rank {tokens(grid.microbatch)}"
    yield f"--training.num_tokens_per_train_step {tokens(grid.batch)}"
    if sharded:
        yield f"--parallelism.fsdp_reshard_after_forward {'always' if grid.zero_stage == 3 else 'never'}"
    if grid.pipeline > 1:
        yield f"--parallelism.pipeline_parallel_schedule {schedule}"
        yield f"--parallelism.num_pp_microbatches {grid.accumulation}"


def _modules(shape: PlanShape) -> list[list[str]]:
    """The modules of each stage: of every layer's path the shortest beginning that no other stage has."""
    parts = []
    for names in shape.stages:
        others = {start for stage in shape.stages if stage is not names for name in stage for start in _starts(name)}
        own = (next((start for start in _starts(name) if start not in others), name) for name in names)
        parts.append([name for name in dict.fromkeys(own) if name != "loss"])
    return parts


def _starts(name: str) -> list[str]:
    """ "a", "a.b", "a.b.c" of "a.b.c"."""
    words = name.split(".")
    return [".".join(words[:count]) for count in range(1, len(words) + 1)]


def command(launch: Launch) -> str:
    """torchtitan.train with its own configuration, changed to the grid. Raises InputError where it would refuse."""
    card, grid = launch.card, launch.grid
    _check_grid(launch)
    module, configuration = CONFIGURATIONS[card.name]
    options = [
        f"{launch.torchrun} -m torchtitan.train --module {module} --config {configuration}",
        *_spread(grid, str(card.sequence), "Interleaved1F1B" if grid.chunks > 1 else "1F1B"),
    ]
    if card.experts:
        options.append(f"--parallelism.expert_parallel_degree {grid.expert}")
    if grid.pipeline > 1 or grid.expert > 1:
        options.append("--training.disable_cuda_graphs")
    return " \\\n  ".join([*options, f"activation-checkpoint:{MODES[grid.recomputation]}"])


def _check_grid(launch: Launch) -> None:
    """Raise InputError for what torchtitan's own checks refuse, or what it would do otherwise without a word."""
    card, grid = launch.card, launch.grid
    if card.name not in CONFIGURATIONS:
        raise InputError(f"card {card.name}: torchtitan has no configuration of it; has {', '.join(CONFIGURATIONS)}")
    require(launch.precision == "bf16", "accelerator", launch.accelerator, "torchtitan trains in bf16; take megatron")
    if grid.zero_stage == 1 and grid.replicas > 1:
        raise InputError("zero_stage is 1: torchtitan shards all states or none; take zero_stage 2 or megatron")
    if grid.zero_stage == 0 and grid.context > 1:
        raise InputError(f"context is {grid.context}: torchtitan shards all states over its devices; take zero_stage 3")
    if grid.recomputation not in MODES or grid.layout:
        raise InputError(
            f"recomputation is {grid.recomputation}, layout {grid.layout!r}: torchtitan recomputes by operator or "
            "whole blocks, and splits stages by itself; take megatron"
        )
    require(grid.chunks <= 2, "chunks", grid.chunks, "torchtitan gives a device two stages; take chunks 2 or megatron")
    region = (grid.data if grid.zero_stage >= 2 else 1) * grid.context * grid.tensor
    rule = f"torchtitan's divides shard x context x tensor, {region}; take zero_stage 2 or 3"
    require(region % grid.expert == 0, "expert", grid.expert, rule)
    rule = "torchtitan splits no expert over a tensor group; take 1, or megatron"
    split = grid.expert > 1 and grid.tensor > 1 and not grid.whole_experts
    require(not split, "expert_tensor", grid.expert_tensor, rule)
    if grid.pipeline > 1 and grid.accumulation < grid.pipeline:
        raise InputError(f"accumulation is {grid.accumulation}: 1F1B takes as many micro-batches as stages")
    parts = grid.tensor * (2 * grid.context if grid.context > 1 else 1)
    if grid.microbatch * card.sequence % parts:
        raise InputError(f"sequence is {card.sequence}: a micro-batch is cut into {parts} parts")


def otherwise(launch: Launch) -> Iterator[str]:
    """What torchtitan does otherwise than planned."""
    if launch.grid.pipeline > 1:
        yield "the first and the last stage have a block less"
