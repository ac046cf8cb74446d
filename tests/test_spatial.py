"""Spatial parallelism: how a plane is tiled."""

from __future__ import annotations

import pytest
from plans import planned
from small_networks import BATCH, layer, network, switched

from simulator.plan import Degrees


@pytest.mark.parametrize(
    ("plane", "workers", "degrees"),
    [
        ((8, 8), 4, (1, 1, 4, 1)),  # height first
        ((2, 8), 4, (1, 1, 2, 2)),  # then width
        ((1, 8), 4, (1, 1, 1, 4)),
        ((3, 3), 16, (1, 1, 3, 3)),  # more workers than positions
        ((6, 6), 7, (1, 1, 6, 1)),  # seven do not tile it
        ((1, 1), 4, (4, 1, 1, 1)),  # no plane: by sample
        ((1, 1), 16, (8, 1, 1, 1)),
    ],
)
def test_a_plane_is_split_by_height_first_then_by_width(plane: tuple[int, int], workers: int, degrees: Degrees) -> None:
    profile = network(layer("a", shape=(2, *plane)))
    sharding = planned("spatial", profile, switched([1.0] * workers), batch_size=BATCH).placements["a"]
    assert sharding.degrees == degrees
    assert sharding.devices == tuple(range(len(sharding.devices)))
