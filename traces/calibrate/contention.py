"""What communication and compute take from each other on a rank: core time per byte, and how long a round waits.

The core time is what compute loses, not what this process is charged with: interrupts, timers of the kernel's traffic
shaping and emptied caches are nobody's processor time, and on small machines they are more than half of it. A loop of
small matrix products counts how fast it goes alone and how fast beside a transfer.

    lost seconds = duration - products done / products per second alone

Called on all ranks alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Thread
from typing import Any

import torch
import torch.distributed as dist

from traces.calibrate.measured_points import typical_mean
from traces.lab.rank import Rank

STREAM_S = 0.15
"""About how long a stream lasts."""
ALONE_S = 0.05
REPEATS = 7
SIDE = 128
"""Of the matrices: 64 KiB each, which a core's own cache holds."""
BUSY_BYTES = (1 << 18, 1 << 20)
"""Sizes of the all-reduces beside compute. The wait of a round shows where the transfer itself is short."""


def lost_seconds_per_byte(rank: Rank, bytes_per_s: float) -> list[float]:
    """Core seconds that each byte of a stream from rank 0 to rank 1 takes, of each repetition; empty elsewhere.

    Never less than the processor time that this process's other threads are charged with.
    """
    tensor = torch.zeros(max(1, int(STREAM_S * bytes_per_s)), dtype=torch.uint8)
    lost = []
    for repeat in range(REPEATS + 1):
        dist.barrier()
        if rank.number > 1:
            continue
        alone_per_s = _products(lambda start_s: time.perf_counter() - start_s > ALONE_S)[0]
        charged_s = _others_s()
        work = dist.isend(tensor, 1) if rank.number == 0 else dist.irecv(tensor, 0)
        # gloo's messages end in wait() only, which therefore runs beside the products
        waiting = Thread(target=work.wait)  # type: ignore[union-attr]
        waiting.start()
        per_s, taken_s = _products(lambda _, waiting=waiting: not waiting.is_alive())  # type: ignore[misc]
        charged_s = _others_s() - charged_s
        if repeat:
            lost.append(max(taken_s * (1 - per_s / alone_per_s), charged_s, 0.0) / tensor.numel())
    return lost


def round_waits(rank: Rank, repeats: Sequence[int]) -> list[float]:
    """Seconds by which each round of an all-reduce takes longer where all ranks compute; a figure for each repetition.

    repeats: how often each of BUSY_BYTES is measured.
    """
    waits = []
    for size, count in zip(BUSY_BYTES, repeats, strict=True):
        tensor, idle_s, busy_s = torch.zeros(size // 4), [], []
        for _ in range(count + 1):
            dist.barrier()
            start_s = time.perf_counter()
            dist.all_reduce(tensor)
            idle_s.append(time.perf_counter() - start_s)
            dist.barrier()
            work = dist.all_reduce(tensor, async_op=True)
            busy_s.append(_products(lambda _, work=work: work.is_completed())[1])  # type: ignore[misc]
        usual_s = typical_mean(idle_s[1:])
        waits += [(seconds - usual_s) / (2 * (rank.ranks - 1)) for seconds in busy_s[1:]]
    return waits


def compute(seconds: float) -> None:
    """Multiply matrices for so long."""
    _products(lambda start_s: time.perf_counter() - start_s >= seconds)


def _others_s() -> float:
    """Processor seconds of this process's other threads."""
    return time.process_time() - time.thread_time()


def _products(done: Callable[[float], Any]) -> tuple[float, float]:
    """Products per second, and the seconds, until `done` says so of the start."""
    factor = torch.zeros(SIDE, SIDE)
    count, start_s = 0, time.perf_counter()
    while True:
        torch.mm(factor, factor)
        count += 1
        if done(start_s):
            taken_s = time.perf_counter() - start_s
            return count / taken_s, taken_s
