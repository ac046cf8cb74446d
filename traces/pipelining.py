"""Pipelines as users run them: torch.distributed.pipelining over gloo, one process per device.

The network is cut into the plan's stages along its traced graph; torch's own schedules run them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.distributed import pipelining
from torch.fx.node import map_arg

from simulator.errors import InputError
from simulator.plan import Plan
from simulator.schedules import stages
from simulator.workload import Profile
from traces.launch import launch
from traces.netlab import Lab
from traces.network import Step, Trained, trace
from traces.passes import LEARNING_RATE, MOMENTUM
from traces.rank import Rank
from traces.steps import Measured, combined, train
from traces.zoo import load

SCHEDULES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "zero-bubble": "InterleavedZeroBubble",
    "zbv": "ZBVZeroBubble",
}
"""torch's name of each schedule that it has."""


def run_pipeline(
    profile: Profile,
    plan: Plan,
    *,
    model: str | None = None,
    steps: int = 12,
    lab: Lab | None = None,
    cores: Sequence[Sequence[int]] = (),
    timeout_s: float = 300.0,
) -> Measured:
    """Train a pipeline of one device per stage with torch.distributed.pipelining.

    model: a name that `zoo.load` knows, by default the plan's. Raises InputError when the plan is no such
    pipeline, RunError when a rank fails.
    """
    if plan.schedule not in SCHEDULES:
        raise InputError(f"schedule {plan.schedule!r} is none of torch's: {', '.join(SCHEDULES)}")
    found = stages(profile, plan)
    homes = [plan.placements[profile.layers[layers[0]].name].devices for layers in found]
    if any(len(home) > 1 for home in homes):
        raise InputError(
            f"stage on devices {next(home for home in homes if len(home) > 1)}: torch's stages have one each"
        )
    arguments = {
        "model": model or plan.model,
        "stages": [[profile.layers[layer].name for layer in layers] for layers in found],
        "homes": [home[0] for home in homes],
        "schedule": SCHEDULES[plan.schedule],
        "batch_size": plan.batch_size,
        "microbatches": plan.microbatches,
        "steps": steps,
    }
    ranks = len(plan.devices)
    results = launch(
        "traces.pipelining:train_rank", ranks, lab=lab, arguments=arguments, cores=cores, timeout_s=timeout_s
    )
    return combined(results)


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
    trained = Trained(network.build())
    parts = cut(trace(trained), stages)
    own = [
        pipelining.PipelineStage(part, number, len(parts), torch.device("cpu"))
        for number, part in enumerate(parts)
        if homes[number] == rank.number
    ]
    kind = pipelining.schedules.get_schedule_class(schedule)
    many = issubclass(kind, pipelining.schedules.PipelineScheduleMulti)
    runtime = kind(own if many else own[0], n_microbatches=microbatches, loss_fn=nn.functional.cross_entropy)
    optimizers = [
        torch.optim.SGD(stage.submod.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
        for stage in own
        if any(True for _ in stage.submod.parameters())
    ]
    data, target = torch.randn(batch_size, *network.input_shape), torch.randint(10, (batch_size,))
    first = (data,) if homes[0] == rank.number else ()
    last = {"target": target, "losses": []} if homes[-1] == rank.number else {}

    def step() -> None:
        for optimizer in optimizers:
            optimizer.zero_grad()
        runtime.step(*first, **last)
        for optimizer in optimizers:
            optimizer.step()

    return train(rank, step, steps)


def cut(steps: Sequence[Step], stages: Sequence[Sequence[str]]) -> list[Part]:
    """The modules of the stages, given by their layers' names; the loss, which ends the last one, is left out.

    Raises InputError when a value skips a stage, since torch passes values only from one stage to the next.
    """
    stage_of = {name: number for number, names in enumerate(stages) for name in names}
    inside: list[list[Step]] = [[] for _ in stages]
    current = 0
    for step in steps:
        current = stage_of.get(step.name, current)
        inside[current].append(step)
    home = {step.node: number for number, part in enumerate(inside) for step in part}
    inside[-1].pop()
    crossing: list[list[fx.Node]] = [[] for _ in stages]
    for step in steps:
        for read in step.node.all_input_nodes:
            start, end = home.get(read, 0), home[step.node]
            if end > start + 1:
                raise InputError(f"layer {step.name!r} of stage {end} reads from stage {start}: a stage is skipped")
            if end > start and read not in crossing[start]:
                crossing[start].append(read)
    crossing[-1] = [steps[-2].node]
    placeholder = steps[0].node.graph.find_nodes(op="placeholder")
    inputs = [placeholder, *crossing[:-1]]
    return [Part(part, reads, gives) for part, reads, gives in zip(inside, inputs, crossing, strict=True)]


class Part(nn.Module):
    """Consecutive steps of a traced network as one module."""

    def __init__(self, steps: Sequence[Step], inputs: Sequence[fx.Node], outputs: Sequence[fx.Node]) -> None:
        super().__init__()
        self._steps, self._inputs, self._outputs = steps, inputs, outputs
        self.members = nn.ModuleList(step.module for step in steps if step.module is not None)
        for step in steps:
            if step.module is not None and set(step.node.all_input_nodes) & set(inputs):
                # what was received is a leaf, which autograd lets nobody overwrite
                step.module.inplace = False  # type: ignore[assignment]

    def forward(self, *given: Tensor) -> Any:
        """The outputs of the stage, a tensor when there is one only."""
        values: dict[fx.Node, Any] = dict(zip(self._inputs, given, strict=True))
        for step in self._steps:
            args, kwargs = map_arg((step.node.args, step.node.kwargs), values.__getitem__)
            values[step.node] = step.call(*args, **kwargs)
        found = tuple(values[node] for node in self._outputs)
        return found if len(found) > 1 else found[0]
