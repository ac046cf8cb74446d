"""Any plan, run for real in shards, trains as one process does."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install 'shardscope[capture]'")

import torch
from small_networks import switched
from tiny_networks import BATCH, MIXED, profile_of
from torch import Tensor, nn

import partitioners
from simulator.cluster import Cluster
from simulator.plan import Degrees, Placement, Plan, Synchronisation
from traces.execute import combined, in_threads, random_batch, whole_parameters
from traces.network import Trained
from traces.script import Script
from traces.worker import Step, Worker
from traces.zoo import Network

CLUSTER = switched([1.0] * 3)
ONE_EACH = Synchronisation(bucket_bytes=0)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Ranks are threads; torch's own threads on top would only get in their way."""
    torch.set_num_threads(1)


def script_of(plan: Plan, cluster: Cluster = CLUSTER, network: Network = MIXED) -> Script:
    """A script whose one step subtracts the gradient from each parameter."""
    profile = profile_of(network, plan.batch_size)
    return Script(
        profile=profile, cluster=cluster, plan=plan, network=network, dtype="float64", steady=True, learning_rate=1.0
    )


def sharded(script: Script, steps: int = 1) -> tuple[list[float], dict[str, Tensor], list[Sequence[Step]]]:
    """Loss of each step, parameters at the end, and what each rank saw."""
    batch = random_batch(script)

    def work(worker: Worker) -> tuple[list[Step], dict[tuple[int, int], dict[str, Tensor]]]:
        seen = [worker.step(*batch) for _ in range(steps)]
        return seen, {key: dict(slot) for key, slot in worker.shards.parameters.items()}

    ranks = in_threads(script, work, timeout_s=20)
    losses = list(combined([seen for seen, _ in ranks]).losses)
    return losses, whole_parameters(script, [held for _, held in ranks]), [seen for seen, _ in ranks]


def alone(script: Script, steps: int = 1) -> tuple[list[float], dict[str, Tensor], dict[str, Tensor]]:
    """Loss of each step, parameters at the end and the first gradients of ordinary training in one process."""
    torch.manual_seed(script.seed)
    model = script.network.build().double()
    for module in Trained(model).train().modules():
        if isinstance(module, (nn.BatchNorm2d, nn.Dropout)):
            module.eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=script.learning_rate, momentum=script.momentum)
    data, targets = random_batch(script)
    losses, gradients = [], {}
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(data), targets)
        loss.backward()
        losses.append(float(loss.detach()))
        gradients = gradients or {name: p.grad.clone() for name, p in model.named_parameters()}
        optimizer.step()
    return losses, {name: p.detach() for name, p in model.named_parameters()}, gradients


def assert_equal_training(script: Script, steps: int = 1) -> None:
    losses, parameters, _ = sharded(script, steps)
    expected_losses, expected, gradients = alone(script, steps)
    assert losses == pytest.approx(expected_losses, rel=1e-9)
    assert parameters.keys() == expected.keys()
    for name, value in expected.items():
        scale = float(gradients[name].abs().max())
        assert torch.allclose(parameters[name], value, rtol=1e-9, atol=1e-9 * scale), name


@pytest.mark.parametrize("strategy", partitioners.strategies())
@pytest.mark.parametrize("microbatches", [1, 2])
def test_gradients_of_every_strategy(strategy: str, microbatches: int) -> None:
    given = {"microbatches": microbatches} if "microbatches" in partitioners.options(strategy) else {}
    plan = partitioners.load(strategy)(profile_of(MIXED), CLUSTER, batch_size=BATCH, **given)
    assert_equal_training(script_of(plan))


def random_plan(seed: int, spatial: bool = True, **fields: object) -> Plan:
    """Any degrees and any devices for every layer, at most twelve shards each."""
    draw = random.Random(seed)
    placements = {}
    for layer in profile_of(MIXED).layers:
        extents = (3, *layer.output_shape) if spatial else (3, layer.channels, 1, 1)
        choices = [d for d in product(*(range(1, min(3, extent) + 1) for extent in extents)) if np.prod(d) <= 12]
        degrees: Degrees = draw.choice(choices)
        devices = tuple(draw.randrange(3) for _ in range(int(np.prod(degrees))))
        placements[layer.name] = Placement(degrees=degrees, devices=devices)
    wanted: dict[str, object] = {"model": "tiny", "batch_size": BATCH, "microbatches": draw.choice((1, 2)), **fields}
    return Plan(placements=placements, **wanted)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(6))
def test_gradients_of_random_plans_by_sample_and_channel(seed: int) -> None:
    assert_equal_training(script_of(random_plan(seed, spatial=False)))


@pytest.mark.parametrize("seed", range(12))
def test_gradients_of_random_plans_by_all_dimensions(seed: int) -> None:
    assert_equal_training(script_of(random_plan(seed)))


@pytest.mark.parametrize("collective", ["ring", "ps", "ps-workers"])
@pytest.mark.parametrize("chosen", [ONE_EACH, replace(ONE_EACH, overlap=False), Synchronisation()])
def test_gradients_of_every_synchronisation(collective: str, chosen: Synchronisation) -> None:
    cluster = switched([1.0] * 3, servers=2 if collective == "ps" else 0)
    assert_equal_training(script_of(random_plan(3, synchronisation=replace(chosen, collective=collective)), cluster), 2)


@pytest.mark.parametrize("schedule", ["dataflow", "gpipe", "1f1b"])
def test_the_loss_curve_coincides(schedule: str) -> None:
    plan = partitioners.load("pipeline")(profile_of(MIXED), CLUSTER, batch_size=BATCH, microbatches=3)
    assert_equal_training(replace(script_of(replace(plan, schedule=schedule)), learning_rate=0.05), 20)
