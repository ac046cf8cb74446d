"""Synchronous plans of one global batch share one curve: trained for real, whatever the partition."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed; make test installs it")
pytest.importorskip("sklearn", reason="scikit-learn is not installed; make test installs it")

from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from plans import planned
from small_networks import switched
from tiny_networks import profile_of
from torch import Tensor
from training import descend, in_threads

from benchmarks.studies.demonstrated import DemonstratedPlan
from benchmarks.studies.plan_training import PlanTraining, train_plan
from benchmarks.studies.whole_parameters import whole_parameters
from simulator.convergence.curves import Regime, Trial
from simulator.plan import Synchronisation
from traces.convergence import datasets
from traces.convergence.curve_measurement import MOMENTUM_OF, Recipe, trial
from traces.results.validation_cases import LabNetwork
from traces.runs.executor.run_setup import Script
from traces.runs.executor.worker import Worker
from traces.zoo.networks import load

pytestmark = pytest.mark.usefixtures("forked_python")

BATCH, UPDATES, RATE, SEED = 32, 16, 0.02, 7
PLANS: dict[str, dict[str, Any]] = {
    "data, ring": {},
    "data, server": {"synchronisation": Synchronisation(collective="ps")},
    "pipeline": {"schedule": "1f1b", "microbatches": 4, "judged": False},
    "hypergraph": {"grid": (4, 2), "imbalance": 0.1, "others": False, "effort": 0.01},
}
NETWORK = load("vgg_digits")
Looks = list[dict[tuple[int, int], dict[str, Tensor]]]


@pytest.fixture(scope="module")
def doubled() -> datasets.Dataset:
    """The digits in float64, in which the order of sums decides nothing."""
    single = datasets.load("digits")
    return replace(single, samples=single.samples.double(), held_samples=single.held_samples.double())


@pytest.fixture(scope="module")
def alone(doubled: datasets.Dataset) -> list[float]:
    """The accuracy in one process, after every eighth update."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model = NETWORK.build().double()
    losses = descend(model, islice(doubled.batches(BATCH, SEED), UPDATES), RATE)
    return [doubled.accuracy(model) for update, _ in enumerate(losses, 1) if update % 8 == 0]


@pytest.mark.parametrize("name", PLANS)
def test_every_synchronous_plan_has_the_accuracy_of_one_process_at_every_look(
    name: str, doubled: datasets.Dataset, alone: list[float]
) -> None:
    profile, cluster = profile_of(NETWORK, BATCH), switched([1.0] * 2, servers=int("server" in name))
    plan = planned(name.split(",")[0], profile, cluster, batch_size=BATCH, **PLANS[name])
    script = Script(
        profile=profile, cluster=cluster, plan=plan, network=NETWORK, dtype="float64", seed=SEED,
        learning_rate=RATE, momentum=0.9,
    )  # fmt: skip

    def work(worker: Worker) -> Looks:
        looks: Looks = []
        for update, batch in enumerate(islice(doubled.batches(BATCH, SEED), UPDATES), 1):
            worker.step(*batch)
            if update % 8 == 0:
                held = worker.shards.parameters.items()
                looks.append({key: {n: x.detach().clone() for n, x in slot.items()} for key, slot in held})
        return looks

    model, accuracies = NETWORK.build().double(), []
    for slots in zip(*in_threads(script, work), strict=True):
        model.load_state_dict(whole_parameters(script, slots))
        accuracies.append(doubled.accuracy(model))
    assert len(plan.devices) == 2 and script.graph.is_transfer.any()
    assert accuracies == alone and accuracies[-1] > accuracies[0]


def test_real_processes_train_to_the_accuracy_of_one() -> None:
    recipe = Recipe(network=NETWORK, dataset=datasets.load("digits"), target=0.99, every=256, most_samples=512)
    expected: Trial = trial(recipe, Regime(batch_size=64), RATE, SEED)
    profile, cluster = profile_of(NETWORK, 64, "float32"), switched([1.0] * 2)
    profile = replace(profile, model="vgg_digits")
    plan = planned("data", profile, cluster, batch_size=64)
    training = train_plan(profile, cluster, plan, dataset="digits", like=expected, updates=8, every=4, timeout_s=60)
    assert [seen for seen, _ in training.points] == [256, 512] and len(training.steps_s) == 8
    assert training.wall_s > sum(training.steps_s) > 0 and expected.momentum == MOMENTUM_OF["synchronous"]
    for (_, accuracy), (_, alone) in zip(training.points, expected.points[1:], strict=True):
        assert accuracy == pytest.approx(alone, abs=0.02)


def test_the_time_to_a_target_is_the_sum_of_the_steps_until_it_was_there() -> None:
    single = Trial(regime=Regime(batch_size=10), learning_rate=0.1, seed=0, points=((0, 0.1), (20, 0.5), (40, 0.9)))
    shown = DemonstratedPlan(
        strategy="data",
        network=LabNetwork(ranks=2, mbit=100),
        batch_size=10,
        predicted_step_s=1.0,
        predicted_samples=(30.0, 20.0, 40.0),
        alone=single,
        training=PlanTraining(steps_s=(1.0, 2.0, 4.0, 8.0), wall_s=16.0, points=((20, 0.5), (40, 0.7))),
        load=0.0,
        date="",
    )
    assert shown.reached(0.6) == pytest.approx(30) and shown.seconds_to(0.6) == pytest.approx(1 + 2 + 4)
    assert shown.seconds_to(0.65) == pytest.approx(1 + 2 + 4 + 8 / 2)
    assert shown.seconds_to(0.8) == float("inf") and shown.difference == pytest.approx(0.2)
