"""The shard graph by hand and against the hypergraph, and METIS's cuts of it."""

from __future__ import annotations

import sys
from dataclasses import replace

import laws
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_hypergraph import connectivity
from plans import planned
from random_inputs import profiles
from small_networks import BATCH, branches, chain, switched

from partitioners._hypergraphs import kahypar
from partitioners._hypergraphs.hypergraph import Hypergraph, build, grid_of
from partitioners.metis import cut, shard_graph
from simulator.errors import InputError, MissingExtraError
from simulator.workload import Geometry, Layer, Profile


def fully_connected(names: str, parameter_bytes: int = 0) -> Profile:
    """4 samples of 64 bytes through layers that mix all of their channels, 3 ms each."""
    layers = tuple(
        Layer(
            name=name,
            kind="linear",
            inputs=tuple(names[i - 1 : i]) if i else (),
            output_shape=(4, 1, 1),
            forward_s=0.001,
            backward_s=0.002,
            parameter_bytes=parameter_bytes,
            output_bytes=256,
            geometry=Geometry(mixes_channels=True),
        )
        for i, name in enumerate(names)
    )
    return Profile(model="full", device="none", batch_size=4, layers=layers)


def test_a_shard_graph_drawn_by_hand() -> None:
    """2 layers of 2 channel slots: each of b's shards reads both of a's, 128 bytes, and sends as much back."""
    seconds, edges = shard_graph(fully_connected("ab"), grid_of(fully_connected("ab"), 1, 2, batch_size=4))
    assert seconds == pytest.approx([0.0015] * 4)
    assert edges == {(0, 2): 256, (0, 3): 256, (1, 2): 256, (1, 3): 256}


def test_replicas_are_joined_pairwise() -> None:
    """4 sample slots of one layer share 90 bytes of parameters: 2 x 90 / 3 on each of 6 edges."""
    profile = fully_connected("a", parameter_bytes=90)
    _, edges = shard_graph(profile, grid_of(profile, 4, 1, batch_size=4))
    assert edges == {(i, j): pytest.approx(60) for j in range(4) for i in range(j)}


def test_microbatches_move_the_same_bytes_in_parts() -> None:
    profile = fully_connected("ab")
    whole, parts = (shard_graph(profile, grid_of(profile, 1, 2, batch_size=4, microbatches=m)) for m in (1, 2))
    assert parts[1] == pytest.approx(whole[1])
    assert parts[0] == pytest.approx(whole[0])


@settings(max_examples=laws.examples(15, 40), deadline=None)
@given(st.data())
def test_without_parameters_the_cut_edges_are_never_less_than_the_volume(source: st.DataObject) -> None:
    """Each part that a net touches has a reader, and so an edge of the net's weight at least."""
    profile = source.draw(profiles())
    profile = replace(profile, layers=tuple(replace(layer, parameter_bytes=0) for layer in profile.layers))
    grid = grid_of(profile, 2, source.draw(st.integers(1, 3)), batch_size=4)
    seconds, edges = shard_graph(profile, grid)
    hypergraph = build(profile, grid)
    parts = source.draw(st.lists(st.integers(0, 2), min_size=grid.vertices, max_size=grid.vertices))
    crossing = sum(weight for (a, b), weight in edges.items() if parts[a] != parts[b])
    assert seconds == pytest.approx(hypergraph.vertex_weights)
    assert crossing >= connectivity(hypergraph, parts) * (1 - 1e-12)
    if all(len(pins) == 2 for pins in np.split(hypergraph.pins, hypergraph.net_start[1:-1]) if len(pins)):
        assert crossing == pytest.approx(connectivity(hypergraph, parts))


def test_absent_metis_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(MissingExtraError, match=r"needs pymetis, which is not installed: .* -m pip install 'pymetis>="):
        planned("metis", branches(), switched([1.0, 1.0]), batch_size=BATCH)


def test_two_heavy_pairs_stay_together() -> None:
    pytest.importorskip("pymetis")
    edges = {(0, 2): 100.0, (1, 3): 100.0, (0, 1): 1.0, (2, 3): 1.0}
    parts = cut(np.ones(4), edges, np.array([0.5, 0.5]))
    assert parts[0] == parts[2] != parts[1] == parts[3]


def test_shares_follow_speed() -> None:
    """Twelve like shards in a row for devices of speed 2 and 1: eight and four."""
    pytest.importorskip("pymetis")
    edges = {(i, i + 1): 1.0 for i in range(11)}
    parts = cut(np.ones(12), edges, np.array([2 / 3, 1 / 3]))
    assert np.bincount(parts).tolist() == [8, 4]


def test_one_device_and_no_edges_need_no_cut() -> None:
    pytest.importorskip("pymetis")
    assert cut(np.ones(3), {(0, 1): 1.0}, np.array([1.0])).tolist() == [0, 0, 0]
    assert sorted(np.bincount(cut(np.ones(4), {}, np.array([0.5, 0.5]))).tolist()) == [2, 2]


def test_what_the_hypergraph_buys() -> None:
    """0 is read by 1 to 6, as one piece of 10 bytes, and sends 15 to 7, which together with 8 weighs as much as they.

    Taking 0 to 7 and four of the readers with them leaves two behind: that sends the piece once, but cuts two
    edges of 10 bytes. METIS therefore sends the 15.
    """
    pytest.importorskip("pymetis")
    seconds, halves = np.array([2.0, *[1.0] * 6, 2.0, 6.0]), np.array([0.5, 0.5])
    edges = {(0, reader): 10.0 for reader in range(1, 7)} | {(0, 7): 15.0, (7, 8): 1.0, (6, 8): 1.0}
    pins, start = np.array([0, 1, 2, 3, 4, 5, 6, 0, 7, 7, 8, 6, 8]), np.array([0, 7, 9, 11, 13])
    nets = Hypergraph(vertex_weights=seconds, net_weights=np.array([10.0, 15.0, 1.0, 1.0]), net_start=start, pins=pins)
    assert connectivity(nets, cut(seconds, edges, halves)) == 15 + 1
    assert connectivity(nets, kahypar.cut(nets, halves)) == 10 + 1


def test_a_chain_in_contiguous_halves() -> None:
    pytest.importorskip("pymetis")
    profile = chain([1.0] * 6)
    plan = planned("metis", profile, switched([1.0, 1.0]), batch_size=BATCH, grid=(1, 1))
    devices = [plan.placements[layer.name].devices[0] for layer in profile.layers]
    assert devices in ([0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0])


def test_impossible_grids_are_refused() -> None:
    pytest.importorskip("pymetis")
    with pytest.raises(InputError, match="1x1 makes 2 shards of 'full' for 4 devices"):
        planned("metis", fully_connected("ab"), switched([1.0] * 4), batch_size=4, grid=(1, 1))
    with pytest.raises(InputError, match="8 sample slots for micro-batches of 4"):
        planned("metis", fully_connected("ab"), switched([1.0] * 4), batch_size=4, grid=(8, 1))
