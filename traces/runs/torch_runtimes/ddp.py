"""Data parallelism as users run it: DistributedDataParallel over gloo, one process per device."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from simulator.cluster import Cluster
from simulator.errors import InputError
from simulator.lowering.exchange.shard_regions import split
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower
from simulator.plan import FIRST_BUCKET_BYTES, Plan, Synchronisation
from simulator.taskgraph import Kind
from simulator.workload import Profile
from traces.capture.fx_steps import Trained, trace
from traces.capture.momentum_sgd import optimizer
from traces.lab.launch import launch
from traces.lab.rank import Rank
from traces.lab.shaped_network import Lab
from traces.runs.executor.run_setup import ALL_REDUCE
from traces.runs.torch_runtimes.measured_steps import MeasuredRun, measure_steps, run_of_ranks, samples, slow_down
from traces.runs.torch_runtimes.stage_modules import whole
from traces.runs.torch_runtimes.task_observer import TaskObserver
from traces.zoo.networks import load

OPTIONS: Mapping[str, Any] = {"broadcast_buffers": False, "gradient_as_bucket_view": True}
"""What DistributedDataParallel is told in the home suite: nothing is copied that need not be."""


def run_ddp(
    profile: Profile,
    cluster: Cluster,
    plan: Plan,
    *,
    model: str | None = None,
    steps: int = 12,
    lab: Lab | None = None,
    cores: Sequence[Sequence[int]] = (),
    stragglers: Sequence[int] = (),
    options: Mapping[str, Any] = OPTIONS,
    timeout_s: float = 300.0,
) -> MeasuredRun:
    """Train a data-parallel plan with torch's DistributedDataParallel; buckets are those of the plan.

    Gradients of micro-batches add up under no_sync, and are summed with the last. model: a name that `zoo.load` knows,
    by default the plan's. stragglers: ranks that a busy process slows down. options: of DistributedDataParallel.
    Raises InputError when the plan is not data parallelism with the backend's all-reduce, RunError when a rank fails.
    """
    if len(set(plan.placements.values())) > 1:
        raise InputError(f"plan {plan.strategy!r} is not data-parallel, which is all that DDP runs")
    if plan.synchronisation.collective != ALL_REDUCE or not plan.synchronisation.overlap:
        raise InputError("DDP runs the backend's all-reduce beside the backward pass, which this plan does not")
    arguments = {
        "model": model or plan.model,
        "layers": [layer.name for layer in profile.layers],
        "shares": shares_of(plan),
        "bucket_bytes": _bucket_bytes(plan.synchronisation),
        "steps": steps,
        "stragglers": list(stragglers),
        "microbatches": plan.microbatches,
        "options": dict(options),
    }
    target, count = f"{__name__}:train_rank", len(plan.devices)
    results = launch(target, count, lab=lab, arguments=arguments, cores=cores, timeout_s=timeout_s)
    return run_of_ranks(lower(ShardedModel(profile, plan), cluster), results)


def _bucket_bytes(asked: Synchronisation) -> int | None:
    """The size that DDP is told; None, its default, brings a small first bucket, which no other size has."""
    if asked.first_bucket_bytes in (None, asked.bucket_bytes):
        return asked.bucket_bytes
    default = Synchronisation(first_bucket_bytes=FIRST_BUCKET_BYTES)
    if (asked.first_bucket_bytes, asked.bucket_bytes) != (default.first_bucket_bytes, default.bucket_bytes):
        raise InputError(
            f"first_bucket_bytes is {asked.first_bucket_bytes}: DDP has a first bucket of its own only at its default, "
            f"{default.first_bucket_bytes} before {default.bucket_bytes}; leave it out or take both"
        )
    return None


def shares_of(plan: Plan) -> list[int]:
    """Samples of each device in a step, of all micro-batches together."""
    uneven = next(iter(plan.placements.values())).samples
    equal = [last - first for first, last in split(plan.microbatch_size, len(plan.devices))]
    return [plan.microbatches * count for count in uneven or equal]


def train_rank(
    rank: Rank,
    model: str,
    layers: Sequence[str],
    shares: Sequence[int],
    bucket_bytes: int | None,
    steps: int,
    stragglers: Sequence[int],
    microbatches: int,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """What each process of `run_ddp` does."""
    torch.manual_seed(0)
    warnings.simplefilter("ignore", FutureWarning)  # torch 2.13 renames broadcast_buffers, which 2.6 has
    network = load(model)
    plain = Trained(network.build())
    trained = DistributedDataParallel(
        plain,
        bucket_cap_mb=None if bucket_bytes is None else bucket_bytes / 2**20,
        **options,
    )
    descent = optimizer(trained.parameters())
    parts = samples(network, shares[rank.number], seed=1 + rank.number).tensor_split(microbatches)
    slow_down(rank, stragglers)

    # The processes' gradients are averaged as if all had equal shares; weighted, each sample counts alike.
    mean_share = sum(shares) / len(shares)

    def step() -> None:
        descent.zero_grad()
        for number, part in enumerate(parts):
            with nullcontext() if number + 1 == len(parts) else trained.no_sync():
                observer.begin(Kind.FORWARD, number)
                loss = trained(part) * (len(part) / mean_share)
                observer.begin(Kind.BACKWARD, number)
                loss.backward()
                observer.end()
        with observer.update():
            descent.step()

    def open_up() -> None:
        """From now on the network's steps run one by one, and its all-reduce is ours."""
        plain.forward = whole(trace(plain), observer).forward  # type: ignore[method-assign, assignment]
        trained.register_comm_hook(None, observer.all_reduce())
        observer.last_until_parameters_of(plain)

    observer = TaskObserver(rank.number, layers)
    return measure_steps(rank, step, steps, observer, open_up)
