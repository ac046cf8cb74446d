"""What moves of an edge without copies, cut in columns, is what its pieces and their groups say one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import prod

import laws
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_inputs import clusters, plans, profiles
from test_experts import expert_parallel, mixture

from simulator.cluster import Cluster
from simulator.expert_routing import Routing
from simulator.lowering.exchange.exchange_pieces import Piece, _between, pieces_of
from simulator.lowering.exchange.moves import Moves, _by_device
from simulator.lowering.exchange.reshard import groups_of
from simulator.lowering.sharded_model import ShardedModel
from simulator.workload import Profile


def assert_cut_alike(model: ShardedModel) -> None:
    for position in range(len(model.profile.layers)):
        ends = model.edge(position)
        for backward in (False, True):
            entries = [
                (piece, group)
                for piece in pieces_of(*ends, backward)
                for group in groups_of(piece.terms, piece.targets)
            ]
            cut = Moves.between(*ends, backward)
            for column, expected in zip(cut, Moves.of(entries), strict=True):
                assert column.dtype == expected.dtype
                assert column.tolist() == expected.tolist()
            expected_groups = [(piece.elements, piece.box, group) for piece, group in entries]
            assert [*map(repr, cut.groups())] == [*map(repr, expected_groups)]


@settings(max_examples=laws.examples(40, 150), deadline=None)
@given(profiles(), clusters(), st.data())
def test_pieces_in_columns(profile: Profile, cluster: Cluster, data: st.DataObject) -> None:
    plan = data.draw(plans(profile, cluster, every_axis=True))
    first_copies = {
        name: replace(sharding, copy=1, devices=sharding.devices[:: sharding.copy])
        for name, sharding in plan.placements.items()
    }
    assert_cut_alike(ShardedModel(profile, replace(plan, placements=first_copies)))


@pytest.mark.parametrize(
    "routing",
    [
        Routing(experts=8, top_k=2),
        Routing(experts=8, top_k=2, once_per_device=True),
        Routing(experts=8, top_k=2, loads=(0.5, 0.5, 0, 0, 0, 0, 0, 0), capacity=1.5),
        Routing(experts=6, top_k=3, loads=(0.3, 0.2, 0.2, 0.1, 0.1, 0.1)),
    ],
)
def test_tokens_in_columns(routing: Routing) -> None:
    """Some of these groups of experts take no tokens, and some are larger than others."""
    profile = mixture(24, 16, routing)
    assert_cut_alike(ShardedModel(profile, expert_parallel(profile, 4, replicas=2)))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12))
def test_rows_of_a_device_stand_together_where_its_first_stands(pairs: list[tuple[int, int]]) -> None:
    rows = np.array([(*pair, task) for task, pair in enumerate(pairs)], dtype=np.int64).reshape(-1, 3)
    expected = [row for pair in dict.fromkeys(pairs) for row in rows.tolist() if tuple(row[:2]) == pair]
    assert _by_device(rows).tolist() == expected


@st.composite
def apart(draw: st.DrawFn) -> tuple[tuple[int, int], ...]:
    """Intervals that do not touch, ascending."""
    ends = sorted(draw(st.sets(st.integers(0, 20), min_size=2, max_size=8)))
    return tuple(zip(ends[::2], ends[1::2], strict=False))


def elements(intervals: Sequence[tuple[int, int]]) -> list[int]:
    return [element for low, high in intervals for element in range(low, high)]


@given(apart(), st.data())
def test_elements_from_one_to_another_of_intervals(intervals: tuple[tuple[int, int], ...], data: st.DataObject) -> None:
    every = elements(intervals)
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, len(every))] * 2)))
    held = _between(intervals, first, last)
    assert elements(held) == every[first:last] and all(low < high for low, high in held)


@given(st.tuples(*[apart()] * 4), st.integers(1, 7), st.sampled_from([1, 0.5]))
def test_a_piece_is_cut_along_its_longest_axis_into_parts_as_equal_as_can_be(
    cell: tuple[tuple[tuple[int, int], ...], ...], count: int, times: float
) -> None:
    """Of whole elements whole numbers; of tokens that come half of the time half of them."""
    extents = [len(elements(intervals)) for intervals in cell]
    axis = extents.index(max(extents))
    whole = prod(extents) if times == 1 else prod(extents) * times
    parts = Piece(whole, 3, (), (), cell, times != 1).parts(count)
    assert [element for part in parts for element in elements(part.cell[axis])] == elements(cell[axis])
    sizes = [len(elements(part.cell[axis])) for part in parts]
    assert len(parts) == count and max(sizes) - min(sizes) <= 1
    for part, size in zip(parts, sizes, strict=True):
        assert part.elements == whole * size / extents[axis] and isinstance(part.elements, type(whole))
        assert part.cell[:axis] == cell[:axis] and part.cell[axis + 1 :] == cell[axis + 1 :]
        assert (part.box, part.visits) == (3, times != 1)


@settings(max_examples=laws.examples(40, 150), deadline=None)
@given(profiles(), clusters(), st.data())
def test_what_stays_is_waited_for_on_its_own_device_in_its_own_group(
    profile: Profile, cluster: Cluster, data: st.DataObject
) -> None:
    """Pairs of a task that needs a sum and one of the same device that has a term of it."""
    model = ShardedModel(profile, data.draw(plans(profile, cluster, every_axis=True)))
    for position, backward in product(range(len(profile.layers)), (False, True)):
        own, readers = model.edge(position)
        if any(end.shape[5] > 1 for end in (own, *readers)):
            continue
        cut = Moves.between(own, readers, backward)
        pairs = [
            [task, other]
            for number, device, task in cut.targets.tolist()
            for of, home, other in cut.at_home.tolist()
            if (number, device) == (of, home)
        ]
        assert cut.local.tolist() == pairs
