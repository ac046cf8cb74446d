"""Memory over a step, change by change, as its definition says: random plans, with hosts that launch ahead or not."""

from __future__ import annotations

from dataclasses import replace

import laws
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_inputs import clusters, plans, profiles
from small_networks import chain, switched

from simulator.cluster import Cluster, Device
from simulator.parameter_states import REPLICATED, ParameterStates
from simulator.plan import Plan, Sharding, Synchronisation
from simulator.report.memory import BORDER, launched_s, most_bytes, peak_bytes, usage, verdict
from simulator.run import run
from simulator.runtime import Runtime
from simulator.taskgraph import Kind, TaskGraph
from simulator.timeline import Timeline
from simulator.units import format_bytes
from simulator.workload import Profile

pytestmark = pytest.mark.usefixtures("engine")


@st.composite
def cases(draw: st.DrawFn) -> tuple[Profile, Cluster, Plan, Runtime]:
    profile, cluster = draw(profiles(min_layers=2)), draw(clusters(max_servers=1))
    plan = replace(
        draw(plans(profile, cluster, every_collective=True, every_axis=True)),
        exchange=draw(st.sampled_from(("messages", "collectives"))),
        states=draw(st.sampled_from((REPLICATED, ParameterStates(stage=3)))),
    )
    runtime = Runtime(name="launched", forward_launch_s=1e-4, backward_launch_s=2e-4, launch_depth=64)
    return profile, cluster, plan, draw(st.sampled_from((Runtime(), runtime)))


@settings(max_examples=laws.examples(40, 400))
@given(cases(), st.floats(0.3, 1.5))
def test_peaks_are_the_most_that_any_moment_holds(case: tuple[Profile, Cluster, Plan, Runtime], share: float) -> None:
    profile, cluster, plan, runtime = case
    done = run(profile, cluster, plan, runtime=runtime)
    graph, timeline = done.graph, done.timeline
    launched = graph.launch_depth > 0 and graph.is_launched
    plain, early = (
        [most_of(*changes_of(graph, timeline, device, ahead=ahead)) for device in range(len(cluster.devices))]
        for ahead in (False, launched)
    )
    sized = cluster.with_memory(max(1, int(share * max(early))))
    full = BORDER * (sized.devices[0].memory_bytes or 0)
    expected = [max(a, min(b, full)) if launched else a for a, b in zip(plain, early, strict=True)]
    assert peak_bytes(graph, timeline, sized).tolist() == pytest.approx(expected)
    for device, most in enumerate(expected):
        times, level = usage(graph, timeline, sized, device)
        assert level.max() == pytest.approx(most) and times[0] == 0.0 and level[0] == graph.static_bytes[device]
        if not launched or share > 1.2:
            static, changes = changes_of(graph, timeline, device, ahead=launched)
            for at in (0.0, *np.linspace(0, timeline.step_s, 7)[1:-1] * 1.0001):
                held = static + sum(change for when, change in changes if when <= at)
                assert level[np.searchsorted(times, at, side="right") - 1] == pytest.approx(held, abs=1e-3)
    taken = [
        static + sum(max(change, 0.0) for _, change in changes)
        for static, changes in (changes_of(graph, timeline, each, ahead=False) for each in range(len(cluster.devices)))
    ]
    assert most_bytes(graph, len(cluster.devices)).tolist() == pytest.approx(taken)


def changes_of(
    graph: TaskGraph, timeline: Timeline, device: int, *, ahead: bool
) -> tuple[float, list[tuple[float, float]]]:
    """What a device holds all the time, and (s, bytes) of every change, at each moment what is given back first."""
    begins, ends = timeline.start_s.tolist(), timeline.end_s.tolist()
    launched = launched_s(graph, timeline).tolist() if ahead else []
    changes = []
    for task in np.flatnonzero(graph.device == device).tolist():
        changes += [(ends[task], -float(graph.freed_bytes[task])), (begins[task], float(graph.allocated_bytes[task]))]
    elsewhere = zip(
        graph.allocation_task.tolist(), graph.allocation_device, graph.allocation_bytes.tolist(), strict=True
    )
    readers = [task for task in range(len(graph)) if graph.route[task] < 0 and graph.device[task] == device]
    for task, its, size in elsewhere:
        if its != device:
            continue
        when = ends[task] if size < 0 else begins[task]
        if ahead and size >= 0 and graph.kind[task] in (Kind.ACTIVATION, Kind.GRADIENT):
            first = next((reader for reader in readers if task in graph.predecessors(reader)), None)
            when = when if first is None else min(when, launched[first])
        changes.append((when, size))
    return float(graph.static_bytes[device]), changes


def most_of(static: float, changes: list[tuple[float, float]]) -> float:
    held = most = static
    for _, change in sorted(changes):
        held += change
        most = max(most, held)
    return most


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.sampled_from((None, 2, 4, 8))), min_size=1, max_size=3)
)
def test_a_verdict_is_of_the_fullest_device(drawn: list[tuple[int, int, int | None]]) -> None:
    """Of each device what it holds all the time and what it allocates at most beside it, and its memory."""
    devices = tuple(Device(name=f"d{i}", host="h", memory_bytes=size) for i, (_, _, size) in enumerate(drawn))
    static, peaks = np.array([float(a) for a, _, _ in drawn]), np.array([float(a + b) for a, b, _ in drawn])
    fit, words = verdict(static, Cluster(name="any", devices=devices), peaks)
    shares = [peak / size if size else 0.0 for peak, (_, _, size) in zip(peaks.tolist(), drawn, strict=True)]
    fullest = max(shares)
    assert fit == ("does not fit" if fullest > 1 else "border" if fullest > BORDER else "fits")
    assert bool(words) == (fit != "fits")
    if words:
        worst = shares.index(fullest)
        assert f" d{worst} needs {format_bytes(peaks[worst])} of {format_bytes(drawn[worst][2] or 0)}" in words
        assert ("mostly saved activations" in words) == (drawn[worst][0] <= drawn[worst][1])


@settings(max_examples=laws.examples(15, 60))
@given(st.integers(2, 4), st.lists(st.integers(1, 9), min_size=2, max_size=4), st.booleans(), st.integers(1, 3))
def test_gathered_parameters_are_held_beside_a_share_of_them(
    devices: int, sizes: list[int], kept: bool, microbatches: int
) -> None:
    """ZeRO-3: of each layer what others hold, taken for the forward and again for the backward pass, or once for both,
    and given back after."""
    layers = tuple(
        replace(layer, parameter_bytes=1200 * size)
        for layer, size in zip(chain([1.0] * len(sizes)).layers, sizes, strict=True)
    )
    profile = replace(chain([1.0] * len(sizes)), layers=layers)
    sharding = Sharding(degrees=(devices, 1, 1, 1), devices=tuple(range(devices)))
    plan = Plan(
        model=profile.model,
        batch_size=12 * microbatches,
        microbatches=microbatches,
        placements=dict.fromkeys((layer.name for layer in layers), sharding),
        states=ParameterStates(stage=3, keep_gathered=kept),
        synchronisation=Synchronisation(bucket_bytes=0),
    )
    graph = run(profile, switched([1.0] * devices), plan).graph
    gathered = graph.kind[graph.allocation_task] == Kind.PARAMETERS
    own = sorted(1200 * size * (devices - 1) / devices for size in sizes)
    for device in range(devices):
        here = graph.allocation_bytes[graph.allocation_device == device]
        taken = graph.allocation_bytes[(graph.allocation_device == device) & gathered]
        times = len(taken) // len(own)
        assert sorted(taken.tolist()) == pytest.approx(sorted(own * times)) and here.sum() == pytest.approx(
            0.0, abs=1e-6
        )
        assert times == (1 if kept else 2) * microbatches
