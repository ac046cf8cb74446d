"""Layer-wise parallelism (OptCNN, Jia et al., ICML 2018): every layer has its own split, all chosen together.

The least sum of compute, synchronisation and transfers over all strategies is found exactly. That sum lets nothing
overlap; `objective="step"` starts from the strategies of the least weighted sums and goes on by simulation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, product
from math import inf, prod

from partitioners import StrategyChoice
from partitioners._judge.judge import Judge, Progress
from partitioners._layerwise.contenders import contenders
from partitioners._layerwise.elimination import Edges, Scope, least_sum, sum_of
from partitioners._layerwise.limited import LimitedSearch
from partitioners._layerwise.memory import Holding, Memory
from partitioners._layerwise.optcnn import DIMENSIONS, CostTables, cost_tables, sharding_of
from partitioners.owt import channel_split_layers
from simulator.cluster import Cluster
from simulator.errors import require_name
from simulator.plan import Degrees, Partition, Plan, StepSettings
from simulator.plan_rules import require_effort
from simulator.taskgraph import Floats
from simulator.workload import Profile

OBJECTIVES = ("sum", "step")
_TASKS = 150_000
"""Tasks that may be simulated at effort 1: 2 to 8 s."""
_MOVES = 60
"""Of the search under a memory limit: a tenth of a second to some seconds."""
_MOST_WORKERS = 16
"""For which every layer may be split in all four dimensions."""
Strategy = tuple[int, ...]
"""Per layer, the number of its configuration."""


def partition(
    profile: Profile,
    cluster: Cluster,
    step: StepSettings,
    *,
    objective: str = "sum",
    dimensions: str | None = None,
    effort: float = 1.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Partition:
    """The best degrees by sample (n), channel (c), height (h) and width (w) of every layer, shard i on worker i.

    objective: "sum", OptCNN's own, or "step", the simulated step; effort multiplies how many tasks are simulated
    for it. dimensions: the letters of those that may be split; by default all four, or "nc" for more than 16
    workers, whose tables would take minutes. A plan that does not fit into memory gives way to the cheapest that is
    found to fit; when none does its report says so.
    Raises InputError on other letters and UnknownNameError on another objective.
    """
    require_effort(effort)
    require_name("objective", objective, OBJECTIVES)
    letters = dimensions if dimensions is not None else DIMENSIONS if cluster.workers <= _MOST_WORKERS else "nc"
    tables = cost_tables(profile, cluster, step, letters)
    judge = Judge(profile=profile, cluster=cluster, runtime=step.runtime, budget=_TASKS * effort, progress=progress)
    search = Search(judge=judge, step=replace(step, schedule=None), tables=tables)
    price, best = search.affordable()
    return search.partition_of(search.fastest(best, price) if objective == "step" else best)


def choices(profile: Profile, cluster: Cluster, step: StepSettings) -> Iterator[StrategyChoice]:
    """The least sum, and what simulation makes of it."""
    for objective in OBJECTIVES:
        yield StrategyChoice(strategy="layerwise", step=step, own={"objective": objective})


def widest(options: Sequence[Degrees], axis: int) -> int:
    """The number of the configuration that splits `axis` alone, and that the most ways."""
    return max((degrees[axis], i) for i, degrees in enumerate(options) if prod(degrees) == degrees[axis])[1]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Search:
    """Strategies for the judge's profile and cluster, and a step without a schedule.

    tried: those whose gain was asked for.
    """

    judge: Judge
    step: StepSettings
    tables: CostTables
    tried: set[Strategy] = field(default_factory=set)

    def cheapest(self, *, price: float = 0.0, synchronise: float = 1.0, transfer: float = 1.0) -> Strategy:
        """The strategy of the least sum, with t_s and t_x weighted and kept bytes at `price` seconds each."""
        tables = self.tables
        columns = zip(tables.compute_s, tables.synchronise_s, tables.held_bytes, strict=True)
        nodes = [compute_s + synchronise * sync_s + price * held for compute_s, sync_s, held in columns]
        kept = tables.received_bytes
        return _least(nodes, {edge: transfer * table + price * kept[edge] for edge, table in tables.transfer_s.items()})

    def affordable(self) -> tuple[float, Strategy]:
        """The cheapest strategy that fits into memory, and the seconds at which a byte has to be priced for it.

        The tables know what shards keep, but not when: as much as a plan holds too much in its simulated step, in bytes
        or as a part if that is less, so much less may be kept by the next. When nothing fits the strategy keeps least.
        """
        best, price, tables = self.cheapest(), 0.0, self.tables
        capacity_bytes = min(device.memory_bytes or inf for device in self.judge.cluster.devices)
        if capacity_bytes == inf:
            return price, best
        least = _least(tables.held_bytes, tables.received_bytes)
        while best != least and (excess_bytes := self.judge.excess_bytes(self.plan_of(best))):
            kept_bytes = sum_of(tables.held_bytes, tables.received_bytes, best)
            part = capacity_bytes / (capacity_bytes + excess_bytes)
            limit_bytes = max(kept_bytes - excess_bytes, kept_bytes * part)
            if limit_bytes < sum_of(tables.held_bytes, tables.received_bytes, least):
                return price, least
            search = self._within(limit_bytes)
            best, price = tuple(search.best or least), float(search.byte_prices.max())
        return price, best

    def _within(self, limit_bytes: float) -> LimitedSearch:
        """A search, done, for the cheapest strategy that keeps no more."""
        tables = self.tables
        kept: list[tuple[Scope, Floats]] = [((i,), held) for i, held in enumerate(tables.held_bytes)]
        kept += tables.received_bytes.items()
        held = [Holding(scope=scope, first=0, last=1, sizes_bytes=each) for scope, each in kept]
        nodes = [compute_s + sync_s for compute_s, sync_s in zip(tables.compute_s, tables.synchronise_s, strict=True)]
        search = LimitedSearch(nodes, tables.transfer_s, Memory(held, limit_bytes))
        for _ in range(_MOVES):
            search.move()
        return search

    def fastest(self, start: Strategy, price: float) -> Strategy:
        """The best of several starts, then of changes to whole runs of layers while one gains."""
        starts = list(dict.fromkeys([start, *self._experts(), *self._discounted(price)]))
        used = [
            degrees for degrees, _ in Counter(self._degrees(s, i) for s in starts for i in range(len(s))).most_common()
        ]
        best = [start, *filter(self._gains, starts)][-1]
        while (change := next(filter(self._gains, self._changes(best, used)), None)) is not None:
            best = change
        return best

    def _gains(self, strategy: Strategy) -> bool:
        """Whether its simulated step beats all before, once for each strategy and while the budget lasts."""
        if strategy in self.tried or self.judge.budget <= 0:
            return False
        self.tried.add(strategy)
        return self.judge.consider(self.plan_of(strategy), "degrees") is self.judge.best

    def _discounted(self, price: float) -> Iterator[Strategy]:
        """The cheapest strategies when part of the communication hides behind compute."""
        for synchronise, transfer in product((1.0, 0.5, 0.2, 0.0), (1.0, 0.5, 0.2)):
            yield self.cheapest(price=price, synchronise=synchronise, transfer=transfer)

    def _experts(self) -> Iterator[Strategy]:
        """Data parallelism and one weird trick, as far as the dimensions allow."""
        for by_channel in (frozenset[str](), channel_split_layers(self.judge.profile)):
            columns = zip(self.judge.profile.layers, self.tables.configurations, strict=True)
            yield tuple(widest(options, int(layer.name in by_channel)) for layer, options in columns)

    def _changes(self, strategy: Strategy, used: Sequence[Degrees]) -> Iterator[Strategy]:
        """Every strategy that gives one run of like-split layers other degrees."""
        for _, positions in groupby(range(len(strategy)), key=lambda i: self._degrees(strategy, i)):
            run_of_layers = list(positions)
            for degrees in used:
                changed = list(strategy)
                for i in run_of_layers:
                    if degrees in self.tables.configurations[i]:
                        changed[i] = self.tables.configurations[i].index(degrees)
                if tuple(changed) != strategy:
                    yield tuple(changed)

    def _degrees(self, strategy: Strategy, position: int) -> Degrees:
        return self.tables.configurations[position][strategy[position]]

    def plan_of(self, strategy: Strategy) -> Plan:
        """The plan of a strategy."""
        return self.step.plan(self.judge.profile, self.partition_of(strategy), "layerwise")

    def partition_of(self, strategy: Strategy) -> Partition:
        """The placements of a strategy."""
        layers = enumerate(self.judge.profile.layers)
        return Partition(placements={layer.name: sharding_of(self._degrees(strategy, i)) for i, layer in layers})


def _least(nodes: Sequence[Floats], edges: Edges) -> Strategy:
    some = contenders(nodes, edges) if len(edges) >= len(nodes) else None  # a chain is summed sooner than bounded
    return tuple(least_sum(nodes, edges, contenders=some)[1])
