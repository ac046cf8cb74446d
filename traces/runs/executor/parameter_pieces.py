"""Parameter pieces as rows of numbers: their values on this device, and the gradients that its shards computed.

A piece is what `simulator.lowering.parameters.replicas` sums as one. Its row holds its parameters one after the other,
each flattened. A device may hold a piece in several tensors, where tied layers are cut differently; all are written
alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from torch import Tensor

from simulator.lowering.parameters.replicas import Replicas
from traces.runs.executor.parameter_boxes import Extents, cell_boxes, input_axis, is_inside, relative
from traces.runs.executor.rank_shards import Shards
from traces.runs.executor.run_setup import Script


@dataclass(frozen=True, slots=True)
class HeldPart:
    """A part of one parameter of a piece: its box, and where it is on this device."""

    name: str
    box: Extents
    tensors: tuple[tuple[Tensor, tuple[slice, ...]], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(high - low for low, high in self.box)

    @property
    def elements(self) -> int:
        return prod(self.shape)


class ParameterPieces:
    """The pieces of device `rank`."""

    def __init__(self, script: Script, rank: int, shards: Shards) -> None:
        self._script, self._rank, self._shards = script, rank, shards
        sizes = [len(devices) for devices in script.sharded.devices]
        self._first = np.cumsum([0, *sizes])  # (layers + 1,)
        self._parts: dict[Replicas, list[HeldPart]] = {}

    def elements(self, pieces: Sequence[Replicas]) -> int:
        """How many numbers their row has."""
        return sum(part.elements for piece in pieces for part in self.parts(piece))

    def values(self, pieces: Sequence[Replicas]) -> Tensor:
        """Their values, (elements,); as drawn where this device has none."""
        rows = [self._values(piece, part).reshape(-1) for piece in pieces for part in self.parts(piece)]
        return torch.cat(rows)  # (elements,)

    def write(self, pieces: Sequence[Replicas], row: Tensor, first: int = 0) -> None:
        """Overwrite elements `first` to `first` + len(row) of their row on this device."""
        begin, last = 0, first + len(row)
        for piece in pieces:
            for part in self.parts(piece):
                low, high = max(first, begin), min(last, begin + part.elements)
                if low < high:
                    _write(part, row[low - first : high - first], low - begin)
                begin += part.elements

    def gradients(self, pieces: Sequence[Replicas], number: int) -> Tensor:
        """What this device's shards add to the gradients of sum `number` of the step, (elements,).

        Terms that all devices have themselves are added by one of those that take part in the sum, if any needs it.
        """
        rows = []
        for piece in pieces:
            carrier = min({*piece.holders} & {*piece.devices}, default=-1)
            shards = piece.shards if carrier == self._rank else [s for s in piece.shards if s not in piece.at_home]
            rows += [self._gradient(piece, part, number, shards).reshape(-1) for part in self.parts(piece)]
        return torch.cat(rows)  # (elements,)

    def gradients_at_home(self, pieces: Sequence[Replicas], number: int) -> Tensor | None:
        """What every device adds to a sum itself, (elements,), None where that is nothing."""
        if all({*piece.holders} & {*piece.devices} or not piece.at_home for piece in pieces):
            return None
        rows = [
            self._gradient(piece, part, number, [] if {*piece.holders} & {*piece.devices} else piece.at_home)
            for piece in pieces
            for part in self.parts(piece)
        ]
        return torch.cat([row.reshape(-1) for row in rows])  # (elements,)

    def let_be_gradients(self, pieces: Sequence[Replicas], row: Tensor) -> None:
        """Let a row (elements,) be what torch's optimizer takes for their gradients."""
        parts = [part for piece in pieces for part in self.parts(piece)]
        for part, gradient in zip(parts, torch.split(row, [part.elements for part in parts]), strict=True):
            _let_be_gradient(part, gradient.view(part.shape))  # (elements,) -> the parameter's shape

    def let_own_be_gradients(self, piece: Replicas) -> None:
        """The same, of what this device's shards alone have computed in the step."""
        for part in self.parts(piece):
            _let_be_gradient(part, self._gradient(piece, part, 0, piece.shards))

    def tensors(self, pieces: Sequence[Replicas]) -> list[Tensor]:
        """The tensors in which this device holds them, each once."""
        held = [tensor for piece in pieces for part in self.parts(piece) for tensor, _ in part.tensors]
        return list({id(tensor): tensor for tensor in held}.values())

    def parts(self, piece: Replicas) -> list[HeldPart]:
        """The trained parameters of a piece, in the order of its row."""
        if piece not in self._parts:
            boxes = self._boxes(piece)
            self._parts[piece] = [HeldPart(name, box, self._held(piece, name, box)) for name, box in boxes.items()]
        return self._parts[piece]

    def _boxes(self, piece: Replicas) -> dict[str, Extents]:
        module = self._shards.step(piece.layer).module
        if module is None:
            return {}
        boxes = self._shards.boxes((piece.layer, piece.slot, piece.reduce_slot))
        if piece.cell is not None:
            channels, inputs = piece.cell
            widest = max((value for value in module.parameters()), key=lambda value: value.dim())
            whole = inputs == (0, widest.shape[input_axis(module)]) if widest.dim() > 1 else True
            boxes = cell_boxes(module, channels, inputs, whole)
        return {
            name: boxes[name]
            for name, value in module.named_parameters()
            if value.requires_grad and self._shards.owner(piece.layer, name) == (piece.layer, name)
        }

    def _held(self, piece: Replicas, name: str, box: Extents) -> tuple[tuple[Tensor, tuple[slice, ...]], ...]:
        held: dict[int, tuple[Tensor, tuple[slice, ...]]] = {}
        for slot, parameters in self._shards.parameters.items():
            boxes = self._shards.boxes(slot)
            for its_name, tensor in parameters.items():
                if self._shards.owner(slot[0], its_name) == (piece.layer, name) and is_inside(box, boxes[its_name]):
                    held[id(tensor)] = tensor, relative(box, boxes[its_name])
        return tuple(held.values())

    def _values(self, piece: Replicas, part: HeldPart) -> Tensor:
        if part.tensors:
            tensor, index = part.tensors[0]
            return tensor.detach()[index]
        slot = (piece.layer, piece.slot, piece.reduce_slot)
        return self._shards.slot(slot)[part.name].detach()[relative(part.box, self._shards.boxes(slot)[part.name])]

    def _gradient(self, piece: Replicas, part: HeldPart, number: int, shards: Sequence[int]) -> Tensor:
        """What some of a piece's shards, if they are here, add to the gradient of one of its parameters."""
        terms = []
        for position in shards:
            layer = int(np.searchsorted(self._first, position, side="right")) - 1
            gradients = self._shards.gradients.get((layer, int(position - self._first[layer]), number), {})
            for name, gradient in gradients.items():
                if self._shards.owner(layer, name) == (piece.layer, part.name):
                    slot = self._shards.slot_of(layer, int(position - self._first[layer]))
                    terms.append(gradient[relative(part.box, self._shards.boxes(slot)[name])])
        if not terms:
            return torch.zeros(part.shape, dtype=getattr(torch, self._script.dtype))
        return terms[0] + sum(terms[1:]) if len(terms) > 1 else terms[0]


def _let_be_gradient(part: HeldPart, gradient: Tensor) -> None:
    for tensor, index in part.tensors:
        if tensor.shape == gradient.shape:
            tensor.grad = gradient
            continue
        tensor.grad = torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
        tensor.grad[index] = gradient


def _write(part: HeldPart, row: Tensor, first: int) -> None:
    """Overwrite elements `first` to `first` + len(row) of a part, flattened, wherever it is held.

    Autograd does not count this as a change: what it saved of a parameter is its gathered value.
    """
    for tensor, index in part.tensors:
        if len(row) == part.elements:
            tensor.data[index] = row.view(part.shape)  # (elements,) -> the parameter's shape
            continue
        values = tensor.data[index].reshape(-1)  # (elements,)
        values[first : first + len(row)] = row
        tensor.data[index] = values.view(part.shape)  # (elements,) -> the parameter's shape
