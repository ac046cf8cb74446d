"""What each rank does to measure the links: messages between pairs, and collectives of the first N.

Every function is called on all ranks alike and starts with a barrier; ranks that have no part wait in the next. Sizes
are in bytes, rates in bytes per second, results in seconds.

Before each message and each collective the links rest while the ranks compute, as between those of a training step.
Whatever shapes a link by a token bucket lets so much pass at full speed after a rest, which transfers one right after
the other would not show: 65 kB take 0.4 instead of 1.4 ms at 200 Mbit/s with a bucket of 125 kB.

Messages there and back have connections of their own and receives that are posted before. gloo's thread that reads
from a connection spins while another holds its lock to write to it, and on a core that both share the writer goes on at
the kernel's next tick, up to 4 ms later. A ping-pong over one connection meets that in many of its turns (4 to 32 kB
took 0.05 or 2 ms), a message to a rank that waits for it hardly ever, an all-reduce as often in a step as here.

A size is measured again while its times lie apart, as they do there and on a machine whose cores others take at times.

What communication and compute take from each other on a rank is core time per byte, and how long a round waits. That
core time is what compute loses, not what this process is charged with: interrupts, timers of the kernel's traffic
shaping and emptied caches are nobody's processor time, and on small machines they are more than half of it. A loop of
small matrix products counts how fast it goes alone and how fast beside a transfer.

    lost seconds = duration - products done / products per second alone
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import torch
import torch.distributed as dist

from traces.calibrate.median_calibration import typical_mean
from traces.capture.machine_settings import StolenTime
from traces.capture.measurement_rounds import median, spread
from traces.lab.child_processes import usable_cores
from traces.lab.rank import Rank

MEASURED_S = 0.2
"""About how long to measure each size at least, within MIN_REPEATS and MAX_REPEATS: short, as passes are several, and
what disturbs a machine lasts longer than one."""
MIN_REPEATS, MAX_REPEATS = 3, 30
STEADY = 0.05
"""A size is measured on while the interquartile range is a larger share of the median, up to MAX_REPEATS times ..."""
LONGEST_MEASURED_S = 1.0
"""... and until its transfers took so long."""
RESTS, SHORTEST_REST_S, LONGEST_REST_S = 3.0, 5e-3, 0.05
"""How many times as long as the last transfer the links rest, within these: at least longer than a kernel's tick, so
that the other rank waits, and its word that it does has been read."""
STREAM_S = 0.15
"""About how long a stream lasts."""
ALONE_S = 0.05
REPEATS = 7
SIDE = 128
"""Of the matrices: 64 KiB each, which a core's own cache holds."""
BUSY_BYTES = (1 << 18, 1 << 20)
"""Sizes of the all-reduces beside compute. The wait of a round shows where the transfer itself is short."""


def measure(
    rank: Rank,
    pairs: Sequence[Sequence[int]],
    counts: Sequence[int],
    collectives: Sequence[str],
    sizes: Sequence[int],
    rates: Sequence[float],
) -> dict[str, Any]:
    """On every rank: the seconds of each repetition of what was measured, and where this rank computes.

    messages: per pair and size. collectives: {name: per count and size}, empty where this rank is not among the count.
    stolen_share: the share of core time that the machine's host took meanwhile, None where it is not known.
    """
    stolen = StolenTime()
    warnings.simplefilter("ignore", FutureWarning)  # torch renames collectives whose old names gloo's users still use
    messages = []
    for pair, rate in zip(pairs, rates, strict=True):
        rank.doing(f"messages between {pair[0]} and {pair[1]}")
        messages.append(_messages(rank, pair, sizes, rate))
    slowest = min(rates)
    times: dict[str, list[Any]] = {name: [] for name in collectives}
    for count in counts:
        group = dist.new_group(list(range(count)))
        for name in collectives:
            rank.doing(f"{name} among {count}")
            taken = [_collective(name, group, count, size, _repeats(2 * size, slowest)) for size in sizes]
            times[name].append(taken if rank.number < count else [])
    rank.doing("an all-reduce beside compute")
    waits = round_waits(rank, [_repeats(4 * size, slowest) for size in BUSY_BYTES])
    rank.doing("a stream beside compute")
    lost = lost_seconds_per_byte(rank, min(slowest, 1e9))
    return {
        "messages": messages,
        "collectives": times,
        "round_waits_s": waits,
        "lost_s_per_byte": lost,
        "cores": own_cores(),
        "stolen_share": stolen.share(),
    }


def own_cores() -> tuple[str, list[int]]:
    """This machine, and the cores that this process may use."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text().strip() if boot.exists() else "", usable_cores()


def _repeats(size_bytes: int, bytes_per_s: float) -> int:
    return max(MIN_REPEATS, min(MAX_REPEATS, int(MEASURED_S * bytes_per_s / (2 * size_bytes))))


def _unsteady(seconds: Sequence[float], repeats: int) -> bool:
    """Whether to measure once more: always until `repeats` times, then while the times lie apart."""
    if len(seconds) < repeats:
        return True
    apart = spread(seconds) > STEADY * median(seconds)
    return apart and len(seconds) < MAX_REPEATS and sum(seconds) < LONGEST_MEASURED_S


def _agree(group: Any, unsteady: bool) -> bool:
    """Whether any rank of the group wants to measure once more; a barrier, too."""
    wish = torch.tensor([int(unsteady)])
    dist.all_reduce(wish, dist.ReduceOp.MAX, group=group)
    return bool(wish)


def _messages(rank: Rank, pair: Sequence[int], sizes: Sequence[int], rate: float) -> list[list[float]]:
    """Half the time of a message there and back, of each size and repetition but the first; nothing on other ranks."""
    there, back = dist.new_group(), dist.new_group()
    return [_there_and_back(rank, pair, (there, back), size, _repeats(size, rate)) for size in sizes]


def _there_and_back(rank: Rank, pair: Sequence[int], ways: Sequence[Any], size: int, repeats: int) -> list[float]:
    """What `_messages` returns of one size; ways: the process groups of messages there, and of those back."""
    dist.barrier()
    if rank.number not in pair:
        return []
    (first, second), (there, back) = pair, ways
    sent, received, again = *torch.zeros(2, size, dtype=torch.uint8), torch.ones(1, dtype=torch.uint8)
    seconds = [0.0]
    while True:
        if rank.number == first:
            again[0] = _unsteady(seconds[2:], repeats)
            dist.send(again, second)
        else:
            dist.recv(again, first)
        if not again:
            return seconds[2:]
        if rank.number == second:
            dist.recv(received, first, group=there)
            dist.send(sent, first, group=back)
            continue
        came = dist.irecv(received, second, group=back)
        _rest(seconds[-1])
        start = time.perf_counter()
        dist.send(sent, second, group=there)
        if came is not None:  # only a rank outside of the group gets none
            came.wait()
        seconds.append((time.perf_counter() - start) / 2)


def _collective(name: str, group: Any, count: int, size: int, repeats: int) -> list[float]:
    """Of each repetition but the first; size: of the whole tensor, which a rank has before or after."""
    if group == dist.GroupMember.NON_GROUP_MEMBER:
        return []
    run, seconds = _prepared(name, group, count, size), [0.0]
    while _agree(group, _unsteady(seconds[2:], repeats)):
        _rest(seconds[-1])
        dist.barrier(group)
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return seconds[2:]


def _rest(transfer_s: float) -> None:
    """Compute while the links rest from a transfer that took so long."""
    compute(min(max(RESTS * transfer_s, SHORTEST_REST_S), LONGEST_REST_S))


def _prepared(name: str, group: Any, count: int, size: int) -> Callable[[], Any]:
    part = torch.zeros(max(size // 4 // count, 1))
    whole = torch.zeros(count * len(part))
    if name == "all_gather":
        return partial(dist.all_gather_into_tensor, whole, part, group=group)
    if name == "reduce_scatter":
        return partial(dist.reduce_scatter_tensor, part, whole, group=group)
    return partial(dist.all_reduce, torch.zeros(max(size // 4, 1)), group=group)


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
