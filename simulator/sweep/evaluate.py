"""One point of a sweep: partition, lower, simulate, measure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from simulator.cluster import Cluster
from simulator.errors import ShardscopeError
from simulator.language_models.training_stack import optimizer_state_of
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.tasks.gradients import static_bytes
from simulator.parameter_states import ParameterStates
from simulator.plan import Plan, Synchronisation, split_settings
from simulator.report.interval import step_interval
from simulator.report.metrics import Report, measure
from simulator.run import lowered, vary
from simulator.sweep.axes import Value
from simulator.sweep.inputs import Inputs, tier_of
from simulator.sweep.points import MACHINE, SYNCHRONISATION, Point
from simulator.sweep.specification import REQUIRED
from simulator.units import format_bytes
from simulator.workload import Profile

STATUSES = DONE, INFEASIBLE, DROPPED, FAILED, PENDING = "done", "infeasible", "dropped", "failed", "pending"
STAGES = ("partition", "lower", "simulate", "measure")
SLICE_S = 0.2
"""How long a worker goes on with the points that it got before it gives their results."""

METRICS: Mapping[str, Callable[[Plan, Report], Value]] = {
    "plan_microbatches": lambda plan, report: plan.microbatches,
    "plan_schedule": lambda plan, report: plan.schedule,
    "step_s": lambda plan, report: report.step_s,
    "samples_per_s": lambda plan, report: report.samples_per_s,
    "speedup": lambda plan, report: report.speedup,
    "efficiency": lambda plan, report: report.efficiency,
    "load_balance_ratio": lambda plan, report: report.load_balance_ratio,
    "bubble_ratio": lambda plan, report: report.bubble_ratio,
    "communication_bytes": lambda plan, report: report.communication_bytes.total,
    "forward_bytes": lambda plan, report: report.communication_bytes.forward,
    "backward_bytes": lambda plan, report: report.communication_bytes.backward,
    "synchronisation_bytes": lambda plan, report: report.communication_bytes.synchronisation,
    "peak_memory_bytes": lambda plan, report: report.peak_memory_bytes,
    "fits": lambda plan, report: int(report.fits),
    "verdict": lambda plan, report: report.verdict,
    "bottleneck": lambda plan, report: report.bottleneck.resource,
    "bottleneck_share": lambda plan, report: report.bottleneck.share,
    "critical_path_s": lambda plan, report: report.critical_path_s,
    "dollars_per_sample": lambda plan, report: (
        None if report.dollars_per_step is None else report.dollars_per_step / plan.batch_size
    ),
    "tasks": lambda plan, report: report.tasks,
}
"""How most columns of the table come from a plan and its report."""

COLUMNS = (*METRICS, "step_low_s", "step_high_s")
"""All of them: the last two are the ends of the step's interval, empty where devices vary: `simulate` draws them."""
TEXTS = ("plan_schedule", "verdict", "bottleneck")
"""Those that hold words; the others are numbers of at least 0."""


MakePlan = Callable[..., Plan]


@dataclass(frozen=True, kw_only=True)
class SweepContext:
    """What every worker needs beside the point: inputs, and who makes plans.

    make_plan: (strategy, profile, cluster, step, options of the strategy by name) -> its plan.
    must_fit: leave out points whose plan does not fit into memory.
    """

    inputs: Inputs
    make_plan: MakePlan
    version: str
    must_fit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PointResult:
    """The row of one point: a status, why it has no metrics, and the metrics in the units that their names end in.

    seconds: wall-clock, by stage; they differ from run to run and are not part of the row.
    """

    number: int
    status: str
    error: str = ""
    metrics: Mapping[str, Value] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)


def evaluate(context: SweepContext, point: Point) -> PointResult:
    """Run one point. Never raises an Exception: an error is a result with a status."""
    clock = _Clock()
    try:
        metrics, dropped = _measured(context, point.values, clock)
        status = DROPPED if dropped else DONE
        return PointResult(number=point.number, status=status, error=dropped, metrics=metrics, seconds=clock.seconds)
    except ShardscopeError as error:
        status, reason = INFEASIBLE, str(error)
    except Exception as error:
        status, reason = FAILED, f"{type(error).__name__}: {error}"
    return PointResult(number=point.number, status=status, error=" ".join(reason.split()), seconds=clock.seconds)


def evaluate_some(context: SweepContext, points: Sequence[Point]) -> list[PointResult]:
    """The results of the first of `points`: at least one, and more until SLICE_S have gone by."""
    until, results = perf_counter() + SLICE_S, [evaluate(context, points[0])]
    while len(results) < len(points) and perf_counter() < until:
        results.append(evaluate(context, points[len(results)]))
    return results


def make_plan(context: SweepContext, values: Mapping[str, Value]) -> Plan:
    """The plan of a point. Raises InputError when the strategy cannot make one."""
    profile, cluster = context.inputs.profile(values), context.inputs.cluster(values)
    usual = {"runtime": context.inputs.runtime(values), "optimizer_state": optimizer_state_of(profile)}
    step, own = split_settings({**usual, **_arguments(values)})
    return context.make_plan(str(values["strategy"]), profile, cluster, step, **own)


class _Clock:
    """Wall-clock seconds of consecutive stages."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = perf_counter()

    def end(self, stage: str) -> None:
        now = perf_counter()
        self.seconds[stage], self._last = now - self._last, now


def _measured(context: SweepContext, values: Mapping[str, Value], clock: _Clock) -> tuple[dict[str, Value], str]:
    """(metrics, why it was dropped) of a point; one that cannot fit is dropped before it is simulated."""
    profile, cluster = context.inputs.profile(values), context.inputs.cluster(values)
    plan = make_plan(context, values)
    clock.end("partition")
    if context.must_fit and (reason := _cannot_fit(profile, cluster, plan)):
        return {}, reason
    runtime = context.inputs.runtime(values)
    known = lowered(profile, cluster, plan, runtime, once=True)
    clock.end("lower")
    timeline = known.timeline(cluster)
    clock.end("simulate")
    report = measure(known.model, cluster, known.graph, timeline, runtime)
    clock.end("measure")
    if context.must_fit and not report.fits:
        return {}, report.verdict
    metrics = {name: of(plan, report) for name, of in METRICS.items()}
    interval = None if vary(profile) else step_interval(report, profile, cluster)
    ends_s = (interval.low_s, interval.high_s) if interval else (None, None)
    return {**metrics, **dict(zip(("step_low_s", "step_high_s"), ends_s, strict=True))}, ""


def _arguments(values: Mapping[str, Value]) -> dict[str, Any]:
    """What a point asks of the step, and the strategy's own options."""
    apart = {*REQUIRED, *MACHINE, *SYNCHRONISATION}
    options: dict[str, Any] = {k: v for k, v in values.items() if v is not None and k not in apart and not tier_of(k)}
    changes: dict[str, Any] = {k: values[k] for k in SYNCHRONISATION if values.get(k) is not None}
    states = ParameterStates(stage=options.pop("zero_stage", 0), group=options.pop("shard_group", 0))
    return options | {"synchronisation": replace(Synchronisation(), **changes), "states": states}


def _cannot_fit(profile: Profile, cluster: Cluster, plan: Plan) -> str:
    """Why `plan` exceeds a device's memory already with parameters, gradients and optimizer state; empty if not."""
    plan.check(profile, cluster)
    needed = static_bytes(ShardedModel(profile, plan), cluster)
    for number, device in enumerate(cluster.devices):
        if device.memory_bytes is not None and needed[number] > device.memory_bytes:
            return (
                f"does not fit: {device.name} needs {format_bytes(needed[number])} of "
                f"{format_bytes(device.memory_bytes)} for parameters, gradients and optimizer state alone"
            )
    return ""
