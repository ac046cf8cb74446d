"""Equal replicas and ranks of a model: lowered and simulated once, the report is that of all of them, bit for bit."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from itertools import pairwise
from math import prod
from random import Random

import laws
import numpy as np
import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from random_inputs import plans, profiles
from small_networks import branches, chain

from partitioners import make_plan
from partitioners._grids.grid_plan import grid_plan
from simulator.cluster import Cluster, Link
from simulator.collectives import CollectiveTask
from simulator.engine.noise import Noise
from simulator.errors import InputError
from simulator.language_models.model_card import ModelCard
from simulator.language_models.modelled_profile import modelled_profile
from simulator.language_models.training_grid import TrainingGrid
from simulator.language_models.training_stack import read_stack
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower_once
from simulator.lowering.symmetry.symmetries import symmetries_of
from simulator.lowering.symmetry.symmetry import AsymmetryError, Symmetry
from simulator.lowering.tasks.graph_builder import GraphBuilder
from simulator.network.catalogue import read_cluster
from simulator.network.topologies import Wire, two_tier
from simulator.ordered_sum import ordered_sum
from simulator.parameter_states import ParameterStates
from simulator.plan import Plan, Sharding, StepSettings, Synchronisation
from simulator.report.deferred_rows import DeferredRows
from simulator.report.metrics import Report
from simulator.report.traffic import crossing_bytes
from simulator.run import lowered, run, step_report
from simulator.runtime import IDEAL, Runtime
from simulator.taskgraph import Kind, Route
from simulator.workload import Geometry, Profile

FAST, SLOW = (Wire(bandwidth_bytes_per_s=x, latency_s=y, tier=z) for x, y, z in ((1e7, 1e-5, "a"), (3e6, 2e-4, "b")))


def assert_same_report(
    profile: Profile,
    cluster: Cluster,
    plan: Plan,
    runtime: Runtime = IDEAL,
    stragglers: Mapping[int, float] | None = None,
) -> list[int]:
    """Compare every field of the two reports; how many devices each that is simulated stands for, by class."""
    noise = Noise(stragglers=stragglers or {})
    whole, once = (
        run(profile, cluster, plan, runtime=runtime, noise=noise).report,
        step_report(profile, cluster, plan, runtime=runtime, noise=noise),
    )
    for field in fields(Report):
        assert getattr(whole, field.name) == getattr(once, field.name), field.name
    assert repr(whole.to_dict()) == repr(once.to_dict())
    return np.bincount(lower_once(profile, plan, cluster, runtime, stragglers).model.rank_classes).tolist()


@pytest.mark.parametrize(
    ("copy", "own", "collapses"), [(1, (0, 0), True), (2, (0, 1, 1, 0), False), (2, (0, 1, 2, 3), True)]
)
def test_copies_on_one_device_keep_replicas_apart(copy: int, own: tuple[int, ...], collapses: bool) -> None:
    """Two replicas, each of two parts by channel; parts on one device are no copies of each other."""
    profile, cluster = chain([1.0]), two_tier(8, 4, FAST, SLOW)
    devices = (*own, *(device + 4 for device in own))
    sharding = Sharding(degrees=(2, 2, 1, 1), copy=copy, devices=devices)
    plan = Plan(model="small", batch_size=8, placements={"a": sharding})
    assert bool(list(symmetries_of(profile, plan, cluster, IDEAL, {}))) is collapses


@st.composite
def shared_states(draw: st.DrawFn, profile: Profile, plan: Plan) -> Plan:
    """The plan with states shared out in some way, by as many of a parameter's users as divide each of them."""
    stage = draw(st.integers(0, 3))
    users = [len(piece.devices) for piece in ShardedModel(profile, plan).replicas]
    groups = [size for size in range(2, 5) if all(count == 1 or count % size == 0 for count in users)]
    states = ParameterStates(
        stage=stage,
        group=draw(st.sampled_from((0, 0, 1, *groups, *groups))) if stage else 0,
        each_microbatch=stage >= 2 and draw(st.booleans()),
        keep_gathered=stage == 3 and draw(st.booleans()),
        prefetch=draw(st.integers(0, 2)),
        gradient_dtype=draw(st.sampled_from(("", "float32", "float64"))),
    )
    return replace(plan, states=states, optimizer_state=draw(st.sampled_from((1.0, 6.0))))


@st.composite
def replicated(draw: st.DrawFn, profile: Profile, least: int = 2) -> tuple[Cluster, Plan]:
    """A random plan on 1 to 3 devices, replicated `least` to 4 times, over nodes of one, two, or about so many."""
    size, replicas = draw(st.integers(1, 3)), draw(st.integers(least, 4))
    cluster = two_tier(size * replicas, draw(st.sampled_from((1, 2, size, size + 1, size * replicas))), FAST, SLOW)
    replica = draw(plans(profile, Cluster(name="replica", devices=cluster.devices[:size]), every_axis=True))
    stride = draw(st.sampled_from(((size, 1), (1, replicas))))  # of replicas and of devices in them
    placements = {}
    for name, sharding in replica.placements.items():
        own = np.array(sharding.devices)
        devices = np.concatenate([own * stride[1] + k * stride[0] for k in range(replicas)])
        degrees = (sharding.degrees[0] * replicas, *sharding.degrees[1:])
        placements[name] = replace(sharding, degrees=degrees, devices=tuple(devices.tolist()))
    common = prod({p.degrees[0] for p in replica.placements.values()})  # samples that every layer can cut equally
    batch_size = replica.microbatches * common * replicas
    collective = draw(st.sampled_from(("ring", "ring", "tree", "halving-doubling", "hierarchical", "all-to-all")))
    synchronisation = replace(replica.synchronisation, collective=collective)
    exchange = draw(st.sampled_from(("messages", "collectives")))
    plan = replace(
        replica, placements=placements, batch_size=batch_size, synchronisation=synchronisation, exchange=exchange
    )
    return cluster, draw(shared_states(profile, plan))


LAUNCHED = Runtime(
    forward_launch_s=3e-4, backward_launch_s=1e-4, update_launch_s=1e-3, step_overhead_s=1e-3, message_pause_s=2e-3
)
OVERLAPPED = Runtime(overlaps_weight_gradients=True, overlaps_products=True)
SPREAD = Runtime(task_overhead_s=1e-4, overlap_slowdown=1.5, rank_spread=0.03)
RUNTIMES = st.sampled_from((IDEAL, SPREAD, LAUNCHED, OVERLAPPED))


@st.composite
def ranked(draw: st.DrawFn, profile: Profile) -> tuple[Cluster, Plan]:
    """A random plan of 1 or 2 stages, each 1 to 3 times on 2 or 4 ranks that share every layer in some way."""
    ranks, stages, replicas = draw(st.sampled_from((2, 4))), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    count = ranks * stages * replicas
    cluster = two_tier(count, draw(st.sampled_from((1, ranks, count))), FAST, SLOW)
    order = draw(st.permutations(range(3)))
    devices = np.arange(count).reshape([(stages, replicas, ranks)[axis] for axis in order])
    devices = devices.transpose(np.argsort(order))  # (stages, replicas, ranks)
    placements = {}
    for position, layer in enumerate(profile.layers):
        extents = {"channel": layer.channels, "height": layer.output_shape[1], "sample": ranks, "copy": ranks}
        if layer.sums_inputs:
            fewest = min((profile.layers[profile.index[name]].channels for name in layer.inputs), default=ranks)
            extents["reduce"] = fewest
        axis = draw(st.sampled_from([axis for axis, extent in sorted(extents.items()) if extent >= ranks]))
        degrees = (replicas, *(ranks if axis == name else 1 for name in ("channel", "height")), 1)
        placements[layer.name] = Sharding(
            degrees=(degrees[0] * (ranks if axis == "sample" else 1), *degrees[1:]),
            reduce=ranks if axis == "reduce" else 1,
            copy=ranks if axis == "copy" else 1,
            devices=tuple(devices[position * stages // len(profile.layers)].ravel().tolist()),
        )
    microbatches = draw(st.integers(1, 3))
    names, length = [layer.name for layer in profile.layers], draw(st.integers(0, 3))
    segments = tuple(tuple(names[i : i + length]) for i in range(0, len(names), length)) if length else ()
    plan = Plan(
        model=profile.model,
        batch_size=microbatches * replicas * ranks * draw(st.integers(1, 2)),
        microbatches=microbatches,
        placements=placements,
        schedule=draw(st.sampled_from(("dataflow", "1f1b", "gpipe"))),
        synchronisation=Synchronisation(bucket_bytes=draw(st.sampled_from((0, 500, 2**20)))),
        exchange=draw(st.sampled_from(("collectives", "collectives", "scattered", "messages"))),
        recomputed=segments,
    )
    return cluster, draw(shared_states(profile, plan))


@settings(max_examples=laws.examples(12, 30))
@given(st.data(), profiles(max_layers=4))
def test_a_report_of_first_ranks_is_that_of_all(data: st.DataObject, profile: Profile) -> None:
    layers = [replace(layer, update_s=1e-3 if layer.parameter_bytes else 0.0) for layer in profile.layers]
    profile = replace(profile, layers=tuple(layers))
    cluster, plan = data.draw(ranked(profile))
    stragglers = dict.fromkeys(data.draw(st.sampled_from(((), plan.devices[:1], plan.devices))), 1.5)
    event(f"devices alike: {assert_same_report(profile, cluster, plan, data.draw(RUNTIMES), stragglers)}")


@settings(max_examples=laws.examples(8, 20))
@given(st.data(), profiles(max_layers=4))
def test_a_report_of_one_replica_is_that_of_all(data: st.DataObject, profile: Profile) -> None:
    cluster, plan = data.draw(replicated(profile))
    event(f"replicas: {assert_same_report(profile, cluster, plan, data.draw(RUNTIMES))}")


@settings(max_examples=laws.examples(8, 20))
@given(st.data(), profiles(max_layers=4))
def test_a_report_of_each_class_of_replicas_is_that_of_all(data: st.DataObject, profile: Profile) -> None:
    """Stragglers and slower devices, alike or not, in some of the replicas."""
    cluster, plan = data.draw(replicated(profile, least=3))
    devices = st.sampled_from(plan.devices)
    stragglers = data.draw(st.dictionaries(devices, st.sampled_from((0.5, 1.5)), max_size=2))
    slow = data.draw(st.sets(devices, min_size=not stragglers, max_size=1))
    unequal = [replace(x, speed=0.5) if i in slow else x for i, x in enumerate(cluster.devices)]
    cluster = replace(cluster, devices=tuple(unequal))
    event(f"replicas: {assert_same_report(profile, cluster, plan, data.draw(RUNTIMES), stragglers)}")


def test_stragglers_alike_are_simulated_once() -> None:
    """The step is that of the slower of two; of 8 replicas one of each pair of stragglers and one other are lowered."""
    profile, cluster = chain([3.0, 2.0]), two_tier(8, 4, FAST, SLOW)
    plan = make_plan("data", profile, cluster, StepSettings(batch_size=16))
    assert assert_same_report(profile, cluster, plan, stragglers={2: 1.5, 6: 1.5, 3: 1.25}) == [5, 2, 1]
    alone = step_report(profile, cluster, plan, noise=Noise(stragglers={6: 1.5})).step_s
    both = step_report(profile, cluster, plan, noise=Noise(stragglers={2: 1.5, 6: 1.5, 3: 1.25})).step_s
    assert alone == both > step_report(profile, cluster, plan).step_s


@pytest.mark.parametrize("device", [-1, 8, 99])
def test_a_straggler_that_does_not_compute_is_an_error_once_too(device: int) -> None:
    profile, cluster = chain([3.0, 2.0]), two_tier(12, 4, FAST, SLOW)
    whole = Sharding(degrees=(8, 1, 1, 1), devices=tuple(range(8)))
    plan = Plan(model="small", batch_size=8, placements={"a": whole, "b": whole})
    with pytest.raises(InputError, match=f"straggler is {device}: it is a device that computes in this plan"):
        step_report(profile, cluster, plan, noise=Noise(stragglers={3: 2.0, 4: 2.0, device: 2.0}))


@settings(max_examples=8)
@given(st.data(), profiles(max_layers=3), st.integers(0, 5))
def test_one_unequal_link_or_device_changes_nothing(data: st.DataObject, profile: Profile, odd: int) -> None:
    """Symmetry is broken somewhere; where that matters all replicas are simulated."""
    cluster, plan = data.draw(replicated(profile))
    if data.draw(st.booleans()):
        links = [replace(x, bandwidth_bytes_per_s=1e6) if i == odd else x for i, x in enumerate(cluster.links)]
        cluster = replace(cluster, links=tuple(links))
    else:
        devices = [replace(x, speed=0.5) if i == odd else x for i, x in enumerate(cluster.devices)]
        cluster = replace(cluster, devices=tuple(devices))
    assert_same_report(profile, cluster, plan)


GRID = {"tensor": 2, "pipeline": 2}


@pytest.mark.parametrize(
    ("strategy", "options", "devices", "alike"),
    [
        ("data", {}, 8, [8]),
        ("pipeline", {"replicas": True, "judged": False}, 4, [4]),
        ("megatron", GRID, 16, [8]),
        ("model", {"judged": False}, 4, [1]),
    ],
)
def test_how_many_devices_one_stands_for(
    strategy: str, options: dict[str, object], devices: int, alike: list[int], engine: str
) -> None:
    """A grid of tensor 2 x pipeline 2 on 16 devices has 4 replicas of 2 ranks; a pipeline alone has none."""
    profile, cluster = chain([3.0, 2.0, 4.0, 1.0]), two_tier(devices, 4, FAST, SLOW)
    plan = make_plan(strategy, profile, cluster, StepSettings(batch_size=32, microbatches=2), **options)
    assert assert_same_report(profile, cluster, plan) == alike


@pytest.mark.parametrize(("copy", "alike"), [(1, [8]), (2, [1])])
def test_layers_of_one_parameter_are_simulated_once_unless_copied(copy: int, alike: list[int]) -> None:
    """Copies of what is tied sum its gradient each with other peers."""
    profile, cluster = with_parameters(chain([3.0, 2.0, 3.0])), two_tier(8, 4, FAST, SLOW)
    last = replace(profile.layers[2], tied_to=("a",), parameter_bytes=0, update_s=0.0)
    profile = replace(profile, layers=(*profile.layers[:2], last))
    shared = Sharding(degrees=(8 // copy, 1, 1, 1), copy=copy, devices=tuple(range(8)))
    placements = dict.fromkeys("ab", Sharding(degrees=(8, 1, 1, 1), devices=tuple(range(8)))) | {"c": shared}
    plan = Plan(model="small", batch_size=16, placements=placements, exchange="collectives")
    assert assert_same_report(profile, cluster, plan) == alike


@pytest.mark.parametrize("collective", ["ring", "tree", "halving-doubling", "all-to-all", "hierarchical", "ps-workers"])
def test_only_collectives_of_everybody_at_once_keep_the_symmetry(collective: str) -> None:
    """Rings inside hosts, and servers, treat some replicas apart."""
    profile, cluster = branches(), two_tier(8, 4, FAST, SLOW)
    step = StepSettings(batch_size=16, synchronisation=Synchronisation(collective=collective))
    plan = make_plan("data", profile, cluster, step)
    replicas = assert_same_report(profile, cluster, plan)
    assert replicas == ([8] if collective in ("ring", "tree", "halving-doubling", "all-to-all") else [1])


def with_parameters(profile: Profile) -> Profile:
    """Each layer with those of a convolution, which take a while to update."""
    layers = (replace(layer, parameter_bytes=2304, update_s=1e-3) for layer in profile.layers)
    return replace(profile, layers=tuple(layers))


AHEAD = Runtime(overlaps_gathers=True)
SHARED = (ParameterStates(stage=1), ParameterStates(stage=2, each_microbatch=True), ParameterStates(stage=3))


@pytest.mark.parametrize("runtime", [IDEAL, AHEAD])
@pytest.mark.parametrize("recomputed", [(), (("a", "b"), ("c", "d"))])
@pytest.mark.parametrize("states", [*SHARED, ParameterStates(stage=3, keep_gathered=True, prefetch=0)])
@pytest.mark.parametrize(
    ("strategy", "options", "alike"),
    [
        ("data", {}, [16]),
        ("megatron", {"tensor": 2}, [16]),
        ("megatron", {"tensor": 2, "pipeline": 2}, [8]),
        ("megatron", {"tensor": 4}, [16]),
    ],
)
def test_devices_that_share_states_are_simulated_once(
    strategy: str,
    options: dict[str, object],
    alike: list[int],
    states: ParameterStates,
    recomputed: tuple[tuple[str, ...], ...],
    runtime: Runtime,
) -> None:
    """Sums that leave slices and gathers of parameters stand for those of all replicas and ranks, as does what ranks
    exchange twice where two layers are recomputed."""
    profile, cluster = with_parameters(chain([3.0, 2.0, 4.0, 1.0])), two_tier(16, 4, FAST, SLOW)
    step = StepSettings(
        batch_size=64, microbatches=2, states=states, synchronisation=Synchronisation(bucket_bytes=3000)
    )
    plan = replace(make_plan(strategy, profile, cluster, step, **options), recomputed=recomputed)
    assert plan.states == states
    assert assert_same_report(profile, cluster, plan, runtime) == alike


@pytest.mark.parametrize(
    ("group", "per_node", "stragglers", "alike"),
    [
        (0, 4, {}, [16]),
        (0, 4, {5: 1.5}, [15, 1]),
        (1, 4, {}, [16]),
        (2, 4, {}, [16]),
        (4, 4, {}, [16]),
        (4, 4, dict.fromkeys((0, 4, 8, 12), 1.5), [4, 12]),
        (4, 4, {0: 1.5}, [1]),
        (4, 5, {}, [1]),
    ],
)
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_groups_that_share_states_are_simulated_once_where_they_are_alike(
    stage: int, group: int, per_node: int, stragglers: dict[int, float], alike: list[int]
) -> None:
    """A straggler in each of four groups keeps them alike; one straggler does not, nor do nodes of five devices, of
    which some groups lie inside one."""
    profile, cluster = with_parameters(chain([3.0, 2.0, 4.0])), two_tier(16, per_node, FAST, SLOW)
    states = ParameterStates(stage=stage, group=group)
    step = StepSettings(
        batch_size=32, microbatches=2, states=states, synchronisation=Synchronisation(bucket_bytes=3000)
    )
    plan = make_plan("data", profile, cluster, step)
    assert assert_same_report(profile, cluster, plan, stragglers=stragglers) == alike


def test_layers_that_ranks_copy_or_share_gather_in_turn() -> None:
    """Both layers' parameters are shared out in the groups of devices 0 and 1, and 2 and 3: the second layer's are
    gathered behind the first's, also where a device stands for four."""
    profile, cluster = with_parameters(chain([3.0, 3.0])), two_tier(4, 1, FAST, SLOW)
    own = (0, 2, 1, 3)
    placements = {
        "a": Sharding(degrees=(2, 1, 1, 1), copy=2, devices=own),
        "b": Sharding(degrees=(4, 1, 1, 1), devices=own),
    }
    plan = Plan(
        model="small", batch_size=8, placements=placements, exchange="collectives", schedule="dataflow",
        states=ParameterStates(stage=3, group=2), synchronisation=Synchronisation(bucket_bytes=0),
    )  # fmt: skip
    assert assert_same_report(profile, cluster, plan) == [4]


def test_groups_that_do_not_do_the_same_are_no_joint_transfer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two groups of two devices that sum their slices of states, one with another size, order, end or way."""
    asked: list[tuple[Symmetry, list[CollectiveTask], tuple[int, ...]]] = []
    as_one = Symmetry._as_one

    def noted(symmetry: Symmetry, steps: list[CollectiveTask], own: tuple[int, ...]) -> CollectiveTask:
        asked.append((symmetry, list(steps), own))
        return as_one(symmetry, steps, own)

    monkeypatch.setattr(Symmetry, "_as_one", noted)
    profile, cluster = with_parameters(chain([3.0, 2.0])), two_tier(4, 4, FAST, SLOW)
    step = StepSettings(batch_size=16, states=ParameterStates(stage=1, group=2))
    assert lower_once(profile, make_plan("data", profile, cluster, step), cluster).model.symmetry is not None
    symmetry, (first, second), own = next(each for each in asked if len(each[1]) == 2)
    assert first.route is not None and second.route is not None
    joint = as_one(symmetry, [first, second], own)
    assert joint.route is not None and (joint.bytes, joint.route.copies) == (first.bytes, 2)
    assert joint.route.pairs == first.route.pairs + second.route.pairs
    for other in (
        replace(second, bytes=2 * second.bytes),
        replace(second, after=(*second.after, 9)),
        replace(second, needs=() if second.needs else second.route.devices),
        replace(second, delivers=() if second.delivers else second.route.devices),
        replace(second, needs=second.route.devices[:1]),
        replace(second, route=replace(second.route, rounds=second.route.rounds + 1)),
        replace(second, route=None),
        first,
    ):
        with pytest.raises(AsymmetryError):
            as_one(symmetry, [first, other], own)


def test_a_message_stands_for_those_of_all_replicas() -> None:
    """Two pipelines over two nodes: their messages share the wire between the nodes, each at half its bandwidth."""
    profile, cluster = chain([3.0, 3.0]), two_tier(4, 2, FAST, SLOW)
    halves = (Sharding(degrees=(2, 1, 1, 1), devices=(0, 1)), Sharding(degrees=(2, 1, 1, 1), devices=(2, 3)))
    plan = Plan(model="small", batch_size=8, placements=dict(zip("ab", halves, strict=True)))
    model, graph = lower_once(profile, plan, cluster)
    assert [(route.pairs, route.copies, route.single) for route in graph.routes] == [
        (((0, 2), (1, 3)), 2, ((0, 2),)),
        (((2, 0), (3, 1)), 2, ((2, 0),)),
    ]
    assert model.replicas_alike == 2 and len(graph) == 6
    report = step_report(profile, cluster, plan)
    assert report.tasks == 12
    assert report.communication_bytes.forward == 8 * 8 * 16 * 4
    assert assert_same_report(profile, cluster, plan) == [2]


def sent_bytes(sizes: Sequence[float], routes: Sequence[Route]) -> float:
    """What messages of all these sizes carry over each route."""
    builder = GraphBuilder()
    for route in routes:
        builder.add(Kind.ACTIVATION, len(sizes), route=builder.route(route), bytes=sizes)
    return ordered_sum(crossing_bytes(builder.build(np.zeros(0), ()))[Kind.ACTIVATION].tolist())


@given(st.lists(st.floats(0.0, 2.0**60), max_size=40), st.integers(1, 99), st.randoms())
@example([5e-324], 1, Random(0))
def test_bytes_add_up_alike_in_every_order(sizes: list[float], copies: int, order: Random) -> None:
    """Those of a transfer for all copies, and those of each copy, shuffled."""
    pairs = tuple((2 * i, 2 * i + 1) for i in range(copies))
    together = sent_bytes(sizes, [Route(pairs)])
    order.shuffle(sizes)
    assert together == sent_bytes(sizes, [Route((pair,)) for pair in pairs])
    assert together == pytest.approx(copies * sum(sizes), rel=1e-12)


@pytest.mark.parametrize(("devices", "alike"), [(6, [6]), (12, [12]), (28, [28])])
@pytest.mark.parametrize("stage", [0, 1, 3])
def test_replicas_whose_parts_are_no_binary_fractions_stand_for_each_other(
    stage: int, devices: int, alike: list[int]
) -> None:
    """Of 3, 6 and 14 replicas each sums a third, a sixth, a fourteenth in tensor groups of two."""
    profile, cluster = with_parameters(chain([3.0, 2.0, 4.0])), two_tier(devices, 2, FAST, SLOW)
    step = StepSettings(batch_size=84, microbatches=2, states=ParameterStates(stage=stage))
    plan = make_plan("megatron", profile, cluster, step, tensor=2)
    assert assert_same_report(profile, cluster, plan) == alike


def test_one_lowered_plan_serves_links_that_are_alike_in_the_same_way() -> None:
    """Two pipelines over two nodes: other bandwidths change nothing that was lowered, one slower wire does."""
    profile, cluster = chain([3.0, 3.0]), two_tier(4, 2, FAST, SLOW)
    halves = (Sharding(degrees=(2, 1, 1, 1), devices=(0, 1)), Sharding(degrees=(2, 1, 1, 1), devices=(2, 3)))
    plan = Plan(model="small", batch_size=8, placements=dict(zip("ab", halves, strict=True)))
    known = lowered(profile, cluster, plan, once=True)
    for bandwidth in (1e5, 1e9):
        assert lowered(profile, cluster.with_tier("b", bandwidth_bytes_per_s=bandwidth), plan, once=True) is known
    links = (replace(cluster.links[0], bandwidth_bytes_per_s=1e5), *cluster.links[1:])
    slower = lowered(profile, replace(cluster, links=links), plan, once=True)
    assert known.model.replicas_alike == 2 and slower.model.replicas_alike == 1
    assert lowered(profile, replace(cluster, links=tuple(ring_of(cluster))), plan, once=True) is not known


def test_as_many_plans_stay_lowered_as_a_point_of_a_sweep_judges() -> None:
    """A hundred plans asked for again on slower links are the ones of before."""
    profile, cluster = chain([3.0, 3.0]), two_tier(4, 2, FAST, SLOW)
    ends = [Sharding(degrees=(1, 1, 1, 1), devices=(device,)) for device in range(4)]
    plans = [
        Plan(model="small", batch_size=64, placements={"a": first, "b": last}, microbatches=microbatches)
        for microbatches in (1, 2, 4, 8, 16, 32, 64)
        for first in ends
        for last in ends
    ]
    known = [lowered(profile, cluster, plan, once=True) for plan in plans]
    slower = cluster.with_tier("b", bandwidth_bytes_per_s=1e5)
    assert all(lowered(profile, slower, plan, once=True) is of for plan, of in zip(plans, known, strict=True))
    assert all(of.model.whole == plan for plan, of in zip(plans, known, strict=True))


def ring_of(cluster: Cluster) -> list[Link]:
    """Links of one speed round all devices, both ways."""
    names = [device.name for device in cluster.devices]
    ways = [*pairwise([*names, names[0]])]
    return [Link(source=a, target=b, bandwidth_bytes_per_s=1e7) for way in ways for a, b in (way, way[::-1])]


@pytest.mark.parametrize(
    ("channels", "exchange", "speed", "slow", "alike"),
    [
        (8, "collectives", 1.0, (), 2),
        (9, "collectives", 1.0, (), 1),
        (8, "messages", 1.0, (), 1),
        (8, "collectives", 0.5, (), 1),
        (8, "collectives", 1.0, (1,), 1),
        (8, "collectives", 1.0, (0, 1), 2),
    ],
)
def test_only_equal_ranks_are_simulated_once(
    channels: int, exchange: str, speed: float, slow: tuple[int, ...], alike: int
) -> None:
    """Channels that cannot be halved, messages between ranks, a slower device and one straggler keep both ranks."""
    profile, cluster = chain([3.0, 3.0], [channels] * 2), two_tier(2, 2, FAST, SLOW)
    cluster = replace(cluster, devices=(cluster.devices[0], replace(cluster.devices[1], speed=speed)))
    halves = Sharding(degrees=(1, 2, 1, 1), devices=(0, 1))
    plan = Plan(model="small", batch_size=8, placements=dict.fromkeys("ab", halves), exchange=exchange)
    assert assert_same_report(profile, cluster, plan, stragglers=dict.fromkeys(slow, 1.5)) == [alike]


@pytest.mark.parametrize("expert", [2, 4, 8, 16])
def test_groups_of_experts_are_simulated_once(expert: int) -> None:
    """Also where each expects a share of the tokens that no binary number is."""
    card = ModelCard(
        name="routed",
        layers=2,
        hidden=48,
        heads=4,
        ffn=96,
        vocabulary=100,
        sequence=60,
        experts=48,
        experts_per_token=3,
    )
    stack = read_stack("megatron-a100")
    profile, cluster = modelled_profile(card, stack, batch_size=1), read_cluster("dgx-a100", devices=32)
    plan = grid_plan(TrainingGrid(data=32, expert=expert, accumulation=2), profile, cluster, stack)
    assert assert_same_report(profile, cluster, plan, stack.runtime) == [32]


@pytest.mark.parametrize(("near", "alike"), [(2, [12]), (3, [4, 2]), (4, [12]), (12, [12])])
def test_groups_that_hosts_part_are_simulated_beside_those_that_they_do_not(near: int, alike: list[int]) -> None:
    """Of pairs of experts on hosts of three devices every third is on two hosts."""
    card = ModelCard(
        name="routed", layers=2, hidden=64, heads=4, ffn=96, vocabulary=128, sequence=64, experts=16,
        experts_per_token=2,
    )  # fmt: skip
    stack, cluster = read_stack("megatron-a100"), two_tier(12, near, FAST, SLOW)
    profile = modelled_profile(card, stack, batch_size=1)
    plan = grid_plan(TrainingGrid(data=12, expert=2, accumulation=2), profile, cluster, stack)
    assert assert_same_report(profile, cluster, plan, stack.runtime) == alike


@pytest.mark.parametrize("expert", [4, 8])
def test_shared_experts_of_tensor_ranks_are_simulated_once(expert: int) -> None:
    """What a norm makes is gathered for the shared expert in tensor groups, and travels to experts by all-to-alls."""
    card = ModelCard(
        name="shared", layers=2, hidden=64, heads=4, ffn=96, vocabulary=128, sequence=64, experts=16,
        experts_per_token=2, shared_ffn=96,
    )  # fmt: skip
    stack = read_stack("nanotron-h100")
    profile, cluster = modelled_profile(card, stack, batch_size=1), read_cluster("dgx-h100", devices=16)
    plan = grid_plan(TrainingGrid(data=8, tensor=2, expert=expert, accumulation=2), profile, cluster, stack)
    exchanges = ShardedModel(profile, plan).exchanges(profile.index["blocks.0.norm_ffn"])
    assert {each.pattern for each in exchanges.forward.transfers} == {"all-gather", "all-to-all"}
    assert {each.pattern for each in exchanges.backward.transfers} == {"reduce-scatter", "all-to-all"}
    assert assert_same_report(profile, cluster, plan, stack.runtime) == [16]


def test_what_first_ranks_of_two_stages_do() -> None:
    """Tensor 2 x pipeline 2: rank i sends to rank i, by one transfer over both links; each rank keeps its gradients."""
    profile, cluster = chain([3.0, 3.0]), two_tier(4, 4, FAST, SLOW)
    shards = [Sharding(degrees=(1, 1, 2, 1), devices=devices) for devices in ((0, 1), (2, 3))]
    layers = [replace(layer, geometry=Geometry()) for layer in profile.layers]  # each reads its own positions
    profile = replace(profile, layers=tuple(layers))
    placements = dict(zip("ab", shards, strict=True))
    plan = Plan(model="small", batch_size=8, microbatches=2, placements=placements, exchange="collectives")
    model, graph = lower_once(profile, plan, cluster)
    assert [(route.pairs, route.copies, route.single) for route in graph.routes] == [
        (((0, 2), (1, 3)), 2, ((0, 2),)),
        (((2, 0), (3, 1)), 2, ((2, 0),)),
    ]
    assert (model.replicas_alike, len(graph)) == (1, 2 * 6)
    assert assert_same_report(profile, cluster, plan) == [2]
    assert step_report(profile, cluster, plan).tasks == 2 * 2 * 6


def test_equal_placements_are_one_object() -> None:
    halves = [Sharding(degrees=(2, 1, 1, 1), devices=(0, 1)) for _ in range(2)]
    plan = Plan(model="small", batch_size=8, placements=dict(zip("ab", halves, strict=True)))
    assert plan.placements["a"] is plan.placements["b"] and len(plan.distinct_placements) == 1


def test_rows_of_a_report_are_made_when_they_are_read() -> None:
    """And are a tuple's rows then: compared, sliced, sent to another process."""
    made: list[int] = []

    def make() -> tuple[str, ...]:
        made.append(1)
        return ("a", "b", "c")

    rows = DeferredRows(3, make)
    assert len(rows) == 3 and not made
    assert rows == ("a", "b", "c") and rows[1:] == ("b", "c") and list(rows) == ["a", "b", "c"]
    assert pickle.loads(pickle.dumps(rows)) == ("a", "b", "c") and made == [1]
