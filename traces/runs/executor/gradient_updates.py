"""From gradients to new parameters on one rank: all-reduce, or push to servers and pull back; SGD with momentum.

A bucket's gradients are sent as one row of shape (elements,), piece after piece. With K servers each serves the k-th
of K equal parts of it: it adds what was pushed to its own gradients, updates its part of the parameters and sends
that back.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from simulator import collectives
from simulator.collectives import CollectiveTask
from simulator.lowering.buckets import Bucket
from simulator.taskgraph import Kind
from traces.capture.momentum_sgd import descend, optimizer
from traces.runs.executor.rank_shards import Shards
from traces.runs.executor.run_setup import Script


class Updates:
    """The gradient buckets and the optimizer of device `rank`."""

    def __init__(self, script: Script, rank: int, shards: Shards) -> None:
        self._script, self._rank, self._shards = script, rank, shards
        self._roles = dict(_roles(script))
        self._pushed: dict[int, dict[int, Tensor]] = {}
        self._rows: dict[int, Tensor] = {}
        self._served: dict[int, tuple[Tensor, Tensor]] = {}
        slots = [shards.slot(*key) for key in self._local_slots()]
        trained = [tensor for slot in slots for tensor in slot.values() if tensor.requires_grad]
        self._optimizer = optimizer(trained, script.learning_rate, script.momentum)

    def begin(self) -> None:
        """Start a step: drop the gradients of the one before."""
        self._rows.clear()
        self._pushed.clear()
        for tensor in self._all_parameters():
            tensor.grad = None

    def all_reduced(self, task: int) -> Tensor:
        """The row of gradients, (elements,), that an all-reduce task sums."""
        return self._gradients(self._roles[task][0])

    def take_all_reduced(self, task: int, row: Tensor) -> None:
        """Let the sum, (elements,), be the gradients."""
        for tensor, part in self._views(self._roles[task][0], row):
            tensor.grad = part

    def message_elements(self, task: int) -> int:
        """Elements of a push or a pull."""
        number, step = self._roles[task]
        part = self._part(number, _server(step))
        return int(part.stop - part.start)

    def message(self, task: int) -> Tensor:
        """The part of the gradients to push, or of the parameters that a server sends back: (elements,)."""
        number, step = self._roles[task]
        part = self._part(number, _server(step))
        if step.after:
            return self._served[number][0]
        return self._gradients(number)[part]

    def take_message(self, task: int, row: Tensor) -> None:
        """Keep pushed gradients, or overwrite parameters with pulled ones: (elements,)."""
        number, step = self._roles[task]
        (source, _), *_ = step.route.pairs if step.route else ()
        if step.after:
            self._set_parameters(number, self._part(number, _server(step)), row)
        else:
            self._pushed.setdefault(number, {})[source] = row

    @torch.no_grad()
    def update(self, task: int) -> None:
        """Run the optimizer: this device's own, or that of one bucket on a server."""
        if task not in self._roles:
            self._optimizer.step()
            return
        number, step = self._roles[task]
        part = self._part(number, step.device)
        rows = self._pushed.pop(number, {})
        if self._rank in self._bucket(number).group:
            rows[self._rank] = self._gradients(number)[part]
        total = torch.stack([rows[source] for source in sorted(rows)]).sum(0)  # (sources, elements) -> (elements,)
        if number not in self._served:
            self._served[number] = self._flat(number)[part].clone(), torch.zeros_like(total)
        values, momentum = self._served[number]
        descend([values], [total], [momentum], self._script.learning_rate, self._script.momentum)
        if self._rank in self._bucket(number).group:
            self._set_parameters(number, part, values)

    def _bucket(self, number: int) -> Bucket:
        return self._script.buckets[number]

    def _tensors(self, number: int) -> list[Tensor]:
        """The parameters of a bucket, in the order in which they are sent."""
        pieces = self._bucket(number).pieces
        tensors = [tensor for piece in pieces for tensor in self._shards.slot(piece.layer, piece.slot).values()]
        return [tensor for tensor in tensors if tensor.requires_grad]

    def _gradients(self, number: int) -> Tensor:
        """A bucket's gradients in one row, made once per step; zeros where a parameter has none."""
        if number not in self._rows:
            gradients = [torch.zeros_like(x) if x.grad is None else x.grad for x in self._tensors(number)]
            self._rows[number] = torch.cat([gradient.reshape(-1) for gradient in gradients])  # (elements,)
        return self._rows[number]

    def _flat(self, number: int) -> Tensor:
        return torch.cat([tensor.detach().reshape(-1) for tensor in self._tensors(number)])  # (elements,)

    def _views(self, number: int, row: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Each parameter of a bucket with its part of `row`, in its shape."""
        first = 0
        for tensor in self._tensors(number):
            yield tensor, row[first : first + tensor.numel()].view_as(tensor)  # the parameter's shape
            first += tensor.numel()

    @torch.no_grad()
    def _set_parameters(self, number: int, part: slice, row: Tensor) -> None:
        """Overwrite a part of a bucket's parameters."""
        first = 0
        for tensor in self._tensors(number):
            low, high = max(part.start, first), min(part.stop, first + tensor.numel())
            if low < high:
                tensor.detach().view(-1)[low - first : high - first] = row[low - part.start : high - part.start]
            first += tensor.numel()

    def _part(self, number: int, server: int) -> slice:
        """The elements of a bucket that `server` serves."""
        servers = list(dict.fromkeys(step.device for n, step in self._roles.values() if n == number and not step.route))
        size, index = sum(tensor.numel() for tensor in self._tensors(number)), servers.index(server)
        return slice(size * index // len(servers), size * (index + 1) // len(servers))

    def _local_slots(self) -> list[tuple[int, int]]:
        """The parameter pieces that this device updates itself."""
        served = collectives.load(self._script.plan.synchronisation.collective).updates_on_server
        pieces = self._script.sharded.replicas
        held = [piece for piece in pieces if self._rank in piece.devices]
        return [(piece.layer, piece.slot) for piece in held if not (served and len(piece.devices) > 1)]

    def _all_parameters(self) -> Iterator[Tensor]:
        for slot in self._shards.parameters.values():
            yield from slot.values()


def _roles(script: Script) -> Iterator[tuple[int, tuple[int, CollectiveTask]]]:
    """Which bucket's which step each task of the synchronisation is; a bucket's steps stand in order."""
    graph = script.graph
    shared = (graph.kind == Kind.SYNCHRONISATION) | ((graph.kind == Kind.UPDATE) & (graph.layer >= 0))
    for number, bucket in enumerate(script.buckets):
        tasks = np.flatnonzero(shared & (graph.shard == number)).tolist()
        for task, step in zip(tasks, bucket.steps(script.cluster, script.plan), strict=True):
            yield task, (number, step)


def _server(step: CollectiveTask) -> int:
    """The serving device of a push or a pull."""
    (source, target), *_ = step.route.pairs if step.route else ()
    return source if step.after else target
