"""The moves of the search under a memory limit one by one: parts of a graph, prices, draws and trades."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_limited import fits, random_graph, random_memory, total

from partitioners._layerwise import limited
from partitioners._layerwise.elimination import least_sum
from partitioners._layerwise.limited import LimitedSearch, _changed
from partitioners._layerwise.memory import ROUNDING, Holding, Memory
from partitioners._layerwise.messages import Shifted
from simulator.taskgraph import Floats


def drawn(seed: int, nodes: int = 5) -> tuple[Any, list[Holding], Memory, list[int], np.random.Generator]:
    """A graph, what it holds, and choices of all its nodes."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, nodes)
    held, memory = random_memory(rng, graph)
    return graph, held, memory, [int(rng.integers(len(cost))) for cost in graph[0]], rng


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_prices_cost_what_the_parts_of_the_limit_that_are_held_cost(seed: int) -> None:
    """At every time, by nodes and edges; what fits holds no more than the limit at any."""
    graph, held, memory, choices, rng = drawn(seed)
    used = memory.used(choices)
    for time, part in enumerate(used.tolist()):
        bytes_held = sum(
            float(h.sizes_bytes[tuple(choices[node] for node in h.scope)]) for h in held if h.first <= time < h.last
        )
        assert part == pytest.approx(bytes_held / memory.limit_bytes)
    price = rng.random(memory.times)
    costs = sum(float(table[tuple(choices[n] for n in scope)]) for scope, table in memory.prices(price).items())
    assert costs == pytest.approx(float(price @ used))
    assert memory.fits(choices) == fits(held, memory.limit_bytes * (1 + ROUNDING), tuple(choices))
    nodes, edges = LimitedSearch(*graph, memory)._at(price)
    assert total((nodes, edges), tuple(choices)) == pytest.approx(total(graph, tuple(choices)) + costs)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_part_of_a_graph_costs_what_its_choices_do_where_all_others_keep_theirs(seed: int) -> None:
    graph, _, memory, choices, rng = drawn(seed)
    search = LimitedSearch(*graph, memory)
    search.best = choices
    free = sorted(rng.choice(5, int(rng.integers(1, 6)), replace=False).tolist())
    nodes, edges = search._part(free, *graph)
    outside = [node for node in range(5) if node not in free]
    anew = [int(rng.integers(len(cost))) for cost in nodes]
    rest = {edge: table for edge, table in graph[1].items() if not {*edge} & {*free}}
    kept = sum(float(graph[0][node][choices[node]]) for node in outside)
    kept += sum(float(table[choices[a], choices[b]]) for (a, b), table in rest.items())
    together = _changed(choices, free, anew)
    assert [together[node] for node in free] == anew and [together[node] for node in outside] == [
        choices[node] for node in outside
    ]
    assert total((nodes, edges), tuple(anew)) + kept == pytest.approx(total(graph, tuple(together)))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 3))
def test_a_trade_takes_the_cheapest_choices_that_fit(seed: int, count: int) -> None:
    """Of the nodes traded alone, and only where they are cheaper than those of before."""
    graph, held, memory, choices, rng = drawn(seed)
    if not memory.fits(choices):
        return
    search = LimitedSearch(*graph, memory)
    search.consider(choices)
    few = rng.choice(5, count, replace=False).tolist()
    search._enumerate(few)
    every = [_changed(choices, few, each) for each in np.ndindex(*(len(graph[0][node]) for node in few))]
    least = min(total(graph, tuple(each)) for each in every if fits(held, memory.limit_bytes, tuple(each)))
    assert search.cost == pytest.approx(least) and search.best in every
    assert total(graph, tuple(search.best)) == search.cost


def test_trades_look_at_the_cheapest_choices_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten choices of a node each costs less than the one before and holds more: the third is the last that fits."""
    costs, sizes = 10.0 - np.arange(10), np.arange(10) * 10.0
    for checked, best in ((2, 0), (7, 0), (8, 2), (256, 2)):
        monkeypatch.setattr(limited, "_CHECKED", checked)
        memory = Memory([Holding(scope=(0,), first=0, last=1, sizes_bytes=sizes)], 29.0)
        search = LimitedSearch([costs], {}, memory)
        search.consider([0])
        search._enumerate([0])
        assert search.best == [best]


def shape(nodes: int, edges: list[tuple[int, int]]) -> LimitedSearch:
    tables = {edge: np.zeros((2, 2)) for edge in edges}
    return LimitedSearch([np.zeros(2)] * nodes, tables, Memory([], 1.0))


def test_all_nodes_or_a_half_a_quarter_or_a_tenth_of_them_choose_anew_as_often() -> None:
    """Half of the parts are drawn from all nodes; the others hang together, as far as their piece of the graph goes."""
    search = shape(40, [(i, i + 1) for i in range(39)])
    sizes, together = list[int](), list[bool]()
    for _ in range(4000):
        nodes = search._drawn_nodes()
        assert nodes == sorted({*nodes}) and nodes[0] >= 0 and nodes[-1] < 40
        sizes.append(len(nodes))
        if len(nodes) == 10:
            together.append(nodes[-1] - nodes[0] == 9)
    assert [sizes.count(size) / 4000 for size in (40, 20, 10, 4)] == pytest.approx([0.25] * 4, abs=0.03)
    assert np.mean(together) == pytest.approx(0.5, abs=0.05)
    pairs = shape(40, [(i, i + 1) for i in range(0, 40, 2)])
    drawn = [nodes for _ in range(400) if len(nodes := pairs._drawn_nodes()) < 40]
    assert {len(nodes) for nodes in drawn} == {20, 10, 4, 2}
    assert all(nodes[1] == nodes[0] + 1 and nodes[0] % 2 == 0 for nodes in drawn if len(nodes) == 2)
    assert {tuple(shape(1, [])._drawn_nodes()), tuple(shape(2, [])._drawn_nodes()[:1])} <= {(0,), (1,)}


def test_present_choices_are_regretted_least_and_others_by_up_to_so_much_more() -> None:
    search = shape(3, [])
    search.best, search._regrets = [1, 0, 1], [np.array([float(node), 10.0]) for node in range(3)]
    drawn = [search._drawn_regrets([0, 2], 4.0) for _ in range(500)]
    first, second = (np.array([each[k] for each in drawn]) for k in (0, 1))
    assert (first[:, 1] == -inf).all() and (second[:, 1] == -inf).all()
    assert 0 <= first[:, 0].min() < 0.1 and 3.9 < first[:, 0].max() < 4.0
    assert 2 <= second[:, 0].min() < 2.1 and 5.9 < second[:, 0].max() < 6.0


@pytest.mark.parametrize(
    ("bound", "cost", "target"),
    [(100.0, inf, 120.0), (100.0, 110.0, 110.0), (1.0, inf, 4.0), (-50.0, inf, 11.0), (4.0, inf, 11.0)],
)
def test_a_step_of_the_prices_aims_above_the_bound(
    bound: float, cost: float, target: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a fifth, or by the smallest cost (3), but not above the best choices; from the bound of before where it is
    higher (8). What the prices of the trial cost the limit itself is no part of a bound."""
    search = LimitedSearch([np.array([3.0, 7.0])], {}, Memory([Holding(
        scope=(0,), first=0, last=2, sizes_bytes=np.array([8.0, 2.0]))], 4.0))  # fmt: skip
    before = 8.0 if target == 11.0 else -inf
    search._prices.bound, search._prices.trial, search.cost = before, np.array([0.5, 1.5]), cost
    swept, stepped = list[list[float]](), list[tuple[float, list[float], float]]()

    def sweep(nodes: list[Floats], edges: object) -> Shifted:
        swept.append(nodes[0].tolist())
        return Shifted(bound=bound + 2.0, choices=[0], regrets=[np.array([0.0, 4.0])])

    monkeypatch.setattr(search._messages, "sweep", sweep)
    monkeypatch.setattr(
        limited.Prices, "step", lambda _, *asked: stepped.append((asked[0], asked[1].tolist(), asked[2]))
    )
    search._climb()
    assert swept == [[3.0 + 2 * 2.0, 7.0 + 0.5 * 2.0]] * 2  # 8 and 2 bytes are twice and half of the limit
    assert stepped == [(bound, [1.0, 1.0], pytest.approx(target))]
    assert search._regrets[0].tolist() == [0.0, 4.0] and search.best is None


def test_moves_are_five_steps_of_the_prices_and_five_choices_each_with_twenty_trades(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search, made = shape(3, []), list[str]()
    for name in ("_climb", "_make_fit", "_choose_anew", "_trade"):
        monkeypatch.setattr(search, name, lambda name=name: made.append(name))
    for _ in range(10):
        search.move()
    assert made == ["_climb"] * 5 + ["_make_fit"] * 5
    made.clear()
    search.best = [0, 0, 0]
    for _ in range(20):
        search.move()
    assert made == (["_climb"] * 5 + (["_choose_anew"] + ["_trade"] * 20) * 5) * 2


def test_byte_prices_are_those_of_the_bound_over_the_limit() -> None:
    search = LimitedSearch([np.zeros(2)], {}, Memory([], 4.0))
    search._prices.center, search._prices.trial = np.array([2.0, 6.0]), np.array([9.0, 9.0])
    assert search.byte_prices.tolist() == [0.5, 1.5]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_without_a_limit_that_matters_new_choices_of_all_nodes_are_the_least(seed: int) -> None:
    """At prices of nothing nobody pays for memory, so that the exact choice of all nodes is the optimum."""
    graph, _, _, choices, _ = drawn(seed)
    search = LimitedSearch(*graph, Memory([], 1.0))
    search._climb()
    search.consider(choices)
    search._drawn_nodes = lambda: list(range(5))  # type: ignore[method-assign]
    search._choose_anew()
    assert search.cost == pytest.approx(least_sum(*graph)[0])
