"""Grids simulated, and blocks of them: by processes ahead of their turn where there are other cores."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from partitioners import StrategyChoice
from partitioners._forked_work import ForkedWork
from partitioners._grids.block_passes import PassSeconds
from partitioners._grids.grid_bounds import BlockSplit, GridBounds
from simulator.cluster import Cluster
from simulator.language_models.accelerators import accelerator
from simulator.language_models.model_card import ModelCard
from simulator.language_models.training_grid import TrainingGrid
from simulator.language_models.training_stack import TrainingStack
from simulator.plan import Plan
from simulator.report.interval import StepInterval
from simulator.report.metrics import Report
from simulator.report.sent_report import with_rows, without_rows
from simulator.run import expected_interval, step_report
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


@dataclass(frozen=True, slots=True, kw_only=True)
class GridSimulations:
    """What a ranking simulates of a card on a cluster: grids, by their choices, and splits of blocks for bounds."""

    card: ModelCard
    profile: Profile
    cluster: Cluster
    stack: TrainingStack
    bounds: GridBounds

    def ahead(self, upcoming: Callable[[], Iterable[BlockSplit | StrategyChoice]]) -> ForkedWork[Any, Any]:
        """From a split to its PassSeconds, from a choice to its SimulatedGrid. upcoming: see ForkedWork."""
        return ForkedWork(
            work=self._simulated, upcoming=upcoming, key=_key, sent=_without_rows, received=self._with_rows
        )

    def _simulated(self, job: BlockSplit | StrategyChoice) -> PassSeconds | SimulatedGrid:
        if not isinstance(job, StrategyChoice):
            return self.bounds.simulated_passes(job)
        profile, cluster, runtime = self.profile, self.cluster, self.stack.runtime
        assert job.grid is not None
        plan = job.plan(profile, cluster)
        report = step_report(profile, cluster, plan, runtime=runtime)
        peak_flops_per_s = accelerator(self.stack.accelerator).flops_per_s * cluster.workers
        return SimulatedGrid(
            grid=job.grid, plan=plan, report=report, card=self.card,
            interval=expected_interval(report, profile, cluster, plan, runtime),
            mfu=report.samples_per_s * profile.flops_per_sample / peak_flops_per_s,
        )  # fmt: skip

    def _with_rows(self, job: object, done: PassSeconds | SimulatedGrid) -> PassSeconds | SimulatedGrid:
        """Rows are made here once somebody reads them, by another simulation."""
        if not isinstance(done, SimulatedGrid):
            return done
        plan, runtime = done.plan, self.stack.runtime
        again = partial(step_report, self.profile, self.cluster, plan, runtime=runtime)
        return replace(done, report=with_rows(done.report, self.profile, self.cluster, again))


def _key(job: BlockSplit | StrategyChoice) -> Hashable:
    return job.grid if isinstance(job, StrategyChoice) else job


def _without_rows(done: PassSeconds | SimulatedGrid) -> PassSeconds | SimulatedGrid:
    if not isinstance(done, SimulatedGrid):
        return done
    return replace(done, report=without_rows(done.report))
