"""A network as a list of steps that can be run, timed and differentiated one by one.

torch.fx traces the network's forward. Every module without submodules (or from torch.nn) and every function or
method between modules is one step; those that yield a tensor are the layers of a profile.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_aggregate, map_arg

from simulator.errors import InputError
from traces.capture.module_tracer import LayerNames, ModuleTracer, call_of
from traces.zoo.own_network import Data, NetworkInputs, data_tensors


def trace(trained: Trained) -> list[TracedStep]:
    """The steps of a model and its loss, in execution order. Raises InputError when fx cannot follow it."""
    try:
        graph = ModuleTracer().trace(trained)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"model: torch.fx cannot trace its forward ({reason}); "
            "move control flow that depends on values into a module without submodules, which becomes one layer"
        ) from None
    modules, names = dict(trained.named_modules()), LayerNames()
    nodes = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
    return with_last_uses(
        [TracedStep(node=node, name=names.of(node), call=call_of(trained, modules, node), dies=()) for node in nodes]
    )


def with_last_uses(steps: Sequence[TracedStep]) -> list[TracedStep]:
    """The steps with the nodes that die with each."""
    last = {read: step.node for step in steps for read in step.node.all_input_nodes}
    return [
        dataclasses.replace(step, dies=tuple(n for n in step.node.all_input_nodes if last[n] is step.node))
        for step in steps
    ]


def beginning(steps: Sequence[TracedStep], data: Data) -> Environment:
    """The environment of the first step: the training data, (samples, ...) each."""
    placeholders = steps[0].node.graph.find_nodes(op="placeholder")
    tensors_read = zip(placeholders, data_tensors(data), strict=True)
    return {node: Value(tensor, -1, position) for position, (node, tensor) in enumerate(tensors_read)}


def by_stage(steps: Sequence[TracedStep], stages: Sequence[Sequence[str]]) -> list[list[TracedStep]]:
    """The steps of each stage; those that are no layer stay with the one before."""
    stage_of = {name: number for number, names in enumerate(stages) for name in names}
    by_stage: list[list[TracedStep]] = [[] for _ in stages]
    current = 0
    for step in steps:
        current = stage_of.get(step.name, current)
        by_stage[current].append(step)
    return by_stage


def channel_axis(tensor: Tensor, of_sequences: int = 2) -> int:
    """The axis of channels: the second, but of a sequence (sample, position, channel) `of_sequences`."""
    return of_sequences if tensor.dim() == 3 else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedStep:
    """One node of the traced graph; `dies` are the nodes whose values no later step reads.

    parameters: what the call trains beside the parameters of `module` and those among its arguments. functions: the
    names of the functions that a step without a module calls, where there are several.
    """

    node: fx.Node
    name: str
    call: Callable[..., Any]
    dies: tuple[fx.Node, ...]
    parameters: tuple[nn.Parameter, ...] = ()
    functions: tuple[str, ...] = ()

    @property
    def module(self) -> nn.Module | None:
        """The module that the step calls; None for functions and methods."""
        return self.call if isinstance(self.call, nn.Module) else None


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor between two steps, detached from autograd: output number `position` of layer `layer`.

    `layer` is -1 for the training data.
    """

    tensor: Tensor
    layer: int
    position: int = 0
    needs_grad: bool = False


Environment = dict[fx.Node, Any]


@dataclass(slots=True, kw_only=True)
class Ready:
    """The arguments of a step, joined to autograd by boundaries, and where their gradients go.

    outputs: once it has run, the position and gradient edge of each output that has one.
    """

    args: Any
    kwargs: Any
    edges: list[Any] = field(default_factory=list)
    origins: list[tuple[int, int]] = field(default_factory=list)
    parameters: list[nn.Parameter] = field(default_factory=list)
    outputs: list[tuple[int, Any]] = field(default_factory=list)


def alias(step: TracedStep, environment: Mapping[fx.Node, Any]) -> Any:
    """The value of a step that is a constant or picks one output of a step with several; None for other steps."""
    if step.node.op == "get_attr":
        return step.call()
    if step.node.target is operator.getitem:
        source, key = cast(tuple[fx.Node, Any], step.node.args)
        held = environment[source]
        return held[key] if isinstance(held, (tuple, list, dict)) else None
    return None


def aside(step: TracedStep, environment: Environment) -> Any:
    """The value of a step that is no layer: an alias, or a number such as a size."""
    value = alias(step, environment)
    if value is None:
        arguments = ready(step, environment)
        value = step.call(*arguments.args, **arguments.kwargs)
    release(step, environment)
    return value


def release(step: TracedStep, environment: Environment) -> None:
    """Drop the values that no step reads after `step`."""
    for node in step.dies:
        environment.pop(node, None)


def ready(
    step: TracedStep, environment: Mapping[fx.Node, Any], change: Callable[[Value], Value] | None = None
) -> Ready:
    """The step's arguments as tensors; `change` is applied to each Value first.

    A boundary shares its storage with the value but is no leaf, so that in-place layers may overwrite it.
    """
    arguments = Ready(args=(), kwargs={})
    if step.module is not None:
        arguments.parameters.extend(p for p in step.module.parameters() if p.requires_grad)
    arguments.parameters.extend(step.parameters)

    def opened(item: Any) -> Any:
        if isinstance(item, nn.Parameter) and item.requires_grad and all(item is not p for p in arguments.parameters):
            arguments.parameters.append(item)
        if not isinstance(item, Value):
            return item
        value = change(item) if change else item
        if not value.needs_grad:
            return value.tensor
        boundary = _Boundary.apply(_token(value.tensor.device), value.tensor)  # type: ignore[no-untyped-call]
        arguments.edges.append(torch.autograd.graph.get_gradient_edge(boundary))
        arguments.origins.append((value.layer, value.position))
        return boundary

    values = map_arg((step.node.args, step.node.kwargs), environment.__getitem__)
    arguments.args, arguments.kwargs = map_aggregate(values, opened)
    return arguments


def outputs(result: Any, layer: int) -> tuple[Any, list[tuple[int, Any]]]:
    """A step's result with Values for tensors, and (position, gradient edge) of those that have a gradient."""
    edges: list[tuple[int, Any]] = []
    count = 0

    def closed(item: Any) -> Any:
        nonlocal count
        if not isinstance(item, Tensor):
            return item
        if item.requires_grad:
            edges.append((count, torch.autograd.graph.get_gradient_edge(item)))
        count += 1
        return Value(item.detach(), layer, count - 1, item.requires_grad)

    return map_aggregate(result, closed), edges


def tensors(result: Any) -> Iterator[Tensor]:
    """The tensors in a step's result or arguments, in containers and data classes too."""
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, Mapping):
        for part in result.values():
            yield from tensors(part)
    elif isinstance(result, tuple | list):
        for part in result:
            yield from tensors(part)
    elif isinstance(result, slice):
        yield from tensors((result.start, result.stop, result.step))
    elif dataclasses.is_dataclass(result) and not isinstance(result, type):
        for each in dataclasses.fields(result):
            yield from tensors(getattr(result, each.name))


class Trained(nn.Module):
    """A model followed by the loss that it is trained with."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.loss = model, Loss()

    def forward(self, inputs: Data) -> Tensor:
        output = inputs.applied(self.model) if isinstance(inputs, NetworkInputs) else self.model(inputs)
        if dataclasses.is_dataclass(output) and not isinstance(output, Mapping):
            output = {each.name: getattr(output, each.name) for each in dataclasses.fields(output)}
        return self.loss(output)  # type: ignore[no-any-return]


class Loss(nn.Module):
    """The model's own loss where its output has one; otherwise cross entropy against random classes.

    The classes are drawn once per number of predictions. Of several outputs the first counts; one number per sample is
    compared with random numbers, by mean squares.
    """

    def __init__(self) -> None:
        super().__init__()
        self._targets: dict[int, Tensor] = {}

    def forward(self, output: Any) -> Tensor:
        scores = output if isinstance(output, Tensor) else _scores(output)
        if scores.dim() == 0:
            return scores
        if scores.dim() == 1:
            return nn.functional.mse_loss(scores, self._target(len(scores), lambda: torch.randn_like(scores)))
        scores = scores.movedim(channel_axis(scores), -1).flatten(0, -2)  # (predictions, classes)
        count, classes = scores.shape
        targets = self._target(count, lambda: torch.randint(classes, (count,), device=scores.device))
        return nn.functional.cross_entropy(scores, targets)

    def _target(self, count: int, drawn: Callable[[], Tensor]) -> Tensor:
        if count not in self._targets:
            self._targets[count] = drawn()
        return self._targets[count]


def _scores(output: Any) -> Tensor:
    """The output that is trained: the loss of a mapping that has one, otherwise the first tensor."""
    loss = output.get("loss") if isinstance(output, Mapping) else None
    if isinstance(loss, Tensor):
        return loss
    first = next(tensors(output), None)
    if first is None:
        raise InputError(f"model: its forward returns {type(output).__name__}, in which there is no tensor to train")
    return first


class _Boundary(torch.autograd.Function):
    """Lets autograd begin at a tensor that is no leaf. Its backward never runs: gradients are taken before it."""

    @staticmethod
    def forward(ctx: Any, token: Tensor, value: Tensor) -> Tensor:
        return value.data

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, None


@cache
def _token(device: torch.device) -> Tensor:
    """Some tensor that requires a gradient, so that the boundary's output does."""
    return torch.zeros((), device=device, requires_grad=True)
