"""Predict real runs, make them, and say how wrong the predictions were.

    once, before any run     calibration of every lab       folder/clusters
                             a profile of every network     folder/profiles, the median of folder/captures
                             what runtimes add to it        folder/overheads
    for each run             prediction from those files    folder/runs
                             alone, then the run itself
                             plan, and when each task ran   folder/plans, folder/timelines
    in the end               all runs, machine, software    folder/validation.json

A file that exists is not made again, so that a validation which was broken off goes on where it stood. All ranks run
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

import torch
import torch.distributed as dist

from simulator import files
from simulator.cluster import Cluster
from simulator.errors import RunError, ShardscopeError
from simulator.network.catalogue import write_cluster
from simulator.plan import Plan
from simulator.report.metrics import Report
from simulator.run import run as simulate
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
    profile_and_cluster,
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

    make_plan: the case's plan from profile and calibrated cluster. say: told of progress, line by line. rounds: how
    often every run is made, and every network captured before.
    A run that fails is told and left out. Raises RunError where this machine has no network lab.
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
    place = torch.device("cpu")
    found = Validation(
        machine=machine_settings.device_name(place, 1),
        cores=len(cores),
        software=machine_settings.software(place),
        outcomes=tuple(outcomes),
    )
    files.write_text_atomic(folder / "validation.json", files.to_json(found))
    return outcomes


def stored(folder: Path) -> list[ValidatedRun]:
    """The outcomes that `folder` holds, worst first."""
    found = [files.read_json(path, ValidatedRun) for path in sorted((folder / "runs").glob("*.json"))]
    return sorted(found, key=lambda outcome: -abs(outcome.error))


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
        pinned = pinning(len(cores), cores)
        arguments = {"model": model, "path": str(path)}
        launch(
            "traces.validation.validate:profile_rank",
            len(cores),
            arguments=arguments,
            cores=pinned,
            backend="",
            timeout_s=900,
        )


def profile_rank(rank: Rank, model: str, path: str) -> None:
    """What each process of a capture on all cores does; rank 0 keeps the profile."""
    rank.doing(f"capture of {model}")
    found = capture(model, BATCH_SIZE, repeats=25, fractions=FRACTIONS, command="shardscope validate")
    if rank.number == 0:
        files.write_profile(found, path)


def _overhead(folder: Path, model: str, cores: Sequence[int], say: Callable[[str], None]) -> None:
    """Measure on every core at once what runtimes add to the work of the network's layers, unless it is stored."""
    path = folder / "overheads" / f"{model}.json"
    if not path.exists():
        say(f"runtimes' overhead on {model}")
        pinned = pinning(len(cores), cores)
        arguments = {"path": str(folder / "profiles" / f"{model}.json")}
        found = launch(
            "traces.validation.validate:overhead_rank",
            len(cores),
            arguments=arguments,
            cores=pinned,
            backend="",
            timeout_s=300,
        )
        of_task, of_pass = (statistics.fmean(each) for each in zip(*found, strict=True))
        overhead = Overhead(task_overhead_s=of_task, pass_overhead_s=of_pass)
        files.write_text_atomic(path, files.to_json(overhead))


def overhead_rank(rank: Rank, path: str) -> tuple[float, float]:
    """What each process of `_overhead` does: seconds per task of our executor, per pass of torch's pipelines."""
    profile = files.read_profile(path)
    rank.doing("a step of the executor alone")
    of_task = task_overhead_s(profile)
    rank.doing("a pipeline of one stage")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    of_pass = pass_overhead_s(profile)
    dist.destroy_process_group()
    return of_task, of_pass


def _calibrated(folder: Path, network: LabNetwork, cores: Sequence[int], say: Callable[[str], None]) -> None:
    """Calibrate the lab unless it is stored."""
    path = folder / "clusters" / f"{network.name}.yaml"
    if not path.exists():
        say(f"calibration of lab {network.name}")
        nominal = network.cluster(cores)
        counts = [nominal.workers]
        pinned = pinning(len(nominal.devices), cores)
        with Lab(nominal) as lab:
            found = calibrate(nominal, lab, sizes_bytes=CALIBRATED_BYTES, counts=counts, cores=pinned)
        write_cluster(found, path)


def predicted(folder: Path, case: Case, make_plan: MakePlan) -> tuple[Profile, Cluster, Plan, Report]:
    """The case's plan and what the simulator says of it, from the stored profile and calibration alone."""
    profile, cluster = profile_and_cluster(folder, case)
    plan = make_plan(case, profile, cluster)
    return profile, cluster, plan, simulate(profile, case.conditions(cluster), plan).report


def _made(folder: Path, case: Case, cores: Sequence[int], make_plan: MakePlan) -> ValidatedRun:
    """The case with one more round."""
    profile, cluster, plan, report = predicted(folder, case, make_plan)
    load = os.getloadavg()[0]
    found = _run(case, profile, plan, case.network.cluster(cores), pinning(len(cluster.devices), cores))
    files.write_plan(plan, plan_path(folder, case))
    write_execution(found.execution, timeline_path(folder, case))
    made = Round(
        step_s=found.step_s,
        spread_s=found.spread_s,
        steps=len(found.steps_s),
        sent_bytes=found.sent_bytes or 0.0,
        peak_bytes=max(found.peak_bytes, default=None),
        load=load,
        date=f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M}",
    )
    return ValidatedRun(
        case=case,
        predicted_s=report.step_s,
        predicted_bytes=report.communication_bytes.total,
        predicted_memory_bytes=report.peak_memory_bytes,
        rounds=(*_rounds(folder, case), made),
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
