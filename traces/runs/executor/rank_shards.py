"""The shards of one rank: their parameters, their forward and backward passes, what they send and receive.

Forward assembles a shard's inputs out of its producers' outputs, detached from autograd, and keeps the operator's
autograd graph. Backward sums the gradients of the output that its readers computed, here and on other devices, and
passes the gradients of the inputs to their producers. No clock, thread or network is used here. Tensors between
shards are canonical, (samples, channels, height, width); messages are rows of shape (elements,).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, fx

from simulator.lowering.shard_regions import split
from traces.capture.fx_steps import Loss, TracedStep
from traces.runs.executor.run_setup import DATA, Script
from traces.runs.executor.shard_inputs import Coordinates, Parcel, Region, added, assembled, coordinates, parcels
from traces.runs.executor.shard_operators import cut_to_own, loss_share, operator, to_canonical, to_native
from traces.runs.executor.sliced_layers import Box, Operator, Shard, sliced_parameters


class Output(NamedTuple):
    """A shard's output in one micro-batch."""

    layer: int
    microbatch: int
    shard: int


@dataclass(frozen=True, slots=True)
class _Input:
    """What a shard reads of one producer, -1 for the training data.

    parts: (producer's shard, region of it), of which the read region is made; none of the training data.
    """

    node: fx.Node
    producer: int
    region: Region
    parts: tuple[tuple[int, Region], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """How a shard is computed: its operator, what that makes (region) and reads, and the slot of its parameters."""

    step: TracedStep
    run: Operator
    shard: Shard
    region: Region
    slot: int
    inputs: tuple[_Input, ...]


@dataclass(frozen=True, slots=True)
class _Tape:
    """What backward needs of a forward pass: the result and the detached inputs, joined by autograd's graph."""

    result: Tensor
    leaves: list[tuple[_Input, Tensor]]


class Shards:
    """What device `rank` holds and computes in a run.

    parameters: by (layer, channel slot), then by name. parcels: by (layer, producing shard, reading device). loss: of
    this rank's shards in the present step. Raises InputError for a layer that cannot be split so.
    """

    def __init__(self, script: Script, rank: int) -> None:
        self._script = script
        self._steps = script.build()
        self._size = script.plan.microbatch_size
        self._needs = script.needs_gradient
        self.parameters: dict[tuple[int, int], Mapping[str, Tensor]] = {}
        self.parcels: dict[tuple[int, int, int], Parcel] = {}
        self._parts: dict[tuple[int, int], _Part] = {}
        self._uses: Counter[tuple[int, int]] = Counter()
        sources: _Sources = defaultdict(list)
        for position in range(len(script.profile.layers)):
            self._find_reads(position, rank, sources)
        for position, layer in enumerate(script.profile.layers):
            devices = script.plan.placements[layer.name].devices
            for number in np.flatnonzero(np.array(devices) == rank).tolist():
                self._parts[position, number] = self._part(position, number, sources)
        self.loss = 0.0
        self.begin(torch.empty(0), torch.empty(0))

    def begin(self, data: Tensor, targets: Tensor) -> None:
        """Start a step over a batch: data (samples, *input shape) and the classes to predict, (samples, ...)."""
        self._data, self._targets = data, targets
        self._held: dict[Output, tuple[Tensor, Coordinates]] = {}
        self._left: Counter[Output] = Counter()
        self._tapes: dict[Output, _Tape] = {}
        self._kept_gradients: dict[Output, tuple[Tensor, Tensor]] = {}
        self._reader_gradients: dict[Output, list[tuple[tuple[int, int], Region, Tensor]]] = defaultdict(list)
        self.loss = 0.0

    def slot(self, position: int, slot: int) -> Mapping[str, Tensor]:
        """The parameters of a layer's channel slot, by name, (own channels, ...); as drawn where no shard uses them."""
        if (position, slot) in self.parameters:
            return self.parameters[position, slot]
        layer = self._script.profile.layers[position]
        interval = split(layer.channels, self._script.plan.placements[layer.name].degrees[1])[slot]
        return sliced_parameters(self._steps.by_name[layer.name], interval, layer.channels)

    def forward(self, layer: int, microbatch: int, shard: int) -> None:
        """Compute a shard from what it reads."""
        part = self._parts[layer, shard]
        leaves = [(wanted, self._leaf(wanted, microbatch)) for wanted in part.inputs]
        values = {wanted.node: self._native(wanted, leaf) for wanted, leaf in leaves}
        result = self._result(part, values, layer, microbatch)
        output = Output(layer, microbatch, shard)
        self._tapes[output] = _Tape(result, [(wanted, leaf) for wanted, leaf in leaves if leaf.requires_grad])
        self._hold(output, result.detach(), part.region.low)
        for wanted in part.inputs:
            self._release(wanted, microbatch)

    def backward(self, layer: int, microbatch: int, shard: int) -> None:
        """Differentiate a shard: gradients go to what it read and, unless those are a task apart, its parameters."""
        part, output = self._parts[layer, shard], Output(layer, microbatch, shard)
        tape = self._tapes.pop(output)
        output_gradient = self._output_gradient(output, part, tape.result)
        apart = layer in self._script.weights_apart
        parameters = [] if apart else self._trained(layer, part)
        if tape.result.requires_grad and (tape.leaves or parameters):
            targets = [*(leaf for _, leaf in tape.leaves), *parameters]
            gradients = torch.autograd.grad(
                tape.result, targets, output_gradient, retain_graph=apart, allow_unused=True
            )
            for (wanted, _), gradient in zip(tape.leaves, gradients, strict=False):
                if gradient is not None:
                    self._pass_on(wanted, microbatch, (layer, shard), gradient)
            _accumulate(parameters, gradients[len(tape.leaves) :])
        if apart:
            self._kept_gradients[output] = tape.result, output_gradient

    def weight(self, layer: int, microbatch: int, shard: int) -> None:
        """The gradients of the parameters, if any, of a shard whose backward pass has run."""
        parameters = self._trained(layer, self._parts[layer, shard])
        result, output_gradient = self._kept_gradients.pop(Output(layer, microbatch, shard))
        if parameters:
            _accumulate(parameters, torch.autograd.grad(result, parameters, output_gradient, allow_unused=True))

    def activation(self, output: Output, device: int) -> Tensor:
        """The elements of a shard's output that `device` reads, of shape (elements,)."""
        return self.parcels[output.layer, output.shard, device].packed(*self._held[output])

    def receive_activation(self, output: Output, device: int, row: Tensor) -> None:
        """Keep the received part, of shape (elements,), of another device's shard."""
        parcel = self.parcels[output.layer, output.shard, device]
        self._hold(output, parcel.unpacked(row), parcel.region.low)

    def gradient(self, output: Output, device: int, like: Tensor) -> Tensor:
        """The summed gradient of what `device`, this one, read of another device's shard; of shape (elements,)."""
        parcel = self.parcels[output.layer, output.shard, device]
        return parcel.packed(self._sum(output, parcel.region, like), parcel.region.low)

    def receive_gradient(self, output: Output, device: int, row: Tensor) -> None:
        """Add the gradient, of shape (elements,), that a reading device sent."""
        parcel = self.parcels[output.layer, output.shard, device]
        self._reader_gradients[output].append(((-1, device), parcel.region, parcel.unpacked(row)))

    def _trained(self, layer: int, part: _Part) -> list[Tensor]:
        return [p for p in self.parameters[layer, part.slot].values() if p.requires_grad]

    def _leaf(self, wanted: _Input, microbatch: int) -> Tensor:
        if wanted.producer < 0:
            start = microbatch * self._size
            rows = self._data[start + wanted.region.low[0] : start + wanted.region.high[0]]
            return wanted.region.of(self._shaped(rows), (wanted.region.low[0], 0, 0, 0))
        parts = [(region, *self._held[Output(wanted.producer, microbatch, shard)]) for shard, region in wanted.parts]
        return assembled(wanted.region, parts).detach().requires_grad_(self._needs[wanted.producer])

    def _shaped(self, rows: Tensor) -> Tensor:
        """Training data in canonical form; tokens have one channel."""
        if self._script.network.vocabulary is None:
            return to_canonical(rows)
        return rows[:, None, :, None]  # (samples, positions) -> (samples, 1, positions, 1)

    def _native(self, wanted: _Input, leaf: Tensor) -> Tensor:
        if wanted.producer >= 0:
            return to_native(leaf, self._steps.dimensions[self._script.profile.layers[wanted.producer].name])
        if self._script.network.vocabulary is not None:
            return leaf[:, 0, :, 0]  # (samples, positions)
        return to_native(leaf, len(self._script.network.input_shape) + 1)

    def _result(self, part: _Part, values: Mapping[fx.Node, Tensor], layer: int, microbatch: int) -> Tensor:
        if not isinstance(part.step.module, Loss):
            result = to_canonical(part.run(self.parameters[layer, part.slot], values))
            return cut_to_own(result, part.shard)
        first, last = (microbatch * self._size + x for x in part.shard.own[0])
        (scores,) = values.values()
        share = loss_share(scores, self._targets[first:last], self._targets.numel())
        self.loss += float(share.detach())
        return share.reshape(1, 1, 1, 1)  # the loss in canonical form

    def _hold(self, output: Output, tensor: Tensor, origin: Coordinates) -> None:
        uses = self._uses[output.layer, output.shard]
        if uses:
            self._held[output], self._left[output] = (tensor, origin), uses

    def _release(self, wanted: _Input, microbatch: int) -> None:
        """Count one use less of all that an input was assembled from."""
        for shard, _ in wanted.parts:
            self.release(Output(wanted.producer, microbatch, shard))

    def release(self, output: Output) -> None:
        """Count one use less of an output, by a reader here or a device it was sent to; free it after the last."""
        self._left[output] -= 1
        if not self._left[output]:
            del self._held[output]

    def _output_gradient(self, output: Output, part: _Part, result: Tensor) -> Tensor:
        """The gradient of a shard's output; the loss's own is 1."""
        if isinstance(part.step.module, Loss):
            return torch.ones_like(result)
        return self._sum(output, part.region, result)

    def _sum(self, output: Output, region: Region, like: Tensor) -> Tensor:
        """The readers' gradients of an output, added in an order that does not depend on which came first."""
        entries = sorted(self._reader_gradients.pop(output, []), key=lambda entry: (entry[0], entry[1].low))
        return added(region, [(part, tensor) for _, part, tensor in entries], like.detach())

    def _pass_on(self, wanted: _Input, microbatch: int, reader: tuple[int, int], gradient: Tensor) -> None:
        for shard, region in wanted.parts:
            piece = region.of(gradient, wanted.region.low)
            self._reader_gradients[Output(wanted.producer, microbatch, shard)].append((reader, region, piece))

    def _find_reads(self, position: int, rank: int, sources: _Sources) -> None:
        """Note what this rank reads of a layer and sends of it."""
        reads, source, target = self._script.reads_of(position)
        for entry in np.flatnonzero(target == rank).tolist():
            region = Region(coordinates(reads.low[entry]), coordinates(reads.high[entry]))
            producer = int(reads.producer[entry])
            sources[position, int(reads.consumer[entry]), int(reads.shard[entry])].append((producer, region))
            self._uses[position, producer] += 1
        for shard, device, parcel in parcels(reads, source, target, rank):
            self.parcels[position, shard, device] = parcel
            if device != rank:
                self._uses[position, shard] += 1

    def _part(self, position: int, number: int, sources: _Sources) -> _Part:
        script = self._script
        layer = script.profile.layers[position]
        step = self._steps.by_name[layer.name]
        at = np.unravel_index(number, script.plan.placements[layer.name].degrees)
        own = _box(script.own(position), at)
        slot = int(at[1])
        self.parameters[position, slot] = self.slot(position, slot)
        names = [DATA, *layer.inputs] if self._steps.placeholder in step.node.all_input_nodes else layer.inputs
        boxes = {name: _box(script.read(position, name), at) for name in names}
        inputs = tuple(self._input(name, box, position, number, sources) for name, box in boxes.items())
        first = next(iter(boxes))
        shard = Shard(layer=layer, own=own, read=boxes[first], extents=script.producer(first).output_shape)
        joined = {wanted.node: boxes[name][1] for name, wanted in zip(boxes, inputs, strict=True)}
        return _Part(
            step=step,
            run=operator(step, shard, joined),
            shard=shard,
            region=_region(own),
            slot=slot,
            inputs=tuple(wanted for wanted in inputs if wanted.producer < 0 or wanted.parts),
        )

    def _input(self, name: str, box: Box, position: int, number: int, sources: _Sources) -> _Input:
        if name == DATA:
            return _Input(self._steps.placeholder, -1, _region(box), ())
        producer = self._script.profile.index[name]
        parts = tuple(sources[producer, position, number])
        return _Input(self._steps.by_name[name].node, producer, _region(box), parts)


def _accumulate(parameters: list[Tensor], gradients: Sequence[Tensor | None]) -> None:
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is not None:
            parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)


_Sources = defaultdict[tuple[int, int, int], list[tuple[int, Region]]]
"""By (producer, reader, the reader's shard): the producer's shards and what is read of them."""


def _box(intervals: list[list[tuple[int, int]]], at: tuple[np.intp, ...]) -> Box:
    samples, channels, rows, columns = (axis[int(i)] for axis, i in zip(intervals, at, strict=True))
    return samples, channels, rows, columns


def _region(box: Box) -> Region:
    (a, b), (c, d), (e, f), (g, h) = box
    return Region((a, c, e, g), (b, d, f, h))
