"""One weird trick: who is split by channel."""

from __future__ import annotations

from plans import planned
from small_networks import BATCH, FULLY_CONNECTED, branches, layer, network, switched

from partitioners.owt import channel_split_layers
from simulator.workload import Geometry


def test_fully_connected_layers_and_their_followers_by_channel() -> None:
    plan = planned("owt", branches(), switched([1.0] * 4), batch_size=BATCH)
    degrees = {name: sharding.degrees for name, sharding in plan.placements.items()}
    assert {name for name, d in degrees.items() if d == (4, 1, 1, 1)} == {
        "stem", "left", "add", "wide", "narrow", "concat", "pool",
    }  # fmt: skip
    assert degrees["hidden"] == degrees["relu"] == (1, 4, 1, 1)
    assert degrees["classes"] == (1, 3, 1, 1)  # only three channels


def test_a_gate_between_convolutions_stays_by_sample() -> None:
    squeeze = network(
        layer("conv"),
        layer("pool", "conv", shape=(8, 1, 1), geometry=Geometry(kernel=None)),
        layer("gate", "pool", shape=(8, 1, 1), geometry=FULLY_CONNECTED),
        layer("scale", "conv", "gate", geometry=Geometry()),
        layer("next", "scale"),
    )
    assert channel_split_layers(squeeze) == {"gate"}


def test_a_transformers_projections_have_a_plane_and_go_by_sample() -> None:
    projection = layer("projection", shape=(8, 5, 1), geometry=Geometry(mixes_channels=True))
    assert channel_split_layers(network(projection)) == set()


def test_few_samples_limit_the_degree() -> None:
    plan = planned("owt", branches(), switched([1.0] * 4), batch_size=4, microbatches=2)
    assert plan.placements["stem"].degrees == (2, 1, 1, 1)
