"""Predict real runs, make them, and say how wrong the predictions were.

    once, before any run     calibration of every lab       folder/clusters
                             a profile of every network     folder/profiles, the median of folder/captures
                             what runtimes add to it        folder/overheads
    for each run             prediction from those files    folder/runs
                             alone, then the run itself
                             plan, and when each task ran   folder/plans, folder/timelines
    in the end               all runs, machine, software    folder/validation.json

A file that exists is not made again, so that a validation which was interrupted continues. All ranks run
on this machine, each pinned to one core. A shared machine's speed drifts by a fifth from minute to minute; therefore
captures are spread over the calibration, and the suite is run through in rounds.
"""

from __future__ import annotations

import datetime
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from simulator import files
from simulator.cluster import Cluster
from simulator.errors import RunError, ShardscopeError
from simulator.network.catalogue import write_cluster
from simulator.plan import Plan
from simulator.report.metrics import Report
from simulator.run import run as simulate
from simulator.runtime import Runtime
from simulator.workload import Profile
from traces.calibrate.links import calibrate
from traces.calibrate.runtime_overheads import pass_overhead_s, task_overhead_s
from traces.capture import machine_settings
from traces.capture.command import FRACTIONS, capture
from traces.capture.median_profile import median_profile
from traces.lab import namespaces
from traces.lab.launch import launch
from traces.lab.rank import Rank
from traces.lab.shaped_network import Lab
from traces.results.executions import write_execution
from traces.results.validation_cases import Case, LabNetwork, pinning
from traces.results.validations import (
    Overhead,
    Round,
    ValidatedRun,
    Validation,
    plan_path,
    prediction_inputs,
    timeline_path,
)
from traces.runs.executor.execute import WARMUP, execute
from traces.runs.torch_runtimes.ddp import run_ddp
from traces.runs.torch_runtimes.measured_steps import MeasuredRun
from traces.runs.torch_runtimes.pipelining import run_pipeline

STEPS = 16
ROUNDS = 3
BATCH_SIZE = 32
CALIBRATED_BYTES = (64, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 23)

MakePlan = Callable[[Case, Profile, Cluster], Plan]


def validate(
    cases: Sequence[Case],
    folder: Path,
    make_plan: MakePlan,
    say: Callable[[str], None] = print,
    *,
    rounds: int = ROUNDS,
) -> list[ValidatedRun]:
    """Every case's outcome, worst first; rounds that `folder` holds are read, the others made and stored there.

    make_plan: the case's plan from profile and calibrated cluster. say: called with each line about the progress.
    rounds: how often every run is made, and every network captured before. A run that fails is reported to `say` and
    left out. Raises RunError where this machine has no network lab.
    """
    reason = namespaces.available()
    if reason:
        raise RunError(f"validation compares with runs on a shaped network, and there is none: {reason}")
    cores = sorted(os.sched_getaffinity(0))[:2]
    for part in ("captures", "profiles", "overheads", "clusters", "runs", "plans", "timelines"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    _calibrate([case for case in cases if len(_rounds(folder, case)) < rounds], folder, cores, say, captures=rounds)
    for number in range(rounds):
        missing = [case for case in cases if len(_rounds(folder, case)) <= number]
        for count, case in enumerate(missing, 1):
            progress = f"[round {number + 1}/{rounds}, {count}/{len(missing)}] {case.name}"
            try:
                outcome = _made(folder, case, cores, make_plan)
            except ShardscopeError as error:
                say(f"{progress}: {error}")
                continue
            files.write_text_atomic(_path(folder, case), files.to_json(outcome))
            actual_s = outcome.rounds[-1].step_s
            say(f"{progress}: predicted {outcome.predicted_s * 1e3:.1f} ms, actual {actual_s * 1e3:.1f} ms, "
                f"error {outcome.predicted_s / actual_s - 1:+.1%}")  # fmt: skip
    wanted = {case.name for case in cases}
    outcomes = [outcome for outcome in stored(folder) if outcome.case.name in wanted]
    cpu = torch.device("cpu")
    validation = Validation(
        machine=machine_settings.device_name(cpu, 1),
        cores=len(cores),
        software=machine_settings.software(cpu),
        outcomes=tuple(outcomes),
    )
    files.write_text_atomic(folder / "validation.json", files.to_json(validation))
    return outcomes


def stored(folder: Path) -> list[ValidatedRun]:
    """The outcomes that `folder` holds, worst first."""
    outcomes = [files.read_json(path, ValidatedRun) for path in sorted((folder / "runs").glob("*.json"))]
    return sorted(outcomes, key=lambda outcome: -abs(outcome.error))


def predict_again(cases: Sequence[Case], folder: Path, make_plan: MakePlan) -> None:
    """Replace the stored predictions of `cases` by those of the simulator as it is now, from the same calibration."""
    wanted = {case.name for case in cases}
    for outcome in stored(folder):
        if outcome.case.name in wanted:
            report = predicted(folder, outcome.case, make_plan)[3]
            again = replace(
                outcome,
                predicted_s=report.step_s,
                predicted_bytes=report.communication_bytes.total,
                predicted_memory_bytes=report.peak_memory_bytes,
            )
            files.write_text_atomic(_path(folder, outcome.case), files.to_json(again))


def _path(folder: Path, case: Case) -> Path:
    return folder / "runs" / f"{case.name}.json"


def _rounds(folder: Path, case: Case) -> tuple[Round, ...]:
    """The rounds of a run that `folder` holds."""
    path = _path(folder, case)
    return files.read_json(path, ValidatedRun).rounds if path.exists() else ()


def _calibrate(
    cases: Sequence[Case], folder: Path, cores: Sequence[int], say: Callable[[str], None], captures: int
) -> None:
    """Measure what predictions of `cases` are made from, unless it is stored: labs, and captures between them."""
    models = list(dict.fromkeys(case.model for case in cases))
    networks = list(dict.fromkeys(case.network for case in cases))
    for number in range(captures):
        for model in models:
            _captured(folder, model, number, cores, say)
        for network in networks[number::captures]:
            _calibrated(folder, network, cores, say)
    for model in models:
        path = folder / "profiles" / f"{model}.json"
        if not path.exists():
            paths = [folder / "captures" / f"{model}.{number}.json" for number in range(captures)]
            files.write_profile(median_profile([files.read_profile(each) for each in paths]), path)
    for model in dict.fromkeys(case.model for case in cases if case.via != "ddp"):
        _overhead(folder, model, cores, say)


def _captured(folder: Path, model: str, number: int, cores: Sequence[int], say: Callable[[str], None]) -> None:
    """Capture the network on every core at once, as caches and memory are shared in the runs, unless it is stored."""
    path = folder / "captures" / f"{model}.{number}.json"
    if not path.exists():
        say(f"capture {number + 1} of {model}")
        capture_on_all_cores(path, model, BATCH_SIZE, cores, command="shardscope validate")


def capture_on_all_cores(path: Path, model: str, batch_size: int, cores: Sequence[int], command: str) -> None:
    """Write the profile of a network captured on every core at once; command: what its file says it was made by."""
    arguments = {"path": str(path), "model": model, "batch_size": batch_size, "command": command}
    on_all_cores("traces.validation.validate:profile_rank", cores, arguments, timeout_s=900)


def on_all_cores(target: str, cores: Sequence[int], arguments: dict[str, object], timeout_s: float) -> list[Any]:
    """What `target` returns in a process on each core, none of which talks to another."""
    pinned = pinning(len(cores), cores)
    return launch(target, len(cores), arguments=arguments, cores=pinned, backend="", timeout_s=timeout_s)


def profile_rank(rank: Rank, path: str, model: str, batch_size: int, command: str) -> None:
    """What each process of a capture on all cores does; rank 0 keeps the profile."""
    rank.doing(f"capture of {model}")
    profile = capture(model, batch_size, repeats=25, fractions=FRACTIONS, command=command)
    if rank.number == 0:
        files.write_profile(profile, path)


def _overhead(folder: Path, model: str, cores: Sequence[int], say: Callable[[str], None]) -> None:
    """Measure on every core at once what runtimes add to the work of the network's layers, unless it is stored."""
    path = folder / "overheads" / f"{model}.json"
    if not path.exists():
        say(f"runtimes' overhead on {model}")
        arguments: dict[str, object] = {"path": str(folder / "profiles" / f"{model}.json")}
        overheads_s = on_all_cores("traces.validation.validate:overhead_rank", cores, arguments, timeout_s=300)
        of_task_s, of_pass_s = (statistics.fmean(each) for each in zip(*overheads_s, strict=True))
        overhead = Overhead(task_overhead_s=of_task_s, pass_overhead_s=of_pass_s)
        files.write_text_atomic(path, files.to_json(overhead))


def overhead_rank(rank: Rank, path: str) -> tuple[float, float]:
    """What each process of `_overhead` does: seconds per task of our executor, per pass of torch's pipelines."""
    profile = files.read_profile(path)
    rank.doing("a step of the executor alone")
    of_task_s = task_overhead_s(profile)
    rank.doing("a pipeline of one stage")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    of_pass_s = pass_overhead_s(profile)
    dist.destroy_process_group()
    return of_task_s, of_pass_s


def _calibrated(folder: Path, network: LabNetwork, cores: Sequence[int], say: Callable[[str], None]) -> None:
    """Calibrate the lab unless it is stored."""
    path = folder / "clusters" / f"{network.name}.yaml"
    if not path.exists():
        say(f"calibration of lab {network.name}")
        cluster, runtime = calibrated_lab(network, cores)
        write_cluster(cluster, path, runtime)


def calibrated_lab(network: LabNetwork, cores: Sequence[int]) -> tuple[Cluster, Runtime]:
    """The lab's cluster with its measured links and all-reduces of all workers, and the runtime that used them."""
    nominal = network.cluster(cores)
    pinned = pinning(len(nominal.devices), cores)
    with Lab(nominal) as lab:
        return calibrate(nominal, lab, sizes_bytes=CALIBRATED_BYTES, counts=[nominal.workers], cores=pinned)


def predicted(folder: Path, case: Case, make_plan: MakePlan) -> tuple[Profile, Cluster, Plan, Report]:
    """The case's plan and the simulator's report of it, from the stored profile and calibration alone."""
    profile, cluster, runtime = prediction_inputs(folder, case)
    plan = make_plan(case, profile, cluster)
    return profile, cluster, plan, simulate(profile, cluster, plan, runtime=runtime).report


def _made(folder: Path, case: Case, cores: Sequence[int], make_plan: MakePlan) -> ValidatedRun:
    """The case with one more round."""
    profile, cluster, plan, report = predicted(folder, case, make_plan)
    load = os.getloadavg()[0]
    run = _run(case, profile, plan, case.network.cluster(cores), pinning(len(cluster.devices), cores))
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
    )
    return ValidatedRun(
        case=case,
        predicted_s=report.step_s,
        predicted_bytes=report.communication_bytes.total,
        predicted_memory_bytes=report.peak_memory_bytes,
        rounds=(*_rounds(folder, case), again),
    )


def _run(case: Case, profile: Profile, plan: Plan, nominal: Cluster, cores: Sequence[Sequence[int]]) -> MeasuredRun:
    """Make the run in a lab of its own."""
    stragglers = [] if case.straggler is None else [case.straggler]
    with Lab(nominal) as lab:
        if case.via == "ddp":
            return run_ddp(profile, nominal, plan, steps=STEPS, lab=lab, cores=cores, stragglers=stragglers)
        if case.via == "pipelining":
            return run_pipeline(profile, nominal, plan, steps=STEPS, lab=lab, cores=cores)
        done = execute(profile, nominal, plan, steps=STEPS, lab=lab, cores=cores)
        names = [device.name for device in nominal.devices]
        carried = sum(count for name, count in lab.carried_bytes().items() if name.split("->")[0] in names)
    return MeasuredRun(steps_s=done.steps_s, sent_bytes=carried / (WARMUP + STEPS), peak_bytes=(), execution=done)
