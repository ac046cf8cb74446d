"""A data-parallel plan as torch's fully_shard (FSDP2)."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.errors import InputError
from simulator.exports import ddp, script
from simulator.exports.launch import Launch
from simulator.exports.plan_shape import PlanShape
from simulator.plan import Plan

TITLE = "Data parallelism with sharded parameters by torch's fully_shard (FSDP2)."
IMPORTS = (
    "from torch import nn",
    "from torch.distributed.device_mesh import init_device_mesh",
    "from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard",
)
BODY = '''
def sharded(model, mesh):
    """Shards the entries of lists and sequences of modules, then what is left."""
    policy = MixedPrecisionPolicy(reduce_dtype=torch.bfloat16 if HALF_PRECISION else None)
    for parent in list(model.modules()):
        if isinstance(parent, (nn.ModuleList, nn.Sequential)):
            for child in parent.children():
                if any(True for _ in child.parameters()) and not isinstance(child, (nn.ModuleList, nn.Sequential)):
                    fully_shard(child, mesh=mesh, mp_policy=policy, reshard_after_forward=RESHARD)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def train(options, rank, device):
    trained = sharded(built().to(device), init_device_mesh(device.type, **MESH))
    optimizer = optimizer_of(trained.parameters())
    for step in range(options.steps):
        data, numbers = batch(step)
        start, total = now(device), 0.0
        optimizer.zero_grad()
        for part, (*samples, targets) in enumerate(zip(*(each.chunk(MICROBATCHES) for each in (*data, numbers)))):
            trained.set_requires_gradient_sync(part + 1 == MICROBATCHES)
            own, named = arguments([each.chunk(RANKS)[rank].to(device) for each in samples])
            loss = loss_of(trained(*own, **named), targets.chunk(RANKS)[rank]) / MICROBATCHES
            loss.backward()
            total += loss.detach() / RANKS
        if options.gradients and step == 0:
            gradients = {name: parameter.grad.full_tensor() for name, parameter in trained.named_parameters()}
            torch.save(gradients, f"{options.gradients}.{rank}.pt")
        optimizer.step()
        say(step, total, start, device)
'''


def check(plan: Plan, shape: PlanShape) -> None:
    """Raise InputError unless the plan is data parallelism over equal shares."""
    ddp.check(plan, shape)
    if len(set(shape.shares)) > 1:
        raise InputError(f"plan: replicas have {', '.join(map(str, shape.shares))} samples, and FSDP2's as many each")


def limits(plan: Plan, shape: PlanShape) -> Iterator[str]:
    yield from script.limits(plan)
    if plan.states.stage < 2:
        kept = "parameters and gradients" if plan.states.stage else "parameters, gradients and optimizer state"
        yield (
            f"{kept} are sharded over the processes, which the plan keeps whole: less memory, and parameters are "
            "gathered in the forward pass"
        )
    yield "gradients are reduced module by module, not in buckets of the plan's size"


def constants(plan: Plan, shape: PlanShape) -> tuple[str, ...]:
    states = plan.states
    return (
        f"MESH = {_mesh(shape.data, states.group)}",
        f"RESHARD = {states.stage == 3 and not states.keep_gathered}  # parameters, behind the forward pass",
        f"HALF_PRECISION = {plan.synchronisation.half_precision}",
    )


def _mesh(replicas: int, group: int) -> dict[str, tuple[int | str, ...]]:
    """Of `init_device_mesh`: two-dimensional where groups of replicas share states and are copies of each other."""
    if not group or group == replicas:
        return {"mesh_shape": (replicas,)}
    return {"mesh_shape": (replicas // group, group), "mesh_dim_names": ("replicate", "shard")}


def command(launch: Launch) -> str:
    """Plain torch around a network of blocks: fully_shard over the replicas, DistributedDataParallel without shared
    states. Raises InputError where the grid has other degrees."""
    grid, layers = launch.grid, launch.card.layers
    if grid.strategy == "megatron":
        raise InputError(
            f"tensor {grid.tensor} x pipeline {grid.pipeline} x context {grid.context} x expert {grid.expert}: plain "
            f"FSDP2 has data parallelism alone; take megatron, nanotron or torchtitan"
        )
    if grid.recomputation not in ("none", "full"):
        raise InputError(f"recomputation is {grid.recomputation}: the lines here wrap whole blocks; take torchtitan")
    each = f"{grid.microbatch} sequence{'s' if grid.microbatch > 1 else ''}"
    micro = f"{grid.accumulation} micro-batches of {each}" if grid.accumulation > 1 else f"one micro-batch of {each}"
    if grid.zero_stage < 2:
        sharing = "ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, ...)" if grid.zero_stage else "AdamW"
        return f"""{launch.torchrun} train.py
# train.py, around the model of {layers} blocks on {grid.data} replicas
model = DistributedDataParallel(model, gradient_as_bucket_view=True)
optimizer = {sharing}
# {micro}, all but the last in model.no_sync()"""
    again = "\nfor block in model.layers:\n    checkpoint_wrapper(block)" if grid.recomputation == "full" else ""
    mesh = ", ".join(f"{name}={value}" for name, value in _mesh(grid.data, grid.shard_group).items())
    dtype = {"bf16": "bfloat16", "fp16": "float16"}[launch.precision]
    return f"""{launch.torchrun} train.py
# train.py, around the model of {layers} blocks
mesh = init_device_mesh("cuda", {mesh})
policy = MixedPrecisionPolicy(param_dtype=torch.{dtype}, reduce_dtype=torch.float32){again}
for block in model.layers:
    fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward={grid.zero_stage == 3})
fully_shard(model, mesh=mesh, mp_policy=policy)
# {micro}, gradients scattered at every one"""


def otherwise(launch: Launch) -> Iterator[str]:
    """What plain torch does otherwise than planned: nothing."""
    return iter(())
