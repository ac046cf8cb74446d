"""Boxes of a layer's output and of its parameters, and which of them a shard holds.

Tensors between shards are canonical, (samples, channels, height, width), and every one has an origin: the coordinates
of its first element in the output of its layer for one micro-batch. Of parameters a shard holds its output channels and
its part of the input channels:

    linear, convolution    weight (channels, inputs, ...), bias (channels,)
    embedding              weight (inputs = vocabulary, channels)
    norms                  weight and bias (channels,)

A bias is added once: of a layer split by reduce each part holds, and adds, that of an equal part of its channels.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from simulator.errors import InputError
from simulator.lowering.exchange.exchange_pieces import Cell
from simulator.lowering.exchange.shard_regions import Interval, split
from traces.zoo.blocks import Positions

Coordinates = tuple[int, int, int, int]
"""(sample, channel, row, column) in the output of a layer for one micro-batch."""
Extents = tuple[Interval, ...]
"""A half-open interval along each axis of a parameter."""
_BY_CHANNEL = (
    *(nn.Conv2d, nn.Linear, nn.Embedding, nn.LayerNorm, nn.GroupNorm, nn.modules.batchnorm._BatchNorm),
    Positions,
)


class Box(NamedTuple):
    """Half-open intervals of a layer's output, along each axis."""

    samples: Interval
    channels: Interval
    rows: Interval
    columns: Interval

    @property
    def low(self) -> Coordinates:
        """Where it begins."""
        return self.samples[0], self.channels[0], self.rows[0], self.columns[0]

    @property
    def shape(self) -> Coordinates:
        """(samples, channels, height, width)."""
        a, b, c, d = (high - low for low, high in self)
        return a, b, c, d

    def of(self, tensor: Tensor, origin: Coordinates) -> Tensor:
        """This box of a tensor (samples, channels, height, width) that begins at `origin`; a view."""
        if self.low == origin and self.shape == tensor.shape:
            return tensor
        spans = zip(self, origin, strict=True)
        return tensor[tuple(slice(low - start, high - start) for (low, high), start in spans)]


def take(tensor: Tensor, origin: Coordinates, cell: Cell) -> Tensor:
    """The elements of `cell` of a tensor (samples, channels, height, width) that begins at `origin`: (elements,)."""
    return tensor[_index(cell, origin)].reshape(-1)  # (samples, channels, height, width) -> (elements,)


def put(tensor: Tensor, origin: Coordinates, cell: Cell, row: Tensor) -> None:
    """Overwrite these elements by a row (elements,)."""
    shape = [sum(high - low for low, high in intervals) for intervals in cell]
    tensor[_index(cell, origin)] = row.view(shape)  # (elements,) -> (samples, channels, height, width)


@lru_cache(maxsize=65536)
def _index(cell: Cell, origin: Coordinates) -> tuple[slice | Tensor, ...]:
    """Slices where the cell is a box; else one index along each axis that spans it with the others."""
    spans = [[(low - start, high - start) for low, high in part] for part, start in zip(cell, origin, strict=True)]
    if all(len(part) == 1 for part in spans):
        return tuple(slice(*part[0]) for part in spans)
    numbers = [torch.cat([torch.arange(low, high) for low, high in part]) for part in spans]
    return tuple(
        numbers[axis].view([-1 if axis == other else 1 for other in range(4)])  # (n, 1, 1, 1), (1, n, 1, 1), ...
        for axis in range(4)
    )


def parameter_boxes(
    layer: str, module: nn.Module, channels: Interval, of: int, part: int = 0, reduce: int = 1
) -> dict[str, Extents]:
    """By name, what a shard holds that makes `channels` (of `of`) out of one part of the inputs, of `reduce` parts.

    Raises InputError for a layer whose parameters do not belong to channels, or are no sum over inputs.
    """
    boxes = {}
    for name, value in module.named_parameters():
        box = [(0, extent) for extent in value.shape]
        if channels != (0, of):
            _require_by_channel(layer, module)
            box[channel_axis(module)] = channels
        if reduce > 1:
            _require_summing(layer, module)
            axis = input_axis(module) if value.dim() > 1 else 0
            low, high = (0, value.shape[axis]) if value.dim() > 1 else box[0]
            first, last = split(high - low, reduce)[part]
            box[axis] = low + first, low + last
        boxes[name] = tuple(box)
    return boxes


def cell_boxes(module: nn.Module, channels: Interval, inputs: Interval, whole_inputs: bool) -> dict[str, Extents]:
    """By name, the elements of some output channels x input channels, as tied layers cut them.

    Raises InputError where a bias would be cut by inputs.
    """
    boxes = {}
    for name, value in module.named_parameters():
        box = [(0, extent) for extent in value.shape]
        if value.dim() > 1:
            box[input_axis(module)] = inputs
        elif not whole_inputs:
            raise InputError(f"parameter {name!r} of a tied layer is split by reduce; leave the bias out")
        box[channel_axis(module) if value.dim() > 1 else 0] = channels
        boxes[name] = tuple(box)
    return boxes


def channel_axis(module: nn.Module) -> int:
    """The axis of a parameter along which output channels lie."""
    return 1 if isinstance(module, (nn.Embedding, Positions)) else 0


def input_axis(module: nn.Module) -> int:
    """The axis of a weight along which input channels lie."""
    return 0 if isinstance(module, nn.Embedding) else 1


def relative(box: Extents, to: Extents) -> tuple[slice, ...]:
    """`box` in a tensor that holds `to`."""
    return tuple(slice(low - first, high - first) for (low, high), (first, _) in zip(box, to, strict=True))


def is_inside(box: Extents, of: Extents) -> bool:
    """Whether the other holds all of a box, of an output or of a parameter."""
    return all(first <= low and high <= last for (low, high), (first, last) in zip(box, of, strict=True))


def _require_by_channel(layer: str, module: nn.Module) -> None:
    if not isinstance(module, _BY_CHANNEL):
        raise InputError(
            f"placements: layer {layer!r} is split by channel, but the parameters of a {type(module).__name__} "
            "are not known to belong to channels; use a channel degree of 1"
        )


def _require_summing(layer: str, module: nn.Module) -> None:
    plain = isinstance(module, (nn.Linear, nn.Embedding)) or (isinstance(module, nn.Conv2d) and module.groups == 1)
    if not plain or (isinstance(module, nn.Conv2d) and module.padding_mode != "zeros"):
        raise InputError(
            f"placements: layer {layer!r} is split by reduce, which is known for linear layers, embeddings and "
            "zero-padded convolutions of one group; use a reduce degree of 1"
        )
