"""Devices drawn as one, and the block of layers that stands for a stage: by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from small_networks import chain, layer, network

from dashboard.state.device_groups import DeviceGroup, block_in, device_groups, short_names, slowest
from simulator.cluster import Cluster, Device


@pytest.mark.parametrize(
    ("hosts", "most", "names"),
    [
        (("a", "b", "c", "d", "e"), 2, ["a–c", "d–e"]),
        (("n8", "n9", "n10"), 2, ["n8–9", "n10"]),
        (("a", "b", "c"), 3, ["a", "b", "c"]),
    ],
)
def test_groups_of_nodes_are_named_by_their_first_and_the_number_of_their_last(
    hosts: tuple[str, ...], most: int, names: list[str]
) -> None:
    devices = tuple(Device(name=f"{host}/g{i}", host=host) for host in hosts for i in range(6))
    assert [group.name for group in device_groups(Cluster(name="any", devices=devices), most=most)] == names


@pytest.mark.parametrize(("workers", "servers", "counted"), [(16, 0, 16), (15, 1, 16), (15, 2, 17)])
def test_up_to_sixteen_devices_stand_alone_servers_among_them(workers: int, servers: int, counted: int) -> None:
    """By their short names where all are of one host."""
    one_host = tuple(Device(name=f"h/g{i}", host="h") for i in range(workers))
    cluster = Cluster(
        name="any", devices=(*one_host, *(Device(name=f"s{i}", host=f"s{i}", role="server") for i in range(servers)))
    )
    groups = device_groups(cluster)
    assert len(groups) == (counted if counted <= 16 else 1 + servers)
    assert [group.name for group in device_groups(cluster, servers=False)] == [f"g{i}" for i in range(workers)]
    assert groups[0].name == ("h" if counted > 16 else "h/g0" if servers else "g0")
    assert short_names(cluster, [0, 1]) == ["g0", "g1"]
    assert short_names(cluster)[0] == ("h/g0" if servers else "g0")


def test_devices_that_stand_alone_are_not_opened() -> None:
    """Only groups are; of these up to 32 are drawn, each of as few nodes as that takes."""
    few = Cluster(name="any", devices=tuple(Device(name=f"h{i}/g", host=f"h{i}") for i in range(4)))
    assert device_groups(few, 1) == device_groups(few) and len(device_groups(few)) == 4
    assert short_names(few) == ["h0/g", "h1/g", "h2/g", "h3/g"]
    for hosts, groups in ((32, 32), (33, 17)):
        pairs = tuple(Device(name=f"h{i}/g{k}", host=f"h{i}") for i in range(hosts) for k in range(2))
        many = Cluster(name="any", devices=pairs)
        assert len(device_groups(many)) == groups
        assert [group.devices for group in device_groups(many, 0)] == [(d,) for d in device_groups(many)[0].devices]


def test_the_slowest_device_of_a_group_computes_the_longest() -> None:
    report: Any = SimpleNamespace(devices=[SimpleNamespace(compute_s=seconds) for seconds in (3.0, 5.0, 4.0, 1.0, 2.0)])
    groups = (DeviceGroup(name="a", devices=(0, 1, 2)), DeviceGroup(name="b", devices=(4, 3)))
    assert slowest(groups, report) == (1, 4)
    assert [group.whole for group in (*groups, DeviceGroup(name="c", devices=(1,)))] == [
        "3 devices", "2 devices", "1 device",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("count", "stage", "block"),
    [
        (6, (0, 1, 2, 3, 4, 5), range(3, 4)),
        (6, (2, 3, 4), range(3, 4)),
        (6, (2, 3), range(3, 4)),
        (6, (1,), range(1, 2)),
        (6, (0,), range(0)),
        (1, (0,), range(0)),
    ],
)
def test_the_block_of_a_stage_is_the_middle_one_of_those_it_holds_whole(
    count: int, stage: tuple[int, ...], block: range
) -> None:
    """Of a chain whose first layer, which reads nothing, is unlike the others."""
    assert block_in(chain([1.0] * count), stage) == block


def test_a_block_has_up_to_24_layers_that_read_alike() -> None:
    """Residual blocks of three, each of which reads the layer before it and its third reads the first, too."""
    names = [f"l{i}" for i in range(10)]
    layers = [layer(names[0])]
    for i in range(1, 10):
        layers.append(layer(names[i], names[i - 1], *([names[i - 2]] if i % 3 == 0 else [])))
    profile = network(*layers)
    assert block_in(profile, tuple(range(10))) == range(4, 7) and block_in(profile, (4, 5)) == range(0)
    kinds = network(*(layer(f"k{i}", *[f"k{i - 1}"][: i > 0], kind=f"kind{i % 24}") for i in range(49)))
    assert len(block_in(kinds, tuple(range(49)))) == 24
    longer = network(*(layer(f"k{i}", *[f"k{i - 1}"][: i > 0], kind=f"kind{i % 25}") for i in range(51)))
    assert block_in(longer, tuple(range(51))) == range(0)
