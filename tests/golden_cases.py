"""The cases of tests/test_golden.py, and the only code there that builds inputs of the simulator.

A case is plain data. When the interface of the simulator changes, one of the functions below changes, or one of
`golden_values`, which read results, and no case does.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from itertools import pairwise
from math import prod
from typing import Any

import small_networks
from tori import ring, torus

import partitioners
from simulator import files
from simulator.cluster import Cluster, Device, Link
from simulator.curve import Curve
from simulator.engine.noise import Noise
from simulator.network.catalogue import read_cluster
from simulator.network.topologies import Wire, flat_switch, two_tier
from simulator.plan import Plan, Sharding, Synchronisation, split_settings
from simulator.report.metrics import Report
from simulator.run import Run, run
from simulator.runtime import Runtime
from simulator.taskgraph import TaskGraph
from simulator.timeline import Timeline
from simulator.workload import Profile

Options = Mapping[str, Any]
TEN_GIGABIT = Wire(bandwidth_bytes_per_s=1.25e9, latency_s=2e-5, tier="inter")
NVLINK = Wire(bandwidth_bytes_per_s=1.2e11, latency_s=3e-6, tier="intra")


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenCase:
    """One simulated step. profile: of the library, or "branches"; the others are options of the function they go to.

    needs: a module without which the plan cannot be made.
    """

    name: str
    profile: str
    cluster: Options
    plan: Options
    runtime: Options = field(default_factory=dict)
    noise: Options = field(default_factory=dict)
    needs: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """The inputs of a case and what became of them."""

    profile: Profile
    cluster: Cluster
    plan: Plan
    runtime: Runtime
    graph: TaskGraph
    timeline: Timeline
    report: Report

    @property
    def run(self) -> Run:
        return Run(plan=self.plan, runtime=self.runtime, graph=self.graph, timeline=self.timeline, report=self.report)


def simulated(case: GoldenCase) -> Simulated:
    """Build the inputs of `case` and simulate one step."""
    profile, cluster = make_profile(case.profile), make_cluster(**case.cluster)
    runtime = make_runtime(case.runtime)
    plan = make_plan(profile, cluster, **case.plan)
    noise = Noise(**case.noise) if case.noise else None
    done = run(profile, cluster, plan, runtime=runtime, noise=noise)
    return Simulated(
        profile=profile,
        cluster=cluster,
        plan=plan,
        runtime=runtime,
        graph=done.graph,
        timeline=done.timeline,
        report=done.report,
    )


@cache
def make_profile(name: str) -> Profile:
    """A profile of the library, or a small network with a residual block and two branches."""
    return small_networks.branches() if name == "branches" else files.read_profile(name)


def make_cluster(
    preset: str = "",
    *,
    line_rate: bool = True,
    devices: int = 4,
    servers: int = 0,
    shape: str = "switch",
    wire: Wire = TEN_GIGABIT,
    speed: float = 1.0,
    speeds: tuple[float, ...] = (),
    cores: float | None = None,
    memory_bytes: int | None = None,
    link_curve: tuple[tuple[float, float], ...] = (),
    all_reduce: tuple[tuple[float, float], ...] = (),
) -> Cluster:
    """A preset, or workers joined in a `shape`.

    line_rate: of the preset's links, without its library; otherwise it is as users get it, with measured shares.
    speed: of all devices; speeds: of each worker, times that. cores: of every host. link_curve, all_reduce: measured
    (bytes, seconds) points of every link and of the collective.
    """
    if preset:
        cluster = read_cluster(preset, devices=devices, servers=servers)
        cluster = _at_line_rate(cluster) if line_rate else cluster
    else:
        cluster = _shaped(shape, devices, servers, wire)
    collectives = {} if line_rate else cluster.collectives
    factors = [speed * factor for factor in (speeds or (1.0,) * cluster.workers)]
    factors += [speed] * len(cluster.servers)
    members = [replace(d, speed=d.speed * factor) for d, factor in zip(cluster.devices, factors, strict=True)]
    if memory_bytes:
        members = [replace(device, memory_bytes=memory_bytes) for device in members]
    links = [replace(link, curve=Curve(points=link_curve)) if link_curve else link for link in cluster.links]
    return replace(
        cluster,
        devices=tuple(members),
        links=tuple(links),
        host_cores={d.host: cores for d in members} if cores else cluster.host_cores,
        library=None if line_rate else cluster.library,
        collectives={"all_reduce": {cluster.workers: Curve(points=all_reduce)}} if all_reduce else collectives,
    )


def _at_line_rate(cluster: Cluster) -> Cluster:
    for tier in cluster.tiers:
        cluster = cluster.with_efficiency(tier, 1.0, "as asked for")
    return cluster


def _shaped(shape: str, devices: int, servers: int, wire: Wire) -> Cluster:
    if shape == "torus":
        return torus((2, devices // 2), wire, servers=servers)
    if shape == "nodes":
        return two_tier(devices, 4, NVLINK, wire, servers=servers)
    if shape == "line":
        gpus = tuple(Device(name=f"gpu{i}", host=f"gpu{i}") for i in range(devices))
        hops = [hop for a, b in pairwise(gpus) for hop in ((a.name, b.name), (b.name, a.name))]
        return Cluster(
            name="graph", devices=gpus, links=tuple(Link(source=a, target=b, **asdict(wire)) for a, b in hops)
        )
    return (ring if shape == "ring" else flat_switch)(devices, wire, servers=servers)


def make_runtime(habits: Options) -> Runtime:
    """The runtime of a case; where messages meet their receivers gradients are divided, as torch's pipelines do."""
    return Runtime(**habits, gradient_scaling=2 / 8 if habits.get("rendezvous") else 0.0)


def make_plan(profile: Profile, cluster: Cluster, *, strategy: str, sync: Options | None = None, **own: Any) -> Plan:
    """The plan of a strategy, or a "random" or "written" one; own: batch_size and options of the strategy."""
    synchronisation = Synchronisation(**(sync or {}))
    if strategy in ("random", "written"):
        make = random_placements if strategy == "random" else written_placements
        placements = make(profile, cluster.workers, **{key: own.pop(key) for key in ("seed", "shares") if key in own})
        return Plan(model=profile.model, placements=placements, synchronisation=synchronisation, **own)
    step, own = split_settings({**own, "synchronisation": synchronisation})
    return partitioners.make_plan(strategy, profile, cluster, step, **own)


def random_placements(profile: Profile, workers: int, seed: int) -> dict[str, Sharding]:
    """Up to 2 parts by sample and 3 by channel, height and width of every layer, each on any worker."""
    drawn = random.Random(seed)
    placements = {}
    for layer in profile.layers:
        extents = (2, *(min(3, extent) for extent in layer.output_shape))
        degrees = tuple(int(drawn.random() * extent) + 1 for extent in extents)
        devices = tuple(int(drawn.random() * workers) for _ in range(prod(degrees)))
        placements[layer.name] = Sharding(degrees=degrees, devices=devices)  # type: ignore[arg-type]
    return placements


def written_placements(profile: Profile, workers: int, shares: tuple[int, ...]) -> dict[str, Sharding]:
    """Every layer by sample, unequally: shares[i] samples on worker i."""
    sharding = Sharding(degrees=(workers, 1, 1, 1), devices=tuple(range(workers)), samples=shares)
    return {layer.name: sharding for layer in profile.layers}
