"""What runtimes add to the layers' own work, measured on one rank without a network, but for torch's pipelines.

Our executor adds to every task: assembling inputs, passing gradients on and memory that no layer may overwrite cost
time that a profile of the layers does not have. Its step and an ordinary one, to which a profile's layers are scaled,
are measured in turns in one process, so that a drift of the machine hits them alike. torch's pipelines add to every
pass over a stage: cutting batches, keeping inputs and outputs, checking shapes, and posting messages to the next host.
DDP, FSDP2 and tensor parallelism add hooks, copies and dispatch to a step. Their steps take turns with plain ones over
the same micro-batches.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import pipelining
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel

from simulator.errors import require
from simulator.network.topologies import Wire, flat_switch
from simulator.plan import Synchronisation
from simulator.studies.scaling import replicated
from simulator.workload import Profile
from traces.capture import machine_settings
from traces.capture.fx_steps import Loss, Trained, tensors, trace
from traces.capture.measurement_rounds import MeasurementRounds
from traces.capture.momentum_sgd import optimizer
from traces.lab.rank import Rank
from traces.runs.executor.execute import random_batch
from traces.runs.executor.run_setup import Script
from traces.runs.executor.transport import Alone
from traces.runs.executor.worker import Worker
from traces.runs.torch_runtimes.measured_steps import build, samples
from traces.runs.torch_runtimes.pipelining import loss_of
from traces.runs.torch_runtimes.stage_modules import Stage, cut
from traces.runs.torch_runtimes.task_observer import TaskObserver
from traces.zoo.networks import Network, load

WARMUP = 3
"""Steps before those that count."""
MICROBATCHES = 8
"""Of the pipeline in which passes are timed, or as many as a batch has samples."""


def pass_overhead_s(by_rank: Sequence[tuple[float, float]], send_cpu_s_per_byte: float) -> float:
    """What torch's pipelines add to a pass, by what `pass_cost` gave on both ranks: the mean of them, each at least 0.

    The simulator charges `send_cpu_s_per_byte` of a message to the core that sends it, so that is taken off.
    """
    return statistics.fmean(max(0.0, longer_s - size * send_cpu_s_per_byte) for longer_s, size in by_rank)


def pass_cost(
    profile: Profile, rank: int, *, repeats: int = 15, group: dist.ProcessGroup | None = None
) -> tuple[float, float]:
    """Processor seconds that a pass over a stage takes longer in torch's pipelines than by itself, and bytes that it
    sends, both means over all passes of a step.

    Called on ranks 0 and 1 alike, which run two parts of the network as the stages of a GPipe pipeline. Steps of
    the pipeline take turns with the same passes over the same stage by itself. What counts is the processor time of
    each rank's main thread: not that it waits for messages, but that it posts them, and computes from caches that are
    colder after the wait. group: of these two ranks, by default the default one. Raises UnknownNameError when the
    network is not in the zoo, InputError when it has one layer.
    """
    network, homes = load(profile.model), [0, 1]
    stages, observer = _parts(profile), TaskObserver(rank, [layer.name for layer in profile.layers])
    with machine_settings.settings(dtype=profile.dtype):
        stage = Stage(cut(trace(Trained(network.build())), stages, observer), rank, homes, observer, group)
        loss = partial(observer.call, stages[1][-1], loss_of(Loss()))
        microbatches = min(MICROBATCHES, profile.batch_size)
        pipeline = pipelining.ScheduleGPipe(stage, microbatches, loss_fn=loss, scale_grads=False)
        data, target = samples(network, profile.batch_size), torch.zeros(profile.batch_size)
        inputs: list[tuple[Any, ...]] = []

        def step() -> None:
            if rank == 0:
                pipeline.step(data)
            else:
                pipeline.step(target=target)

        seen = stage.submod.register_forward_pre_hook(lambda _, each: inputs.append(each))
        step()
        seen.remove()
        alone = [tuple(map(_leaf, each)) for each in inputs[-microbatches:]]

        def ends(output: Any) -> list[torch.Tensor]:
            return [each for each in tensors(output) if each.requires_grad]

        def passes() -> None:
            outputs = [stage.submod(*each) for each in alone]
            for output in outputs:
                last = ends(loss(output, target) if rank else output)
                torch.autograd.backward(last, list(map(torch.ones_like, last)))

        sent = [ends(each if rank else stage.submod(*each)) for each in alone]
        sent_bytes = sum(each.nbytes for message in sent for each in message)
        longer_s = _longer_s(passes, step, repeats, time.thread_time)
    return longer_s / (2 * microbatches), sent_bytes / (2 * microbatches)


def _parts(profile: Profile) -> list[list[str]]:
    """The names of the layers of two stages: cut after the smallest output that leaves both a quarter of a step or
    more, if any does, as what a message takes is measured elsewhere; of equal ones that nearest to the middle."""
    layers = profile.layers
    require(len(layers) >= 2, "layers", len(layers), "a pipeline of two stages has at least 2")
    seconds = np.cumsum([layer.forward_s + layer.backward_s for layer in layers])
    shares = seconds / seconds[-1]
    even = [at for at in range(len(layers) - 1) if 0.25 <= shares[at] <= 0.75] or range(len(layers) - 1)
    last = min(even, key=lambda at: (layers[at].output_bytes, abs(shares[at] - 0.5)))
    names = [layer.name for layer in layers]
    return [names[: last + 1], names[last + 1 :]]


def _leaf(value: Any) -> Any:
    """A tensor of the same numbers that nothing has made; what is no tensor as it is."""
    return value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value


def wrapped_overhead_s(
    network: Network, batch_size: int, wrap: Callable[[Trained], Module], *, repeats: int = 15
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

    return _longer_s(step_of(build(network)), step_of(wrap(build(network))), repeats)


def ddp_overhead_s(rank: Rank, network: Network, batch_size: int, *, repeats: int) -> float:
    """What DistributedDataParallel adds to a step on a rank by itself, `wrapped_overhead_s`; all ranks call it."""
    rank.doing("DistributedDataParallel on one rank")
    alone = [dist.new_group([number]) for number in range(rank.ranks)][rank.number]
    return wrapped_overhead_s(
        network, batch_size, partial(DistributedDataParallel, process_group=alone), repeats=repeats
    )


def _longer_s(
    plain: Callable[[], object],
    wrapped: Callable[[], object],
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """By how many seconds `wrapped` takes longer than `plain`, which take turns: the median, at least 0."""
    longer_s = []
    for _ in range(WARMUP + repeats):
        ends_s = [clock()]
        for step in (plain, wrapped):
            step()
            ends_s.append(clock())
        longer_s.append((ends_s[2] - ends_s[1]) - (ends_s[1] - ends_s[0]))
    return max(0.0, statistics.median(longer_s[WARMUP:]))


def task_overhead_s(profile: Profile, *, repeats: int = 15) -> float:
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
    with machine_settings.settings(dtype=profile.dtype):
        rounds = MeasurementRounds(network, cpu, profile.batch_size, torch.float32, ())
        worker = Worker(script, 0, Alone())
        batch = random_batch(script)
        for _ in range(WARMUP + repeats):
            begun_s = time.perf_counter()
            rounds.train()
            ordinary_s = time.perf_counter() - begun_s
            step = worker.step(*batch)
            overheads_s.append((float(np.nanmax(step.end_s)) - ordinary_s) / len(script.graph))
        worker.close()
    return max(0.0, statistics.median(overheads_s[WARMUP:]))
