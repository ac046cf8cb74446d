"""Data parallelism as users run it: DistributedDataParallel over gloo, one process per device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from simulator.errors import InputError
from simulator.plan import Plan
from simulator.regions import split
from traces.launch import launch
from traces.netlab import Lab
from traces.network import Trained
from traces.passes import LEARNING_RATE, MOMENTUM
from traces.rank import Rank
from traces.steps import Measured, combined, slow_down, train
from traces.zoo import load


def run_ddp(
    plan: Plan,
    *,
    model: str | None = None,
    steps: int = 12,
    lab: Lab | None = None,
    cores: Sequence[Sequence[int]] = (),
    stragglers: Sequence[int] = (),
    timeout_s: float = 300.0,
) -> Measured:
    """Train a data-parallel plan with torch's DistributedDataParallel; buckets are those of the plan.

    model: a name that `zoo.load` knows, by default the plan's. stragglers: ranks that a busy process slows down.
    Raises InputError when the plan is not data parallelism with the backend's all-reduce, RunError when a rank fails.
    """
    if len(set(plan.placements.values())) > 1 or plan.microbatches > 1:
        raise InputError(f"plan {plan.strategy!r} is not data-parallel in one pass; run it with traces.execute")
    if plan.synchronisation.collective != "ring" or not plan.synchronisation.overlap:
        raise InputError("DistributedDataParallel overlaps the backend's all-reduce; run this plan with traces.execute")
    arguments = {
        "model": model or plan.model,
        "shares": _shares(plan),
        "bucket_bytes": plan.synchronisation.bucket_bytes,
        "steps": steps,
        "stragglers": list(stragglers),
    }
    found = launch(
        "traces.ddp:train_rank", len(plan.devices), lab=lab, arguments=arguments, cores=cores, timeout_s=timeout_s
    )
    return combined(found)


def _shares(plan: Plan) -> list[int]:
    """Samples of each device."""
    uneven = next(iter(plan.placements.values())).samples
    return list(uneven) or [last - first for first, last in split(plan.batch_size, len(plan.devices))]


def train_rank(
    rank: Rank, model: str, shares: Sequence[int], bucket_bytes: int, steps: int, stragglers: Sequence[int]
) -> dict[str, Any]:
    """What each process of `run_ddp` does."""
    torch.manual_seed(0)
    network = load(model)
    trained = DistributedDataParallel(
        Trained(network.build()),
        bucket_cap_mb=bucket_bytes / 2**20,
        broadcast_buffers=False,
        gradient_as_bucket_view=True,
    )
    optimizer = torch.optim.SGD(trained.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    torch.manual_seed(1 + rank.number)
    data = torch.randn(shares[rank.number], *network.input_shape)
    slow_down(rank, stragglers)

    # The processes' gradients are averaged as if all had equal shares; weighted, each sample counts alike.
    weight = shares[rank.number] * len(shares) / sum(shares)

    def step() -> None:
        optimizer.zero_grad()
        (trained(data) * weight).backward()
        optimizer.step()

    return train(rank, step, steps)
