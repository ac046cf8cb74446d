"""Where the time from a plan to its report goes, and how it grows. Usage: python -m benchmarks.speed [--write]

Prints what each piece of work took when the goals were set, its goal and what it takes now; --write makes
docs/performance.md of that and of two series: 16 to 16,384 devices, 10 to 10,000 layers. Nothing is asserted: times
depend on the machine, which the page names, and goals are for two cores.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from time import process_time

import numpy as np

from benchmarks.engine import chains, direct_ring, everyone, incast
from partitioners import make_plan, options
from simulator import files
from simulator.cluster import Cluster
from simulator.collectives.ring import ring_ends
from simulator.engine import simulate
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower
from simulator.network.catalogue import read_cluster
from simulator.network.topologies import Wire, two_tier
from simulator.plan import Placement, Plan, StepSettings, Synchronisation
from simulator.report.metrics import measure
from simulator.run import run
from simulator.sweep.evaluate import evaluate
from simulator.sweep.points import expand
from simulator.sweep.specification import Specification
from simulator.sweep.sweeping import context_of, lots
from simulator.taskgraph import TaskGraph
from simulator.workload import Layer, Profile

PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
INTER = Wire(bandwidth_bytes_per_s=1.25e9, latency_s=2e-5, tier="inter")
INTRA = Wire(bandwidth_bytes_per_s=1.2e11, latency_s=3e-6, tier="intra")
Row = tuple[str, ...]
Graph = Callable[[int], tuple[TaskGraph, Cluster]]

TEXT = """\
# Performance

Written by `python -m benchmarks.speed --write` on {machine}. Times are processor seconds of one
run; `make bench` prints them for your machine. "When set" is what the work took when the goals were set, on two cores;
"compiled / reference" is how many times faster the compiled engine simulates the same form of graph than SimPy.

<!-- real: times of one machine -->
<!-- output: python -m benchmarks.speed --write -->
{work}
<!-- end -->

## Growth with the number of devices

ResNet-50, data parallel, one ring all-reduce per layer, nodes of 8 devices. All three stages are linear in the number
of tasks: routes in trees go over the lowest common ancestor, the tasks of a bucket's devices are arrays, and a report
sorts all spans once. Only the pairs of devices that talk to each other are kept; the full traffic matrix is made when
asked for.

<!-- real: times of one machine -->
<!-- output: python -m benchmarks.speed --write -->
{devices}
<!-- end -->

## Growth with the number of layers

Layers in a row on 16 devices, data parallel, buckets of 25 MiB.

<!-- real: times of one machine -->
<!-- output: python -m benchmarks.speed --write -->
{layers}
<!-- end -->

## Where it goes

- **Lowering** works layer by layer with a few dozen numpy calls each, so for few devices it costs about half a
  millisecond per layer whatever their number, and that is most of judging a plan on 16 devices.
- **The engine** takes well under a microsecond per task where transfers do not contend. Where they do, each start or
  end gives new rates to all activities that it is joined to through shared links. On one switch where everybody sends
  to everybody that is all of them, and shares are subtracted from the capacities in an order that the reference
  defines; no way to leave some out with every bit kept has been made, and that row is far from its goal.
- **The report** spends most on the time that compute and transfers cover on each device; its longest dependency chain
  is found in C, and in Python where there is no compiled engine.
- **A ring or a tree message by message** is a recurrence of maxima and sums, which `shardscope allreduce` evaluates in
  closed form: which member a chain of messages begins at, and which is the slowest that it passes, say when it ends.
  It is for one collective that has its links for itself; in a step a collective is one task, each of whose rounds
  waits for its slowest pair.
- **A sweep** keeps plans lowered, routes and layer-wise tables from point to point where only bandwidths and latencies
  differ, and gives such points to one worker together. What is left is mostly the report; points that differ in the
  devices' speed are lowered anew, since seconds divided by another speed round differently.
- **The hypergraph search** simulates the strongest configurations of the other strategies, then cuts as long as they
  are near the best, then changes to runs of layers. Half of its time is lowering, a quarter KaHyPar.
- **Identical replicas** are simulated each on its own, so 16,384 devices take 16 times as long as 1,024.
- **communication_volume**, the count without simulating, still adds up in a dense matrix and grows with the square of
  the number of devices.
"""


def main() -> None:
    work = list(shown(("work", "when set", "goal", "now", "compiled / reference"), work_rows()))
    if "--write" not in sys.argv[1:]:
        return
    columns = ("tasks", "lower", "simulate", "measure", "us per task")
    devices = list(shown(("devices", *columns), (stages(4**k, data_parallel(4**k)) for k in range(2, 8))))
    layers = list(shown(("layers", *columns), (stages(10**k, row_of_layers(10**k)) for k in range(1, 5))))
    text = TEXT.format(machine=machine(), work=table(work), devices=table(devices), layers=table(layers))
    PAGE.write_text(text, encoding="utf-8")


def shown(title: Row, rows: Iterator[Row]) -> Iterator[Row]:
    """The rows as they come, the title first, each printed."""
    for row in chain([title], rows):
        print("  ".join(f"{cell:<18}" for cell in row), flush=True)
        yield row


def table(rows: list[Row]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def work_rows() -> Iterator[Row]:
    """What the goals name and this version can do."""
    yield engine_row("engine, nothing contends", chains, 60_000, "10 M tasks/s")
    yield engine_row("engine, 3 senders to a receiver", incast, 40_000, "3 M tasks/s")
    yield engine_row("engine, 240 messages at a time on a switch", everyone, 100, "3 M tasks/s")
    for late, links in ((0.0, "equal links"), (1e-3, "unequal links and stragglers")):
        begin_s = late * np.random.default_rng(1).random(1024)
        cluster = direct_ring(1024, unequal=late > 0)
        taken = seconds(partial(ring_ends, cluster, range(1024), 1e8, begin_s))
        yield f"ring all-reduce of 1,024 ranks, message by message, {links}", "10.8 s", "0.01 s", f"{taken:.4f} s", ""
    for count, before, goal in ((1024, "12.4 s", "0.5 s"), (16_384, "not possible", "1 s collapsed")):
        taken = seconds(partial(run_whole, data_parallel(count)), repeats=1)
        yield f"ResNet-50, all-reduce per layer, {count:,} devices", before, goal, f"{taken:.2f} s", ""
    profile, machine_ = files.read_profile("vgg16"), read_cluster("p3-16xlarge", devices=16)
    for strategy in ("data", "pipeline"):
        plan = make_plan(strategy, profile, machine_, StepSettings(batch_size=512, microbatches=32))
        taken = seconds(partial(run, profile, machine_, plan))
        yield f"VGG-16 on 16 devices, {strategy}, 32 micro-batches", "100 ms", "2 ms", f"{1e3 * taken:.0f} ms", ""
    for names, goal in ((("data", "pipeline"), "500 points/s"), (("data", "pipeline", "layerwise"), "100 points/s")):
        rate = points_per_s(names)
        yield f"sweep of bandwidths: {', '.join(names)}", "8-21 points/s", goal, f"{rate:.0f} points/s of a core", ""
    taken = seconds(lambda: make_plan("hypergraph", profile, machine_, StepSettings(batch_size=512)), repeats=1)
    yield "hypergraph search, VGG-16 on 16 devices", "11-13 s", "2 s", f"{taken:.1f} s", ""


def points_per_s(strategies: Sequence[str]) -> float:
    """Points of a sweep per second of one processor, in the order in which workers take them."""
    axes = {
        "profile": "vgg16",
        "cluster": "p3-16xlarge",
        "strategy": list(strategies),
        "devices": [4, 16],
        "microbatches": [1, 4],
        "inter_bandwidth_bytes_per_s": "1Gbps..100Gbps by x1.05",
    }
    points = expand(Specification(parameters=axes), {name: tuple(options(name)) for name in strategies})
    context = context_of(points, make_plan)
    in_order = [point for lot in lots(points.points) for point in lot]
    return len(in_order) / seconds(lambda: [evaluate(context, point) for point in in_order], repeats=1)


def engine_row(name: str, make: Graph, size: int, goal: str) -> Row:
    """Tasks per second of the engine that runs here, beside those of the reference on a smaller graph."""
    graph, cluster = make(size)
    rate = len(graph) / seconds(lambda: simulate(graph, cluster))
    small, small_cluster = make(max(1, size // 50))
    reference = len(small) / seconds(lambda: simulate(small, small_cluster, engine="reference"), repeats=1)
    return name, "0.1-0.3 M tasks/s", goal, f"{rate / 1e6:.2f} M tasks/s", f"{rate / reference:.0f}"


Step = tuple[Profile, Cluster, Plan]


def run_whole(step: Step) -> None:
    profile, cluster, plan = step
    run(profile, cluster, plan)


def data_parallel(count: int, profile: Profile | None = None, bucket_bytes: int = 0) -> Step:
    """Two samples on each of `count` devices; bucket_bytes 0 is an all-reduce per layer."""
    profile = profile or files.read_profile("resnet50")
    placement = Placement(degrees=(count, 1, 1, 1), devices=tuple(range(count)))
    placements = dict.fromkeys((layer.name for layer in profile.layers), placement)
    synchronisation = Synchronisation(bucket_bytes=bucket_bytes)
    plan = Plan(
        model=profile.model, batch_size=2 * count, placements=placements, synchronisation=synchronisation,
        strategy="data",
    )  # fmt: skip
    return profile, two_tier(count, 8, INTRA, INTER).with_speed(100.0), plan


def row_of_layers(count: int) -> Step:
    """`count` layers with parameters, each reading the one before, on 16 devices."""
    names = [f"layer{number}" for number in range(count)]
    inputs = [(), *((before,) for before, _ in pairwise(names))]
    layers = tuple(
        Layer(
            name=name, kind="linear", inputs=read, output_shape=(64, 1, 1), forward_s=1e-3, backward_s=2e-3,
            update_s=1e-4, parameter_bytes=2**20, output_bytes=32 * 64 * 4,
        )
        for name, read in zip(names, inputs, strict=True)
    )  # fmt: skip
    profile = Profile(model="row", device="none", batch_size=32, layers=layers)
    return data_parallel(16, profile, bucket_bytes=Synchronisation().bucket_bytes)


def stages(count: int, step: Step) -> Row:
    """Processor seconds of each stage of one run."""
    profile, cluster, plan = step
    moments = [process_time()]
    model = ShardedModel(profile, plan)
    graph = lower(model, cluster)
    moments.append(process_time())
    timeline = simulate(graph, cluster)
    moments.append(process_time())
    measure(model, cluster, graph, timeline)
    moments.append(process_time())
    taken = [f"{after - before:.3f} s" for before, after in pairwise(moments)]
    return f"{count:,}", f"{len(graph):,}", *taken, f"{(moments[-1] - moments[0]) / len(graph) * 1e6:.1f}"


def seconds(call: Callable[[], object], repeats: int = 3) -> float:
    """Processor seconds of the best of some runs: what else the machine does counts less."""
    best = float("inf")
    for _ in range(repeats):
        start = process_time()
        call()
        best = min(best, process_time() - start)
    return best


def machine() -> str:
    """The processor's name, as far as the system tells, and how many cores there are."""
    described = Path("/proc/cpuinfo")
    lines = described.read_text().splitlines() if described.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.machine()
    return f"{name}, {os.cpu_count()} cores, {time.strftime('%Y-%m-%d')}"


if __name__ == "__main__":
    main()
