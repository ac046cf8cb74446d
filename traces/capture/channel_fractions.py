"""A layer with a fraction of its output channels, as a device that holds a channel shard would run it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.conv import _ConvNd

from simulator.workload import Geometry
from traces.capture.fx_steps import TracedStep, Value, channel_axis, ready
from traces.capture.layer_geometry import is_transposed_linear
from traces.zoo.blocks import Attention, Positions, Tokens


def narrow(
    step: TracedStep,
    geometry: Geometry,
    environment: Mapping[fx.Node, Any],
    fraction: Fraction,
    output: Any,
    axis: int,
    reading: bool,
) -> Narrowed | None:
    """The step with `fraction` of its output channels; None where channels do not divide or the layer has no such form.

    reading: with that fraction of its input channels, making a partial sum of all outputs; only linear layers and
    convolutions have this form, without the bias, which another adds. axis: of a sequence's channels. The new layer is
    run once on the step's arguments to see that it yields what it should of `output`.
    """
    if not isinstance(output, Tensor) or output.dim() < 2:
        return None
    at = channel_axis(output, axis)
    expected = (*output.shape[:at], output.shape[at] * (1 if reading else fraction), *output.shape[at + 1 :])
    try:
        call, slices = (_reading_call(step, fraction), True) if reading else _narrow_call(step, geometry, fraction)
        narrow_step = dataclasses.replace(step, call=call)
        narrowed = Narrowed(step=narrow_step, fraction=fraction, slices=slices, makes=not reading, axis=axis)
        arguments = ready(narrow_step, environment, narrowed.value)
        result = call(*arguments.args, **arguments.kwargs)
    except (_Indivisible, RuntimeError, ValueError, TypeError, IndexError):
        return None
    return narrowed if isinstance(result, Tensor) and tuple(result.shape) == expected else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowed:
    """A step that makes or reads a fraction of the channels.

    slices: whether it reads only that fraction of its inputs; makes: whether it makes only that of its outputs.
    axis: of a sequence's channels.
    """

    step: TracedStep
    fraction: Fraction
    slices: bool
    makes: bool
    axis: int

    def value(self, value: Value) -> Value:
        """What it reads of one of the full step's inputs: all of it, or the same fraction of its channels."""
        return dataclasses.replace(value, tensor=self._first_channels(value.tensor)) if self.slices else value

    def gradient(self, tensor: Tensor) -> Tensor:
        """The gradient of what it makes, from that of the full output."""
        return self._first_channels(tensor) if self.makes else tensor

    def _first_channels(self, tensor: Tensor) -> Tensor:
        """The first channels of a tensor, (samples, part of the channels, ...), in memory of their own.

        A tensor of one channel is broadcast, so stays.
        """
        axis = channel_axis(tensor, self.axis)
        if tensor.dim() <= axis or tensor.shape[axis] == 1:
            return tensor.clone()
        part = tensor.narrow(axis, 0, _whole(self.fraction * tensor.shape[axis]))
        return part.clone(memory_format=torch.contiguous_format)


class _Indivisible(Exception):
    """The channels do not divide."""


def _whole(channels: Fraction) -> int:
    if channels.denominator != 1:
        raise _Indivisible
    return int(channels)


def _narrow_call(step: TracedStep, geometry: Geometry, fraction: Fraction) -> tuple[Any, bool]:
    """The narrow layer, and whether its inputs are sliced as well."""
    module = step.module
    like: dict[str, Any] = {}  # device and type of the full layer's parameters
    if module is not None and (first := next(module.parameters(), None)) is not None:
        like = {"device": first.device, "dtype": first.dtype}
    match module:
        case nn.Conv1d() | nn.Conv2d() | nn.Conv3d():
            grouped = module.groups > 1
            inputs = _whole(fraction * module.in_channels) if grouped else module.in_channels
            groups = _whole(fraction * module.groups) if grouped else 1
            channels = inputs, _whole(fraction * module.out_channels)
            return _convolution_like(module, *channels, groups, module.bias is not None, like), grouped
        case _ if module is not None and is_transposed_linear(module):
            return type(module)(_whole(fraction * module.nf), module.nx).to(**like), False  # type: ignore[operator]
        case nn.Linear():
            outputs = _whole(fraction * module.out_features)
            return nn.Linear(module.in_features, outputs, module.bias is not None, **like), False
        case nn.Embedding():
            return nn.Embedding(module.num_embeddings, _whole(fraction * module.embedding_dim), **like), False
        case nn.BatchNorm1d() | nn.BatchNorm2d() | nn.BatchNorm3d():
            return type(module)(_whole(fraction * module.num_features), module.eps, **like), True
        case Attention():
            return Attention(_whole(fraction * module.heads), module.causal), True
        case Tokens() | Positions():
            places, width = module.positions.shape[-2:]
            places -= isinstance(module, Tokens)
            return type(module)(_whole(fraction * width), places).to(**like), True
    if geometry.mixes_channels or (module is not None and next(module.parameters(), None) is not None):
        raise _Indivisible
    return step.call, True


def _reading_call(step: TracedStep, fraction: Fraction) -> nn.Module:
    """The layer that reads a fraction of the channels."""
    module = step.module
    first = next(module.parameters(), None) if module is not None else None
    if module is None or first is None:
        raise _Indivisible
    like: dict[str, Any] = {"device": first.device, "dtype": first.dtype}
    match module:
        case nn.Linear():
            return nn.Linear(_whole(fraction * module.in_features), module.out_features, False, **like)
        case nn.Conv1d() | nn.Conv2d() | nn.Conv3d() if module.groups == 1:
            channels = _whole(fraction * module.in_channels), module.out_channels
            return _convolution_like(module, *channels, 1, False, like)
        case _ if is_transposed_linear(module):
            return type(module)(module.nf, _whole(fraction * module.nx)).to(**like)  # type: ignore[operator]
    raise _Indivisible


def _convolution_like(
    module: _ConvNd, inputs: int, outputs: int, groups: int, bias: bool, like: Mapping[str, Any]
) -> nn.Module:
    """A convolution of as many dimensions, with the same windows."""
    geometry = (module.kernel_size, module.stride, module.padding, module.dilation)
    return type(module)(inputs, outputs, *geometry, groups, bias, **like)  # type: ignore[arg-type]
