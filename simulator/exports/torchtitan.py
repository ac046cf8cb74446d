"""A plan as torchtitan's TOML file. Keys as in torchtitan's job configuration ([parallelism], [training])."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.errors import InputError
from simulator.exports.plan_shape import PlanShape
from simulator.plan import Plan

SCHEDULES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved1F1B", "zero-bubble": "InterleavedZeroBubble"}


def check(plan: Plan, shape: PlanShape) -> None:
    """Raise InputError where replicas differ or the schedule is not torch's."""
    if len(set(shape.shares)) > 1:
        raise InputError(f"plan: replicas have {', '.join(map(str, shape.shares))} samples, and torchtitan's as many")
    if len(shape.stages) > 1 and plan.schedule not in SCHEDULES:
        raise InputError(f"plan: schedule {plan.schedule!r} is none of torchtitan's: {', '.join(SCHEDULES)}")


def limits(plan: Plan, shape: PlanShape) -> Iterator[str]:
    yield "torchtitan trains the models that it defines; the stages are named as this network names its modules"
    if shape.tensor > 1:
        yield "which layers are split by channel is torchtitan's choice per model"
    if plan.states.stage in (1, 2):
        yield f"torchtitan shares out all states or none; the plan is of stage {plan.states.stage}"
    if shape.data > 1:
        yield "gradients are reduced by its own settings, not in buckets of the plan's size"


def text(plan: Plan, shape: PlanShape, command: str, lines: list[str]) -> str:
    """The file."""
    comments = [f"# exported by: {command}", *(f"# not as planned: {line}" for line in lines)]
    pipeline = []
    if len(shape.stages) > 1:
        parts = ", ".join("[" + ", ".join(f'"{name}"' for name in part) + "]" for part in _modules(shape))
        pipeline = [
            f'pipeline_parallel_schedule = "{SCHEDULES[plan.schedule]}"',
            f"pipeline_parallel_microbatch_size = {plan.microbatch_size // shape.data}",
            f"module_fqns_per_model_part = [{parts}]",
        ]
    local = plan.batch_size // shape.data
    accumulated = len(shape.stages) == 1 and plan.microbatches > 1
    return "\n".join(
        [
            *comments,
            "",
            "[training]",
            f"local_batch_size = {local // plan.microbatches if accumulated else local}",
            f"global_batch_size = {plan.batch_size}",
            "",
            "[parallelism]",
            f"data_parallel_replicate_degree = {shape.data // _sharded(plan, shape)}",
            f"data_parallel_shard_degree = {_sharded(plan, shape)}",
            f"context_parallel_degree = {shape.context}",
            f"tensor_parallel_degree = {shape.tensor}",
            f"pipeline_parallel_degree = {len(set(shape.homes))}",
            *pipeline,
            *(["", "[activation_checkpoint]", 'mode = "full"'] if plan.recomputed else []),
            "",
        ]
    )


def _sharded(plan: Plan, shape: PlanShape) -> int:
    """Over how many replicas parameters are shared out."""
    return (plan.states.group or shape.data) if plan.states.stage == 3 else 1


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
