"""Collectives that block: a step lasts as long as all that its slowest device does, in closed form."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plans import planned

from benchmarks.parallel_runtimes.blocking import blocking
from simulator import files
from simulator.curve import Curve
from simulator.engine import simulate
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower
from simulator.network.topologies import Wire, flat_switch
from simulator.plan import Synchronisation
from simulator.runtime import IDEAL

PROFILE = files.read_profile("vgg_small")
PAIR = flat_switch(2, Wire(bandwidth_bytes_per_s=125e6))


def test_nothing_overlaps_where_collectives_block() -> None:
    curve = Curve(points=((1.0, 0.005), (1e9, 0.005)))  # every all-reduce takes 5 ms
    cluster = replace(PAIR, collectives={"all_reduce": {2: curve}})
    plan = planned("data", PROFILE, cluster, batch_size=32, synchronisation=Synchronisation(bucket_bytes=1 << 20))
    model = ShardedModel(PROFILE, plan)
    graph = lower(model, cluster)
    compute_s = graph.seconds[(graph.route < 0) & (graph.device == 0)].sum()
    free_s = simulate(graph, cluster, IDEAL).step_s
    blocked = blocking(graph, cluster, IDEAL)
    step_s = simulate(blocked, cluster, IDEAL).step_s
    assert step_s == pytest.approx(compute_s + 0.005 * len(model.buckets)) and step_s > free_s
    assert simulate(blocking(blocked, cluster, IDEAL), cluster, IDEAL).step_s == step_s


def test_without_collectives_nothing_changes() -> None:
    plan = planned("pipeline", PROFILE, PAIR, judged=False, batch_size=32, microbatches=4, schedule="gpipe")
    graph = lower(ShardedModel(PROFILE, plan), PAIR)
    blocked = blocking(graph, PAIR, IDEAL)
    assert simulate(blocked, PAIR, IDEAL).step_s == pytest.approx(simulate(graph, PAIR, IDEAL).step_s)
