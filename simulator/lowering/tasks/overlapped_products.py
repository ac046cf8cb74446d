"""Products that exchange their operands in parts while they are computed, as Transformer Engine's user buffers do.

    gather, then products     |1/n|   products      |        the rest of the gather moves beside the products,
                                  |rest of gather|           and who reads their output waits for both
    products, then scatter    |   products      |1/n|        the rest of the scatter moves beside the products,
                              |rest of scatter|              and its last part waits for both

A ring of n devices passes n parts of a matrix round. Of one part a product is computed while the next arrives, or while
the sums of the one before are sent on (Wang et al., Overlap Communication with Dependent Computation via Decomposition,
ASPLOS 2023). The message of the first part, or of the last, is beside nothing.
"""

from __future__ import annotations

import numpy as np

from simulator.distinct import distinct, places
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.tasks.graph_builder import GraphBuilder
from simulator.taskgraph import Kind

_PASSES = (Kind.FORWARD, Kind.BACKWARD, Kind.RECOMPUTE)
_COPIED = ("kind", "layer", "route", "device", "shard", "priority")


def overlap_products(builder: GraphBuilder, model: ShardedModel) -> None:
    """Let all but one part of the gathers and scatters of one micro-batch that stand next to products of layers cut by
    channels move beside these."""
    layers = zip(model.profile.layers, model.placements, strict=True)
    cut = np.array([layer.kind == "linear" and max(of.degrees[1], of.reduce) > 1 for layer, of in layers])
    for collective in ("all-gather", "reduce-scatter"):  # the second waits for what the first adds
        gathers, (later, earlier) = collective == "all-gather", builder.edges()
        near, far = (earlier, later) if gathers else (later, earlier)
        route, passes = builder.column("route"), np.isin(builder.column("kind"), _PASSES)
        product = (route < 0) & passes & cut[builder.column("layer")]
        sizes = [len(each.devices) if each.collective == collective else 0 for each in builder.routes]
        members = np.append(sizes, 0)[route]  # by task, 0 where it is no such transfer
        beside = np.flatnonzero((members[near] > 0) & product[far])
        if not len(beside):
            continue
        transfers = distinct(near[beside])
        columns = {name: builder.column(name)[transfers] for name in _COPIED}
        size, part = builder.column("bytes")[transfers], 1 / members[transfers]
        rest = builder.add(columns.pop("kind"), len(transfers), bytes=size * (1 - part), **columns)
        builder.column("bytes")[transfers] = size * part
        order = np.argsort(near, kind="stable")
        counts, at = places(near[order], far[beside])
        of_products = rest[np.searchsorted(transfers, np.repeat(near[beside], counts))]
        if gathers:
            builder.depend(rest, transfers)
            builder.depend(far[order[at]], of_products)
        else:
            builder.depend(transfers, rest)
            builder.depend(of_products, far[order[at]])
