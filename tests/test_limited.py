"""The least sum under a memory limit against enumeration, and the contest's instances that it is tried on."""

from __future__ import annotations

import json
from itertools import pairwise
from math import inf
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.studies.iopddl import ContestInstance, Contraction
from partitioners._layerwise import limited
from partitioners._layerwise.elimination import least_sum
from partitioners._layerwise.limited import LimitedSearch, Prices
from partitioners._layerwise.memory import Holding, Memory
from partitioners._layerwise.messages import MessagePassing
from simulator.errors import InputError
from simulator.taskgraph import Floats

Graph = tuple[list[Floats], dict[tuple[int, int], Floats]]


def random_graph(rng: np.random.Generator, nodes: int, edges: float = 0.5) -> Graph:
    """Of 1 to 4 choices a node, and of that part of all edges."""
    sizes = rng.integers(1, 5, nodes)
    pairs = [(i, j) for j in range(nodes) for i in range(j) if rng.random() < edges]
    return (
        [rng.integers(0, 30, size).astype(float) for size in sizes],
        {(i, j): rng.integers(0, 30, (sizes[i], sizes[j])).astype(float) for i, j in pairs},
    )


def total(graph: Graph, choices: tuple[int, ...]) -> float:
    nodes, edges = graph
    own = sum(float(cost[k]) for cost, k in zip(nodes, choices, strict=True))
    return own + sum(float(table[choices[i], choices[j]]) for (i, j), table in edges.items())


def random_memory(rng: np.random.Generator, graph: Graph) -> tuple[list[Holding], Memory]:
    """Up to two intervals a node and one an edge, and a limit that some choices exceed."""
    nodes, edges = graph
    scopes = [(node,) for node in range(len(nodes)) for _ in range(rng.integers(3))]
    held = []
    for scope in [*scopes, *(edge for edge in edges if rng.random() < 0.5)]:
        first, last = sorted(rng.choice(9, 2, replace=False).tolist())
        sizes_bytes = rng.integers(0, 20, [len(nodes[node]) for node in scope]).astype(float)
        held.append(Holding(scope=scope, first=first, last=last, sizes_bytes=sizes_bytes))
    return held, Memory(held, float(rng.integers(15, 90)))


def fits(held: list[Holding], limit_bytes: float, choices: tuple[int, ...]) -> bool:
    used = [
        sum(h.sizes_bytes[tuple(choices[node] for node in h.scope)] for h in held if h.first <= time < h.last)
        for time in range(9)
    ]
    return max(used) <= limit_bytes


@pytest.mark.parametrize("seed", range(40))
def test_the_search_finds_the_optimum_of_small_graphs(seed: int) -> None:
    """Among all choices that fit; where none fits it finds none. Its bound is never above."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.integers(1, 8)))
    held, memory = random_memory(rng, graph)
    every = list(np.ndindex(*(len(cost) for cost in graph[0])))
    least = min((total(graph, each) for each in every if fits(held, memory.limit_bytes, each)), default=inf)
    search = LimitedSearch(*graph, memory)
    for number in range(200):
        search.move()
        if number >= 20 and search.cost == least:
            break
    assert search.cost == least
    assert search.bound <= least * (1 + 1e-9)
    if search.best is not None:
        assert total(graph, tuple(search.best)) == least
        assert fits(held, memory.limit_bytes, tuple(search.best))


def test_prices_go_the_way_of_what_is_held_beyond_the_limit() -> None:
    """From the best ones so far, as far as the target is above their bound: further after a success, less far after
    five failures; a price of nothing stays where less than the limit is held."""
    prices, target = Prices(center=np.array([1.0, 0.0]), trial=np.array([2.0, 0.0])), 15.0
    prices.step(5.0, np.array([1.0, -1.0]), target)
    assert (prices.bound, prices.center.tolist(), prices.stride) == (5.0, [2.0, 0.0], pytest.approx(0.33))
    assert prices.trial.tolist() == pytest.approx([2.0 + 0.33 * 10, 0.0])
    lately = np.array([1.0, -1.0])
    for failures, excess in enumerate(([0.0, 1.0], [1.0, 0.0], [-2.0, 4.0], [-2.0, 1.0], [-9.0, 1.0]), start=1):
        lately = 0.2 * np.array(excess) + 0.8 * lately
        prices.step(4.0, np.array(excess), target)
        stride = 0.33 if failures < 5 else 0.33 * 0.66
        way = np.array([lately[0], max(lately[1], 0.0)])
        length = stride * 10 / (way**2).sum()
        assert (prices.bound, prices.center.tolist(), prices.stride) == (5.0, [2.0, 0.0], pytest.approx(stride))
        assert prices.trial.tolist() == pytest.approx(np.maximum(prices.center + length * way, 0.0).tolist())
    prices.stride = 1.9
    prices.step(6.0, np.array([0.0, 0.0]), target)
    assert prices.stride == 2.0 and prices.failed == 0


@pytest.mark.parametrize("seed", range(12))
def test_prices_are_raised_until_choices_fit(seed: int) -> None:
    """Nodes that all hold something at one time: they fit once each holds its least, if that fits together."""
    rng = np.random.default_rng(seed)
    nodes, _ = random_graph(rng, 5, edges=0.0)
    sizes = [rng.integers(1, 20, len(cost)).astype(float) for cost in nodes]
    held = [Holding(scope=(node,), first=2, last=4, sizes_bytes=size) for node, size in enumerate(sizes)]
    least_bytes = sum(float(size.min()) for size in sizes)
    for limit_bytes in (least_bytes - 1, least_bytes, least_bytes + 9):
        search = LimitedSearch(nodes, {}, Memory(held, limit_bytes))
        search._climb()
        search.best, search.cost = None, inf
        search._make_fit()
        assert (search.best is not None) == (limit_bytes >= least_bytes)
        if search.best is not None:
            assert fits(held, limit_bytes, tuple(search.best)) and search.cost == total((nodes, {}), tuple(search.best))


@pytest.mark.parametrize(("most", "count"), [(27, 3), (26, 2), (9, 2), (8, 1), (2, 0), (3**9, 6)])
def test_so_many_nodes_trade_as_have_few_enough_combinations(
    most: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of six nodes of three choices each, whichever are drawn."""
    drawn: list[list[int]] = []
    monkeypatch.setattr(limited, "_MOST_COMBINATIONS", most)
    monkeypatch.setattr(LimitedSearch, "_enumerate", lambda _, few: drawn.append(few))
    search = LimitedSearch([np.zeros(3)] * 6, {(0, 1): np.zeros((3, 3))}, Memory([], 1.0))
    for _ in range(20):
        search._trade()
    assert [len({*few}) for few in drawn] == [len(few) for few in drawn] == [count] * (20 if count else 0)


def test_the_same_seed_makes_the_same_moves() -> None:
    rng = np.random.default_rng(5)
    graph = random_graph(rng, 30, 0.1)
    _, memory = random_memory(rng, graph)
    searches = [LimitedSearch(*graph, memory, seed=3) for _ in range(2)]
    for search in searches:
        for _ in range(12):
            search.move()
    assert (searches[0].best, searches[0].bound) == (searches[1].best, searches[1].bound)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_messages_bound_the_least_sum_and_reach_it_on_trees(seed: int, tree: bool) -> None:
    rng = np.random.default_rng(seed)
    nodes, edges = random_graph(rng, 6)
    if tree:
        edges = {
            (i, j): rng.random((len(nodes[i]), len(nodes[j]))) for j in range(1, 6) for i in [int(rng.integers(j))]
        }
    least, _ = least_sum(nodes, edges)
    messages = MessagePassing(len(nodes), edges)
    bounds = [messages.sweep(nodes, edges).bound for _ in range(20)]
    assert max(bounds) <= least + 1e-9
    assert all(later >= before - 1e-9 for before, later in pairwise(bounds))
    if tree:
        assert bounds[-1] == pytest.approx(least)
        assert total((nodes, edges), tuple(messages.sweep(nodes, edges).choices)) == pytest.approx(least)


def test_narrowed_nodes_give_up_choices_of_high_regret() -> None:
    """A complete graph of 6 nodes of 4 choices in tables of at most 64 sums: with the optimum favoured it is found."""
    rng = np.random.default_rng(1)
    nodes = [rng.random(4) for _ in range(6)]
    edges = {(i, j): rng.random((4, 4)) for j in range(6) for i in range(j)}
    least, best = least_sum(nodes, edges)
    regrets = [np.where(np.arange(4) == k, -1.0, rng.random(4)) for k in best]
    assert least_sum(nodes, edges, regrets=regrets, most_entries=64) == (pytest.approx(least), best)
    other, choices = least_sum(nodes, edges, regrets=[-each for each in regrets], most_entries=64)
    assert other == pytest.approx(total((nodes, edges), tuple(choices)))
    assert other >= least


def test_choices_are_given_up_where_a_table_is_larger_than_allowed_and_not_before() -> None:
    """The first of 6 nodes of 4 choices is removed by looking at 4^6 sums, of which a table of 4^5 is kept."""
    rng = np.random.default_rng(1)
    nodes = [rng.random(4) for _ in range(6)]
    edges = {(i, j): rng.random((4, 4)) for j in range(6) for i in range(j)}
    least, best = least_sum(nodes, edges)
    regrets = [np.where(np.arange(4) == k, 1.0, 0.0) for k in best]
    assert least_sum(nodes, edges, regrets=regrets, most_entries=4**6) == (least, best)
    assert least_sum(nodes, edges, regrets=regrets, most_entries=4**6 - 1)[1] != best
    assert least_sum(nodes, edges, most_entries=4**5) == (least, best)
    with pytest.raises(InputError, match="a table of 1024 entries, and at most 1023 are kept"):
        least_sum(nodes, edges, most_entries=4**5 - 1)


# -- the contest


def written(path: Path, seed: int) -> Path:
    """An instance of 7 nodes with a memory limit, where some strategies do not go together, but the first ones do."""
    rng = np.random.default_rng(seed)
    sizes = [int(size) for size in rng.integers(1, 4, 7)]
    edges = [[i, j] for j in range(7) for i in range(j) if rng.random() < 0.4]
    tables = [rng.integers(0, 50, (sizes[i], sizes[j])) for i, j in edges]
    for number, each in enumerate(tables):
        forbidden = rng.random(each.shape) < 0.2 if number % 3 else ~np.eye(*each.shape, dtype=bool)
        forbidden[0, 0] = False
        each[forbidden] = 10**18
    nodes = {
        "costs": [rng.integers(0, 50, size).tolist() for size in sizes],
        "usages": [rng.integers(0, 20, size).tolist() for size in sizes],
        "intervals": [[] if rng.random() < 0.2 else sorted(rng.choice(9, 2, replace=False).tolist()) for _ in sizes],
    }
    costs = [each.ravel().tolist() for each in tables]
    problem = {"nodes": nodes, "edges": {"nodes": edges, "costs": costs}, "usage_limit": 40}
    path.write_text(json.dumps({"problem": problem}))
    return path


@pytest.mark.parametrize("seed", range(25))
def test_contraction_keeps_the_least_cost(seed: int, tmp_path: Path) -> None:
    """The optimum of what is left, carried back to the file's nodes, is that of the file by enumeration."""
    instance = ContestInstance.read(written(tmp_path / "small.json", seed))
    every = list(np.ndindex(*(len(costs) for costs in instance.costs)))
    least = min((instance.cost(each) for each in every if instance.peak(each) <= 1), default=inf)
    small = Contraction(instance)
    search = small.search(instance.limit_bytes, 0)
    for _ in range(100):
        search.move()
    if least < inf:
        choices = small.choices(search.best)
        assert (instance.cost(choices), search.cost) == (least, least)
        assert instance.peak(choices) <= 1
