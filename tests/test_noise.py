"""Stragglers and jitter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_closed_forms import ONE_BUCKET, chain, replicated, staged, star

from simulator.engine.noise import Noise
from simulator.errors import InputError
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower
from simulator.run import QUARTILES, expected_step_s, run
from simulator.workload import Profile


def test_a_straggler_is_a_slower_device() -> None:
    profile, cluster = chain(4, batch=4), star(4)
    plan = replicated(profile, 4, synchronisation=ONE_BUCKET)
    slower = (cluster.devices[0], replace(cluster.devices[1], speed=0.5), *cluster.devices[2:])
    expected = run(profile, replace(cluster, devices=slower), plan).timeline
    assert run(profile, cluster, plan, noise=Noise(stragglers={1: 2.0})).timeline.end_s == pytest.approx(expected.end_s)


def test_jitter_has_its_mean_and_spread_and_leaves_transfers_alone() -> None:
    profile = chain(40, batch=2400)
    graph = lower(ShardedModel(profile, staged(profile, 4, 400, "gpipe")), star(4))
    noisy = Noise(jitter=0.2, seed=1).disturb(graph)
    compute = ~graph.is_transfer & (graph.seconds > 0)
    factors = noisy.seconds[compute] / graph.seconds[compute]
    assert factors.mean() == pytest.approx(1, abs=0.01)
    assert factors.std() == pytest.approx(0.2, abs=0.01)
    assert (noisy.bytes == graph.bytes).all() and (noisy.seconds[graph.is_transfer] == 0).all()


@pytest.mark.parametrize("microbatches", (5, 400))
def test_work_varies_by_its_seconds_however_it_is_cut(microbatches: int) -> None:
    """4 devices of 0.3 s each: a variance of 0.3 s x 1 ms, independent of each other, and the mean as before."""
    profile = chain(40, batch=2400)
    graph = lower(ShardedModel(profile, staged(profile, 4, microbatches, "gpipe")), star(4))
    compute = ~graph.is_transfer
    work_s = np.empty((400, 4))  # (draws, devices)
    for number in range(len(work_s)):
        noisy = Noise(variance_s=1e-3, seed=number // 2, mirrored=number % 2 > 0).disturb(graph)
        work_s[number] = np.bincount(noisy.device[compute], noisy.seconds[compute], minlength=4)
        assert (noisy.seconds[graph.is_transfer] == 0).all() and (noisy.seconds >= 0).all()
    assert work_s.sum() / len(work_s) == pytest.approx(graph.seconds[compute].sum(), rel=1e-12)
    assert work_s.mean(0) == pytest.approx(0.3, rel=0.01)
    assert work_s[::2].var(0) == pytest.approx(0.3e-3, rel=0.3)
    assert np.abs(np.corrcoef(work_s[::2].T) - np.eye(4)).max() < 0.25


def varying(profile: Profile, deviation: float) -> Profile:
    """The profile on a CPU whose whole steps have that relative standard deviation."""
    step_s = profile.layers_s
    return replace(profile, device="Xeon CPU", step_s=step_s, step_spread_s=QUARTILES * deviation * step_s)


def test_one_device_that_varies_takes_as_long_on_average() -> None:
    profile = varying(chain(40), 0.1)
    expected_s = expected_step_s(profile, star(1), replicated(profile, 1))
    assert expected_s == pytest.approx(profile.layers_s, rel=1e-12)


@pytest.mark.parametrize(("devices", "longer"), ((2, 0.564), (4, 1.029)))
def test_devices_that_meet_once_wait_for_the_slowest(
    devices: int, longer: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest of n normal values lies so many standard deviations above their mean (order statistics)."""
    monkeypatch.setattr("simulator.run.DRAWS", 1000)
    profile, cluster = varying(chain(40), 0.05), star(devices)
    shared = replicated(profile, devices, synchronisation=ONE_BUCKET)
    report = run(profile, cluster, shared).report
    deviation_s = (0.05**2 * profile.layers_s * report.devices[0].compute_s) ** 0.5
    expected_s = expected_step_s(profile, cluster, shared)
    assert expected_s is not None
    assert expected_s - report.step_s == pytest.approx(longer * deviation_s, rel=0.1)


def test_many_tasks_take_few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean of few lies within half a per cent of that of all, and no fewer are made than the least."""
    profile, cluster = varying(chain(40, batch=64), 0.1), star(64)
    plan = replicated(profile, 64, synchronisation=ONE_BUCKET)
    seeds: list[int] = []
    disturb = Noise.disturb
    monkeypatch.setattr(Noise, "disturb", lambda noise, graph: seeds.append(noise.seed) or disturb(noise, graph))
    every = expected_step_s(profile, cluster, plan)
    assert len(seeds) == 32
    monkeypatch.setattr("simulator.run.DRAWN_TASKS", 1)
    few = expected_step_s(profile, cluster, plan)
    assert len(seeds) == 32 + 8 and few == pytest.approx(every, rel=0.005)


def test_only_a_cpu_whose_steps_have_a_spread_varies() -> None:
    profile, cluster = varying(chain(4), 0.1), star(2)
    plan = replicated(profile, 2)
    for other in (replace(profile, device="NVIDIA H100"), replace(profile, step_s=None)):
        assert expected_step_s(other, cluster, plan) is None
    assert expected_step_s(varying(profile, 0.0), cluster, plan) is None


def test_same_seed_same_durations() -> None:
    graph = lower(ShardedModel(chain(4), staged(chain(4), 2, 4, "1f1b")), star(2))
    a, b, c = (Noise(jitter=0.1, seed=seed).disturb(graph).seconds for seed in (7, 7, 8))
    assert np.array_equal(a, b) and not np.array_equal(a, c)


def test_a_straggler_that_does_not_compute_is_an_error() -> None:
    with pytest.raises(InputError, match="straggler is 5: it is a device that computes in this plan"):
        run(chain(4), star(2), staged(chain(4), 2, 4, "1f1b"), noise=Noise(stragglers={5: 2.0}))
