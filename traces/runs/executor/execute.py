"""Run a plan for real, with every rank's tasks those that the simulator simulates; back comes the same Timeline.

    `execute`: a process per device, in the network lab or over loopback, joined by gloo

A compute task lasts from the assembly of its inputs to the end of its operator, a message from when its sender has
it to its arrival, a collective from when its last rank is ready to when its last rank has ended. Ranks run on one
machine, where CLOCK_MONOTONIC is one clock for all processes, so clocks need no alignment. Steps begin together.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simulator import files
from simulator.cluster import Cluster
from simulator.errors import require
from simulator.network.catalogue import read_cluster, read_runtime, write_cluster
from simulator.owned_files import temporary_folder
from simulator.plan import Plan
from simulator.runtime import IDEAL, Runtime
from simulator.timeline import Timeline
from simulator.workload import Profile
from traces.capture.machine_settings import StolenTime, largest
from traces.lab.launch import launch
from traces.lab.rank import Rank
from traces.lab.shaped_network import Lab
from traces.results.executions import Execution, nearest_to_median
from traces.runs.executor.bucket_transfers import bucket_transfers
from traces.runs.executor.run_setup import Script
from traces.runs.executor.transport import Gloo
from traces.runs.executor.worker import RankStep, Worker
from traces.zoo.networks import Network, load

WARMUP = 2


def execute(
    profile: Profile,
    cluster: Cluster,
    plan: Plan,
    *,
    runtime: Runtime = IDEAL,
    model: str | None = None,
    steps: int = 5,
    lab: Lab | None = None,
    cores: Sequence[Sequence[int]] = (),
    seed: int = 0,
    timeout_s: float = 300.0,
) -> Execution:
    """Train `steps` steps (after WARMUP) of random data, one process per device of the cluster.

    model: a name that `zoo.load` knows, by default the profile's. lab: the lab of `cluster`; None uses loopback,
    which is not shaped. cores: as for `launch`. Raises InputError when the plan cannot run for real, RunError when
    a rank fails or time is up.
    """
    require(steps >= 1, "steps", steps, "it is at least 1")
    load(model or profile.model)
    with temporary_folder() as name:
        folder = Path(name)
        write_inputs(folder, profile, cluster, plan, runtime)
        arguments = {"folder": name, "model": model or profile.model, "steps": steps, "seed": seed}
        target, count = f"{__name__}:run_rank", len(cluster.devices)
        ranks = launch(target, count, lab=lab, arguments=arguments, timeout_s=timeout_s, cores=cores)
    observed = [[RankStep(**step) for step in rank["steps"]] for rank in ranks]
    return replace(execution_of_ranks(observed), stolen_share=largest(rank["stolen_share"] for rank in ranks))


def run_rank(rank: Rank, folder: str, model: str, steps: int, seed: int) -> dict[str, Any]:
    """What each process of `execute` does; its steps as plain data, and what its host took meanwhile."""
    script = read_script(Path(folder), load(model), seed=seed)
    rank.doing("building its shards")
    worker = Worker(script, rank.number, Gloo(all_reduce_groups(script)), rank.doing)
    batch = random_batch(script)
    for _ in range(WARMUP):
        worker.step(*batch)
    gc.disable()
    stolen = StolenTime()
    measured = [worker.step(*batch) for _ in range(steps)]
    stolen_share = stolen.share()
    gc.enable()
    worker.close()
    return {"steps": [step.plain for step in measured], "stolen_share": stolen_share}


def write_inputs(folder: Path, profile: Profile, cluster: Cluster, plan: Plan, runtime: Runtime) -> None:
    """Leave in `folder` what `read_script` reads in every rank's process."""
    files.write_profile(profile, folder / "profile.json")
    write_cluster(cluster, folder / "cluster.yaml", runtime)
    files.write_plan(plan, folder / "plan.json")


def read_script(folder: Path, network: Network, **options: Any) -> Script:
    """The script of the profile, cluster and plan in `folder`. options: the other fields of a Script."""
    return Script(
        profile=files.read_profile(folder / "profile.json"),
        cluster=read_cluster(folder / "cluster.yaml"),
        runtime=read_runtime(folder / "cluster.yaml"),
        plan=files.read_plan(folder / "plan.json"),
        network=network,
        **options,
    )


def execution_of_ranks(ranks: Sequence[Sequence[RankStep]]) -> Execution:
    """One execution out of what each rank observed of each step; its timeline is that of the median step."""
    steps = list(zip(*ranks, strict=True))
    timelines = [_timeline(step) for step in steps]
    seconds = [timeline.step_s for timeline in timelines]
    median = nearest_to_median(seconds)
    return Execution(
        steps_s=tuple(seconds),
        losses=tuple(sum(rank.loss for rank in step) for step in steps),
        sent_bytes=np.max([rank.sent_bytes for rank in steps[median]], axis=0),  # (ranks, tasks) -> (tasks,)
        timeline=timelines[median],
    )


def random_batch(script: Script) -> tuple[Tensor, Tensor]:
    """A batch for the plan, alike on all ranks: random data (samples, *input shape) and classes (samples, ...)."""
    source = torch.Generator().manual_seed(script.seed)
    network, batch = script.network, script.plan.batch_size
    shape = (batch, *network.input_shape)
    if network.vocabulary is not None:
        data = torch.randint(network.vocabulary, shape, generator=source)
    else:
        data = torch.randn(shape, generator=source, dtype=torch.float64).to(getattr(torch, script.dtype))
    scores = script.producer(script.profile.layers[-1].inputs[0]).output_shape
    return data, torch.randint(scores[0], (batch, *scores[1:2]) if scores[1] > 1 else (batch,), generator=source)


def all_reduce_groups(script: Script) -> list[tuple[int, ...]]:
    """The device groups that sum by the backend's all-reduce, in one order for all ranks."""
    transfers = bucket_transfers(script, rank=0).values()
    return sorted({transfer.members for transfer in transfers if transfer.step == "all-reduce"})


def _timeline(ranks: Sequence[RankStep]) -> Timeline:
    """Each task from the last of the starts to the last of the ends that its ranks observed."""
    return Timeline(
        start_s=np.nanmax([rank.start_s for rank in ranks], axis=0),  # (ranks, tasks) -> (tasks,)
        end_s=np.nanmax([rank.end_s for rank in ranks], axis=0),
    )
