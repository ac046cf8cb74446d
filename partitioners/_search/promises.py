"""What step the loads of a plan promise, without simulating it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from partitioners._search.link_seconds import Sum
from partitioners._search.loads import LoadTables, PlanLoads
from simulator.plan import Plan
from simulator.taskgraph import Floats


def promises_s(tables: LoadTables, loads: PlanLoads, counts: Sequence[int]) -> Floats:
    """The step that loads promise with each of these numbers of micro-batches, shape (counts,).

    The first micro-batch takes what the longest chain of layers does, or the busiest device; each other one what
    the busiest device or link does. What the last backward pass does not hide of sums comes on top.
    """
    reached_s, fixed_s, behind_s = _chains(tables.inputs, loads)
    scale = loads.base.microbatches / np.array(counts, dtype=np.float64)  # of a micro-batch, (counts,)
    exposed_s = np.zeros(len(counts))
    if buckets := _buckets(loads, tables.with_parameters):
        seconds = [tables.links.of_sum(loads.base.synchronisation, bucket) for _, bucket in buckets]
        # of each bucket and those that are ready later, by link: (buckets, links)
        waiting_s = np.cumsum([links_s for links_s, _ in seconds], axis=0)
        late_s = waiting_s.max(axis=1) + [latency_s for _, latency_s in seconds]
        behind = np.multiply.outer([behind_s[position] for position, _ in buckets], scale)  # (buckets, counts)
        exposed_s = np.maximum((late_s[:, None] - behind).max(axis=0), 0.0)
    chain_s = reached_s * scale + fixed_s
    steps_s = steps_of_loads(loads.passes_s[None], loads.links_s[None], chain_s, exposed_s, loads.base, counts)
    return steps_s.ravel()


def steps_of_loads(
    passes_s: Floats, links_s: Floats, chain_s: Floats, exposed_s: Floats, base: Plan, counts: Sequence[int]
) -> Floats:
    """Seconds of steps, shape (plans, counts).

    passes_s, links_s: as PlanLoads has them, (plans, ...); chain_s, of one micro-batch, and exposed_s, of sums that
    nothing hides: (counts,) or (plans, counts).
    """
    devices, micro = (passes_s.shape[1] - links_s.shape[1]) // 2, np.array(counts, dtype=np.float64)
    compute_s = passes_s[:, None, :devices] * (base.microbatches / micro)[:, None]
    fixed_s = passes_s[:, None, devices : 2 * devices]
    computing_s = (compute_s + fixed_s).max(axis=2)  # (plans, counts)
    sending_s = links_s.max(axis=1, initial=0.0)[:, None] / micro
    steps_s = np.maximum(chain_s, computing_s) + (micro - 1) * np.maximum(computing_s, sending_s) + exposed_s
    busiest_link_s = (passes_s[:, 2 * devices :] + links_s).max(axis=1, initial=0.0)
    at_least_s: Floats = np.maximum(steps_s, busiest_link_s[:, None])
    return at_least_s


def _chains(inputs_of: Sequence[Sequence[int]], loads: PlanLoads) -> tuple[float, float, list[float]]:
    """Seconds of the longest chain of one micro-batch, there and back, those that stay the same in a smaller one,
    and, by layer, seconds of what comes after its backward pass."""
    reached, fixed, behind, arriving = list[float](), list[float](), list[float](), list[float]()
    earlier_s, share = 0.0, 1 / loads.base.microbatches
    for own, sent, inputs in zip(loads.passes, loads.messages, inputs_of, strict=True):
        _, forward_s, backward_s, price_s, _ = own
        _, there_s, return_s, latency_s = sent
        alone_s, fixed_s, back_s = 0.0, 0.0, earlier_s
        for i in inputs:
            if reached[i] > alone_s:
                alone_s, fixed_s = reached[i], fixed[i]
            if arriving[i] > back_s:
                back_s = arriving[i]
        reached.append(alone_s + forward_s + backward_s + (there_s + return_s) * share)
        fixed.append(fixed_s + price_s + latency_s)
        behind.append(back_s)
        passing_s = backward_s + price_s / 2
        arriving.append(back_s + passing_s + return_s * share)
        earlier_s += passing_s
    last = max(range(len(reached)), key=reached.__getitem__)
    return reached[last], fixed[last], behind


def _buckets(loads: PlanLoads, with_parameters: Sequence[int]) -> list[tuple[int, Sum]]:
    """What is summed together, and the first layer of which that is the gradient, those ready last first."""
    setting, buckets = loads.base.synchronisation, list[tuple[int, Sum]]()
    held, closed = dict[tuple[int, ...], tuple[float, int]](), set[tuple[int, ...]]()
    for position in reversed(with_parameters):
        for devices, own_bytes in loads.passes[position].sums:
            size = held.get(devices, (0.0,))[0] + own_bytes
            if size < setting.filled_bytes(len(devices), first=devices not in closed):
                held[devices] = size, position
                continue
            buckets.append((position, (devices, size)))
            held.pop(devices, None)
            closed.add(devices)
    buckets += [(position, (devices, size)) for devices, (size, position) in held.items()]
    return sorted(buckets, key=lambda bucket: bucket[0])
