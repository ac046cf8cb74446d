"""Ordinary graph partitioning by METIS of the shards that the hypergraph strategy cuts, to compare the two.

An edge joins two shards, so a piece that several shards of one device read is counted once for each of them,
though it crosses once: the cut overstates the volume, and METIS (Karypis and Kumar, SIAM J. Sci. Comput. 20(1), 1998)
minimises something else than what is sent. The replicas of a parameter are joined pairwise, the usual way to make
edges of a net: each of k shards has its net's weight / (k - 1) to every other.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations

import numpy as np

from partitioners._hypergraphs.hypergraph import Grid, grid_of
from partitioners._hypergraphs.kahypar import MOST_IMBALANCE, integers
from simulator.cluster import Cluster
from simulator.errors import InputError, needing, require_from_0
from simulator.lowering.sharded_model import ShardedModel
from simulator.plan import Partition, Plan, StepSettings
from simulator.taskgraph import Floats, Ints
from simulator.workload import Profile

Edges = dict[tuple[int, int], float]
"""Bytes of one step between two vertices, the smaller first."""


def partition(
    profile: Profile,
    cluster: Cluster,
    step: StepSettings,
    *,
    grid: tuple[int, int] | None = None,
    imbalance: float = 0.03,
    seed: int = 0,
) -> Partition:
    """The parts of the least edge cut, each at most its share of the compute x (1 + imbalance), as METIS finds them.

    grid: (sample, channel) slots of every layer, by default 8 x 8, or workers x 4 of more than 8 workers, with at
    most as many sample slots as samples. A worker's share follows its speed.
    Raises InputError when there are fewer shards than workers, MissingExtraError without pymetis.
    """
    require_from_0("imbalance", imbalance, MOST_IMBALANCE)
    workers = cluster.workers
    slots = grid or ((8, 8) if workers <= 8 else (workers, 4))
    samples = slots[0] if grid else min(slots[0], step.microbatch_size)
    made = grid_of(profile, samples, slots[1], batch_size=step.batch_size, microbatches=step.microbatches or 1)
    if made.vertices < workers:
        raise InputError(
            f"grid: {samples}x{slots[1]} makes {made.vertices} shards of {profile.model!r} for {workers} devices, and "
            f"each gets at least one; use a finer grid, a larger batch or at most {made.vertices} devices"
        )
    vertices, edges = shard_graph(profile, made)
    speeds = np.array(cluster.speeds[:workers])
    parts = cut(vertices, edges, speeds / speeds.sum(), imbalance=imbalance, seed=seed)
    return Partition(placements=made.placements(profile, parts))


def shard_graph(profile: Profile, grid: Grid) -> tuple[Floats, Edges]:
    """Compute seconds of every vertex of `grid`, and the bytes of a step between any two."""
    own = grid.placements(profile, np.arange(grid.vertices))
    plan = Plan(model=profile.model, batch_size=grid.batch_size, microbatches=grid.microbatches, placements=own)
    model = ShardedModel(profile, plan)
    seconds = np.zeros(grid.vertices)
    edges: defaultdict[tuple[int, int], float] = defaultdict(float)
    for position, vertex in enumerate(grid.vertex):
        np.add.at(seconds, vertex, model.pass_seconds(position).sum(axis=0) * grid.microbatches)
        reads, each = model.reads(position), profile.element_bytes(position)
        sizes = (reads.high - reads.low).prod(axis=1) * (2 * each * grid.microbatches)
        columns = zip(reads.producer, reads.consumer, reads.shard, sizes.tolist(), strict=True)
        for producer, consumer, shard, size in columns:
            pair = int(vertex[producer]), int(grid.vertex[consumer][shard])
            if pair[0] != pair[1]:
                edges[min(pair), max(pair)] += size
    for piece in model.replicas:
        for pair in combinations(piece.devices, 2):
            edges[pair] += 2 * piece.parameter_bytes / (len(piece.devices) - 1)
    return seconds, dict(edges)


def cut(vertices: Floats, edges: Edges, shares: Floats, *, imbalance: float = 0.03, seed: int = 0) -> Ints:
    """The part of every vertex, shape (vertices,); part p gets about shares[p] of the weight, and the cut is small.

    Raises MissingExtraError without pymetis.
    """
    with needing("pymetis", "metis"):
        import pymetis
    if len(shares) == 1:
        return np.zeros(len(vertices), dtype=np.int64)
    pairs = np.array(list(edges), dtype=np.int64).reshape(-1, 2)  # (edges, 2)
    source, target = np.concatenate([pairs, pairs[:, ::-1]]).T  # each (2 edges,): every edge in both directions
    order = np.lexsort((target, source))
    weights = np.array(list(edges.values()) * 2)[order]
    start = np.searchsorted(source[order], np.arange(len(vertices) + 1))
    partitioned = pymetis.part_graph(
        len(shares),
        pymetis.CSRAdjacency(start.tolist(), target[order].tolist()),
        vweights=integers(vertices),
        eweights=integers(weights),
        tpwgts=shares.tolist(),
        options=pymetis.Options(seed=seed, ufactor=max(1, round(1000 * imbalance))),
    )
    return np.array(partitioned.vertex_part, dtype=np.int64)
