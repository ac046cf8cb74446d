"""What a pass of one micro-batch takes in a block, of a network of a few blocks that is alone on its devices.

Without parameters nothing is summed or updated. Each block begins so much after the one before it on the way forward,
and ends so much before it on the way back, as it adds to a pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from partitioners._grids.repeated_block import block_number
from simulator.cluster import Cluster
from simulator.engine import simulate
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower_once
from simulator.lowering.tasks.passes import pass_columns
from simulator.ordered_sum import ordered_sum
from simulator.plan import Plan
from simulator.report.memory import usage
from simulator.runtime import Runtime
from simulator.taskgraph import Kind
from simulator.workload import Profile

FEW = 3
"""Blocks of such a network: the first receives what is embedded, as no other does."""
NO_LAUNCHES: dict[str, Any] = {
    "forward_launch_s": 0.0, "backward_launch_s": 0.0, "collective_check_s": 0.0, "update_launch_s": 0.0,
    "step_overhead_s": 0.0,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PassSeconds:
    """Of one micro-batch on one device, forward and backward, for a block of one kind: seconds that it adds, of what
    stands before the blocks and of what stands behind them; bytes that it keeps from one to the other and those it has
    computed again as its backward pass begins (parts are later), and what stands behind the blocks keeps and works
    in as the loss goes back."""

    block_s: float
    before_s: float
    behind_s: float
    saved_bytes: float
    recomputed_bytes: float
    behind_bytes: float


def simulated_passes(
    computed: PassSeconds, profile: Profile, cluster: Cluster, plan: Plan, runtime: Runtime
) -> PassSeconds:
    """As computed, with the seconds from one block to the next, forward and back, and the bytes that are taken in
    between on the way forward, each where they are fewest."""
    graph = lower_once(profile, plan, cluster, runtime).graph
    timeline = simulate(graph, cluster, runtime)
    begins_s, ends_s = np.full((2, FEW, len(cluster.devices)), inf)  # ends below 0
    ways = (Kind.FORWARD, timeline.start_s, begins_s), (Kind.BACKWARD, -timeline.end_s, ends_s)
    for block in range(FEW):
        first = next(i for i, layer in enumerate(profile.layers) if block_number(layer.name) == block)
        for kind, at_s, least_s in ways:
            tasks = (graph.kind == kind) & (graph.layer == first)
            np.minimum.at(least_s[block], graph.device[tasks], at_s[tasks])
    computing = np.flatnonzero(np.isfinite(begins_s).all(axis=0))
    between_s = np.diff(begins_s[:, computing], axis=0) + np.diff(ends_s[:, computing], axis=0)
    taken_bytes = []
    for device in computing.tolist():
        times_s, held_bytes = usage(graph, timeline, cluster, device)
        begun = np.searchsorted(times_s, begins_s[:, device], side="right") - 1
        taken_bytes.append(float(np.diff(held_bytes[begun]).min()))
    return replace(
        computed,
        block_s=max(computed.block_s, float(between_s.min())),
        saved_bytes=max(computed.saved_bytes, min(taken_bytes)),
    )


def computed_passes(profile: Profile, plan: Plan, whole: bool) -> PassSeconds:
    """With the seconds that a device computes in a block; whole: whether blocks are computed again as a whole."""
    model = ShardedModel(profile, plan)
    columns, ends = pass_columns(model), profile.index["norm"]
    first = np.cumsum([0, *(len(devices) for devices in model.devices)])
    again = {name for segment in plan.recomputed for name in segment}
    block = [i for i, layer in enumerate(profile.layers) if block_number(layer.name) == 0]
    kept = [i for i in block if profile.layers[i].name not in again]

    def total(column: int, positions: Iterable[int]) -> float:
        return ordered_sum(float(columns[column, first[i]]) for i in positions)

    before, behind = range(block[0]), range(ends, len(profile.layers))
    saved = total(2, kept)
    if whole:  # a block's input stays, which is the output of the one before
        saved = total(3, [profile.index["blocks.0.add_ffn"]])
    return PassSeconds(
        block_s=2 * total(0, block) - total(0, kept) + total(1, block),
        before_s=total(0, before) + total(1, before),
        behind_s=total(0, behind) + total(1, behind),
        saved_bytes=saved,
        recomputed_bytes=total(2, block) - saved if whole else 0.0,
        behind_bytes=total(2, behind) + total(4, [profile.index["cross_entropy"]]),
    )
