"""A network folded into the blocks that people draw: chains of layers, lanes of branches, a column for each stretch.

Looks at the network only, so that every strategy of a network is drawn on the same columns.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain

import networkx as nx

from simulator.workload import Layer, Profile

_HEADS = ("conv", "linear", "lstm", "attention", "embedding", "transformer", "rnn", "gru")
_SHORT = {"conv": "conv", "linear": "fc", "attention": "attn", "embedding": "emb", "transformer": "block"}


Chain = tuple[int, ...]
"""Layers (by position) that follow each other without a branch; the first gives the chain its character."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Chains between two points that every path of the network passes: its lanes side by side, then where they join.

    lanes: chains of each lane in order, the heaviest lane first. join: the chain in which the lanes end, empty for a
    single chain. skips: an edge leads from before the lanes directly to the join. open_lanes: how many of the lanes,
    the last ones, never reach the join.
    """

    title: str
    lanes: tuple[tuple[Chain, ...], ...]
    join: Chain = ()
    skips: bool = False
    open_lanes: int = 0

    @property
    def layers(self) -> tuple[int, ...]:
        """All of its layers in topological order."""
        return tuple(sorted(layer for part in (*chain.from_iterable(self.lanes), self.join) for layer in part))


def stretches(profile: Profile) -> tuple[Stretch, ...]:
    """The network from its first layer to its last; every layer stands in one chain of one stretch."""
    chains = _chains(profile)
    home = {layer: number for number, layers in enumerate(chains) for layer in layers}
    inputs: list[set[int]] = [set() for _ in chains]
    for position, layer in enumerate(profile.layers):
        inputs[home[position]] |= {home[profile.index[name]] for name in layer.inputs}
    groups = _groups(inputs)
    counters: Counter[str] = Counter()
    return tuple(_stretch(profile, chains, inputs, group, counters) for group in groups)


def _chains(profile: Profile) -> list[Chain]:
    """Chains in the order of their first layers."""
    members: dict[int, list[int]] = {}
    home: dict[int, int] = {}
    for position, layer in enumerate(profile.layers):
        joined = _follows(profile, layer)
        head = home[joined] if joined is not None else position
        home[position] = head
        members.setdefault(head, []).append(position)
    return [tuple(layers) for layers in members.values()]


def _follows(profile: Profile, layer: Layer) -> int | None:
    """The layer whose chain this one joins: its one producer, where nothing else reads that."""
    if len(layer.inputs) != 1 or layer.kind.lower().startswith(_HEADS):
        return None
    producer = profile.index[layer.inputs[0]]
    return producer if len(profile.consumers[producer]) == 1 else None


def _groups(inputs: list[set[int]]) -> list[list[int]]:
    """Runs of chains, each of which ends at a chain that no edge jumps over."""
    reach = list(range(len(inputs)))  # for each chain the last that reads it
    for number, read in enumerate(inputs):
        for producer in read:
            reach[producer] = number
    groups: list[list[int]] = [[]]
    furthest = 0
    for number in range(len(inputs)):
        groups[-1].append(number)
        if furthest <= number:
            groups.append([])
        furthest = max(furthest, reach[number])
    return [group for group in groups if group]


def _stretch(
    profile: Profile, chains: list[Chain], inputs: list[set[int]], group: list[int], counters: Counter[str]
) -> Stretch:
    if len(group) == 1:
        chain = chains[group[0]]
        title = _numbered(counters, _character(profile.layers[chain[0]]))
        return Stretch(title=title, lanes=((chain,),))
    *inner, last = group
    read = inputs[last]
    lanes = sorted(_lanes(profile, chains, inputs, inner), key=read.isdisjoint)  # those that never reach the join last
    return Stretch(
        title=_numbered(counters, _title(profile, chains, inner, chains[last])),
        lanes=tuple(tuple(chains[i] for i in lane) for lane in lanes),
        join=chains[last],
        skips=any(producer < inner[0] for producer in read),
        open_lanes=sum(map(read.isdisjoint, lanes)),
    )


def _lanes(profile: Profile, chains: list[Chain], inputs: list[set[int]], inner: list[int]) -> list[list[int]]:
    """The connected components of the chains between two points, heaviest first."""
    graph: nx.Graph[int] = nx.Graph((i, producer) for i in inner for producer in inputs[i] if producer in inner)
    graph.add_nodes_from(inner)
    lanes = sorted(map(sorted, nx.connected_components(graph)))
    return sorted(lanes, key=lambda lane: -sum(seconds_of(profile, chains[i]) for i in lane))


def seconds_of(profile: Profile, layers: Chain) -> float:
    """Measured seconds of layers."""
    return sum(profile.layers[i].forward_s + profile.layers[i].backward_s for i in layers)


def _title(profile: Profile, chains: list[Chain], inner: list[int], join: Chain) -> str:
    kinds = {profile.layers[i].kind.lower() for number in inner for i in chains[number]}
    if any(kind.startswith("attention") for kind in kinds):
        return "attn"
    if not any(kind.startswith("conv") for kind in kinds) and any(kind.startswith("linear") for kind in kinds):
        return "mlp"
    return "mix" if profile.layers[join[0]].kind.lower().startswith("concat") else "res"


def _character(layer: Layer) -> str:
    kind = layer.kind.lower()
    return next((short for long, short in _SHORT.items() if kind.startswith(long)), kind[:6])


def _numbered(counters: Counter[str], title: str) -> str:
    counters[title] += 1
    return f"{title}{counters[title]}"
