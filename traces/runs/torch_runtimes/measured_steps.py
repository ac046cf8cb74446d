"""Whole training steps on one rank: timed back to back, their bytes counted, their memory taken afterwards.

    warm-up -> counters -> step, step, ... -> counters -> a step under the memory profiler -> observed steps

Steps follow one another without a barrier, as in training; a step lasts from the end of the one before to its own.
Observed steps begin together, and the start and end of each of their tasks are recorded.
"""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from simulator.errors import InputError
from simulator.taskgraph import TaskGraph
from traces.capture.fx_steps import Trained
from traces.capture.machine_settings import StolenTime, largest
from traces.capture.measurement_rounds import spread
from traces.lab.rank import Rank
from traces.lab.shaped_network import Lab
from traces.results.executions import Execution, ObservedTask, execution
from traces.runs.executor.transport import together
from traces.runs.torch_runtimes.task_observer import TaskObserver
from traces.zoo.networks import Network
from traces.zoo.own_network import draw

WARMUP = 3
OBSERVED = 5
FRAME_BYTES = 66
"""Ethernet, IPv4 and TCP headers with timestamps, of each frame or unsplit segment that an interface counts."""

_SPIN = """
import os
parent = os.getppid()
print(flush=True)
while os.getppid() == parent:
    for _ in range(10**6): pass
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSteps:
    """Measured steps: seconds of each, bytes per step that all ranks sent, peak bytes of each rank.

    sent_bytes counts payload: the interfaces' bytes without headers; None over loopback, where nothing is counted.
    peak_bytes: tensors alive at the start of a step and the most that it adds to them.
    """

    steps_s: tuple[float, ...]
    sent_bytes: float | None
    peak_bytes: tuple[int, ...]

    @property
    def step_s(self) -> float:
        """Median seconds of a step."""
        return statistics.median(self.steps_s)

    @property
    def spread_s(self) -> float:
        """Interquartile range of the steps, in seconds."""
        return spread(self.steps_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun(MeasuredSteps):
    """The measured steps of a task graph; execution: with the timeline of the median observed step."""

    execution: Execution


def steps_of_ranks(ranks: Sequence[Mapping[str, Any]]) -> MeasuredSteps:
    """What each rank returned from `measure_steps`; a step takes the median of the ranks' times for it."""
    sent = [rank["sent_bytes"] for rank in ranks]
    return MeasuredSteps(
        steps_s=tuple(statistics.median(step) for step in zip(*(rank["steps_s"] for rank in ranks), strict=True)),
        sent_bytes=None if None in sent else sum(sent),
        peak_bytes=tuple(rank["peak_bytes"] for rank in ranks),
    )


def run_of_ranks(graph: TaskGraph, ranks: Sequence[Mapping[str, Any]]) -> MeasuredRun:
    """The steps as a run of `graph`. Raises RunError when the ranks ran another graph."""
    steps, stolen_share = steps_of_ranks(ranks), largest(rank["stolen_share"] for rank in ranks)
    observed = [[[ObservedTask(*task) for task in step] for step in rank["observed"]] for rank in ranks]
    return MeasuredRun(**asdict(steps), execution=execution(graph, steps.steps_s, observed, stolen_share))


def measure_steps(
    rank: Rank, step: Callable[[], None], count: int, observer: TaskObserver, open_up: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Run `step` over and over and measure `count` of them; what `run_of_ranks` reads.

    open_up: called before the steps that are observed.
    """
    rank.doing("warming up")
    for _ in range(WARMUP):
        step()
    dist.barrier()
    gc.disable()
    stolen, sent, ends = StolenTime(), _payload_bytes(), [time.perf_counter()]
    for number in range(count):
        rank.doing(f"step {number}")
        step()
        ends.append(time.perf_counter())
    dist.barrier()
    after, stolen_share = _payload_bytes(), stolen.share()
    gc.enable()
    rank.doing("measuring memory")
    most_bytes = peak_bytes(step)
    open_up()
    return {
        "steps_s": [b - a for a, b in pairwise(ends)],
        "sent_bytes": None if sent is None or after is None else (after - sent) / count,
        "stolen_share": stolen_share,
        "peak_bytes": most_bytes,
        "observed": [_observed(rank, step, observer) for _ in range(OBSERVED)],
    }


def _observed(rank: Rank, step: Callable[[], None], observer: TaskObserver) -> list[ObservedTask]:
    rank.doing("an observed step")
    began_s, observer.on = together(), True
    step()
    observer.on = False
    return observer.take(began_s)


def slow_down(rank: Rank, stragglers: Sequence[int]) -> None:
    """Share this rank's core evenly with a process that never rests, if the rank is a straggler."""
    if rank.number in stragglers:
        spinning = subprocess.Popen([sys.executable, "-c", _SPIN], stdout=subprocess.PIPE)
        assert spinning.stdout is not None
        spinning.stdout.readline()  # a busy machine may take seconds to start it


def _payload_bytes() -> int | None:
    """Bytes that the lab's interface of this process has sent, without headers; None over loopback."""
    if os.environ.get("GLOO_SOCKET_IFNAME") != Lab.interface:
        return None
    for line in Path("/proc/self/net/dev").read_text().splitlines()[2:]:
        name, _, counters = line.partition(":")
        if name.strip() == Lab.interface:
            sent_bytes, sent_frames = (int(counters.split()[i]) for i in (8, 9))
            return sent_bytes - FRAME_BYTES * sent_frames
    return None


def peak_bytes(step: Callable[[], None]) -> int:
    """Bytes of the tensors alive, and the most that one more step adds, by torch's record of allocations."""
    gc.collect()
    before: dict[int, int] = {}
    for held in gc.get_objects():
        # the type, as some of torch's deprecated objects warn when they are asked for their class
        if issubclass(type(held), torch.Tensor) and not held.is_meta and not is_traceable_wrapper_subclass(held):
            before[held.untyped_storage().data_ptr()] = held.untyped_storage().nbytes()
            if held.is_leaf and held.grad is not None:
                before[held.grad.untyped_storage().data_ptr()] = held.grad.untyped_storage().nbytes()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        step()
    level = peak = 0
    events = [event for event in recorded.profiler.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        level += event.nbytes()
        peak = max(peak, level)
    return sum(before.values()) + peak


def build(network: Network, seed: int = 0) -> Trained:
    """The network and its loss in training mode; every rank that asks with one seed has equal parameters."""
    return Trained(network.built(seed)).train()


def samples(network: Network, count: int, seed: int = 0) -> Tensor:
    """Random data of shape (count, *input shape), of a network that reads one tensor. Raises InputError."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        data = draw(network, count, torch.device("cpu"), torch.float32)
    if not isinstance(data, Tensor):
        raise InputError("model: torch's runtimes run networks of one input tensor here; this one reads several")
    return data
