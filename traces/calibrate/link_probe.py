"""What each rank does to measure the links: messages between pairs, all-reduces among the first N, a stream.

Every function is called on all ranks alike and starts with a barrier; ranks that have no part wait in the next. Sizes
are in bytes, rates in bytes per second, results in seconds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from math import inf
from typing import Any

import torch
import torch.distributed as dist

from traces.lab.rank import Rank

MEASURED_S = 0.5
"""About how long to measure each size, within MIN_REPEATS and MAX_REPEATS."""
MIN_REPEATS, MAX_REPEATS = 4, 30
STREAM_BYTES = 1 << 22
BUSY_BYTES = 1 << 18


def measure(rank: Rank, pairs: Sequence[Sequence[int]], counts: Sequence[int], sizes: Sequence[int], rates: Any) -> Any:
    """On every rank: the seconds of each repetition, {"messages": per pair, "all_reduces": per count, "cpu": ...}."""
    messages = []
    for pair, rate in zip(pairs, rates, strict=True):
        rank.doing(f"messages between {pair[0]} and {pair[1]}")
        messages.append([_ping_pong(rank, pair, size, _repeats(size, rate)) for size in sizes])
    slowest = min(rates, default=inf)
    all_reduces = []
    for count in counts:
        rank.doing(f"all-reduce among {count}")
        group = dist.new_group(list(range(count)))
        in_group = rank.number < count
        all_reduces.append(
            [_all_reduce(group, size, _repeats(2 * size, slowest)) for size in sizes] if in_group else []
        )
    rank.doing("all-reduce beside compute")
    busy_s = _busy_latency_s(rank)
    rank.doing("stream")
    cpu = _stream(rank, _repeats(STREAM_BYTES, slowest))
    return {"messages": messages, "all_reduces": all_reduces, "cpu_s_per_byte": cpu, "busy_latency_s": busy_s}


def _repeats(size_bytes: int, bytes_per_s: float) -> int:
    return max(MIN_REPEATS, min(MAX_REPEATS, int(MEASURED_S * bytes_per_s / (2 * size_bytes))))


def _ping_pong(rank: Rank, pair: Sequence[int], size: int, repeats: int) -> list[float]:
    """Half the time of a message there and back, of each repetition but the first; nothing on other ranks."""
    dist.barrier()
    if rank.number not in pair:
        return []
    first, second = pair
    tensor = torch.zeros(size, dtype=torch.uint8)
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        if rank.number == first:
            dist.send(tensor, second)
            dist.recv(tensor, second)
        else:
            dist.recv(tensor, first)
            dist.send(tensor, first)
        seconds.append((time.perf_counter() - start) / 2)
    return seconds[1:]


def _all_reduce(group: Any, size: int, repeats: int) -> list[float]:
    tensor = torch.zeros(max(size // 4, 1))
    seconds = []
    for _ in range(repeats + 1):
        dist.barrier(group)
        start = time.perf_counter()
        dist.all_reduce(tensor, group=group)
        seconds.append(time.perf_counter() - start)
    return seconds[1:]


def _busy_latency_s(rank: Rank) -> float:
    """How much longer each round of an all-reduce takes when all ranks compute meanwhile."""
    tensor, factor = torch.zeros(BUSY_BYTES // 4), torch.zeros(128, 128)
    idle = statistics.median(_all_reduce(None, BUSY_BYTES, MAX_REPEATS))
    busy = []
    for _ in range(MAX_REPEATS):
        dist.barrier()
        start = time.perf_counter()
        work = dist.all_reduce(tensor, async_op=True)
        while not work.is_completed():
            torch.mm(factor, factor)
        busy.append(time.perf_counter() - start)
        dist.barrier()
    return max(statistics.median(busy) - idle, 0.0) / (2 * (rank.ranks - 1))


def _stream(rank: Rank, repeats: int) -> float:
    """CPU seconds per byte of this process while rank 0 streams to rank 1; 0 on other ranks."""
    dist.barrier()
    if rank.number > 1:
        return 0.0
    tensor = torch.zeros(STREAM_BYTES, dtype=torch.uint8)
    for repeat in range(repeats + 1):
        if repeat == 1:  # the first message warms up
            start = time.process_time()
        if rank.number == 0:
            dist.send(tensor, 1)
        else:
            dist.recv(tensor, 0)
    return (time.process_time() - start) / (repeats * STREAM_BYTES)
