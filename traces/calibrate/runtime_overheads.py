"""What runtimes add to the layers' own work, each measured on one rank without a network.

Our executor adds to every task: assembling inputs, passing gradients on and memory that no layer may overwrite cost
time that a profile of the layers does not have. Its step and the same layers timed one by one are measured in turns in
one process, so that a drift of the machine hits them alike. torch's pipelines add to every pass over a stage: cutting
batches, keeping inputs and outputs, checking shapes. That is what a step takes beyond its layers, as they take in a
step that is observed. DDP, FSDP2 and tensor parallelism add hooks, copies and dispatch to a step, which takes turns
with a plain one.
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
    """Seconds that torch's pipelines add to each pass: the median over steps of one stage that is the whole network.

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
        data, target = samples(network, profile.batch_size), torch.zeros(profile.batch_size)
        overheads_s = []
        for _ in range(warmup + repeats):
            start_s = time.monotonic()
            runtime.step(data, target=target)
            taken_s = time.monotonic() - start_s
            observer.on = True
            runtime.step(data, target=target)
            observer.on = False
            layers_s = sum(task.end_s - task.start_s for task in observer.take(0.0))
            overheads_s.append((taken_s - layers_s) / (2 * MICROBATCHES))
    return max(0.0, statistics.median(overheads_s[warmup:]))


def wrapped_overhead_s(
    network: Network, batch_size: int, wrap: Callable[[Trained], Module], *, repeats: int = 15, warmup: int = 3
) -> float:
    """Seconds that a step takes longer where `wrap` has made the network one of DDP, FSDP2 or tensor parallelism.

    It uses the default process group, of one rank, over which nothing is sent: what is left is hooks, copies into and
    out of what would be sent, and DTensor's dispatch. Plain and wrapped steps take turns; their median difference, at
    least 0.
    """
    data, both = samples(network, batch_size), (build(network), wrap(build(network)))
    descents = [optimizer(trained.parameters()) for trained in both]
    longer_s = []
    for _ in range(warmup + repeats):
        ends_s = [time.perf_counter()]
        for trained, descent in zip(both, descents, strict=True):
            trained(data).backward()
            descent.step()
            descent.zero_grad()
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
