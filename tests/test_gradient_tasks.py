"""Sums, gathers and updates of a step: whose they are, what they wait for and how long they take."""

from __future__ import annotations

from dataclasses import replace

import laws
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_inputs import clusters, plans, profiles
from small_networks import BATCH, layer, network, switched

from simulator.cluster import Cluster
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower
from simulator.lowering.tasks.gradients import addition_s, static_bytes, static_parts
from simulator.parameter_states import ParameterStates
from simulator.plan import Plan, Sharding, Synchronisation
from simulator.runtime import IDEAL, Runtime
from simulator.taskgraph import Kind
from simulator.workload import Profile


@settings(max_examples=laws.examples(25, 100), deadline=None)
@given(profiles(), clusters(max_servers=1), st.data())
def test_a_sum_is_of_its_bucket_and_an_update_of_its_device(
    profile: Profile, cluster: Cluster, data: st.DataObject
) -> None:
    """Sums have the first layer of their bucket and its number; each device updates once, after all of its backward
    passes, in the seconds of what it holds at its speed."""
    plan = data.draw(plans(profile, cluster, every_axis=True))
    model = ShardedModel(profile, plan)
    graph = lower(model, cluster)
    layers = [bucket.pieces[0].layer for bucket in model.buckets]
    for task in np.flatnonzero(graph.kind == Kind.SYNCHRONISATION).tolist():
        assert graph.layer[task] == layers[graph.shard[task]]
    last = np.iinfo(np.int64).max
    updates = np.flatnonzero((graph.kind == Kind.UPDATE) & (graph.priority == last))
    of_device = dict(zip(graph.device[updates].tolist(), updates.tolist(), strict=True))
    assert len(of_device) == len(updates) and of_device.keys() == model.local_update_s.keys()
    for device, task in of_device.items():
        assert graph.seconds[task] == pytest.approx(model.local_update_s[device] / cluster.speeds[device])
        passes = np.flatnonzero((graph.kind == Kind.BACKWARD) & (graph.device == device))
        assert {*passes.tolist()} <= waited(graph, task)


def waited(graph: object, task: int) -> set[int]:
    """All that a task waits for, near or far."""
    seen, left = set[int](), [task]
    while left:
        for other in graph.predecessors(left.pop()).tolist():  # type: ignore[attr-defined]
            if other not in seen:
                seen.add(other)
                left.append(other)
    return seen


@settings(max_examples=laws.examples(25, 100), deadline=None)
@given(profiles(), clusters(max_servers=1), st.data())
def test_what_a_device_holds_is_the_sum_of_its_parts(profile: Profile, cluster: Cluster, data: st.DataObject) -> None:
    model = ShardedModel(profile, data.draw(plans(profile, cluster, every_axis=True)))
    runtime = Runtime(bucket_copies=data.draw(st.booleans()))
    parts = static_parts(model, cluster, runtime)
    assert list(parts) == ["parameters", "gradients", "optimizer"]
    assert sum(parts.values()) == pytest.approx(static_bytes(model, cluster, runtime))


def replicated(states: ParameterStates, **fields: object) -> tuple[ShardedModel, Cluster]:
    """Two layers of 800 and 400 bytes on four devices, by sample, in buckets of their own."""
    whole = Sharding(degrees=(4, 1, 1, 1), devices=(0, 1, 2, 3))
    plan = Plan(
        model="small", batch_size=BATCH, placements={"a": whole, "b": whole}, states=states, optimizer_state=2.0,
        synchronisation=Synchronisation(bucket_bytes=0), **fields,
    )  # fmt: skip
    first, second = layer("a", parameter_bytes=800), layer("b", "a", parameter_bytes=400)
    return ShardedModel(network(replace(first, update_s=0.8), replace(second, update_s=0.4)), plan), switched([1.0] * 4)


@pytest.mark.parametrize(
    ("stage", "copies", "held"),
    [
        (0, False, (1, 1, 2)),
        (1, False, (1, 1, 0.5)),
        (2, False, (1, 0.25, 0.5)),
        (3, False, (0.25, 0.25, 0.5)),
        (1, True, (1, 2, 0.5)),
        (2, True, (1, 0.25, 0.5)),
    ],
)
def test_what_replicas_share_out_by_hand(stage: int, copies: bool, held: tuple[float, float, float]) -> None:
    """Times 1200 bytes on each of four devices; copies: of the gradients of buckets that are summed whole."""
    model, cluster = replicated(ParameterStates(stage=stage))
    parts = static_parts(model, cluster, Runtime(bucket_copies=copies))
    for size_bytes, times in zip(parts.values(), held, strict=True):
        assert size_bytes.tolist() == [1200 * times] * 4


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_gathers_are_of_their_buckets_and_follow_each_other(stage: int) -> None:
    """After the updates of all four devices those of both buckets in turn; of the third stage before the passes."""
    model, cluster = replicated(ParameterStates(stage=stage))
    graph = lower(model, cluster)
    gathers = np.flatnonzero(graph.kind == Kind.PARAMETERS)
    layers = [bucket.pieces[0].layer for bucket in model.buckets]
    assert layers == [1, 0]
    assert all(graph.layer[task] == layers[graph.shard[task]] for task in gathers.tolist())
    updates = {*np.flatnonzero(graph.kind == Kind.UPDATE).tolist()}
    assert len(updates) == 4
    if stage < 3:
        first, second = gathers.tolist()
        assert updates == {*graph.predecessors(first).tolist()}
        assert updates | {first} == {*graph.predecessors(second).tolist()}
        assert graph.seconds[sorted(updates)].tolist() == pytest.approx([1.2 / 4] * 4)


def test_adding_gradients_takes_what_was_measured_or_three_eighths_of_an_update() -> None:
    model, _ = replicated(ParameterStates())
    pieces = {piece.layer: piece for piece in model.replicas}
    assert [addition_s(model, pieces[number]) for number in (0, 1)] == pytest.approx([0.3, 0.15])
    halves = Sharding(degrees=(2, 2, 1, 1), devices=(0, 1, 2, 3))
    measured = replace(layer("a", parameter_bytes=800), accumulate_s=0.5)
    model = ShardedModel(network(measured), Plan(model="small", batch_size=BATCH, placements={"a": halves}))
    assert [addition_s(model, piece) for piece in model.replicas] == pytest.approx([0.25, 0.25])


def test_compression_is_of_its_bucket_and_comes_between_the_passes_and_the_sum() -> None:
    whole = Sharding(degrees=(2, 1, 1, 1), devices=(0, 1))
    setting = Synchronisation(bucket_bytes=0, compression_ratio=4.0, compression_s_per_byte=1e-3)
    plan = Plan(model="small", batch_size=BATCH, placements={"a": whole, "b": whole}, synchronisation=setting)
    model = ShardedModel(network(layer("a", parameter_bytes=800), layer("b", "a", parameter_bytes=400)), plan)
    graph = lower(model, switched([1.0, 0.5]), IDEAL)
    packed = np.flatnonzero((graph.kind == Kind.UPDATE) & (graph.priority == -1)).tolist()
    assert [(graph.layer[t], graph.shard[t], graph.device[t]) for t in packed] == [
        (1, 0, 0),
        (1, 0, 1),
        (0, 1, 0),
        (0, 1, 1),
    ]
    assert graph.seconds[packed].tolist() == pytest.approx([0.4, 0.8, 0.8, 1.6])
    for task in packed:
        (waits,) = graph.predecessors(task).tolist()
        assert (graph.kind[waits], graph.layer[waits], graph.device[waits]) == (
            Kind.BACKWARD, graph.layer[task], graph.device[task],
        )  # fmt: skip
    for task in np.flatnonzero(graph.kind == Kind.SYNCHRONISATION).tolist():
        of_bucket = {other for other in packed if graph.shard[other] == graph.shard[task]}
        assert of_bucket <= waited(graph, task)
