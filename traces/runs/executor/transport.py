"""How ranks talk: between processes through torch.distributed (gloo), or between threads of one process.

Every call blocks until its tensor has been handed over, and may be made from several threads at once.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from queue import Empty, SimpleQueue
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from simulator.errors import RunError

START_S = 2e-3
"""After all ranks have said that they are ready, how long until a step begins."""


def together() -> float:
    """Wait for all processes of the default group; the instant at which they go on, in seconds of CLOCK_MONOTONIC."""
    latest = torch.tensor([time.monotonic()], dtype=torch.float64)
    dist.all_reduce(latest, op=dist.ReduceOp.MAX)
    moment = float(latest) + START_S
    time.sleep(max(0.0, moment - time.monotonic()))
    return moment


class Transport(Protocol):
    """What one rank needs of the others; a device's number is its rank."""

    def send(self, row: Tensor, target: int, tag: int) -> None:
        """Send a contiguous tensor; returns when it may be changed again."""

    def receive(self, row: Tensor, source: int, tag: int) -> None:
        """Fill a contiguous tensor with what `source` sent under `tag`."""

    def all_reduce(self, row: Tensor, group: tuple[int, ...]) -> None:
        """Replace a tensor by its sum over the group, whose members call this in the same order."""

    def start(self) -> float:
        """Wait for all ranks; the instant at which they go on together, in seconds of CLOCK_MONOTONIC."""


class Gloo:
    """Processes of one machine, joined by the default process group; they share CLOCK_MONOTONIC.

    groups: every device group of the plan, alike on all ranks.
    """

    def __init__(self, groups: list[tuple[int, ...]]) -> None:
        self._groups = {group: dist.new_group(list(group)) for group in groups}

    def send(self, row: Tensor, target: int, tag: int) -> None:
        dist.send(row, target, tag=tag)

    def receive(self, row: Tensor, source: int, tag: int) -> None:
        dist.recv(row, source, tag=tag)

    def all_reduce(self, row: Tensor, group: tuple[int, ...]) -> None:
        dist.all_reduce(row, group=self._groups[group])

    def start(self) -> float:
        return together()


class Mailroom:
    """Where threads that stand for ranks leave messages for each other; any that waits over `timeout_s` fails."""

    def __init__(self, ranks: int, timeout_s: float = 60.0) -> None:
        self.timeout_s = timeout_s
        self.box: dict[tuple[int, int, int], SimpleQueue[Tensor]] = defaultdict(SimpleQueue)
        self.moments: list[float] = []
        self.all = threading.Barrier(ranks)
        self._lock = threading.Lock()
        self._meetings: dict[tuple[int, ...], _Meeting] = {}

    def queue(self, source: int, target: int, tag: int) -> SimpleQueue[Tensor]:
        with self._lock:
            return self.box[source, target, tag]

    def meeting(self, group: tuple[int, ...]) -> _Meeting:
        with self._lock:
            return self._meetings.setdefault(group, _Meeting(len(group)))


class Threads:
    """One rank of a Mailroom."""

    def __init__(self, room: Mailroom, rank: int) -> None:
        self._room, self._rank = room, rank

    def send(self, row: Tensor, target: int, tag: int) -> None:
        self._room.queue(self._rank, target, tag).put(row.clone())

    def receive(self, row: Tensor, source: int, tag: int) -> None:
        try:
            row.copy_(self._room.queue(source, self._rank, tag).get(timeout=self._room.timeout_s))
        except Empty:
            raise RunError(
                f"rank {self._rank} waited {self._room.timeout_s:g} s for task {tag} of rank {source}"
            ) from None

    def all_reduce(self, row: Tensor, group: tuple[int, ...]) -> None:
        meeting = self._room.meeting(group)
        meeting.rows[self._rank] = row.clone()
        meeting.barrier.wait(self._room.timeout_s)
        row.copy_(torch.stack([meeting.rows[member] for member in group]).sum(0))
        meeting.barrier.wait(self._room.timeout_s)

    def start(self) -> float:
        if self._room.all.wait(self._room.timeout_s) == 0:
            self._room.moments.append(time.monotonic())
        self._room.all.wait(self._room.timeout_s)
        return self._room.moments[-1]


class _Meeting:
    """Where the members of a group add up their rows."""

    def __init__(self, members: int) -> None:
        self.barrier = threading.Barrier(members)
        self.rows: dict[int, Tensor] = {}
