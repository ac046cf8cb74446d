"""The shards of one rank: their parameters, their forward and backward passes, what they send and receive.

Forward reads a shard's inputs out of its producers' tensors, detached from autograd, and keeps the operator's autograd
graph; what is recomputed keeps none until it runs again. Backward reads the gradient of the output, which its readers
computed here and on other devices, and leaves gradients of the inputs as terms for their producers. No clock, thread or
network is used here. Tensors between shards are canonical, (samples, channels, height, width).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from traces.capture.fx_steps import Loss, TracedStep
from traces.runs.executor.edge_moves import Phase
from traces.runs.executor.parameter_boxes import Extents
from traces.runs.executor.run_setup import Script
from traces.runs.executor.shard_operators import (
    ShardInput,
    ShardPart,
    Slot,
    cut_to_own,
    loss_share,
    shard_part,
    slot_boxes,
    to_canonical,
    to_native,
)
from traces.runs.executor.sliced_layers import sliced_parameters
from traces.runs.executor.tensor_flow import HeldTensor, TensorFlow
from traces.runs.executor.weight_versions import WeightVersions, versions_on


class Output(NamedTuple):
    """A shard's output in one micro-batch."""

    layer: int
    microbatch: int
    shard: int


@dataclass(frozen=True, slots=True)
class _Tape:
    """What backward needs of a forward pass: the result and the detached inputs, joined by autograd's graph."""

    result: Tensor
    leaves: list[tuple[ShardInput, Tensor]]


class Shards:
    """What device `rank` holds and computes in a run.

    parameters: by slot, then by name. versions: of these, where weights are stashed, else None. gradients: of these by
    (layer, shard, number of the sum in the step). loss: of this rank's shards in the present step. Raises InputError
    for a layer that cannot be split so.
    """

    def __init__(self, script: Script, rank: int) -> None:
        self._script, self._rank, self._model = script, rank, script.sharded
        self._steps = script.build()
        self._dtype = getattr(torch, script.dtype)
        self._size = script.plan.microbatch_size
        self._needs = script.needs_gradient
        self.parameters: dict[Slot, Mapping[str, Tensor]] = {}
        self._wanted = {key: edge.wanted(rank) for key, edge in script.edges.items()}
        self._parts = {
            (position, number): shard_part(script, self._steps, self._wanted, position, number)
            for position, devices in enumerate(self._model.devices)
            for number in np.flatnonzero(devices == rank).tolist()
        }
        for part in self._parts.values():
            self.parameters.setdefault(part.slot, self.slot(part.slot))
        self._uses = Counter(self._counted_uses())
        held = {id(tensor): tensor for slot in self.parameters.values() for tensor in slot.values()}
        stashes = self._model.schedule.stashes_weights and rank in self._model.local_update_s
        self.versions = WeightVersions(list(held.values()), versions_on(self._model, rank)) if stashes else None
        self.loss = 0.0
        self.begin(torch.empty(0), torch.empty(0))

    def begin(self, data: Tensor, targets: Tensor) -> None:
        """Start a step over a batch: data (samples, *input shape) and the classes to predict, (samples, ...)."""
        self._data, self._targets = data, targets
        if self.versions:
            self.versions.begin()
        self._flows: dict[tuple[int, int, Phase], TensorFlow] = {}
        self._left: Counter[tuple[int, int, Phase]] = Counter()
        self._tapes: dict[Output, _Tape] = {}
        self._kept_gradients: dict[Output, tuple[Tensor, Tensor]] = {}
        self.gradients: dict[tuple[int, int, int], dict[str, Tensor]] = {}
        self.loss = 0.0

    def flow(self, layer: int, microbatch: int, phase: Phase) -> TensorFlow:
        """What this device has of a layer's output or of its gradient."""
        key = layer, microbatch, phase
        return self._flows.get(key) or self._flows.setdefault(key, TensorFlow(self._rank, self._dtype))

    def release(self, layer: int, microbatch: int, phase: Phase) -> None:
        """Count one use less of a tensor, by a shard here or a transfer that has been sent; free it after the last."""
        key = layer, microbatch, phase
        self._left[key] += 1
        if self._left[key] == self._uses[layer, phase]:
            self._flows.pop(key, None)

    def slot(self, slot: Slot) -> Mapping[str, Tensor]:
        """The parameters of a slot by name; as drawn where no shard here uses them."""
        if slot in self.parameters:
            return self.parameters[slot]
        return sliced_parameters(self.step(slot[0]).module, self.boxes(slot))

    def boxes(self, slot: Slot) -> dict[str, Extents]:
        """By name, the elements of a layer's parameters that a slot holds."""
        return slot_boxes(self._script, self._steps, slot)

    def step(self, position: int) -> TracedStep:
        """The traced step of a layer."""
        return self._steps.by_name[self._script.profile.layers[position].name]

    def owner(self, position: int, name: str) -> tuple[int, str]:
        """The first user of a parameter, mostly the layer itself, and the parameter's name there."""
        layer = self._script.profile.layers[position].name
        first, its_name = self._steps.shared_with.get((layer, name), (layer, name))
        return self._script.profile.index[first], its_name

    def slot_of(self, layer: int, shard: int) -> Slot:
        """Where a shard's parameters are."""
        return self._parts[layer, shard].slot

    def forward(self, layer: int, microbatch: int, shard: int, again: bool = False) -> None:
        """Compute a shard from what it reads; of one that is recomputed later, only its output is kept.

        again: whether that is now, for its backward pass.
        """
        part, kept = self._with_weights(layer, microbatch, shard), again or layer not in self._model.segment_of
        leaves = [(wanted, self._leaf(part, wanted, microbatch, again)) for wanted in part.inputs]
        with torch.set_grad_enabled(kept):
            result = self._result(part, leaves, microbatch)
        if isinstance(part.step.module, Loss) and part.copy == 0 and not again:
            self.loss += float(result.detach())
        output = Output(layer, microbatch, shard)
        if kept:
            self._tapes[output] = _Tape(result, [(wanted, leaf) for wanted, leaf in leaves if leaf.requires_grad])
        self._hold(output, result, part, Phase.AGAIN if again else Phase.FORWARD)
        for wanted in part.inputs:
            if wanted.producer >= 0:
                self.release(wanted.producer, microbatch, self._phase(part, wanted, again))

    def backward(self, layer: int, microbatch: int, shard: int) -> None:
        """Differentiate a shard: gradients go to what it read and, unless those are a task apart, its parameters."""
        part, output = self._with_weights(layer, microbatch, shard), Output(layer, microbatch, shard)
        tape = self._tapes.pop(output)
        if isinstance(part.step.module, Loss):
            output_gradient = torch.ones_like(tape.result)
        else:
            output_gradient = self.flow(layer, microbatch, Phase.BACKWARD).read(part.wanted, part.shard.own)
        self.release(layer, microbatch, Phase.BACKWARD)
        apart = layer in self._script.weights_apart
        parameters = {} if apart else self._trained(part)
        if tape.result.requires_grad and (tape.leaves or parameters):
            targets = [*(leaf for _, leaf in tape.leaves), *parameters.values()]
            gradients = torch.autograd.grad(
                tape.result, targets, output_gradient, retain_graph=apart, allow_unused=True
            )
            for (wanted, _), gradient in zip(tape.leaves, gradients, strict=False):
                if gradient is not None:
                    flow = self.flow(wanted.producer, microbatch, Phase.BACKWARD)
                    flow.terms[wanted.task[Phase.FORWARD]] = HeldTensor(gradient, wanted.box.low)
            self._accumulate(output, list(parameters), gradients[len(tape.leaves) :])
        if apart:
            self._kept_gradients[output] = tape.result, output_gradient

    def weight(self, layer: int, microbatch: int, shard: int) -> None:
        """The gradients of the parameters, if any, of a shard whose backward pass has run."""
        output, parameters = Output(layer, microbatch, shard), self._trained(self._parts[layer, shard])
        result, output_gradient = self._kept_gradients.pop(output)
        if parameters:
            gradients = torch.autograd.grad(result, list(parameters.values()), output_gradient, allow_unused=True)
            self._accumulate(output, list(parameters), gradients)

    def _with_weights(self, layer: int, microbatch: int, shard: int) -> ShardPart:
        """A shard, with the weights of the micro-batch in place."""
        if self.versions:
            self.versions.use(self._model.sum_of(microbatch))
        return self._parts[layer, shard]

    def _trained(self, part: ShardPart) -> dict[str, Tensor]:
        return {name: value for name, value in self.parameters[part.slot].items() if value.requires_grad}

    def _accumulate(self, output: Output, names: Sequence[str], gradients: Sequence[Tensor | None]) -> None:
        number = self._model.sum_of(output.microbatch)
        total = self.gradients.setdefault((output.layer, output.shard, number), {})
        for name, gradient in zip(names, gradients, strict=True):
            if gradient is not None:
                total[name] = total[name].add_(gradient) if name in total else gradient

    def _leaf(self, part: ShardPart, wanted: ShardInput, microbatch: int, again: bool) -> Tensor:
        if wanted.producer < 0:
            start, (first, last) = microbatch * self._size, wanted.box.samples
            rows = self._data[start + first : start + last]
            return wanted.box.of(self._shaped(rows), (first, 0, 0, 0))
        phase = self._phase(part, wanted, again)
        tensor = self.flow(wanted.producer, microbatch, phase).read(wanted.wanted[phase], wanted.box)
        return tensor.detach().requires_grad_(self._needs[wanted.producer])

    def _phase(self, part: ShardPart, wanted: ShardInput, again: bool) -> Phase:
        """What a recomputed shard reads of a layer that is recomputed with it, is computed again."""
        inside = again and part.slot[0] in self._model.recomputed_readers(wanted.producer)
        return Phase.AGAIN if inside else Phase.FORWARD

    def _shaped(self, rows: Tensor) -> Tensor:
        """Training data in canonical form; tokens have one channel."""
        if self._script.network.vocabulary is None:
            return to_canonical(rows)
        return rows[:, None, :, None]  # (samples, positions) -> (samples, 1, positions, 1)

    def _native(self, wanted: ShardInput, leaf: Tensor) -> Tensor:
        if wanted.producer >= 0:
            return to_native(leaf, self._steps.dimensions[self._script.profile.layers[wanted.producer].name])
        if self._script.network.vocabulary is not None:
            return leaf[:, 0, :, 0]  # (samples, positions)
        return to_native(leaf, len(self._script.network.input_shape) + 1)

    def _result(self, part: ShardPart, leaves: Sequence[tuple[ShardInput, Tensor]], microbatch: int) -> Tensor:
        values = {wanted.node: self._native(wanted, leaf) for wanted, leaf in leaves}
        if not isinstance(part.step.module, Loss):
            return cut_to_own(to_canonical(part.run(self.parameters[part.slot], values)), part.shard)
        first, last = (microbatch * self._size + x for x in part.shard.own[0])
        (scores,) = values.values()
        share = loss_share(scores, self._targets[first:last], self._targets.numel())
        return share.reshape(1, 1, 1, 1)  # the loss in canonical form

    def _hold(self, output: Output, result: Tensor, part: ShardPart, phase: Phase) -> None:
        if self._uses[output.layer, phase]:
            flow = self.flow(output.layer, output.microbatch, phase)
            flow.terms[output.shard] = HeldTensor(result.detach(), part.shard.own.low)

    def _counted_uses(self) -> Iterator[tuple[int, Phase]]:
        """(layer, phase) once for each time that this device uses such a tensor in a micro-batch."""
        for (layer, _), part in self._parts.items():
            yield layer, Phase.BACKWARD
            for again in (False, True) if layer in self._model.segment_of else (False,):
                for wanted in part.inputs:
                    if wanted.producer >= 0:
                        yield wanted.producer, self._phase(part, wanted, again)
        for (layer, phase), edge in self._script.edges.items():
            for move in edge.moves:
                if self._rank == move.devices[0] if move.pattern == "message" else self._rank in move.devices:
                    yield layer, phase
