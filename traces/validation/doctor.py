"""Three short real steps on a user's cluster, each beside its prediction; `traces.results.diagnosis` reads them.

In a network lab, over loopback or between the hosts that torchrun started, as `traces.lab.launch` does.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from simulator.cluster import Cluster
from simulator.plan import Plan
from simulator.run import expected_interval
from simulator.run import run as simulate
from simulator.runtime import Runtime
from simulator.workload import Profile
from traces.capture.measurement_rounds import median, spread
from traces.capture.momentum_sgd import optimizer
from traces.capture.recorded_steps import RECORDED
from traces.lab.launch import launch
from traces.lab.rank import Rank
from traces.lab.shaped_network import Lab
from traces.results.diagnosis import Checkup, spent_on_path
from traces.results.timeline_comparison import compare
from traces.results.validation_cases import Runner, with_habits_of
from traces.runs.torch_runtimes.ddp import run_ddp
from traces.runs.torch_runtimes.measured_steps import MeasuredRun, build
from traces.runs.torch_runtimes.pipelining import run_pipeline
from traces.zoo.networks import load
from traces.zoo.own_network import draw

WARMUP, STEPS = 3, 12
RUNTIMES: dict[Runner, tuple[str, Callable[..., MeasuredRun]]] = {
    "ddp": ("data parallel", run_ddp),
    "pipelining": ("pipeline", run_pipeline),
}
"""What runs a plan, with the name of its step."""


def why_alone(profile: Profile, model: str) -> str:
    """Why torch's runtimes cannot be watched as they run this network; empty where they can. Raises as `load`."""
    if len(load(model).all_inputs) > 1:
        return "the network reads several inputs"
    return "its layers were recorded while it ran, not traced" if RECORDED in profile.notes else ""


def step_alone(profile: Profile, cluster: Cluster, model: str, lab: Lab | None, timeout_s: float) -> Checkup:
    """The network's whole step at the profile's batch size on every worker at once, without communication.

    model: what `load` builds it from, here and of the runs below.
    """
    arguments = {"model": model, "batch_size": profile.batch_size}
    target = "traces.validation.doctor:train_alone"
    by_rank = launch(target, len(cluster.devices), lab=lab, arguments=arguments, timeout_s=timeout_s)
    steps_s = [median(steps) for steps in zip(*by_rank[: cluster.workers], strict=True)]
    shared = _turns(cluster)
    return Checkup(
        name="alone",
        predicted_s=profile.layers_s * shared,
        actual_s=median(steps_s),
        spread_s=spread(steps_s),
        spent={"compute": (profile.layers_s * shared, median(steps_s))},
    )


def _turns(cluster: Cluster) -> float:
    """How many times longer a step takes where workers of a host outnumber its cores; of the fullest host."""
    hosts = [device.host for device in cluster.devices[: cluster.workers]]
    return max([1.0, *(hosts.count(host) / cores for host, cores in cluster.host_cores.items())])


def train_alone(rank: Rank, model: str, batch_size: int) -> list[float]:
    """What each process of `step_alone` does: seconds of its steps, which all ranks begin together."""
    rank.doing("steps alone")
    network = load(model)
    trained, data = build(network), draw(network, batch_size, torch.device("cpu"), torch.float32)
    descent, ends = optimizer(trained.parameters()), []
    for _ in range(WARMUP + STEPS):
        trained(data).backward()
        descent.step()
        descent.zero_grad()
        ends.append(time.perf_counter())
    return [after - before for before, after in zip(ends[WARMUP - 1 :], ends[WARMUP:], strict=False)]


def step_under(
    via: Runner,
    profile: Profile,
    cluster: Cluster,
    runtime: Runtime,
    plan: Plan,
    model: str,
    lab: Lab | None,
    timeout_s: float,
) -> Checkup:
    """A step of a plan under one of torch's runtimes. model: as of `step_alone`."""
    name, run = RUNTIMES[via]
    habits = with_habits_of(via, runtime)
    predicted = simulate(profile, cluster, plan, runtime=habits)
    actual = run(profile, cluster, plan, model=model, steps=STEPS, lab=lab, timeout_s=timeout_s)
    comparison = compare(predicted.graph, predicted.timeline, actual.execution.timeline)
    return Checkup(
        name=name,
        predicted_s=expected_interval(predicted.report, profile, cluster, plan, habits).middle_s,
        actual_s=actual.step_s,
        spread_s=actual.spread_s,
        spent=spent_on_path(comparison),
    )
