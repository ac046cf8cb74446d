"""A plan as Megatron-LM's arguments, in a shell script that is to be completed with model and data."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.errors import InputError
from simulator.exports.plan_shape import PlanShape
from simulator.plan import Plan
from simulator.workload import Profile


def check(plan: Plan, shape: PlanShape) -> None:
    """Raise InputError where replicas differ or the schedule is not Megatron's."""
    if len(set(shape.shares)) > 1:
        raise InputError(f"plan: replicas have {', '.join(map(str, shape.shares))} samples, and Megatron's as many")
    if len(shape.stages) > 1 and plan.schedule not in ("1f1b", "interleaved"):
        raise InputError(f"plan: schedule {plan.schedule!r} is none of Megatron's: 1f1b, interleaved")


def limits(plan: Plan, shape: PlanShape) -> Iterator[str]:
    yield "Megatron trains the models that it defines; add their arguments"
    if len(shape.stages) > 1:
        sizes = {len(names) for names in shape.stages}
        if len(sizes) > 1:
            yield (
                "Megatron gives every stage as many transformer layers; the plan's stages have "
                + ", ".join(str(len(names)) for names in shape.stages)
                + " layers of the profile"
            )
    if plan.states.stage > 1:
        yield f"Megatron's optimizer shares out its own state (stage 1); the plan is of stage {plan.states.stage}"
    if plan.synchronisation.half_precision:
        yield "gradients are summed in their own precision, not in 16 bits"


def text(plan: Plan, shape: PlanShape, command: str, lines: list[str], profile: Profile) -> str:
    """The script."""
    workers = len(set(shape.homes))
    arguments = [
        f"--tensor-model-parallel-size {shape.tensor}",
        f"--pipeline-model-parallel-size {workers}",
        f"--micro-batch-size {plan.microbatch_size // shape.data}",
        f"--global-batch-size {plan.batch_size}",
    ]
    if shape.context > 1:
        arguments.append(f"--context-parallel-size {shape.context}")
    routing = next((layer.routing for layer in profile.layers if layer.routing), None)
    if routing:
        arguments += [f"--num-experts {routing.experts}", f"--moe-router-topk {routing.top_k}"]
        arguments += [f"--expert-model-parallel-size {shape.expert}", "--moe-token-dispatcher-type alltoall"]
    if shape.sequence_parallel:
        arguments.append("--sequence-parallel")
    if plan.states.stage == 1:
        arguments.append("--use-distributed-optimizer")
    if plan.recomputed:
        recomputed = {name for segment in plan.recomputed for name in segment}
        whole = any(layer.parameter_bytes for layer in profile.layers if layer.name in recomputed)
        arguments += (
            ["--recompute-granularity full", "--recompute-method uniform", "--recompute-num-layers 1"]
            if whole
            else ["--recompute-granularity selective"]
        )
    if plan.schedule == "interleaved":
        arguments.append(f"--num-virtual-stages-per-pipeline-rank {len(shape.stages) // workers}")
    if shape.data > 1 and plan.synchronisation.overlap:
        element_bytes = 2 if profile.dtype in ("bfloat16", "float16") else 4
        arguments += [
            "--overlap-grad-reduce",
            f"--ddp-bucket-size {plan.synchronisation.bucket_bytes // element_bytes}",
        ]
    if profile.dtype == "bfloat16":
        arguments.append("--bf16")
    comments = [f"# exported by: {command}", *(f"# not as planned: {line}" for line in lines)]
    run = f"torchrun --nproc-per-node {shape.devices} pretrain_gpt.py \\\n    " + " \\\n    ".join(arguments)
    return "\n".join(["#!/bin/sh", *comments, f'{run} \\\n    "$@"', ""])
