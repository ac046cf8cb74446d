"""Grids in the order of their bounds, simulated until nothing that is left can be among the best."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

from partitioners import StrategyChoice, choices
from partitioners._choice_search import ChoiceSearch, Simulated
from partitioners._grid_choices import recomputing_more
from partitioners._grids.grid_bounds import GridBounds
from simulator.cluster import Cluster
from simulator.errors import InputError, require
from simulator.language_models.accelerators import accelerator
from simulator.language_models.grids import STRATEGIES
from simulator.language_models.model_card import ModelCard
from simulator.language_models.modelled_profile import MOST_MICROBATCH
from simulator.language_models.training_grid import TrainingGrid
from simulator.language_models.training_stack import TrainingStack
from simulator.plan import OPTIMIZERS, Plan, StepSettings
from simulator.plan_rules import MOST_MICROBATCHES
from simulator.report.interval import StepInterval
from simulator.report.metrics import Report
from simulator.run import expected_interval, step_report
from simulator.sweep.bounds import Bound
from simulator.workload import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedGrid:
    """A grid with the plan that it is and the report of its step."""

    grid: TrainingGrid
    plan: Plan
    report: Report
    interval: StepInterval
    card: ModelCard
    mfu: float
    """Model FLOPs utilisation of the dense peak of all devices in bf16, recomputation not counted."""

    @property
    def runs(self) -> bool:
        return self.report.fits

    @property
    def tokens_per_s(self) -> float:
        return self.report.samples_per_s * self.card.sequence


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

    @property
    def may_be_best(self) -> bool:
        """Whether a grid that was not simulated may be faster than all that run."""
        return not self.certain and all(self.bound_s < each.report.step_s for each in self.runs)


Split = tuple[str, int, int, int, int, int, int]


def split_of(grid: TrainingGrid) -> Split:
    """What grids share that differ in ZeRO stage, micro-batch and recomputation alone."""
    return grid.strategy, grid.data, grid.tensor, grid.context, grid.pipeline, grid.expert, grid.expert_tensor


def ranked_grids(
    card: ModelCard,
    profile: Profile,
    cluster: Cluster,
    stack: TrainingStack,
    batch: int,
    *,
    top: int = 5,
    strategies: Collection[str] = STRATEGIES,
    wanted: Callable[[TrainingGrid], bool] = lambda grid: True,
    progress: Callable[[str], None] | None = None,
    show: Callable[[Ranking], None] = lambda ranking: None,
    time_left_s: Callable[[], float] = lambda: inf,
    bounds: GridBounds | None = None,
) -> Ranking:
    """The best grids of all workers of `cluster` for steps of `batch` sequences, the fastest `top` splits for certain
    unless `time_left_s` says 0 or less before: of what the strategies say there is to try.

    wanted: whether a grid is among what is asked for, or why not, as an InputError. show: is shown the ranking so far
    after every simulated grid. bounds: those worked out of a cluster that is no slower. Raises InputError where there
    is no candidate.
    """
    ranking, least = Ranking(), bounds or GridBounds(profile, cluster, stack)
    peak_flops_per_s = accelerator(stack.accelerator).flops_per_s * cluster.workers

    def simulate(choice: StrategyChoice, part: Cluster, plan: Plan) -> Simulated:
        if progress:
            progress(f"simulated {len(ranking.simulated)}, {len(search.queue)} may be faster")
        report = step_report(profile, part, plan, runtime=stack.runtime)
        if report.fits or recomputing_more(choice) is None:
            interval = expected_interval(report, profile, part, plan, stack.runtime)
            mfu = report.samples_per_s * profile.flops_per_sample / peak_flops_per_s
            done = SimulatedGrid(grid=_grid(choice), plan=plan, report=report, interval=interval, card=card, mfu=mfu)
            ranking.simulated.append(done)
            show(ranking)
        return Simulated(report.step_s, report.fits)

    def bound(choice: StrategyChoice, part: Cluster) -> Bound:
        grid, runtime = _grid(choice), stack.runtime
        fewest = runtime.fewest_microbatches("1f1b", grid.pipeline) if grid.chunks == 1 else 1
        if grid.pipeline > 1 and grid.accumulation < fewest:
            rule = f"the schedule 1f1b of {runtime.name} takes {fewest} micro-batches for {grid.pipeline} stages"
            raise InputError(rule)
        return least.bound(grid, simulated=False)

    def tighter(choice: StrategyChoice, part: Cluster) -> Bound:
        if progress:
            progress(f"closer bounds of {len(search.queue) + 1} grids that may be faster")
        return least.bound(_grid(choice))

    search = ChoiceSearch(
        profile=profile,
        runtime=stack.runtime,
        simulate=simulate,
        bounds=(bound, tighter),
        group=lambda each: split_of(_grid(each)),
    )
    step = StepSettings(batch_size=batch, optimizer_state=OPTIMIZERS[stack.optimizer], runtime=stack.runtime)
    tried = _wanted((each for name in strategies for each in choices(name, profile, cluster, step)), wanted)
    rule = (
        f"a number of replicas that divides {cluster.workers} devices divides the batch, and each takes at most "
        f"{MOST_MICROBATCHES:,} micro-batches of {MOST_MICROBATCH}"
    )
    require(len(tried) > 0, "batch_size", batch, rule)
    for number, choice in enumerate(tried, start=1):
        if progress and number % 50 == 0:
            progress(f"bounds, grid {number} of {len(tried)}")
        search.add(choice, cluster)
    ranking.certain = search.run(top, lambda: time_left_s() > 0 or not ranking.runs)
    ranking.simulated.sort(key=_rank)
    ranking.too_large = [(_grid(choice), needed) for choice, needed in search.too_large]
    ranking.refused = [(_grid(choice), reason) for choice, reason in search.refused]
    ranking.bounded, ranking.bound_s = [_grid(choice) for choice in search.left], search.least
    return ranking


def _wanted(tried: Iterable[StrategyChoice], wanted: Callable[[TrainingGrid], bool]) -> list[StrategyChoice]:
    """Those asked for. Raises the last InputError of `wanted` where it leaves none."""
    kept, refusal = [], None
    for each in tried:
        try:
            if each.grid and wanted(each.grid):
                kept.append(each)
        except InputError as error:
            refusal = error
    if refusal and not kept:
        raise refusal
    return kept


def _grid(choice: StrategyChoice) -> TrainingGrid:
    assert choice.grid is not None
    return choice.grid


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
