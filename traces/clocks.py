"""Clocks that time what a device does, step by step, without slowing it down."""

from __future__ import annotations

import statistics
import time
from typing import Any, Protocol

import torch

LEAD_CYCLES = 20_000_000
"""How long a GPU waits so that the host can run ahead: about 10 ms at 2 GHz."""


def clock_of(device: torch.device) -> Clock:
    """The clock of a device; for a CPU, of the number of threads that torch is set to."""
    return CudaClock() if device.type == "cuda" else HostClock(torch.get_num_threads())


class Clock(Protocol):
    """Marks instants on the device's own time line."""

    def mark(self) -> Any:
        """An instant: when everything asked for so far is done."""

    def seconds(self, start: Any, end: Any) -> float:
        """Seconds between two marks, once `settle` has been called."""

    def now(self) -> float:
        """Seconds on the host's time line, by which whole steps are timed."""

    def lead(self) -> None:
        """Let the host get ahead of the device, so that launching costs no device time."""

    def settle(self) -> None:
        """Wait until the device has done everything."""


class HostClock:
    """For a CPU, which is done when the call returns.

    A single thread is timed by the processor time it used, which equals the time that passed on an undisturbed
    machine, and leaves out the slices that other processes took on a shared one.
    """

    def __init__(self, threads: int) -> None:
        self.now = time.thread_time if threads == 1 else time.perf_counter
        self.mark = self.now

    def seconds(self, start: float, end: float) -> float:
        return end - start

    def lead(self) -> None:
        pass

    def settle(self) -> None:
        pass


class CudaClock:
    """CUDA events. The time between two events with nothing between them is measured once and taken off."""

    def __init__(self) -> None:
        self._empty_s = 0.0
        self.lead()
        pairs = [(self.mark(), self.mark()) for _ in range(100)]
        self.settle()
        self._empty_s = statistics.median(self.seconds(*pair) for pair in pairs)

    def now(self) -> float:
        return time.perf_counter()

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def seconds(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        elapsed_ms = float(start.elapsed_time(end))
        return max(elapsed_ms * 1e-3 - self._empty_s, 0.0)

    def lead(self) -> None:
        torch.cuda._sleep(LEAD_CYCLES)  # type: ignore[no-untyped-call]

    def settle(self) -> None:
        torch.cuda.synchronize()
