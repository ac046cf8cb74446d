"""Any plan, run for real in shards, trains as one process does."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import laws
import pytest

pytest.importorskip("torch", reason="torch is not installed; make test installs it")


from small_networks import switched
from tiny_networks import BATCH, FUNCTIONAL, MIXED, WORDS, profile_of
from training import assert_equal_training, made, random_plan, script_of

import partitioners
from simulator.plan import Plan, Sharding, Synchronisation
from traces.zoo.networks import ZOO

ONE_EACH = Synchronisation(bucket_bytes=0)


STRATEGIES = sorted(partitioners.strategies())


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("microbatches", [1, 2])
def test_gradients_of_every_strategy(strategy: str, microbatches: int) -> None:
    assert_equal_training(script_of(made(strategy, microbatches=microbatches)))


def test_gradients_of_uneven_shares_are_unbiased() -> None:
    """Each sample weighs as much as any other, on whichever device it is."""
    cluster = switched([1.0, 0.5, 0.25])
    plan = made("data", cluster=cluster, batch_size=7)
    assert {sharding.samples for sharding in plan.placements.values()} == {(4, 2, 1)}
    assert_equal_training(script_of(plan, cluster), 2)


PAIRS = [(name, strategy) for strategy in STRATEGIES for name in ("resnet_small", "vgg_small")]
IN_TURN = [2 * number + number % 2 for number in range(len(STRATEGIES))]


@pytest.mark.parametrize(("name", "strategy"), laws.some(PAIRS, *IN_TURN))
def test_gradients_of_the_small_networks_of_the_zoo(name: str, strategy: str) -> None:
    plan = made(strategy, ZOO[name], batch_size=4, grid=(2, 2))
    assert_equal_training(script_of(plan, network=ZOO[name]))


@pytest.mark.parametrize("seed", range(laws.examples(2, 4)))
def test_gradients_of_random_plans_by_sample_and_channel(seed: int) -> None:
    assert_equal_training(script_of(random_plan(seed, spatial=False)))


@pytest.mark.parametrize("seed", range(laws.examples(4, 8)))
def test_gradients_of_random_plans_by_all_dimensions(seed: int) -> None:
    assert_equal_training(script_of(random_plan(seed)))


@pytest.mark.parametrize("seed", range(laws.examples(3, 6)))
def test_gradients_of_functions_and_odd_borders(seed: int) -> None:
    assert_equal_training(script_of(random_plan(seed, FUNCTIONAL), network=FUNCTIONAL))


@pytest.mark.parametrize("seed", range(laws.examples(2, 4)))
def test_gradients_of_sequences(seed: int) -> None:
    assert_equal_training(script_of(random_plan(seed, WORDS), network=WORDS))


WAYS = list(product([ONE_EACH, replace(ONE_EACH, overlap=False), Synchronisation()], ["ring", "ps", "ps-workers"]))


@pytest.mark.parametrize(("synchronisation", "collective"), laws.some(WAYS, 0, 1, 4, 6, 8))
def test_gradients_of_every_synchronisation(synchronisation: Synchronisation, collective: str) -> None:
    cluster = switched([1.0] * 3, servers=2 if collective == "ps" else 0)
    plan = random_plan(3, synchronisation=replace(synchronisation, collective=collective))
    assert_equal_training(script_of(plan, cluster), 2)


@pytest.mark.parametrize("schedule", ["dataflow", "gpipe", "1f1b", "interleaved", "zero-bubble"])
def test_the_loss_curve_coincides(schedule: str) -> None:
    """The second half of the steps shows what momentum makes of the first."""
    layers = profile_of(MIXED).layers
    chunks = 4 if schedule in ("interleaved", "zero-bubble") else 2
    devices = [position * chunks // len(layers) % 2 for position in range(len(layers))]
    placements = {layer.name: Sharding(devices=(device,)) for layer, device in zip(layers, devices, strict=True)}
    plan = Plan(model="tiny", batch_size=BATCH, microbatches=2, placements=placements, schedule=schedule)
    script = replace(script_of(plan, switched([1.0] * 2)), learning_rate=0.05)
    assert bool(script.weights_apart) == (schedule == "zero-bubble")
    assert_equal_training(script, 20)
