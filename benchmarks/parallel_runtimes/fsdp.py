"""Fully sharded data parallelism as users run it: torch's FSDP2 (`fully_shard`) over gloo, one process per device.

    fully_shard(block) for every block, fully_shard(model) for the rest: each is a unit, split over the shard group

    forward    all-gather the unit's parameters -> its layers -> drop them (resharding after forward)
    backward   all-gather them again -> its gradients -> reduce-scatter, then all-reduce across shard groups
    update     each rank its own part

What torch 2.13 does with a CPU and gloo, where it differs from GPUs and NCCL:

- Every collective blocks the one thread that computes, so nothing overlaps, whatever is prefetched.
- gloo's reduce-scatter is an all-reduce of which each rank keeps its part. It sends 2(n-1)/n of the bytes per rank
  instead of (n-1)/n, so that ZeRO-3 sends 4(n-1)/n of the parameters and not 3(n-1)/n. `direct_reduction` sends every
  part to its owner and nothing else; it is a reduce-scatter of the user's own, which FSDP2 lets one give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from benchmarks.parallel_runtimes.network_blocks import block_names, modules_named
from benchmarks.parallel_runtimes.recomputation import recompute
from simulator.errors import require
from simulator.lowering.exchange.shard_regions import split
from traces.capture.fx_steps import Trained
from traces.capture.momentum_sgd import optimizer
from traces.lab.launch import launch
from traces.lab.rank import Rank
from traces.lab.shaped_network import Lab
from traces.runs.torch_runtimes.measured_steps import MeasuredSteps, build, measure_steps, samples, steps_of_ranks
from traces.runs.torch_runtimes.task_observer import TaskObserver
from traces.zoo.networks import load


@dataclass(frozen=True, slots=True, kw_only=True)
class FsdpSettings:
    """How FSDP2 shards a network.

    units: module paths that are sharded one by one before the rest, by default the network's blocks. shard_group: how
    many ranks share a parameter, all by default; with fewer, groups are replicas (hybrid sharding).
    reshard_after_forward: True is ZeRO-3, False ZeRO-2; None, torch's default, is True but for what is in no unit.
    microbatches: forward and backward passes per update, each a part of the samples. reduce_once: gradients are summed
    after the last of them only. recomputed: module paths whose forward pass runs again before their backward pass.
    """

    units: Sequence[str] | None = None
    shard_group: int | None = None
    reshard_after_forward: bool | None = None
    direct_reduction: bool = False
    microbatches: int = 1
    reduce_once: bool = False
    recomputed: Sequence[str] = ()


def run_fsdp(
    model: str,
    ranks: int,
    batch_size: int,
    settings: FsdpSettings = FsdpSettings(),
    *,
    steps: int = 12,
    lab: Lab | None = None,
    cores: Sequence[Sequence[int]] = (),
    timeout_s: float = 300.0,
) -> MeasuredSteps:
    """Train `model` (a name that `zoo.load` knows) with FSDP2; batch_size is of all ranks together.

    Raises InputError when ranks or samples cannot be shared out so, RunError when a rank fails.
    """
    group = settings.shard_group or ranks
    require(ranks >= 2, "ranks", ranks, "there is something to share: at least 2")
    require(ranks % group == 0, "shard_group", group, f"it divides the {ranks} ranks")
    shares = [last - first for first, last in split(batch_size, ranks)]
    require(
        min(shares) >= settings.microbatches, "batch_size", batch_size, "a sample per rank and micro-batch at least"
    )
    arguments = {"model": model, "shares": shares, "settings": asdict(settings), "steps": steps}
    target = "benchmarks.parallel_runtimes.fsdp:train_rank"
    return steps_of_ranks(launch(target, ranks, lab=lab, arguments=arguments, cores=cores, timeout_s=timeout_s))


def train_rank(rank: Rank, model: str, shares: Sequence[int], settings: dict[str, Any], steps: int) -> dict[str, Any]:
    """What each process of `run_fsdp` does."""
    network, sharding = load(model), FsdpSettings(**settings)
    trained = shard(build(network), rank.ranks, sharding)
    descent = optimizer(trained.parameters())
    parts = samples(network, shares[rank.number], seed=1 + rank.number).tensor_split(sharding.microbatches)
    observer = TaskObserver(rank.number, ())

    def step() -> None:
        descent.zero_grad()
        accumulate(trained, parts, sum(shares) / rank.ranks, sharding.reduce_once)
        with observer.update():
            descent.step()

    return measure_steps(rank, step, steps, observer)


def shard(trained: Trained, ranks: int, settings: FsdpSettings) -> Trained:
    """`trained` with its model sharded over the ranks of the default process group."""
    group = settings.shard_group or ranks
    if group == ranks:
        mesh = init_device_mesh("cpu", (ranks,))
    else:
        mesh = init_device_mesh("cpu", (ranks // group, group), mesh_dim_names=("replica", "shard"))
    model = trained.model
    recompute(model, settings.recomputed)
    names = block_names(model) if settings.units is None else settings.units
    for unit in (*modules_named(model, names), model):
        fully_shard(unit, mesh=mesh, reshard_after_forward=settings.reshard_after_forward)
    if settings.direct_reduction:
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_custom_reduce_scatter(DirectReduceScatter())  # type: ignore[arg-type]
    return trained


def accumulate(trained: Trained, parts: Sequence[Tensor], mean_share: float, reduce_once: bool) -> None:
    """Add the gradients of `parts`, of shape (samples, *input shape) each, as if all ranks' samples were one batch.

    mean_share: samples per rank on average, as ranks' gradients are averaged as if all had equally many.
    """
    root = trained.model
    for number, part in enumerate(parts, 1):
        if isinstance(root, FSDPModule):
            root.set_requires_gradient_sync(number == len(parts) or not reduce_once)
        (trained(part) * (len(part) / mean_share)).backward()


class DirectReduceScatter:
    """A reduce-scatter in which every rank sends each other rank its part and adds the parts that it receives."""

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Memory for what is reduced, of shape (size,)."""
        return torch.empty(size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, op: Any, async_op: bool = False
    ) -> None:
        """output (elements / ranks,) becomes the sum, or the mean, of this rank's part of all inputs (elements,)."""
        received = torch.empty_like(input_tensor)
        dist.all_to_all_single(received, input_tensor, group=group)
        terms = received.view(group.size(), -1)  # (ranks, elements / ranks)
        torch.sum(terms, 0, out=output_tensor)
        if op == dist.ReduceOp.AVG:
            output_tensor /= group.size()
