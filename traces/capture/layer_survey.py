"""What can be known of a network's layers without timing them: shapes, sizes, geometry, joins, saved storage."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_aggregate
from torch.utils.flop_counter import FlopCounterMode

from simulator.workload import Geometry
from traces.capture.channel_fractions import Narrowed, narrow
from traces.capture.fx_steps import (
    Environment,
    TracedStep,
    Value,
    alias,
    channel_axis,
    outputs,
    ready,
    release,
    tensors,
)
from traces.capture.layer_geometry import describe


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedLayer:
    """One layer. Bytes and flops are for the whole batch; flops count two per multiply-add of matrix products,
    convolutions and attention, and nothing else."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    output_shape: tuple[int, int, int]
    output_bytes: int
    parameter_bytes: int
    saved_bytes: int
    flops: float
    geometry: Geometry
    narrowed: dict[Fraction, Narrowed]


def survey(
    steps: Sequence[TracedStep], data: Tensor, persistent: Iterable[Tensor], fractions: Sequence[Fraction]
) -> tuple[list[SurveyedLayer], dict[fx.Node, int]]:
    """The layers, and the position of each node that is a layer, from running the steps once over `data`.

    data: (samples, *input shape). persistent: the parameters and buffers of the model, whose storage no layer saves.
    """
    layers: list[SurveyedLayer] = []
    layer_of: dict[fx.Node, int] = {}
    environment: Environment = {steps[0].node.graph.find_nodes(op="placeholder")[0]: Value(data, -1)}
    saved, owned = _SavedStorage(persistent), set[nn.Parameter]()
    for step in steps:
        value = alias(step, environment)
        if value is None:
            arguments = ready(step, environment)
            with saved, FlopCounterMode(display=False) as counter:
                result = step.call(*arguments.args, **arguments.kwargs)
            if next(tensors(result), None) is not None:
                kind, geometry = describe(step, arguments.args, arguments.kwargs, result)
                parameters = set(arguments.parameters) - owned
                owned |= parameters
                layer_of[step.node] = len(layers)
                layers.append(
                    SurveyedLayer(
                        name=step.name,
                        kind=kind,
                        inputs=_producers(step, environment, layers),
                        output_shape=shape_of(next(tensors(result))),
                        output_bytes=sum(map(_bytes, tensors(result))),
                        parameter_bytes=sum(map(_bytes, parameters)),
                        saved_bytes=saved.take(),
                        flops=float(counter.get_total_flops()),
                        geometry=geometry,
                        narrowed=_narrowed(step, geometry, environment, fractions, result),
                    )
                )
            value, _ = outputs(result, len(layers) - 1)
        environment[step.node] = value
        release(step, environment)
    return layers, layer_of


def shape_of(tensor: Tensor) -> tuple[int, int, int]:
    """(channels, height, width) of one sample; what is missing is 1, and a sequence's length is its height."""
    if tensor.dim() < 2:
        return 1, 1, 1
    axis = channel_axis(tensor)
    sides = [*tensor.shape[1:axis], *tensor.shape[axis + 1 :], 1]
    return int(tensor.shape[axis]), int(sides[0]), math.prod(sides[1:])


def _producers(step: TracedStep, environment: Environment, layers: Sequence[SurveyedLayer]) -> tuple[str, ...]:
    """Names of the layers whose outputs the step reads, in the order of its arguments; not the training data."""
    read: dict[str, None] = {}

    def visit(item: Any) -> None:
        if isinstance(item, Value) and item.layer >= 0:
            read[layers[item.layer].name] = None

    for node in step.node.all_input_nodes:
        map_aggregate(environment[node], visit)
    return tuple(read)


def _narrowed(
    step: TracedStep, geometry: Geometry, environment: Environment, fractions: Sequence[Fraction], result: Any
) -> dict[Fraction, Narrowed]:
    made = {fraction: narrow(step, geometry, environment, fraction, result) for fraction in fractions}
    return {fraction: layer for fraction, layer in made.items() if layer is not None}


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


class _SavedStorage(torch.autograd.graph.saved_tensors_hooks):
    """Counts the storage that autograd keeps for backward, each storage once."""

    def __init__(self, persistent: Iterable[Tensor]) -> None:
        self._known = {tensor.untyped_storage()._cdata: tensor for tensor in persistent}
        self._new_bytes = 0
        super().__init__(self._keep, lambda tensor: tensor)

    def take(self) -> int:
        """Bytes newly kept since the last call."""
        taken, self._new_bytes = self._new_bytes, 0
        return taken

    def _keep(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._known:  # the storage's own address: on the meta device all data are at 0
            self._known[storage._cdata] = tensor.detach()  # held, so that no later storage takes its address
            self._new_bytes += storage.nbytes()
        return tensor
