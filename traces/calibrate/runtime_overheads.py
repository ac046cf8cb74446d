"""What runtimes add to the layers' own work, each measured on one rank without a network.

Our executor adds to every task: assembling inputs, passing gradients on and memory that no layer may overwrite cost
time that a profile of the layers does not have. Its step and the same layers timed one by one are measured in turns in
one process, so that a drift of the machine hits them alike. torch's pipelines add to every pass over a stage: cutting
batches, keeping inputs and outputs, checking shapes. DDP, FSDP2 and tensor parallelism add hooks, copies and dispatch
to a step. Their steps take turns with plain ones over the same micro-batches.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.distributed import pipelining
from torch.nn import Module

from simulator.network.topologies import Wire, flat_switch
from simulator.plan import Synchronisation
from simulator.studies.scaling import replicated
from simulator.workload import Profile
from traces.capture import machine_settings
from traces.capture.fx_steps import Loss, Trained, trace
from traces.capture.measurement_rounds import MeasurementRounds
from traces.capture.momentum_sgd import optimizer
from traces.runs.executor.execute import random_batch
from traces.runs.executor.run_setup import Script
from traces.runs.executor.transport import ThreadGroup, Threads
from traces.runs.executor.worker import Worker
from traces.runs.torch_runtimes.network_blocks import build, samples
from traces.runs.torch_runtimes.pipeline_stage import Stage
from traces.runs.torch_runtimes.pipelining import loss_of
from traces.runs.torch_runtimes.stage_modules import cut
from traces.runs.torch_runtimes.task_observer import TaskObserver
from traces.zoo.networks import Network, load

MICROBATCHES = 4


def pass_overhead_s(profile: Profile, *, repeats: int = 15, warmup: int = 3, group: Any = None) -> float:
    """Seconds that torch's pipelines add to each pass over a stage, which here is the whole network; at least 0.

    group: a process group of this rank alone, by default the default one. Raises UnknownNameError when the network is
    not in the zoo.
    """
    network, cpu = load(profile.model), torch.device("cpu")
    names = [layer.name for layer in profile.layers]
    observer = TaskObserver(0, names)
    with machine_settings.settings(1, profile.dtype, 0, cpu):
        parts = cut(trace(Trained(network.build())), [names], observer)
        loss = partial(observer.call, names[-1], loss_of(Loss()))
        stage = Stage(parts, 0, [0], observer, group)
        runtime = pipelining.ScheduleGPipe(stage, MICROBATCHES, loss_fn=loss, scale_grads=False)
        plain = build(network)
        data, target = samples(network, profile.batch_size), torch.zeros(profile.batch_size)

        def step() -> None:
            for part in data.tensor_split(MICROBATCHES):
                plain(part).backward()

        longer_s = _longer_s(step, lambda: runtime.step(data, target=target), repeats, warmup)
    return longer_s / (2 * MICROBATCHES)


def wrapped_overhead_s(
    network: Network, batch_size: int, wrap: Callable[[Trained], Module], *, repeats: int = 15, warmup: int = 3
) -> float:
    """Seconds that a step takes longer where `wrap` has made the network one of DDP, FSDP2 or tensor parallelism.

    It uses the default process group, of one rank, over which nothing is sent: what is left is hooks, copies into and
    out of what would be sent, and DTensor's dispatch. Plain and wrapped steps take turns; their median difference, at
    least 0.
    """
    data = samples(network, batch_size)

    def step_of(trained: Module) -> Callable[[], None]:
        descent = optimizer(trained.parameters())

        def step() -> None:
            trained(data).backward()
            descent.step()
            descent.zero_grad()

        return step

    return _longer_s(step_of(build(network)), step_of(wrap(build(network))), repeats, warmup)


def _longer_s(plain: Callable[[], object], wrapped: Callable[[], object], repeats: int, warmup: int) -> float:
    """By how many seconds `wrapped` takes longer than `plain`, which take turns: the median, at least 0."""
    longer_s = []
    for _ in range(warmup + repeats):
        ends_s = [time.perf_counter()]
        for step in (plain, wrapped):
            step()
            ends_s.append(time.perf_counter())
        longer_s.append((ends_s[2] - ends_s[1]) - (ends_s[1] - ends_s[0]))
    return max(0.0, statistics.median(longer_s[warmup:]))


def task_overhead_s(profile: Profile, *, repeats: int = 15, warmup: int = 3, threads: int = 1) -> float:
    """Seconds per compute task of `profile`'s network at its batch size: the median over `repeats`, at least 0.

    Raises UnknownNameError when the network is not in the zoo.
    """
    network, cpu = load(profile.model), torch.device("cpu")
    plan = replicated(profile, 1, profile.batch_size, Synchronisation())
    script = Script(
        profile=profile,
        cluster=flat_switch(1, Wire(bandwidth_bytes_per_s=1.0)),
        plan=plan,
        network=network,
    )
    overheads_s = []
    with machine_settings.settings(threads, profile.dtype, 0, cpu):
        rounds = MeasurementRounds(network, cpu, profile.batch_size, torch.float32, ())
        worker = Worker(script, 0, Threads(ThreadGroup(1), 0))
        batch = random_batch(script)
        for _ in range(warmup + repeats):
            layers_s = rounds.passes.step(rounds.inputs).total_s
            step = worker.step(*batch)
            overheads_s.append((float(np.nanmax(step.end_s)) - layers_s) / len(script.graph))
        worker.close()
    return max(0.0, statistics.median(overheads_s[warmup:]))
