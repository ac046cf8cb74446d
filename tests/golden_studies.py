"""Studies that tests/test_golden.py records: what is worked out from many simulated steps, as plain values.

Each is a function without arguments, (step seconds or another telling number, all values).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from golden_cases import GoldenCase, make_cluster, make_plan, make_profile, simulated
from golden_list import NODES, SWITCH, case, pipeline, synchronised
from golden_values import graph_values, timeline_values

from simulator.cluster import Cluster
from simulator.curve import Curve
from simulator.elastic.job import simulate_job
from simulator.elastic.movement import Placed, movement
from simulator.elastic.reconfiguration import Overheads
from simulator.elastic.scenario import Event, Scenario
from simulator.plan import Plan, Synchronisation
from simulator.run import step_seconds
from simulator.studies.accumulation import choices
from simulator.studies.architectures import architecture
from simulator.studies.asynchronous import run_asynchronously
from simulator.studies.bottleneck import find_bottleneck
from simulator.studies.explain import explain
from simulator.studies.scaling import ScalingStudy, scale
from simulator.studies.what_if import Gain, gains

StudyValues = tuple[float, Any]
OVERHEADS = Overheads(
    stop_s=0.5,
    launch_s=1.0,
    framework_s=8.0,
    leave_s={1: 0.0, 8: 0.1},
    group_s={1: 0.05, 8: 2.0, 32: 4.1},
    checkpoint_write=Curve(points=((1e6, 0.05), (1e9, 2.0))),
    checkpoint_read=Curve(points=((1e6, 0.05), (1e9, 2.0))),
    detect_s=5.0,
)
POINT = (
    "devices",
    "batch_size",
    "step_s",
    "samples_per_s",
    "speedup",
    "efficiency",
    "communication_share",
    "exposed_communication_s",
    "sent_bytes",
    "epoch_s",
    "dollars_per_epoch",
)
INCIDENT = (
    "at_s",
    "parts_s",
    "beside_s",
    "lost_step_s",
    "again_s",
    "lost_samples",
    "repeated_samples",
    "moved_bytes",
    "devices",
    "samples_per_s",
)
EVENTS = (
    Event(at="10min", event="join", devices=("gpu4", "gpu5")),
    Event(at="20min", event="slow", devices=("gpu1",), to=0.5),
    Event(at="30min", event="leave", devices=("gpu0",), notice="1min"),
    Event(at="40min", event="narrow", tier="inter", to=0.25),
    Event(at="50min", event="vanish", devices=("gpu5",)),
)


def _gains(speedups: list[Gain] | tuple[Gain, ...]) -> Any:
    return [[gain.resource, gain.speedup] for gain in speedups]


def _asynchronous(staleness: int | None, collective: str, servers: int, overlap: bool = True) -> StudyValues:
    profile = make_profile("alexnet")
    cluster = make_cluster(**{**SWITCH, "servers": servers, "speeds": (1.0, 0.7, 1.0, 1.3)})
    plan = make_plan(profile, cluster, **{**synchronised(collective, overlap=overlap), "balance": False})
    slowdown = np.linspace(1.0, 1.4, 4 * 6).reshape(4, 6)  # (workers, steps)
    steps = run_asynchronously(profile, cluster, plan, staleness=staleness, steps=6, slowdown=slowdown)
    columns = ("ends_s", "steps_per_s", "worker_samples", "compute_s")
    values = {name: getattr(steps, name) for name in columns}
    return steps.timeline.step_s, [values, graph_values(steps.graph), timeline_values(steps.timeline)]


def _helped(golden: GoldenCase) -> StudyValues:
    """What would help: gains, bottleneck and explanation of one plan."""
    done = simulated(golden)

    def step_s(changed: Cluster) -> float:
        return step_seconds(done.profile, changed, done.plan, done.runtime)

    evidence = find_bottleneck(done.graph, done.cluster, done.timeline, step_s)
    explanation = explain(done.profile, done.cluster, done.run)
    crossings = [
        [use.name, use.forward_bytes, use.backward_bytes, use.synchronisation_bytes] for use in explanation.crossings
    ]
    return done.timeline.step_s, {
        "gains": _gains(gains(done.profile, done.cluster, done.plan, done.runtime)),
        "bottleneck": [evidence.resource, evidence.name, evidence.busy, evidence.path_share, evidence.kind_share],
        "bottleneck_gains": _gains(evidence.gains),
        "splits": [[first, last] for first, last, _ in explanation.splits],
        "crossings": crossings,
        "explained_gains": _gains(explanation.gains),
    }


def _job(policy: str, checkpoint_every: str, strategy: str = "data") -> StudyValues:
    """A job of an hour to which everything happens, on 4 to 6 of 8 devices."""
    profile, cluster = make_profile("vgg_small"), make_cluster(devices=8, speed=10.0)
    names = {f"gpu{i}": device.name for i, device in enumerate(cluster.devices)}
    events = tuple(replace(event, devices=tuple(names[name] for name in event.devices)) for event in EVENTS)

    def plan_of(present: Cluster, before: Plan | None) -> Plan:
        return make_plan(profile, present, strategy=strategy, batch_size=60)

    scenario = Scenario(
        profile="-",
        cluster="-",
        overheads="-",
        duration="1h",
        start=tuple(names[f"gpu{i}"] for i in range(4)),
        events=events,
        checkpoint_every=checkpoint_every,
    )
    account = simulate_job(scenario, profile, cluster, OVERHEADS, plan_of, policy)
    incidents = [[getattr(incident, name) for name in INCIDENT] for incident in account.incidents]
    segments = [[x.start_s, x.end_s, x.devices, x.samples_per_s] for x in account.segments]
    totals = [account.duration_s, account.samples, account.dollars, account.lost_s]
    return float(account.samples), [totals, segments, incidents]


def _scaling(weak: bool, *names: str) -> StudyValues:
    profile = make_profile("alexnet")

    def plan_of(cluster: Cluster, batch_size: int, synchronisation: Synchronisation) -> Plan:
        plan = make_plan(profile, cluster, strategy="data", batch_size=batch_size)
        return replace(plan, synchronisation=synchronisation)

    study = ScalingStudy(
        profile=profile,
        cluster_of=lambda devices, servers: make_cluster("t4-g4dn", devices=devices, servers=servers, speed=20.0),
        plan_of=plan_of,
        batch_size=32 if weak else 128,
        weak=weak,
        epoch_samples=1_281_167,
    )
    kinds = [architecture(name, Synchronisation()) for name in names]
    points = list(scale(study, kinds, (1, 4)))
    uses = [[[u.name, u.utilisation, u.peak_memory_bytes, u.bytes_per_s] for u in point.uses] for point in points]
    bottlenecks = [point.bottleneck and [point.bottleneck.name, point.bottleneck.busy] for point in points]
    return points[-1].step_s, [[[getattr(point, name) for name in POINT] for point in points], uses, bottlenecks]


def _accumulation() -> StudyValues:
    profile, cluster = make_profile("vgg16"), make_cluster(**SWITCH)

    def plan_of(count: int) -> Plan:
        return make_plan(profile, cluster, strategy="data", batch_size=64, microbatches=count)

    candidates = choices(profile, cluster.with_memory(8 * 2**30), plan_of, 64, workers=8)
    return candidates[0].step_s, [
        [x.microbatches, x.step_s, x.peak_memory_bytes, x.fits, x.whole_shares] for x in candidates
    ]


def _movement() -> StudyValues:
    """From data parallelism over four devices to a pipeline over six, without device 2."""
    profile, cluster = make_profile("vgg16"), make_cluster(**NODES)
    old = make_plan(profile, make_cluster(**SWITCH), strategy="data", batch_size=32)
    new = make_plan(profile, make_cluster(**{**SWITCH, "devices": 6}), **pipeline("1f1b"))
    before, after = Placed(plan=old, members=(0, 1, 2, 3)), Placed(plan=new, members=(5, 1, 6, 3, 0, 7))
    moved = movement(profile, cluster, before, after, available=(0, 1, 3))
    messages = [[x.source, x.target, x.bytes, x.after] for x in moved.messages]
    return moved.seconds(cluster), [messages, moved.lost_bytes]


STUDIES: Mapping[str, Callable[[], StudyValues]] = {
    "asynchronous servers": lambda: _asynchronous(None, "ps", 2),
    "bounded staleness": lambda: _asynchronous(1, "ps", 1, overlap=False),
    "asynchronous workers serve": lambda: _asynchronous(None, "ps-workers", 0),
    "help for data parallelism": lambda: _helped(case("", "vgg16", NODES, synchronised("ring"))),
    "help for servers": lambda: _helped(case("", "alexnet", {**SWITCH, "servers": 1}, synchronised("ps"))),
    "help for a pipeline": lambda: _helped(case("", "vgg16", SWITCH, pipeline("1f1b"), pass_overhead_s=1e-3)),
    "job changes live": lambda: _job("live", "7min"),
    "job restarts": lambda: _job("restart", "5min"),
    "job of pipelines": lambda: _job("live", "", strategy="pipeline"),
    "weak scaling": lambda: _scaling(True, "ring", "ps:2", "ps-workers", "ps-async"),
    "strong scaling": lambda: _scaling(False, "tree", "ps-ssp"),
    "accumulation": _accumulation,
    "movement": _movement,
}
