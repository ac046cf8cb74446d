"""Messages and all-reduces between ranks: processes joined by torch.distributed (gloo).

Every call but `send` blocks until its tensor may be reused or has arrived, and all may be made from several threads at
once. Tensors are contiguous rows of shape (elements,).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

START_S = 2e-3
"""Seconds from when the last rank is ready until a step begins."""


def together() -> float:
    """Wait for all processes of the default group; the instant at which they go on, in seconds of CLOCK_MONOTONIC."""
    latest = torch.tensor([time.monotonic()], dtype=torch.float64)
    dist.all_reduce(latest, op=dist.ReduceOp.MAX)
    moment = float(latest) + START_S
    time.sleep(max(0.0, moment - time.monotonic()))
    return moment


class Gloo:
    """What one rank needs of the others, which are processes of one machine, joined by the default process group.

    A device's number is its rank; ranks share CLOCK_MONOTONIC. groups: every device group of the plan, alike on all
    ranks. Messages to higher ranks have connections of their own: gloo's thread that reads from a connection spins
    while another holds its lock to write, and on a core that both share the writer goes on at the kernel's next tick,
    up to 4 ms later. Ranks that send to each other at once meet that over one connection.
    """

    def __init__(self, groups: list[tuple[int, ...]]) -> None:
        self._groups = {group: dist.new_group(list(group)) for group in groups}
        self._upward = dist.new_group()

    def send(self, row: Tensor, target: int, tag: int) -> Callable[[], None]:
        """Begin to send a row (elements,) under `tag`; what it returns waits until the row may be changed again."""
        work = dist.isend(row, target, group=self._connections(dist.get_rank(), target), tag=tag)

        def wait() -> None:
            assert work is not None  # only a rank outside of the group gets none
            work.wait()

        return wait

    def receive(self, row: Tensor, source: int, tag: int) -> None:
        """Fill a row (elements,) with what `source` sent under `tag`."""
        dist.recv(row, source, group=self._connections(source, dist.get_rank()), tag=tag)

    def swap(self, row: Tensor, target: int, room: Tensor, source: int, tag: int) -> None:
        """Send a row (elements,) and, at once, fill another with what `source` sent under `tag`; rows of none rest."""
        wait = self.send(row.contiguous(), target, tag) if row.numel() else None
        if room.numel():
            self.receive(room, source, tag)
        if wait is not None:
            wait()

    def all_reduce(self, row: Tensor, group: tuple[int, ...]) -> None:
        """Replace a row (elements,) by its sum over the group, whose ranks call this in the same order."""
        dist.all_reduce(row, group=self._groups[group])

    def start(self) -> float:
        """Wait for all ranks; the instant at which they go on together, in seconds of CLOCK_MONOTONIC."""
        return together()

    def _connections(self, source: int, target: int) -> dist.ProcessGroup | None:
        """Those of messages from one rank to another; None is the default group."""
        return self._upward if source < target else None


class Alone(Gloo):
    """Of a run on one device: there is nobody to wait for, or to send to."""

    def __init__(self) -> None:
        pass

    def start(self) -> float:
        return time.monotonic()
