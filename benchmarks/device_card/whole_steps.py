"""Whole training steps on one device: eager, in micro-batches, as a CUDA graph, and the memory that they take."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from traces.capture.device_clocks import Clock, clock_of
from traces.capture.measurement_rounds import trained_on
from traces.capture.momentum_sgd import optimizer
from traces.zoo.networks import Network
from traces.zoo.own_network import draw

WARM_UP = 3


class WholeSteps:
    """A network with its optimizer, trained on random data of one batch size."""

    def __init__(self, network: Network, torch_device: torch.device, dtype: torch.dtype, batch_size: int) -> None:
        self._held_bytes = torch.cuda.memory_allocated(torch_device) if torch_device.type == "cuda" else 0
        self.trained, self.torch_device = trained_on(network, torch_device, dtype), torch_device
        self.inputs = draw(network, batch_size, torch_device, dtype)
        self.optimizer = optimizer(self.trained.parameters())
        self._clock: Clock | None = None

    @property
    def clock(self) -> Clock:
        """Made when it is first needed."""
        self._clock = self._clock or clock_of(self.torch_device)
        return self._clock

    def step(self, microbatches: int = 1) -> None:
        """One training step whose gradients are summed over equal micro-batches."""
        parts = self.inputs.chunk(microbatches)
        share: Tensor | None = None
        for part in parts:
            loss = self.trained(part)
            share = torch.full_like(loss, 1 / len(parts)) if share is None else share
            loss.backward(share)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def eager_s(self, repeats: int, microbatches: int = 1) -> list[float]:
        """Seconds of consecutive steps after some of warm-up."""
        return self.consecutive_s(lambda: self.step(microbatches), repeats)

    def graph_s(self, repeats: int) -> list[float]:
        """Seconds of consecutive steps as one CUDA graph. Raises RuntimeError where they cannot be captured."""
        side, here = torch.cuda.Stream(), torch.cuda.current_stream()  # type: ignore[no-untyped-call]
        side.wait_stream(here)
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                self.step()
        here.wait_stream(side)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # a graph takes memory of its own
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        return self.consecutive_s(graph.replay, repeats)

    def peak_bytes(self) -> int:
        """The most that torch's allocator holds for this network during a step, its data and optimizer included."""
        for _ in range(WARM_UP):
            self.step()
        torch.cuda.synchronize(self.torch_device)
        torch.cuda.reset_peak_memory_stats(self.torch_device)
        self.step()
        torch.cuda.synchronize(self.torch_device)
        return torch.cuda.max_memory_allocated(self.torch_device) - self._held_bytes

    def consecutive_s(self, step: Callable[[], None], repeats: int) -> list[float]:
        """Seconds from the end of each step to the end of the next."""
        for _ in range(WARM_UP):
            step()
        self.clock.settle()
        step()
        marks = [self.clock.mark()]
        for _ in range(repeats):
            step()
            marks.append(self.clock.mark())
        self.clock.settle()
        return [self.clock.seconds(a, b) for a, b in pairwise(marks)]
