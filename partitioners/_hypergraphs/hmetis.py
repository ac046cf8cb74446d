"""hMETIS hypergraph files (.hgr), so that other partitioners can be tried on our hypergraphs.

The format (hMETIS manual, section 4.1, fmt 11): a header "nets vertices 11", a line per net with its weight and
its vertices counted from 1, then a line per vertex with its weight. Weights are integers: bytes and nanoseconds.
"""

from __future__ import annotations

from itertools import pairwise

from partitioners._hypergraphs.hypergraph import Hypergraph


def to_hgr(hypergraph: Hypergraph) -> str:
    """The file's text."""
    bounds = pairwise(hypergraph.net_start.tolist())
    nets = [
        " ".join(map(str, [round(weight), *(hypergraph.pins[a:b] + 1)]))
        for weight, (a, b) in zip(hypergraph.net_weights.tolist(), bounds, strict=True)
    ]
    vertices = [str(round(seconds * 1e9)) for seconds in hypergraph.vertex_weights.tolist()]
    return "\n".join([f"{len(nets)} {len(vertices)} 11", *nets, *vertices]) + "\n"
