"""Whether a reader that is cut as the layer that it reads needs anything of other devices: by hand."""

from __future__ import annotations

import pytest
from small_networks import CONVOLUTION, layer, network, switched

from partitioners._search.loads import LoadTables
from simulator.network.transfers import link_bytes
from simulator.plan import Degrees, Plan, Sharding
from simulator.run import lowered
from simulator.runtime import IDEAL
from simulator.workload import Geometry

WINDOW = Geometry(kernel=(3, 3), padding=(1, 1))
LINEAR = Geometry(kernel=(1, 1), mixes_channels=True)


@pytest.mark.parametrize(
    ("geometry", "degrees", "moves"),
    [
        (WINDOW, (2, 1, 1, 1), False),
        (WINDOW, (1, 2, 1, 1), False),
        (WINDOW, (1, 1, 2, 1), True),
        (WINDOW, (1, 1, 1, 2), True),
        (Geometry(), (1, 2, 1, 1), False),
        (Geometry(), (1, 1, 2, 1), False),
        (LINEAR, (2, 1, 1, 1), False),
        (LINEAR, (1, 2, 1, 1), True),
        (CONVOLUTION, (1, 2, 1, 1), True),
    ],
)
def test_layers_cut_alike_send_what_their_windows_and_channels_ask_for(
    geometry: Geometry, degrees: Degrees, moves: bool
) -> None:
    """Two readers, one of which reads its own alone: as much as the lowered plan sends."""
    profile = network(layer("a"), layer("b", "a", geometry=geometry), layer("c", "a", geometry=Geometry()))
    cluster = switched([1.0] * 2, bandwidth_bytes_per_s=1e3)
    cut = Sharding(degrees=degrees, devices=(0, 1))
    plan = Plan(model="small", batch_size=8, placements=dict.fromkeys("abc", cut))
    loads = LoadTables(profile, cluster, IDEAL).of(plan)
    carried = link_bytes(lowered(profile, cluster, plan).graph, cluster) / 1e3
    assert loads.links_s == pytest.approx(carried) and bool(carried.any()) is moves


def test_a_reader_of_other_devices_or_of_terms_gets_all_that_it_reads() -> None:
    profile = network(layer("a", geometry=LINEAR), layer("b", "a", geometry=Geometry()))
    cluster = switched([1.0] * 2, bandwidth_bytes_per_s=1e3)
    halves = Sharding(degrees=(2, 1, 1, 1), devices=(0, 1))
    turned = Sharding(degrees=(2, 1, 1, 1), devices=(1, 0))
    for reader in (turned, Sharding(devices=(0,)), halves):
        plan = Plan(model="small", batch_size=8, placements={"a": halves, "b": reader})
        loads = LoadTables(profile, cluster, IDEAL).of(plan)
        carried = link_bytes(lowered(profile, cluster, plan).graph, cluster) / 1e3
        assert loads.links_s == pytest.approx(carried) and bool(carried.any()) is (reader != halves)
