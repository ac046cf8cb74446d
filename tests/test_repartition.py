"""Cuts that stay close to an old plan: the model counts moved bytes exactly, and fewer of them move."""

from __future__ import annotations

import json
from pathlib import Path

import laws
import numpy as np
import pytest
from conftest import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_hypergraph import connectivity
from random_inputs import profiles
from small_networks import branches, switched

from partitioners._hypergraphs.hypergraph import Grid, build, grid_of
from partitioners._hypergraphs.kahypar import cut
from partitioners._hypergraphs.repartition import cut_close_to, with_anchors
from simulator import cli
from simulator.elastic.movement import Movement, Placed, movement
from simulator.files import read_profile, write_profile
from simulator.network.catalogue import write_cluster
from simulator.plan import Plan
from simulator.workload import Profile

PARTS = 3


def plan_of(profile: Profile, grid: Grid, parts: np.ndarray) -> Plan:  # type: ignore[type-arg]
    placements = grid.placements(profile, parts)
    return Plan(model=profile.model, batch_size=grid.batch_size, placements=placements)


def moved(profile: Profile, old: Plan, new: Plan, parts: int = PARTS) -> Movement:
    members = tuple(range(parts))
    cluster = switched([1.0] * parts)
    return movement(profile, cluster, Placed(plan=old, members=members), Placed(plan=new, members=members))


@settings(max_examples=laws.examples(15, 40))
@given(st.data())
def test_connectivity_is_volume_plus_what_moves(draw: st.DataObject) -> None:
    """But for a constant: between any two cuts it differs by their volumes and their movements."""
    profile = draw.draw(profiles())
    grid = grid_of(profile, 2, 2, batch_size=8)
    vertices = st.lists(st.integers(0, PARTS - 1), min_size=grid.vertices, max_size=grid.vertices).map(np.array)
    old, first, second = (draw.draw(vertices) for _ in range(3))
    before, migration = plan_of(profile, grid, old), draw.draw(st.sampled_from((0.5, 2.0)))
    plain, (anchored, anchors) = build(profile, grid), with_anchors(profile, grid, before, PARTS, migration)
    assert list(anchors) == list(range(grid.vertices, grid.vertices + PARTS))

    def totals(parts: np.ndarray) -> tuple[float, float]:  # type: ignore[type-arg]
        volume = connectivity(plain, parts)
        bytes_moved = moved(profile, before, plan_of(profile, grid, parts)).bytes
        return connectivity(anchored, np.concatenate([parts, np.arange(PARTS)])), volume + migration * bytes_moved

    (crossing, expected), (crossing_too, expected_too) = totals(first), totals(second)
    assert crossing - crossing_too == pytest.approx(expected - expected_too, abs=1e-6)


def test_staying_close_moves_less() -> None:
    """Two devices join four: from scratch parts fall anywhere, and with anchors most stay where they are."""
    profile = read_profile("alexnet")
    grid = grid_of(profile, 8, 8, batch_size=profile.batch_size)
    hypergraph, shares = build(profile, grid), [1 / 6] * 6
    old = plan_of(profile, grid, cut(hypergraph, [0.25] * 4, imbalance=0.1, seed=1))
    scratch = cut(hypergraph, shares, imbalance=0.1, seed=0)
    close = cut_close_to(profile, grid, old, shares, migration=0.01, imbalance=0.1, seed=0)
    least, moves = (moved(profile, old, plan_of(profile, grid, parts), 6).bytes for parts in (scratch, close))
    assert moves < least / 2, "120 MB and 503 MB when this was written"
    assert connectivity(hypergraph, close) < 1.2 * connectivity(hypergraph, scratch)
    assert hypergraph.imbalance(close, shares) <= 0.1 + 1e-6 and len(close) == grid.vertices


def test_devices_that_are_gone_hold_nothing() -> None:
    profile = branches()
    grid = grid_of(profile, 2, 1, batch_size=8)
    old = plan_of(profile, grid, np.full(grid.vertices, 2))
    plain, (anchored, _) = build(profile, grid), with_anchors(profile, grid, old, 2, 1.0)
    assert len(anchored.net_weights) == len(plain.net_weights)


def test_a_scenario_stays_close_to_its_plans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same day with and without `migration`: fewer bytes move when the third device joins."""
    profile = branches()
    write_profile(profile, tmp_path / "branches.json")
    write_cluster(switched([1.0] * 3, bandwidth_bytes_per_s=1e5), tmp_path / "three.yaml")
    (tmp_path / "overheads.yaml").write_text((ROOT / "examples" / "overheads-spot.yaml").read_text())
    moved_bytes = {}
    for migration in ("0.0", "1.0"):
        (tmp_path / "day.yaml").write_text(
            f"schema: 1\nprofile: branches.json\ncluster: three.yaml\noverheads: overheads.yaml\nduration: 1h\n"
            f"start: [d0, d1]\nstrategy: hypergraph\noptions: {{grid: [4, 4], others: false, effort: 0.01}}\n"
            f"migration: {migration}\nevents:\n- {{at: 10min, event: join, devices: [d2]}}\n"
        )
        assert cli.main(["scenario", str(tmp_path / "day.yaml"), "--json"]) == 0
        (incident,) = json.loads(capsys.readouterr().out)["incidents"]
        moved_bytes[migration] = incident["moved_bytes"]
    assert 0 < moved_bytes["1.0"] < moved_bytes["0.0"]
