"""Intra-operator parallelism at scale: Google's contest at ASPLOS 2025, solved by the search of `layerwise`.

Usage: python -m benchmarks.studies.iopddl [FILE ...] [--seconds S] [--processes N]. A file is an instance of the
contest (.json or .json.gz); without any, those in SHARDSCOPE_DATA, each for the contest's own time.

A node has strategies of a cost each and of bytes over an interval, an edge a cost by the strategies of both ends, and
at no time may there be more bytes than the limit. What one choice fixes is contracted first, and strategies that
another one dominates are dropped; neither changes the least cost.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from math import inf, nan
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pages.published import shared_data, table
from partitioners._layerwise.limited import LimitedSearch
from partitioners._layerwise.memory import Holding, Memory
from simulator.errors import InputError
from simulator.taskgraph import Floats, Ints

FORBIDDEN = 1e17
"""Costs from here on stand for strategies that do not go together; the files have 1e18."""
CONTEST_S = 300.0
"""Of its longest instances: for files that are not in the table of known results."""
SHARED_EVERY = 10
"""Moves after which a process takes what another one found, where that is better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContestInstance:
    """What a file says. intervals[i]: node i holds its bytes at the times first, first + 1, ... last - 1."""

    name: str
    costs: list[Floats]
    usages: list[Floats]
    intervals: list[tuple[int, int]]
    edges: dict[tuple[int, int], Floats]
    limit_bytes: float

    @staticmethod
    def read(path: Path) -> ContestInstance:
        """From a file of the contest."""
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt") as file:
            problem = json.load(file)["problem"]
        nodes = problem["nodes"]
        edges: dict[tuple[int, int], Floats] = {}
        costs = [_costs(each) for each in nodes["costs"]]
        for (a, b), each in zip(problem["edges"]["nodes"], problem["edges"]["costs"], strict=True):
            own = _costs(each).reshape(len(costs[a]), len(costs[b]))
            key, own = ((a, b), own) if a < b else ((b, a), own.T)
            edges[key] = edges[key] + own if key in edges else own
        return ContestInstance(
            name=ContestInstance.name_of(path),
            costs=costs,
            usages=[np.array(each, dtype=float) for each in nodes["usages"]],
            intervals=[tuple(each or (0, 0)) for each in nodes["intervals"]],
            edges=edges,
            limit_bytes=problem["usage_limit"],
        )

    @staticmethod
    def name_of(path: Path) -> str:
        return path.name.split(".")[0].removeprefix("asplos-2025-iopddl-")

    def cost(self, choices: Sequence[int]) -> float:
        """Of these strategies, whether or not they fit."""
        own = sum(float(costs[k]) for costs, k in zip(self.costs, choices, strict=True))
        return own + sum(float(costs[choices[a], choices[b]]) for (a, b), costs in self.edges.items())

    def peak(self, choices: Sequence[int]) -> float:
        """The most bytes at any time, as a part of the limit."""
        used = np.zeros(max(last for _, last in self.intervals) + 1)
        for (first, last), usages, k in zip(self.intervals, self.usages, choices, strict=True):
            used[first:last] += usages[k]
        return float(used.max() / self.limit_bytes)


def _costs(entries: Any) -> Floats:
    costs = np.array(entries, dtype=float)
    return np.where(costs >= FORBIDDEN, inf, costs)


class Contraction:
    """A smaller instance of the same least cost. parents: what fixes a contracted node, and its choice by theirs."""

    def __init__(self, instance: ContestInstance) -> None:
        self.costs = list(instance.costs)
        self.kept: list[Ints] = [np.arange(len(costs)) for costs in instance.costs]
        columns = zip(instance.usages, instance.intervals, strict=True)
        self.held = [[(*interval, usages)] if usages.any() else [] for usages, interval in columns]
        self.around: list[dict[int, Floats]] = [{} for _ in instance.costs]
        for (a, b), costs in instance.edges.items():
            self.around[a][b], self.around[b][a] = costs, costs.T
        self.parents: dict[int, tuple[int, dict[int, int]]] = {}
        self.order: list[int] = []
        todo = dict.fromkeys(range(len(self.costs)))
        while todo:
            node = next(iter(todo))
            del todo[node]
            if node not in self.parents:
                todo.update(dict.fromkeys(self._simplify(node)))
        self.nodes = [node for node in range(len(self.costs)) if node not in self.parents]

    def _simplify(self, node: int) -> list[int]:
        """Make a node smaller; those that may become smaller thereby."""
        allowed = np.isfinite(self.costs[node])
        for costs in self.around[node].values():
            allowed &= np.isfinite(costs).any(axis=1)
        if not allowed.all():
            return self._keep(node, allowed)
        for other, costs in self.around[node].items():
            possible = np.isfinite(costs)
            if (possible.sum(axis=0) == 1).all():
                return self._contract(node, other, possible.argmax(axis=0))
        undominated = ~self._dominated(node)
        return [] if undominated.all() else self._keep(node, undominated)

    def _keep(self, node: int, allowed: Ints) -> list[int]:
        if not allowed.any():
            raise InputError(f"node {node}: none of its strategies goes together with one of every neighbour")
        self.costs[node], self.kept[node] = self.costs[node][allowed], self.kept[node][allowed]
        self.held[node] = [(first, last, usages[allowed]) for first, last, usages in self.held[node]]
        for other in self.around[node]:
            self._join(node, other, self.around[node][other][allowed])
        return [node, *self.around[node]]

    def _join(self, node: int, other: int, costs: Floats) -> None:
        self.around[node][other], self.around[other][node] = costs, costs.T

    def _contract(self, node: int, parent: int, choice: Ints) -> list[int]:
        """`parent`'s choices fix those of `node`: its costs, bytes and edges become the parent's."""
        self.parents[node] = (
            parent,
            dict(zip(self.kept[parent].tolist(), self.kept[node][choice].tolist(), strict=True)),
        )
        self.order.append(node)
        self.costs[parent] = self.costs[parent] + self.costs[node][choice]
        self.held[parent] += [(first, last, usages[choice]) for first, last, usages in self.held[node]]
        for other, costs in self.around[node].items():
            del self.around[other][node]
            if other == parent:
                self.costs[parent] = self.costs[parent] + costs[choice, np.arange(len(choice))]
            else:
                before = self.around[parent].get(other, 0.0)
                self._join(parent, other, before + costs[choice])
        touched = [parent, *self.around[node]]
        self.around[node] = {}
        return touched

    def _dominated(self, node: int) -> Ints:
        """Which choices cost no less than another one whatever the neighbours choose, and hold no less at any time."""
        costs = self.costs[node]
        worse = costs[:, None] - costs  # by how much at least row costs more than column
        for each in self.around[node].values():
            finite = np.where(np.isfinite(each), each, FORBIDDEN)
            worse = worse + (finite[:, None] - finite).min(axis=2)
        no_less = worse >= 0
        for _, _, usages in self.held[node]:
            no_less &= usages[:, None] >= usages
        earlier = np.tri(len(costs), k=-1, dtype=bool)
        return np.asarray((no_less & (~no_less.T | earlier)).any(axis=1))

    def search(self, limit_bytes: float, seed: int) -> LimitedSearch:
        """For what is left. A forbidden entry costs more than everything else together."""
        number = {node: position for position, node in enumerate(self.nodes)}
        edges = {(number[a], number[b]): each for a in self.nodes for b, each in self.around[a].items() if a < b}
        tables = [*(self.costs[node] for node in self.nodes), *edges.values()]
        most = 1 + sum(float(each[np.isfinite(each)].max()) for each in tables)
        held = [
            Holding(scope=(number[node],), first=first, last=last, sizes_bytes=sizes_bytes)
            for node in self.nodes
            for first, last, sizes_bytes in self.held[node]
        ]
        return LimitedSearch(
            [self.costs[node] for node in self.nodes],
            {edge: np.where(np.isfinite(each), each, most) for edge, each in edges.items()},
            Memory(held, limit_bytes),
            seed,
        )

    def choices(self, core: Sequence[int]) -> list[int]:
        """Strategies of all nodes of the instance from choices of those that are left."""
        choice_of = {node: int(self.kept[node][k]) for node, k in zip(self.nodes, core, strict=True)}
        for node in reversed(self.order):
            parent, choice = self.parents[node]
            choice_of[node] = choice[choice_of[parent]]
        return [choice_of[node] for node in range(len(self.costs))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """What was found for an instance: choices that fit, if any did, the largest bound, and how long it all took."""

    instance: ContestInstance
    choices: list[int] | None
    bound: float
    moves: int
    wall_s: float

    @property
    def cost(self) -> float:
        return inf if self.choices is None else self.instance.cost(self.choices)


def solved(path: Path, seconds: float, processes: int) -> Solved:
    """Read an instance and search, for so many seconds in all; each process has a seed of its own."""
    began = time.monotonic()
    until = began + 0.95 * seconds
    instance = ContestInstance.read(path)
    small = Contraction(instance)
    context = get_context("fork")
    best, queue = context.Array("d", [inf] + [0.0] * len(small.nodes)), context.SimpleQueue()
    workers = [
        context.Process(target=_search, args=(small, instance.limit_bytes, until, seed, best, queue))
        for seed in range(processes)
    ]
    for worker in workers:
        worker.start()
    results = [queue.get() for _ in workers]
    for worker in workers:
        worker.join()
    return Solved(
        instance=instance,
        choices=small.choices([int(choice) for choice in best[1:]]) if best[0] < inf else None,
        bound=max(bound for bound, _ in results),
        moves=sum(moves for _, moves in results),
        wall_s=time.monotonic() - began,
    )


def _search(small: Contraction, limit_bytes: float, until: float, seed: int, best: Any, queue: Any) -> None:
    """Move until the time is over; `best` is shared, its cost before its choices."""
    search = small.search(limit_bytes, seed)
    for moves in count(1):
        search.move()
        if time.monotonic() > until or moves % SHARED_EVERY == 0:
            with best.get_lock():
                if search.best is not None and search.cost < best[0]:
                    best[:] = [search.cost, *search.best]
                elif best[0] < search.cost:
                    search.consider([int(choice) for choice in best[1:]])
        if time.monotonic() > until:
            queue.put((search.bound, moves))
            return


def known() -> dict[str, dict[str, float]]:
    """The organisers' results by instance: the contest's seconds, the best of 20 teams, XLA's, a lower bound."""
    with (shared_data() / "iopddl" / "best_known.csv").open() as file:
        rows = list(csv.DictReader(file))
    return {
        row["instance"]: {key: float(value or "nan") for key, value in row.items() if key != "instance"} for row in rows
    }


def rows(paths: Sequence[Path], seconds: float | None, processes: int) -> Iterator[list[str]]:
    results = known()
    for path in paths:
        name = ContestInstance.name_of(path)
        theirs = results.get(name, {})
        result = solved(path, seconds or theirs.get("timeout_s", CONTEST_S), processes)
        best, xla, bound = (theirs.get(key, nan) for key in ("best_of_20_teams", "xla", "lower_bound"))
        yield [
            name,
            f"{len(result.instance.costs):,}",
            f"{result.wall_s:.0f} s",
            f"{xla:,.0f}" if xla > 0 else "-",
            f"{best:,.0f}",
            f"{result.cost:,.0f}",
            f"{result.cost / best - 1:+.2%}",
            f"{result.cost / max(bound, result.bound) - 1:+.2%}",
            "none" if result.choices is None else f"{result.instance.peak(result.choices):.4f}",
        ]


HEAD = (
    "instance",
    "nodes",
    "time",
    "XLA",
    "best of 20 teams",
    "ours",
    "over the best",
    "over the bound",
    "peak / limit",
)


def section(paths: Sequence[Path] = (), seconds: float | None = None, processes: int = 2) -> str:
    paths = paths or sorted((shared_data() / "iopddl").glob("*.json.gz"))
    return "\n\n".join(
        [
            "## Strategies of industrial models under a memory limit (Google's contest at ASPLOS 2025)",
            "The search of `layerwise` with a memory limit on instances of the contest, on two cores and in its time, "
            "reading included. A node's strategies cost seconds and hold bytes for some of the time; edges cost by the "
            "strategies of both ends. Beside ours XLA's solution and the best of 20 teams, as the organisers published "
            "them, and how far ours may be above the least possible.",
            table(HEAD, rows(paths, seconds, processes)),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Solve instances of Google's contest at ASPLOS 2025.")
    parser.add_argument("paths", nargs="*", type=Path, metavar="FILE", help=".json or .json.gz; default: those at hand")
    parser.add_argument("--seconds", type=float, help="for each; default: the contest's")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    print(section(arguments.paths, arguments.seconds, arguments.processes))


if __name__ == "__main__":
    main()
