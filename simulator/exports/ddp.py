"""A data-parallel plan as DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.errors import InputError
from simulator.exports import script
from simulator.exports.plan_shape import PlanShape
from simulator.plan import Plan

TITLE = "Data parallelism by torch's DistributedDataParallel."
IMPORTS = (
    "from torch.distributed.algorithms.ddp_comm_hooks import default_hooks",
    "from torch.nn.parallel import DistributedDataParallel",
)
BODY = """
def train(options, rank, device):
    model = built().to(device)
    trained = DistributedDataParallel(
        model, bucket_cap_mb=BUCKET_MB, gradient_as_bucket_view=True)
    if HALF_PRECISION:
        trained.register_comm_hook(None, default_hooks.fp16_compress_hook)
    optimizer = optimizer_of(trained.parameters())
    weight = SHARES[rank] * RANKS / sum(SHARES)  # gradients are averaged over processes; every sample counts alike
    for step in range(options.steps):
        data, numbers = batch(step)
        start, total = now(device), 0.0
        optimizer.zero_grad()
        for part, (*samples, targets) in enumerate(zip(*(each.chunk(MICROBATCHES) for each in (*data, numbers)))):
            own, named = arguments([each.split(SHARES)[rank].to(device) for each in samples])
            with nullcontext() if part + 1 == MICROBATCHES else trained.no_sync():
                loss = loss_of(trained(*own, **named), targets.split(SHARES)[rank]) * weight / MICROBATCHES
                loss.backward()
            total += loss.detach() / RANKS
        if options.gradients and step == 0:
            gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
            torch.save(gradients, f"{options.gradients}.{rank}.pt")
        optimizer.step()
        say(step, total, start, device)
"""


def check(plan: Plan, shape: PlanShape) -> None:
    """Raise InputError unless the plan is data parallelism."""
    if len(shape.stages) > 1:
        raise InputError(f"plan: it has {len(shape.stages)} stages, and DDP none: --to pipelining")
    if shape.tensor * shape.context > 1:
        ways = shape.tensor * shape.context
        raise InputError(f"plan: layers are split {ways} ways inside a replica, which DDP cannot do: --to megatron")


def limits(plan: Plan, shape: PlanShape) -> Iterator[str]:
    if plan.states.stage:
        yield f"DDP keeps all states whole; the plan shares them out (stage {plan.states.stage}): --to fsdp2"
    yield from script.limits(plan)
    if not plan.synchronisation.overlap:
        yield "DDP sums gradients beside the backward pass; the plan sums them after it"


def constants(plan: Plan, shape: PlanShape) -> tuple[str, ...]:
    synchronisation = plan.synchronisation
    return (
        f"SHARES = {list(shape.shares)}  # samples of each process in a micro-batch",
        f"BUCKET_MB, HALF_PRECISION = {synchronisation.bucket_bytes / 2**20:g}, {synchronisation.half_precision}",
    )
