"""What moves, counted by arithmetic, is what lowering sends: every pair of devices, there and back, to the element."""

from __future__ import annotations

from dataclasses import replace

import laws
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_inputs import clusters, plans, profiles
from test_closed_forms import chain

from simulator.cluster import Cluster
from simulator.lowering.exchange.exchange_bytes import is_countable, sent_elements
from simulator.lowering.exchange.exchanges import Exchange, exchanges_of
from simulator.lowering.sharded_model import ShardedModel
from simulator.plan import Plan, Sharding
from simulator.taskgraph import Floats
from simulator.workload import Geometry, Profile


def sent(exchange: Exchange, devices: Floats, count: int) -> Floats:
    """Elements of the messages of one direction, [source, target]."""
    matrix = np.zeros((count, count))
    for transfer in exchange.transfers:
        assert transfer.pattern == "message"
        source, target = devices[list(transfer.devices)]
        matrix[source, target] += transfer.elements
    return matrix


@settings(max_examples=laws.examples(40, 150), deadline=None)
@given(profiles(), clusters(), st.data())
def test_counted_is_what_is_sent(profile: Profile, cluster: Cluster, data: st.DataObject) -> None:
    plan = data.draw(plans(profile, cluster, every_axis=True))
    first_copies = {
        name: replace(sharding, copy=1, devices=sharding.devices[:: sharding.copy])
        for name, sharding in plan.placements.items()
    }
    model, count = ShardedModel(profile, replace(plan, placements=first_copies)), len(cluster.devices)
    for position in range(len(profile.layers)):
        ends = model.edge(position)
        assert is_countable(*ends)
        counted, exchanges = sent_elements(*ends), exchanges_of(*ends, "messages")
        at = np.ix_(counted.devices, counted.devices)
        for direction, elements in ((exchanges.forward, counted.forward), (exchanges.backward, counted.backward)):
            matrix = np.zeros((count, count))
            matrix[at] = elements
            assert (matrix == sent(direction, exchanges.devices, count)).all()


def two_layers(own: Sharding, reader: Sharding, mixes: bool = True) -> ShardedModel:
    """A layer of 12 samples and 8 channels, and one that mixes the channels that it reads, or reads its own."""
    first, second = (replace(layer, output_shape=(8, 1, 1)) for layer in chain(2).layers)
    profile = replace(chain(2), layers=(first, replace(second, geometry=Geometry(mixes_channels=mixes))))
    return ShardedModel(profile, Plan(model=profile.model, batch_size=12, placements={"l0": own, "l1": reader}))


def test_terms_cross_as_counted_by_hand() -> None:
    """Two terms of 96 elements on devices 0 and 1; who reads them by sample are the devices 1 and 2.

    Device 1 sums the half that it reads. Of the other half nobody who has a term needs the sum, so device 2 does.
    Back, both terms' makers need the whole gradient.
    """
    terms = Sharding(degrees=(1, 1, 1, 1), reduce=2, devices=(0, 1))
    readers = Sharding(degrees=(2, 1, 1, 1), devices=(1, 2))
    counted = sent_elements(*two_layers(terms, readers).edge(0))
    assert counted.devices == (0, 1, 2)
    assert counted.forward.tolist() == [[0, 48, 48], [0, 0, 48], [0, 0, 0]]
    assert counted.backward.tolist() == [[0, 0, 0], [48, 0, 0], [48, 48, 0]]


def test_who_has_a_term_and_needs_the_sum_adds_it_up_for_all() -> None:
    """Terms on devices 0 and 1, the sum of which 1 and 2 need whole: 1 gets the other term and passes the sum on."""
    terms = Sharding(degrees=(1, 1, 1, 1), reduce=2, devices=(0, 1))
    counted = sent_elements(*two_layers(terms, Sharding(degrees=(1, 2, 1, 1), devices=(1, 2))).edge(0))
    assert counted.forward.tolist() == [[0, 96, 0], [0, 0, 96], [0, 0, 0]]
    assert counted.backward.tolist() == [[0, 0, 0], [96, 0, 0], [0, 96, 0]]


def test_a_piece_crosses_once_however_many_shards_read_it() -> None:
    """Both channel shards on device 1 read all of what device 0 has."""
    own = Sharding(degrees=(1, 1, 1, 1), devices=(0,))
    counted = sent_elements(*two_layers(own, Sharding(degrees=(1, 2, 1, 1), devices=(1, 1))).edge(0))
    assert counted.forward.tolist() == [[0, 96], [0, 0]]
    assert counted.backward.tolist() == [[0, 0], [96, 0]]


def cut(devices: tuple[int, ...], axis: str) -> Sharding:
    """A layer cut along one axis, or into terms."""
    count = len(devices)
    degrees = (count if axis == "sample" else 1, count if axis == "channel" else 1, 1, 1)
    return Sharding(degrees=degrees, reduce=count if axis == "reduce" else 1, devices=devices)


@pytest.mark.parametrize("devices", [(0, 1), (0, 1, 2, 3), (5, 2, 7, 3)])
@pytest.mark.parametrize(
    ("own", "reader", "mixes", "forward", "backward"),
    [
        ("sample", "channel", False, "all-to-all", "all-to-all"),
        ("channel", "sample", False, "all-to-all", "all-to-all"),
        ("channel", "channel", True, "all-gather", "reduce-scatter"),
        ("reduce", "sample", True, "reduce-scatter", "all-gather"),
        ("reduce", "channel", True, "all-reduce", "all-reduce"),
    ],
)
def test_what_a_group_of_devices_exchanges_is_one_collective(
    devices: tuple[int, ...], own: str, reader: str, mixes: bool, forward: str, backward: str
) -> None:
    """Of all the group, in the order of the plan."""
    model = two_layers(cut(devices, own), cut(devices, reader), mixes=mixes)
    exchanges = exchanges_of(*model.edge(0), "collectives")
    for direction, pattern in ((exchanges.forward, forward), (exchanges.backward, backward)):
        (transfer,) = direction.transfers
        members = [int(exchanges.devices[number]) for number in transfer.devices]
        assert (transfer.pattern, members) == (pattern, list(devices))


def test_what_each_device_hands_on_to_one_other_is_no_collective() -> None:
    """Everybody has an equal part and needs one, but only of the next."""
    devices = (0, 1, 2, 3)
    for rolled in ((1, 2, 3, 0), (3, 0, 1, 2)):
        model = two_layers(cut(devices, "sample"), cut(rolled, "sample"))
        exchanges = exchanges_of(*model.edge(0), "collectives")
        for direction in (exchanges.forward, exchanges.backward):
            assert {transfer.pattern for transfer in direction.transfers} == {"message"}


def test_copies_are_not_countable() -> None:
    copied = Sharding(degrees=(1, 1, 1, 1), copy=2, devices=(0, 1))
    assert not is_countable(*two_layers(copied, Sharding(devices=(0,))).edge(0))
