"""Whole training steps, run layer by layer and timed in place.

Each layer is timed where it stands in the step: its inputs were just made by the layers before it, its gradient by
those after it, memory is taken and given back as in an ordinary step. So caches and the allocator are in
the state that they have in real training, and layer times add up to the step.

    forward    value -> boundary -> [layer, release of dead inputs] -> value ...       [ ] is timed
    backward   [sum of the consumers' gradients, gradients of the layer] ...           in reverse order
    update     [SGD with momentum of the layer's parameters] ...

A layer's gradients are asked of autograd in a call of their own, where an ordinary step makes one call for all layers.
On a CPU that costs 40 us or more, as much as a small layer takes; so an empty call is timed just before each layer's,
and the median of a pass is taken off.

The first layers need no gradient of the training data and compute none, as in an ordinary step. Where the optimizer
updates all parameters in the same kernels, as it does on a GPU, the update is timed as one and each layer has the part
of it that it has of the elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn

from traces.capture.allocations import Allocations
from traces.capture.channel_fractions import Narrowed
from traces.capture.checkpointed_call import Recomputation, watched
from traces.capture.device_clocks import Clock, Marks, Times
from traces.capture.fx_steps import Environment, Ready, TracedStep, aside, beginning, outputs, ready, release
from traces.capture.momentum_sgd import descend
from traces.zoo.own_network import Data

STEPS_PER_LEAD = 24
"""Few enough that what they launch, narrow layers and events included, fits in a GPU's queue of about 1000 entries."""

Gradients = dict[nn.Parameter, tuple[int, Tensor]]
"""Each parameter's gradient, and the first layer that uses the parameter."""


class TimedPasses:
    """Runs the steps of one network; layer_of: the position of those that are layers, the others compute sizes.

    Data is of shape (samples, *input shape), of each input where there are several; times are in seconds.
    """

    def __init__(self, steps: Sequence[TracedStep], layer_of: Mapping[fx.Node, int], clock: Clock) -> None:
        self._steps, self._layer_of, self._clock = steps, layer_of, clock
        self._momenta: dict[nn.Parameter, Tensor] = {}

    def step(self, data: Data) -> Times:
        """A whole training step over `data`, every layer timed."""
        marks = Marks(self._clock)
        self._update(self._forward_backward(data, _Timed(full=marks)), marks)
        return marks.read()

    def accumulated(self, data: Data) -> Times:
        """Forward and backward over `data` in which only the sums with the gradients of earlier data are timed.

        Each is timed right after its layer's backward pass: one gradient was just made, the other comes from memory.
        """
        marks = Marks(self._clock)
        self._forward_backward(data, _Timed(sums=marks))
        return marks.read()

    def gradients(self, data: Data) -> tuple[Times, dict[nn.Parameter, Tensor]]:
        """Forward and backward over `data`, every layer timed; the times and the parameters' gradients."""
        marks = Marks(self._clock)
        gradients = self._forward_backward(data, _Timed(full=marks))
        return marks.read(), {parameter: gradient for parameter, (_, gradient) in gradients.items()}

    def working_bytes(self, data: Data) -> dict[int, int]:
        """What each layer's backward pass holds at most beside the gradients of its outputs and of its parameters."""
        timed = _Timed(working={})
        self._forward_backward(data, timed)
        return timed.working or {}

    def narrowed(self, data: Data, variants: Mapping[int, Narrowed]) -> Times:
        """Forward and backward over `data` in which only `variants` are timed, each just before the full layer."""
        marks = Marks(self._clock)
        self._forward_backward(data, _Timed(narrow=marks, variants=variants))
        return marks.read()

    def _forward_backward(self, data: Data, timed: _Timed) -> Gradients:
        with watched(self._clock) as watch:
            runs, narrow, loss = self._forward(data, timed)
            return self._backward(runs, narrow, {max(runs): {0: [(torch.ones_like(loss), True)]}}, timed, watch)

    def _forward(self, data: Data, timed: _Timed) -> tuple[_Runs, _Runs, Tensor]:
        """The layers that ran, those of the narrow ones, and the loss."""
        environment = beginning(self._steps, data)
        runs: _Runs = {}
        narrow: _Runs = {}
        value: Any = None
        for count, step in enumerate(self._steps):
            self._lead(count)
            layer = self._layer_of.get(step.node)
            if layer is None:
                environment[step.node] = aside(step, environment)
                continue
            if (variant := timed.variants.get(layer)) is not None:
                arguments = ready(variant.step, environment, variant.value)
                narrow[layer], _ = _run(variant.step, arguments, layer, {}, timed.narrow)
            runs[layer], value = _run(step, ready(step, environment), layer, environment, timed.full)
            environment[step.node] = value
        return runs, narrow, value.tensor

    def _backward(
        self, runs: _Runs, narrow: _Runs, received: _Received, timed: _Timed, watch: Recomputation
    ) -> Gradients:
        parameter_gradients: Gradients = {}
        for count, layer in enumerate(sorted(runs, reverse=True)):
            self._lead(count)
            gradients = received.pop(layer, {})
            if layer in narrow and gradients:
                part = {0: [(timed.variants[layer].gradient(gradient), True) for gradient, _ in gradients[0]]}
                _differentiate(narrow.pop(layer), part, layer, timed.narrow)
            run = runs.pop(layer)
            watch.repeats.clear()
            with nullcontext() if timed.working is None else Allocations() as made:
                differentiated = _differentiate(run, gradients, layer, timed.full)
            if timed.working is not None and made:
                own = sum(gradient.nbytes for gradient, _ in differentiated[len(run.origins) :] if gradient is not None)
                timed.working[layer] = max(made.most_bytes - own, 0)
            if timed.full:
                for start, end in watch.repeats:
                    timed.full.add("recompute_s", {layer: 1}, start, end)
            if timed.sums:
                self._accumulate(run, differentiated, layer, timed.sums)
            _deliver(run, differentiated, layer, received, parameter_gradients, timed.full)
        return parameter_gradients

    def _update(self, gradients: Gradients, marks: Marks) -> None:
        self._clock.lead()
        by_layer: dict[int, list[nn.Parameter]] = {}
        for parameter in reversed(gradients):
            self._momentum(parameter)
            by_layer.setdefault(gradients[parameter][0], []).append(parameter)
        for layers in [list(by_layer)] if self._clock.joint_update else [[layer] for layer in by_layer]:
            parameters = [parameter for layer in layers for parameter in by_layer[layer]]
            momenta = [self._momenta[parameter] for parameter in parameters]
            start = self._clock.mark()
            descend(parameters, [gradients.pop(parameter)[1] for parameter in parameters], momenta)
            marks.share("update_s", {layer: sum(p.numel() for p in by_layer[layer]) for layer in layers}, start)

    def _accumulate(
        self, run: Ready, differentiated: Sequence[tuple[Tensor | None, bool]], layer: int, marks: Marks
    ) -> None:
        """Time sums of the layer's gradients with as large tensors, the momenta, which a factor of 0 leaves alone."""
        pairs = zip(run.parameters, differentiated[len(run.origins) :], strict=True)
        sums = [(self._momentum(parameter), gradient) for parameter, (gradient, _) in pairs if gradient is not None]
        start = marks.clock.mark()
        with torch.no_grad():
            for momentum, gradient in sums:
                momentum.add_(gradient, alpha=0)
        marks.note("accumulate_s", layer, start)

    def _momentum(self, parameter: nn.Parameter) -> Tensor:
        if parameter not in self._momenta:
            self._momenta[parameter] = torch.zeros_like(parameter)
        return self._momenta[parameter]

    def _lead(self, count: int) -> None:
        if count % STEPS_PER_LEAD == 0:
            self._clock.lead()


_OutputGradients = dict[int, list[tuple[Tensor, bool]]]
"""For each output of a layer, the gradients from its consumers, each with whether its memory is not shared."""

_Received = dict[int, _OutputGradients]


_Runs = dict[int, Ready]
"""What backward needs of each layer that ran forward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Timed:
    """What of a pass is timed: the layers, narrow variants of them, or the sums of gradients with earlier ones.

    working: where bytes that backward passes hold are to be noted, by layer.
    """

    full: Marks | None = None
    narrow: Marks | None = None
    sums: Marks | None = None
    variants: Mapping[int, Narrowed] = field(default_factory=dict)
    working: dict[int, int] | None = None


def _run(
    step: TracedStep, arguments: Ready, layer: int, environment: Environment, marks: Marks | None
) -> tuple[Ready, Any]:
    """Run a layer; what dies with it is released within the timed part, as it is in an ordinary step."""
    start = marks.clock.mark() if marks else None
    result = step.call(*arguments.args, **arguments.kwargs)
    arguments.args = arguments.kwargs = None
    release(step, environment)
    if marks:
        marks.note("forward_s", layer, start)
    value, arguments.outputs = outputs(result, layer)
    return arguments, value


def _differentiate(
    run: Ready, gradients: _OutputGradients, layer: int, marks: Marks | None
) -> list[tuple[Tensor | None, bool]]:
    """The gradients of the layer's inputs and parameters; those of its outputs and all it saved are released."""
    targets = [*run.edges, *run.parameters]
    if not targets or not gradients:
        return [(None, False)] * len(targets)
    shared = [_memory(gradient) for sent in gradients.values() for gradient, _ in sent]
    if marks and marks.clock.times_calls:
        _note_empty_call(layer, marks)
    start = marks.clock.mark() if marks else None
    edges = [edge for position, edge in run.outputs if position in gradients]
    output_gradients = [_sum(gradients.pop(position)) for position, _ in run.outputs if position in gradients]
    results: Sequence[Tensor | None] = torch.autograd.grad(edges, targets, output_gradients, allow_unused=True)
    run.outputs.clear()
    edges.clear()
    output_gradients.clear()
    if marks:
        marks.note("backward_s", layer, start)
    shared += [_memory(gradient) for gradient in results if gradient is not None]
    return [(gradient, gradient is not None and shared.count(_memory(gradient)) == 1) for gradient in results]


def _note_empty_call(layer: int, marks: Marks) -> None:
    """Time what asking autograd costs where there is nothing to compute: the second of two calls.

    The first brings autograd's code into the caches, where the layer's call will find it, too.
    """
    value = torch.ones((), requires_grad=True)
    views, gradient = [value.view_as(value) for _ in range(2)], value.detach()
    torch.autograd.grad(views[:1], [value], [gradient], allow_unused=True)
    start = marks.clock.mark()
    torch.autograd.grad(views[1:], [value], [gradient], allow_unused=True)
    marks.note("empty_call_s", layer, start)


def _deliver(
    run: Ready,
    differentiated: list[tuple[Tensor | None, bool]],
    layer: int,
    received: _Received,
    gradients: Gradients,
    marks: Marks | None,
) -> None:
    """Pass gradients of inputs to the layers that made them, and add those of a shared parameter, which takes time."""
    for (producer, position), (gradient, alone) in zip(run.origins, differentiated, strict=False):
        if gradient is not None:
            received.setdefault(producer, {}).setdefault(position, []).append((gradient, alone))
    for parameter, (gradient, _) in zip(run.parameters, differentiated[len(run.origins) :], strict=True):
        if gradient is not None:
            earlier = gradients.pop(parameter, None)
            start = marks.clock.mark() if marks and earlier is not None else None
            gradients[parameter] = (layer, gradient if earlier is None else gradient + earlier[1])
            if marks and earlier is not None:
                marks.note("backward_s", layer, start)


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _sum(sent: list[tuple[Tensor, bool]]) -> Tensor:
    """The sum, in the memory of a gradient that is not shared, as autograd does it."""
    sent.sort(key=lambda each: not each[1])
    total, alone = sent[0]
    for gradient, _ in sent[1:]:
        total = total.add_(gradient) if alone else total + gradient
        alone = True
    return total
