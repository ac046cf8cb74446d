"""A traced network cut into stages, each a module that runs its steps one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_arg

from simulator.errors import InputError
from traces.capture.fx_steps import TracedStep, by_stage
from traces.runs.torch_runtimes.task_observer import TaskObserver


def whole(steps: Sequence[TracedStep], observer: TaskObserver) -> Part:
    """All steps as one stage."""
    return Part(steps, steps[0].node.graph.find_nodes(op="placeholder"), [steps[-1].node], observer)


def cut(steps: Sequence[TracedStep], stages: Sequence[Sequence[str]], observer: TaskObserver) -> list[Part]:
    """The modules of the stages, given by their layers' names; the loss, which ends the last one, is left out.

    Raises InputError when a value skips a stage, since torch passes values only from one stage to the next.
    """
    inside = by_stage(steps, stages)
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
    return [Part(part, reads, gives, observer) for part, reads, gives in zip(inside, inputs, crossing, strict=True)]


class Part(nn.Module):
    """Consecutive steps of a traced network as one module, observed. gives: names of steps whose values leave it."""

    def __init__(
        self, steps: Sequence[TracedStep], inputs: Sequence[fx.Node], outputs: Sequence[fx.Node], observer: TaskObserver
    ) -> None:
        super().__init__()
        self._steps, self._inputs, self._outputs, self._observer = steps, inputs, outputs, observer
        names = {step.node: step.name for step in steps}
        self.gives = [names[node] for node in outputs if node in names]
        self.modules_of_steps = nn.ModuleList(step.module for step in steps if step.module is not None)
        for step in steps:
            if step.module is not None and set(step.node.all_input_nodes) & set(inputs):
                # what was received is a leaf, which autograd does not let layers overwrite
                step.module.inplace = False  # type: ignore[assignment]

    def forward(self, *received: Tensor) -> Any:
        """The outputs of the stage, (samples, ...) each; a tensor when there is one only."""
        values: dict[fx.Node, Any] = dict(zip(self._inputs, map(_sendable, received), strict=True))
        for step in self._steps:
            args, kwargs = map_arg((step.node.args, step.node.kwargs), values.__getitem__)
            values[step.node] = self._observer.call(step.name, step.call, *args, **kwargs)
        outputs = tuple(values[node].contiguous() for node in self._outputs)  # or else gloo does not send them
        return outputs if len(outputs) > 1 else outputs[0]


class _ContiguousGradient(torch.autograd.Function):
    """What it is given, and a gradient that is contiguous in memory, as gloo sends no other."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0].contiguous()


def _sendable(value: Tensor) -> Tensor:
    if not value.requires_grad:
        return value
    return _ContiguousGradient.apply(value)  # type: ignore[no-any-return, no-untyped-call]
