"""Closed forms for what deliberate faults once got past the suite with (robustness/faults.txt): each by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_networks import BATCH, FULLY_CONNECTED, chain, layer, network, switched

from simulator.cluster import Cluster, Device, Link
from simulator.curve import Curve
from simulator.engine import simulate
from simulator.engine.noise import Noise
from simulator.errors import InputError
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.tasks.graph_builder import GraphBuilder
from simulator.lowering.tasks.weight_stashing import weight_versions
from simulator.network.topologies import Wire, two_tier
from simulator.network.transfers import link_bytes
from simulator.plan import Plan, Sharding, Synchronisation
from simulator.report.critical_path import binding_chain
from simulator.report.metrics import dollars_per_step, one_device_s
from simulator.report.resource_use import spent_s
from simulator.run import Run, run
from simulator.runtime import Runtime
from simulator.studies.asynchronous import run_asynchronously
from simulator.taskgraph import Kind, Route
from simulator.units import parse_bandwidth
from simulator.workload import Profile

BOTH = Sharding(degrees=(2, 1, 1, 1), devices=(0, 1))


def replicated(profile: Profile, cluster: Cluster, **synchronisation: object) -> Run:
    """Data parallelism over two devices."""
    settings = Synchronisation(**synchronisation)  # type: ignore[arg-type]
    placements = {each.name: BOTH for each in profile.layers}
    return run(profile, cluster, Plan(model="small", batch_size=BATCH, placements=placements, synchronisation=settings))


def test_a_curve_goes_on_with_the_bandwidth_of_its_last_segment() -> None:
    curve = Curve(points=((1e6, 1e-3), (2e6, 3e-3)))
    assert curve.seconds(4e6) == pytest.approx(7e-3)  # 3 ms and twice 2 ms for each further MB


def joined(*curves: Curve | None) -> Cluster:
    """Two devices with one link after the other between them, some measured; 1e6 bytes per second each."""
    nodes = ["a", *(f"hop{i}" for i in range(len(curves) - 1)), "b"]
    pairs = list(zip(nodes, nodes[1:], curves, strict=False))
    ways = [(s, t, c) for s, t, c in pairs] + [(t, s, c) for s, t, c in pairs]
    links = tuple(Link(source=s, target=t, bandwidth_bytes_per_s=1e6, tier="wire", curve=c) for s, t, c in ways)
    return Cluster(name="pair", devices=(Device(name="a", host="a"), Device(name="b", host="b")), links=links)


def test_a_route_that_is_measured_in_part_takes_the_larger_of_curve_and_formula() -> None:
    fast, slow = Curve(points=((1.0, 1e-6), (1e6, 1e-3))), Curve(points=((1.0, 1e-6), (1e6, 5.0)))
    assert joined(fast, None).transfer_s(0, 1, 1e6) == pytest.approx(1.0)  # the bare link: 1e6 bytes at 1e6 / s
    assert joined(slow, None).transfer_s(0, 1, 1e6) == pytest.approx(5.0)


def test_pairs_that_cross_one_link_add_up_on_it() -> None:
    wire = Wire(bandwidth_bytes_per_s=1e9, latency_s=0.0, tier="intra")
    cluster = two_tier(4, 2, wire, replace(wire, tier="inter"))
    builder = GraphBuilder()
    route = builder.route(Route(((0, 2), (1, 3))))
    builder.add(Kind.ACTIVATION, 1, device=2, route=route, bytes=1e6)
    carried = link_bytes(builder.build(np.zeros(4), ()), cluster)
    by_tier = {tier: [size for link, size in zip(cluster.links, carried, strict=True) if link.tier == tier and size]
               for tier in ("intra", "inter")}  # fmt: skip
    assert by_tier == {"intra": [1e6] * 4, "inter": [2e6] * 2}


def test_an_efficiency_is_the_share_of_the_bandwidth_that_is_left() -> None:
    narrowed = joined(None).with_efficiency("wire", 0.25, "a test")
    assert {link.bandwidth_bytes_per_s for link in narrowed.links} == {0.25e6}


def test_measured_times_that_fall_with_size_are_refused_on_links_and_as_collectives() -> None:
    falling = Curve(points=((1e3, 2e-3), (1e6, 1e-3)))
    within_noise = Curve(points=((1e3, 1e-3), (1e6, 0.9e-3)))
    with pytest.raises(InputError, match="more bytes do not take less time"):
        joined(falling)
    with pytest.raises(InputError, match="more bytes do not take less time"):
        replace(joined(None), collectives={"all_reduce": {2: falling}})
    assert joined(within_noise).links[0].curve == within_noise


def test_every_pass_of_a_stage_pays_the_overhead_once() -> None:
    profile, cluster = chain([3.0, 6.0]), switched([1.0])
    placements = {each.name: Sharding(devices=(0,)) for each in profile.layers}
    plan = Plan(model="small", batch_size=BATCH, placements=placements, microbatches=2, schedule="gpipe")
    bare, with_overhead = (run(profile, cluster, plan, runtime=Runtime(pass_overhead_s=s)) for s in (0.0, 0.5))
    # Two micro-batches, one forward and one backward pass of the only stage each.
    assert with_overhead.report.step_s - bare.report.step_s == pytest.approx(4 * 0.5)


def test_a_device_without_work_idles_and_has_no_bubble() -> None:
    profile, cluster = chain([3.0, 6.0]), switched([1.0, 1.0])
    placements = {each.name: Sharding(devices=(0,)) for each in profile.layers}
    report = run(profile, cluster, Plan(model="small", batch_size=BATCH, placements=placements)).report
    assert (report.devices[1].bubble_s, report.devices[1].idle_s) == (0.0, report.step_s)
    assert report.bubble_ratio == 0.0


def test_rounding_makes_no_negative_bubble() -> None:
    """0.1 + 0.2 of 0.3 seconds leave -5.6e-17, which a page would write as -0.0 %."""
    busy_s, exposed_s = np.full(2, 0.1), np.full(2, 0.2)
    spent = spent_s(0.3, np.array([True, False]), busy_s, exposed_s, np.zeros(2))
    assert min(spent["bubble_s"]) == min(spent["idle_s"]) == 0.0


def test_a_servers_update_is_of_its_share_of_the_parameters() -> None:
    only_layer = replace(layer("a", parameter_bytes=1000), update_s=0.6)
    profile, cluster = network(only_layer), switched([1.0, 1.0], servers=3)
    plan = replicated(profile, cluster, collective="ps")
    updates = plan.graph.seconds[(plan.graph.kind == Kind.UPDATE) & (plan.graph.device >= 2)]
    assert updates.sum() == pytest.approx(0.6) and updates.max() == pytest.approx(0.2)
    asynchronous = run_asynchronously(profile, cluster, plan.plan, staleness=None, steps=3).graph
    on_servers = asynchronous.seconds[(asynchronous.kind == Kind.UPDATE) & (asynchronous.device >= 2)]
    np.testing.assert_allclose(on_servers, 0.2)


def test_a_slower_device_takes_longer_to_compress() -> None:
    profile = network(layer("a", parameter_bytes=1000))
    done = replicated(profile, switched([1.0, 0.5]), compression_ratio=4.0, compression_s_per_byte=1e-3)
    compressed = done.graph.seconds[done.graph.shard == 0][done.graph.kind[done.graph.shard == 0] == Kind.UPDATE]
    assert sorted(compressed.tolist()) == pytest.approx([1.0, 2.0])


def test_a_bucket_leaves_when_it_is_exactly_full() -> None:
    names = ("a", "b", "c")
    layers = [layer(name, *names[:i][-1:], parameter_bytes=1000) for i, name in enumerate(names)]
    exact = replicated(network(*layers), switched([1.0, 1.0]), bucket_bytes=1000)
    almost = replicated(network(*layers), switched([1.0, 1.0]), bucket_bytes=1001)
    sums = [int((done.graph.kind == Kind.SYNCHRONISATION).sum()) for done in (exact, almost)]
    assert sums == [3, 2]


def test_a_first_bucket_of_its_own_size_is_the_first_alone() -> None:
    names = ("a", "b", "c", "d")
    layers = [layer(name, *names[:i][-1:], parameter_bytes=1000) for i, name in enumerate(names)]
    done = replicated(network(*layers), switched([1.0, 1.0]), bucket_bytes=3000, first_bucket_bytes=1000)
    sent = done.graph.bytes[done.graph.kind == Kind.SYNCHRONISATION]
    assert sent.tolist() == pytest.approx([1000.0, 3000.0])  # a ring of two sends 2 (2 - 1) / 2 of the sum


def test_a_stage_holds_no_more_versions_than_there_are_mini_batches() -> None:
    profile = chain([1.0, 1.0, 1.0])
    placements = {each.name: Sharding(devices=(stage,)) for stage, each in enumerate(profile.layers)}
    plan = Plan(model="small", batch_size=BATCH, placements=placements, microbatches=2, schedule="pipedream")
    model = ShardedModel(profile, plan)
    assert [weight_versions(model, stage) for stage in range(3)] == [2, 2, 1]


def test_a_segment_is_recomputed_once_its_gradient_is_there() -> None:
    profile = chain([3.0, 6.0])
    placements = {each.name: Sharding(devices=(stage,)) for stage, each in enumerate(profile.layers)}
    segment = (profile.layers[0].name,)
    plan = Plan(model="small", batch_size=BATCH, placements=placements, recomputed=(segment,))
    done = run(profile, switched([1.0, 1.0]), plan)
    kind, device = done.graph.kind, done.graph.device
    begins = done.timeline.start_s[kind == Kind.RECOMPUTE].min()
    assert begins >= done.timeline.end_s[(kind == Kind.BACKWARD) & (device == 1)].max()


def test_a_sum_is_passed_on_once_it_is_there() -> None:
    """Two halves of a sum of 256 bytes go from 0 and 1 to 2 and 3 in 2 s at 128 bytes/s, and then each to the other."""
    layers = (
        layer("z", seconds=0.0, shape=(8, 1, 1)),
        *(
            layer(name, before, kind="linear", seconds=0.0, shape=(8, 1, 1), geometry=FULLY_CONNECTED)
            for name, before in (("a", "z"), ("b", "a"))
        ),
    )
    placements = {
        "z": Sharding(degrees=(1, 2, 1, 1), devices=(0, 1)),
        "a": Sharding(reduce=2, devices=(0, 1)),
        "b": Sharding(copy=2, devices=(2, 3)),
    }
    cluster = switched([1.0] * 4, bandwidth_bytes_per_s=128.0)
    done = run(network(*layers), cluster, Plan(model="small", batch_size=BATCH, placements=placements))
    sent = np.flatnonzero((done.graph.kind == Kind.ACTIVATION) & (done.graph.layer == 1)).tolist()
    spans = {
        done.graph.routes[done.graph.route[task]].pairs[0]: (done.timeline.start_s[task], done.timeline.end_s[task])
        for task in sent
    }
    assert spans == {(a, b): (0.0, 2.0) for a in (0, 1) for b in (2, 3)} | {(2, 3): (2.0, 3.0), (3, 2): (2.0, 3.0)}


def test_a_price_is_per_hour() -> None:
    cluster = switched([1.0, 1.0])
    priced = replace(cluster, devices=tuple(replace(each, dollars_per_hour=1.8) for each in cluster.devices))
    assert dollars_per_step(priced, 10.0) == pytest.approx(2 * 1.8 / 360)


def test_one_device_is_the_fastest() -> None:
    profile = chain([3.0, 6.0])
    slow, fast = (one_device_s(profile, switched(speeds), BATCH) for speeds in ([1.0, 1.0], [1.0, 2.0]))
    assert slow == pytest.approx(2 * fast)


def test_what_binds_a_step_goes_on_before_the_task_that_waited_for_its_device() -> None:
    builder = GraphBuilder()
    builder.add(Kind.FORWARD, 2, device=0, seconds=[2.0, 3.0])
    graph = builder.build(np.zeros(1), ())
    assert len(binding_chain(graph, simulate(graph, switched([1.0])))) == 2


def test_a_straggler_computes_late_and_sends_in_time() -> None:
    builder = GraphBuilder()
    builder.add(Kind.FORWARD, 1, device=0, seconds=1.0)
    route = builder.route(Route(((1, 0),)))
    builder.add(Kind.ACTIVATION, 1, device=0, route=route, seconds=2.0)
    slowed = Noise(stragglers={0: 3.0}).disturb(builder.build(np.zeros(2), ()))
    assert slowed.seconds.tolist() == [3.0, 2.0]


def test_a_rate_in_capital_bytes_is_of_bytes() -> None:
    assert parse_bandwidth("10GBps") == parse_bandwidth("10GB/s") == 8 * parse_bandwidth("10Gbps") == 1e10


def test_a_layer_is_split_into_no_more_parts_than_it_has_channels() -> None:
    profile, cluster = chain([3.0]), switched([1.0] * 9)
    placements = {profile.layers[0].name: Sharding(degrees=(1, 9, 1, 1), devices=tuple(range(9)))}
    with pytest.raises(InputError, match="split 9 ways by channel, but a micro-batch has only 8"):
        run(profile, cluster, Plan(model="small", batch_size=BATCH, placements=placements))
