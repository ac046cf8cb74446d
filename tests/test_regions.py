"""What a shard reads, by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from counted_volume import communication_volume
from hypothesis import given
from hypothesis import strategies as st
from test_closed_forms import star

from simulator.expert_routing import Routing
from simulator.lowering.exchange.crossings import _overlaps, crossings_of, reads_of
from simulator.lowering.exchange.shard_regions import channel_bytes, reads, shards, split
from simulator.lowering.parameters.replicas import replicas_of
from simulator.lowering.sharded_model import ShardedModel
from simulator.plan import Degrees, Plan, Sharding
from simulator.workload import Geometry, Layer, Profile

BATCH = 4


def layer(name: str, kind: str, shape: tuple[int, int, int], *inputs: str, **fields: object) -> Layer:
    channels, height, width = shape
    made = Layer(
        name=name,
        kind=kind,
        inputs=inputs,
        output_shape=shape,
        forward_s=0.001,
        backward_s=0.001,
        output_bytes=4 * BATCH * channels * height * width,
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def two(producer: Layer, consumer: Layer) -> Profile:
    return Profile(model="two", device="none", batch_size=BATCH, layers=(producer, consumer))


def needed(profile: Profile, degrees: Degrees) -> list[list[tuple[int, int]]]:
    producer, consumer = profile.layers[0], profile.layers[-1]
    return reads(profile, consumer, producer, shards(consumer, BATCH, degrees))


def test_split_is_as_even_as_integers_allow() -> None:
    assert split(7, 2) == [(0, 3), (3, 7)]
    assert split(8, 3) == [(0, 2), (2, 5), (5, 8)]


def test_convolution_reads_all_channels_and_a_halo() -> None:
    """3 x 3, padding 1: rows 0-3 of 8 need rows 0-4, rows 4-7 need rows 3-7."""
    conv = Geometry(kernel=(3, 3), padding=(1, 1), mixes_channels=True)
    profile = two(layer("a", "conv", (4, 8, 8)), layer("b", "conv", (6, 8, 8), "a", geometry=conv))
    sample, channel, height, width = needed(profile, (2, 2, 2, 1))
    assert sample == [(0, 2), (2, 4)]
    assert channel == [(0, 4), (0, 4)]
    assert height == [(0, 5), (3, 8)]
    assert width == [(0, 8)]


def test_a_strided_window_needs_the_rows_under_it() -> None:
    """3 x 3, stride 2, padding 1 on 8 rows gives 4: the lower two need rows 3 to 7."""
    conv = Geometry(kernel=(3, 3), stride=(2, 2), padding=(1, 1), mixes_channels=True)
    profile = two(layer("a", "conv", (4, 8, 8)), layer("b", "conv", (4, 4, 4), "a", geometry=conv))
    assert needed(profile, (1, 1, 2, 1))[2] == [(0, 4), (3, 8)]


def test_dilation_widens_the_window() -> None:
    conv = Geometry(kernel=(3, 3), padding=(2, 2), dilation=(2, 2), mixes_channels=True)
    profile = two(layer("a", "conv", (4, 8, 8)), layer("b", "conv", (4, 8, 8), "a", geometry=conv))
    assert needed(profile, (1, 1, 2, 1))[2] == [(0, 6), (2, 8)]


def test_groups_read_their_own_input_channels() -> None:
    """4 groups of 8 -> 16 channels: half of the outputs needs half of the inputs."""
    conv = Geometry(kernel=(3, 3), padding=(1, 1), groups=4, mixes_channels=True)
    profile = two(layer("a", "conv", (8, 4, 4)), layer("b", "conv", (16, 4, 4), "a", geometry=conv))
    assert needed(profile, (1, 2, 1, 1))[1] == [(0, 4), (4, 8)]
    assert needed(profile, (1, 8, 1, 1))[1][:3] == [(0, 2), (0, 2), (2, 4)]


def test_elementwise_reads_its_own_and_global_pooling_the_plane() -> None:
    relu = two(layer("a", "conv", (8, 4, 4)), layer("b", "relu", (8, 4, 4), "a"))
    assert needed(relu, (1, 2, 2, 1))[1:3] == [[(0, 4), (4, 8)], [(0, 2), (2, 4)]]
    pooled = two(layer("a", "conv", (8, 4, 4)), layer("b", "pool", (8, 1, 1), "a", geometry=Geometry(kernel=None)))
    assert needed(pooled, (1, 2, 1, 1))[1:] == [[(0, 4), (4, 8)], [(0, 4)], [(0, 4)]]


def test_flatten_keeps_channels_together() -> None:
    profile = two(layer("a", "conv", (8, 3, 3)), layer("b", "flatten", (72, 1, 1), "a"))
    assert needed(profile, (1, 2, 1, 1))[1:] == [[(0, 4), (4, 8)], [(0, 3)], [(0, 3)]]
    assert needed(profile, (1, 3, 1, 1))[1] == [(0, 3), (2, 6), (5, 8)]  # 24 values: 2 2/3 channels each


def test_concat_reads_each_input_where_it_stands() -> None:
    layers = (
        layer("a", "conv", (4, 2, 2)),
        layer("b", "conv", (12, 2, 2)),
        layer("c", "concat", (16, 2, 2), "a", "b"),
    )
    profile = Profile(model="cat", device="none", batch_size=BATCH, layers=layers)
    own = shards(layers[2], BATCH, (1, 4, 1, 1))
    assert reads(profile, layers[2], layers[0], own)[1] == [(0, 4), (4, 4), (4, 4), (4, 4)]
    assert reads(profile, layers[2], layers[1], own)[1] == [(0, 0), (0, 4), (4, 8), (8, 12)]


@given(st.integers(1, 12), st.data())
def test_overlaps_are_those_of_every_pair(extent: int, data: st.DataObject) -> None:
    """Of parts of an axis and what others need of it, ascending, some of them nothing."""
    own = split(extent, data.draw(st.integers(1, extent)))
    count, bound = data.draw(st.integers(1, 4)), st.integers(0, extent)
    lows, highs = (sorted(data.draw(st.lists(bound, min_size=count, max_size=count))) for _ in range(2))
    needed = [(low, max(low, high)) for low, high in zip(lows, highs, strict=True)]
    pairs = [
        [i, j, max(a[0], b[0]), min(a[1], b[1])]
        for (i, a), (j, b) in product(enumerate(own), enumerate(needed))
        if max(a[0], b[0]) < min(a[1], b[1])
    ]
    assert _overlaps(tuple(own), tuple(needed)).tolist() == pairs


def test_parameter_bytes_of_slots_add_up() -> None:
    assert sum(channel_bytes(1001, 7, interval) for interval in split(7, 3)) == 1001


def test_a_piece_crosses_to_a_device_once() -> None:
    """Two channel shards on device 1 read the same input of device 0: one crossing, of the whole piece."""
    profile = two(
        layer("a", "linear", (8, 1, 1)), layer("b", "linear", (8, 1, 1), "a", geometry=Geometry(mixes_channels=True))
    )
    placements = {"a": Sharding(devices=(0,)), "b": Sharding(degrees=(1, 2, 1, 1), devices=(1, 1))}
    pieces_read = reads_of(profile, placements, BATCH, 0)
    crossing = crossings_of(pieces_read, np.zeros(2, dtype=np.int64), np.ones(2, dtype=np.int64))
    assert crossing.elements.tolist() == [BATCH * 8]
    assert crossing.entry.tolist() == [0, 0]


def test_overlapping_halos_on_one_device_count_once() -> None:
    """Row bands 0-1 and 2-3 of 8 on device 1 need rows 0-2 and 1-4: five rows, not seven."""
    conv = Geometry(kernel=(3, 3), padding=(1, 1), mixes_channels=True)
    profile = two(layer("a", "conv", (1, 8, 2)), layer("b", "conv", (1, 8, 2), "a", geometry=conv))
    placements = {"a": Sharding(devices=(0,)), "b": Sharding(degrees=(1, 1, 4, 1), devices=(1, 1, 0, 0))}
    plan = Plan(model="two", batch_size=BATCH, placements=placements)
    volume = communication_volume(ShardedModel(profile, plan), star(2))
    assert volume.forward == 5 * 2 * BATCH * 4
    assert volume.matrix == ((0.0, volume.forward), (volume.forward, 0.0))


@pytest.mark.parametrize(
    ("devices", "holders"),
    [((0, 1, 0, 1), [(0,), (1,)]), ((0, 1, 1, 0), [(0, 1), (0, 1)]), ((2, 2, 2, 2), [(2,), (2,)])],
)
def test_replicas_are_the_devices_of_a_channel_slot(devices: tuple[int, ...], holders: list[tuple[int, ...]]) -> None:
    profile = two(layer("a", "linear", (8, 1, 1), parameter_bytes=100), layer("b", "relu", (8, 1, 1), "a"))
    sharding = Sharding(degrees=(2, 2, 1, 1), devices=devices)
    plan = Plan(model="two", batch_size=BATCH, placements={"a": sharding, "b": sharding})
    assert [piece.devices for piece in replicas_of(profile, plan.placements)] == holders
    assert [piece.parameter_bytes for piece in replicas_of(profile, plan.placements)] == [50, 50]


def test_what_is_no_expert_reads_all_of_them_wherever_it_is() -> None:
    """Experts stand along the width, which a layer of two columns does not cut."""
    experts = replace(layer("a", "linear", (8, 4, 6)), routing=Routing(experts=6, top_k=2))
    columns = layer("b", "relu", (8, 4, 2), "a")
    profile = two(experts, columns)
    cut = shards(columns, BATCH, (1, 1, 2, 2))
    assert reads(profile, columns, experts, cut)[3] == [(0, 6), (0, 6)]
    assert reads(profile, columns, experts, cut)[2] == [(0, 2), (2, 4)]
