"""A new cut of a network that stays close to the old one, because parameters that change places have to move.

Every device of the old plan becomes an anchor: a vertex without weight that is fixed to its part. Every parameter
piece becomes one more net, over the shards that use it and the anchors of the devices that hold it, at the piece's
bytes times `migration`. A part outside the holders adds 1 to what the net touches, so that

    connectivity = volume of a step + migration x bytes that move + what stays whatever the cut

(the repartitioning model of Catalyurek et al., IPDPS 2007, with copies in place of single owners). A job that takes n
steps until the next change pays each moved byte once and each byte of the volume n times: migration = 1 / n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from partitioners._hypergraphs.hypergraph import Grid, Hypergraph, build, grid_of
from partitioners._hypergraphs.kahypar import cut
from simulator.cluster import Cluster
from simulator.elastic.movement import Placed, movement
from simulator.errors import require
from simulator.lowering.exchange.shard_regions import Interval, channel_bytes, split
from simulator.lowering.parameters.replicas import replicas_of
from simulator.ordered_sum import ordered_sum
from simulator.plan import Plan
from simulator.run import step_seconds
from simulator.runtime import IDEAL, Runtime
from simulator.taskgraph import Ints
from simulator.workload import Profile


def repartition(
    profile: Profile,
    cluster: Cluster,
    old: Plan,
    *,
    migration: float,
    runtime: Runtime = IDEAL,
    grid: tuple[int, int] = (8, 8),
    imbalance: float = 0.1,
    seed: int = 0,
    tries: int = 3,
) -> Plan:
    """`old` cut anew for `cluster`, the best of `tries` by simulated step + migration x seconds of moving.

    Devices of `old` beyond the cluster's workers are gone. The batch and all else stay as they were.
    Raises InputError when the grid is finer than the samples or coarser than the devices.
    """
    made = grid_of(profile, *grid, batch_size=old.batch_size, microbatches=old.microbatches)
    everyone = tuple(range(max(cluster.workers, *(device + 1 for device in old.devices))))
    before, here = Placed(plan=old, members=everyone), range(cluster.workers)
    share = [speed / ordered_sum(cluster.speeds[: cluster.workers]) for speed in cluster.speeds[: cluster.workers]]

    def cost_s(plan: Plan) -> float:
        moved = movement(profile, cluster, before, Placed(plan=plan, members=everyone), here)
        return step_seconds(profile, cluster, plan, runtime) + migration * moved.seconds(cluster)

    cuts = (
        cut_close_to(profile, made, old, share, migration=migration, imbalance=imbalance, seed=seed + number)
        for number in range(tries)
    )
    plans = [
        replace(old, placements=made.placements(profile, parts), schedule="dataflow", strategy="hypergraph")
        for parts in cuts
    ]
    return min(plans, key=cost_s)


def cut_close_to(
    profile: Profile, grid: Grid, old: Plan, shares: Sequence[float], *, migration: float, imbalance: float, seed: int
) -> Ints:
    """The part of every vertex of `grid`, shape (vertices,), cut with the devices of `old` in view.

    old: numbered as the parts; shards on devices beyond them are gone, and what only those held weighs nothing.
    """
    require(migration >= 0, "migration", migration, "it is at least 0")
    anchored, anchors = with_anchors(profile, grid, old, len(shares), migration)
    fixed = {vertex: part for part, vertex in enumerate(anchors)}
    return cut(anchored, shares, imbalance=imbalance, seed=seed, fixed=fixed)[: grid.vertices]


def with_anchors(profile: Profile, grid: Grid, old: Plan, parts: int, migration: float) -> tuple[Hypergraph, range]:
    """The hypergraph of `grid` with migration nets, and its anchors, one vertex for each part."""
    plain = build(profile, grid)
    anchors = range(grid.vertices, grid.vertices + parts)
    nets, weights = [], []
    for position, vertex in enumerate(grid.vertex):
        layer = profile.layers[position]
        degrees = grid.degrees[position]
        for slot, interval in enumerate(split(layer.channels, degrees[1])):
            size = channel_bytes(layer.parameter_bytes, layer.channels, interval) * (1 + old.optimizer_state)
            holders = _holders(profile, old, position, interval) & set(range(parts))
            if size and holders:
                users = np.unique(vertex.reshape(degrees)[:, slot])
                nets.append(np.concatenate([users, [anchors[part] for part in sorted(holders)]]))
                weights.append(size * migration)
    if not weights or not migration:
        return replace(plain, vertex_weights=np.concatenate([plain.vertex_weights, np.zeros(parts)])), anchors
    ends = np.cumsum([len(net) for net in nets])
    return Hypergraph(
        vertex_weights=np.concatenate([plain.vertex_weights, np.zeros(parts)]),
        net_weights=np.concatenate([plain.net_weights, weights]),
        net_start=np.concatenate([plain.net_start, plain.net_start[-1] + ends]),
        pins=np.concatenate([plain.pins, *nets]).astype(np.int64),
    ), anchors


def _holders(profile: Profile, old: Plan, position: int, interval: Interval) -> set[int]:
    """The devices that hold all of an interval of a layer's channels."""
    layer = profile.layers[position]
    slots = split(layer.channels, old.placements[layer.name].degrees[1])
    covered_by: dict[int, int] = {}
    for piece in replicas_of(profile, old.placements):
        if piece.layer == position:
            first, last = slots[piece.slot]
            covered = max(min(last, interval[1]) - max(first, interval[0]), 0)
            for device in piece.devices:
                covered_by[device] = covered_by.get(device, 0) + covered
    return {device for device, covered in covered_by.items() if covered == interval[1] - interval[0]}
