"""What a plan has alike, found by hand: images, classes of speed, ranks; and what keeps replicas apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from small_networks import chain, switched

from simulator.cluster import Cluster
from simulator.lowering.symmetry.symmetries import _images, _ranks, _replica_classes, symmetries_of
from simulator.lowering.symmetry.symmetry import AsymmetryError, Symmetry
from simulator.lowering.tasks.equal_ranks import _classes
from simulator.lowering.tasks.graph_builder import GraphBuilder
from simulator.plan import Plan, Sharding, Synchronisation
from simulator.runtime import IDEAL, Runtime
from simulator.taskgraph import Kind, Route
from simulator.workload import Profile

PROFILE = chain([3.0, 2.0])


def by_sample(*devices: int, channels: int = 1) -> Sharding:
    return Sharding(degrees=(len(devices) // channels, channels, 1, 1), devices=devices)


def alike_in(plan: Plan, cluster: Cluster, runtime: Runtime = IDEAL, **stragglers: float) -> list[Symmetry]:
    slow = {int(name[1:]): factor for name, factor in stragglers.items()}
    return list(symmetries_of(PROFILE, plan, cluster, runtime, slow))


def plan_of(*shardings: Sharding, **fields: Any) -> Plan:
    placements = dict(zip("ab", shardings * (2 // len(shardings)), strict=True))
    return Plan(model="small", placements=placements, **{"batch_size": 24, **fields})


DATA = plan_of(by_sample(0, 1, 2, 3))


@pytest.mark.parametrize(
    ("plan", "cluster", "runtime", "alike"),
    [
        (DATA, {}, {}, True),
        (replace(DATA, synchronisation=Synchronisation(collective="ps")), {}, {}, False),
        (replace(DATA, work=(1.0, 2.0)), {}, {}, False),
        (replace(DATA, schedule="pipedream"), {}, {}, False),
        (DATA, {"host_cores": {"h0": 2.0}}, {}, False),
        (DATA, {}, {"rendezvous": True}, False),
        (DATA, {}, {"busy_latency_s": 1e-3}, False),
        (DATA, {}, {"task_overhead_s": 1e-3}, True),
        (replace(DATA, batch_size=22), {}, {}, False),
        (plan_of(Sharding(degrees=(2, 1, 1, 1), devices=(0, 1), samples=(11, 13))), {}, {}, False),
        (plan_of(by_sample(0)), {}, {}, False),
        (plan_of(by_sample(0, 1, 0, 1)), {}, {}, False),
        (plan_of(by_sample(0, 1, 2, 3), by_sample(1, 0, 2, 3)), {}, {}, False),
    ],
)  # fmt: skip
def test_replicas_are_alike_unless_something_of_the_plan_or_machine_sets_them_apart(
    plan: Plan, cluster: dict[str, Any], runtime: dict[str, Any], alike: bool
) -> None:
    """Servers, unequal work, stashed weights, shared cores, messages that meet or wait for a busy rank, parts of other
    sizes, devices that hold two replicas, layers whose replicas have other devices; or there is one replica alone."""
    machine = replace(switched([1.0] * 4, servers=1), **cluster)
    assert bool(alike_in(plan, machine, Runtime(**runtime))) is alike


def test_replicas_of_all_layers_are_as_many_as_every_layer_has_parts() -> None:
    """4 and 2 parts by sample: two replicas, each with a pair of devices for the first layer."""
    plan = plan_of(by_sample(0, 1, 2, 3), by_sample(0, 1, 2, 3, channels=2))
    (symmetry,) = alike_in(plan, switched([1.0] * 4))
    assert symmetry.replicas == 2 and symmetry.images.tolist() == [[0, 1], [2, 3]]
    assert symmetry.represented(5).tolist() == [0, 1, 0, 1, 4]
    assert symmetry.plan.batch_size == 12
    assert [each.degrees[:2] for each in symmetry.plan.placements.values()] == [(2, 1), (1, 2)]
    assert {each.devices for each in symmetry.plan.placements.values()} == {(0, 1)}


def test_stragglers_and_slow_devices_make_classes_in_the_order_of_their_first_replicas() -> None:
    """Of six replicas 1 and 4 are twice as slow, one by its straggler alone, which is another class; 0 stands for 2, 3
    and 5."""
    slow = switched([1.0, 0.5, 1.0, 1.0, 0.5, 1.0])
    plan = plan_of(by_sample(0, 1, 2, 3, 4, 5))
    (symmetry,) = alike_in(plan, slow)
    assert symmetry.class_of.tolist() == [0, 1, 0, 0, 1, 0] and symmetry.simulated.tolist() == [0, 1]
    assert symmetry.plan.batch_size == 8 and symmetry.plan.placements["a"].devices == (0, 1)
    assert symmetry.represented(6).tolist() == [0, 1, 0, 0, 1, 0]
    (symmetry,) = alike_in(plan, slow, d3=2.0)
    assert symmetry.class_of.tolist() == [0, 1, 0, 2, 1, 0] and symmetry.represented(6).tolist() == [
        0,
        1,
        0,
        3,
        1,
        0,
    ]
    assert alike_in(plan_of(by_sample(0, 1, 2)), switched([1.0, 0.5, 0.25])) == []  # each is a class of its own


def test_classes_of_replicas() -> None:
    pace = np.array([[[2.0, 1.0]], [[1.0, 1.0]], [[2.0, 1.0]], [[1.0, 3.0]], [[1.0, 1.0]]])
    assert _replica_classes(pace).tolist() == [0, 1, 0, 2, 1]
    assert _replica_classes(np.ones((4, 2, 2))).tolist() == [0, 0, 0, 0]


def test_images_are_devices_apart_and_the_same_for_every_layer() -> None:
    both = [by_sample(0, 1, 2, 3), by_sample(1, 0, 3, 2)]
    images = _images(both, 2)
    assert images is not None and images.tolist() == [[0, 1], [2, 3]]
    assert _images([by_sample(0, 1, 2, 3), by_sample(0, 1, 3, 2)], 2) is None  # device 0 does what 2 does, and 3
    assert _images([by_sample(0, 1, 1, 2)], 2) is None and _images([by_sample(0, 0, 1, 1)], 2) is not None


def test_ranks_are_the_devices_of_a_layer_where_all_layers_have_as_many() -> None:
    first, second = by_sample(0, 1, 4, 5, channels=2), by_sample(2, 3, 6, 7, channels=2)
    assert _ranks([first, second], 2).tolist() == [[0, 2], [1, 3]]
    assert _ranks([first, by_sample(2, 6)], 2).size == 0
    assert _ranks([by_sample(0, 0, 1, 1, channels=2)], 2).tolist() == []  # one device has two shards
    assert _ranks([first, by_sample(1, 2, 5, 6, channels=2)], 2).tolist() == []  # a device of two groups


def test_ranks_are_told_before_replicas_where_devices_meet() -> None:
    """Tensor groups of two on four devices: first ranks and replicas, then replicas alone, as with a slow rank."""
    plan = plan_of(by_sample(0, 1, 2, 3, channels=2), exchange="collectives")
    several, alone = alike_in(plan, switched([1.0] * 4))
    assert several.ranks.tolist() == [[0], [1]] and alone.ranks.tolist() == [[0, 1]]
    assert several.represented(4).tolist() == [0, 0, 0, 0] and alone.represented(4).tolist() == [0, 1, 0, 1]
    (only,) = alike_in(plan, switched([1.0, 0.5, 1.0, 0.5]))
    assert only.ranks.tolist() == [[0, 1]] and only.represented(4).tolist() == [0, 1, 0, 1]
    (single,) = alike_in(plan_of(by_sample(0, 1, channels=2), exchange="collectives"), switched([1.0] * 2))
    assert single.ranks.tolist() == [[0], [1]] and single.replicas == 1
    assert alike_in(plan_of(by_sample(0, 1, channels=2)), switched([1.0] * 2)) == []


def test_a_network_of_one_layer_has_replicas_too() -> None:
    profile: Profile = chain([1.0])
    plan = Plan(model="small", batch_size=8, placements={"a": by_sample(0, 1)})
    assert len(list(symmetries_of(profile, plan, switched([1.0] * 2), IDEAL, {}))) == 1


@pytest.mark.parametrize(
    ("sent", "classes"),
    [
        ([(0, 1), (0, 2), (1, 2), (1, 1)], [0, 1, 1, 0]),
        ([(0, 1), (0, 1), (1, 1), (1, 1)], [0, 1, 0, 1]),
        ([(1, 1), (0, 1), (0, 1), (1, 1)], None),
        ([(0, 1), (0, 2), (1, 2)], None),
        ([(0, 1), (1, 2)], None),
    ],
)
def test_messages_of_equal_ranks_are_classed_by_what_they_carry_each_time(
    sent: list[tuple[int, int]], classes: list[int] | None
) -> None:
    """(rank, bytes), from ranks 0 and 1 to those of a second group, 2 and 3: in any order, but a first one first."""
    builder, ranks = GraphBuilder(), np.array([[0, 2], [1, 3]])
    for rank, size in sent:
        route = builder.route(Route(((rank, rank + 2),)))
        builder.add(Kind.ACTIVATION, 1, device=rank + 2, route=route, bytes=size, layer=0)
    first = np.array([0, 0, 2, 2])
    if classes is None:
        with pytest.raises(AsymmetryError):
            _classes(builder, first, ranks)
    else:
        assert _classes(builder, first, ranks).tolist() == classes
