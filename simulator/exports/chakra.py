"""A plan's step as execution traces of MLCommons' Chakra, one per rank, which ASTRA-sim and others run.

Ranks that run alike are lowered and simulated once; each gets the tasks of the rank that stands for it, with its own
peers. Nodes are numbered in the order in which the simulated step begins them, and computing waits for the computing
before it, as a device runs one task at a time. Microseconds are whole in this format: a rank's add up to its own.

A file (schema/protobuf/et_def.proto of mlcommons/chakra) is a list of messages, each behind its length: the metadata,
then nodes. Of protobuf's wire format this takes whole numbers and what has a length; a field is its number and one of
these two kinds, then the value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property, lru_cache

import numpy as np

from simulator.cluster import Cluster
from simulator.engine import simulate
from simulator.errors import require
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower_once
from simulator.network.collective_times import sent_share
from simulator.plan import Plan
from simulator.runtime import Runtime
from simulator.taskgraph import Floats, Ints, Kind, Route, TaskGraph
from simulator.workload import Profile

VERSION = "0.0.4"
_WHOLE, _LONG = 0, 2
_ATTRIBUTE_FIELDS = {"bool": 27, "int32": 7, "int64": 9, "string": 29}
ATTRIBUTES = {
    "is_cpu_op": "bool", "num_ops": "int64", "comm_type": "int64", "comm_size": "int64", "comm_src": "int32",
    "comm_dst": "int32", "comm_tag": "int32", "pg_name": "string",
}  # fmt: skip
"""What the schema's readers know of a node, and as which type."""


class NodeType(IntEnum):
    """Of a node."""

    COMPUTE = 4
    SEND = 5
    RECEIVE = 6
    COLLECTIVE = 7


COLLECTIVES = {"all-reduce": 0, "all-gather": 2, "broadcast": 5, "all-to-all": 6, "reduce-scatter": 7}
"""Numbers of the collectives."""


def node(
    number: int, name: str, kind: NodeType, after: Iterable[int], duration_us: int, attributes: Mapping[str, int | str]
) -> bytes:
    """A node that waits for the nodes `after`; attributes: those of ATTRIBUTES."""
    waits = b"".join(map(_number, after))
    return _behind_length(
        b"".join([
            _whole(1, number),
            _text(2, name),
            _whole(3, kind),
            _field(5, waits) if waits else b"",  # a list of numbers is packed
            _whole(7, duration_us),
            *(_field(10, _attribute(name, value)) for name, value in attributes.items()),
        ])
    )  # fmt: skip


def _attribute(name: str, value: int | str) -> bytes:
    field = _ATTRIBUTE_FIELDS[ATTRIBUTES[name]]
    return _text(1, name) + (_text(field, value) if isinstance(value, str) else _whole(field, value))


def _whole(field: int, value: int) -> bytes:
    return _number(field << 3 | _WHOLE) + _number(value)


def _text(field: int, value: str) -> bytes:
    return _field(field, value.encode())


def _field(field: int, content: bytes) -> bytes:
    return _number(field << 3 | _LONG) + _behind_length(content)


def _behind_length(content: bytes) -> bytes:
    return _number(len(content)) + content


def _number(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the eighth says that more follow."""
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)


@dataclass(frozen=True, kw_only=True)
class ChakraTraces:
    """The traces of a plan's ranks, made one by one."""

    model: ShardedModel
    graph: TaskGraph
    start_s: Floats
    """When each task begins in the simulated step."""
    ranks: int

    @classmethod
    def of(cls, profile: Profile, cluster: Cluster, plan: Plan, runtime: Runtime) -> ChakraTraces:
        """Raises InputError where the plan sends what the format has no node for."""
        model, graph = lower_once(profile, plan, cluster, runtime)
        rule = f"Chakra has nodes for {', '.join(COLLECTIVES)} and messages; take --sync ring"
        for route in graph.routes:
            known = len(route.single) <= 1 or route.collective in COLLECTIVES
            require(known, "sync", plan.synchronisation.collective, rule)
        timeline = simulate(graph, cluster, runtime)
        return cls(model=model, graph=graph, start_s=timeline.start_s, ranks=cluster.workers)

    def rank(self, rank: int) -> bytes:
        """The file of a rank."""
        return b"".join([_behind_length(_text(1, VERSION)), *self._nodes(rank)])

    @cached_property
    def groups(self) -> dict[tuple[int, ...], str]:
        """Names of process groups by their ranks: numbers from 1, as ASTRA-sim reads them."""
        routes = [route for route in self.graph.routes if route.collective]
        every = sorted({group for route in routes for group in _group_of(route).values()})
        return {group: str(number) for number, group in enumerate(every, start=1)}

    @cached_property
    def _standing_for(self) -> list[int]:
        """By rank the device that stands for it."""
        devices: list[int] = self.model.represented(self.ranks).tolist()
        return devices

    @cached_property
    def _order(self) -> Ints:
        """Tasks as they begin, those that wait for others behind them; without words of no bytes."""
        order: Ints = np.lexsort((np.arange(len(self.graph)), self.start_s))
        said: Ints = order[self.graph.kind[order] != Kind.READY]
        return said

    def _nodes(self, rank: int) -> Iterator[bytes]:
        graph, numbers, computed = self.graph, dict[int, int](), list[int]()
        exact_s, whole_us = 0.0, 0
        own = self._standing_for[rank]
        for task in self._order.tolist():
            kind, attributes, duration_us = NodeType.COMPUTE, dict[str, int | str](is_cpu_op=0), 0
            if graph.route[task] < 0:
                if graph.device[task] != own:
                    continue
                exact_s += float(graph.seconds[task])
                duration_us = round(1e6 * exact_s) - whole_us
                whole_us += duration_us
            else:
                sent = self._sent(graph.routes[graph.route[task]], rank, task)
                if sent is None:
                    continue
                kind, more = sent
                attributes |= more
            number = len(numbers)
            waits = {numbers[before] for before in graph.predecessors(task).tolist() if before in numbers}
            if kind is NodeType.COMPUTE:
                waits |= {*computed[-1:]}
                computed.append(number)
            numbers[task] = number
            yield node(number, self._words(task), kind, sorted(waits), duration_us, attributes)

    def _sent(self, route: Route, rank: int, task: int) -> tuple[NodeType, dict[str, int | str]] | None:
        """What a rank does in a transfer; None where it takes no part. A collective's size is that of its input."""
        size_bytes = float(self.graph.bytes[task])
        if not route.collective:
            pair = _pairs_of(route).get(rank)
            ends = {"comm_src": pair[0], "comm_dst": pair[1], "comm_tag": task} if pair else {}
            of: dict[str, int | str] = {**ends, "comm_size": round(size_bytes)}
            return (NodeType.SEND if pair[0] == rank else NodeType.RECEIVE, of) if pair else None
        group = _group_of(route).get(rank)
        if group is None:
            return None
        whole_bytes = size_bytes / sent_share(route.collective, len(group))
        part = len(group) if route.collective in ("all-gather", "all-to-all") else 1
        return NodeType.COLLECTIVE, {
            "comm_type": COLLECTIVES[route.collective], "comm_size": round(whole_bytes / part),
            "pg_name": self.groups[group],
        }  # fmt: skip

    def _words(self, task: int) -> str:
        return self.graph.describe(task).partition(" on ")[0].partition(" among ")[0].partition(" from ")[0]


@lru_cache(maxsize=4096)
def _pairs_of(route: Route) -> dict[int, tuple[int, int]]:
    """By rank the pair of a message, of which equal replicas have one each."""
    return {rank: pair for pair in route.pairs for rank in pair}


@lru_cache(maxsize=4096)
def _group_of(route: Route) -> dict[int, tuple[int, ...]]:
    """By rank its group among those that meet in a collective's route, one for each ring in it: what pairs join."""
    import networkx as nx

    groups = [tuple(sorted(group)) for group in nx.connected_components(nx.Graph(route.pairs))]
    return {rank: group for group in groups for rank in group}
