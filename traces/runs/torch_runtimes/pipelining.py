"""Pipelines as users run them: torch.distributed.pipelining over gloo, one process per device.

The network is cut into the plan's stages along its traced graph; torch's own schedules run them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.distributed import pipelining

from simulator.cluster import Cluster
from simulator.errors import InputError
from simulator.exports.pipelining import SCHEDULES
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower
from simulator.plan import Plan
from simulator.runtime import TORCH_PIPELINING
from simulator.workload import Profile
from traces.capture.fx_steps import Loss, Trained, trace
from traces.capture.momentum_sgd import optimizer
from traces.lab.launch import launch
from traces.lab.rank import Rank
from traces.lab.shaped_network import Lab
from traces.runs.torch_runtimes.measured_steps import MeasuredRun, measure_steps, run_of_ranks, samples
from traces.runs.torch_runtimes.stage_modules import Stage, cut
from traces.runs.torch_runtimes.task_observer import TaskObserver
from traces.zoo.networks import load


def run_pipeline(
    profile: Profile,
    cluster: Cluster,
    plan: Plan,
    *,
    model: str | None = None,
    steps: int = 12,
    lab: Lab | None = None,
    cores: Sequence[Sequence[int]] = (),
    timeout_s: float = 300.0,
) -> MeasuredRun:
    """Train a pipeline of one device per stage with torch.distributed.pipelining.

    model: a name that `zoo.load` knows, by default the plan's. Raises InputError when the plan is no such
    pipeline, RunError when a rank fails.
    """
    if plan.schedule not in SCHEDULES:
        raise InputError(f"schedule {plan.schedule!r} is none of torch's: {', '.join(SCHEDULES)}")
    sharded = ShardedModel(profile, plan)
    homes = [sharded.placements[layers[0]].devices for layers in sharded.stages]
    if any(len(home) > 1 for home in homes):
        raise InputError(
            f"stage on devices {next(home for home in homes if len(home) > 1)}: torch's stages have one each"
        )
    arguments = {
        "model": model or plan.model,
        "stages": [[profile.layers[layer].name for layer in layers] for layers in sharded.stages],
        "homes": [home[0] for home in homes],
        "schedule": SCHEDULES[plan.schedule],
        "batch_size": plan.batch_size,
        "microbatches": plan.microbatches,
        "steps": steps,
    }
    target, count = f"{__name__}:train_rank", len(plan.devices)
    results = launch(target, count, lab=lab, arguments=arguments, cores=cores, timeout_s=timeout_s)
    return run_of_ranks(lower(sharded, cluster, TORCH_PIPELINING), results)


def loss_of(loss: Loss) -> Callable[[Any, Any], torch.Tensor]:
    """`loss`, which draws its own classes, as a function of outputs and targets, which torch's schedules call."""
    return lambda output, _: loss(output)


def train_rank(
    rank: Rank,
    model: str,
    stages: Sequence[Sequence[str]],
    homes: Sequence[int],
    schedule: str,
    batch_size: int,
    microbatches: int,
    steps: int,
) -> dict[str, Any]:
    """What each process of `run_pipeline` does."""
    torch.manual_seed(0)
    network = load(model)
    observer = TaskObserver(rank.number, [name for names in stages for name in names])
    parts = cut(trace(Trained(network.build())), stages, observer)
    own = [Stage(parts, number, homes, observer) for number, home in enumerate(homes) if home == rank.number]
    del parts  # the stages of other ranks take no memory here
    kind = pipelining.schedules.get_schedule_class(schedule)
    many = issubclass(kind, pipelining.schedules.PipelineScheduleMulti)
    loss = partial(observer.call, stages[-1][-1], loss_of(Loss()))
    runtime = kind(own if many else own[0], n_microbatches=microbatches, loss_fn=loss)
    parameters = [each for stage in own for each in stage.submod.parameters() if each.requires_grad]
    descent = optimizer(parameters)
    data, target = samples(network, batch_size), torch.zeros(batch_size)
    first = (data,) if homes[0] == rank.number else ()
    last = {"target": target, "losses": []} if homes[-1] == rank.number else {}

    def step() -> None:
        runtime.step(*first, **last)
        if parameters:  # a rank without has no update in the task graph either
            with observer.update():
                descent.step()
            descent.zero_grad()  # now, as the memory profiler would not see it free gradients older than itself

    return measure_steps(rank, step, steps, observer)
