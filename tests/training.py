"""Training of tiny networks, in shards and in one process, for tests that compare the two."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from math import prod
from typing import Any, TypeVar

import pytest
import torch
from plans import planned
from rank_threads import ThreadGroup, Threads
from small_networks import switched
from tiny_networks import BATCH, MIXED, profile_of
from torch import Tensor, nn

import partitioners
from benchmarks.studies.whole_parameters import whole_parameters
from simulator.cluster import Cluster
from simulator.plan import Plan, Sharding
from traces.capture.fx_steps import Trained
from traces.runs.executor.execute import execution_of_ranks, random_batch
from traces.runs.executor.run_setup import Script
from traces.runs.executor.shard_operators import Slot
from traces.runs.executor.worker import RankStep, Worker
from traces.zoo.networks import Network

CLUSTER = switched([1.0] * 3)
T = TypeVar("T")


def script_of(plan: Plan, cluster: Cluster = CLUSTER, network: Network = MIXED) -> Script:
    """A script whose one step subtracts the gradient from each parameter."""
    profile = profile_of(network, plan.batch_size)
    return Script(
        profile=profile, cluster=cluster, plan=plan, network=network, dtype="float64", steady=True, learning_rate=1.0
    )


def sharded(script: Script, steps: int = 1) -> tuple[list[float], dict[str, Tensor], list[Sequence[RankStep]]]:
    """Loss of each step, parameters at the end, and what each rank saw."""
    batch = random_batch(script)

    def work(worker: Worker) -> tuple[list[RankStep], dict[Slot, dict[str, Tensor]]]:
        seen = [worker.step(*batch) for _ in range(steps)]
        return seen, {key: dict(slot) for key, slot in worker.shards.parameters.items()}

    ranks = in_threads(script, work, timeout_s=20)
    losses = list(execution_of_ranks([seen for seen, _ in ranks]).losses)
    return losses, whole_parameters(script, [held for _, held in ranks]), [seen for seen, _ in ranks]


def in_threads(script: Script, work: Callable[[Worker], T], timeout_s: float = 60.0) -> list[T]:
    """What `work` returns for each rank's worker; ranks are threads of this process and communicate in memory.

    timeout_s: seconds after which a wait for another rank fails with RunError.

    Meanwhile torch's operators use one thread each.
    """
    count, threads = len(script.cluster.devices), torch.get_num_threads()
    group = ThreadGroup(count, timeout_s)
    workers = [Worker(script, rank, Threads(group, rank)) for rank in range(count)]
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(count) as pool:
            futures = [pool.submit(work, worker) for worker in workers]
            return [future.result() for future in futures]
    finally:
        torch.set_num_threads(threads)
        for worker in workers:
            worker.close()


def alone(script: Script, steps: int = 1) -> tuple[list[float], dict[str, Tensor], dict[str, Tensor]]:
    """Loss of each step, parameters at the end and the first gradients of ordinary training in one process."""
    torch.manual_seed(script.seed)
    model = script.network.build().double()
    for module in Trained(model).train().modules():
        if isinstance(module, (nn.BatchNorm2d, nn.Dropout)):
            module.eval()
    losses, gradients = [], {}
    for loss in descend(model, [random_batch(script)] * steps, script.learning_rate, script.momentum):
        losses.append(loss)
        gradients = gradients or {name: p.grad.clone() for name, p in model.named_parameters(remove_duplicate=False)}
    every = {name: p.detach() for name, p in model.named_parameters(remove_duplicate=False)}
    return losses, every, gradients


def descend(
    model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], learning_rate: float, momentum: float = 0.9
) -> Iterator[float]:
    """Ordinary training in one process by torch's own SGD; the loss of each batch, once parameters are updated."""
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=momentum)
    for data, targets in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(data).flatten(0, -2), targets.flatten())
        loss.backward()
        optimizer.step()
        yield float(loss.detach())


def assert_equal_training(script: Script, steps: int = 1) -> None:
    losses, parameters, _ = sharded(script, steps)
    expected_losses, expected, gradients = alone(script, steps)
    assert losses == pytest.approx(expected_losses, rel=1e-9)
    assert parameters.keys() == expected.keys()
    for name, value in expected.items():
        scale = float(gradients[name].abs().max())
        assert torch.allclose(parameters[name], value, rtol=1e-9, atol=1e-9 * scale), name


def made(
    strategy: str, network: Network = MIXED, cluster: Cluster = CLUSTER, batch_size: int = BATCH, **options: object
) -> Plan:
    """A strategy's plan, with little searching."""
    known = partitioners.options(strategy)
    accepted = {name: value for name, value in {"effort": 0.01, "others": False, **options}.items() if name in known}
    return planned(strategy, profile_of(network, batch_size), cluster, batch_size=batch_size, **accepted)


def random_plan(seed: int, network: Network = MIXED, spatial: bool = True, **fields: object) -> Plan:
    """Any degrees and any devices for every layer, at most eight shards each."""
    draw = random.Random(seed)
    placements = {}
    for layer in profile_of(network).layers:
        extents = (3, *layer.output_shape) if spatial else (3, layer.channels, 1, 1)
        choices = [d for d in product(*(range(1, min(3, extent) + 1) for extent in extents)) if prod(d) <= 8]
        degrees = draw.choice(choices)
        devices = tuple(draw.randrange(CLUSTER.workers) for _ in range(prod(degrees)))
        placements[layer.name] = Sharding(degrees=degrees, devices=devices)
    wanted: dict[str, Any] = {"batch_size": BATCH, "microbatches": draw.choice((1, 2)), **fields}
    return Plan(model="tiny", placements=placements, **wanted)
