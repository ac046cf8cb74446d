"""Published runs of language models: each a card, a grid, a preset and a stack, predicted as by every command."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from benchmarks.accuracy._plans import prediction_of
from benchmarks.accuracy._steps import PredictedStep
from partitioners._grids.grid_plan import grid_plan, simulate_options
from simulator.cluster import Cluster
from simulator.errors import InputError
from simulator.language_models.accelerators import accelerator
from simulator.language_models.model_card import ModelCard
from simulator.language_models.modelled_profile import STEP_SEQUENCES, modelled_profile
from simulator.language_models.training_grid import TrainingGrid
from simulator.language_models.training_stack import TrainingStack, read_stack, stack_for
from simulator.network.catalogue import read_preset
from simulator.report.metrics import Report
from simulator.run import step_report
from simulator.units import parse_bandwidth, parse_bytes
from simulator.workload import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRun:
    """A measured run."""

    name: str
    card: ModelCard
    grid: TrainingGrid
    preset: str
    """The cluster."""
    measured_s: float | None = None
    """Seconds of the step; None where only its peak was published."""
    stack: str | None = None
    """A name or file, None for the one of the nearest GPU."""
    memory: str = ""
    """Of a GPU, such as "80GiB"; "" for the preset's."""
    bandwidth: str = ""
    """Of a tier's links, such as "inter=400Gbps"; "" for the preset's."""
    precision: str | None = None
    """Of products; None: the stack's."""
    attention: str | None = None
    """Its kernel; None: the stack's."""
    gradient_dtype: str = ""
    """In which gradients are added up and summed; "": the stack's."""
    speed: float = 1.0
    """Of the GPUs, over those of the preset."""
    peak_bytes: float | None = None
    """Measured peak of a device; None where it was not published."""
    peak_device: int = 0
    """Whose peak that is."""
    family: str = ""
    """Its row in the table of its source."""
    software: str = ""
    """See `PredictedStep`."""
    setting: str = ""
    """What plans of one ranking share beside network and machine, such as a release."""
    note: str = ""

    @property
    def command(self) -> str:
        """What a user types for the prediction."""
        machine = f"--cluster {self.preset} --devices {self.grid.devices}"
        machine += f" --memory {self.memory}" if self.memory else ""
        machine += f" --bandwidth {self.bandwidth}" if self.bandwidth else ""
        machine += f" --speed {self.speed}" if self.speed != 1 else ""
        if not (self.stack or self.precision or self.attention):
            return f"shardscope simulate {self.card.name} {machine} {simulate_options(self.grid)}"
        stack = _machine(self)[1]
        made = f"--stack {self.stack or stack.name} --device {stack.accelerator} --batch-size {STEP_SEQUENCES}"
        made += f" --precision {self.precision}" if self.precision else ""
        made += f" --attention {self.attention}" if self.attention else ""
        simulated = f"shardscope simulate profile.json {machine} {simulate_options(self.grid)}"
        simulated += f" --gradient-dtype {self.gradient_dtype}" if self.gradient_dtype else ""
        return f"shardscope model {self.card.name} {made} --output profile.json\n{simulated}"


def _machine(run: PublishedRun) -> tuple[Cluster, TrainingStack]:
    return _kept_machine(run.preset, run.stack, run.grid.devices, run.precision, run.attention)


@cache
def _kept_machine(
    preset: str, stack: str | None, devices: int, precision: str | None, attention: str | None
) -> tuple[Cluster, TrainingStack]:
    cluster = read_preset(preset).build(devices)
    own = stack_for(cluster, read_stack(stack) if stack else None)
    return cluster, own.with_precision(precision).with_attention(attention)


@cache
def _profile(card: ModelCard, stack: TrainingStack) -> Profile:
    return modelled_profile(card, stack, batch_size=STEP_SEQUENCES)


def simulated(run: PublishedRun) -> tuple[Report, Profile, Cluster]:
    """The run's report, and what it was made of. Raises InputError where the product refuses it."""
    cluster, stack = _machine(run)
    stack = replace(stack, gradient_dtype=run.gradient_dtype or stack.gradient_dtype)
    cluster = cluster.with_memory(parse_bytes(run.memory)) if run.memory else cluster
    cluster = cluster.with_speed(run.speed) if run.speed != 1 else cluster
    if run.bandwidth:
        tier, _, text = run.bandwidth.partition("=")
        cluster = cluster.with_tier(tier, bandwidth_bytes_per_s=parse_bandwidth(text))
    profile = _profile(run.card, stack)
    report = step_report(profile, cluster, grid_plan(run.grid, profile, cluster, stack), runtime=stack.runtime)
    return report, profile, cluster


def predicted(run: PublishedRun) -> PredictedStep:
    """The run beside its prediction."""
    known: dict[str, Any] = {
        "name": run.name,
        "measured_s": run.measured_s,
        "measured_peak_bytes": run.peak_bytes,
        "plain_s": plain_seconds(run),
        "group": f"{run.card.name}, {run.grid.devices} {run.preset}{run.setting}",
        "family": run.family,
        "software": run.software,
        "note": run.note,
    }
    try:
        plan = replace(run, name="", family="", software="", setting="", note="", measured_s=None, peak_bytes=None)
        said, peaks_bytes = _said(plan)
    except InputError as error:
        return PredictedStep(**{**known, "note": f"refused: {error}"})
    return PredictedStep(**known, **said, peak_bytes=peaks_bytes[run.peak_device])


@cache
def _said(run: PublishedRun) -> tuple[dict[str, Any], list[float]]:
    """What is predicted of a plan, which several runs may be of, and the peak of each device."""
    report, profile, cluster = simulated(run)
    return prediction_of(report, profile, cluster), [device.peak_memory_bytes for device in report.devices]


def all_predicted(runs: Iterable[PublishedRun]) -> list[PredictedStep]:
    """Every run beside its prediction."""
    return [predicted(run) for run in runs]


def plain_seconds(run: PublishedRun) -> float:
    """The plainest formula: arithmetic of the step over the peak of all devices; no memory, no network, no host."""
    gpu = accelerator(_machine(run)[1].accelerator)
    flops = run.card.flops_per_token * run.card.sequence * run.grid.batch
    return flops / (gpu.flops_per_s * run.grid.devices)
