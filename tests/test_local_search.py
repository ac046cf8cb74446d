"""The changes that the hypergraph search tries: groups of layers, the ways to cut them, and what a plan promises."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain as joined

import laws
import numpy as np
import pytest
import small_networks
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import planned
from random_inputs import clusters, plans, profiles
from test_closed_forms import chain, star

from partitioners._judge.judge import Judge
from partitioners._search.judged_plan import Judged, LocalChange
from partitioners._search.layer_groups import GroupCut, cuts, device_blocks, layer_groups
from partitioners._search.loads import LoadTables, MessageLoads, PassLoads, PlanLoads
from partitioners._search.local_search import LocalSearch
from partitioners._search.promises import _chains, promises_s, steps_of_loads
from partitioners._search.refinement import _improve
from partitioners._search.window_bounds import Library, window_of, windows
from simulator.cluster import Cluster
from simulator.curve import Curve
from simulator.lowering.sharded_model import ShardedModel
from simulator.network.topologies import Wire, flat_switch
from simulator.network.transfers import link_bytes
from simulator.plan import Plan, Sharding, Synchronisation
from simulator.run import lowered, step_seconds
from simulator.runtime import IDEAL, Runtime
from simulator.workload import Geometry, Profile, ScalingPoint

PRICE_S = 1e-5


@settings(max_examples=laws.examples(20, 50), deadline=None)
@given(profiles())
def test_every_layer_is_in_one_group_and_followers_read_one_layer_of_theirs(profile: Profile) -> None:
    groups = layer_groups(profile)
    assert sorted(joined.from_iterable(groups)) == sorted(layer.name for layer in profile.layers)
    for group in groups:
        for name in group[1:]:
            layer = profile.layers[profile.index[name]]
            assert len(layer.inputs) == 1 and layer.inputs[0] in group and not layer.geometry.mixes_channels
            assert len(profile.consumers[profile.index[layer.inputs[0]]]) == 1


@settings(max_examples=laws.examples(20, 50), deadline=None)
@given(profiles(max_layers=4), clusters(), st.data())
def test_every_cut_of_groups_can_run(profile: Profile, cluster: Cluster, data: st.DataObject) -> None:
    groups = layer_groups(profile)[: data.draw(st.integers(1, 3))]
    placements = {layer.name: Sharding(devices=(0,)) for layer in profile.layers}
    cut = data.draw(st.sampled_from(list(cuts(tuple(range(cluster.workers))))))
    for group in groups:
        placements |= cut.placements(profile, group, samples=4) or {}
    plan = Plan(model=profile.model, batch_size=8, microbatches=2, placements=placements)
    assert step_seconds(profile, cluster, plan) >= 0


def linear_network() -> Profile:
    """A linear layer, another with an activation behind it, a third."""
    layers = chain(4).layers
    mixing = Geometry(mixes_channels=True)
    changed = (layers[0], replace(layers[1], geometry=mixing), replace(layers[2], kind="relu", geometry=Geometry()))
    return replace(chain(4), layers=(*changed, replace(layers[3], geometry=mixing)))


def placed(profile: Profile, cut: GroupCut, samples: int) -> dict[str, Sharding]:
    """The whole network cut so."""
    placements: dict[str, Sharding] = {}
    for group in layer_groups(profile):
        of_group = cut.placements(profile, group, samples)
        assert of_group is not None
        placements |= of_group
    return placements


def test_cuts_of_a_linear_layer_by_hand() -> None:
    """Four devices as 2 x 2: by channel, or as terms whose sum goes to channels or to samples."""
    profile, devices = linear_network(), (0, 1, 2, 3)
    groups = layer_groups(profile)
    assert groups == [("l0",), ("l1", "l2"), ("l3",)]

    def cut(**ways: object) -> list[tuple[tuple[int, ...], int]]:
        placements = placed(profile, GroupCut(devices, 2, **ways), 48)  # type: ignore[arg-type]
        return [(placements[layer.name].degrees[:2], placements[layer.name].reduce) for layer in profile.layers]

    assert cut() == [((2, 2), 1)] * 4
    assert cut(as_terms=True) == [
        ((2, 2), 1),
        ((2, 1), 2),
        ((2, 2), 1),
        ((2, 2), 1),
    ]  # nobody adds the last one's terms
    assert cut(as_terms=True, to_samples=True)[2] == ((4, 1), 1)
    assert GroupCut(devices, 4).placements(profile, groups[0], samples=3) is None
    ways = [(cut.parts, cut.as_terms, cut.to_samples) for cut in cuts(devices)]
    further = [(False, False), (True, False), (True, True)]  # by channel, into terms, and those to samples
    assert ways == [(4, False, False), *((parts, *way) for parts in (2, 1) for way in further)]


def test_devices_near_those_in_use() -> None:
    """All, halves of what is in use, the other half, and the two together; what is not in a row has no halves."""
    assert device_blocks({(2, 3)}, 8) == [(0, 1, 2, 3, 4, 5, 6, 7), (0, 1, 2, 3), (0, 1), (2, 3), (2,), (3,)]
    for first in range(0, 16, 2):
        own, begin = (first, first + 1), first // 4 * 4
        four = tuple(range(begin, begin + 4))
        assert device_blocks({own}, 16)[1:] == [four, four[:2], four[2:], own[:1], own[1:]]
    assert device_blocks({(4, 5)}, 6)[1:] == [(4, 5), (4,), (5,)]  # there is no other half
    assert device_blocks({(0, 3)}, 4) == [(0, 1, 2, 3), (0, 3)]
    assert device_blocks({(1, 2)}, 4) == [(0, 1, 2, 3), (1, 2), (1,), (2,)]  # neither half of a larger one


@settings(max_examples=laws.examples(20, 50), deadline=None)
@given(profiles(), clusters(), st.data())
def test_loads_are_those_of_the_plan_and_add_up_after_changes(
    profile: Profile, cluster: Cluster, data: st.DataObject
) -> None:
    """Compute by device and bytes by link of one plan, asked for directly and as a change of another."""
    plan, other = (data.draw(plans(profile, cluster, every_axis=True)) for _ in range(2))
    other = replace(other, batch_size=plan.batch_size, microbatches=plan.microbatches)
    other = replace(other, synchronisation=plan.synchronisation)
    tables = LoadTables(profile, cluster, IDEAL)
    loads = tables.of(plan)
    model = ShardedModel(profile, plan)
    compute_s = np.zeros(len(cluster.devices))
    for position, devices in enumerate(model.devices):
        np.add.at(compute_s, devices, model.pass_seconds(position).sum(axis=0))
    in_proportion_s, fixed_s = loads.passes_s[: 2 * tables.devices].reshape(2, -1)
    assert in_proportion_s + fixed_s == pytest.approx(compute_s / np.array(cluster.speeds))
    try:
        before = tables.of(other)
    except ValueError:  # the other's cuts are finer than the batch of this one
        return
    after = tables.after(before, dict(enumerate(loads.numbers)))
    assert after.passes_s == pytest.approx(loads.passes_s, rel=1e-9, abs=1e-9)
    assert after.links_s == pytest.approx(loads.links_s, rel=1e-9, abs=1e-9)
    assert tables.plan_of(after, plan.microbatches).placements == plan.placements


def test_links_carry_the_loads_and_tasks_have_their_price() -> None:
    """Exchanges and, without buckets, sums are what links carry; a task more is a price more."""
    profile, cluster = linear_network(), star(4)
    devices = (0, 1, 2, 3)
    placements = placed(profile, GroupCut(devices, 2, True), 24)
    plan = Plan(model=profile.model, batch_size=48, microbatches=2, placements=placements)
    priced = LoadTables(profile, cluster, Runtime(name="priced", task_overhead_s=PRICE_S))
    loads = priced.of(plan)
    carried = link_bytes(lowered(profile, cluster, plan).graph, cluster)
    bandwidths = np.array([link.bandwidth_bytes_per_s for link in cluster.links])
    assert loads.links_s + loads.passes_s[8:] == pytest.approx(carried / bandwidths)
    assert loads.passes_s[4:8] == pytest.approx(4 * 2 * PRICE_S)  # of every device: layers, passes of a micro-batch


def chained_plan(devices: tuple[tuple[int, ...], ...], microbatches: int = 1) -> Plan:
    """Four layers, by sample on these devices."""
    shardings = [Sharding(degrees=(len(each), 1, 1, 1), devices=each) for each in devices]
    placements = {f"l{i}": sharding for i, sharding in enumerate(shardings)}
    return Plan(model="chain", batch_size=48, microbatches=microbatches, placements=placements)


@pytest.mark.parametrize(
    "devices", [((0,),) * 4, ((0,), (1,), (2,), (3,)), ((0, 1, 2, 3),) * 4, ((0, 1),) * 3 + ((2, 3),)]
)
@pytest.mark.parametrize("price_s", [0.0, PRICE_S])
def test_a_chain_promises_its_step(devices: tuple[tuple[int, ...], ...], price_s: float) -> None:
    """Of one micro-batch nothing overlaps but sums, of which the promise says what is left: it is the step without the
    price of an update."""
    profile, cluster = chain(4, parameter_bytes=10**5), star(4, bandwidth=1e8)
    runtime = Runtime(name="priced", task_overhead_s=price_s)
    plan = replace(chained_plan(devices), model=profile.model)
    tables = LoadTables(profile, cluster, runtime)
    promised_s = promises_s(tables, tables.of(plan), [1])[0]
    assert promised_s + price_s == pytest.approx(step_seconds(profile, cluster, plan, runtime), rel=1e-9)


@pytest.mark.parametrize("layers", [1, 3])
def test_a_measured_sum_promises_its_curve(layers: int) -> None:
    """Layers of 400 kB on four devices, each summed by itself in 7 ms as it was measured: the last sum, the others
    being done before it is ready, has nothing to hide behind."""
    curve = Curve(points=((1e5, 4e-3), (4e5, 7e-3), (1e6, 13e-3)))
    profile = chain(layers, parameter_bytes=4 * 10**5, backward_s=0.5)
    cluster = replace(star(4, bandwidth=1e8), collectives={"all_reduce": {4: curve}})
    plan = chained_plan(((0, 1, 2, 3),) * layers)
    plan = replace(plan, model=profile.model, synchronisation=Synchronisation(bucket_bytes=0))
    tables = LoadTables(profile, cluster, IDEAL)
    promised_s = promises_s(tables, tables.of(plan), [1])[0]
    assert promised_s == pytest.approx(layers * (0.01 + 0.5) / 4 + 7e-3, rel=1e-9)
    assert promised_s == pytest.approx(step_seconds(profile, cluster, plan), rel=1e-9)


def test_what_comes_after_a_backward_pass_by_hand() -> None:
    """a, which b and c read, and d, which reads both; of messages of a step one of two micro-batches has half.

    After c's pass those of a and b follow on one device, after b's the gradient's way to a and a's pass, after d's the
    way to b and all that b has behind it. Of the price of a task half is the backward pass's.
    """
    none = np.zeros(0)
    passes = [PassLoads(none, *seconds, ()) for seconds in ((1, 2, 0.2), (3, 5, 0.4), (7, 11, 0.6), (1, 1, 0.0))]
    messages = [MessageLoads(none, *seconds) for seconds in ((4, 6, 0.1), (8, 20, 0.2), (0, 0, 0.0), (0, 0, 0.0))]
    base = Plan(model="any", batch_size=4, microbatches=2, placements={})
    loads = PlanLoads(base=base, numbers=[], passes=passes, messages=messages, passes_s=none, links_s=none)
    reached_s, fixed_s, behind_s = _chains([[], [0], [0], [1, 2]], loads)
    assert reached_s == pytest.approx((1 + 2 + 5) + (3 + 5 + 14) + (1 + 1))  # by b; by c it is 28
    assert fixed_s == pytest.approx(0.2 + 0.1 + 0.4 + 0.2)
    assert behind_s == pytest.approx([0.0, 3 + 2.1, 2.1 + 5.2, 10 + 5.2 + 3 + 2.1])


@settings(max_examples=laws.examples(20, 50), deadline=None)
@given(profiles(), clusters(), st.data())
def test_bounds_of_a_window_are_below_what_its_changes_promise(
    profile: Profile, cluster: Cluster, data: st.DataObject
) -> None:
    """Of every change below the limit, each once, the least first; those above it are left out."""
    plan, other = (data.draw(plans(profile, cluster, every_axis=True)) for _ in range(2))
    other = replace(other, batch_size=plan.batch_size, microbatches=plan.microbatches)
    other = replace(other, synchronisation=plan.synchronisation)
    tables = LoadTables(profile, cluster, IDEAL)
    here = tables.of(plan)
    try:
        numbers = tables.of(other).numbers
    except ValueError:
        return
    order = data.draw(st.permutations(range(len(numbers))))
    library = Library(tables, plan, order)
    library.add(tuple(numbers))
    first = data.draw(st.integers(0, len(order) - 1))
    window = window_of(tables.inputs, order, first, data.draw(st.integers(first + 1, len(order))))
    counts, excess = [plan.microbatches], np.array([data.draw(st.sampled_from([0.5, 1.0, 1.5]))])
    bounds = list(library.bounds_s(here, window, counts, excess, np.inf))
    wanted = {layer: numbers[layer] for layer in window.layers}
    changed = any(here.numbers[layer] != number for layer, number in wanted.items())
    assert [change for change, _ in bounds] == ([wanted] if changed else [])
    for change, bound_s in bounds:
        likely_s = promises_s(tables, tables.after(here, change), counts)[0] * excess[0]
        assert bound_s <= likely_s * (1 + 1e-9) + 1e-12
        assert not list(library.bounds_s(here, window, counts, excess, bound_s * (1 - 1e-9)))


def test_windows_by_hand() -> None:
    """Powers of two below all, from every half of their length on, and what one of at most 24 places leaves before or
    after it; the longest first."""
    assert windows(1) == [(0, 1)] and windows(2) == [(0, 1), (1, 2)]
    assert windows(3) == [(0, 2), (1, 3), (0, 1), (1, 2), (2, 3)]
    assert windows(4) == [(0, 3), (1, 4), (0, 2), (1, 3), (2, 4), (0, 1), (1, 2), (2, 3), (3, 4)]
    fives, fours, threes = [(0, 5), (1, 6)], [(0, 4), (2, 6)], [(0, 3), (3, 6)]
    assert windows(6) == [*fives, *fours, *threes, *((i, i + 2) for i in range(5)), *((i, i + 1) for i in range(6))]
    assert [last for first, last in windows(49) if not first] == [48, 45, 42, 39, 36, 33, 32, 30, 27, 24, 21, 18, 16,
        15, 12, 9, 8, 6, 4, 3, 2, 1]  # fmt: skip


def test_fixed_costs_are_promised_for_every_micro_batch() -> None:
    """Passes of half as many samples take 3/4 as long, so twice as many micro-batches compute 3/2 as long."""
    layers = tuple(
        replace(
            layer,
            parameter_bytes=0,
            scaling=(
                ScalingPoint(batch_size=24, forward_s=layer.forward_s * 0.75, backward_s=layer.backward_s * 0.75),
            ),
        )
        for layer in chain(4).layers
    )
    profile, cluster = replace(chain(4), layers=layers), star(4)
    plan = replace(chained_plan(((0,),) * 4), model=profile.model)
    tables = LoadTables(profile, cluster, IDEAL)
    once_s, twice_s = promises_s(tables, tables.of(plan), [1, 2])
    assert twice_s == pytest.approx(1.5 * once_s)
    assert twice_s == pytest.approx(step_seconds(profile, cluster, replace(plan, microbatches=2)))


def test_a_wide_input_is_cut_into_terms() -> None:
    """64 times more channels in than out: to gather them costs more than to sum what comes of their parts."""
    layers = chain(3, parameter_bytes=4 * 10**7).layers
    wide = replace(layers[0], output_shape=(4096, 1, 1), output_bytes=48 * 4096 * 4, parameter_bytes=0, kind="input")
    linear = replace(
        layers[1], output_shape=(64, 1, 1), output_bytes=48 * 64 * 4, geometry=Geometry(mixes_channels=True)
    )
    last = replace(layers[2], output_shape=(64, 1, 1), output_bytes=48 * 64 * 4, kind="relu", geometry=Geometry())
    profile, cluster = replace(chain(3), layers=(wide, linear, last)), star(4, bandwidth=1e7)
    sharding = Sharding(degrees=(4, 1, 1, 1), devices=(0, 1, 2, 3))
    plan = Plan(model=profile.model, batch_size=48, placements={layer.name: sharding for layer in profile.layers})
    judge = Judge(profile=profile, cluster=cluster)
    start = judge.consider(plan)
    judge.budget = 10**5
    _improve(judge, LocalSearch(judge, microbatches=False), [start], patience=40)
    assert judge.best is not None and judge.best.step_s < 0.2 * start.step_s
    assert judge.best.plan.placements["l1"].reduce == 4


def test_a_search_starts_from_twice_and_half_as_many_micro_batches() -> None:
    """Of a pipeline of four stages with one micro-batch and with two, which fill it better, all is known."""
    profile, cluster = chain(4), star(4, bandwidth=1e9)
    plan = replace(chained_plan(((0,), (1,), (2,), (3,))), model=profile.model)
    steps_s = {count: step_seconds(profile, cluster, replace(plan, microbatches=count)) for count in (1, 2)}
    assert steps_s[2] < steps_s[1]
    judge = Judge(profile=profile, cluster=cluster)
    search = LocalSearch(judge, microbatches=True)
    starts = search.judged(judge.consider(plan))
    assert {start.microbatches: start.verdict.step_s for start in starts} == steps_s
    assert {
        start.microbatches: start.excess[start.microbatches]
        * promises_s(LoadTables(profile, cluster, IDEAL), start.loads, [start.microbatches])[0]
        for start in starts
    } == pytest.approx(steps_s)


@pytest.mark.parametrize("free", [False, True])
def test_a_descent_keeps_its_micro_batches_unless_they_are_free(free: bool) -> None:
    """Four layers on one device, eight micro-batches at 1 ms a task: all devices and one micro-batch take least."""
    profile, cluster, runtime = chain(4), star(4, bandwidth=1e9), Runtime(name="priced", task_overhead_s=1e-3)
    plan = replace(chained_plan(((0,),) * 4, microbatches=8), model=profile.model)
    judge = Judge(profile=profile, cluster=cluster, runtime=runtime)
    search = LocalSearch(judge, microbatches=True)
    start = next(each for each in search.judged(judge.consider(plan)) if each.microbatches == 8)
    judge.budget = 1e7
    reached = search.descend(start, 0.0, free=free)
    assert min(each.verdict.step_s for each in reached) < start.verdict.step_s
    assert ({each.microbatches for each in reached} == {8}) is not free


def search_of_counts(way: list[int]) -> tuple[Judge, LocalSearch, Judged, list[LocalChange]]:
    """A search from one micro-batch on, and changes of nothing but their number, of a pipeline of four stages where
    every task costs 1 ms more: 129, 86, 73, 68, 64, 64, 69, 75, 89, 135 ms with 1, 2, 3, 4, 6, 8, 12, 16, 24, 48."""
    profile, cluster, runtime = chain(4), star(4, bandwidth=1e9), Runtime(name="priced", task_overhead_s=1e-3)
    plan = replace(chained_plan(((0,), (1,), (2,), (3,))), model=profile.model)
    judge = Judge(profile=profile, cluster=cluster, runtime=runtime)
    search = LocalSearch(judge, microbatches=False)
    (start,) = search.judged(judge.consider(plan))
    promised_s = promises_s(LoadTables(profile, cluster, runtime), start.loads, way).tolist()
    changes = [LocalChange(promise_s, {}, count) for promise_s, count in zip(promised_s, way, strict=True)]
    return judge, search, start, changes


def counts_simulated(way: list[int], tasks: float) -> tuple[list[int], int]:
    """Micro-batches of what is simulated on a way, and of what is the best then."""
    judge, search, start, changes = search_of_counts(way)
    judge.budget = tasks
    judged = search._simulated_on([(start.loads, change) for change in changes], start, 0.0)
    assert judge.best is not None
    return [each.microbatches for each in judged], judge.best.plan.microbatches


def test_the_way_of_a_descent_is_halved_where_the_step_turns() -> None:
    """The end takes longer than the start: 8 half-way is better, 16 and 12 between it and the end are not."""
    assert counts_simulated([2, 3, 4, 6, 8, 12, 16, 24, 48], 1e6) == ([48, 8, 16, 12], 8)
    assert counts_simulated([2, 3, 4, 6], 1e6) == ([6], 6)  # the end is the best so far: nothing lies behind it
    assert counts_simulated([2, 3, 4, 6, 8, 12, 16, 24, 48], 1.0) == ([48], 1)  # the budget is spent


@pytest.mark.parametrize(("gain", "best"), [(1e-3, 6), (0.25, 4), (0.5, 3)])
def test_changes_that_gain_little_together_are_not_followed(
    gain: float, best: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 129 ms each further plan gains: 86, 73, 68, 64 ms. After two in a row that save less than the share of what
    was there before them no more is simulated: 73 and 68 are 21 % below 86, 86 and 73 are 43 % below 129."""
    judge, search, start, changes = search_of_counts([2, 3, 4, 6])
    offered = iter(changes)
    monkeypatch.setattr("partitioners._search.local_search._GAIN", gain)
    monkeypatch.setattr(search, "_promising_changes", lambda *_: [change] if (change := next(offered, None)) else [])
    search.refine(start, 2, 0.0)
    assert judge.best is not None and judge.best.plan.microbatches == best


@pytest.mark.parametrize("microbatches", [None, 2])
def test_layers_that_take_no_time_promise_nothing_to_divide_by(microbatches: int | None) -> None:
    pytest.importorskip("kahypar")
    profile, cluster = small_networks.chain([0.0, 0.0, 0.0]), flat_switch(2, Wire(bandwidth_bytes_per_s=1e9))
    plan = planned("hypergraph", profile, cluster, batch_size=8, microbatches=microbatches)
    assert step_seconds(profile, cluster, plan) == 0.0


@settings(max_examples=laws.examples(30, 200))
@given(st.data(), st.integers(1, 3), st.integers(0, 3), st.sampled_from([1, 2, 4]))
def test_a_step_is_its_first_micro_batch_and_what_each_other_one_adds(
    data: st.DataObject, devices: int, links: int, base: int
) -> None:
    """Of devices: seconds that follow the size of a micro-batch, and those that do not; of links: of a whole step."""
    number = st.integers(0, 9).map(float)
    sizes = data.draw(st.lists(number, min_size=2 * devices + links, max_size=2 * devices + links))
    sums = data.draw(st.lists(number, min_size=links, max_size=links))
    chain_s, exposed_s, counts = data.draw(number), data.draw(number), [1, 2, 4]
    plan = Plan(model="any", batch_size=4, microbatches=base, placements={})
    rows = np.array([sizes]), np.array([sums]).reshape(1, links)
    got = steps_of_loads(*rows, np.full(3, chain_s), np.full(3, exposed_s), plan, counts)[0]
    for step_s, count in zip(got.tolist(), counts, strict=True):
        busiest_s = max(sizes[d] * base / count + sizes[devices + d] for d in range(devices))
        each_s = max(busiest_s, max(sums, default=0.0) / count)
        alone_s = max((sizes[2 * devices + i] + sums[i] for i in range(links)), default=0.0)
        assert step_s == pytest.approx(max(max(chain_s, busiest_s) + (count - 1) * each_s + exposed_s, alone_s))


@pytest.mark.parametrize("devices", [((0, 1, 2, 3),) * 4, ((0, 1),) * 2 + ((2, 3),) * 2, ((0,), (1,), (2, 3), (2, 3))])
@pytest.mark.parametrize("overlap", [True, False])
def test_promises_do_not_depend_on_the_micro_batches_of_the_loads(
    devices: tuple[tuple[int, ...], ...], overlap: bool
) -> None:
    """Layers whose seconds follow their samples: loads of 1, 2 and 4 micro-batches promise the same for each number."""
    profile, cluster = chain(4, parameter_bytes=10**5), star(4, bandwidth=1e8)
    tables = LoadTables(profile, cluster, IDEAL)
    for bucket_bytes in (0, 25 * 2**20):
        synchronisation = Synchronisation(overlap=overlap, bucket_bytes=bucket_bytes)
        of_each = [
            promises_s(tables, tables.of(replace(plan, synchronisation=synchronisation)), [1, 2, 4])
            for count in (1, 2, 4)
            for plan in [replace(chained_plan(devices, count), model=profile.model)]
        ]
        for other in of_each[1:]:
            assert other.tolist() == pytest.approx(of_each[0].tolist(), rel=1e-9)
