"""Lower bounds on the steps of many cuts into stages at once, without lowering them.

Of one micro-batch, a layer's *head* is the longest path of forward passes and messages before it, its *tail* that of
messages and backward passes after it, its *span* that from the begin of its forward to the end of its backward pass.

- A device starts no earlier than the least head of its layers and computes all M micro-batches of them; then what it
  computed last has its tail still to come, or the device its synchronisation and update:
  step >= head + M x (forward + backward) + max(tail, synchronisation, update)
- Where a schedule lets a device begin a micro-batch only after the one w before it has come back (1F1B: w is the number
  of stages from here to the last), M micro-batches need as many spans: step >= head + ceil(M / w) x span + tail
- A link carries all activations and gradients of the stages on both its sides.

What links carry for others in the meantime and what runtimes add only make a step longer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from partitioners._stages.contiguous import StageCut
from partitioners._stages.stage_costs import ring_s
from partitioners._stages.stage_layout import Rings, StageLayout, stage_layout
from simulator.cluster import Cluster
from simulator.lowering import schedules
from simulator.network.transfers import Paths, link_speeds, paths
from simulator.plan import StepSettings
from simulator.taskgraph import Floats, Ints
from simulator.workload import Profile


def step_bounds_s(
    profile: Profile, cluster: Cluster, step: StepSettings, schedule: str, cuts: Sequence[StageCut]
) -> tuple[Floats, Floats]:
    """At least so many seconds takes a step of each of the K cuts, and rather so many: with links one at a time, (K,).

    Paths and the busiest link overlap wholly in the first and not at all in the second.
    """
    layout, speeds = stage_layout(profile, cluster, step, schedule, cuts), link_speeds(cluster)
    s_per_byte = np.where(speeds.curved, 0.0, 1 / speeds.bandwidth_bytes_per_s)
    links_s = (layout.carried_bytes * s_per_byte).max(axis=1, initial=0.0)[layout.carried_row]
    known, by_device_s = schedules.load(schedule), layout.busy_s
    if not (known.stashes_weights or known.splits_backward):  # passes that nobody waits for fill the ends
        by_device_s = _by_device_s(layout, paths(layout.routes, cluster, layout.kept))
    longest_s = by_device_s.max(axis=1)
    return np.maximum(longest_s, links_s), longest_s + links_s


def _by_device_s(layout: StageLayout, over: Paths) -> Floats:
    """The bounds of each first device of a group, shape (K, D); over: the layout's routes."""
    heads_s, tails_s, spans_s = chains(layout, *messages_seconds(layout, over))
    begins_s, drains_s = (layout.groups.joined(seconds, np.minimum) for seconds in (heads_s, tails_s))
    ends_s = layout.update_s
    if layout.rings:
        ends_s = np.maximum(_sums_seconds(layout.rings, over, ends_s.shape) - layout.last_backward_s, ends_s)
    by_device_s = begins_s + layout.busy_s + np.maximum(drains_s, ends_s)
    rounds_s = layout.rounds * layout.groups.joined(spans_s, np.maximum)
    return np.asarray(np.maximum(by_device_s, begins_s + rounds_s + drains_s))


class _Row(NamedTuple):
    """Layers `first` to `last`, each of which reads only the one before it and alone does; leaving: the edges from the
    last, each with its reader."""

    first: int
    last: int
    leaving: tuple[tuple[int, int], ...]


def _rows(layers: int, edges: tuple[tuple[int, int], ...]) -> tuple[tuple[_Row, ...], Ints, Ints]:
    """The layers in rows, the edges inside these and the layers that these leave."""
    readers, inputs = (Counter(end[side] for end in edges) for side in (0, 1))
    inner = [
        number
        for number, (source, reader) in enumerate(edges)
        if reader == source + 1 and readers[source] == inputs[reader] == 1
    ]
    begins = sorted(set(range(layers)) - {edges[number][1] for number in inner})
    leaving: dict[int, list[tuple[int, int]]] = {}
    for number in set(range(len(edges))).difference(inner):
        leaving.setdefault(edges[number][0], []).append((number, edges[number][1]))
    ends = [*(begin - 1 for begin in begins[1:]), layers - 1]
    rows = [_Row(first, last, tuple(leaving.get(last, ()))) for first, last in zip(begins, ends, strict=True)]
    sources = [edges[number][0] for number in inner]
    return tuple(rows), np.array(inner, dtype=np.int64), np.array(sources, dtype=np.int64)


def chains(layout: StageLayout, there_s: Floats, back_s: Floats) -> tuple[Floats, Floats, Floats]:
    """Heads, tails and spans of every layer of one micro-batch, shape (L, K) each; messages: of each edge, (E, K).

    Along a row of layers they are sums from one end on, elsewhere the longest of several.
    """
    layers, cuts = layout.forward_s.shape
    rows, inner, source = _rows(layers, layout.edges)
    passes_s = np.stack([layout.forward_s, layout.backward_s], axis=1)  # (L, 2, K)
    messages_s = np.stack([there_s, back_s], axis=1)  # (E, 2, K)
    onward_s = np.zeros((layers, 2, 2, cuts))  # a layer's passes, and the messages to the next of its row
    onward_s[:, 0], onward_s[source, 1] = passes_s, messages_s[inner]
    ends_s, span_s = np.zeros(passes_s.shape), layout.forward_s + layout.backward_s
    for row in rows:
        steps_s = onward_s[row.first : row.last].reshape(-1, 2, cuts)
        ends_s[row.first + 1 : row.last + 1] = np.cumsum(np.concatenate([ends_s[[row.first]], steps_s]), axis=0)[2::2]
        for edge, reader in row.leaving:
            path_s = ends_s[row.last] + passes_s[row.last] + messages_s[edge]
            np.maximum(ends_s[reader], path_s, out=ends_s[reader])
    around_s = np.zeros((layers, 3, cuts))  # beside the span of the next of its row; from the last layer on
    around_s[layers - 1 - source, 0] = layout.forward_s[source] + there_s[inner]
    around_s[layers - 1 - source, 1] = back_s[inner]
    around_s[:, 2] = layout.backward_s[::-1]
    for row in reversed(rows):
        forward_s, backward_s = passes_s[row.last]
        for edge, reader in row.leaving:
            path_s = forward_s + there_s[edge] + span_s[reader] + back_s[edge] + backward_s
            np.maximum(span_s[row.last], path_s, out=span_s[row.last])
        beside_s = around_s[layers - row.last : layers - row.first].reshape(-1, cuts)
        span_s[row.first : row.last] = np.cumsum(np.concatenate([span_s[[row.last]], beside_s]), axis=0)[3::3][::-1]
    return ends_s[:, 0], ends_s[:, 1], span_s


def messages_seconds(layout: StageLayout, over: Paths) -> tuple[Floats, Floats]:
    """Of each layer's output to each reader, there and back, shape (E, K) each: the quicker of the outer pairs.

    None inside a group; nothing of links with measured curves, which the bound leaves out.
    """
    latency_s = np.where(over.measured, 0.0, over.delay_s)
    s_per_byte = np.where(over.measured, 0.0, 1 / over.rate_bytes_per_s)
    seconds = np.zeros((2, *layout.apart.shape))
    seconds[:, layout.apart] = (latency_s[layout.ways] + layout.sent_bytes * s_per_byte[layout.ways]).min(axis=1)
    return seconds[0], seconds[1]


def _sums_seconds(rings: Rings, over: Paths, shape: tuple[int, ...]) -> Floats:
    """Seconds in which each group sums its gradients, on links that it has for itself, shape (K, D); as `ring_s`."""
    slowest = np.minimum.reduceat(over.rate_bytes_per_s, rings.first_way)
    latency_s = np.maximum.reduceat(over.delay_s, rings.first_way)
    sums_s = np.zeros(shape)
    of = rings.ring
    sums_s.ravel()[rings.cell] = ring_s(rings.members[of], slowest[of], latency_s[of], rings.sent_bytes)
    return sums_s
