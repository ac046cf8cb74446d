"""The speed targets beside what this machine does. Usage: python benchmarks/bench.py [PROFILE]

Nothing is asserted: times depend on the machine, and the targets are for 2 cores.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from partitioners import make_plan
from partitioners._hypergraphs.hypergraph import build, grid_of
from partitioners._hypergraphs.kahypar import cut
from simulator import files
from simulator.cluster import Cluster
from simulator.engine import simulate
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower
from simulator.network.catalogue import read_cluster
from simulator.plan import StepSettings
from simulator.workload import Profile

CLUSTER, DEVICES, BATCH, MICROBATCHES = "p3-16xlarge", 16, 512, 32
STEP = StepSettings(batch_size=BATCH)
SHARDSCOPE = (sys.executable, "-c", "from simulator.cli import main; raise SystemExit(main())")


def main() -> None:
    source = sys.argv[1] if len(sys.argv) > 1 else "vgg16"
    profile, cluster = files.read_profile(source), read_cluster(CLUSTER, devices=DEVICES)
    print(f"{'what':<58} {'measured':>14}  target")
    show("shardscope --help", f"{seconds(lambda: call('--help')):.2f} s", "0.3 s")
    options = f"compare {source} --cluster {CLUSTER} --devices {DEVICES} --batch-size {BATCH}"
    options += f" --microbatches {MICROBATCHES} --strategies data,model,pipeline"
    label = f"compare data, model, pipeline: {DEVICES} devices, {MICROBATCHES} micro-batches"
    show(label, f"{seconds(lambda: call(*options.split())):.2f} s", "5 s")
    for strategy in ("pipeline", "data"):
        show_engine(profile, cluster, strategy)
    whole = seconds(lambda: make_plan("pipeline", profile, cluster, STEP))
    show(f"pipeline stages: {len(profile.layers)} layers, micro-batches chosen", f"{whole:.2f} s", "1 s")
    replicated = seconds(lambda: make_plan("pipeline", profile, cluster, STEP, replicas=True))
    show("the same with replicated stages", f"{replicated:.2f} s", "5 s")
    show_cut("vgg16", "1 s")
    show_cut("inception_v3", "10 s")
    for name in ("vgg16", "resnet50", "inception_v3"):
        search = partial(make_plan, "hypergraph", files.read_profile(name), cluster, STEP)
        whole = seconds(search, repeats=1)
        show(f"hypergraph search: {name}, {DEVICES} devices", f"{whole:.1f} s", "30 s")


def show_cut(name: str, target: str) -> None:
    """Seconds of one cut of a grid of 8 x 8 shards onto 8 devices."""
    profile = files.read_profile(name)
    grid = grid_of(profile, 8, 8, batch_size=64, microbatches=1)
    hypergraph = build(profile, grid)
    cut_s = seconds(lambda: cut(hypergraph, [1 / 8] * 8))
    show(f"one cut: {name}, {grid.vertices:,} vertices, 8 devices", f"{cut_s:.2f} s", target)


def show_engine(profile: Profile, cluster: Cluster, strategy: str) -> None:
    """Tasks per second of lowering and of the engine."""
    plan = make_plan(strategy, profile, cluster, replace(STEP, microbatches=MICROBATCHES))
    graph = lower(ShardedModel(profile, plan), cluster)
    lowering_s = seconds(lambda: lower(ShardedModel(profile, plan), cluster))
    engine_s = seconds(lambda: simulate(graph, cluster))
    show(f"lowering, {strategy}: {len(graph)} tasks", f"{len(graph) / lowering_s:,.0f} /s", "")
    show(f"engine, {strategy}: {len(graph)} tasks", f"{len(graph) / engine_s:,.0f} /s", "30,000 /s")


def seconds(call: Callable[[], object], repeats: int = 3) -> float:
    """The best of some runs."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def call(*options: str) -> None:
    subprocess.run([*SHARDSCOPE, *options], check=True, stdout=subprocess.DEVNULL)


def show(what: str, measured: str, target: str) -> None:
    print(f"{what:<58} {measured:>14}  {target}", flush=True)


if __name__ == "__main__":
    main()
