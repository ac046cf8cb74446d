"""What reports, searches, captures, calibrations and pictures sum up or leave out, each worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from math import exp, log
from typing import Any

import numpy as np
import pytest
from plans import planned
from small_networks import BATCH, branches, chain, layer, network, switched

from dashboard.state.candidates import _candidate
from dashboard.state.device_groups import grid_of
from partitioners._layerwise.optcnn import cost_tables
from simulator.cluster import AchievedShare
from simulator.curve import Curve
from simulator.errors import InputError
from simulator.lowering.tasks.graph_builder import GraphBuilder
from simulator.network.topologies import Wire, flat_switch, two_tier
from simulator.plan import ParameterStates, Plan, Sharding, StepSettings
from simulator.report.interval import BAND_TO_RANGE, step_interval
from simulator.report.memory import BORDER, most_bytes, peak_bytes, verdict
from simulator.run import run
from simulator.runtime import Runtime
from simulator.taskgraph import Kind, Route, TaskGraph
from simulator.units import format_bytes
from simulator.workload import Profile, ScalingPoint
from traces.calibrate.bandwidth_fit import MeasuredStep, fit
from traces.calibrate.median_calibration import figures, median_calibration, unsteady
from traces.capture.median_profile import median_profile


def holding() -> TaskGraph:
    """A task on device 0 with 10 bytes there and 7 on device 1, which it gives back; then one with 5 on device 1."""
    builder = GraphBuilder()
    first = builder.add(Kind.FORWARD, 1, device=0, seconds=1.0, allocated_bytes=10.0, freed_bytes=10.0)
    second = builder.add(Kind.FORWARD, 1, device=1, seconds=1.0, allocated_bytes=5.0, freed_bytes=5.0)
    builder.allocate(first, np.array([1]), np.array([7.0]))
    builder.allocate(first, np.array([1]), np.array([-7.0]))
    builder.depend(second, first)
    return builder.build(np.array([100.0, 200.0]), ())


def test_no_order_of_tasks_holds_more_than_all_that_they_take_here_and_elsewhere() -> None:
    assert most_bytes(holding(), 2).tolist() == [100 + 10, 200 + 5 + 7]


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_peak_is_never_above_what_no_order_exceeds(stage: int) -> None:
    profile = replace(branches(), layers=tuple(replace(x, saved_bytes=x.output_bytes) for x in branches().layers))
    cluster = switched([1.0] * 4)
    plan = replace(planned("data", profile, cluster, batch_size=8), states=ParameterStates(stage=stage))
    done = run(profile, cluster, plan)
    assert (peak_bytes(done.graph, done.timeline, cluster) <= most_bytes(done.graph, 4)).all()


@pytest.mark.parametrize(
    ("peak", "fit"),
    [(BORDER - 1e-6, "fits"), (BORDER, "border"), (0.99, "border"), (1.0, "border"), (1.001, "does not fit")],
)
def test_a_verdict_changes_at_the_border_and_at_the_whole_memory(peak: float, fit: str) -> None:
    cluster = switched([1.0] * 2)
    devices = tuple(
        replace(device, memory_bytes=size) for device, size in zip(cluster.devices, (2000, 1000), strict=True)
    )
    said, words = verdict(np.array([0.0, 400.0]), replace(cluster, devices=devices), np.array([500.0, 1000.0 * peak]))
    assert said == fit
    mostly = f"d1 needs {format_bytes(1000 * peak)} of {format_bytes(1000)}, mostly saved activations"
    assert words == "" if fit == "fits" else mostly in words


def test_what_a_verdict_names_is_the_larger_half_of_the_fullest_device() -> None:
    cluster = switched([1.0])
    cluster = replace(cluster, devices=(replace(cluster.devices[0], memory_bytes=1000),))
    for static, words in ((999.0, "saved activations"), (1001.0, "parameters, gradients and optimizer state")):
        assert verdict(np.array([static]), cluster, np.array([2000.0]))[1].endswith(f"mostly {words}")


def test_a_capture_that_varies_makes_servers_vary_too() -> None:
    profile, cluster = replace(chain([1.0]), step_s=1.0, step_spread_s=0.1), switched([1.0])
    report = run(profile, cluster, planned("data", profile, cluster, batch_size=8)).report
    report = replace(report, path_s={"compute d0": 2.0, "server s0": 3.0, "wire d0->switch": 4.0, "serverless x": 9.0})
    assert step_interval(report, profile, cluster).parts["captures"] == (pytest.approx(5.0 * 0.1 * BAND_TO_RANGE),) * 2


@pytest.mark.parametrize("microbatches", [1, 2, 4])
def test_a_layer_holds_the_activations_of_all_micro_batches(microbatches: int) -> None:
    """Parameters, gradients and two more of each (Adam), and what is saved of a batch of 16, twice the profile's."""
    profile = network(replace(layer("a", parameter_bytes=1000), saved_bytes=BATCH * 50))
    step = StepSettings(batch_size=16, microbatches=microbatches, optimizer_state=2.0)
    tables = cost_tables(profile, switched([1.0] * 4), step)
    held = dict(zip(tables.configurations[0], tables.held_bytes[0].tolist(), strict=True))
    assert held[1, 1, 1, 1] == 4 * 1000 + 16 * 50
    assert held[2, 1, 1, 1] == 4 * 1000 + 8 * 50
    assert held[1, 2, 1, 1] == (4 * 1000 + 16 * 50) / 2
    assert held[1, 1, 2, 1] == 4 * 1000 + 8 * 50


def captured(number: float) -> Profile:
    """A capture all of whose times are of their own, multiples of `number`."""
    point = ScalingPoint(batch_size=4, forward_s=7 * number, backward_s=8 * number)
    only = replace(
        layer("a"), forward_s=1 * number, backward_s=2 * number, update_s=3 * number, forward_spread_s=4 * number,
        backward_spread_s=5 * number, recompute_s=1.5 * number, accumulate_s=6 * number, scaling=(point,),
    )  # fmt: skip
    return replace(network(only), step_s=12 * number, step_spread_s=9 * number, layers_to_step=number / 10)


@pytest.mark.parametrize("order", list(permutations((1.0, 2.0, 5.0))))
def test_a_median_profile_has_each_times_own_median(order: tuple[float, ...]) -> None:
    (only,) = (median := median_profile([captured(number) for number in order])).layers
    times = (only.forward_s, only.backward_s, only.update_s, only.forward_spread_s, only.backward_spread_s)
    assert times == (2, 4, 6, 8, 10) and (only.recompute_s, only.accumulate_s) == (3, 12)
    assert (only.scaling[0].forward_s, only.scaling[0].backward_s) == (14, 16)
    assert (median.step_s, median.step_spread_s, median.layers_to_step) == (24, 18, 0.2)


def test_a_median_calibration_has_medians_and_the_band_that_holds_all() -> None:
    """Rates of 1, 2 and 4: the least that any says is 0.5 of its 1, the most 1.5 of its 4, of the median 2."""
    made = []
    for rate, low, high in ((1e6, 0.4, 1.0), (2e6, 0.8, 1.2), (4e6, 0.72, 1.2)):
        pair = flat_switch(2, Wire(bandwidth_bytes_per_s=rate, latency_s=rate / 1e12, tier="wire"))
        band = AchievedShare(median=0.8, low=low, high=high)
        curve = Curve(points=((1.0, rate / 1e12), (1e6, 1e6 / rate + rate / 1e12)))
        links = tuple(replace(link, achieved=band, curve=curve) for link in pair.links)
        runtime = Runtime(
            send_cpu_s_per_byte=rate / 1e18, receive_cpu_s_per_byte=rate / 1e17, busy_latency_s=rate / 1e10
        )
        made.append((replace(pair, links=links, collectives={"all_reduce": {2: curve}}), runtime))
    for calibrations in permutations(made):
        cluster, runtime = median_calibration(calibrations)
        for link in cluster.links:
            assert link.bandwidth_bytes_per_s == 2e6 and link.achieved is not None
            band = (link.achieved.low, link.achieved.median, link.achieved.high)
            assert band == pytest.approx((0.25, 1.0, 3.0))
            assert link.curve is not None and link.curve.points == ((1.0, 2e-6), (1e6, 0.5 + 2e-6))
        assert cluster.collectives["all_reduce"][2].points == ((1.0, 2e-6), (1e6, 0.5 + 2e-6))
        times = (runtime.send_cpu_s_per_byte, runtime.receive_cpu_s_per_byte, runtime.busy_latency_s)
        assert times == pytest.approx((2e-12, 2e-11, 2e-4))


def test_a_figure_is_unsteady_where_it_differs_by_more_than_a_tenth_of_its_median() -> None:
    """Messages of 19 to 21 s do not, all-reduces of 1 to 1.5 s do, and so does a wait; the second tier is a formula."""
    tiers = two_tier(2, 1, Wire(bandwidth_bytes_per_s=1.0, tier="in"), Wire(bandwidth_bytes_per_s=1.0, tier="out"))
    made = []
    for message_s, sum_s, wait_s in ((21.0, 1.25, 4.0), (19.0, 1.0, 2.0), (20.0, 1.5, 5.0)):
        curve = Curve(points=((1.0, 1.0), (2.0, message_s)))
        links = tuple(replace(link, curve=curve if link.tier == "in" else None) for link in tiers.links)
        sums = {"all_reduce": {2: Curve(points=((1.0, 0.5), (2.0, sum_s)))}}
        made.append((replace(tiers, links=links, collectives=sums), Runtime(busy_latency_s=wait_s)))
    assert figures(made) == {
        "in messages": [21, 19, 20], "all_reduce of 2": [1.25, 1, 1.5], "a round's wait beside compute": [4, 2, 5],
        "core time per byte sent": [0] * 3, "core time per byte received": [0] * 3,
        "what pipelines add to a pass": [0] * 3,
    }  # fmt: skip
    assert unsteady(made) == {"all_reduce of 2": 0.4, "a round's wait beside compute": 0.75}


def test_one_efficiency_for_several_steps_is_where_their_logarithms_miss_least() -> None:
    """A step that says 0.3 and one that says 0.6: what fits both is between, and no neighbour fits better."""
    profile = chain([0.01, 0.01])
    profile = replace(profile, layers=tuple(replace(x, parameter_bytes=10**8) for x in profile.layers))
    steps = []
    for devices, share in ((2, 0.3), (4, 0.6)):
        step = MeasuredStep(profile=profile, devices=devices, batch_size=8 * devices, step_s=1.0)
        steps.append(replace(step, step_s=step.step_s_at("cpu-1g", "inter", share)))
    fitted = fit(steps, "cpu-1g", "inter")
    assert fitted.alone == pytest.approx((0.3, 0.6), rel=1e-6)

    def error(share: float) -> float:
        return sum(log(step.step_s_at("cpu-1g", "inter", share) / step.step_s) ** 2 for step in steps)

    assert 0.3 < fitted.efficiency < 0.6
    assert error(fitted.efficiency) <= min(error(fitted.efficiency * exp(x)) for x in (-0.01, 0.01))
    with pytest.raises(InputError, match="does not depend on these links"):
        fit([MeasuredStep(profile=profile, devices=1, batch_size=8, step_s=0.02)], "cpu-1g", "inter")
    assert fitted.steps_s == tuple(step.step_s_at("cpu-1g", "inter", fitted.efficiency) for step in steps)


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_a_grid_has_the_replicas_of_the_layer_that_has_most(order: tuple[str, str]) -> None:
    profile = network(layer(order[0]), layer(order[1], order[0]))
    placements = {
        "a": Sharding(degrees=(2, 2, 1, 1), devices=(0, 1, 2, 3)),
        "b": Sharding(degrees=(1, 4, 1, 1), devices=(0, 1, 2, 3)),
    }
    grid = grid_of(profile, Plan(model="small", batch_size=8, placements=placements))
    assert grid is not None and grid.devices.tolist() == [[[0, 1], [2, 3]]]


def test_a_candidates_balance_is_of_the_workers_and_its_bytes_of_every_pair() -> None:
    """Two workers compute 3 and 1 s, a server 8 s; 5 bytes cross within a host, twice 7 between two."""
    cluster = switched([1.0] * 2, servers=1)
    devices = tuple(replace(device, host=host) for device, host in zip(cluster.devices, "xxy", strict=True))
    builder = GraphBuilder()
    for device, seconds in ((0, 3.0), (1, 1.0), (2, 8.0)):
        builder.add(Kind.FORWARD, 1, device=device, seconds=seconds)
    for pairs, size in ((((0, 1),), 5.0), (((0, 2), (1, 2)), 7.0)):
        builder.add(Kind.ACTIVATION, 1, device=0, route=builder.route(Route(pairs)), bytes=size)
    made: Any = _candidate(builder.build(np.zeros(3), ()), replace(cluster, devices=devices), "", 9.0, False)
    assert (made.load_balance_ratio, made.total_bytes, made.between_bytes) == (3 / 2, 5 + 14, 14)
    assert (made.label, made.step_s, made.best) == ("a change of the best", 9.0, False)
