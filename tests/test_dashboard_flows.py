"""Where bytes go, layer by layer: by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Literal

import pytest
from small_networks import chain, layer, network, switched

from dashboard.state.columns import columns_of
from dashboard.state.flows import BETWEEN, INSIDE, Flows, flows_of
from dashboard.words.partition import heaviest_nets
from simulator.cluster import Cluster
from simulator.parameter_states import ParameterStates
from simulator.plan import Plan, Sharding
from simulator.run import run
from simulator.workload import Profile

OUTPUT_BYTES = 4096.0
"""Of a layer, of eight samples."""


def flows(profile: Profile, cluster: Cluster, *placed: Sharding, **more: object) -> Flows:
    placements = {each.name: sharding for each, sharding in zip(profile.layers, placed, strict=True)}
    plan = Plan(model="small", batch_size=8, placements=placements, **more)  # type: ignore[arg-type]
    return flows_of(run(profile, cluster, plan), profile, cluster)


def by_sample(*devices: int) -> Sharding:
    return Sharding(degrees=(len(devices), 1, 1, 1), devices=devices)


def with_parameters(*parameter_bytes: int) -> Profile:
    profile = chain([3.0] * len(parameter_bytes))
    layers = zip(profile.layers, parameter_bytes, strict=True)
    return replace(profile, layers=tuple(replace(each, parameter_bytes=size) for each, size in layers))


def test_gradients_of_one_sum_are_shared_out_by_parameters() -> None:
    """A ring of two sends the gradient of 16,384 bytes once each way; a quarter of it is the first layer's."""
    moved = flows(with_parameters(4096, 12288), switched([1.0] * 2), by_sample(0, 1), by_sample(0, 1))
    assert moved.gradient_bytes[:, BETWEEN].tolist() == pytest.approx([2 * 4096, 2 * 12288])
    assert moved.gradient_bytes[:, INSIDE].tolist() == [0, 0] and moved.edge_bytes.sum() == 0
    assert moved.total_bytes == moved.between_bytes == pytest.approx(2 * 16384)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_gathers_of_one_bucket_are_shared_out_by_parameters(stage: Literal[1, 2, 3]) -> None:
    """Layers of equal parameters have equal bytes, and all of them are the traffic of the phases."""
    profile, cluster, four = with_parameters(4096, 0, 8192, 4096), switched([1.0] * 4), by_sample(0, 1, 2, 3)
    placements = dict.fromkeys(profile.index, four)
    plan = Plan(model="small", batch_size=8, placements=placements, states=ParameterStates(stage=stage))
    done = run(profile, cluster, plan)
    moved, volume = flows_of(done, profile, cluster), done.report.communication_bytes
    for table, phase in ((moved.gradient_bytes, volume.synchronisation), (moved.gathered_bytes, volume.parameters)):
        assert table.sum(axis=1).tolist() == pytest.approx([phase / 4, 0, phase / 2, phase / 4]) and phase > 0
    lines = heaviest_nets(profile, moved, columns_of(profile, plan))
    words = {"gradients of its copies", "gathers of its parameters"}
    assert {(line.layer, line.readers) for line in lines} == set(product("acd", words))


@pytest.mark.parametrize(
    ("states", "copies"),
    [
        (ParameterStates(), (3, 3, 3)),
        (ParameterStates(stage=1, group=2), (1, 3, 3)),
        (ParameterStates(stage=2, group=2), (1, 1, 3)),
        (ParameterStates(stage=3, group=2), (1, 1, 1)),
        (ParameterStates(stage=3), (0, 0, 0)),
    ],
)
def test_what_is_not_shared_out_is_held_as_often_as_there_are_groups(
    states: ParameterStates, copies: tuple[int, int, int]
) -> None:
    """Beyond once, on four devices: optimizer state of twice a parameter's bytes, gradients of twice, parameters."""
    profile = replace(with_parameters(4096, 0), dtype="float16")
    four, states = by_sample(0, 1, 2, 3), replace(states, gradient_dtype="float32")
    moved = flows(profile, switched([1.0] * 4), four, four, states=states, optimizer_state=2.0)
    optimizer, gradients, parameters = copies
    assert moved.replicated_bytes.tolist() == [4096 * (2 * optimizer + 2 * gradients + parameters), 0]
    assert moved.replica_pieces.tolist() == [1, 0] and moved.replica_devices.tolist()[0] == 4


def test_a_layer_on_one_device_has_no_copies() -> None:
    moved = flows(with_parameters(4096, 4096), switched([1.0] * 2), Sharding(devices=(0,)), by_sample(0, 1))
    assert moved.replicated_bytes.tolist() == [0, 4096 * 3]
    assert (moved.replica_pieces.tolist(), moved.replica_devices.tolist()) == ([0, 1], [1, 2])
    channels = Sharding(degrees=(2, 2, 1, 1), devices=(0, 1, 2, 3))
    halves = flows(with_parameters(4096, 4096), switched([1.0] * 4), channels, channels)
    assert (halves.replica_pieces.tolist(), halves.replica_devices.tolist()) == ([2, 2], [2, 2])


def test_a_tensor_for_two_readers_is_sent_for_each() -> None:
    """There and back; on one device for both they share one message equally."""
    fork = network(layer("a"), layer("b", "a"), layer("c", "a"))
    homes = [Sharding(devices=(home,)) for home in (0, 1, 2)]
    apart, beside = (flows(fork, switched([1.0] * 3), homes[0], homes[1], home) for home in (homes[2], homes[1]))
    for moved, each in ((apart, 2 * OUTPUT_BYTES), (beside, OUTPUT_BYTES)):
        assert (moved.producer.tolist(), moved.reader.tolist()) == ([0, 0], [1, 2])
        assert moved.edge_bytes[:, BETWEEN].tolist() == pytest.approx([each, each])
        assert moved.activation_bytes[:, BETWEEN].tolist() == pytest.approx([2 * each, 0, 0])
    assert (apart.crossing_shards.tolist(), apart.crossing_targets.tolist()) == ([1, 0, 0], [2, 0, 0])
    assert (beside.crossing_shards.tolist(), beside.crossing_targets.tolist()) == ([1, 0, 0], [1, 0, 0])
    assert beside.received_bytes.tolist()[0] == [OUTPUT_BYTES, OUTPUT_BYTES, 0]
    assert apart.received_bytes.tolist()[0] == [2 * OUTPUT_BYTES, OUTPUT_BYTES, OUTPUT_BYTES]


def test_what_stays_in_a_node_is_told_apart_from_what_crosses() -> None:
    """Devices 0 and 1 on one host; a message to each of three others."""
    cluster = switched([1.0] * 3)
    hosts = tuple(replace(device, host="h0" if number < 2 else "h1") for number, device in enumerate(cluster.devices))
    cluster = replace(cluster, devices=hosts)
    moved = flows(
        chain([3.0, 3.0, 3.0]), cluster, Sharding(devices=(0,)), Sharding(devices=(1,)), Sharding(devices=(2,))
    )
    assert moved.edge_bytes.tolist() == [[2 * OUTPUT_BYTES, 0], [0, 2 * OUTPUT_BYTES]]
    assert moved.total_bytes == 4 * OUTPUT_BYTES and moved.between_bytes == 2 * OUTPUT_BYTES
    assert moved.seconds.ravel().tolist() == pytest.approx([3, 0, 0, 0, 3, 0, 0, 0, 3])
