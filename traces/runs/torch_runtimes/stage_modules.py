"""A traced network cut into stages, each a module that runs its steps one after the other; and torch's stage of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, fx, nn
from torch.distributed import pipelining
from torch.fx.node import map_arg

from simulator.errors import InputError
from simulator.taskgraph import Kind
from traces.capture.fx_steps import TracedStep, by_stage
from traces.runs.torch_runtimes.task_observer import TaskObserver


def whole(steps: Sequence[TracedStep], observer: TaskObserver) -> Part:
    """All steps as one stage."""
    return Part(steps, steps[0].node.graph.find_nodes(op="placeholder"), [steps[-1].node], observer)


def cut(steps: Sequence[TracedStep], stages: Sequence[Sequence[str]], observer: TaskObserver) -> list[Part]:
    """The modules of the stages, given by their layers' names; the loss, which ends the last one, is left out.

    Raises InputError when a value skips a stage, since torch passes values only from one stage to the next, or is
    one of several that a layer makes, which the plan sends together.
    """
    inside, layers = by_stage(steps, stages), {name for names in stages for name in names}
    names = {step.node: step.name for step in steps}
    home = {step.node: number for number, part in enumerate(inside) for step in part}
    inside[-1].pop()
    crossing: list[list[fx.Node]] = [[] for _ in stages]
    for step in steps:
        for read in step.node.all_input_nodes:
            start, end = home.get(read, 0), home[step.node]
            if end > start + 1:
                raise InputError(f"layer {step.name!r} of stage {end} reads from stage {start}: a stage is skipped")
            if end > start and read in names and names[read] not in layers:
                raise InputError(
                    f"layer {step.name!r} of stage {end} reads {names[read]!r} of stage {start}, which is no whole "
                    "output of a layer: torch's stages send no other, so cut the network elsewhere"
                )
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


def _sendable(value: Tensor) -> Tensor:
    """What it is given, with a gradient that is contiguous in memory, as gloo sends no other."""
    received = value.view_as(value)
    if received.requires_grad:
        received.register_hook(lambda gradient: gradient.contiguous())  # type: ignore[no-untyped-call]
    return received


class Stage(pipelining.PipelineStage):
    """Stage `number` of a network cut into `parts`; homes: the rank of each. group: of the ranks, all by default."""

    def __init__(
        self, parts: Sequence[Part], number: int, homes: Sequence[int], observer: TaskObserver, group: Any = None
    ) -> None:
        super().__init__(parts[number], number, len(parts), torch.device("cpu"), group=group)
        self._observer = observer
        self._takes = parts[number - 1].gives if number else []
        self._gives = parts[number].gives if number + 1 < len(parts) else []
        self._before, self._own, self._after = homes[number - 1], homes[number], homes[(number + 1) % len(homes)]

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        self._observer.arrived(Kind.ACTIVATION, self._takes, fwd_chunk_id, (self._before, self._own))
        self._observer.begin(Kind.FORWARD, fwd_chunk_id)
        return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> None:
        self._observer.arrived(Kind.GRADIENT, self._gives, bwd_chunk_id, (self._after, self._own))
        self._observer.begin(Kind.BACKWARD, bwd_chunk_id)
        super().backward_one_chunk(bwd_chunk_id, *args, **kwargs)
        self._observer.end(time.monotonic())

    def backward_weight_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> None:
        self._observer.begin(Kind.WEIGHT, bwd_chunk_id)
        super().backward_weight_one_chunk(bwd_chunk_id, *args, **kwargs)
        self._observer.end(time.monotonic())

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        self._observer.posted(Kind.ACTIVATION, self._takes, fwd_chunk_id, (self._before, self._own))
        return super().get_fwd_recv_ops(fwd_chunk_id)

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        self._observer.posted(Kind.GRADIENT, self._gives, bwd_chunk_id, (self._after, self._own))
        return super().get_bwd_recv_ops(bwd_chunk_id)

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        messages: list[dist.P2POp] = super().get_fwd_send_ops(fwd_chunk_id)
        self._observer.posted(Kind.ACTIVATION, self._gives, fwd_chunk_id, (self._own, self._after), _sizes(messages))
        return messages

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        messages: list[dist.P2POp] = super().get_bwd_send_ops(bwd_chunk_id)
        self._observer.posted(Kind.GRADIENT, self._takes, bwd_chunk_id, (self._own, self._before), _sizes(messages))
        return messages


def _sizes(messages: Sequence[dist.P2POp]) -> list[int]:
    return [message.tensor.nbytes for message in messages]
