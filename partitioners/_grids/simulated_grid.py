"""Grids simulated."""

from __future__ import annotations

from dataclasses import dataclass

from partitioners import StrategyChoice
from simulator.cluster import Cluster
from simulator.language_models.accelerators import accelerator
from simulator.language_models.model_card import ModelCard
from simulator.language_models.training_grid import TrainingGrid
from simulator.language_models.training_stack import TrainingStack
from simulator.plan import Plan
from simulator.report.interval import StepInterval
from simulator.report.metrics import Report
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
    """Simulations of a card's grids on a cluster."""

    card: ModelCard
    profile: Profile
    cluster: Cluster
    stack: TrainingStack

    def grid(self, choice: StrategyChoice, plan: Plan) -> SimulatedGrid:
        """A choice that is a grid, whose plan is made."""
        profile, cluster, runtime = self.profile, self.cluster, self.stack.runtime
        assert choice.grid is not None
        report = step_report(profile, cluster, plan, runtime=runtime)
        peak_flops_per_s = accelerator(self.stack.accelerator).flops_per_s * cluster.workers
        return SimulatedGrid(
            grid=choice.grid, plan=plan, report=report, card=self.card,
            interval=expected_interval(report, profile, cluster, plan, runtime),
            mfu=report.samples_per_s * profile.flops_per_sample / peak_flops_per_s,
        )  # fmt: skip
