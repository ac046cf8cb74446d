"""Ranks of the executor as threads of one process, which send each other rows in memory."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from queue import Empty, SimpleQueue

import torch
from torch import Tensor

from simulator.errors import RunError
from traces.runs.executor.transport import Gloo


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


class Threads(Gloo):
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
