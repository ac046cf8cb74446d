"""Tensor parallelism as users run it: torch.distributed.tensor.parallel over gloo, every rank with all samples.

A linear layer is split by what it makes (column) or by what it reads (row), in pairs (Shoeybi et al., arXiv
1909.08053):

    x on all -> column -> own part of the channels -> row -> partial sums -> all-reduce -> y on all
                                       backward: all-reduce of the gradient of x

so that a pair sums two tensors per step, its output forward and the gradient of its input backward, 2(t-1) B bytes
each among t ranks. With sequence parallelism (Korthikanti et al., arXiv 2205.05198) x and y are split by position
inside a region, norms too, and every all-reduce becomes a reduce-scatter behind the row layer and an all-gather before
the column layer. gloo's reduce-scatter is an all-reduce of which each rank keeps its part: it sends 3(t-1) B here,
where 2(t-1) B would do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInputOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from benchmarks.parallel_runtimes.network_blocks import modules_named
from benchmarks.parallel_runtimes.recomputation import recompute
from simulator.errors import InputError, require
from traces.capture.fx_steps import Trained
from traces.capture.momentum_sgd import optimizer
from traces.lab.launch import launch
from traces.lab.rank import Rank
from traces.lab.shaped_network import Lab
from traces.runs.torch_runtimes.measured_steps import MeasuredSteps, build, measure_steps, samples, steps_of_ranks
from traces.runs.torch_runtimes.task_observer import TaskObserver
from traces.zoo.blocks import Attention
from traces.zoo.networks import load

Split = Literal["column", "row", "norm", "region"]
"""Linear layers are split by what they make or read, norms by position; inside a region positions are."""


def run_tensor_parallel(
    model: str,
    ranks: int,
    batch_size: int,
    splits: Mapping[str, Split] | None = None,
    *,
    recomputed: Sequence[str] = (),
    steps: int = 12,
    lab: Lab | None = None,
    cores: Sequence[Sequence[int]] = (),
    timeout_s: float = 300.0,
) -> MeasuredSteps:
    """Train `model` (a name that `zoo.load` knows) with its layers split over all ranks.

    splits: how each layer is split, by module path; absent layers are whole on every rank. By default those that
    `transformer_splits` knows. recomputed: module paths whose forward pass runs again before their backward pass.
    Raises InputError when layers cannot be split so, RunError when a rank fails.
    """
    require(ranks >= 2, "ranks", ranks, "there is something to split: at least 2")
    network = load(model)
    trained = build(network)
    splits = transformer_splits(trained.model) if splits is None else dict(splits)
    check(trained.model, splits, ranks)
    arguments = {
        "model": model,
        "batch_size": batch_size,
        "splits": splits,
        "recomputed": list(recomputed),
        "steps": steps,
    }
    target = "benchmarks.parallel_runtimes.tensor_parallel:train_rank"
    return steps_of_ranks(launch(target, ranks, lab=lab, arguments=arguments, cores=cores, timeout_s=timeout_s))


def transformer_splits(model: nn.Module, *, sequence: bool = False) -> dict[str, Split]:
    """Megatron's splits of the blocks of traces/zoo/networks.py; sequence: inside them positions are split.

    Raises InputError where the network has no such blocks.
    """
    kinds: dict[str, Split] = {"qkv": "column", "out": "row", "fc": "column", "proj": "row"}
    if sequence:
        kinds |= {"norm1": "norm", "norm2": "norm", "blocks": "region"}
    splits = {name: kinds[end] for name, _ in model.named_modules() if (end := name.rpartition(".")[2]) in kinds}
    if not splits:
        raise InputError("splits: the network has no transformer blocks, so say which layers are column and row")
    return splits


def check(model: nn.Module, splits: Mapping[str, Split], ranks: int) -> None:
    """Raise InputError or UnknownNameError unless `model` can be split so over the ranks."""
    for name, module in zip(splits, modules_named(model, list(splits)), strict=True):
        kind = splits[name]
        require(kind in get_args(Split), f"split of {name!r}", kind, f"one of {', '.join(get_args(Split))}")
        if kind in ("norm", "region"):
            continue
        if not isinstance(module, nn.Linear):
            raise InputError(f"split of {name!r} is {kind}: only linear layers are, not {type(module).__name__}")
        channels = module.out_features if kind == "column" else module.in_features
        require(channels % ranks == 0, f"channels of {name!r}", channels, f"a multiple of the {ranks} ranks")
    for name, module in model.named_modules():
        if isinstance(module, Attention):
            require(module.heads % ranks == 0, f"heads of {name!r}", module.heads, f"a multiple of the {ranks} ranks")


def train_rank(
    rank: Rank, model: str, batch_size: int, splits: Mapping[str, Split], recomputed: Sequence[str], steps: int
) -> dict[str, Any]:
    """What each process of `run_tensor_parallel` does."""
    network = load(model)
    trained = split_layers(build(network), rank.ranks, splits, recomputed)
    descent = optimizer(trained.parameters())
    data = samples(network, batch_size, seed=1)
    observer = TaskObserver(rank.number, ())

    def step() -> None:
        descent.zero_grad()
        trained(data).backward()
        with observer.update():
            descent.step()

    return measure_steps(rank, step, steps, observer)


def split_layers(trained: Trained, ranks: int, splits: Mapping[str, Split], recomputed: Sequence[str] = ()) -> Trained:
    """`trained` with its model's layers split over the ranks of the default process group."""
    by_position = "region" in splits.values()
    parallelize_module(
        trained.model,
        init_device_mesh("cpu", (ranks,)),
        {name: _style(kind, by_position) for name, kind in splits.items()},
    )
    for module in trained.model.modules():
        if isinstance(module, Attention):
            module.heads //= ranks
    recompute(trained.model, recomputed)
    return trained


def _style(kind: Split, by_position: bool) -> ParallelStyle:
    outside = Shard(1) if by_position else Replicate()  # what column layers read and row layers give
    if kind == "column":
        return ColwiseParallel(input_layouts=outside)
    if kind == "row":
        return RowwiseParallel(output_layouts=outside)
    if kind == "norm":
        return SequenceParallel(use_local_output=True)
    return PrepareModuleInputOutput(
        input_layouts=(Replicate(),),
        desired_input_layouts=(Shard(1),),
        use_local_input=True,
        output_layouts=(Shard(1),),
        desired_output_layouts=(Replicate(),),
    )
