"""Published runs of language models: each a card, a grid, a preset and a stack, predicted as by every command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median

from benchmarks.accuracy._steps import PredictedStep
from partitioners._grids.grid_plan import grid_plan, simulate_options
from simulator.cluster import Cluster
from simulator.language_models.accelerators import accelerator
from simulator.language_models.model_card import ModelCard
from simulator.language_models.modelled_profile import STEP_SEQUENCES, modelled_profile
from simulator.language_models.training_grid import TrainingGrid
from simulator.language_models.training_stack import TrainingStack, read_stack, stack_for
from simulator.network.catalogue import read_preset
from simulator.report.interval import step_interval
from simulator.report.metrics import Report
from simulator.run import step_report
from simulator.units import parse_bytes
from simulator.workload import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRun:
    """A measured step. preset: the cluster; stack: a name, None for the one of the nearest GPU.

    memory: of a GPU, "" for the preset's. peak_bytes: of the first device, None where it was not published.
    """

    name: str
    card: ModelCard
    grid: TrainingGrid
    preset: str
    measured_s: float
    stack: str | None = None
    memory: str = ""
    peak_bytes: float | None = None
    note: str = ""

    @property
    def command(self) -> str:
        """What a user types for the prediction."""
        machine = f"--cluster {self.preset} --devices {self.grid.devices}"
        machine += f" --memory {self.memory}" if self.memory else ""
        if not self.stack:
            return f"shardscope simulate {self.card.name} {machine} {simulate_options(self.grid)}"
        gpu = _machine(self.preset, self.stack, self.grid.devices)[1].accelerator
        made = f"--stack {self.stack} --device {gpu} --batch-size {STEP_SEQUENCES} --output profile.json"
        simulated = f"shardscope simulate profile.json {machine} {simulate_options(self.grid)}"
        return f"shardscope model {self.card.name} {made}\n    {simulated}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedRun:
    """A run with the report of its simulated step, and whether the printed interval holds the measured one."""

    run: PublishedRun
    report: Report
    inside: bool

    @property
    def step(self) -> PredictedStep:
        run = self.run
        return PredictedStep(
            name=run.name, predicted_s=self.report.step_s, measured_s=run.measured_s, note=run.note
        )  # fmt: skip

    @property
    def peak_error(self) -> float | None:
        """Of the first device's memory, None where it was not published."""
        if not self.run.peak_bytes:
            return None
        return self.report.devices[0].peak_memory_bytes / self.run.peak_bytes - 1


@cache
def _machine(preset: str, stack: str | None, devices: int) -> tuple[Cluster, TrainingStack]:
    cluster = read_preset(preset).build(devices)
    return cluster, stack_for(cluster, read_stack(stack) if stack else None)


@cache
def _profile(card: ModelCard, stack: TrainingStack) -> Profile:
    return modelled_profile(card, stack, batch_size=STEP_SEQUENCES)


@cache
def predicted(run: PublishedRun) -> PredictedRun:
    """The run, simulated. Raises InputError where no plan has it."""
    cluster, stack = _machine(run.preset, run.stack, run.grid.devices)
    cluster = cluster.with_memory(parse_bytes(run.memory)) if run.memory else cluster
    profile = _profile(run.card, stack)
    report = step_report(profile, cluster, grid_plan(run.grid, profile, cluster, stack), runtime=stack.runtime)
    interval = step_interval(report, profile, cluster)
    return PredictedRun(run=run, report=report, inside=interval.low_s <= run.measured_s <= interval.high_s)


def plainest_errors(runs: Sequence[PublishedRun]) -> list[float]:
    """Errors of arithmetic over the peak times one share of it, the median one: no memory, no network, no host."""
    shares = []
    for run in runs:
        peak = accelerator(_machine(run.preset, run.stack, run.grid.devices)[1].accelerator).flops_per_s
        flops = run.card.flops_per_token * run.card.sequence * run.grid.batch
        shares.append(flops / (peak * run.grid.devices) / run.measured_s)
    return [share / median(shares) - 1 for share in shares]


def verdicts(runs: Sequence[PredictedRun]) -> str:
    """How the runs fare beside the plainest formula, their intervals, and "does not fit", which is wrong of each."""
    refused = sum(not each.report.fits for each in runs)
    held = sum(each.inside for each in runs)
    ours = median(abs(each.step.error) for each in runs)
    plain = median(map(abs, plainest_errors([each.run for each in runs])))
    return (
        f"Median {ours:.1%}; arithmetic over one share of the peak, fitted to these runs: {plain:.1%}.\n"
        f"The interval of 9 in 10 steps holds {held} of {len(runs)}. Said not to fit, although they ran: {refused}."
    )
