"""Equal micro-batches of a steady state: simulated until the state repeats, then counted, the report is the whole's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace

import laws
import numpy as np
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from random_inputs import clusters, plans, profiles
from small_networks import chain, switched

from partitioners._grids.grid_plan import grid_plan
from simulator.cluster import Cluster
from simulator.engine.noise import Noise
from simulator.language_models.model_card import ModelCard
from simulator.language_models.modelled_profile import modelled_profile
from simulator.language_models.training_grid import TrainingGrid
from simulator.language_models.training_stack import read_stack
from simulator.network.catalogue import read_cluster
from simulator.network.topologies import Wire, two_tier
from simulator.parameter_states import ParameterStates
from simulator.plan import Plan, Sharding, Synchronisation
from simulator.report.extrapolation import RULES, DifferenceError, extrapolated
from simulator.report.steady_state import RepeatedStep, SimulatedStep, find_round, repeated_step
from simulator.run import run, step_report, step_seconds
from simulator.runtime import IDEAL, Runtime
from simulator.workload import Profile

EXACT, CHAIN = 1e-9, 1e-2
FAST, SLOW = (Wire(bandwidth_bytes_per_s=x, latency_s=y, tier=z) for x, y, z in ((1e7, 1e-5, "a"), (3e6, 2e-4, "b")))
SCHEDULES = ("1f1b", "1f1b", "gpipe", "dataflow", "interleaved", "zero-bubble", "pipedream", "pipedream-2bw")


def simulated(profile: Profile, cluster: Cluster, plan: Plan, runtime: Runtime = IDEAL) -> SimulatedStep:
    from simulator.run import _simulated

    return _simulated(profile, cluster, plan, runtime, Noise())


def repeated(profile: Profile, cluster: Cluster, plan: Plan, runtime: Runtime = IDEAL) -> RepeatedStep | None:
    return repeated_step(plan, cluster, runtime, lambda part: simulated(profile, cluster, part, runtime), chains=True)


def assert_close(whole: object, counted: object, scale: Mapping[str, float], name: str = "") -> None:
    """The same figures: numbers to EXACT of themselves or of the step's largest of that unit."""
    if isinstance(whole, Mapping):
        assert isinstance(counted, Mapping)
        if name != ".path_s":  # of chains of one length either may be the one
            assert whole.keys() == counted.keys(), name
            for key in whole:
                assert_close(whole[key], counted[key], scale, f"{name}.{key}")
        assert (
            len(whole) == 0
            or name != ".path_s"
            or sum(counted.values()) == pytest.approx(sum(whole.values()), rel=EXACT)
        )
    elif isinstance(whole, Sequence) and not isinstance(whole, str):
        assert isinstance(counted, Sequence) and len(whole) == len(counted), name
        for each, other in zip(whole, counted, strict=True):
            assert_close(each, other, scale, name)
    elif isinstance(whole, float):
        close = CHAIN if name == ".critical_path_s" else EXACT
        unit = next((size for end, size in scale.items() if name.endswith(end)), 1.0)
        assert counted == pytest.approx(whole, rel=close, abs=EXACT * unit), name
    else:
        assert whole == counted, name


def assert_same_report(profile: Profile, cluster: Cluster, plan: Plan, runtime: Runtime = IDEAL) -> bool:
    """Compare the report of a step with that of all its micro-batches; whether it was made of fewer."""
    whole, counted = (
        run(profile, cluster, plan, runtime=runtime).report,
        step_report(profile, cluster, plan, runtime=runtime),
    )
    figures = [report.to_dict() for report in (whole, counted)]
    for figure in figures:  # which of equally long chains binds is open
        figure.pop("bottleneck"), figure.pop("step_band_s")
    assert_close(figures[0], figures[1], {"_s": whole.step_s, "bytes": whole.communication_bytes.total})
    assert step_seconds(profile, cluster, plan, runtime) == pytest.approx(whole.step_s, rel=EXACT)
    return repeated(profile, cluster, plan, runtime) is not None


@st.composite
def pipelines(draw: st.DrawFn, profile: Profile) -> tuple[Cluster, Plan]:
    """Stages of some ranks, each 1 or 2 times, with 40 to 70 micro-batches of one sample for each replica."""
    schedule = draw(st.sampled_from(SCHEDULES))
    layers = len(profile.layers)
    chunks = 2 if schedule in ("interleaved", "zero-bubble") and layers >= 4 and draw(st.booleans()) else 1
    stages = draw(st.integers(1, max(1, min(3, layers // chunks))))
    replicas = draw(st.integers(1, 2))
    count = stages * replicas
    cluster = two_tier(count, draw(st.sampled_from((1, count))), FAST, SLOW)
    placements = {}
    for position, layer in enumerate(profile.layers):
        stage = position * stages * chunks // layers % stages
        devices = tuple(stage * replicas + k for k in range(replicas))
        placements[layer.name] = Sharding(degrees=(replicas, 1, 1, 1), devices=devices)
    microbatches = draw(st.integers(40, 70))
    if schedule in ("interleaved", "zero-bubble", "pipedream-2bw"):
        microbatches = microbatches // stages * stages
    stage = draw(st.integers(0, 3 if chunks == 1 else 2)) if schedule not in ("pipedream", "pipedream-2bw") else 0
    return cluster, Plan(
        model=profile.model,
        batch_size=microbatches * replicas,
        microbatches=microbatches,
        placements=placements,
        schedule=schedule,
        synchronisation=Synchronisation(
            bucket_bytes=draw(st.sampled_from((0, 500, 2**20))),
            overlap=schedule.startswith("pipedream") or draw(st.booleans()),
        ),
        states=ParameterStates(stage=stage, each_microbatch=stage >= 2 and draw(st.booleans())),
        exchange=draw(st.sampled_from(("messages", "collectives"))),
    )


@settings(max_examples=laws.examples(20, 60))
@given(
    st.data(),
    st.lists(st.integers(1, 30), min_size=1, max_size=8),
    st.sampled_from((IDEAL, Runtime(overlap_slowdown=1.5, rank_spread=0.03))),
)
def test_a_pipeline_of_many_micro_batches(data: st.DataObject, seconds: list[int], runtime: Runtime) -> None:
    profile = chain([x * 1e-4 for x in seconds])
    layers = [replace(layer, parameter_bytes=900, update_s=1e-4) for layer in profile.layers]
    profile = replace(profile, layers=tuple(layers))
    cluster, plan = data.draw(pipelines(profile))
    event(f"{plan.schedule}: {'counted' if assert_same_report(profile, cluster, plan, runtime) else 'whole'}")


@settings(max_examples=laws.examples(15, 40))
@given(st.data(), profiles(max_layers=4))
def test_any_placement_of_many_micro_batches(data: st.DataObject, profile: Profile) -> None:
    """Dataflow on random clusters, where transfers of different micro-batches contend."""
    cluster = data.draw(clusters())
    plan = data.draw(plans(profile, cluster))
    microbatches = data.draw(st.integers(40, 60))
    plan = replace(plan, batch_size=plan.microbatch_size * microbatches, microbatches=microbatches)
    event("counted" if assert_same_report(profile, cluster, plan) else "whole")


def staged(seconds: Sequence[float], microbatches: int, schedule: str, stages: int = 0) -> tuple[Profile, Plan]:
    """A layer of these seconds for a micro-batch of one sample on each device in turn."""
    count = stages or len(seconds)
    profile = chain([8 * second for second in seconds])
    placements = {layer.name: Sharding(devices=(i % count,)) for i, layer in enumerate(profile.layers)}
    return profile, Plan(
        model="small", batch_size=microbatches, microbatches=microbatches, placements=placements, schedule=schedule
    )


@pytest.mark.parametrize(
    ("schedule", "seconds", "stages"),
    [
        ("1f1b", [1.0, 2.0, 1.5], 3),
        ("interleaved", [1.0, 2.0, 1.5, 1.0], 2),
        ("zero-bubble", [1.0, 2.0, 1.5], 3),
        ("pipedream", [1.0, 2.0, 1.5], 3),
        ("dataflow", [2.0, 1.0, 1.0], 3),
    ],
)
def test_these_are_counted(schedule: str, seconds: list[float], stages: int) -> None:
    profile, plan = staged(seconds, 72, schedule, stages)
    assert assert_same_report(profile, switched([1.0] * stages), plan)


@pytest.mark.parametrize(("schedule", "seconds"), [("gpipe", [1.0, 2.0]), ("dataflow", [1.0, 2.0])])
def test_a_growing_queue_is_simulated_whole(schedule: str, seconds: list[float]) -> None:
    """What the first stage does ahead of the second has no end, so that no state repeats."""
    profile, plan = staged(seconds, 60, schedule)
    assert not assert_same_report(profile, switched([1.0, 1.0]), plan)


def test_a_round_of_two_micro_batches() -> None:
    """1F1B over two equal stages with a slow wire: each stage sends and waits once for every two micro-batches."""
    profile, plan = staged([3.0, 3.0], 61, "1f1b")
    cluster = switched([1.0, 1.0], latency_s=0.5)
    counted = repeated(profile, cluster, plan)
    assert counted is not None
    alone, pair = (find_round(counted.latest, each) for each in (1, 2))
    assert alone is None and pair is not None
    assert pair.seconds == pytest.approx(2 * (3.0 + 0.5))
    assert counted.latest.microbatches + 2 * counted.more == 61
    assert assert_same_report(profile, cluster, plan)


def test_few_micro_batches_are_simulated_bit_for_bit() -> None:
    profile, plan = staged([1.0, 2.0], 20, "1f1b")
    cluster = switched([1.0, 1.0])
    assert repeated(profile, cluster, plan) is None
    assert repr(run(profile, cluster, plan).report.to_dict()) == repr(step_report(profile, cluster, plan).to_dict())


def test_what_differs_between_micro_batches_is_simulated_whole() -> None:
    profile, plan = staged([1.0, 2.0], 60, "1f1b")
    cluster = switched([1.0, 1.0])
    assert repeated(profile, cluster, plan) is not None
    assert repeated(profile, cluster, replace(plan, work=tuple(np.linspace(1.0, 2.0, 60).tolist()))) is None
    assert repeated(profile, cluster, plan, Runtime(rendezvous=True)) is None
    noise = Noise(jitter=0.1, seed=3)
    assert step_report(profile, cluster, plan, noise=noise) == run(profile, cluster, plan, noise=noise).report


def test_stragglers_are_counted_too() -> None:
    profile, plan = staged([1.0, 2.0], 60, "1f1b")
    cluster, noise = switched([1.0, 1.0]), Noise(stragglers={0: 3.0})
    whole = run(profile, cluster, plan, noise=noise).report
    assert step_report(profile, cluster, plan, noise=noise).step_s == pytest.approx(whole.step_s, rel=EXACT)


@pytest.mark.parametrize(("launch_s", "repeats"), [(0.9, True), (1.1, False)])
def test_a_host_that_falls_behind_repeats_nothing(launch_s: float, repeats: bool) -> None:
    """Launches of a round of two tasks on either device, in parts of half the round."""
    profile, plan = staged([1.0, 2.0], 16, "1f1b")
    step = simulated(profile, switched([1.0, 1.0]), plan)
    repeating = find_round(step, 1)
    assert repeating is not None
    object.__setattr__(step.graph, "launch_s", np.full(len(step.graph), launch_s * repeating.seconds / 2))
    assert (find_round(step, 1) is not None) == repeats


def test_every_figure_has_a_rule() -> None:
    for figures, rules in RULES.items():
        assert {field.name for field in fields(figures)} == rules.keys(), figures.__name__


def test_what_rounds_do_not_change_is_to_be_equal() -> None:
    profile, plan = staged([1.0, 2.0], 60, "1f1b")
    rows = step_report(profile, switched([1.0, 1.0]), plan).layers
    further = extrapolated(rows[0], replace(rows[0], compute_s=rows[0].compute_s - 1.0), 3)
    assert further.compute_s == rows[0].compute_s + 3.0
    with pytest.raises(DifferenceError):
        extrapolated(rows[0], rows[1], 3)


CARD = ModelCard(name="drawn", layers=4, hidden=512, heads=8, ffn=2048, vocabulary=1024, sequence=8192)
STACK = read_stack("nanotron-h100")
CARD_PROFILE, EIGHT = modelled_profile(CARD, STACK, batch_size=4), read_cluster("dgx-h100", devices=8)


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from((1, 2, 4)), st.sampled_from((1, 2, 4)), st.sampled_from((1, 2)), st.integers(0, 3),
    st.integers(8, 40), st.sampled_from(("none", "selective", "full")),
)  # fmt: skip
def test_grids_of_a_card(tensor: int, pipeline: int, context: int, zero: int, accumulation: int, again: str) -> None:
    """Launched, and with communication in flight: the step and the peak of the whole to 1 %."""
    assume(tensor * pipeline * context <= 8)
    grid = TrainingGrid(
        data=8 // (tensor * pipeline * context), tensor=tensor, pipeline=pipeline, context=context,
        zero_stage=min(zero, 1) if pipeline > 1 else zero, accumulation=accumulation, recomputation=again,
    )  # fmt: skip
    plan = grid_plan(grid, CARD_PROFILE, EIGHT, STACK)
    short = step_report(CARD_PROFILE, EIGHT, plan, runtime=STACK.runtime)
    whole = run(CARD_PROFILE, EIGHT, plan, runtime=STACK.runtime).report
    assert short.step_s == pytest.approx(whole.step_s, rel=0.01)
    assert short.peak_memory_bytes == pytest.approx(whole.peak_memory_bytes, rel=0.01)
    assert short.fit == whole.fit
