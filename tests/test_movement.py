"""What moves between two plans: closed forms on a switch, and that everybody ends with what their plan needs."""

from __future__ import annotations

from dataclasses import replace

import laws
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import planned
from random_inputs import clusters, plans, profiles
from small_networks import BATCH, chain, layer, network, switched

from simulator.elastic.movement import Placed, movement
from simulator.lowering.exchange.shard_regions import channel_bytes, split
from simulator.lowering.parameters.replicas import replicas_of
from simulator.network.topologies import take
from simulator.plan import Plan, Sharding
from simulator.workload import Profile

MB = 10**6
ONE = network(layer("a", parameter_bytes=MB))
RATE = 1e6
CLUSTER = switched([1.0] * 8, bandwidth_bytes_per_s=RATE, latency_s=0.01)


def data(members: int, profile: Profile = ONE) -> Placed:
    plan = planned("data", profile, take(CLUSTER, members), batch_size=BATCH)
    return Placed(plan=plan, members=tuple(range(members)))


def by_channel(*devices: int) -> Plan:
    sharding = Sharding(degrees=(1, len(devices), 1, 1), devices=devices)
    return Plan(model="small", batch_size=BATCH, placements={"a": sharding}, optimizer_state=0.0)


@pytest.mark.parametrize("before, after, rounds", [(1, 2, 1), (1, 4, 2), (1, 8, 3), (2, 4, 1), (4, 8, 1), (3, 8, 2)])
def test_copies_double_every_round(before: int, after: int, rounds: int) -> None:
    """Parameters and momentum, 2 MB at 1 MB/s; senders and receivers of a round are all different."""
    moved = movement(ONE, CLUSTER, data(before), data(after))
    assert len(moved.messages) == after - before and moved.bytes == 2 * MB * (after - before)
    assert moved.seconds(CLUSTER) == pytest.approx(rounds * (2 * MB / RATE + 0.01), rel=1e-9)


def test_nothing_moves_when_copies_leave() -> None:
    moved = movement(ONE, CLUSTER, data(8), data(2))
    assert moved.messages == () and moved.bytes == moved.lost_bytes == moved.seconds(CLUSTER) == 0


def test_only_the_channels_that_are_missing_move() -> None:
    """Halves become quarters: device 0 keeps [0, 2) of 8 channels, 2 gets [4, 6) from 1, and so on."""
    old, new = Placed(plan=by_channel(0, 1), members=(0, 1)), Placed(plan=by_channel(0, 1, 2, 3), members=(0, 1, 2, 3))
    moved = movement(ONE, CLUSTER, old, new)
    assert [(m.source, m.target, m.bytes) for m in moved.messages] == [(0, 1, MB / 4), (1, 2, MB / 4), (1, 3, MB / 4)]


def test_members_are_numbers_of_the_whole_cluster() -> None:
    old, new = Placed(plan=by_channel(0), members=(5,)), Placed(plan=by_channel(0), members=(3,))
    assert [(m.source, m.target) for m in movement(ONE, CLUSTER, old, new).messages] == [(5, 3)]


def test_what_a_vanished_device_alone_held_is_lost() -> None:
    profile = chain([1.0, 1.0])
    profile = replace(profile, layers=tuple(replace(unsized, parameter_bytes=MB) for unsized in profile.layers))
    plan = Plan(
        model="small",
        batch_size=BATCH,
        placements={"a": Sharding(devices=(0,)), "b": Sharding(devices=(1,))},
        optimizer_state=2.0,
    )
    old = Placed(plan=plan, members=(0, 1))
    new = Placed(plan=replace(plan, placements=dict.fromkeys("ab", Sharding(devices=(0,)))), members=(0,))
    assert movement(profile, CLUSTER, old, new, [0]).lost_bytes == 3 * MB
    assert movement(profile, CLUSTER, old, new).lost_bytes == 0
    assert plan.state_bytes(profile) == 6 * MB


@settings(max_examples=laws.examples(20, 60))
@given(st.data())
def test_everybody_ends_with_what_the_new_plan_needs(draw: st.DataObject) -> None:
    """Counted channel by channel: bytes moved and lost are exactly those that devices need and do not hold."""
    profile, cluster = draw.draw(profiles()), draw.draw(clusters(min_workers=2, symmetric=True))
    old, new = (draw.draw(plans(profile, cluster)) for _ in range(2))
    gone = draw.draw(st.sets(st.integers(0, cluster.workers - 1), max_size=2))
    members = tuple(range(cluster.workers))
    moved = movement(
        profile, cluster, Placed(plan=old, members=members), Placed(plan=new, members=members), set(members) - gone
    )
    had = {key: devices - gone for key, devices in channels(profile, old).items()}
    needs = channels(profile, new)
    scale = 1 + new.optimizer_state
    missing = sum(size(profile, key) * len(devices - had[key]) for key, devices in needs.items() if had[key])
    assert moved.bytes == pytest.approx(missing * scale)
    assert moved.lost_bytes == pytest.approx(sum(size(profile, key) for key in needs if not had[key]) * scale)
    for number, message in enumerate(moved.messages):
        assert all(earlier < number for earlier in message.after) and message.source != message.target


Channel = tuple[int, int]


def channels(profile: Profile, plan: Plan) -> dict[Channel, set[int]]:
    """The devices that hold each (layer, channel)."""
    holders: dict[Channel, set[int]] = {}
    for piece in replicas_of(profile, plan.placements):
        piece_layer = profile.layers[piece.layer]
        first, last = split(piece_layer.channels, plan.placements[piece_layer.name].degrees[1])[piece.slot]
        holders |= {(piece.layer, channel): set(piece.devices) for channel in range(first, last)}
    return holders


def size(profile: Profile, key: Channel) -> int:
    channel_layer = profile.layers[key[0]]
    return channel_bytes(channel_layer.parameter_bytes, channel_layer.channels, (key[1], key[1] + 1))
