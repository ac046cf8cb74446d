"""Local search: move border shards to another part while the simulated step gains."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from partitioners._hypergraphs.hypergraph import Grid, Hypergraph
from partitioners._judge.judge import Judge, Verdict
from simulator.report.critical_path import binding_chain
from simulator.taskgraph import Ints

Move = tuple[tuple[int, ...], int]
"""Vertices and the part that they go to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A partitioned grid and how its plan was judged."""

    grid: Grid
    hypergraph: Hypergraph
    parts: Ints
    verdict: Verdict


def migrate(judge: Judge, start: Cut, patience: int) -> None:
    """Try moves from `start` on, keeping each that is better; give up after `patience` in a row that are not.

    Shards on the chain of tasks that bound the step come first, those with most time on it before the rest,
    alone and together with the other shards of their layer on the same device.
    """
    nets = _nets_of(start.hypergraph)
    here, failures = start, 0
    moves = _moves(here, nets)
    while failures < patience and judge.budget > 0:
        move = next(moves, None)
        if move is None:
            return
        parts = here.parts.copy()
        parts[list(move[0])] = move[1]
        placements = here.grid.placements(judge.profile, parts)
        verdict = judge.consider(replace(here.verdict.plan, placements=placements), "a migration")
        if verdict.beats(here.verdict):
            here, failures = replace(here, parts=parts, verdict=verdict), 0
            moves = _moves(here, nets)
        else:
            failures += 1


def _nets_of(hypergraph: Hypergraph) -> dict[int, list[int]]:
    """The nets of each vertex."""
    nets: dict[int, list[int]] = defaultdict(list)
    owner = np.repeat(np.arange(len(hypergraph.net_weights)), np.diff(hypergraph.net_start))
    for net, pin in zip(owner.tolist(), hypergraph.pins.tolist(), strict=True):
        nets[pin].append(net)
    return nets


def _moves(cut: Cut, nets: dict[int, list[int]]) -> Iterator[Move]:
    """Moves of the vertices on the binding chain to parts that share a net with them."""
    spent: dict[int, float] = defaultdict(float)
    graph, timeline = cut.verdict.graph, cut.verdict.timeline
    for task in binding_chain(graph, timeline):
        if graph.layer[task] >= 0 and graph.microbatch[task] >= 0:
            vertex = int(cut.grid.vertex[graph.layer[task]][graph.shard[task]])
            spent[vertex] += float(timeline.end_s[task] - timeline.start_s[task])
    for vertex in sorted(spent, key=lambda v: (-spent[v], v)):
        companions = _companions(cut.grid, vertex, cut.parts)
        for part in sorted(_near(vertex, nets, cut) - {int(cut.parts[vertex])}):
            yield (vertex,), part
            if len(companions) > 1:
                yield companions, part


def _near(vertex: int, nets: dict[int, list[int]], cut: Cut) -> set[int]:
    """The parts that share a net with `vertex`."""
    hypergraph, parts = cut.hypergraph, cut.parts
    neighbours: set[int] = set()
    for net in nets[vertex]:
        pins = hypergraph.pins[hypergraph.net_start[net] : hypergraph.net_start[net + 1]]
        neighbours.update(parts[pins].tolist())
    return neighbours


def _companions(grid: Grid, vertex: int, parts: Ints) -> tuple[int, ...]:
    """The shards of the vertex's layer that are on its part."""
    for numbers in grid.vertex:
        if numbers[0] <= vertex <= numbers[-1]:
            return tuple(numbers[parts[numbers] == parts[vertex]].tolist())
    return (vertex,)
