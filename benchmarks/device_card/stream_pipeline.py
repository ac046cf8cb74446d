"""A pipeline whose stages share one device, each on a CUDA stream of its own; without streams, one after another.

stream 0   0 1 2 3           a b c d      digits: forward of the micro-batches
stream 1     0 1 2 3   a b c d            letters: their backward
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.node import map_arg

from benchmarks.device_card.whole_steps import WholeSteps
from traces.capture.fx_steps import TracedStep, by_stage, trace


class SharedPipeline:
    """GPipe over one device: all micro-batches forward, then all backward, then the update.

    What passes from stage to stage stays in memory until the step ends, so no stream takes it from another.
    stages: the names of each stage's layers, in order.
    """

    def __init__(self, whole: WholeSteps, stages: Sequence[Sequence[str]], microbatches: int) -> None:
        self._whole, self._parts = whole, whole.inputs.chunk(microbatches)
        steps = trace(whole.trained)
        self._placeholder = steps[0].node.graph.find_nodes(op="placeholder")[0]
        self._stages = [_Stage(part) for part in by_stage(steps, stages)]
        self._streams = _streams(len(stages)) if whole.torch_device.type == "cuda" else []

    def step(self) -> None:
        """One training step, joined to the current stream at both ends."""
        for stream in self._streams:
            stream.wait_stream(torch.cuda.current_stream())
        runs = [_Microbatch({self._placeholder: part}) for part in self._parts]
        for run in runs:
            self._through(run, range(len(self._stages)), forward=True)
        for run in runs:
            self._through(run, reversed(range(len(self._stages))), forward=False)
        for stream in self._streams:
            torch.cuda.current_stream().wait_stream(stream)
        self._whole.optimizer.step()
        self._whole.optimizer.zero_grad()
        if self._streams:
            torch.cuda.synchronize()  # before `runs` gives its memory back

    def _through(self, run: _Microbatch, numbers: Any, forward: bool) -> None:
        for number in numbers:
            with self._on(number):
                if self._streams and run.ready is not None:
                    run.ready.wait()
                stage = self._stages[number]
                stage.forward(run) if forward else stage.backward(run, 1 / len(self._parts))
                if self._streams:
                    run.ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
                    run.ready.record()

    def _on(self, number: int) -> AbstractContextManager[Any]:
        return torch.cuda.stream(self._streams[number]) if self._streams else nullcontext()


class _Microbatch:
    """A micro-batch on its way: values that stages passed on, and the leaves that later stages made of them."""

    def __init__(self, values: dict[fx.Node, Any]) -> None:
        self.values = values
        self.leaves: dict[fx.Node, list[Tensor]] = {}
        self.ready: Any = None


class _Stage:
    """Consecutive steps; values from other stages enter as leaves, whose gradients go back."""

    def __init__(self, steps: Sequence[TracedStep]) -> None:
        inside = {step.node for step in steps}
        self._steps = steps
        self._reads = dict.fromkeys(n for step in steps for n in step.node.all_input_nodes if n not in inside)
        self._gives = [s.node for s in steps if not s.node.users or any(user not in inside for user in s.node.users)]
        for step in steps:
            if step.module is not None and set(step.node.all_input_nodes) & set(self._reads):
                step.module.inplace = False  # type: ignore[assignment]  # what was received is a leaf

    def forward(self, run: _Microbatch) -> None:
        values = {node: self._received(node, run) for node in self._reads}
        for step in self._steps:
            args, kwargs = map_arg((step.node.args, step.node.kwargs), values.__getitem__)
            values[step.node] = step.call(*args, **kwargs)
        run.values.update({node: values[node] for node in self._gives})

    def backward(self, run: _Microbatch, share: float) -> None:
        """Gradients of what this stage passed on, or of the loss, whose weight is `share`."""
        roots, output_gradients = [], []
        for node in self._gives:
            value = run.values[node]
            gradients = [leaf.grad for leaf in run.leaves.get(node, []) if leaf.grad is not None]
            if isinstance(value, Tensor) and value.requires_grad and (gradients or value.dim() == 0):
                roots.append(value)
                output_gradients.append(
                    sum(gradients[1:], gradients[0]) if gradients else torch.full_like(value, share)
                )
        if roots:
            torch.autograd.backward(roots, output_gradients)

    def _received(self, node: fx.Node, run: _Microbatch) -> Any:
        value = run.values[node]
        if not isinstance(value, Tensor) or not value.requires_grad:
            return value
        leaf = value.detach().requires_grad_()
        run.leaves.setdefault(node, []).append(leaf)
        return leaf


def _streams(count: int) -> list[torch.cuda.Stream]:
    return [torch.cuda.Stream() for _ in range(count)]  # type: ignore[no-untyped-call]
