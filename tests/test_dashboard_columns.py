"""Columns of the partition figure put together: their titles, layers, lanes and splits by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from small_networks import chain, layer, network

from dashboard.state.columns import (
    MOST_BESIDE,
    MOST_SLICES,
    Column,
    Glyph,
    Split,
    _built_alike,
    _glyphs,
    _neighbours_joined,
    _range_title,
    _split_alike,
    _split_of,
    _stacked,
    _thinned,
    columns_of,
    effective_split,
    longest_repeat,
)
from dashboard.state.device_groups import grid_of
from dashboard.state.folding import seconds_of, stretches
from simulator.plan import Plan, Sharding


def by_sample(*devices: int) -> Split:
    return effective_split(Sharding(degrees=(len(devices), 1, 1, 1), devices=devices))


ONE, TWO, FOUR = by_sample(0), by_sample(0, 1), by_sample(0, 1, 2, 3)


def column(title: str, first: int, *lanes: tuple[Split, ...], times: int = 1, skips: bool = False) -> Column:
    """From a layer on: lanes of a layer for each split, then one layer that joins them."""
    glyphs, at = [], first
    for lane in lanes:
        glyphs.append(tuple(Glyph(layers=(at + k,), splits=(split,)) for k, split in enumerate(lane)))
        at += len(lane)
    return Column(
        title=title,
        layers=tuple(range(first, at + 1)),
        lanes=tuple(glyphs),
        lane_layers=tuple(tuple(layer for glyph in lane for layer in glyph.layers) for lane in glyphs),
        join=(at,),
        skips=skips,
        open_lanes=1,
        times=times,
    )


@pytest.mark.parametrize(
    ("first", "last", "title"),
    [
        ("res9", "res20", "res9-20"),
        ("res9-12", "res13-20", "res9-20"),
        ("res9", "pool2", "res9…pool2"),
        ("res", "res2", "res-2"),
        ("fc1", "fc1", "fc1-1"),
    ],
)
def test_titles_of_columns_put_together(first: str, last: str, title: str) -> None:
    assert _range_title(first, last) == title


def test_repeats_split_alike_stand_lane_upon_lane() -> None:
    """Glyph upon glyph; layers in the order of the columns."""
    both = _stacked([column("res9", 3, (ONE, TWO), (FOUR,), times=2), column("res11", 10, (ONE, TWO), (FOUR,))])
    assert (both.title, both.times, both.open_lanes, both.join) == ("res9-11", 3, 1, (6, 13))
    assert both.layers == (3, 4, 5, 6, 10, 11, 12, 13) and both.lane_layers == ((3, 4, 10, 11), (5, 12))
    assert both.lanes == (
        (Glyph(layers=(3, 10), splits=(ONE,)), Glyph(layers=(4, 11), splits=(TWO,))),
        (Glyph(layers=(5, 12), splits=(FOUR,)),),
    )
    assert both.place_of() == {3: 0, 4: 0, 10: 0, 11: 0, 5: 1, 12: 1, 6: -1, 13: -1}


def test_a_lane_of_repeats_split_otherwise_is_one_glyph_of_all_splits() -> None:
    both = _stacked([column("res9", 3, (ONE, TWO), (FOUR,)), column("res11", 10, (ONE, FOUR), (FOUR,))])
    assert both.lanes == (
        (Glyph(layers=(3, 4, 10, 11), splits=(ONE, TWO, FOUR)),),
        (Glyph(layers=(5, 12), splits=(FOUR,)),),
    )
    assert (both.words, replace(both, lanes=both.lanes[1:]).words) == ("1 device +2", "4 n")


def test_the_two_neighbours_that_compute_the_least_are_put_together() -> None:
    """Of layers of 9, 2, 4, 1, 4 and 9 seconds, two to a column: 11, 5 and 13 s."""
    profile = chain([9.0, 2.0, 4.0, 1.0, 4.0, 9.0])
    apart = [column("a", 0, (ONE,)), column("b1…c2", 2, (TWO,)), column("d3", 4, (FOUR,), skips=True)]
    joined = _neighbours_joined(profile, apart)
    assert [each.title for each in joined] == ["a…c2", "d3"] and joined[1] is apart[2]
    assert joined[0].layers == (0, 1, 2, 3) and joined[0].lane_layers == ((0, 1, 2, 3),)
    assert joined[0].lanes == ((Glyph(layers=(0, 1, 2, 3), splits=(ONE, TWO)),),)
    assert (joined[0].times, joined[0].join, joined[0].skips) == (1, (), False)
    profile = chain([9.0, 9.0, 4.0, 1.0, 4.0, 2.0])
    joined = _neighbours_joined(profile, apart)
    assert [each.title for each in joined] == ["a", "b1…d3"]


def test_of_many_splits_some_are_kept_evenly() -> None:
    splits = tuple(by_sample(number) for number in range(30))
    assert _thinned(splits[:12]) == splits[:12] and MOST_SLICES == 12
    assert _thinned(splits[:24]) == splits[:24:2]
    assert _thinned(splits) == tuple(splits[number * 30 // 12] for number in range(12))


def test_columns_are_alike_with_the_same_lanes_and_splits() -> None:
    first = column("res9", 3, (ONE, TWO), (FOUR,))
    assert _built_alike(first) == _built_alike(column("res12", 30, (FOUR,), (ONE,)))
    assert _split_alike(first) == _split_alike(column("res12", 30, (ONE, TWO), (FOUR,)))
    for other in (
        column("pool9", 3, (ONE, TWO), (FOUR,)),
        column("res9", 3, (ONE, TWO)),
        column("res9", 3, (ONE, TWO), (FOUR,), times=2),
        column("res9", 3, (ONE, TWO), (FOUR,), skips=True),
        replace(first, open_lanes=0),
        replace(first, join=()),
    ):
        assert _built_alike(first) != _built_alike(other) and _split_alike(first) != _split_alike(other)
    assert _split_alike(first) != _split_alike(column("res9", 3, (ONE, ONE), (FOUR,)))


def test_a_chain_has_the_split_of_its_longest_layer_and_neighbours_split_alike_are_one_glyph() -> None:
    profile = chain([1.0, 5.0, 2.0, 3.0, 1.0])
    placements = {name: Sharding(devices=(device,)) for name, device in zip("abcde", (0, 1, 2, 1, 3), strict=True)}
    plan = Plan(model="small", batch_size=8, placements=placements)
    assert _split_of(profile, plan, (0, 1, 2)) == by_sample(1) and _split_of(profile, plan, (0, 2)) == by_sample(2)
    glyphs = _glyphs(profile, plan, ((0, 1), (3,), (2,)))
    assert [(glyph.layers, glyph.splits, glyph.more) for glyph in glyphs] == [
        ((0, 1, 3), (by_sample(1),), 0),
        ((2,), (by_sample(2),), 0),
    ]
    lane = ((0,), (1,), (2,))
    assert [glyph.layers for glyph in _glyphs(profile, plan, lane)] == [(0,), (1,), (2,)] and MOST_BESIDE == 3
    (heaviest,) = _glyphs(profile, plan, ((0,), (1,), (2,), (4,)))
    assert (heaviest.layers, heaviest.more) == ((1,), 3)


@pytest.mark.parametrize(
    ("homes", "times"),
    [
        (range(22), [1] * 22),
        (range(23), [2] * 11 + [1]),
        ([0] * 23, [23]),
        ([0] * 21 + [1, 2], [21, 1, 1]),
        ([0] * 11 + [1] * 12, [1] * 11 + [12]),
    ],
)
def test_of_more_than_22_columns_those_split_alike_become_one_and_others_groups(
    homes: Sequence[int], times: list[int]
) -> None:
    profile = chain([1.0] * len(homes))
    placements = {each.name: Sharding(devices=(home,)) for each, home in zip(profile.layers, homes, strict=True)}
    columns = columns_of(profile, Plan(model="small", batch_size=8, placements=placements))
    assert [column.times for column in columns] == times


def test_up_to_six_columns_repeat_together() -> None:
    assert longest_repeat("abcdef" * 2) == (0, 6, 2) and longest_repeat("abcdefg" * 2) is None


def test_a_chain_is_split_as_its_layer_of_the_longest_passes_together() -> None:
    profile = chain([1.0, 1.0, 1.0])
    passes = ((1.0, 9.0), (6.0, 1.0), (4.0, 7.0))
    layers = tuple(
        replace(each, forward_s=forward_s, backward_s=backward_s)
        for each, (forward_s, backward_s) in zip(profile.layers, passes, strict=True)
    )
    plan = Plan(model="small", batch_size=8, placements={n: Sharding(devices=(i,)) for i, n in enumerate("abc")})
    assert _split_of(replace(profile, layers=layers), plan, (0, 1, 2)) == by_sample(2)


def test_a_network_of_equal_layers_folds_into_one_column_of_all() -> None:
    """Split alike they are repeats; otherwise groups of them, as many as there is room for."""
    profile = chain([1.0] * 12)
    placements = {layer.name: Sharding(devices=(0,)) for layer in profile.layers}
    plan = Plan(model="small", batch_size=8, placements=placements)
    apart = columns_of(profile, plan, most=99)
    assert columns_of(profile, plan, most=len(apart)) == apart
    fewer = columns_of(profile, plan, most=len(apart) - 1)
    assert sum(each.times for each in fewer) == len(apart) and len(fewer) < len(apart)
    assert [layer for each in fewer for layer in each.layers] == list(range(12))


@pytest.mark.parametrize(
    ("first", "second", "shape"),
    [
        (
            Sharding(degrees=(2, 2, 1, 1), devices=(0, 1, 2, 3)),
            Sharding(degrees=(2, 2, 1, 1), devices=(4, 5, 6, 7)),
            (2, 2, 2),
        ),
        (Sharding(degrees=(1, 2, 1, 1), devices=(0, 1)), Sharding(degrees=(1, 2, 1, 1), devices=(2, 3)), (2, 1, 2)),
        (Sharding(devices=(0,)), Sharding(devices=(1,)), (2, 1, 1)),
        (Sharding(devices=(0,)), Sharding(devices=(0,)), (1, 1, 1)),
        (
            Sharding(degrees=(4, 1, 1, 1), devices=(0, 1, 2, 3)),
            Sharding(degrees=(1, 4, 1, 1), devices=(0, 1, 2, 3)),
            (1, 4, 1),
        ),
        (
            Sharding(degrees=(4, 1, 1, 1), devices=(0, 1, 2, 3)),
            Sharding(degrees=(1, 4, 1, 1), devices=(4, 5, 6, 7)),
            None,
        ),
        (Sharding(degrees=(2, 1, 1, 1), devices=(0, 1)), Sharding(devices=(2,)), None),
        (Sharding(degrees=(2, 1, 1, 1), devices=(0, 1)), Sharding(degrees=(2, 1, 1, 1), devices=(1, 2)), None),
        (Sharding(degrees=(2, 2, 1, 1), devices=(0, 1, 2, 0)), Sharding(devices=(0,)), None),
        (
            Sharding(degrees=(2, 2, 1, 1), devices=(0, 1, 2, 0)),
            Sharding(degrees=(2, 2, 1, 1), devices=(0, 1, 2, 0)),
            None,
        ),
    ],
)
def test_a_plan_is_a_grid_where_its_stages_are_alike_and_apart(
    first: Sharding, second: Sharding, shape: tuple[int, int, int] | None
) -> None:
    """Stages x replicas x what a replica's devices share; the most replicas that a layer of a stage has."""
    profile = chain([1.0, 1.0])
    grid = grid_of(profile, Plan(model="small", batch_size=8, placements={"a": first, "b": second}))
    assert (grid and grid.devices.shape) == shape
    if grid is not None:
        assert [grid.stage_of(device) for device in (*first.devices[:1], *second.devices[:1])] == [0, shape[0] - 1]  # type: ignore[index]
        assert grid.layers == (((0,), (1,)) if shape[0] == 2 else ((0, 1),))  # type: ignore[index]


@pytest.mark.parametrize(
    ("inside", "join", "title"),
    [
        (["conv", "conv"], "add", "res1"),
        (["linear", "linear"], "add", "mlp1"),
        (["conv", "linear"], "add", "res1"),
        (["linear", "attention"], "add", "attn1"),
        (["norm"], "add", "res1"),
        (["conv"], "concat", "mix1"),
        (["linear"], "concat", "mlp1"),
    ],
)
def test_a_stretch_is_named_after_what_is_inside(inside: list[str], join: str, title: str) -> None:
    names = [f"l{number}" for number in range(len(inside))]
    lane = [layer(name, before, kind=kind) for name, before, kind in zip(names, ["stem", *names], inside, strict=False)]
    first, block = stretches(network(layer("stem", kind="maxpool"), *lane, layer("join", names[-1], "stem", kind=join)))
    assert (first.title, block.title, block.skips) == ("maxpoo1", title, True)


def test_a_stretch_ends_where_no_edge_jumps_over() -> None:
    profile = network(layer("a"), layer("b", "a"), layer("c", "b"), layer("d", "a", "c"), layer("e", "d"))
    assert [stretch.layers for stretch in stretches(profile)] == [(0,), (1, 2, 3), (4,)]
    both = replace(profile.layers[0], forward_s=1.0, backward_s=9.0)
    assert seconds_of(replace(profile, layers=(both, *profile.layers[1:])), (0, 1)) == pytest.approx(13.0)
