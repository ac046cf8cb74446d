"""Parameters of several layers: one gradient, held wherever it is used."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from counted_volume import communication_volume
from test_closed_forms import star
from test_sharding_cases import Case, of_group

from simulator.errors import InputError
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower
from simulator.lowering.tasks.gradients import static_bytes
from simulator.parameter_states import ParameterStates
from simulator.plan import Plan, Sharding, Synchronisation
from simulator.run import run
from simulator.taskgraph import Kind
from simulator.workload import Geometry, Layer, Profile

MIXING = Geometry(mixes_channels=True)


def tied_profile(vocabulary: int, hidden: int, batch: int, element_bytes: int = 2) -> Profile:
    """Token embedding, one layer between, and a head of the same matrix, in bfloat16."""

    def layer(name: str, kind: str, channels: int, *inputs: str, **fields: object) -> Layer:
        made = Layer(
            name=name, kind=kind, inputs=inputs, output_shape=(channels, 1, 1), forward_s=1e-3, backward_s=2e-3,
            output_bytes=batch * channels * element_bytes,
        )  # fmt: skip
        return replace(made, **fields)  # type: ignore[arg-type]

    matrix = vocabulary * hidden * element_bytes
    return Profile(
        model="tied",
        device="none",
        batch_size=batch,
        dtype="bfloat16",
        layers=(
            layer("embedding", "embedding", hidden, parameter_bytes=matrix, geometry=MIXING, update_s=1e-3),
            layer("middle", "add", hidden, "embedding"),
            layer("head", "linear", vocabulary, "middle", geometry=MIXING, tied_to=("embedding",)),
        ),
    )


def plan_of(profile: Profile, first: Sharding, last: Sharding) -> Plan:
    placements = {"embedding": first, "middle": first, "head": last}
    if first.reduce > 1:
        placements["middle"] = Sharding(degrees=first.degrees, copy=first.reduce, devices=first.devices)
    return Plan(
        model="tied",
        batch_size=profile.batch_size,
        placements=placements,
        synchronisation=Synchronisation(bucket_bytes=0),
    )


def by_sample(devices: range) -> Sharding:
    return Sharding(degrees=(len(devices), 1, 1, 1), devices=tuple(devices))


@pytest.mark.parametrize("case", [case for case in of_group("states") if "d" in case.values[0]["parameters"]])
def test_replicas_of_two_stages_sum_one_gradient(case: Case) -> None:
    """2 (2d - 1) P where d replicas of the first stage and d of the last use the same P bytes."""
    d, parameters = case["parameters"]["d"], case["parameters"]["parameters"]
    profile = tied_profile(parameters // 4096, 4096, d)
    plan = plan_of(profile, by_sample(range(d)), by_sample(range(d, 2 * d)))
    expected = case["expected"]["one_sum_bytes"]
    cluster = star(2 * d)
    assert communication_volume(ShardedModel(profile, plan), cluster).synchronisation == pytest.approx(expected)
    assert run(profile, cluster, plan).report.communication_bytes.synchronisation == pytest.approx(expected)


def test_every_user_holds_the_parameters() -> None:
    """Momentum: parameters, gradients and state on both stages."""
    profile = tied_profile(100, 8, 2)
    plan = plan_of(profile, by_sample(range(1)), by_sample(range(1, 2)))
    held = static_bytes(ShardedModel(profile, plan), star(2))
    assert held == pytest.approx(np.full(2, 3 * 100 * 8 * 2))


def test_on_one_device_they_are_held_once_and_nothing_moves() -> None:
    profile = tied_profile(100, 8, 2)
    plan = plan_of(profile, by_sample(range(1)), by_sample(range(1)))
    assert static_bytes(ShardedModel(profile, plan), star(1)) == pytest.approx([3 * 100 * 8 * 2])
    assert run(profile, star(1), plan).report.communication_bytes.total == 0


@pytest.mark.parametrize("t", [2, 4])
def test_vocabulary_parallel_ends_match_slice_by_slice(t: int) -> None:
    """An embedding cut by reduce and a head cut by channel use the same rows of the matrix on each tensor rank."""
    profile = tied_profile(96, 8, 2)
    first = Sharding(reduce=t, devices=tuple(range(t)))
    last = Sharding(degrees=(1, t, 1, 1), devices=tuple(range(t, 2 * t)))
    model = ShardedModel(profile, plan_of(profile, first, last))
    assert [(piece.devices, piece.parameter_bytes) for piece in model.replicas] == [
        ((i, i + t), 96 // t * 8 * 2) for i in range(t)
    ]
    volume = communication_volume(model, star(2 * t))
    assert volume.synchronisation == 2 * 96 * 8 * 2


@pytest.mark.parametrize("d", [1, 2, 4])
@pytest.mark.parametrize("schedule", ["dataflow", "1f1b"])
@pytest.mark.parametrize("keep_gathered", [False, True])
def test_each_stage_gathers_a_shared_out_matrix_for_its_own_passes(d: int, schedule: str, keep_gathered: bool) -> None:
    """ZeRO-3 over both stages: every device has 1/2d of the matrix and receives the rest, P (2d - 1) / 2d, for its
    forward pass and, unless it keeps it, for its backward pass of each of 4 micro-batches."""
    profile, cluster = tied_profile(128, 64, 4 * d), star(2 * d)
    states = ParameterStates(stage=3, keep_gathered=keep_gathered)
    plan = replace(
        plan_of(profile, by_sample(range(d)), by_sample(range(d, 2 * d))),
        microbatches=4, schedule=schedule, states=states,
    )  # fmt: skip
    volume = communication_volume(ShardedModel(profile, plan), cluster)
    report = run(profile, cluster, plan).report
    expected = 4 * (1 if keep_gathered else 2) * (2 * d - 1) * 128 * 64 * 2
    assert volume.parameters == report.communication_bytes.parameters == pytest.approx(expected)
    graph = lower(ShardedModel(profile, plan), cluster)
    gathers = np.flatnonzero(graph.kind == Kind.PARAMETERS)
    needing = {tuple(sorted({target for _, target in graph.routes[graph.route[task]].pairs})) for task in gathers}
    assert needing == {tuple(range(d)), tuple(range(d, 2 * d))}


def test_a_layer_is_tied_to_another_that_there_is() -> None:
    layers = tied_profile(96, 8, 2).layers
    with pytest.raises(InputError, match="tied_to names 'embeding', which is no layer"):
        Profile(model="a", device="b", batch_size=2, layers=(*layers[:2], replace(layers[2], tied_to=("embeding",))))
