"""ZeRO and FSDP: bytes, memory and time of shared-out states against closed forms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from counted_volume import communication_volume
from test_closed_forms import chain, star
from test_sharding_cases import Case, of_group
from test_tied_parameters import by_sample, tied_profile

from partitioners import make_plan
from simulator.errors import InputError, UnknownNameError
from simulator.files import read_profile
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower_once
from simulator.lowering.tasks.gradients import static_bytes
from simulator.parameter_states import ParameterStates
from simulator.plan import Plan, Sharding, StepSettings, Synchronisation
from simulator.run import run
from simulator.runtime import Runtime
from simulator.taskgraph import Kind
from simulator.workload import Layer, Profile


def one_layer(parameters: int, batch: int) -> Profile:
    """A layer of bfloat16 parameters alone."""
    layer = Layer(
        name="a", kind="linear", output_shape=(1, 1, 1), forward_s=1e-3, backward_s=2e-3, output_bytes=2 * batch,
        parameter_bytes=2 * parameters,
    )  # fmt: skip
    return Profile(model="one", device="none", batch_size=batch, dtype="bfloat16", layers=(layer,))


def data_plan(profile: Profile, devices: int, states: ParameterStates, microbatches: int = 1, **fields: object) -> Plan:
    sharding = Sharding(degrees=(devices, 1, 1, 1), devices=tuple(range(devices)))
    plan = Plan(
        model=profile.model,
        batch_size=profile.batch_size * microbatches,
        microbatches=microbatches,
        placements={layer.name: sharding for layer in profile.layers},
        synchronisation=Synchronisation(bucket_bytes=0),
        states=states,
    )
    return replace(plan, **fields)  # type: ignore[arg-type]


def states_of(case: Case) -> ParameterStates:
    parameters = case["parameters"]
    return ParameterStates(
        stage=parameters["stage"],
        group=parameters["z"] if parameters["stage"] else 0,
        each_microbatch=parameters["reduce_every_microbatch"],
    )


VOLUMES = [case for case in of_group("states") if "stage" in case.values[0]["parameters"]]
HELD = [case for case in of_group("states") if "recipe" in case.values[0]["parameters"]]


@pytest.mark.parametrize("case", VOLUMES)
def test_bytes_sent_in_a_step_are_those_of_the_cases(case: Case) -> None:
    """Counted from the plan and, with few devices, simulated."""
    parameters, expected = case["parameters"], case["expected"]
    if parameters["stage"] == 1 and parameters["reduce_every_microbatch"]:
        pytest.skip("stage 1 sums gradients once")
    n = parameters["n"]
    profile = one_layer(parameters["parameters"], n)
    plan = data_plan(profile, n, states_of(case), parameters["m"])
    cluster = star(n)
    volumes = [communication_volume(ShardedModel(profile, plan), cluster)]
    volumes += [run(profile, cluster, plan).report.communication_bytes] if n <= 8 else []
    for volume in volumes:
        sent = volume.synchronisation, volume.parameters
        assert sent == pytest.approx((expected["gradient_bytes"], expected["parameter_bytes"]), rel=1e-12)
        assert volume.sent_bytes[:n] == pytest.approx(expected["bytes_per_device"], rel=1e-12)
    if "parameter_bytes_if_kept_after_forward" in expected:
        kept = replace(plan, states=replace(plan.states, keep_gathered=True))
        volume = communication_volume(ShardedModel(profile, kept), cluster)
        assert volume.parameters == pytest.approx(expected["parameter_bytes_if_kept_after_forward"], rel=1e-12)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("case", HELD)
def test_bytes_held_are_those_of_the_cases(case: Case, stage: int) -> None:
    """bf16 parameters and gradients; Adam keeps 12 bytes for a parameter of 2."""
    n = case["parameters"]["n"]
    profile = one_layer(case["parameters"]["parameters"], n)
    plan = data_plan(profile, n, ParameterStates(stage=stage), optimizer_state=6.0)
    held = static_bytes(ShardedModel(profile, plan), star(n))
    assert held == pytest.approx(np.full(n, case["expected"][f"zero{stage}"]), rel=1e-12)


def test_gradients_of_another_precision() -> None:
    """bf16 parameters with fp32 gradients: 2 + 4 bytes of each are held, and twice the bytes are summed."""
    profile = one_layer(1000, 4)
    wide = data_plan(profile, 4, ParameterStates(stage=1, gradient_dtype="float32"), optimizer_state=6.0)
    assert static_bytes(ShardedModel(profile, wide), star(4)) == pytest.approx(np.full(4, 1000 * (2 + 4 + 12 / 4)))
    volume = communication_volume(ShardedModel(profile, wide), star(4))
    assert (volume.synchronisation, volume.parameters) == (3 * 4000, 3 * 2000)
    with pytest.raises(UnknownNameError, match="float99"):
        ParameterStates(gradient_dtype="float99")


def test_hybrid_groups_are_consecutive() -> None:
    states = ParameterStates(stage=3, group=2)
    assert states.shard_groups((0, 1, 4, 5)) == [(0, 1), (4, 5)]
    with pytest.raises(InputError, match="groups of 3 devices do not divide the 4"):
        replace(states, group=3).shard_groups((0, 1, 2, 3))


def test_gathers_run_one_ahead() -> None:
    """Four layers of 5 + 10 ms on two devices; a gather takes S/2 / B = 1 ms, and so does a reduce-scatter.

    gathers   G0 G1   G2   G3   G3   G2      G1      G0
    passes       F0   F1   F2   F3   B3      B2      B1      B0
    sums                                     S3      S2      S1      S0

    Only the first gather and the last sum are exposed.
    """
    profile = chain(4, parameter_bytes=2_000_000, batch=2)
    profile = replace(profile, layers=tuple(replace(layer, update_s=0.0) for layer in profile.layers))
    wire = star(2, bandwidth=1e9, latency_s=0.0)
    shared = run(profile, wire, data_plan(profile, 2, ParameterStates(stage=3))).report
    assert shared.step_s == pytest.approx(1e-3 + 4 * 15e-3 + 1e-3, rel=1e-12)
    replicated = run(profile, wire, data_plan(profile, 2, ParameterStates())).report
    assert shared.peak_memory_bytes < replicated.peak_memory_bytes


@pytest.mark.parametrize("stage", [1, 2])
def test_gathers_after_an_update_follow_each_other(stage: int) -> None:
    """Four of half of 2 MB over 1 GB/s and 3 ms: one communicator takes 4 ms for each, 16 ms in a row."""
    profile = chain(4, parameter_bytes=2_000_000, batch=2)
    plan = data_plan(profile, 2, ParameterStates(stage=stage))
    plan = replace(plan, synchronisation=Synchronisation(bucket_bytes=2_000_000))
    done = run(profile, star(2, bandwidth=1e9, latency_s=3e-3), plan)
    gathers = np.flatnonzero(done.graph.kind == Kind.PARAMETERS)
    begin, end = done.timeline.start_s[gathers], done.timeline.end_s[gathers]
    assert np.diff([begin, end], axis=0) == pytest.approx(4e-3)
    assert begin[1:] == pytest.approx(end[:-1]) and done.report.step_s == pytest.approx(end[-1])


@pytest.mark.parametrize(
    ("schedule", "microbatches", "after_ms", "beside_ms"),
    [
        ("sequential", 1, 60 + 6 + 24, 24 + 5 + 40 + 6),
        ("sequential", 2, 120 + 6 + 24, 24 + 5 + 40 + 60 + 6),
        ("dataflow", 2, 120 + 6 + 24, 6 + 120 + 6),  # the second computes while the first waits
    ],
)
@pytest.mark.parametrize("stage", [1, 2])
def test_gathers_beside_the_next_step_follow_each_other_from_its_beginning(
    stage: int, schedule: str, microbatches: int, after_ms: float, beside_ms: float
) -> None:
    """Four layers of 5 + 10 ms; gathers and sums take 6 ms.

    gathers   G0 G1  G2  G3
    passes       F0  F1  F2  F3 ...  B3   B2   B1   B0
    sums                                  S3   S2   S1  S0
    """
    profile = chain(4, parameter_bytes=12_000_000, batch=2)
    profile = replace(profile, layers=tuple(replace(layer, update_s=0.0) for layer in profile.layers))
    plan = data_plan(profile, 2, ParameterStates(stage=stage), microbatches, schedule=schedule)
    wire = star(2, bandwidth=1e9, latency_s=0.0)
    after, beside = (
        run(profile, wire, plan, runtime=Runtime(overlaps_gathers=ahead)).report for ahead in (False, True)
    )
    assert (after.step_s, beside.step_s) == pytest.approx((after_ms / 1e3, beside_ms / 1e3), rel=1e-12)
    assert after.communication_bytes == beside.communication_bytes
    if schedule == "sequential":  # all devices hold all parameters as ever
        assert after.peak_memory_bytes == beside.peak_memory_bytes


@pytest.mark.parametrize("first", [None, 4_000])
@pytest.mark.parametrize(("devices", "layers"), [(1, 0), (2, 2), (3, 3), (4, 4)])
def test_buckets_of_larger_groups_hold_more(devices: int, layers: int, first: int | None) -> None:
    """Twelve layers of 4 kB, 8 kB a bucket or 4 kB for each device that sums it, where that is more."""
    profile = chain(12, parameter_bytes=4_000, batch=12)
    sums = Synchronisation(bucket_bytes=8_000, bucket_bytes_per_device=4_000, first_bucket_bytes=first)
    plan = data_plan(profile, devices, ParameterStates(stage=1), synchronisation=sums)
    once = lower_once(profile, plan, star(devices)).model  # which has one of the equal devices
    ahead = [1] if first else []
    expected = [*ahead, *[layers] * ((12 - sum(ahead)) // layers), (12 - sum(ahead)) % layers] if layers else []
    for model in (ShardedModel(profile, plan), once):
        assert [len(bucket.pieces) for bucket in model.buckets] == [count for count in expected if count]


@pytest.mark.parametrize(("prefetch", "exposed"), [(0, 4), (1, 1), (2, 1)])
def test_what_stays_gathered_is_gathered_before_forward_passes_alone(prefetch: int, exposed: int) -> None:
    """The same four layers: four gathers in all, each exposed where none is ahead, and none before backward passes."""
    profile = chain(4, parameter_bytes=2_000_000, batch=2)
    profile = replace(profile, layers=tuple(replace(layer, update_s=0.0) for layer in profile.layers))
    plan = data_plan(profile, 2, ParameterStates(stage=3, keep_gathered=True, prefetch=prefetch))
    done = run(profile, star(2, bandwidth=1e9, latency_s=0.0), plan)
    assert done.report.step_s == pytest.approx(exposed * 1e-3 + 4 * 15e-3 + 1e-3, rel=1e-12)
    assert np.count_nonzero(done.graph.kind == Kind.PARAMETERS) == 4


@pytest.mark.parametrize(("prefetch", "exposed"), [(0, 8), (1, 1), (2, 1)])
def test_a_recomputed_segment_of_many_buckets_is_gathered_from_its_first_layer_on(prefetch: int, exposed: int) -> None:
    """The same four layers, all recomputed together.

    gathers   G0 G1   G2   G3   G0   G1   G2   G3
    passes       F0   F1   F2   F3   R0   R1   R2   R3 B3 B2 B1 B0

    Without prefetching each gather is exposed; the last sum always is.
    """
    profile = chain(4, parameter_bytes=2_000_000, batch=2)
    profile = replace(profile, layers=tuple(replace(layer, update_s=0.0) for layer in profile.layers))
    recomputed = (tuple(layer.name for layer in profile.layers),)
    plan = data_plan(profile, 2, ParameterStates(stage=3, prefetch=prefetch), recomputed=recomputed)
    shared = run(profile, star(2, bandwidth=1e9, latency_s=0.0), plan).report
    assert shared.step_s == pytest.approx(exposed * 1e-3 + 4 * 20e-3 + 1e-3, rel=1e-12)


@pytest.mark.parametrize(("prefetch", "exposed_s"), [(0, 1e-3), (1, 0.5e-3)])
def test_two_buckets_of_one_layer_do_not_wait_for_each_other(prefetch: int, exposed_s: float) -> None:
    """Two devices hold both halves of the channels: two gathers of 0.5 ms are exposed before the forward pass, two, or
    one, before the backward pass, and two sums after it, since the second half is the first bucket."""
    profile = chain(1, parameter_bytes=2_000_000, batch=2)
    profile = replace(profile, layers=tuple(replace(layer, update_s=0.0) for layer in profile.layers))
    halves = {"l0": Sharding(degrees=(2, 2, 1, 1), devices=(0, 0, 1, 1))}
    plan = data_plan(profile, 2, ParameterStates(stage=3, prefetch=prefetch), placements=halves)
    shared = run(profile, star(2, bandwidth=1e9, latency_s=0.0), plan).report
    assert shared.step_s == pytest.approx(1e-3 + 15e-3 + exposed_s + 1e-3, rel=1e-12)


def test_a_tied_parameter_stays_gathered_from_its_first_user_to_its_last() -> None:
    """An embedding and a head share a matrix: gathered once each way, taken from before the first pass on."""
    profile = tied_profile(64, 16, 8)
    names, everybody = [layer.name for layer in profile.layers], by_sample(range(4))
    plan = data_plan(profile, 4, ParameterStates(stage=3), placements=dict.fromkeys(names, everybody))
    done = run(profile, star(4), plan)
    gathers = np.flatnonzero(done.graph.kind == Kind.PARAMETERS)
    dropping = done.graph.allocation_task[(done.graph.allocation_device == 0) & (done.graph.allocation_bytes < 0)]
    passes = [(Kind(done.graph.kind[task]), names[done.graph.layer[task]]) for task in dropping]
    assert len(gathers) == 2 and passes == [(Kind.FORWARD, "head"), (Kind.BACKWARD, "embedding")]
    for task in np.flatnonzero((done.graph.device == 0) & (done.graph.layer == names.index("head")))[:2]:
        assert gathers[int(done.graph.kind[task] == Kind.BACKWARD)] in done.graph.predecessors(int(task))


def test_devices_that_use_other_layers_of_a_tied_parameter_gather_apart() -> None:
    """The embedding is on two of the head's four devices, which keep the matrix from the one to the other."""
    profile, cluster = tied_profile(64, 16, 8), star(4)
    placements = {"embedding": by_sample(range(2)), "middle": by_sample(range(2)), "head": by_sample(range(4))}
    plan = data_plan(profile, 4, ParameterStates(stage=3), placements=placements)
    done = run(profile, cluster, plan)
    graph = done.graph
    gathers = np.flatnonzero(graph.kind == Kind.PARAMETERS)
    homes = [tuple(sorted({target for _, target in graph.routes[graph.route[task]].pairs})) for task in gathers]
    assert sorted(homes) == [(0, 1), (0, 1), (2, 3), (2, 3)]
    dropping = graph.allocation_bytes < 0
    layers = graph.layer[graph.allocation_task[dropping]]
    of_device = [layers[graph.allocation_device[dropping] == device].tolist() for device in range(4)]
    assert of_device == [[2, 0], [2, 0], [2, 2], [2, 2]]
    expected = communication_volume(ShardedModel(profile, plan), cluster).parameters
    assert done.report.communication_bytes.parameters == pytest.approx(expected) == 2 * 3 * 64 * 16 * 2


@pytest.mark.parametrize("recomputed", [(), (("l0", "l1"), ("l2",))])
def test_what_is_gathered_is_dropped(recomputed: tuple[tuple[str, ...], ...]) -> None:
    """Invariant 8: what a step takes it gives back."""
    profile = chain(3, parameter_bytes=1000, batch=4)
    for keep, group in ((False, 0), (True, 0), (False, 2)):
        states = ParameterStates(stage=3, keep_gathered=keep, group=group)
        plan = data_plan(profile, 4, states, microbatches=2, recomputed=recomputed)
        graph = run(profile, star(4), plan).graph
        kept = np.bincount(graph.allocation_device, weights=graph.allocation_bytes, minlength=4)
        assert kept == pytest.approx(np.zeros(4), abs=1e-6)
        gathered = graph.kind[graph.allocation_task] == Kind.PARAMETERS
        taken = graph.allocation_bytes[gathered & (graph.allocation_bytes > 0)]
        assert taken == pytest.approx(1000 * (1 - 1 / (group or 4))) and len(taken)  # beside its own part


def test_a_strategy_that_shares_states_takes_groups_without_naming_the_stage() -> None:
    step = StepSettings(batch_size=4, states=ParameterStates(group=2))
    plan = make_plan("fsdp", read_profile("vgg_digits"), star(4), step)
    assert (plan.states.stage, plan.states.group) == (3, 2)
    with pytest.raises(InputError, match="nothing is shared out"):
        make_plan("data", read_profile("vgg_digits"), star(4), step)


@pytest.mark.parametrize("chunks", [2, 3])
@pytest.mark.parametrize("stage", [0, 3])
def test_virtual_stages_have_buckets_of_their_own(stage: int, chunks: int) -> None:
    """Two devices of a pipeline, two replicas: a bucket of two virtual stages would wait for itself."""
    profile = chain(12, batch=16, parameter_bytes=4_000)
    homes = [(2 * (number % 2), 2 * (number % 2) + 1) for number in range(2 * chunks)]
    size = 12 // len(homes)
    plan = Plan(
        model=profile.model,
        batch_size=16,
        microbatches=4,
        schedule="interleaved",
        placements={
            layer.name: Sharding(degrees=(2, 1, 1, 1), devices=homes[number // size])
            for number, layer in enumerate(profile.layers)
        },
        states=ParameterStates(stage=stage),
    )
    buckets = ShardedModel(profile, plan).buckets
    layers = [{piece.layer // size for piece in bucket.pieces} for bucket in buckets]
    assert sorted(map(tuple, layers)) == [(number,) for number in range(len(homes))]
    assert run(profile, star(4), plan).report.step_s > 0


def test_words_say_the_stage_and_the_groups() -> None:
    assert ParameterStates(stage=1).words == "ZeRO-1"
    assert ParameterStates(stage=3, group=8).words == "ZeRO-3 in groups of 8"
