"""What the ranks of the launch tests do. torch is imported inside, so that those that need none start at once."""

from __future__ import annotations

import os
import signal
import time

from simulator.errors import InputError
from traces.lab.rank import Rank


def one_way(rank: Rank, source: int, target: int, size: int, messages: int) -> float:
    """Seconds until `size` bytes from one rank have arrived at another, which says so: the least of `messages` times,
    as a shared machine delays some of them and nothing makes one faster than its link."""
    import torch
    import torch.distributed as dist

    tensor = torch.zeros(size, dtype=torch.uint8)
    times_s = []
    for _ in range(messages):
        dist.barrier()
        start = time.perf_counter()
        if rank.number == source:
            dist.send(tensor, target)
        if rank.number == target:
            dist.recv(tensor, source)
        times_s.append(time.perf_counter() - start)
    return min(times_s)


def total(rank: Rank, factor: float) -> list[float]:
    """The sum of `factor` x (1 + rank) over all ranks, by all-reduce."""
    import torch
    import torch.distributed as dist

    tensor = torch.tensor([factor * (1 + rank.number)])
    dist.all_reduce(tensor)
    return [float(tensor), torch.get_num_threads()]


def troubled(rank: Rank, trouble: str) -> None:
    """Rank 1 gets into trouble while the others wait for it."""
    rank.doing(f"forward of conv{rank.number}")
    if rank.number == 1 and trouble == "raises":
        raise ValueError("the shard is empty")
    if rank.number == 1 and trouble == "refuses":
        raise InputError("the shard is empty")
    if rank.number == 1 and trouble == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


def unequal(rank: Rank) -> None:
    """Rank 1 leaves while rank 0 waits for a message of it."""
    import torch
    import torch.distributed as dist

    rank.doing(f"message to {rank.number}")
    if rank.number == 0:
        dist.recv(torch.zeros(1), 1)


def cores(rank: Rank) -> list[int]:
    """The CPU numbers that this rank may use."""
    return sorted(os.sched_getaffinity(0))
