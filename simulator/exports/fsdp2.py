"""A data-parallel plan as torch's fully_shard (FSDP2)."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.errors import InputError
from simulator.exports import ddp
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
                    fully_shard(child, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def train(options, rank, device):
    trained = sharded(built().to(device), init_device_mesh(device.type, (RANKS,)))
    optimizer = optimizer_of(trained.parameters())
    for step in range(options.steps):
        data, numbers = batch(step)
        start, total = now(device), 0.0
        optimizer.zero_grad()
        for part, (samples, targets) in enumerate(zip(data.chunk(MICROBATCHES), numbers.chunk(MICROBATCHES))):
            trained.set_requires_gradient_sync(part + 1 == MICROBATCHES)
            own, targets = samples.chunk(RANKS)[rank].to(device), targets.chunk(RANKS)[rank]
            loss = loss_of(trained(own), targets) / MICROBATCHES
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
    if plan.recomputed:
        yield "activations are kept; the plan recomputes them"
    if plan.states.stage != 3:
        yield (
            "parameters and optimizer state are sharded over the processes, which the plan keeps whole: less memory, "
            "and parameters are gathered in both passes"
        )
    yield "gradients are reduced module by module, not in buckets of the plan's size"


def constants(plan: Plan, shape: PlanShape) -> tuple[str, ...]:
    return (f"HALF_PRECISION = {plan.synchronisation.half_precision}",)
