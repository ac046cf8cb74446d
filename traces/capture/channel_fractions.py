"""A layer with a fraction of its output channels, as a device that holds a channel shard would run it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, fx, nn

from simulator.workload import Geometry
from traces.capture.fx_steps import TracedStep, Value, channel_axis, ready
from traces.zoo.blocks import Attention, Positions, Tokens


def narrow(
    step: TracedStep, geometry: Geometry, environment: Mapping[fx.Node, Any], fraction: Fraction, output: Any
) -> Narrowed | None:
    """The step with `fraction` of its output channels; None where channels do not divide or the layer has no such form.

    The new layer is run once on the step's arguments to see that it yields that fraction of `output`.
    """
    if not isinstance(output, Tensor) or output.dim() < 2:
        return None
    try:
        call, slices = _narrow_call(step, geometry, fraction)
        narrowed = Narrowed(step=dataclasses.replace(step, call=call), fraction=fraction, slices=slices)
        arguments = ready(narrowed.step, environment, narrowed.value)
        result = narrowed.step.call(*arguments.args, **arguments.kwargs)
    except (_Indivisible, RuntimeError, ValueError, TypeError, IndexError):
        return None
    axis = channel_axis(output)
    expected = (*output.shape[:axis], output.shape[axis] * fraction, *output.shape[axis + 1 :])
    return narrowed if tuple(result.shape) == expected else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowed:
    """A step that makes a fraction of the channels; slices: whether it also reads only that fraction."""

    step: TracedStep
    fraction: Fraction
    slices: bool

    def value(self, value: Value) -> Value:
        """What it reads of one of the full step's inputs: all of it, or the same fraction of its channels."""
        return dataclasses.replace(value, tensor=self.gradient(value.tensor)) if self.slices else value

    def gradient(self, tensor: Tensor) -> Tensor:
        """The first channels of a tensor, (samples, part of the channels, ...), in memory of their own.

        A tensor of one channel is broadcast, so stays.
        """
        axis = channel_axis(tensor)
        if tensor.dim() <= axis or tensor.shape[axis] == 1:
            return tensor.clone()
        part = tensor.narrow(axis, 0, _part(tensor.shape[axis], self.fraction))
        return part.clone(memory_format=torch.contiguous_format)


class _Indivisible(Exception):
    """The channels do not divide."""


def _part(channels: int, fraction: Fraction) -> int:
    part = channels * fraction
    if part.denominator != 1 or part < 1:
        raise _Indivisible
    return int(part)


def _narrow_call(step: TracedStep, geometry: Geometry, fraction: Fraction) -> tuple[Any, bool]:
    """The narrow layer, and whether its inputs are sliced as well."""
    module = step.module
    like: dict[str, Any] = {}  # device and type of the full layer's parameters
    if module is not None and (first := next(module.parameters(), None)) is not None:
        like = {"device": first.device, "dtype": first.dtype}
    match module:
        case nn.Conv2d():
            return _narrow_convolution(module, fraction, like)
        case nn.Linear():
            outputs = _part(module.out_features, fraction)
            return nn.Linear(module.in_features, outputs, module.bias is not None, **like), False
        case nn.Embedding():
            return nn.Embedding(module.num_embeddings, _part(module.embedding_dim, fraction), **like), False
        case nn.BatchNorm2d():
            return nn.BatchNorm2d(_part(module.num_features, fraction), module.eps, **like), True
        case Attention():
            return Attention(_part(module.heads, fraction), module.causal), True
        case Tokens() | Positions():
            places, width = module.positions.shape[-2:]
            places -= isinstance(module, Tokens)
            return type(module)(_part(width, fraction), places).to(**like), True
    if geometry.mixes_channels or (module is not None and next(module.parameters(), None) is not None):
        raise _Indivisible
    return step.call, True


def _narrow_convolution(module: nn.Conv2d, fraction: Fraction, like: Mapping[str, Any]) -> tuple[nn.Module, bool]:
    grouped = module.groups > 1
    narrow = nn.Conv2d(
        _part(module.in_channels, fraction) if grouped else module.in_channels,
        _part(module.out_channels, fraction),
        module.kernel_size,  # type: ignore[arg-type]
        module.stride,  # type: ignore[arg-type]
        module.padding,  # type: ignore[arg-type]
        module.dilation,  # type: ignore[arg-type]
        _part(module.groups, fraction) if grouped else 1,
        module.bias is not None,
        **like,
    )
    return narrow, grouped
