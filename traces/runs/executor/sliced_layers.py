"""Layers of which a shard makes some output channels, rows or columns: weight slices and padded windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from simulator.errors import InputError
from simulator.lowering.exchange.shard_regions import Interval, split
from simulator.workload import Layer
from traces.capture.fx_steps import TracedStep
from traces.runs.executor.parameter_boxes import Box, Extents, relative
from traces.zoo.blocks import Positions

Parameters = Mapping[str, Tensor]
Values = Mapping[fx.Node, Tensor]
Operator = Callable[[Parameters, Values], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """`own` of the output of `layer`, and `read` of the output of its (first) producer, of `extents` (C, H, W).

    It makes the terms of one part, of `reduce` parts of the input channels.
    """

    layer: Layer
    own: Box
    read: Box
    extents: tuple[int, int, int]
    part: int = 0
    reduce: int = 1

    @property
    def all_channels(self) -> bool:
        """Whether it makes every channel of the layer's output."""
        return self.own[1] == (0, self.layer.channels)

    @property
    def whole_plane(self) -> bool:
        """Whether it makes every row and column of them."""
        return all(x == (0, extent) for x, extent in zip(self.own[2:], self.layer.output_shape[1:], strict=True))

    @property
    def channels(self) -> slice:
        """The output channels that it makes."""
        return slice(*self.own[1])

    def groups(self, groups: int) -> Interval:
        """The groups of channels that the shard touches."""
        (first, last), channels = self.own[1], self.layer.channels
        return first * groups // channels, -(-last * groups // channels)

    def padding(self) -> list[int]:
        """What the window lacks at the plane's borders, as torch's pad wants it: left, right, top, bottom."""
        sides: list[int] = []
        geometry = self.layer.geometry
        for axis in (1, 0):
            kernel, stride, padding = ((geometry.kernel or (1, 1))[axis], geometry.stride[axis], geometry.padding[axis])
            (first, last), (low, high) = self.own[2 + axis], self.read[2 + axis]
            reach = geometry.dilation[axis] * (kernel - 1) + 1
            sides += [low - (first * stride - padding), (last - 1) * stride - padding + reach - high]
        return sides


def sliced_parameters(module: nn.Module | None, boxes: Mapping[str, Extents]) -> dict[str, Tensor]:
    """The elements of `boxes` of a module's parameters, by name, as leaves of their own unless they are all."""
    parameters: dict[str, Tensor] = {}
    for name, value in module.named_parameters() if module is not None else ():
        whole = tuple((0, extent) for extent in value.shape)
        parameters[name] = value
        if boxes[name] != whole:
            part = value.detach()[relative(boxes[name], whole)].clone()
            parameters[name] = part.requires_grad_(value.requires_grad)
    return parameters


def windowed(step: TracedStep, shard: Shard) -> Operator:
    """A convolution or pooling of some rows or columns, over a window that is padded explicitly.

    Raises InputError for layers of other kinds.
    """
    kind, geometry, module = shard.layer.kind, shard.layer.geometry, step.module
    node, padding = step.node.all_input_nodes[0], shard.padding()
    kernel, stride, dilation = geometry.kernel or (1, 1), geometry.stride, geometry.dilation

    def window(values: Values, border: float = 0.0) -> Tensor:
        return functional.pad(values[node], padding, value=border)

    if isinstance(module, nn.Conv2d) and module.padding_mode == "zeros":
        convolve = _convolution(module, shard, (0, 0))
        return lambda p, values: convolve(p, window(values))
    if kind in ("maxpool2d", "max_pool2d", "adaptivemaxpool2d", "adaptive_max_pool2d"):
        return lambda p, values: functional.max_pool2d(window(values, -math.inf), kernel, stride, 0, dilation)
    if kind in ("avgpool2d", "avg_pool2d", "adaptiveavgpool2d", "adaptive_avg_pool2d"):
        counts = _counts(step, shard)
        return lambda p, values: (
            functional.avg_pool2d(window(values), kernel, stride, divisor_override=1) / counts.to(values[node].dtype)
        )
    raise InputError(
        f"placements: layer {step.name!r} ({kind}) is split by height or width, which is known for zero-padded "
        "convolutions and for poolings; use degrees of 1 there"
    )


def of_channels(step: TracedStep, module: nn.Module, shard: Shard) -> Operator:
    """A layer with parameters, for some of its output channels and the whole plane. Raises InputError for others."""
    node = step.node.all_input_nodes[0]
    match module:
        case nn.Conv2d() if module.padding_mode == "zeros":
            convolve = _convolution(module, shard, module.padding)
            return lambda p, values: convolve(p, values[node])
        case nn.Linear():
            return lambda p, values: functional.linear(values[node], p["weight"], p.get("bias"))
        case nn.Embedding():
            return _embedding(module, shard, node)
        case Positions():
            return lambda p, values: values[node] + p["positions"][slice(*shard.own[2])]  # (positions, own channels)
        case nn.LayerNorm():
            return lambda p, values: _scaled(
                functional.layer_norm(values[node], module.normalized_shape, eps=module.eps)[..., shard.channels], p, -1
            )
        case nn.GroupNorm():
            return _group_norm(module, shard, node)
        case nn.modules.batchnorm._BatchNorm():
            return lambda p, values: _batch_norm(module, shard.channels, p, values[node])
    raise InputError(f"placements: layer {step.name!r} cannot be split by channel; use a channel degree of 1")


def adding_a_share(run: Operator, shard: Shard) -> Operator:
    """A layer split by reduce, whose part holds the bias of an equal part of its channels and adds that."""
    channels = shard.own[1][1] - shard.own[1][0]
    first, last = split(channels, shard.reduce)[shard.part]

    def with_share(parameters: Parameters, values: Values) -> Tensor:
        if "bias" in parameters:
            parameters = {**parameters, "bias": functional.pad(parameters["bias"], (first, channels - last))}
        return run(parameters, values)

    return with_share


def _embedding(module: nn.Embedding, shard: Shard, node: fx.Node) -> Operator:
    """The rows of words; a part of the vocabulary makes zeros of all words of others."""
    low, high = split(module.num_embeddings, shard.reduce)[shard.part]
    padding = module.padding_idx
    inside = None if padding is None or not low <= padding < high else padding - low

    def run(parameters: Parameters, values: Values) -> Tensor:
        words = values[node]
        if shard.reduce == 1:
            return functional.embedding(words, parameters["weight"], inside)
        own = (words >= low) & (words < high)  # (samples, positions)
        rows = functional.embedding((words - low) * own, parameters["weight"], inside)
        return rows * own.unsqueeze(-1)  # (samples, positions, channels)

    return run


def _counts(step: TracedStep, shard: Shard) -> Tensor:
    """By what an average pooling divides, for each of the shard's positions; shape (rows, columns)."""
    arguments = dict(zip(_AVERAGE_ARGUMENTS, step.node.args[1:], strict=False)) | dict(step.node.kwargs)

    def source(name: str, default: Any) -> Any:
        return arguments.get(name, default) if step.module is None else getattr(step.module, name, default)

    divisor = source("divisor_override", None)
    if divisor:
        return torch.tensor(float(divisor))
    geometry, sides = shard.layer.geometry, []
    for axis in (0, 1):
        kernel, stride, padding = (geometry.kernel or (1, 1))[axis], geometry.stride[axis], geometry.padding[axis]
        margin = padding if source("count_include_pad", True) else 0
        first = torch.arange(*shard.own[2 + axis]) * stride - padding
        last = (first + kernel).clamp(max=shard.extents[1 + axis] + margin)
        sides.append((last - first.clamp(min=-margin)).double())
    return torch.outer(*sides)  # (rows,) x (columns,) -> (rows, columns)


def _convolution(module: nn.Conv2d, shard: Shard, padding: Any) -> Callable[[Parameters, Tensor], Tensor]:
    """A convolution to the shard's channels; partial groups at either end run apart from the whole ones."""
    (low, high), groups = shard.groups(module.groups), module.groups
    wide, narrow = module.out_channels // groups, module.in_channels // groups
    first, last = shard.own[1]
    whole = max(first, -(-first // wide) * wide), min(last, last // wide * wide)
    edges = sorted({first, *(x for x in whole if first < x < last and groups > 1), last})
    settings = (module.stride, padding, module.dilation)

    def run(parameters: Parameters, window: Tensor) -> Tensor:
        weight, bias = parameters["weight"], parameters.get("bias")
        if len(edges) == 2:
            return functional.conv2d(window, weight, bias, *settings, high - low)
        parts = []
        for a, b in pairwise(edges):
            inner = (a // wide - low, -(-b // wide) - low)
            part = window[:, inner[0] * narrow : inner[1] * narrow]  # (samples, input channels of groups, h, w)
            rows = slice(a - first, b - first)  # of weight (own channels, input channels per group, kh, kw)
            shift = None if bias is None else bias[rows]
            parts.append(functional.conv2d(part, weight[rows], shift, *settings, inner[1] - inner[0]))
        return torch.cat(parts, 1)  # (samples, own channels, height, width)

    return run


def _group_norm(module: nn.GroupNorm, shard: Shard, node: fx.Node) -> Operator:
    low, high = shard.groups(module.num_groups)
    start, length = shard.own[1][0] - shard.read[1][0], shard.own[1][1] - shard.own[1][0]

    def run(parameters: Parameters, values: Values) -> Tensor:
        normed = functional.group_norm(values[node], high - low, eps=module.eps)
        return _scaled(normed.narrow(1, start, length), parameters, 1)

    return run


def _scaled(normed: Tensor, parameters: Parameters, axis: int) -> Tensor:
    """A normalised tensor by the weight and plus the bias of its channels, where there are any."""
    shape = [1] * normed.dim()
    shape[axis] = -1  # channels lie along `axis`, all else is broadcast
    if "weight" in parameters:
        normed = normed * parameters["weight"].view(shape)
    return normed + parameters["bias"].view(shape) if "bias" in parameters else normed


def _batch_norm(module: Any, channels: slice, parameters: Parameters, value: Tensor) -> Tensor:
    """Batch norm of some channels; in training with the statistics of what is here, as under DDP."""
    mean, variance = (None if x is None else x[channels] for x in (module.running_mean, module.running_var))
    training, momentum = module.training or mean is None, module.momentum or 0.0
    weight, bias = parameters.get("weight"), parameters.get("bias")
    return functional.batch_norm(value, mean, variance, weight, bias, training, momentum, module.eps)


_AVERAGE_ARGUMENTS = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")
