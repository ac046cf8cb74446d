"""Messages and collectives between ranks: processes joined by torch.distributed (gloo).

    all-reduce        the backend's own; or n equal blocks by the next two: 2(n - 1)/n of the row leave every member
    reduce-scatter    n - 1 rounds: a block goes once around the ring and gathers a term at every member
    all-gather        n - 1 rounds: every block goes once around the ring
    all-to-all        n - 1 rounds: in round s member i sends to i + s and hears from i - s

Every call but `send` blocks until its tensor may be reused or has arrived, and all may be made from several threads at
once. Tensors are contiguous rows of shape (elements,); blocks may differ in size. Members of a collective of messages
are named by their index. (Patarasuk and Yuan, J. Parallel Distrib. Comput. 69(2), 2009.)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from simulator.lowering.exchange.shard_regions import split

START_S = 2e-3
"""Seconds from when the last rank is ready until a step begins."""
Swap = Callable[[int, Tensor, int, Tensor], None]
"""(target, row to send, source, room for what comes): one message out while one comes in."""


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


def all_reduce(row: Tensor, index: int, members: int, swap: Swap) -> Tensor:
    """The sum of all members' rows, (elements,)."""
    blocks = [row[slice(*part)] for part in split(row.numel(), members)]
    own = reduce_scatter(blocks, index, swap)
    return torch.cat(all_gather(own, [block.numel() for block in blocks], index, swap))  # (elements,)


def reduce_scatter(blocks: Sequence[Tensor], index: int, swap: Swap) -> Tensor:
    """The sum of block `index` over all members; blocks: this member's terms of each."""
    count, last = len(blocks), blocks[index - 1]
    for step in range(count - 1):
        number = (index - step - 2) % count
        room = torch.empty_like(blocks[number])
        swap((index + 1) % count, last, (index - 1) % count, room)
        last = room + blocks[number]
    return last


def all_gather(row: Tensor, sizes: Sequence[int], index: int, swap: Swap) -> list[Tensor]:
    """Every member's row; sizes: elements of each."""
    count = len(sizes)
    blocks = [row.new_empty(size) for size in sizes]
    blocks[index] = row
    for step in range(count - 1):
        sent, came = (index - step) % count, (index - step - 1) % count
        swap((index + 1) % count, blocks[sent], (index - 1) % count, blocks[came])
    return blocks


def all_to_all(rows: Sequence[Tensor], sizes: Sequence[int], index: int, swap: Swap) -> list[Tensor]:
    """What every member sends here, by member; rows: what goes to each. sizes: elements of what comes from each."""
    count = len(rows)
    blocks = [rows[index].new_empty(size) for size in sizes]
    for step in range(1, count):
        target, source = (index + step) % count, (index - step) % count
        swap(target, rows[target], source, blocks[source])
    return blocks
