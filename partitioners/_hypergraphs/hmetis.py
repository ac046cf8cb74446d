"""hMETIS hypergraph files (.hgr), so that other partitioners can be tried on our hypergraphs.

The format (hMETIS manual, section 4.1, fmt 11): a header "nets vertices 11", a line per net with its weight and
its vertices counted from 1, then a line per vertex with its weight. Weights are integers: bytes and nanoseconds.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from partitioners._hypergraphs.hypergraph import Hypergraph
from simulator.errors import InputError


def to_hgr(hypergraph: Hypergraph) -> str:
    """The file's text."""
    bounds = pairwise(hypergraph.net_start.tolist())
    nets = [
        " ".join(map(str, [round(weight), *(hypergraph.pins[a:b] + 1)]))
        for weight, (a, b) in zip(hypergraph.net_weights.tolist(), bounds, strict=True)
    ]
    vertices = [str(round(seconds * 1e9)) for seconds in hypergraph.vertex_weights.tolist()]
    return "\n".join([f"{len(nets)} {len(vertices)} 11", *nets, *vertices]) + "\n"


def from_hgr(text: str) -> Hypergraph:
    """The hypergraph in a file's text. Raises InputError, naming the line, when it is not of the format above."""
    lines = [(number, line.split()) for number, line in enumerate(text.splitlines(), 1) if _counts(line)]
    try:
        header = [int(word) for word in lines[0][1]] if lines else []
        if len(header) != 3 or header[2] != 11 or len(lines) != 1 + header[0] + header[1]:
            raise InputError(
                f"line 1 is {' '.join(map(str, header))!r}: a header is 'nets vertices 11' and as many lines follow"
            )
        nets = [_numbers(number, words) for number, words in lines[1 : 1 + header[0]]]
        weights = [_numbers(number, words)[0] for number, words in lines[1 + header[0] :]]
    except ValueError as error:
        raise InputError(f"not an hMETIS file: {error}") from None
    pins = np.array([pin - 1 for net in nets for pin in net[1:]], dtype=np.int64)
    if len(pins) and (pins.min() < 0 or pins.max() >= header[1]):
        raise InputError(f"a net names vertex {pins.max() + 1}, but vertices are 1 to {header[1]}")
    return Hypergraph(
        vertex_weights=np.array(weights, dtype=np.float64) / 1e9,
        net_weights=np.array([net[0] for net in nets], dtype=np.float64),
        net_start=np.concatenate([[0], np.cumsum([len(net) - 1 for net in nets])]).astype(np.int64),
        pins=pins,
    )


def _counts(line: str) -> bool:
    return bool(line.strip()) and not line.startswith("%")


def _numbers(number: int, words: list[str]) -> list[int]:
    try:
        return [int(word) for word in words]
    except ValueError:
        raise InputError(f"line {number} is {' '.join(words)!r}: it holds whole numbers only") from None
