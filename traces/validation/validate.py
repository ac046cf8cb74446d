"""Predict real runs, make them, and say how wrong the predictions were.

    in each round,           its labs calibrated            folder/clusters, the median of folder/calibrations
    network by network       it is captured                 folder/profiles, the median of folder/captures
                             once: what runtimes add to it  folder/overheads
    for each of its runs     prediction from those files    folder/runs
                             alone, then the run itself
                             plan, and when each task ran   folder/plans, folder/timelines
    in the end               all runs, machine, software    folder/validation.json

A file that exists is not made again, so that a validation which was interrupted continues. All ranks run on this
machine. A shared machine's speed drifts by a fifth from minute to minute, and what one minute shows of it says little
of another. Therefore what is predicted and what is measured are both medians over the rounds of the suite, and in each
a network is captured and its labs are calibrated right before its runs: both sample the same period. Nothing measured
in a run is used to predict.
"""

from __future__ import annotations

import datetime
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from simulator import files
from simulator.cluster import Cluster
from simulator.errors import RunError, ShardscopeError
from simulator.owned_files import remove_unfinished
from simulator.plan import Plan
from simulator.report.interval import StepInterval
from simulator.report.metrics import Report
from simulator.run import expected_interval
from simulator.run import run as simulate
from simulator.workload import Profile
from traces.capture import machine_settings
from traces.lab import namespaces
from traces.lab.child_processes import usable_cores
from traces.lab.shaped_network import Lab
from traces.results.executions import write_execution
from traces.results.run_speed import error_at_run_speed
from traces.results.validation_cases import Case
from traces.results.validations import Round, ValidatedRun, Validation, plan_path, prediction_inputs, timeline_path
from traces.runs.executor.execute import WARMUP, execute
from traces.runs.torch_runtimes.ddp import OPTIONS, run_ddp
from traces.runs.torch_runtimes.measured_steps import MeasuredRun
from traces.runs.torch_runtimes.pipelining import run_pipeline
from traces.validation.measured_inputs import REPEATS, InputMeasurement, shaping_of

STEPS, COUNTED_S = 16, 20.0
"""At least so many steps of a run count, and about so many seconds of them: a core whose other hardware thread is a
neighbour's is slower for milliseconds and for seconds at a time. Median steps of two such cores deviated by 6 to 10 %
in pieces of 5 s, by 4 to 6 % in pieces of 20 s."""
ROUNDS = 3
PARTS = ("captures", "calibrations", "profiles", "overheads", "clusters", "runs", "plans", "timelines")
"""What a folder holds, a file for each network, lab or run."""

MakePlan = Callable[[Case, Profile, Cluster], Plan]


def validate(
    cases: Sequence[Case],
    folder: Path,
    make_plan: MakePlan,
    say: Callable[[str], None] = print,
    *,
    rounds: int = ROUNDS,
    repeats: Mapping[str, int] = REPEATS,
) -> list[ValidatedRun]:
    """Every case's outcome, worst first; rounds that `folder` holds are read, the others made and stored there.

    make_plan: the case's plan from profile and calibrated cluster. say: called with each line about the progress.
    rounds: how often every run is made; repeats: of what is measured before each round, see REPEATS. A run that fails
    is reported to `say` and left out. Raises RunError where this machine has no network lab.
    """
    reason = namespaces.available()
    if reason:
        raise RunError(f"validation compares with runs on a shaped network, and there is none: {reason}")
    cores = usable_cores()[:2]
    for part in PARTS:
        (folder / part).mkdir(parents=True, exist_ok=True)
        remove_unfinished(folder / part)
    inputs = InputMeasurement(folder=folder, cores=cores, say=say, repeats=repeats)
    for number in range(rounds):
        missing, count = [case for case in cases if len(_rounds(folder, case)) <= number], 0
        for model in dict.fromkeys(case.model for case in missing):
            inputs.measure(model, missing, number, rounds)
            for case in (case for case in missing if case.model == model):
                count += 1
                progress = f"[round {number + 1}/{rounds}, {count}/{len(missing)}] {case.name}"
                try:
                    outcome = _made(folder, case, cores, make_plan)
                except ShardscopeError as error:
                    say(f"{progress}: {error}")
                    continue
                files.write_json(outcome, run_path(folder, case))
                actual_s = outcome.rounds[-1].step_s
                steps = f"predicted {outcome.predicted_s * 1e3:.1f} ms, actual {actual_s * 1e3:.1f} ms"
                say(f"{progress}: {steps}, error {outcome.predicted_s / actual_s - 1:+.1%}")
    wanted = {case.name for case in cases}
    outcomes = [outcome for outcome in stored(folder) if outcome.case.name in wanted]
    validation = Validation(
        machine=machine_settings.device_name(),
        cores=len(cores),
        software=machine_settings.software(),
        outcomes=tuple(stored(folder)),
    )
    files.write_json(validation, folder / "validation.json")
    return outcomes


def stored(folder: Path) -> list[ValidatedRun]:
    """The outcomes that `folder` holds, worst first."""
    outcomes = [files.read_json(path, ValidatedRun) for path in sorted((folder / "runs").glob("*.json"))]
    return sorted(outcomes, key=lambda outcome: -abs(outcome.error))


def run_path(folder: Path, case: Case) -> Path:
    """Where a run and its prediction are stored (JSON)."""
    return folder / "runs" / f"{case.name}.json"


def _rounds(folder: Path, case: Case) -> tuple[Round, ...]:
    """The rounds of a run that `folder` holds."""
    path = run_path(folder, case)
    return files.read_json(path, ValidatedRun).rounds if path.exists() else ()


def predicted(folder: Path, case: Case, make_plan: MakePlan) -> tuple[Profile, Plan, Report, StepInterval]:
    """The case's plan, the simulator's report and its interval, from the stored profile and calibration alone.

    What is predicted is the middle of the interval: ranks vary, and wait for each other. The plan is that of the first
    round, where there was one.
    """
    profile, cluster, runtime = prediction_inputs(folder, case)
    path = plan_path(folder, case)
    plan = files.read_plan(path) if path.exists() else make_plan(case, profile, cluster)
    report = simulate(profile, cluster, plan, runtime=runtime).report
    return profile, plan, report, expected_interval(report, profile, cluster, plan, runtime)


def _made(folder: Path, case: Case, cores: Sequence[int], make_plan: MakePlan) -> ValidatedRun:
    """The case with one more round."""
    profile, plan, report, interval = predicted(folder, case, make_plan)
    load, steps = os.getloadavg()[0], max(STEPS, math.ceil(COUNTED_S / interval.middle_s))
    run = _run(case, profile, plan, case.network.cluster(cores), case.pinning(cores), steps)
    files.write_plan(plan, plan_path(folder, case))
    write_execution(run.execution, timeline_path(folder, case))
    again = Round(
        step_s=run.step_s,
        spread_s=run.spread_s,
        steps=len(run.steps_s),
        sent_bytes=run.sent_bytes or 0.0,
        peak_bytes=max(run.peak_bytes, default=None),
        load=load,
        date=f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M}",
        stolen_share=run.execution.stolen_share,
        predicted_s=interval.middle_s,
    )
    return ValidatedRun(
        case=case,
        predicted_s=interval.middle_s,
        predicted_bytes=report.communication_bytes.total,
        predicted_memory_bytes=report.peak_memory_bytes,
        interval_s=(interval.low_s, interval.high_s),
        error_at_run_speed=error_at_run_speed(folder, case),
        rounds=(*_rounds(folder, case), again),
    )


def _run(
    case: Case, profile: Profile, plan: Plan, nominal: Cluster, cores: Sequence[Sequence[int]], steps: int
) -> MeasuredRun:
    """Make the run in a lab of its own."""
    stragglers = [] if case.straggler is None else [case.straggler]
    with Lab(nominal, shaping_of(case.network)) as lab:
        if case.via == "ddp":
            options = {"static_graph": True} if case.static_graph else {}
            options = options if case.defaults else {**OPTIONS, **options}
            return run_ddp(
                profile, nominal, plan, steps=steps, lab=lab, cores=cores, stragglers=stragglers, options=options
            )
        if case.via == "pipelining":
            return run_pipeline(profile, nominal, plan, steps=steps, lab=lab, cores=cores)
        execution = execute(profile, nominal, plan, steps=steps, lab=lab, cores=cores)
        names = [device.name for device in nominal.devices]
        carried = sum(count for name, count in lab.carried_bytes().items() if name.split("->")[0] in names)
    return MeasuredRun(
        steps_s=execution.steps_s, sent_bytes=carried / (WARMUP + steps), peak_bytes=(), execution=execution
    )
