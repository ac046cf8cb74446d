"""What a validation holds: real runs beside their predictions. No torch here, so that anything may read it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from simulator import files
from simulator.cluster import Cluster
from simulator.errors import require
from simulator.network.catalogue import read_cluster, read_runtime
from simulator.run import run as simulate
from simulator.runtime import Runtime
from simulator.workload import Profile
from traces.results.executions import read_execution
from traces.results.timeline_comparison import Comparison, compare
from traces.results.validation_cases import Case, with_habits_of

DISTURBED = 0.02
"""A run whose machine lost a larger share of its core time to its host is reported apart: that alone made it so much
longer, or more, as the ranks wait for each other."""


def disturbed_words(outcomes: Sequence[ValidatedRun]) -> str:
    """How many of the runs are `disturbed`, and how far off their predictions are; empty where none is."""
    disturbed = [outcome for outcome in outcomes if outcome.disturbed]
    if not disturbed:
        return ""
    apart = summarised(disturbed)
    return (
        f"{apart.runs} of these while the machine's host took over {DISTURBED:.0%} of its core time: "
        f"mean absolute error {apart.mean_absolute_error:.1%}, bias {apart.bias:+.1%}"
    )


def summarised(outcomes: Sequence[ValidatedRun]) -> Summary:
    """The summary of at least one outcome."""
    worst = max(outcomes, key=lambda outcome: abs(outcome.error))
    return Summary(
        runs=len(outcomes),
        mean_absolute_error=statistics.fmean(abs(outcome.error) for outcome in outcomes),
        bias=statistics.fmean(outcome.error for outcome in outcomes),
        worst=worst.case.name,
        worst_error=worst.error,
        worst_bytes_error=max((outcome.bytes_error for outcome in outcomes), key=abs),
        covered=statistics.fmean(known) if (known := [x.covered for x in outcomes if x.covered is not None]) else None,
        at_run_speed=_error_figures([x.error_at_run_speed for x in outcomes if x.error_at_run_speed is not None]),
        first_round=_error_figures([error for x in outcomes if (error := x.first_error) is not None]),
    )


def _error_figures(errors: Sequence[float]) -> tuple[float, float, float] | None:
    """Mean of the absolute values, of the signed ones, the largest; None of none."""
    if not errors:
        return None
    return statistics.fmean(map(abs, errors)), statistics.fmean(errors), max(errors, key=abs)


def prediction_inputs(folder: Path, case: Case) -> tuple[Profile, Cluster, Runtime]:
    """What a prediction is made of: the captured network, the calibrated lab and the calibrated runtime.

    Raises InputError or OSError.
    """
    profile = files.read_profile(folder / "profiles" / f"{case.model}.json")
    path = folder / "clusters" / f"{case.network.name}.yaml"
    cluster, runtime = read_cluster(path), read_runtime(path)
    if case.needs_overhead:
        overhead = files.read_json(folder / "overheads" / f"{case.model}.json", Overhead)
        runtime = replace(runtime, **_added(case, profile, overhead))
    return profile, case.with_straggler(cluster), with_habits_of(case.via, runtime)


def _added(case: Case, profile: Profile, overhead: Overhead) -> dict[str, Any]:
    """What the runtime of a case adds; that of DistributedDataParallel to a step is shared out among its tasks."""
    if case.via == "pipelining":
        return {"pass_overhead_s": overhead.pass_overhead_s}
    if case.via == "execute":
        return {"task_overhead_s": overhead.task_overhead_s}
    tasks = 2 * len(profile.layers) * int(case.options.get("microbatches", 1)) + 1
    return {"task_overhead_s": overhead.ddp_step_s / tasks}


def explained(folder: Path, case: Case) -> Comparison | None:
    """A run compared with its prediction task by task; None where the folder has no timeline of it.

    Raises InputError where plan and timeline are not of each other, OSError where a file cannot be read.
    """
    if not timeline_path(folder, case).exists():
        return None
    profile, cluster, runtime = prediction_inputs(folder, case)
    predicted = simulate(profile, cluster, files.read_plan(plan_path(folder, case)), runtime=runtime)
    return compare(predicted.graph, predicted.timeline, read_execution(timeline_path(folder, case)).timeline)


def plan_path(folder: Path, case: Case) -> Path:
    """Where a validation stores the case's plan (JSON)."""
    return folder / "plans" / f"{case.name}.json"


def timeline_path(folder: Path, case: Case) -> Path:
    """Where a validation stores the timeline of the case's last run (an execution, .npz)."""
    return folder / "timelines" / f"{case.name}.npz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """What runtimes add: our executor to each task of a network, torch's pipelines to each pass (measured).

    ddp_step_s: what DistributedDataParallel adds to a whole step where it is told nothing, which is copying gradients
    into its buckets and back.
    """

    task_overhead_s: float
    pass_overhead_s: float
    ddp_step_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A run made once: the median of its steps, and their interquartile range.

    sent_bytes: payload per step. peak_bytes: of the fullest rank, None where it is not measured. load: of the machine
    as it began, in processes. stolen_share: of core time, what its host took for others in the counted
    steps; None in older files and where the kernel does not say. predicted_s: seconds of a step, as predicted just
    before; None in older files.
    """

    step_s: float
    spread_s: float
    steps: int
    sent_bytes: float
    peak_bytes: int | None
    load: float
    date: str
    stolen_share: float | None = None
    predicted_s: float | None = None

    def __post_init__(self) -> None:
        require(0 < self.step_s < inf, "step_s", self.step_s, "a step takes time")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatedRun:
    """A run, made in one or more rounds over the suite, and its prediction. Seconds and bytes per step.

    Measured values are medians over the rounds, as a shared machine's speed drifts from minute to minute; predicted_s
    is from all that was captured and calibrated until the last round, none of it in a run. interval_s: in which the
    step was predicted to be 9 times in 10. error_at_run_speed: the error where devices compute as fast as in the run
    (`traces.results.run_speed`), without what layers' times get wrong. Both are None in older files.
    """

    case: Case
    predicted_s: float
    predicted_bytes: float
    predicted_memory_bytes: float
    interval_s: tuple[float, float] | None = None
    error_at_run_speed: float | None = None
    rounds: tuple[Round, ...]

    def __post_init__(self) -> None:
        require(0 < self.predicted_s < inf, "predicted_s", self.predicted_s, "a step takes time")
        require(len(self.rounds) > 0, "rounds", "empty", "a run has been made")
        sent = self.predicted_bytes > 0
        require(0 <= self.predicted_bytes < inf, "predicted_bytes", self.predicted_bytes, "it is finite and at least 0")
        require(self.counted_bytes > 0 or not sent, "sent_bytes", self.counted_bytes, "the plan sends something")

    @property
    def actual_s(self) -> float:
        """Measured seconds of a step: the median of the rounds' median steps."""
        return statistics.median(each.step_s for each in self.rounds)

    @property
    def actual_spread_s(self) -> float:
        """Interquartile range of the steps of a round, in seconds."""
        return statistics.median(each.spread_s for each in self.rounds)

    @property
    def drift_s(self) -> float:
        """Seconds of a step between the fastest and the slowest round."""
        return max(each.step_s for each in self.rounds) - min(each.step_s for each in self.rounds)

    @property
    def counted_bytes(self) -> float:
        """Payload that all ranks sent in a step, counted at their interfaces."""
        return statistics.median(each.sent_bytes for each in self.rounds)

    @property
    def actual_memory_bytes(self) -> int | None:
        """Measured peak of the fullest rank in any round; None where no round measured it."""
        return max((each.peak_bytes for each in self.rounds if each.peak_bytes is not None), default=None)

    @property
    def load(self) -> float:
        """The machine's greatest load as a round began, in processes."""
        return max(each.load for each in self.rounds)

    @property
    def stolen_share(self) -> float | None:
        """The largest share of core time that the machine's host took in any round; None where none is known."""
        return max((each.stolen_share for each in self.rounds if each.stolen_share is not None), default=None)

    @property
    def disturbed(self) -> bool:
        """Whether it is known that the host took more than DISTURBED."""
        return self.stolen_share is not None and self.stolen_share > DISTURBED

    @property
    def error(self) -> float:
        """Signed relative error of the predicted step."""
        return self.predicted_s / self.actual_s - 1

    @property
    def first_error(self) -> float | None:
        """Signed relative error of the first round alone, as predicted before it; None in older files."""
        predicted_s, actual_s = self.rounds[0].predicted_s, self.rounds[0].step_s
        return None if predicted_s is None else predicted_s / actual_s - 1

    @property
    def covered(self) -> bool | None:
        """Whether the actual step lies in the predicted interval; None where there is none."""
        return None if self.interval_s is None else self.interval_s[0] <= self.actual_s <= self.interval_s[1]

    @property
    def bytes_error(self) -> float:
        """Signed relative error of the predicted volume; a plan that sends nothing has none."""
        return self.predicted_bytes / self.counted_bytes - 1 if self.predicted_bytes else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Errors of the predicted step over the runs: mean of the absolute values, of the signed ones, the largest.

    covered: the share of the runs within their predicted intervals, None where none has one. at_run_speed: the mean of
    the absolute, of the signed and the largest error with devices as fast as in the runs, first_round: the same of the
    first rounds alone, as predicted before them; None where none is known.
    """

    runs: int
    mean_absolute_error: float
    bias: float
    worst: str
    worst_error: float
    worst_bytes_error: float
    covered: float | None = None
    at_run_speed: tuple[float, float, float] | None = None
    first_round: tuple[float, float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """Runs with their predictions, worst first, and the machine and software that they ran on."""

    machine: str
    cores: int
    software: Mapping[str, str]
    outcomes: tuple[ValidatedRun, ...]
