"""The hypergraph of one plan over all axes: its connectivity cut is the plan's communication volume, exactly.

Vertices are the plan's shards and, for every sum of terms, the sum, on the device that adds it up. A piece of a tensor
has a reduction net (its terms and the sum) and a distribution net (the sum and the shards that need it); with a single
term the two are one net. Copies make nets depend on who holds what, so that these nets are of the plan, while
`_hypergraph` has those of a grid, for partitioning.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from partitioners._hypergraphs.hypergraph import Hypergraph, joined_nets
from simulator.lowering.exchange.exchange_pieces import Piece, pieces_of
from simulator.lowering.exchange.reshard import groups_of
from simulator.lowering.parameters.replicas import Replicas
from simulator.lowering.sharded_model import ShardedModel
from simulator.taskgraph import Floats, Ints


def connectivity(hypergraph: Hypergraph, parts: Sequence[int] | Ints) -> float:
    """Sum over nets of (distinct parts - 1) x weight: the bytes that cross."""
    nets = np.split(np.asarray(parts, dtype=np.int64)[hypergraph.pins], hypergraph.net_start[1:-1])
    return float(
        sum((len(set(net.tolist())) - 1) * weight for net, weight in zip(nets, hypergraph.net_weights, strict=False))
    )


def plan_hypergraph(model: ShardedModel) -> tuple[Hypergraph, Ints]:
    """The hypergraph of the plan and the device of each of its vertices, shape (vertices,)."""
    count, times = len(model.profile.layers), model.plan.microbatches
    first = np.cumsum([0, *(len(devices) for devices in model.devices)])
    drawing = _Nets(np.concatenate(model.devices).tolist())
    for position in range(count):
        readers = model.profile.consumers[position]
        numbers = np.concatenate([np.arange(first[r], first[r + 1]) for r in readers] or [np.zeros(0, dtype=np.int64)])
        for backward in (False, True) if readers else ():
            terms, needing = np.arange(first[position], first[position + 1]), numbers
            if backward:
                terms, needing = needing, terms
            weight = model.profile.element_bytes(position) * times
            for piece in pieces_of(*model.edge(position), backward):
                drawing.add(piece, terms, needing, piece.elements * weight)
    for parameters in model.replicas:
        if parameters.is_summed:
            drawing.add_parameters(parameters)
    weights: Floats = np.concatenate(
        [*(model.pass_seconds(i).sum(axis=0) * times for i in range(count)), np.zeros(drawing.sums)]
    )
    return joined_nets(weights, drawing.nets), np.array(drawing.device, dtype=np.int64)


class _Nets:
    """Nets in the making. device: of each vertex; a sum adds one. holder: by device, a vertex that is on it."""

    def __init__(self, device: list[int]) -> None:
        self.device, self.sums = device, 0
        self.holder = {where: vertex for vertex, where in enumerate(device)}
        self.nets: dict[tuple[int, ...], float] = {}

    def add(self, piece: Piece, terms: Ints, needing: Ints, weight: float) -> None:
        for group in groups_of(piece.terms, piece.targets):
            if group.holders:
                taken = terms[[task for tasks in group.holders.values() for task in tasks]].tolist()
                wanting = needing[[task for tasks in group.targets.values() for task in tasks]].tolist()
                if len(taken) == 1:
                    self._net((*taken, *wanting), weight)
                    continue
                total = self._sum(group.owners[0])
                self._net((*taken, total), weight)
                self._net((total, *wanting), weight)

    def add_parameters(self, piece: Replicas) -> None:
        """The nets of a parameter's gradient."""
        taken = [shard for shard in piece.shards if self.device[shard] in piece.holders]
        total = self._sum(min({*piece.holders} & {*piece.devices} or {*piece.devices}))
        self._net((*taken, total), float(piece.parameter_bytes))
        self._net((total, *(self.holder[device] for device in piece.devices)), float(piece.parameter_bytes))

    def _sum(self, device: int) -> int:
        self.device.append(device)
        self.sums += 1
        return len(self.device) - 1

    def _net(self, pins: tuple[int, ...], weight: float) -> None:
        key = tuple(sorted(set(pins)))
        self.nets[key] = self.nets.get(key, 0.0) + weight
