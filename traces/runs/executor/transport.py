"""Messages and all-reduces between ranks: processes by torch.distributed (gloo), or threads of one process.

Every call but `send` blocks until its tensor may be reused or has arrived, and all may be made from several threads at
once. Tensors are contiguous rows of shape (elements,).
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from simulator.errors import RunError

START_S = 2e-3
"""Seconds from when the last rank is ready until a step begins."""


def together() -> float:
    """Wait for all processes of the default group; the instant at which they go on, in seconds of CLOCK_MONOTONIC."""
    latest = torch.tensor([time.monotonic()], dtype=torch.float64)
    dist.all_reduce(latest, op=dist.ReduceOp.MAX)
    moment = float(latest) + START_S
    time.sleep(max(0.0, moment - time.monotonic()))
    return moment


class Transport(Protocol):
    """What one rank needs of the others; a device's number is its rank."""

    def send(self, row: Tensor, target: int, tag: int) -> Callable[[], None]:
        """Begin to send a row (elements,) under `tag`; what it returns waits until the row may be changed again."""

    def receive(self, row: Tensor, source: int, tag: int) -> None:
        """Fill a row (elements,) with what `source` sent under `tag`."""

    def swap(self, row: Tensor, target: int, room: Tensor, source: int, tag: int) -> None:
        """Send a row (elements,) and, at once, fill another with what `source` sent under `tag`; rows of none rest."""

    def all_reduce(self, row: Tensor, group: tuple[int, ...]) -> None:
        """Replace a row (elements,) by its sum over the group, whose ranks call this in the same order."""

    def start(self) -> float:
        """Wait for all ranks; the instant at which they go on together, in seconds of CLOCK_MONOTONIC."""


class Gloo:
    """Processes of one machine, joined by the default process group; they share CLOCK_MONOTONIC.

    groups: every device group of the plan, alike on all ranks. Messages to higher ranks have connections of their own:
    gloo's thread that reads from a connection spins while another holds its lock to write, and on a core that both
    share the writer goes on at the kernel's next tick, up to 4 ms later. Ranks that send to each other at once meet
    that over one connection.
    """

    def __init__(self, groups: list[tuple[int, ...]]) -> None:
        self._groups = {group: dist.new_group(list(group)) for group in groups}
        self._upward = dist.new_group()

    def send(self, row: Tensor, target: int, tag: int) -> Callable[[], None]:
        work = dist.isend(row, target, group=self._connections(dist.get_rank(), target), tag=tag)

        def wait() -> None:
            assert work is not None  # only a rank outside of the group gets none
            work.wait()

        return wait

    def receive(self, row: Tensor, source: int, tag: int) -> None:
        dist.recv(row, source, group=self._connections(source, dist.get_rank()), tag=tag)

    def swap(self, row: Tensor, target: int, room: Tensor, source: int, tag: int) -> None:
        wait = self.send(row.contiguous(), target, tag) if row.numel() else None
        if room.numel():
            self.receive(room, source, tag)
        if wait is not None:
            wait()

    def all_reduce(self, row: Tensor, group: tuple[int, ...]) -> None:
        dist.all_reduce(row, group=self._groups[group])

    def start(self) -> float:
        return together()

    def _connections(self, source: int, target: int) -> dist.ProcessGroup | None:
        """Those of messages from one rank to another; None is the default group."""
        return self._upward if source < target else None


class ThreadGroup:
    """What threads that stand for ranks share: queues, and a barrier; a wait of over `timeout_s` seconds fails."""

    def __init__(self, ranks: int, timeout_s: float = 60.0) -> None:
        self.timeout_s = timeout_s
        self._queues: dict[tuple[int, int, int], SimpleQueue[Tensor]] = defaultdict(SimpleQueue)
        self.starts_s: list[float] = []
        self.barrier = threading.Barrier(ranks)
        self._lock = threading.Lock()
        self._reductions: dict[tuple[int, ...], _Reduction] = {}

    def queue(self, source: int, target: int, tag: int) -> SimpleQueue[Tensor]:
        with self._lock:
            return self._queues[source, target, tag]

    def reduction(self, group: tuple[int, ...]) -> _Reduction:
        with self._lock:
            return self._reductions.setdefault(group, _Reduction(len(group)))


class Threads:
    """The transport of one rank of a ThreadGroup."""

    def __init__(self, threads: ThreadGroup, rank: int) -> None:
        self._threads, self._rank = threads, rank

    def send(self, row: Tensor, target: int, tag: int) -> Callable[[], None]:
        self._threads.queue(self._rank, target, tag).put(row.clone())
        return lambda: None

    def receive(self, row: Tensor, source: int, tag: int) -> None:
        try:
            row.copy_(self._threads.queue(source, self._rank, tag).get(timeout=self._threads.timeout_s))
        except Empty:
            raise RunError(
                f"rank {self._rank} waited {self._threads.timeout_s:g} s for task {tag} of rank {source}"
            ) from None

    def swap(self, row: Tensor, target: int, room: Tensor, source: int, tag: int) -> None:
        if row.numel():
            self.send(row, target, tag)
        if room.numel():
            self.receive(room, source, tag)

    def all_reduce(self, row: Tensor, group: tuple[int, ...]) -> None:
        reduction = self._threads.reduction(group)
        reduction.rows[self._rank] = row.clone()
        reduction.barrier.wait(self._threads.timeout_s)
        row.copy_(torch.stack([reduction.rows[rank] for rank in group]).sum(0))  # (ranks, elements) -> (elements,)
        reduction.barrier.wait(self._threads.timeout_s)

    def start(self) -> float:
        if self._threads.barrier.wait(self._threads.timeout_s) == 0:
            self._threads.starts_s.append(time.monotonic())
        self._threads.barrier.wait(self._threads.timeout_s)
        return self._threads.starts_s[-1]


class _Reduction:
    """The rows that the ranks of a group add up in an all-reduce."""

    def __init__(self, ranks: int) -> None:
        self.barrier = threading.Barrier(ranks)
        self.rows: dict[int, Tensor] = {}  # by rank
