"""Train one network to a target accuracy under several plans in the shaped network, each predicted beforehand.

    once        profile of the network, the executor's overhead, calibration of every lab       folder
    each plan   simulated from those; then trained for real with seeds that no curve has, until the accuracy is there

The number of updates of a run does not enter its prediction: one process trains first with the same seed, and the run
makes as many updates and a few more. The accuracies of that process are stored, to compare the plan's with.
"""

from __future__ import annotations

import datetime
import os
import statistics
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from benchmarks.studies.plan_training import PlanTraining, train_plan
from simulator import files
from simulator.cluster import Cluster
from simulator.convergence.curves import Trial
from simulator.network.catalogue import read_cluster, read_runtime, write_cluster
from simulator.plan import Plan
from simulator.runtime import Runtime
from simulator.workload import Profile
from traces.calibrate.runtime_overheads import task_overhead_s
from traces.lab.rank import Rank
from traces.lab.shaped_network import Lab
from traces.results.validation_cases import LabNetwork, pinning
from traces.validation.measured_inputs import calibrated_lab, capture_on_all_cores, on_all_cores

MARGIN = 2
"""How often more the accuracy is taken, after one process had reached the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemonstratedPlan:
    """A plan's training beside its prediction.

    predicted_step_s, predicted_samples (median, low, high): from profile, calibration and curves alone. alone: the same
    seed in one process. load: of the machine as the run began, in processes.
    """

    strategy: str
    network: LabNetwork
    batch_size: int
    predicted_step_s: float
    predicted_samples: tuple[float, float, float]
    alone: Trial
    training: PlanTraining
    load: float
    date: str

    @property
    def step_s(self) -> float:
        """Mean seconds of the real steps."""
        return statistics.fmean(self.training.steps_s)

    def reached(self, target: float) -> float:
        """Samples until the accuracy was first at least `target`, linear between two at which it was taken."""
        return replace(self.alone, points=(self.alone.points[0], *self.training.points)).samples_to(target)

    def seconds_to(self, target: float) -> float:
        """Real seconds of steps until then; infinite where the run ended before."""
        updates = self.reached(target) / self.batch_size
        if updates == inf:
            return inf
        whole = int(updates)
        rest = self.training.steps_s[whole : whole + 1]
        return sum(self.training.steps_s[:whole]) + (updates - whole) * sum(rest)

    @property
    def difference(self) -> float:
        """The largest difference in accuracy, as a share from 0 to 1, from one process after the same samples."""
        expected = dict(self.alone.points)
        return max(abs(accuracy - expected[seen]) for seen, accuracy in self.training.points if seen in expected)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """All trainings, and the machine that they ran on."""

    model: str
    dataset: str
    target: float
    machine: str
    shown: tuple[DemonstratedPlan, ...]


def conditions(folder: Path, model: str, batch_size: int, network: LabNetwork) -> tuple[Profile, Cluster, Runtime]:
    """The profile, the calibrated lab, and the calibrated runtime with the executor's overhead; measured unless
    `folder` has them."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    profile, cluster = folder / f"{model}.json", folder / f"{network.name}.yaml"
    folder.mkdir(parents=True, exist_ok=True)
    if not profile.exists():
        command = "python -m benchmarks.studies.demonstration"
        capture_on_all_cores(profile, model, batch_size, cores, command=command)
    overhead = folder / "overhead.json"
    if not overhead.exists():
        arguments: dict[str, object] = {"path": str(profile)}
        target = "benchmarks.studies.demonstrated:overhead_rank"
        overheads_s = on_all_cores(target, cores, arguments, timeout_s=600)
        files.write_text_atomic(overhead, str(statistics.fmean(overheads_s)))
    if not cluster.exists():
        measured, runtime = calibrated_lab(network, cores)
        write_cluster(measured, cluster, runtime)
    runtime = replace(read_runtime(cluster), task_overhead_s=float(overhead.read_text()))
    return files.read_profile(profile), read_cluster(cluster), runtime


def overhead_rank(rank: Rank, path: str) -> float:
    """What each of those processes does: seconds that our executor adds to a task."""
    rank.doing("a step of the executor alone")
    return task_overhead_s(files.read_profile(path))


def demonstrate_plan(
    profile: Profile,
    plan: Plan,
    strategy: str,
    network: LabNetwork,
    *,
    dataset: str,
    alone: Trial,
    every: int,
    predicted_step_s: float,
    predicted_samples: tuple[float, float, float],
) -> DemonstratedPlan:
    """Train `plan` in a lab of its own, taking its accuracy every `every` samples, MARGIN times more than `alone`."""
    samples = alone.points[-1][0] + MARGIN * every
    cores = sorted(os.sched_getaffinity(0))[:2]
    nominal, load = network.cluster(cores), os.getloadavg()[0]
    with Lab(nominal) as lab:
        training = train_plan(
            profile, nominal, plan, dataset=dataset, like=alone, lab=lab,
            updates=samples // plan.batch_size, every=every // plan.batch_size,
            cores=pinning(len(nominal.devices), cores),
        )  # fmt: skip
    return DemonstratedPlan(
        strategy=strategy,
        network=network,
        batch_size=plan.batch_size,
        predicted_step_s=predicted_step_s,
        predicted_samples=predicted_samples,
        alone=alone,
        training=training,
        load=load,
        date=f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M}",
    )
