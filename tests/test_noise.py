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
from simulator.run import run


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


def test_same_seed_same_durations() -> None:
    graph = lower(ShardedModel(chain(4), staged(chain(4), 2, 4, "1f1b")), star(2))
    a, b, c = (Noise(jitter=0.1, seed=seed).disturb(graph).seconds for seed in (7, 7, 8))
    assert np.array_equal(a, b) and not np.array_equal(a, c)


def test_a_straggler_that_does_not_compute_is_an_error() -> None:
    with pytest.raises(InputError, match="straggler is 5: it is a device that computes in this plan"):
        run(chain(4), star(2), staged(chain(4), 2, 4, "1f1b"), noise=Noise(stragglers={5: 2.0}))
