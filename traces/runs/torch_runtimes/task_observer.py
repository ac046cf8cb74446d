"""Observes the tasks of a rank that one of torch's runtimes drives: when layers' passes and messages begin and end.

    forward     around the call of each layer
    backward    from when autograd has the gradient of a layer's output until it has that of the next layer
    message     from when send and receive are posted until the pass that needs it begins
    all-reduce  from when the last rank has its bucket until the last rank has the sum

Autograd runs one node at a time, so that what lies between two gradients is the earlier layer's: those of its inputs
and of its parameters, and adding these to those of other micro-batches. Only observed steps are slowed down by it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import nan
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future

from simulator.taskgraph import Kind
from traces.capture.fx_steps import tensors
from traces.results.executions import ObservedTask


class TaskObserver:
    """Records what one rank does in a step, while `on`. layers: their names; other calls are part of theirs."""

    def __init__(self, rank: int, layers: Iterable[str]) -> None:
        self.on = False
        self._rank, self._layers = rank, frozenset(layers)
        self._seen: list[ObservedTask] = []
        self._kind, self._microbatch = Kind.BACKWARD, 0
        self._open: tuple[str, float] | None = None
        self._touched_s = 0.0

    def take(self, began_s: float) -> list[ObservedTask]:
        """The tasks since the last call, in seconds after `began_s`, a moment of CLOCK_MONOTONIC."""
        observed = [seen._replace(start_s=seen.start_s - began_s, end_s=seen.end_s - began_s) for seen in self._seen]
        self._seen.clear()
        return observed

    def call(self, layer: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What `function` returns for a layer's forward pass, which is recorded, as its backward pass will be."""
        if not self.on or layer not in self._layers:
            return function(*args, **kwargs)
        start_s = time.monotonic()
        value = function(*args, **kwargs)
        self._note(Kind.FORWARD, layer, start_s, time.monotonic())
        for tensor in tensors(value):
            if tensor.grad_fn is not None:
                tensor.grad_fn.register_prehook(lambda _: self._gradient(layer))
                tensor.grad_fn.register_hook(lambda *_: self._touch())
        return value

    def begin(self, kind: Kind, microbatch: int = 0) -> None:
        """A pass over the layers begins."""
        self._kind, self._microbatch = kind, microbatch

    def end(self, at_s: float | None = None) -> None:
        """The pass has ended, by default when its last layer's gradients were computed."""
        if self._open is not None:
            layer, start_s = self._open
            self._note(self._kind, layer, start_s, at_s or self._touched_s)
            self._open = None

    @contextmanager
    def update(self) -> Iterator[None]:
        """Around what follows the backward passes: the optimizer, and what is done to gradients before."""
        start_s = time.monotonic()
        yield
        if self.on:
            self._seen.append(ObservedTask(Kind.UPDATE, "", -1, self._rank, self._rank, start_s, time.monotonic()))

    def posted(
        self, kind: Kind, layers: Sequence[str], microbatch: int, ends: tuple[int, int], sent: Sequence[int] = ()
    ) -> None:
        """This rank has posted sends or receives of messages between two ranks; sent: bytes of each if it sends."""
        if self.on:
            for layer, size in zip(layers, sent or [0] * len(layers), strict=True):
                self._seen.append(ObservedTask(kind, layer, microbatch, *ends, time.monotonic(), nan, float(size)))

    def arrived(self, kind: Kind, layers: Sequence[str], microbatch: int, ends: tuple[int, int]) -> None:
        """Messages have arrived."""
        if self.on:
            self._seen += [ObservedTask(kind, layer, microbatch, *ends, nan, time.monotonic()) for layer in layers]

    def last_until_parameters_of(self, network: nn.Module) -> None:
        """Let a backward pass last until its last parameter's gradient has been added."""
        for parameter in (each for each in network.parameters() if each.requires_grad):
            parameter.register_post_accumulate_grad_hook(lambda _: self._touch())  # type: ignore[no-untyped-call]

    def all_reduce(self) -> Callable[[None, GradBucket], Future[Tensor]]:
        """A communication hook for DistributedDataParallel: the mean over all ranks, recorded."""

        def reduce(bucket: GradBucket) -> Future[Tensor]:
            start_s, row = time.monotonic(), bucket.buffer().div_(dist.get_world_size())  # (elements,)

            def done(future: Future[list[Tensor]]) -> Tensor:
                span = start_s, time.monotonic()
                self._seen.append(
                    ObservedTask(Kind.SYNCHRONISATION, "", bucket.index(), -1, -1, *span, float(row.nbytes))
                )
                return future.value()[0]

            summed: Future[Tensor] = dist.all_reduce(row, async_op=True).get_future().then(done)
            return summed

        return lambda _, bucket: reduce(bucket)

    def _note(self, kind: Kind, layer: str, start_s: float, end_s: float) -> None:
        self._seen.append(ObservedTask(kind, layer, self._microbatch, self._rank, self._rank, start_s, end_s))

    def _gradient(self, layer: str) -> None:
        self._touch()
        self.end()
        self._open = layer, self._touched_s

    def _touch(self) -> None:
        self._touched_s = time.monotonic()
