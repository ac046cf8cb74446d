"""Tasks per second of both engines, and of the columns that they read.

Usage: python -m benchmarks.speed.engine [FACTOR]

Graphs without contention (chains of compute on every device, pipelines) and with it (a ring all-reduce message by
message, random messages on a switch). "whole" is simulate(), columns included. FACTOR multiplies the numbers of tasks
that the compiled engine runs; the reference engine runs a smaller graph of the same form. Nothing is asserted: the
targets are for two cores.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from simulator.cluster import Cluster, Device, Link
from simulator.engine import ENGINES, engine_name, simulate
from simulator.engine.columns import make_columns
from simulator.lowering.tasks.graph_builder import GraphBuilder
from simulator.runtime import IDEAL
from simulator.taskgraph import Kind, TaskGraph

REFERENCE_SHARE = 50
"""How many times fewer tasks the reference engine is given."""


def main() -> None:
    factor = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    print("million tasks a second of one core; the target is for the whole")
    print(
        f"{'graph':<58} {'tasks':>9} {'columns':>10} {'compiled':>10} {'whole':>10} {'reference':>10}  target of whole"
    )
    for name, make, size, target in GRAPHS:
        show(name, make, max(1, round(size * factor)), target)


def chains(length: int) -> tuple[TaskGraph, Cluster]:
    """16 devices, each with a chain of `length` compute tasks of unequal seconds."""
    devices, rng = 16, np.random.default_rng(1)
    builder = GraphBuilder()
    tasks = builder.add(
        Kind.FORWARD, devices * length, device=np.tile(np.arange(devices), length), seconds=rng.random(devices * length)
    )
    builder.depend(tasks[devices:], tasks[:-devices])
    return builder.build(np.zeros(devices), ()), star(devices)


def layers(length: int) -> tuple[TaskGraph, Cluster]:
    """`length` layers of 16 tasks, one per device and each waiting for two of the layer before."""
    devices = 16
    builder = GraphBuilder()
    tasks = builder.add(Kind.FORWARD, devices * length, device=np.tile(np.arange(devices), length), seconds=1e-3)
    rows = tasks.reshape(length, devices)
    builder.depend(rows[1:].ravel(), rows[:-1].ravel())
    builder.depend(rows[1:].ravel(), np.roll(rows[:-1], 1, axis=1).ravel())
    return builder.build(np.zeros(devices), ()), star(devices)


def pipeline(microbatches: int) -> tuple[TaskGraph, Cluster]:
    """Forward passes of micro-batches through 16 stages with a message between two stages; no two messages meet."""
    stages = 16
    builder = GraphBuilder()
    passes = builder.add(
        Kind.FORWARD,
        stages * microbatches,
        device=np.tile(np.arange(stages), microbatches),
        seconds=1e-3,
        priority=np.repeat(np.arange(microbatches), stages),
    ).reshape(microbatches, stages)
    target = np.tile(np.arange(1, stages), microbatches)
    routes = builder.message_routes(target - 1, target)
    sent = builder.add(Kind.ACTIVATION, len(target), device=target, route=routes, bytes=1e4)
    builder.depend(sent, passes[:, :-1].ravel())
    builder.depend(passes[:, 1:].ravel(), sent)
    return builder.build(np.zeros(stages), ()), star(stages)


def ring(ranks: int, unequal: bool = False) -> tuple[TaskGraph, Cluster]:
    """A ring all-reduce of 100 MB, message by message: in each of 2 (ranks - 1) rounds one to the next neighbour."""
    rounds = 2 * (ranks - 1)
    builder = GraphBuilder()
    routes = builder.message_routes(np.arange(ranks), (np.arange(ranks) + 1) % ranks)
    sent = builder.add(
        Kind.SYNCHRONISATION,
        rounds * ranks,
        device=np.tile((np.arange(ranks) + 1) % ranks, rounds),
        route=np.tile(routes, rounds),
        bytes=1e8 / ranks,
    ).reshape(rounds, ranks)
    builder.depend(sent[1:].ravel(), np.roll(sent[:-1], 1, axis=1).ravel())
    return builder.build(np.zeros(ranks), ()), direct_ring(ranks, unequal)


def pairs(length: int) -> tuple[TaskGraph, Cluster]:
    """8 pairs of devices, 4 messages at a time on every link: every transfer contends, with others of its route."""
    return messages(length, np.arange(8) * 2, np.arange(8) * 2 + 1, lanes=4)


def incast(length: int) -> tuple[TaskGraph, Cluster]:
    """4 groups of 4 devices, of which 3 send to the fourth: every transfer contends with those of other routes."""
    sources = np.array([4 * group + k for group in range(4) for k in range(3)])
    return messages(length, sources, sources // 4 * 4 + 3, lanes=1)


def everyone(length: int) -> tuple[TaskGraph, Cluster]:
    """16 devices, each sends to every other at all times: 240 messages share 32 links."""
    grid = [(a, b) for a in range(16) for b in range(16) if a != b]
    return messages(length, np.array([a for a, _ in grid]), np.array([b for _, b in grid]), lanes=1)


def messages(length: int, sources: np.ndarray, targets: np.ndarray, lanes: int) -> tuple[TaskGraph, Cluster]:
    """On a switch, `lanes` chains of `length` messages of unequal bytes from each source to its target."""
    devices, rng = 16, np.random.default_rng(1)
    builder = GraphBuilder()
    routes = np.tile(np.repeat(builder.message_routes(sources, targets), lanes), length)
    width = len(sources) * lanes
    sent = builder.add(
        Kind.ACTIVATION,
        width * length,
        device=np.tile(np.repeat(targets, lanes), length),
        route=routes,
        bytes=rng.uniform(1e5, 1e6, width * length),
    )
    builder.depend(sent[width:], sent[:-width])
    return builder.build(np.zeros(devices), ()), star(devices)


def star(count: int) -> Cluster:
    """Devices on one switch of 10 Gb/s links."""
    devices = tuple(Device(name=f"d{i}", host=f"h{i}") for i in range(count))
    links = tuple(
        Link(source=a, target=b, bandwidth_bytes_per_s=1.25e9, latency_s=1e-5)
        for device in devices
        for a, b in ((device.name, "switch"), ("switch", device.name))
    )
    return Cluster(name="star", devices=devices, links=links)


def direct_ring(count: int, unequal: bool) -> Cluster:
    """Devices in a one-way ring of 50 GiB/s links, or of 25 to 50."""
    rng = np.random.default_rng(1)
    devices = tuple(Device(name=f"d{i}", host=f"h{i}") for i in range(count))
    links = tuple(
        Link(
            source=f"d{i}",
            target=f"d{(i + 1) % count}",
            bandwidth_bytes_per_s=50 * 2**30 * (float(rng.uniform(0.5, 1.0)) if unequal else 1.0),
            latency_s=500e-9,
        )
        for i in range(count)
    )
    return Cluster(name="ring", devices=devices, links=links)


GRAPHS: tuple[tuple[str, Callable[[int], tuple[TaskGraph, Cluster]], int, str], ...] = (
    ("chains of compute on 16 devices", chains, 60_000, "10"),
    ("layers of compute on 16 devices, all at one pace", layers, 60_000, "10"),
    ("pipeline of 16 stages with messages, nothing contends", pipeline, 30_000, "10"),
    ("ring all-reduce, message by message, 512 equal links", lambda factor: ring(32 * factor), 16, ""),
    ("the same, unequal links", lambda factor: ring(32 * factor, unequal=True), 16, ""),
    ("4 messages at a time on each of 8 routes", pairs, 30_000, "3"),
    ("3 senders to each of 4 receivers", incast, 80_000, "3"),
    ("240 messages at a time among 16 devices on a switch", everyone, 250, "3"),
)


def show(name: str, make: Callable[[int], tuple[TaskGraph, Cluster]], size: int, target: str) -> None:
    graph, cluster = make(size)
    columns_s = seconds(lambda: make_columns(graph, cluster, IDEAL))
    columns = make_columns(graph, cluster, IDEAL)
    compiled_s = seconds(lambda: ENGINES["compiled"](columns)) if engine_name() == "compiled" else float("nan")
    whole_s = seconds(lambda: simulate(graph, cluster, IDEAL))
    small, small_cluster = make(max(1, size // REFERENCE_SHARE))
    reference_s = seconds(lambda: simulate(small, small_cluster, IDEAL, engine="reference"), repeats=1)
    rates = [len(graph) / columns_s, len(graph) / compiled_s, len(graph) / whole_s, len(small) / reference_s]
    shown = "".join(f" {rate / 1e6:>10.3g}" for rate in rates)
    print(f"{name:<58} {len(graph):>9,}{shown}  {target}", flush=True)


def seconds(call: Callable[[], object], repeats: int = 3) -> float:
    """Processor seconds of the best of some runs: what else the machine does counts less."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        call()
        best = min(best, time.process_time() - start)
    return best


if __name__ == "__main__":
    main()
