"""Traces of torch.profiler drawn event by event, of a network of four layers: for tests, and for damage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from traces.imports._recording import BACKWARD
from traces.zoo.networks import Network


def tiny_network() -> torch.nn.Module:
    """Two linear layers, over samples of 8 numbers."""
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))


TINY = Network(build=tiny_network, input_shape=(8,))


class Drawing:
    """A trace of a step of the tiny network, written event by event: operators of 10 us, their kernels of 100 us."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.now_us, self.kernel_us, self.correlation = 0.0, 0.0, 0

    def operator(
        self, name: str, *, kernel: str = "", thread: int = 1, sequence: int | None = None, **more: Any
    ) -> None:
        """An operator of 10 us on a host thread, with the kernel that it launches."""
        arguments = {"External id": len(self.events), **({"Sequence number": sequence} if sequence is not None else {})}
        self.event("cpu_op", name, self.now_us, 10, thread, arguments | more)
        if kernel:
            self.launch(kernel, thread)
        self.now_us += 20

    def launch(self, kernel: str, thread: int = 1, call: str = "cudaLaunchKernel") -> None:
        self.correlation += 1
        self.event("cuda_runtime", call, self.now_us + 2, 5, thread, {"correlation": self.correlation})
        self.kernel_us = max(self.kernel_us, self.now_us + 10)
        arguments = {"correlation": self.correlation, "device": 0, "stream": 7}
        self.event("kernel", kernel, self.kernel_us, 100, 7, arguments)
        self.kernel_us += 100

    def event(self, category: str, name: str, ts: float, dur: float, tid: int, args: dict[str, Any]) -> None:
        self.events.append(
            {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": tid, "ts": ts, "dur": dur, "args": args}
        )

    def step(self, number: int) -> None:
        start = self.now_us
        self.now_us += 5
        for sequence, name in enumerate(("aten::linear", "aten::relu", "aten::linear", "aten::cross_entropy_loss")):
            self.operator(name, kernel=f"{name}_forward", sequence=10 * number + sequence)
        for sequence, name in reversed(list(enumerate(("Addmm", "Relu", "Addmm", "NllLoss")))):
            self.operator(f"{BACKWARD}{name}Backward0", kernel=name, thread=2, sequence=10 * number + sequence)
        self.event("user_annotation", "Optimizer.step#SGD.step", self.now_us, 15, 1, {})
        self.operator("aten::_foreach_add_", kernel="update")
        self.now_us = max(self.now_us, self.kernel_us)
        self.event("user_annotation", f"ProfilerStep#{number}", start, self.now_us - start, 1, {})

    def write(self, path: Path, **more: Any) -> Path:
        cards = [{"id": 0, "name": "Drawn GPU"}]
        path.write_text(json.dumps({"deviceProperties": cards, "traceEvents": self.events, **more}))
        return path


def drawn(path: Path, steps: int = 3) -> Path:
    drawing = Drawing()
    for number in range(steps):
        drawing.step(number)
    return drawing.write(path)
