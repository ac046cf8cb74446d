"""What links between nodes need at the least for what replicas share: by hand, on four nodes of four devices."""

from __future__ import annotations

from dataclasses import replace

import pytest

from partitioners._grids.link_bounds import least_link_s
from simulator.curve import Curve
from simulator.language_models.training_grid import TrainingGrid
from simulator.network.topologies import Wire, take, two_tier
from simulator.parameter_states import ParameterStates

RACKS = two_tier(16, 4, Wire(bandwidth_bytes_per_s=1e3, tier="intra"), Wire(bandwidth_bytes_per_s=10, tier="inter"))
"""Four nodes of four, with links of 10 bytes a second each way, of which a route takes two."""
ROUTED_GRID = TrainingGrid(data=8, tensor=2, expert=4, expert_tensor=1)
STATES = ParameterStates(stage=3, each_microbatch=True)


@pytest.mark.parametrize(
    ("grid", "states", "arriving"),
    [
        (TrainingGrid(data=16), ParameterStates(), 2 * 3 * 64),
        (TrainingGrid(data=16, accumulation=5), ParameterStates(stage=1), 2 * 3 * 64),
        (TrainingGrid(data=16, accumulation=5), ParameterStates(stage=2, each_microbatch=True), 6 * 3 * 64),
        (TrainingGrid(data=16, accumulation=5), ParameterStates(stage=2), 2 * 3 * 64),
        (TrainingGrid(data=16, accumulation=5), STATES, 15 * 3 * 64),
        (TrainingGrid(data=16, accumulation=5), replace(STATES, keep_gathered=True), 10 * 3 * 64),
        (TrainingGrid(data=16, accumulation=5), ParameterStates(stage=3), 3 * 3 * 64),
        (TrainingGrid(data=16, accumulation=5, shard_group=8), STATES, 10 * 2 * 64),
        (TrainingGrid(data=16, accumulation=5, shard_group=8), ParameterStates(stage=2), 0),
        (TrainingGrid(data=16, shard_group=4), STATES, 0),
        (TrainingGrid(data=16, shard_group=2), STATES, 0),
        (TrainingGrid(data=8, tensor=2), ParameterStates(), 2 * 3 * 64),
        (TrainingGrid(data=2, tensor=8), ParameterStates(), 2 * 64),
        (ROUTED_GRID, ParameterStates(), 2 * (3 * 64 + 3 * 1000)),
        (replace(ROUTED_GRID, expert=2), ParameterStates(), 2 * (3 * 64 + 3 * 1000)),
        (replace(ROUTED_GRID, expert=8), ParameterStates(), 2 * (3 * 64 + 1000)),
        (replace(ROUTED_GRID, expert=8, expert_tensor=0), ParameterStates(), 2 * 3 * 64),
    ],
)
def test_links_between_nodes_carry_what_no_node_has(
    grid: TrainingGrid, states: ParameterStates, arriving: float
) -> None:
    """Of 64 bytes of all that is no expert and 1000 of experts, on nodes whose links are four out and four in."""
    experts = 1000 if grid.expert > 1 else 0
    assert least_link_s(grid, states, RACKS, 64, experts) == pytest.approx(arriving / (8 * 10 / 2))
    assert least_link_s(grid, states, take(RACKS, 4), 64, experts) == 0
    slow = RACKS.with_tier("inter", bandwidth_bytes_per_s=5)
    assert least_link_s(grid, states, slow, 64, experts) == pytest.approx(arriving / 20)
    curve = Curve(points=((1, 1), (1000, 100)))
    links = tuple(replace(link, curve=curve) for link in RACKS.links)
    for measured in (replace(RACKS, links=links), replace(RACKS, collectives={"all_reduce": {16: curve}})):
        assert least_link_s(grid, states, measured, 64, experts) == 0
