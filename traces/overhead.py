"""What the executor adds to a task: its own step on one rank against the same layers timed one by one.

Assembling inputs, handing on gradients and memory that no layer may overwrite cost time that a profile of the layers
does not have. Both are measured in turns in one process, so that a drift of the machine hits them alike.
"""

from __future__ import annotations

import statistics

import numpy as np
import torch

from simulator.plan import Placement, Plan
from simulator.topologies import Wire, flat_switch
from simulator.workload import Profile
from traces import machine
from traces.execute import random_batch
from traces.rounds import Rounds
from traces.script import Script
from traces.transport import Mailroom, Threads
from traces.worker import Worker
from traces.zoo import load


def task_overhead_s(profile: Profile, *, repeats: int = 15, warmup: int = 3, threads: int = 1) -> float:
    """Seconds per compute task of `profile`'s network at its batch size: the median over `repeats`, at least 0.

    Raises UnknownNameError when the network is not in the zoo.
    """
    network, place = load(profile.model), torch.device("cpu")
    plan = Plan(
        model=profile.model,
        batch_size=profile.batch_size,
        placements={layer.name: Placement(devices=(0,)) for layer in profile.layers},
    )
    script = Script(
        profile=profile,
        cluster=flat_switch(1, Wire(bandwidth_bytes_per_s=1.0)),
        plan=plan,
        network=network,
    )
    found = []
    with machine.settings(threads, profile.dtype, 0, place):
        rounds = Rounds(network, place, profile.batch_size, torch.float32, ())
        worker = Worker(script, 0, Threads(Mailroom(1), 0))
        batch = random_batch(script)
        for _ in range(warmup + repeats):
            layers_s = rounds.passes.step(rounds.inputs).total_s
            step = worker.step(*batch)
            found.append((float(np.nanmax(step.end_s)) - layers_s) / len(script.graph))
        worker.close()
    return max(0.0, statistics.median(found[warmup:]))
