"""Mt-KaHyPar behind the same function: balance, individual shares, fixed vertices, and parts laid onto nodes."""

from __future__ import annotations

import sys
from functools import partial

import numpy as np
import pytest
from plans import planned
from small_networks import chain

from partitioners import hypergraph
from partitioners._hypergraphs.hypergraph import Hypergraph
from partitioners._hypergraphs.kahypar import cut
from partitioners._hypergraphs.mtkahypar import mtkahypar
from simulator.cluster import Cluster
from simulator.errors import MissingExtraError
from simulator.network.topologies import Wire, flat_switch, two_tier

FAST, SLOW = Wire(bandwidth_bytes_per_s=1e10), Wire(bandwidth_bytes_per_s=1e8, tier="trunk")
FLAT, NODES = flat_switch(4, FAST), two_tier(4, 2, FAST, SLOW)


def couples() -> Hypergraph:
    """Eight vertices of weight 1: pairs that belong together, couples of pairs that talk, a little across."""
    nets = [(0, 1), (2, 3), (4, 5), (6, 7), (0, 4), (2, 6), (1, 2)]
    return Hypergraph(
        vertex_weights=np.ones(8),
        net_weights=np.array([1000.0, 1000.0, 1000.0, 1000.0, 100.0, 100.0, 1.0]),
        net_start=np.arange(0, 2 * len(nets) + 1, 2),
        pins=np.array(nets).ravel(),
    )


def parts(cluster: Cluster, shares: list[float], fixed: dict[int, int] | None = None) -> list[int]:
    assigned = cut(couples(), shares, imbalance=0.0, fixed=fixed, run=partial(mtkahypar, cluster))
    return [int(part) for part in assigned]


@pytest.fixture(autouse=True)
def _installed(request: pytest.FixtureRequest) -> None:
    if "absent" not in request.node.name:
        pytest.importorskip("mtkahypar", reason="mtkahypar is not installed")


def test_what_belongs_together_stays_together() -> None:
    assigned = parts(FLAT, [0.25] * 4)
    assert [assigned[0], assigned[2], assigned[4], assigned[6]] == [assigned[1], assigned[3], assigned[5], assigned[7]]
    assert sorted(assigned[::2]) == [0, 1, 2, 3]
    assert parts(FLAT, [0.25] * 4) == assigned


def test_parts_that_talk_are_laid_onto_one_node() -> None:
    """Workers 0 and 1 share a node, 2 and 3 another: 100 bytes inside each, 1 between them."""
    node = [part // 2 for part in parts(NODES, [0.25] * 4)]
    assert node[0] == node[4] and node[2] == node[6] and node[0] != node[2]


def test_shares_and_fixed_vertices_are_kept() -> None:
    assigned = parts(FLAT, [0.75, 0.25], fixed={7: 0})
    assert (assigned.count(0), assigned.count(1)) == (6, 2) and assigned[7] == 0


def test_the_strategy_takes_it() -> None:
    profile = chain([1.0] * 6)
    plan = planned("hypergraph", profile, NODES, batch_size=8, partitioner="mtkahypar", others=False, effort=0.02)
    plan.check(profile, NODES)


def test_absent_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mtkahypar", None)
    hypergraph.mtkahypar.__globals__["_initialized"].cache_clear()
    with pytest.raises(MissingExtraError, match="needs mtkahypar, which is not installed"):
        parts(FLAT, [0.25] * 4)
