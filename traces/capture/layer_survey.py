"""What can be known of a network's layers without timing them: shapes, sizes, geometry, joins, saved storage."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_aggregate
from torch.utils.flop_counter import FlopCounterMode

from simulator.workload import Layer
from traces.capture.channel_fractions import Narrowed, narrow
from traces.capture.checkpointed_call import watched
from traces.capture.fx_steps import (
    Environment,
    Ready,
    TracedStep,
    Value,
    alias,
    beginning,
    channel_axis,
    outputs,
    ready,
    release,
    tensors,
)
from traces.capture.layer_geometry import CHANNELS_LAST, CHANNELS_SECOND, describe, keeps_axes
from traces.zoo.blocks import QueryKeyValueAttention
from traces.zoo.own_network import Data


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """A network's layers, without times. Flops count two per multiply-add of matrix products, convolutions,
    recurrences and attention, and nothing else.

    layer_of: the position of each node that is a layer. narrowed: by (whether they read a fraction of their input
    channels or make one of their output channels, that fraction), the layers that have such a form, by position.
    """

    layers: list[Layer]
    layer_of: dict[fx.Node, int]
    narrowed: dict[tuple[bool, Fraction], dict[int, Narrowed]]


def survey(
    steps: Sequence[TracedStep], data: Data, persistent: Iterable[Tensor], fractions: Sequence[Fraction]
) -> Survey:
    """The layers, from running the steps once over `data`.

    data: (samples, *input shape). persistent: the parameters and buffers of the model, whose storage no layer saves.
    A parameter of several layers is the first one's; the others name that layer in tied_to.
    """
    layers: list[Layer] = []
    layer_of: dict[fx.Node, int] = {}
    narrowed: dict[tuple[bool, Fraction], dict[int, Narrowed]] = {
        (reading, fraction): {} for reading in (False, True) for fraction in fractions
    }
    environment, axes = beginning(steps, data), list[int]()
    saved, owners = _SavedStorage(persistent), dict[nn.Parameter, str]()
    for step in steps:
        value = alias(step, environment)
        if value is None:
            arguments = ready(step, environment)
            with saved, watched(None) as watch, _flop_counter() as counter:
                result = step.call(*arguments.args, **arguments.kwargs)
            if next(tensors(result), None) is not None:
                if watch.regions:  # it keeps its inputs, which no hook sees
                    saved.keep_all((arguments.args, arguments.kwargs))
                read = _layers_read(step, environment)
                axes.append(_sequence_axis(step, read, axes))
                layer = _layer(step, arguments, result, tuple(layers[i].name for i in read), axes[-1], owners)
                for (reading, fraction), forms in narrowed.items():
                    form = narrow(step, layer.geometry, environment, fraction, result, axes[-1], reading)
                    if form is not None:
                        forms[len(layers)] = form
                layer_of[step.node] = len(layers)
                layers.append(replace(layer, saved_bytes=saved.take(), flops=float(counter.get_total_flops())))
            value, _ = outputs(result, len(layers) - 1)
        environment[step.node] = value
        release(step, environment)
    return Survey(layers=layers, layer_of=layer_of, narrowed={form: made for form, made in narrowed.items() if made})


def _flop_counter() -> FlopCounterMode:
    """torch's, which by itself passes over the recurrent layers of oneDNN (a CPU's LSTM), cuDNN and MIOpen."""
    recurrent = torch.ops.aten.mkldnn_rnn_layer, torch.ops.aten._cudnn_rnn, torch.ops.aten.miopen_rnn
    return FlopCounterMode(display=False, custom_mapping=dict.fromkeys(recurrent, _recurrent_flops))


def _recurrent_flops(read: Sequence[int], weights: Any, second: Any, *others: Any, **ignored: Any) -> int:
    """Every sample's every position goes through all matrices. read: (..., channels); weights: shapes, or the first."""
    matrices = weights if isinstance(weights, list) else (weights, second)
    return 2 * math.prod(read[:-1]) * sum(math.prod(shape) for shape in matrices if len(shape) == 2)


def _layer(
    step: TracedStep, arguments: Ready, result: Any, inputs: tuple[str, ...], axis: int, owners: dict[nn.Parameter, str]
) -> Layer:
    """What a step's arguments and result tell of its layer. owners: by parameter the first layer that has it, among
    them then this one. axis: of a sequence's channels."""
    kind, geometry = describe(step, arguments.args, arguments.kwargs, result)
    if isinstance(step.module, QueryKeyValueAttention):
        geometry = replace(geometry, aligned_inputs=inputs[:1])
    first = [owners.setdefault(parameter, step.name) for parameter in dict.fromkeys(arguments.parameters)]
    own = {parameter for parameter in arguments.parameters if owners[parameter] == step.name}
    return Layer(
        name=step.name,
        kind=kind,
        inputs=inputs,
        output_shape=shape_of(next(tensors(result)), axis),
        forward_s=0.0,
        backward_s=0.0,
        output_bytes=sum(map(_bytes, tensors(result))),
        parameter_bytes=sum(map(_bytes, own)),
        geometry=geometry,
        tied_to=tuple(name for name in dict.fromkeys(first) if name != step.name),
    )


def shape_of(tensor: Tensor, of_sequences: int = 2) -> tuple[int, int, int]:
    """(channels, height, width) of one sample; what is missing is 1, and a sequence's length is its height.

    of_sequences: the axis of a sequence's channels.
    """
    if tensor.dim() < 2:
        return 1, 1, 1
    axis = channel_axis(tensor, of_sequences)
    sides = [*tensor.shape[1:axis], *tensor.shape[axis + 1 :], 1]
    return int(tensor.shape[axis]), int(sides[0]), math.prod(sides[1:])


def _sequence_axis(step: TracedStep, read: Sequence[int], axes: Sequence[int]) -> int:
    """Where a sequence that the step makes has its channels: second for 1-dimensional convolutions and what follows."""
    if isinstance(step.module, CHANNELS_SECOND):
        return 1
    if isinstance(step.module, CHANNELS_LAST):
        return 2
    return 1 if any(axes[layer] == 1 for layer in read) and keeps_axes(step) else 2


def _layers_read(step: TracedStep, environment: Environment) -> list[int]:
    """The layers whose outputs the step reads, in the order of its arguments; not the training data."""
    read: list[int] = []
    for node in step.node.all_input_nodes:
        map_aggregate(environment[node], lambda item: read.append(item.layer) if isinstance(item, Value) else None)
    return [layer for layer in dict.fromkeys(read) if layer >= 0]


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


class _SavedStorage(torch.autograd.graph.saved_tensors_hooks):
    """Counts the storage that autograd keeps for backward, each storage once."""

    def __init__(self, persistent: Iterable[Tensor]) -> None:
        self._known = {tensor.untyped_storage()._cdata: tensor for tensor in persistent}
        self._new_bytes = 0
        super().__init__(self.keep, lambda tensor: tensor)

    def take(self) -> int:
        """Bytes newly kept since the last call."""
        taken, self._new_bytes = self._new_bytes, 0
        return taken

    def keep_all(self, values: Any) -> None:
        """Count the storage of all tensors in containers."""
        for tensor in tensors(values):
            self.keep(tensor)

    def keep(self, tensor: Tensor) -> Tensor:
        """Count a tensor's storage, if it is new."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self._known:  # the storage's own address: on the meta device all data are at 0
            self._known[storage._cdata] = tensor.detach()  # held, so that no later storage takes its address
            self._new_bytes += storage.nbytes()
        return tensor
