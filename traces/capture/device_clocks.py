"""Clocks that time what a device does, step by step, without slowing it down, and layers' times between their marks."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch

SHORTEST_LEAD_S, LONGEST_LEAD_S = 0.5e-3, 30e-3
LEAD_MARGIN = 1.5
"""How much longer a GPU waits than launching took lately."""

Moment = tuple[float, float]
"""Seconds on the wall, and of the processor time of a thread."""


def clock_of(device: torch.device) -> Clock:
    """The clock of a device's layers; for a CPU, of the number of threads that torch is set to.

    A single thread's layers are timed by the processor time that they used, which leaves out the slices that other
    processes took.
    """
    if device.type == "cuda":
        return _cuda_clock(torch.cuda.current_device() if device.index is None else device.index)
    return HostClock(time.thread_time if torch.get_num_threads() == 1 else time.perf_counter)


def step_clock_of(device: torch.device) -> Clock:
    """The clock of a device's ordinary steps: for one thread of a CPU the wall's, less what other programs took."""
    if device.type == "cuda":
        return clock_of(device)
    return UndisturbedClock() if torch.get_num_threads() == 1 else HostClock(time.perf_counter)


@cache
def _cuda_clock(index: int) -> CudaClock:
    """One for each GPU, as making it takes a while; the GPU is the current device of whoever uses it."""
    with torch.cuda.device(index):
        return CudaClock()


class HostClock:
    """Marks instants on the time line of a CPU, which is done when the call returns. mark: seconds by some clock.

    fill_steps: steps to run before one that is timed, so that the host is as far ahead as in a long training.
    joint_update: whether the optimizer updates all parameters at once, rather than one after another.
    times_calls: whether what the host spends on calling is within the marks; a device that the host runs ahead of is
    not kept waiting by it.
    """

    fill_steps, joint_update, times_calls = 0, False, True

    def __init__(self, mark: Callable[[], float]) -> None:
        self.mark: Callable[[], Any] = mark

    def seconds(self, start: Any, end: Any) -> float:
        """Seconds between two marks, once `settle` has been called."""
        return float(end - start)

    def lead(self) -> None:
        """Let the host get ahead of the device, so that launching costs no device time."""

    def settle(self) -> None:
        """Wait until the device has done everything."""

    def forget(self) -> None:
        """Count leads from here on."""

    def remark(self) -> str:
        """How well the host kept ahead, for a profile's notes; empty where it need not."""
        return ""


class UndisturbedClock(HostClock):
    """The clock on the wall of one thread, less the time in which it could run and other programs had its core.

    So a step has what the network waits for itself, and layers, which are timed by the processor, add up to it on a
    busy machine, too. Where the kernel does not say how long a thread was queued it is the wall's alone; where it says
    too much, what the thread used of the processor.
    """

    def __init__(self) -> None:
        self._wall_s = self._queued_s = 0.0

    def mark(self) -> tuple[Moment, float, Moment]:
        """Moments before and after the count was read, and the count between them."""
        before_s = time.perf_counter(), time.thread_time()
        return before_s, queued_s(), (time.perf_counter(), time.thread_time())

    def seconds(self, start: tuple[Moment, float, Moment], end: tuple[Moment, float, Moment]) -> float:
        (began_s, began_used_s), (ended_s, ended_used_s) = start[2], end[0]
        wall_s, queued_s = ended_s - began_s, end[1] - start[1]
        undisturbed_s = max(wall_s - queued_s, ended_used_s - began_used_s)
        self._wall_s, self._queued_s = self._wall_s + wall_s, self._queued_s + wall_s - undisturbed_s
        return undisturbed_s

    def forget(self) -> None:
        self._wall_s = self._queued_s = 0.0

    @property
    def queued(self) -> float:
        """The share of the time on the wall in which others had the core."""
        return self._queued_s / self._wall_s if self._wall_s else 0.0

    def remark(self) -> str:
        return f"other programs had its core for {self.queued:.0%} of the steps' time, which does not count"


def queued_s(stat: Path = Path("/proc/thread-self/schedstat")) -> float:
    """Seconds in which this thread could run and did not, since it began; 0 where the kernel does not say."""
    try:
        return int(stat.read_text().split()[1]) * 1e-9
    except OSError:
        return 0.0


class CudaClock:
    """CUDA events on the current stream, which are stamped by the GPU as it passes them.

    Events time what lies between them, gaps included, so a GPU that waits for the host would count launching as part
    of a layer. Therefore it sleeps through each stretch of layers while the host launches all of it:

        host   |launch a b c ...       |wait     |launch f g h ...
        GPU    |sleep                     |a|b|c||sleep               |f|g|h|

    It sleeps half as long again as launching took lately. A stretch is late when the sleep ended first; `remark`
    says how many were. The time between two events with nothing between them is measured once and taken off.
    """

    fill_steps, joint_update, times_calls = 1, True, False

    def __init__(self) -> None:
        self._empty_s = self._launch_s = self._begun_s = 0.0
        self._slept: torch.cuda.Event | None = None
        self._sleep(100_000_000)  # some 0.1 s, in which a GPU that idled comes up to its clocks
        self._cycles_per_s = 2_000_000 / statistics.median(self._nap_s(2_000_000) for _ in range(5))
        self.forget()
        self.lead()
        empty = [(self.mark(), self.mark()) for _ in range(100)]
        self.settle()
        self._empty_s = statistics.median(self.seconds(*pair) for pair in empty)
        self.forget()

    def mark(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def seconds(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        elapsed_ms = float(start.elapsed_time(end))
        return max(elapsed_ms * 1e-3 - self._empty_s, 0.0)

    def lead(self) -> None:
        self.settle()
        wanted_s = min(max(LEAD_MARGIN * self._launch_s, SHORTEST_LEAD_S), LONGEST_LEAD_S)
        self._sleep(int(wanted_s * self._cycles_per_s))
        self._slept, self._begun_s = self.mark(), time.perf_counter()

    def settle(self) -> None:
        if self._slept is not None:
            self._leads += 1
            self._late += self._slept.query()  # type: ignore[no-untyped-call]
            # the longest of late, as stretches differ; a first one, in which cuDNN tries its kernels, fades away
            self._launch_s = max(time.perf_counter() - self._begun_s, 0.9 * self._launch_s)
            self._slept = None
        torch.cuda.synchronize()

    def forget(self) -> None:
        self._leads = self._late = 0

    def remark(self) -> str:
        return f"the host was late in {self._late} of {self._leads} stretches of layers"

    def _nap_s(self, cycles: int) -> float:
        """How long the GPU sleeps for so many of its cycles."""
        start = self.mark()
        self._sleep(cycles)
        end = self.mark()
        torch.cuda.synchronize()
        return self.seconds(start, end)

    def _sleep(self, cycles: int) -> None:
        torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]


Clock = HostClock | CudaClock
"""The clock of a device."""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of each timed layer, by position; a layer that was not timed is absent.

    empty_call_s: what asking autograd for no work cost just before each layer's backward pass was asked for.
    """

    forward_s: dict[int, float] = field(default_factory=dict)
    backward_s: dict[int, float] = field(default_factory=dict)
    update_s: dict[int, float] = field(default_factory=dict)
    accumulate_s: dict[int, float] = field(default_factory=dict)
    recompute_s: dict[int, float] = field(default_factory=dict)
    empty_call_s: dict[int, float] = field(default_factory=dict)

    @property
    def phases(self) -> tuple[dict[int, float], ...]:
        """What adds up to a step: seconds forward, backward and of the update."""
        return self.forward_s, self.backward_s, self.update_s


class Marks:
    """Instants marked during a pass, read together after it."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._noted: list[tuple[str, dict[int, int], Any, Any]] = []

    def note(self, phase: str, layer: int, start: Any) -> None:
        """The time since `start` is this layer's."""
        self.share(phase, {layer: 1}, start)

    def share(self, phase: str, weights: dict[int, int], start: Any) -> None:
        """The time since `start` is that of several layers, in proportion to their weights."""
        self.add(phase, weights, start, self.clock.mark())

    def add(self, phase: str, weights: dict[int, int], start: Any, end: Any) -> None:
        """The time between two marks is that of several layers, in proportion to their weights."""
        self._noted.append((phase, weights, start, end))

    def read(self) -> Times:
        """The layers' times; what an empty call costs, the median of the pass, is taken off each backward time."""
        self.clock.settle()
        times = Times()
        for phase, weights, start, end in self._noted:
            seconds, total = self.clock.seconds(start, end), sum(weights.values())
            noted = getattr(times, phase)
            for layer, weight in weights.items():
                noted[layer] = noted.get(layer, 0.0) + seconds * weight / total
        if times.empty_call_s:
            empty_s = statistics.median(times.empty_call_s.values())
            for layer in times.empty_call_s:
                times.backward_s[layer] = max(times.backward_s[layer] - empty_s, 0.0)
        return times
