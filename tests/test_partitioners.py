"""The contract that every strategy in the folder keeps; a new file is picked up by itself."""

from __future__ import annotations

import copy
import inspect
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plans import planned
from random_inputs import clusters, profiles
from small_networks import BATCH, branches, chain, switched

import partitioners
from simulator import files
from simulator.cluster import Cluster
from simulator.errors import InputError, UnknownNameError
from simulator.plan import StepSettings, Synchronisation, split_settings
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
    names = {path.stem.replace("_", "-") for path in folder.glob("[!_]*.py")}
    assert set(STRATEGIES) == names >= {"data", "model", "pipeline"}


def test_unknown_strategy_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown strategy 'pipelin', did you mean 'pipeline'\? known: "):
        partitioners.load("pipelin")


def short(name: str) -> dict[str, float]:
    """The option with which a search is short, where there is one: it keeps the contract as a long one does."""
    return {"effort": 0.05} if "effort" in partitioners.options(name) else {}


@every_strategy
def test_a_strategy_takes_profile_cluster_step_and_its_own_options(name: str) -> None:
    parameters = inspect.signature(partitioners.load(name)).parameters
    assert [p.name for p in parameters.values() if p.default is p.empty] == ["profile", "cluster", "step"]
    own, of_step = parameters.keys() - {"profile", "cluster", "step"}, {"optimizer_state", "microbatches", "schedule"}
    assert not own & {field.name for field in fields(StepSettings)}
    assert own <= partitioners.options(name).keys() <= own | of_step


@every_strategy
@every_network
@every_cluster
def test_plan_fits_and_runs(name: str, profile: Profile, cluster: Cluster) -> None:
    before = copy.deepcopy((profile, cluster))
    asked = {"batch_size": BATCH, "optimizer_state": 2.0, "seed": 3}
    asked |= short(name)
    plan = planned(name, profile, cluster, **asked)
    plan.check(profile, cluster)
    assert (plan.model, plan.batch_size, plan.optimizer_state) == ("small", BATCH, 2.0)
    assert plan.strategy.split(" ")[0] == name  # a remark may follow, e.g. "(as data)"
    assert set(plan.devices) <= set(range(cluster.workers))
    assert (profile, cluster) == before
    assert planned(name, profile, cluster, **asked) == plan
    assert run(profile, cluster, plan).report.step_s > 0


@every_strategy
def test_plan_survives_a_file(name: str, tmp_path: Path) -> None:
    plan = planned(name, branches(), switched([1.0, 2.0]), batch_size=BATCH, **short(name))
    files.write_plan(plan, tmp_path / "plan.json")
    assert files.read_plan(tmp_path / "plan.json") == plan


@every_strategy
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(inputs=st.tuples(profiles(), clusters(max_servers=1)), batch_size=st.integers(1, 12))
def test_any_input_gives_a_fitting_plan_or_a_clear_error(
    name: str, inputs: tuple[Profile, Cluster], batch_size: int
) -> None:
    try:
        plan = planned(name, *inputs, batch_size=batch_size, **short(name))
    except InputError as error:
        assert "use " in str(error)
    else:
        plan.check(*inputs)
        assert plan.batch_size == batch_size


@every_strategy
def test_microbatches_that_do_not_divide_are_refused(name: str) -> None:
    for microbatches in (0, 3, 2 * BATCH):
        with pytest.raises(InputError, match=r"micro-batches|microbatches is 0"):
            planned(name, branches(), CLUSTERS["one"], batch_size=BATCH, microbatches=microbatches)


@every_strategy
def test_what_the_step_asks_for_holds(name: str) -> None:
    """Whether the strategy reads it or not; what the step leaves open is the strategy's."""
    profile, cluster, quick = branches(), CLUSTERS["four"], partitioners.applicable(name, effort=0.02)
    sync = Synchronisation(collective="tree", bucket_bytes=7)
    step = StepSettings(batch_size=BATCH, microbatches=2, schedule="gpipe", synchronisation=sync, optimizer_state=2.0)
    plan = partitioners.make_plan(name, profile, cluster, step, **quick)
    assert (plan.batch_size, plan.microbatches, plan.schedule) == (BATCH, 2, "gpipe")
    assert (plan.synchronisation, plan.optimizer_state, plan.model) == (sync, 2.0, profile.model)
    partition = partitioners.load(name)(profile, cluster, StepSettings(batch_size=BATCH), **quick)
    plan = partitioners.make_plan(name, profile, cluster, StepSettings(batch_size=BATCH), **quick)
    assert plan.placements == partition.placements
    assert (plan.microbatches, plan.schedule) == (partition.microbatches or 1, partition.schedule or "dataflow")


def test_options_are_of_the_step_and_the_strategys_own() -> None:
    assert partitioners.options("model") == {"optimizer_state": 1.0, "judged": True, "seed": 0}
    assert partitioners.options("shuffle") == {"optimizer_state": 1.0, "microbatches": 1, "seed": 0}
    of_step = {"optimizer_state": 1.0, "microbatches": None, "schedule": "1f1b"}
    assert partitioners.options("pipeline") == {**of_step, "replicas": None, "chunks": None, "judged": True, "seed": 0}
    wanted = {"microbatches": 4, "effort": 0.5, "imbalance": None, "seed": 7}
    assert partitioners.applicable("model", **wanted) == {"seed": 7}
    assert partitioners.applicable("data", **wanted) == {"microbatches": 4, "seed": 7}
    assert partitioners.applicable("hypergraph", **wanted) == {"microbatches": 4, "effort": 0.5, "seed": 7}


def test_an_option_that_a_strategy_lacks_is_refused() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown option of strategy data 'balans', did you mean 'balance'\?"):
        planned("data", NETWORKS["chain"], CLUSTERS["four"], batch_size=BATCH, balans=False)


@pytest.mark.parametrize("name", ["shuffle", "hypergraph"])
def test_a_seed_below_0_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="seed is -1: it is finite, at least 0"):
        planned(name, NETWORKS["chain"], CLUSTERS["four"], batch_size=BATCH, seed=-1)


def test_any_imbalance_goes_on_unequal_devices() -> None:
    """KaHyPar adds up the limits of parts in 32 bits."""
    planned("hypergraph", NETWORKS["chain"], CLUSTERS["unequal"], batch_size=BATCH, imbalance=1e3, effort=0.05)


def test_a_step_is_split_from_the_options_beside_it() -> None:
    step, own = split_settings({"batch_size": 8, "schedule": "gpipe", "chunks": 2})
    assert (step, own) == (StepSettings(batch_size=8, schedule="gpipe"), {"chunks": 2})
    complaints = {"batch_size": (0, "batch_size is 0"), "optimizer_state": (-1.0, "optimizer_state is -1")}
    for name, (value, complaint) in complaints.items():
        with pytest.raises(InputError, match=complaint):
            split_settings({"batch_size": 8, name: value})
