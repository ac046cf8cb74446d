"""Which transfer of the graph carries what: its exchanges' tasks joined to the moves of their edges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial

import numpy as np

from simulator.lowering.sharded_model import ShardedModel
from simulator.taskgraph import Kind, Route, TaskGraph
from traces.runs.executor.edge_moves import EdgeMove, EdgeMoves, edge_moves


class Phase(Enum):
    """What a tensor is of a layer's output in one micro-batch: AGAIN is the output of a recomputed layer, once more."""

    FORWARD = "forward"
    AGAIN = "again"
    BACKWARD = "backward"


@dataclass(frozen=True, slots=True)
class TaskMove:
    """What a transfer carries: a move of a layer's tensor. members: of a collective, in the order of their ring."""

    layer: int
    phase: Phase
    move: EdgeMove
    members: tuple[int, ...]


def edges_of(model: ShardedModel) -> dict[tuple[int, Phase], EdgeMoves]:
    """By layer and phase, what moves; only of layers that others read, and again of those recomputed with a reader."""
    edges: dict[tuple[int, Phase], EdgeMoves] = {}
    for position, readers in enumerate(model.profile.consumers):
        draw = partial(edge_moves, exchange=model.plan.exchange, plain=model.has_plain_edge[position])
        if readers:
            edges[position, Phase.FORWARD] = draw(*model.edge(position), backward=False)
            edges[position, Phase.BACKWARD] = draw(*model.edge(position), backward=True)
        again = model.recomputed_readers(position)
        if again:
            edges[position, Phase.AGAIN] = draw(*model.edge(position, again), backward=False)
    return edges


def task_moves(graph: TaskGraph, edges: Mapping[tuple[int, Phase], EdgeMoves]) -> dict[int, TaskMove]:
    """By task, what every activation and gradient of the graph carries."""
    waiting: dict[tuple[object, ...], list[tuple[int, Phase, EdgeMove]]] = defaultdict(list)
    for (layer, phase), edge in edges.items():  # FORWARD before AGAIN, as in the graph
        kind = Kind.GRADIENT if phase == Phase.BACKWARD else Kind.ACTIVATION
        for move in edge.moves:
            waiting[kind, layer, move.pattern == "message", move.box, move.devices].append((layer, phase, move))
    joined: dict[int, TaskMove] = {}
    used: dict[tuple[object, ...], int] = defaultdict(int)
    for task in np.flatnonzero(np.isin(graph.kind, (Kind.ACTIVATION, Kind.GRADIENT))).tolist():
        members = tuple(_members(graph.routes[graph.route[task]]))
        message = len(graph.routes[graph.route[task]].pairs) == 1
        devices = members if message else tuple(sorted(members))
        key = Kind(graph.kind[task]), int(graph.layer[task]), message, int(graph.shard[task]), devices
        number = used[key, int(graph.microbatch[task])]
        used[key, int(graph.microbatch[task])] += 1
        joined[task] = TaskMove(*waiting[key][number], members)
    return joined


def _members(route: Route) -> Iterator[int]:
    """Source and target of a message; the senders of a collective in their order."""
    if len(route.pairs) == 1:
        yield from route.pairs[0]
    else:
        yield from dict.fromkeys(source for source, _ in route.pairs)
