"""Devices that are joined to their neighbours, without a switch: networks in which more than one way leads on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import product
from math import prod

from simulator.cluster import Cluster, Link
from simulator.network.topologies import Wire, flat_switch


def ring(devices: int, wire: Wire, *, servers: int = 0) -> Cluster:
    """`devices` in a circle, each joined to the next and the last to the first; servers as in `torus`."""
    return torus((devices,), wire, servers=servers, name="ring")


def torus(shape: Sequence[int], wire: Wire, *, servers: int = 0, name: str = "torus") -> Cluster:
    """A grid of devices of any number of dimensions that wraps round, numbered in row-major order.

    The k-th of K servers hangs on a wire of its own from device k * devices / K.
    """
    count = prod(shape)
    members = flat_switch(count, wire, servers=servers).devices
    joined: set[tuple[int, int]] = set()
    for axis, side in enumerate(shape):
        stride = prod(shape[axis + 1 :])
        for number, coordinates in enumerate(product(*map(range, shape))):
            ahead = number + ((coordinates[axis] + 1) % side - coordinates[axis]) * stride
            if ahead != number:  # a side of 1 has no neighbour, a side of 2 the same one on both hands
                joined.add((min(number, ahead), max(number, ahead)))
    pairs = [*sorted(joined), *((count + k, k * count // servers) for k in range(servers))]
    ends = [way for a, b in pairs for way in ((a, b), (b, a))]
    links = (Link(source=members[a].name, target=members[b].name, **asdict(wire)) for a, b in ends)
    return Cluster(name=name, devices=members, links=tuple(links))
