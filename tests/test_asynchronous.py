"""Parameter servers with and without waiting: who sets the pace."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_closed_forms import BANDWIDTH, LATENCY, chain, replicated, star

from simulator.cluster import Cluster
from simulator.errors import InputError
from simulator.plan import Synchronisation
from simulator.run import step_seconds
from simulator.studies.asynchronous import AsynchronousSteps, run_asynchronously
from simulator.workload import Profile

WORKERS = 4
COMPUTE_S = 4 * 0.03 / WORKERS
SERVED = Synchronisation(collective="ps", bucket_bytes=10**12, overlap=False)
FAST = 1e15


def slowed(cluster: Cluster, worker: int, factor: float) -> Cluster:
    devices = list(cluster.devices)
    devices[worker] = replace(devices[worker], speed=1 / factor)
    return replace(cluster, devices=tuple(devices))


def steps_of(cluster: Cluster, staleness: int | None, **options: object) -> AsynchronousSteps:
    profile = chain(4, batch=WORKERS)
    plan = replicated(profile, WORKERS, synchronisation=SERVED)
    return run_asynchronously(profile, cluster, plan, staleness=staleness, **options)  # type: ignore[arg-type]


def synchronous_samples_per_s(cluster: Cluster) -> float:
    profile = chain(4, batch=WORKERS)
    return WORKERS / step_seconds(profile, cluster, replicated(profile, WORKERS, synchronisation=SERVED))


def test_a_worker_alone_with_a_wide_server_takes_compute_push_and_pull() -> None:
    """Nothing contends when the server's links are wide: every worker's cycle is its own."""
    cluster = star(WORKERS, servers=1)
    wide = replace(
        cluster, links=tuple(replace(x, bandwidth_bytes_per_s=FAST) if "d4" in x.name else x for x in cluster.links)
    )
    size = chain(4).parameter_bytes
    steps = steps_of(wide, None)
    cycle_s = COMPUTE_S + 2 * (size / BANDWIDTH + LATENCY)
    assert steps.steps_per_s == pytest.approx([1 / cycle_s] * WORKERS, rel=1e-6)
    assert steps.samples_per_s == pytest.approx(WORKERS / cycle_s, rel=1e-6)


def test_a_straggler_slows_everyone_only_when_they_wait() -> None:
    """One of four computes ten times slower. Synchronous: all do. Asynchronous: the others do not notice."""
    free = star(WORKERS, servers=1, bandwidth=FAST, latency_s=0.0)
    straggling = slowed(free, 2, 10.0)
    assert synchronous_samples_per_s(straggling) == pytest.approx(synchronous_samples_per_s(free) / 10, rel=1e-6)
    before, after = steps_of(free, None), steps_of(straggling, None)
    assert after.steps_per_s[[0, 1, 3]] == pytest.approx(before.steps_per_s[[0, 1, 3]], rel=1e-6)
    assert after.steps_per_s[2] == pytest.approx(before.steps_per_s[2] / 10, rel=1e-5)
    assert after.samples_per_s == pytest.approx(3.1 / 4 * before.samples_per_s, rel=1e-5)


def test_even_a_thousandfold_straggler_leaves_the_others_alone() -> None:
    """Throughput is that of the other three, whatever the slowest does."""
    free = star(WORKERS, servers=1, bandwidth=FAST, latency_s=0.0)
    rates = [steps_of(slowed(free, 2, factor), None).samples_per_s for factor in (100.0, 1000.0)]
    assert rates == pytest.approx([3 / 4 * synchronous_samples_per_s(free)] * 2, rel=2e-2)
    assert synchronous_samples_per_s(slowed(free, 2, 1000.0)) < 1e-2 * rates[1]


def test_a_bound_forgives_short_delays_and_no_long_ones() -> None:
    """A pause of 5 computes strikes a worker at a time, every 8th step. A bound that covers it hides it wholly."""
    free = star(WORKERS, servers=1, bandwidth=FAST, latency_s=0.0)
    slowdown = np.ones((WORKERS, 64))
    for worker in range(WORKERS):
        slowdown[worker, 2 * worker :: 8] = 6.0
    rates = [steps_of(free, s, steps=64, slowdown=slowdown).samples_per_s for s in (0, 1, 2, 4, 8, None)]
    assert rates == sorted(rates)
    waiting_s, own_s = (1 + 4 * 5 / 8) * COMPUTE_S, (1 + 5 / 8) * COMPUTE_S
    assert rates[0] == pytest.approx(WORKERS / waiting_s, rel=0.05)
    assert rates[-1] == pytest.approx(WORKERS / own_s, rel=0.05)
    assert rates[0] * 1.1 < rates[2] < rates[-1] / 1.02
    assert rates[4] == pytest.approx(rates[-1], rel=0.02)


def test_a_lasting_straggler_holds_a_bound_back_in_the_end() -> None:
    """With any bound the fastest is never more than s + 1 steps ahead of the slowest."""
    straggling = slowed(star(WORKERS, servers=1, bandwidth=FAST, latency_s=0.0), 2, 10.0)
    for staleness in (0, 2, 5):
        bounded = steps_of(straggling, staleness, steps=32)
        ahead = [(bounded.ends_s[0] <= moment).sum() - number for number, moment in enumerate(bounded.ends_s[2])]
        assert max(ahead) == staleness + 1
    free = steps_of(straggling, None, steps=32)
    assert (free.ends_s[0] <= free.ends_s[2, 2]).sum() > 20


def test_workers_share_the_servers_link() -> None:
    """Equal workers push together and pull together, 4 S/B each; told apart, they fill both directions at once."""
    narrow = star(WORKERS, servers=1, bandwidth=1e8, latency_s=0.0)
    wire_s = WORKERS * chain(4).parameter_bytes / 1e8
    equal = steps_of(narrow, None, steps=20).samples_per_s
    assert equal == pytest.approx(WORKERS / (COMPUTE_S + 2 * wire_s), rel=1e-6)
    slowdown = np.random.default_rng(0).exponential(1.0, (WORKERS, 100))
    apart = steps_of(narrow, None, steps=100, slowdown=slowdown)
    assert 1.1 * equal < apart.samples_per_s < WORKERS / wire_s


def test_a_bound_of_nothing_is_one_step_after_the_other() -> None:
    """Without contention or update cost, s = 0 goes at the pace of the synchronous step."""
    free = star(WORKERS, servers=1, bandwidth=FAST, latency_s=1e-3)
    assert steps_of(free, 0).samples_per_s == pytest.approx(synchronous_samples_per_s(free), rel=1e-6)


def test_updates_happen_once_per_push() -> None:
    """The optimizer runs for every worker's push, where a synchronous server runs it once per step."""
    profile = chain(4, batch=WORKERS)
    slow = replace(profile, layers=tuple(replace(x, update_s=0.01) for x in profile.layers))
    plan = replicated(slow, WORKERS, synchronisation=SERVED)
    free = star(WORKERS, servers=1, bandwidth=FAST, latency_s=0.0)
    steps = run_asynchronously(slow, free, plan, staleness=None, steps=40)
    assert steps.samples_per_s == pytest.approx(1 / 0.04, rel=0.02)  # the server's 40 ms per push set the pace
    assert step_seconds(slow, free, plan) == pytest.approx(COMPUTE_S + 0.04, rel=1e-6)


def test_workers_that_serve_send_only_what_others_serve() -> None:
    profile, cluster = chain(4, batch=WORKERS), star(WORKERS)
    plan = replicated(profile, WORKERS, synchronisation=replace(SERVED, collective="ps-workers", serving_workers=4))
    steps = run_asynchronously(profile, cluster, plan, staleness=None)
    moved = 2 * 3 / 4 * profile.parameter_bytes / BANDWIDTH
    assert steps.samples_per_s == pytest.approx(WORKERS / (COMPUTE_S + moved + 2 * LATENCY), rel=0.05)


def test_overlap_hides_pushes_and_microbatches_come_first() -> None:
    profile, cluster = chain(4, batch=8), star(WORKERS, servers=1, bandwidth=2e9)
    options = {"microbatches": 2, "synchronisation": replace(SERVED, bucket_bytes=0)}
    waiting = replicated(profile, WORKERS, **options)
    eager = replicated(
        profile, WORKERS, **(options | {"synchronisation": Synchronisation(collective="ps", bucket_bytes=0)})
    )  # type: ignore[arg-type]
    slow, fast = (run_asynchronously(profile, cluster, plan, staleness=None) for plan in (waiting, eager))
    assert slow.compute_s == pytest.approx([4 * 0.03 / WORKERS] * WORKERS)
    assert fast.samples_per_s > slow.samples_per_s


@pytest.mark.parametrize(
    ("staleness", "options", "complaint"),
    [
        (-1, {}, "staleness is -1"),
        (None, {"steps": 2}, "steps is 2"),
        (None, {"slowdown": np.ones((1, 1))}, "slowdown is \\(1, 1\\)"),
    ],
)
def test_wrong_options_are_refused(staleness: int | None, options: dict[str, object], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        steps_of(star(WORKERS, servers=1), staleness, **options)


def test_only_servers_and_data_parallelism() -> None:
    profile: Profile = chain(4, batch=WORKERS)
    with pytest.raises(InputError, match="only parameter servers serve workers one by one"):
        run_asynchronously(profile, star(WORKERS), replicated(profile, WORKERS), staleness=None)
    with pytest.raises(InputError, match="need data parallelism over at least 2 devices"):
        run_asynchronously(profile, star(1, servers=1), replicated(profile, 1, synchronisation=SERVED), staleness=None)
