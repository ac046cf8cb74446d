"""Where the time from a plan to its report goes, and how it grows. Usage: python -m benchmarks.speed [--write]

Prints what each piece of work took when the goals were set, its goal and what it takes now; --write makes
docs/performance.md of that, of series of 16 to 16,384 devices and 10 to 10,000 layers, and of whole commands, row by
row as they come: what is not measured yet stands as the page had it. Nothing is asserted: times depend on the machine,
which the page names, and goals are for two cores.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from time import process_time

import numpy as np

from benchmarks import ROOT
from benchmarks.speed.command_times import command_rows
from benchmarks.speed.engine import chains, direct_ring, everyone, incast
from benchmarks.speed.performance_page import TEXT
from benchmarks.studies import hypergraph_steps
from partitioners import make_plan, options
from simulator import files
from simulator.cluster import Cluster
from simulator.collectives.ring import ring_ends
from simulator.engine import simulate
from simulator.engine.noise import Noise
from simulator.language_models.card_files import read_card
from simulator.language_models.modelled_profile import modelled_profile
from simulator.language_models.training_stack import read_stack
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import LoweredModel, lower, lower_once
from simulator.network.catalogue import read_cluster
from simulator.network.topologies import Wire, two_tier
from simulator.plan import Plan, Sharding, StepSettings, Synchronisation
from simulator.report.metrics import measure
from simulator.run import step_report
from simulator.sweep.evaluate import evaluate
from simulator.sweep.points import expand
from simulator.sweep.specification import Specification
from simulator.sweep.sweeping import context_of, lots
from simulator.taskgraph import TaskGraph
from simulator.units import format_time
from simulator.workload import Layer, Profile

PAGE = ROOT / "docs" / "performance.md"
INTER = Wire(bandwidth_bytes_per_s=1.25e9, latency_s=2e-5, tier="inter")
INTRA = Wire(bandwidth_bytes_per_s=1.2e11, latency_s=3e-6, tier="intra")
Row = tuple[str, ...]
Graph = Callable[[int], tuple[TaskGraph, Cluster]]


def main() -> None:
    began_s, writes = time.perf_counter(), "--write" in sys.argv[1:]
    tables = written_tables() if writes else {}
    for name, title, rows in series() if writes else (("work", WORK, work_rows()),):
        earlier, measured = tables.get(name, [])[1:], [title]
        for row in shown(title, rows):
            measured.append(row)
            names = {done[0] for done in measured}
            tables[name] = [*measured, *(old for old in earlier if old[0] not in names)]
            if writes:
                write(tables)
        tables[name] = measured
    if writes:
        write(tables)
    print(f"all of it in {format_time(time.perf_counter() - began_s)}")


WORK = ("work", "goal", "measured", "of the goal", "compiled / reference")


def series() -> Iterator[tuple[str, Row, Iterator[Row]]]:
    """The tables of the page, in its order: name, title and rows."""
    stage, counts = ("lower", "simulate", "measure"), [4**k for k in range(2, 8)]
    yield "work", WORK, work_rows()
    yield "once", ("devices", "tasks simulated", *stage), (stages_once(n, data_parallel(n)) for n in counts)
    yield "devices", ("devices", "tasks", *stage, "us per task"), (stages(n, data_parallel(n)) for n in counts)
    layers = (stages(10**k, row_of_layers(10**k)) for k in range(1, 5))
    yield "layers", ("layers", "tasks", *stage, "us per task"), layers
    yield "commands", ("command", "goal", "measured", "of the goal"), command_rows()


def shown(title: Row, rows: Iterator[Row]) -> Iterator[Row]:
    """The rows as they come, each printed after the title."""
    for number, row in enumerate(chain([title], rows)):
        print("  ".join(f"{cell:<18}" for cell in row), flush=True)
        if number:
            yield row


def written_tables() -> dict[str, list[Row]]:
    """The tables of the page as it stands, by name; none where there is no page."""
    lines = PAGE.read_text(encoding="utf-8").splitlines() if PAGE.exists() else []
    blocks: list[list[Row]] = []
    for before, line in pairwise(["", *lines]):
        if not line.startswith("|"):
            continue
        if not before.startswith("|"):
            blocks.append([])
        if not line.startswith("|---"):
            blocks[-1].append(tuple(cell.strip() for cell in line.strip("|").split("|")))
    return dict(zip(TABLES, blocks, strict=False))


def write(tables: Mapping[str, list[Row]]) -> None:
    """The page with these tables, empty where there is none."""
    texts = {name: table(tables[name]) if name in tables else "" for name in TABLES}
    PAGE.write_text(TEXT.format(machine=machine(), **texts), encoding="utf-8")


TABLES = ("work", "once", "devices", "layers", "commands")


def table(rows: list[Row]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def work_rows() -> Iterator[Row]:
    """What the goals name and this version can do."""
    yield engine_row("engine, nothing contends", chains, 60_000, 10)
    yield engine_row("engine, 3 senders to a receiver", incast, 40_000, 3)
    yield engine_row("engine, 240 messages at a time on a switch", everyone, 100, 3)
    for late, links in ((0.0, "equal links"), (1e-3, "unequal links and stragglers")):
        begin_s = late * np.random.default_rng(1).random(1024)
        cluster = direct_ring(1024, unequal=late > 0)
        taken = seconds(partial(ring_ends, cluster, range(1024), 1e8, begin_s))
        yield time_row(f"ring all-reduce of 1,024 ranks, message by message, {links}", 0.01, taken)
    for count, goal_s in ((1024, 0.5), (16_384, 1.0)):
        taken = seconds(partial(report_once, data_parallel(count)), repeats=1)
        yield time_row(f"ResNet-50, all-reduce per layer, {count:,} devices", goal_s, taken)
    late_device = Noise(stragglers={5: 1.5})
    taken = seconds(partial(report_once, data_parallel(16_384), late_device), repeats=1)
    yield time_row("the same with a straggler", 5.0, taken)
    yield from transformer_rows()
    yield from plan_rows()
    for names, goal in ((("data", "pipeline"), 500), (("data", "pipeline", "layerwise"), 100)):
        rate = points_per_s(names)
        now, share = f"{rate:.0f} points/s of a core", f"{rate / goal:.2g}"
        yield f"sweep of bandwidths: {', '.join(names)}", f"{goal} points/s", now, share, ""
    profile, machine_ = files.read_profile("vgg16"), read_cluster("p3-16xlarge", devices=16)
    taken = seconds(lambda: make_plan("hypergraph", profile, machine_, StepSettings(batch_size=512)), repeats=1)
    yield time_row("hypergraph search, VGG-16 on 16 devices", 2.0, taken)
    yield from hypergraph_steps.rows()


def plan_rows() -> Iterator[Row]:
    """One plan from Profile to Report: the first of a profile, and a further one, which finds costs known."""
    machine_ = read_cluster("p3-16xlarge", devices=16)
    for strategy in ("data", "pipeline"):
        name, times = f"VGG-16 on 16 devices, {strategy}, 32 micro-batches", []
        for _ in range(3):
            profile = files.read_profile("vgg16")
            plan = make_plan(
                strategy, files.read_profile("vgg16"), machine_, StepSettings(batch_size=512, microbatches=32)
            )
            times.append(seconds(partial(step_report, profile, machine_, plan), repeats=1))
        yield time_row(f"{name}, the profile's first plan", 2e-3, min(times))
        yield time_row(f"{name}, a further plan", 2e-3, seconds(partial(step_report, profile, machine_, plan)))


def transformer_rows() -> Iterator[Row]:
    """80 layers on 512 devices: tensor 8 x pipeline 8 x data 8, 32 micro-batches, with either engine."""
    profile = modelled_profile(read_card("llama3-70b"), read_stack("nanotron-h100"))
    cluster = read_cluster("dgx-h100", devices=512)
    step = StepSettings(batch_size=256, microbatches=32)
    plan = make_plan("megatron", profile, cluster, step, tensor=8, pipeline=8)
    name = "80-layer transformer, 512 devices, 32 micro-batches"
    yield time_row(name, 0.2, seconds(partial(step_report, profile, cluster, plan), repeats=2))
    graph = lower_once(profile, plan, cluster).graph
    taken = seconds(lambda: simulate(graph, cluster, engine="reference"), repeats=1)
    yield time_row(f"the same, SimPy alone ({len(graph):,} of its tasks)", 2.0, taken)


def points_per_s(strategies: Sequence[str]) -> float:
    """Points of a sweep per second of one processor, in the order in which workers take them."""
    axes = {
        "profile": "vgg16",
        "cluster": "p3-16xlarge",
        "strategy": list(strategies),
        "devices": [4, 16],
        "batch_size": 512,  # a default of 8 leaves nothing to simulate on most of these devices
        "microbatches": [1, 4],
        "inter_bandwidth_bytes_per_s": "1Gbps..100Gbps by x1.05",
    }
    points = expand(Specification(parameters=axes), {name: tuple(options(name)) for name in strategies})
    context = context_of(points, make_plan)
    in_order = [point for lot in lots(points.points) for point in lot]
    return len(in_order) / seconds(lambda: [evaluate(context, point) for point in in_order], repeats=1)


def engine_row(name: str, make: Graph, size: int, goal: float) -> Row:
    """Tasks per second of the engine that runs here, beside those of the reference on a smaller graph.

    goal: in millions.
    """
    graph, cluster = make(size)
    rate = len(graph) / seconds(lambda: simulate(graph, cluster))
    small, small_cluster = make(max(1, size // 50))
    reference = len(small) / seconds(lambda: simulate(small, small_cluster, engine="reference"), repeats=1)
    now, share = f"{rate / 1e6:.2f} M tasks/s", f"{rate / 1e6 / goal:.2g}"
    return name, f"{goal} M tasks/s", now, share, f"{rate / reference:.0f}"


def time_row(name: str, goal_s: float, taken_s: float) -> Row:
    return name, format_time(goal_s), format_time(taken_s), f"{goal_s / taken_s:.2g}", ""


Step = tuple[Profile, Cluster, Plan]


def report_once(step: Step, noise: Noise | None = None) -> None:
    profile, cluster, plan = step
    step_report(profile, cluster, plan, noise=noise)


def data_parallel(count: int, profile: Profile | None = None, bucket_bytes: int = 0) -> Step:
    """Two samples on each of `count` devices; bucket_bytes 0 is an all-reduce per layer."""
    profile = profile or files.read_profile("resnet50")
    sharding = Sharding(degrees=(count, 1, 1, 1), devices=tuple(range(count)))
    placements = dict.fromkeys((layer.name for layer in profile.layers), sharding)
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
    """Processor seconds of each stage of one run, task by task."""
    profile, cluster, plan = step
    model = ShardedModel(profile, plan)
    tasks, taken = timed(lambda: LoweredModel(model, lower(model, cluster)), cluster)
    return f"{count:,}", f"{tasks:,}", *(f"{value:.3f} s" for value in taken), f"{sum(taken) / tasks * 1e6:.1f}"


def stages_once(count: int, step: Step) -> Row:
    """The same with equal replicas and ranks once."""
    profile, cluster, plan = step
    tasks, taken = timed(lambda: lower_once(profile, plan, cluster), cluster)
    return f"{count:,}", f"{tasks:,}", *(f"{value:.3f} s" for value in taken)


def timed(make: Callable[[], LoweredModel], cluster: Cluster) -> tuple[int, list[float]]:
    """How many tasks are simulated, and processor seconds of lowering, simulating and measuring them."""
    moments = [process_time()]
    model, graph = make()
    moments.append(process_time())
    timeline = simulate(graph, cluster)
    moments.append(process_time())
    measure(model, cluster, graph, timeline)
    moments.append(process_time())
    return len(graph), [after - before for before, after in pairwise(moments)]


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
