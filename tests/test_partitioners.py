"""The contract that every strategy in the folder keeps; a new file is picked up by itself."""

from __future__ import annotations

import copy
import inspect
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_inputs import clusters, profiles
from small_networks import BATCH, branches, chain, switched

import partitioners
from simulator import files
from simulator.cluster import Cluster
from simulator.errors import InputError, UnknownNameError
from simulator.run import run
from simulator.workload import Profile

STRATEGIES = partitioners.strategies()
NETWORKS = {"chain": chain([3.0, 1.0, 2.0, 4.0, 1.0, 1.0]), "branches": branches()}
CLUSTERS = {
    "one": switched([1.0]),
    "four": switched([1.0] * 4),
    "unequal": switched([1.0, 2.0, 0.5]),
    "with a server": switched([1.0, 1.0], servers=1),
}

NEEDED = {"metis": "pymetis"}
every_strategy = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.skipif(find_spec(NEEDED.get(name, "sys")) is None, reason="extra absent"))
        for name in STRATEGIES
    ],
)
every_network = pytest.mark.parametrize("profile", NETWORKS.values(), ids=NETWORKS)
every_cluster = pytest.mark.parametrize("cluster", CLUSTERS.values(), ids=CLUSTERS)


def test_the_folder_is_the_registry() -> None:
    folder = Path(partitioners.__file__).parent
    found = {path.stem.replace("_", "-") for path in folder.glob("[!_]*.py")}
    assert set(STRATEGIES) == found >= {"data", "model", "pipeline"}


def test_unknown_strategy_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown strategy 'pipelin', did you mean 'pipeline'\? known: "):
        partitioners.load("pipelin")


@every_strategy
def test_signature(name: str) -> None:
    parameters = inspect.signature(partitioners.load(name)).parameters
    assert [*parameters][:2] == ["profile", "cluster"]
    assert {"batch_size", "synchronisation", "optimizer_state", "seed"} <= parameters.keys()
    assert [p.name for p in parameters.values() if p.default is p.empty] == ["profile", "cluster", "batch_size"]
    assert parameters.keys() - {"profile", "cluster", "batch_size"} == partitioners.options(name).keys()


@every_strategy
@every_network
@every_cluster
def test_plan_fits_and_runs(name: str, profile: Profile, cluster: Cluster) -> None:
    before = copy.deepcopy((profile, cluster))
    partition = partitioners.load(name)
    plan = partition(profile, cluster, batch_size=BATCH, optimizer_state=2.0, seed=3)
    plan.check(profile, cluster)
    assert (plan.model, plan.batch_size, plan.optimizer_state) == ("small", BATCH, 2.0)
    assert plan.strategy.split(" ")[0] == name  # a remark may follow, e.g. "(as data)"
    assert set(plan.devices) <= set(range(cluster.workers))
    assert (profile, cluster) == before
    assert partition(profile, cluster, batch_size=BATCH, optimizer_state=2.0, seed=3) == plan
    assert run(profile, cluster, plan).report.step_s > 0


@every_strategy
def test_plan_survives_a_file(name: str, tmp_path: Path) -> None:
    plan = partitioners.load(name)(branches(), switched([1.0, 2.0]), batch_size=BATCH)
    files.write_plan(plan, tmp_path / "plan.json")
    assert files.read_plan(tmp_path / "plan.json") == plan


@every_strategy
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(inputs=st.tuples(profiles(), clusters(max_servers=1)), batch_size=st.integers(1, 12))
def test_any_input_gives_a_fitting_plan_or_a_clear_error(
    name: str, inputs: tuple[Profile, Cluster], batch_size: int
) -> None:
    try:
        plan = partitioners.load(name)(*inputs, batch_size=batch_size)
    except InputError as error:
        assert "use " in str(error)
    else:
        plan.check(*inputs)
        assert plan.batch_size == batch_size


@every_strategy
def test_microbatches_that_do_not_divide_are_refused(name: str) -> None:
    if "microbatches" in partitioners.options(name):
        for microbatches in (0, 3, 2 * BATCH):
            with pytest.raises(InputError, match=r"micro-batches|microbatches is 0"):
                partitioners.load(name)(branches(), CLUSTERS["one"], batch_size=BATCH, microbatches=microbatches)
