"""Steps whose exact time and volume theory gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.cluster import Cluster, Device, Link
from simulator.curve import Curve
from simulator.engine import simulate
from simulator.lowering.tasks.graph_builder import GraphBuilder
from simulator.plan import Plan, Sharding, Synchronisation
from simulator.run import run
from simulator.runtime import Runtime
from simulator.studies import scaling
from simulator.taskgraph import Kind, Route
from simulator.workload import Layer, Profile

pytestmark = pytest.mark.usefixtures("engine")

EXACT = 1e-9
BANDWIDTH, LATENCY = 1e9, 1e-5


def chain(
    count: int = 4, *, forward_s: float = 0.01, backward_s: float = 0.02, parameter_bytes: int = 10**6, batch: int = 48
) -> Profile:
    """`count` equal layers in a row."""
    layers = tuple(
        Layer(
            name=f"l{i}",
            kind="linear",
            inputs=(f"l{i - 1}",) if i else (),
            output_shape=(8, 1, 1),
            forward_s=forward_s,
            backward_s=backward_s,
            parameter_bytes=parameter_bytes,
            output_bytes=batch * 8 * 4,
            saved_bytes=batch * 8 * 4,
        )
        for i in range(count)
    )
    return Profile(model="chain", device="none", batch_size=batch, layers=layers)


def star(workers: int, servers: int = 0, *, bandwidth: float = BANDWIDTH, latency_s: float = LATENCY) -> Cluster:
    """Workers, then servers, on one switch; a route has two links of half the latency each."""
    devices = tuple(
        Device(name=f"d{i}", host=f"h{i}", role="worker" if i < workers else "server") for i in range(workers + servers)
    )
    links = tuple(
        Link(source=a, target=b, bandwidth_bytes_per_s=bandwidth, latency_s=latency_s / 2)
        for device in devices
        for a, b in ((device.name, "switch"), ("switch", device.name))
    )
    return Cluster(name="star", devices=devices, links=links)


def replicated(profile: Profile, workers: int, **options: object) -> Plan:
    plan = scaling.replicated(profile, workers, profile.batch_size, Synchronisation())
    return replace(plan, **options)  # type: ignore[arg-type]


def staged(profile: Profile, stages: int, microbatches: int, schedule: str) -> Plan:
    """One stage per device, equally many layers each."""
    per_stage = len(profile.layers) // stages
    placements = {layer.name: Sharding(devices=(i // per_stage,)) for i, layer in enumerate(profile.layers)}
    return Plan(
        model=profile.model,
        batch_size=profile.batch_size,
        placements=placements,
        microbatches=microbatches,
        schedule=schedule,
    )


ONE_BUCKET = Synchronisation(collective="ring", bucket_bytes=10**12, overlap=False)


def test_one_device_takes_the_serial_sum() -> None:
    profile = replace(chain(5), layers=tuple(replace(x, update_s=0.003) for x in chain(5).layers))
    report = run(profile, star(1), replicated(profile, 1)).report
    assert report.step_s == pytest.approx(5 * (0.01 + 0.02 + 0.003), rel=EXACT)
    assert report.communication_bytes.total == 0
    assert report.speedup == pytest.approx(1, rel=EXACT)


@pytest.mark.parametrize("n", range(2, 17))
def test_a_ring_all_reduce_takes_its_closed_form(n: int) -> None:
    """2(N-1)/N x S/B + 2(N-1) x latency, and 2(N-1) S bytes in all."""
    profile = chain(4, batch=n)
    size = profile.parameter_bytes
    report = run(profile, star(n), replicated(profile, n, synchronisation=ONE_BUCKET)).report
    computing_s = 4 * (0.01 + 0.02) / n
    expected_s = 2 * (n - 1) / n * size / BANDWIDTH + 2 * (n - 1) * LATENCY
    assert report.step_s - computing_s == pytest.approx(expected_s, rel=EXACT)
    assert report.communication_bytes.total == pytest.approx(2 * (n - 1) * size, rel=EXACT)


@pytest.mark.parametrize("n", [2, 4, 7])
def test_a_parameter_server_takes_its_closed_form(n: int) -> None:
    """N S/B into one server, then N S/B out of it; 2 N S bytes in all."""
    profile = chain(4, batch=n)
    size = profile.parameter_bytes
    plan = replicated(profile, n, synchronisation=replace(ONE_BUCKET, collective="ps"))
    report = run(profile, star(n, servers=1), plan).report
    expected_s = 2 * (n * size / BANDWIDTH + LATENCY)
    assert report.step_s - 4 * 0.03 / n == pytest.approx(expected_s, rel=EXACT)
    assert report.communication_bytes.total == pytest.approx(2 * n * size, rel=EXACT)
    halves = run(profile, star(n, servers=2), plan).report
    busiest_s = max(n * size / 2, size) / BANDWIDTH  # a server's half from everyone, or a worker's whole gradient
    assert halves.step_s - 4 * 0.03 / n == pytest.approx(2 * (busiest_s + LATENCY), rel=EXACT)


def test_a_measured_all_reduce_replaces_the_formula() -> None:
    profile = chain(4, batch=4)
    curve = Curve(points=((1e3, 0.1), (1e9, 0.7)))
    cluster = replace(star(4), collectives={"all_reduce": {4: curve}})
    report = run(profile, cluster, replicated(profile, 4, synchronisation=ONE_BUCKET)).report
    assert report.step_s == pytest.approx(4 * 0.03 / 4 + curve.seconds(profile.parameter_bytes), rel=EXACT)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("p", "m"), [(2, 1), (2, 8), (4, 4), (4, 12), (3, 24)])
def test_a_pipelines_bubble_is_its_closed_form(schedule: str, p: int, m: int) -> None:
    """(p-1)/(m+p-1) with equal stages and free links."""
    profile = chain(p * 2)
    free = star(p, bandwidth=1e30, latency_s=0.0)
    report = run(profile, free, staged(profile, p, m, schedule)).report
    assert report.bubble_ratio == pytest.approx((p - 1) / (m + p - 1), rel=EXACT)
    assert report.step_s == pytest.approx((m + p - 1) * 2 * 0.03 / m, rel=EXACT)
    assert report.load_balance_ratio == pytest.approx(1, rel=EXACT)


def test_1f1b_keeps_fewer_activations_than_gpipe() -> None:
    """The first of p stages keeps m micro-batches' activations under GPipe, p under 1F1B."""
    profile, p, m = chain(4, parameter_bytes=0), 4, 12
    free = star(p, bandwidth=1e30, latency_s=0.0)
    saved = profile.layers[0].saved_bytes / m
    peaks = {}
    for schedule in ("gpipe", "1f1b"):
        device = run(profile, free, staged(profile, p, m, schedule)).report.devices[0]
        peaks[schedule] = device.peak_memory_bytes - device.static_bytes
    # beside them, the gradient of the output that a backward pass works on, received in a buffer of its own
    transient = 2 * saved
    assert peaks == {"gpipe": pytest.approx(m * saved + transient), "1f1b": pytest.approx(p * saved + transient)}


def test_static_memory_counts_parameters_gradients_and_state() -> None:
    profile = chain(4)
    report = run(profile, star(2), replicated(profile, 2, optimizer_state=2.0)).report
    assert [device.static_bytes for device in report.devices] == [4 * profile.parameter_bytes] * 2


def test_model_parallel_volume_is_the_cut_activation_there_and_back() -> None:
    profile = chain(4)
    report = run(profile, star(2), staged(profile, 2, 1, "dataflow")).report
    assert report.communication_bytes.forward == profile.layers[1].output_bytes
    assert report.communication_bytes.total == 2 * profile.layers[1].output_bytes


def test_overlap_hides_communication_behind_backward() -> None:
    """Per-layer buckets leave while earlier layers still compute; only the first layer's is exposed."""
    profile = chain(4, batch=4)
    size = profile.layers[0].parameter_bytes
    each_s = 2 * 3 / 4 * size / BANDWIDTH + 6 * LATENCY
    for overlap, exposed in ((True, 1), (False, 4)):
        synchronisation = Synchronisation(bucket_bytes=0, overlap=overlap)
        report = run(profile, star(4), replicated(profile, 4, synchronisation=synchronisation)).report
        assert each_s < 0.02 / 4
        assert report.step_s == pytest.approx(4 * 0.03 / 4 + exposed * each_s, rel=EXACT)
        assert report.devices[0].exposed_communication_s == pytest.approx(exposed * each_s, rel=EXACT)


def test_slow_device_sets_the_pace_of_synchronous_data_parallelism() -> None:
    profile = chain(4, batch=4)
    cluster = star(4)
    slowed = replace(cluster, devices=(replace(cluster.devices[0], speed=0.25), *cluster.devices[1:]))
    fast = run(profile, cluster, replicated(profile, 4, synchronisation=ONE_BUCKET)).report
    slow = run(profile, slowed, replicated(profile, 4, synchronisation=ONE_BUCKET)).report
    assert slow.step_s - fast.step_s == pytest.approx(3 * 4 * 0.03 / 4, rel=EXACT)
    assert slow.load_balance_ratio == pytest.approx(4 / (7 / 4), rel=EXACT)


def test_ranks_that_share_cores_share_them_fairly() -> None:
    """Four ranks on one host of two cores take twice as long as on four."""
    profile = chain(4, batch=4)
    plan = replicated(profile, 4, synchronisation=ONE_BUCKET)
    cluster = star(4)
    devices = tuple(replace(device, host="h") for device in cluster.devices)
    times = [
        run(profile, replace(cluster, devices=devices, host_cores={"h": cores}), plan).timeline.step_s
        for cores in (4, 2, 1)
    ]
    computing_s = 4 * 0.03 / 4
    assert times[1] - times[0] == pytest.approx(computing_s, rel=EXACT)
    assert times[2] - times[0] == pytest.approx(3 * computing_s, rel=EXACT)


def test_communication_slows_compute_by_the_given_factor() -> None:
    """Each layer's all-reduce overlaps the next layer's backward, which takes 1.5x as long meanwhile."""
    profile = chain(2, batch=2)
    plan = replicated(profile, 2, synchronisation=Synchronisation(bucket_bytes=0))
    report = run(profile, star(2), plan, runtime=Runtime(overlap_slowdown=1.5)).report
    each_s = 10**6 / BANDWIDTH + 2 * LATENCY
    # while the first all-reduce runs (each_s), backward of the other layer advances by each_s / 1.5
    expected = 2 * 0.03 / 2 + each_s * (1 - 1 / 1.5) + each_s
    assert report.step_s == pytest.approx(expected, rel=EXACT)


@pytest.mark.parametrize("core_s, compute_end_s, message_end_s", [(0.0, 1.0, 0.5), (0.1, 1.1, 0.5), (1.0, 2.0, 2.0)])
def test_a_transfer_takes_its_share_of_the_receivers_core(
    core_s: float, compute_end_s: float, message_end_s: float
) -> None:
    """A message of 0.5 s needs core_s of a core that computes 1 s: together they take both; in excess they halve it."""
    size = 0.5 * BANDWIDTH
    builder = GraphBuilder()
    builder.add(Kind.FORWARD, 1, device=1, seconds=1.0)
    builder.add(Kind.ACTIVATION, 1, device=1, route=builder.route(Route(((0, 1),))), bytes=size)
    graph = builder.build(np.zeros(2), ["l0"])
    free = star(2, latency_s=0.0)
    cluster = replace(free, host_cores={"h0": 1.0, "h1": 1.0})
    timeline = simulate(graph, cluster, Runtime(receive_cpu_s_per_byte=core_s / size))
    assert timeline.end_s == pytest.approx([compute_end_s, message_end_s], rel=EXACT)


def test_the_runtime_adds_to_every_compute_task() -> None:
    """Three layers forward, backward and one update on one device: seven tasks."""
    cluster, profile = star(1), chain(3)
    plan = replicated(profile, 1)
    expected = run(profile, cluster, plan).report.step_s + 7 * 0.5
    assert run(profile, cluster, plan, runtime=Runtime(task_overhead_s=0.5)).report.step_s == pytest.approx(
        expected, rel=EXACT
    )


@pytest.mark.parametrize(("receiver_s", "end_s"), [(3.0, 1.625), (1.1, 1.6), (0.0, 1.5)])
def test_a_transfer_waits_for_its_turn_on_a_core_that_computes(receiver_s: float, end_s: float) -> None:
    """A message of 0.5 s leaves after 1 s; one end computes for longer than half a turn, for part of it, or not."""
    builder = GraphBuilder()
    builder.add(Kind.FORWARD, 2, device=[0, 1], seconds=[1.0, receiver_s])
    message = builder.add(Kind.ACTIVATION, 1, device=1, route=builder.route(Route(((0, 1),))), bytes=0.5 * BANDWIDTH)
    builder.depend(message, 0)
    free = star(2, latency_s=0.0)
    cluster = replace(free, host_cores={"h0": 1.0, "h1": 1.0})
    timeline = simulate(builder.build(np.zeros(2), ["l0"]), cluster, Runtime(busy_latency_s=0.25))
    assert timeline.end_s[2] == pytest.approx(end_s, rel=EXACT)


@pytest.mark.parametrize(
    ("cores", "computing", "end_s"),
    [(1.0, [2], 2.5 + 0.25 / 3), (2.0, [2], 1.5), (2.0, [1, 2], 2.125), (8.0, [1, 2], 1.5), (8.0, [0, 1, 2], 1.75)],
)
def test_a_free_core_takes_a_transfer_at_once(cores: float, computing: list[int], end_s: float) -> None:
    """A message of 0.5 s leaves device 0 after 1 s of a core, on a host of three; if all compute it waits 0.25 s."""
    builder = GraphBuilder()
    first = builder.add(Kind.FORWARD, 1, device=0, seconds=1.0)
    for device in computing:
        builder.add(Kind.FORWARD, 1, device=device, seconds=9.0 if device else 4.0)
    message = builder.add(Kind.ACTIVATION, 1, device=1, route=builder.route(Route(((0, 1),))), bytes=0.5 * BANDWIDTH)
    builder.depend(message, first)
    free = star(3, latency_s=0.0)
    devices = tuple(replace(device, host="h") for device in free.devices)
    cluster = replace(free, devices=devices, host_cores={"h": cores})
    timeline = simulate(builder.build(np.zeros(3), ["l0"]), cluster, Runtime(busy_latency_s=0.25))
    assert timeline.end_s[message] == pytest.approx(end_s, rel=EXACT)


def one_layer(sharding: Sharding, microbatches: int = 1, speed: float = 1.0) -> float:
    """Seconds of a step of one layer whose passes take 12 s and whose update by SGD takes 8 s."""
    (layer,) = chain(1, forward_s=4.0, backward_s=8.0).layers
    profile = Profile(model="one", device="none", batch_size=48, layers=(replace(layer, update_s=8.0),))
    plan = Plan(model="one", batch_size=48, microbatches=microbatches, placements={layer.name: sharding})
    cluster = Cluster(name="one", devices=(Device(name="d", host="h", speed=speed),))
    return run(profile, cluster, plan).report.step_s


def test_an_update_without_parameters_is_in_neither_step_nor_speedup() -> None:
    (layer,) = chain(1, forward_s=4.0, backward_s=8.0, parameter_bytes=0).layers
    profile = Profile(model="one", device="none", batch_size=48, layers=(replace(layer, update_s=30.0),))
    plan = Plan(model="one", batch_size=48, placements={layer.name: Sharding(devices=(0,))})
    report = run(profile, Cluster(name="one", devices=(Device(name="d", host="h"),)), plan).report
    assert (report.step_s, report.speedup) == pytest.approx((12.0, 1.0))


def test_later_micro_batches_add_their_gradients() -> None:
    """An addition takes 3/8 of the update; three of four micro-batches add theirs."""
    assert one_layer(Sharding(devices=(0,)), microbatches=4, speed=0.5) == pytest.approx((12 + 3 * 3 + 8) / 0.5)


def test_further_shards_of_the_same_parameters_add_theirs() -> None:
    assert one_layer(Sharding(devices=(0, 0), degrees=(2, 1, 1, 1))) == pytest.approx(12 + 3 + 8)
    assert one_layer(Sharding(devices=(0, 0), degrees=(1, 2, 1, 1))) == pytest.approx(12 + 8)
