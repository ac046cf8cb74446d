"""Grids in the order of their bounds, simulated until nothing that is left can be among the best."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from partitioners._grids.grid_bounds import GridBounds
from partitioners._grids.grid_plan import grid_plan
from partitioners._search.best_first import BestFirst
from simulator.cluster import Cluster
from simulator.errors import InputError, require
from simulator.language_models.accelerators import accelerator
from simulator.language_models.grids import STRATEGIES, candidate_grids
from simulator.language_models.model_card import ModelCard
from simulator.language_models.modelled_profile import MOST_MICROBATCH
from simulator.language_models.training_grid import RECOMPUTATION, TrainingGrid
from simulator.language_models.training_stack import TrainingStack
from simulator.plan import Plan
from simulator.plan_rules import MOST_MICROBATCHES
from simulator.report.interval import StepInterval
from simulator.report.metrics import Report
from simulator.run import expected_interval, step_report
from simulator.sweep.bounds import Bound
from simulator.workload import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedGrid:
    """A grid with the plan that it is and the report of its step. peak_flops_per_s: of all devices."""

    grid: TrainingGrid
    plan: Plan
    report: Report
    interval: StepInterval
    card: ModelCard
    peak_flops_per_s: float

    @property
    def runs(self) -> bool:
        return self.report.fits

    @property
    def tokens_per_s(self) -> float:
        return self.report.samples_per_s * self.card.sequence

    @property
    def mfu(self) -> float:
        """Model FLOPs utilisation of the dense peak of all devices, recomputation not counted."""
        return self.tokens_per_s * self.card.flops_per_token / self.peak_flops_per_s


@dataclass(slots=True, kw_only=True)
class Ranking:
    """simulated: by step, those that run first. too_large: grids whose bound on memory exceeds every device.

    bounded: grids that were not simulated, none of which is faster than bound_s. certain: whether none of those can be
    among the best; otherwise time ran out.
    """

    simulated: list[SimulatedGrid] = field(default_factory=list)
    too_large: list[tuple[TrainingGrid, Bound]] = field(default_factory=list)
    refused: list[tuple[TrainingGrid, str]] = field(default_factory=list)
    bounded: list[TrainingGrid] = field(default_factory=list)
    bound_s: float = 0.0
    certain: bool = True

    @property
    def runs(self) -> list[SimulatedGrid]:
        return [each for each in self.simulated if each.runs]


Split = tuple[str, int, int, int, int, int]


def split_of(grid: TrainingGrid) -> Split:
    """What grids share that differ in ZeRO stage, micro-batch and recomputation alone."""
    return grid.strategy, grid.data, grid.tensor, grid.context, grid.pipeline, grid.expert


def ranked_grids(
    card: ModelCard,
    profile: Profile,
    cluster: Cluster,
    stack: TrainingStack,
    batch: int,
    *,
    top: int = 5,
    strategies: Collection[str] = STRATEGIES,
    zero_stage: int | None = None,
    progress: Callable[[str], None] | None = None,
    time_left_s: Callable[[], float] = lambda: inf,
    bounds: GridBounds | None = None,
) -> Ranking:
    """The best grids of all workers of `cluster` for steps of `batch` sequences, the fastest `top` splits for certain
    unless `time_left_s` says 0 or less before. bounds: those worked out of a cluster that is no slower.

    A grid that does not fit is tried again with recomputation of attention, then of whole blocks. Raises InputError
    where there is no candidate.
    """
    node_devices = cluster.devices_per_host
    candidates = [
        grid
        for grid in candidate_grids(card, cluster.workers, batch, node_devices, strategies)
        if zero_stage is None or grid.zero_stage == zero_stage
    ]
    rule = (
        f"a number of replicas that divides {cluster.workers} devices divides the batch, and each takes at most "
        f"{MOST_MICROBATCHES:,} micro-batches of {MOST_MICROBATCH}"
    )
    require(len(candidates) > 0, "batch_size", batch, rule)
    search = _Search(card, profile, cluster, stack, bounds or GridBounds(card, profile, cluster, stack))
    for number, grid in enumerate(candidates, start=1):
        if progress and number % 50 == 0:
            progress(f"bounds, grid {number} of {len(candidates)}")
        search.add(grid)
    search.run(top, progress, time_left_s)
    return search.ranking


class _Search:
    def __init__(
        self, card: ModelCard, profile: Profile, cluster: Cluster, stack: TrainingStack, bounds: GridBounds
    ) -> None:
        self.ranking = Ranking()
        self._card, self._profile, self._cluster, self._stack = card, profile, cluster, stack
        self._bounds = bounds
        sizes = [device.memory_bytes for device in cluster.devices[: cluster.workers]]
        self._capacity = min((size for size in sizes if size is not None), default=float("inf"))
        self._queue = BestFirst[TrainingGrid](group=split_of)
        gpu = accelerator(stack.accelerator)
        self._peak_flops_per_s = gpu.flops_per_s * cluster.workers

    def add(self, grid: TrainingGrid) -> None:
        """Put a grid among those to simulate, by its bound; one that is too large with more recomputation."""
        runtime = self._stack.runtime
        fewest = runtime.fewest_microbatches("1f1b", grid.pipeline) if grid.chunks == 1 else 1
        if grid.pipeline > 1 and grid.accumulation < fewest:
            rule = f"the schedule 1f1b of {runtime.name} takes {fewest} micro-batches for {grid.pipeline} stages"
            self.ranking.refused.append((grid, rule))
            return
        try:
            bound = self._bounds.bound(grid)
        except InputError as error:
            self.ranking.refused.append((grid, str(error)))
            return
        if bound.peak_bytes > self._capacity:
            if not self._recomputed(grid):
                self.ranking.too_large.append((grid, bound))
            return
        self._queue.add(bound.step_s, grid)

    def _recomputed(self, grid: TrainingGrid) -> bool:
        """Add the grid with more recomputation, if there is any."""
        kind = RECOMPUTATION.index(grid.recomputation) + 1
        if kind == len(RECOMPUTATION):
            return False
        self.add(replace(grid, recomputation=RECOMPUTATION[kind]))
        return True

    def run(self, top: int, progress: Callable[[str], None] | None, time_left_s: Callable[[], float]) -> None:
        """Simulate until `top` splits are faster than every bound that is left."""

        def judged(grid: TrainingGrid) -> float | None:
            if progress:
                progress(f"simulated {len(self.ranking.simulated)}, {len(self._queue.queue)} may be faster")
            try:
                done = self._simulated(grid)
            except InputError as error:
                self.ranking.refused.append((grid, str(error)))
                return None
            if done.runs or not self._recomputed(grid):
                self.ranking.simulated.append(done)
            return done.report.step_s if done.runs else None

        self.ranking.certain = self._queue.run(judged, top, lambda: time_left_s() > 0 or not self.ranking.runs)
        self.ranking.simulated.sort(key=_rank)
        self.ranking.bounded, self.ranking.bound_s = self._queue.left, self._queue.least

    def _simulated(self, grid: TrainingGrid) -> SimulatedGrid:
        plan = grid_plan(grid, self._profile, self._cluster, self._stack)
        report = step_report(self._profile, self._cluster, plan, runtime=self._stack.runtime)
        interval = expected_interval(report, self._profile, self._cluster, plan, self._stack.runtime)
        return SimulatedGrid(
            grid=grid,
            plan=plan,
            report=report,
            interval=interval,
            card=self._card,
            peak_flops_per_s=self._peak_flops_per_s,
        )


def _rank(each: SimulatedGrid) -> tuple[bool, float, int]:
    """Those that run by step, the others by memory; of equally fast ones the simplest first."""
    grid, report = each.grid, each.report
    kinds = sum(degree > 1 for degree in (grid.tensor, grid.pipeline, grid.context, grid.expert)) + grid.zero_stage
    return not each.runs, report.step_s if each.runs else report.peak_memory_bytes, kinds


def best_of_splits(grids: Sequence[SimulatedGrid]) -> Iterator[SimulatedGrid]:
    """The first of each split."""
    seen: set[Split] = set()
    for each in grids:
        if split_of(each.grid) not in seen:
            seen.add(split_of(each.grid))
            yield each
