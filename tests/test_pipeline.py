"""Contiguous stages: drawn examples, and equality with every possible cut tried one by one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from math import ceil
from pathlib import Path
from typing import Any

import laws
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import planned
from random_inputs import clusters, profiles
from small_networks import BATCH, branches, chain, layer, network, switched

from benchmarks.studies.contiguous import pipedream_costs
from partitioners._stages.contiguous import best_stages, contiguous_stages, stage_values, stages_of_counts
from partitioners._stages.stage_costs import crossing_bytes, measured_costs
from simulator.cluster import Cluster
from simulator.engine import engine_name
from simulator.errors import InputError
from simulator.lowering.costs.shard_costs import shard_seconds
from simulator.plan import Plan
from simulator.run import run
from simulator.workload import Profile
from traces.imports.pipedream import read_pipedream

EXACT = 1e-9


def unjudged(strategy: str, profile: Profile, cluster: Cluster, **asked: Any) -> Plan:
    """The stages of the best pace on all devices."""
    return planned(strategy, profile, cluster, judged=False, **asked)


def drawn(plan: Plan) -> str:
    """One character per layer: the devices of a stage as one digit each, stages apart."""
    groups = [sharding.devices for sharding in plan.placements.values()]
    return " ".join("".join(map(str, group)) for group in groups)


def test_balances_measured_times() -> None:
    #               a    b    c    d    e    f         stages of 6, 6 and 6 seconds
    profile = chain([1.0, 5.0, 2.0, 4.0, 3.0, 3.0])
    plan = unjudged("pipeline", profile, switched([1.0] * 3), batch_size=BATCH, microbatches=4)
    assert drawn(plan) == "0 0 1 1 2 2"
    assert (plan.microbatches, plan.schedule) == (4, "1f1b")


def test_sizes_stages_to_unequal_devices() -> None:
    profile = chain([1.0] * 7)
    assert drawn(unjudged("pipeline", profile, switched([1.0, 4.0, 2.0]), batch_size=BATCH)) == "0 1 1 1 1 2 2"


def test_moves_a_cut_to_where_little_crosses() -> None:
    profile = chain([1.0] * 4, channels=[8, 8, 1, 8])  # the middle cut carries 8 x 64 bytes per sample, the next 64
    slow, fast = switched([1.0] * 2, bandwidth_bytes_per_s=1500), switched([1.0] * 2)
    assert drawn(unjudged("pipeline", profile, fast, batch_size=BATCH, microbatches=1)) == "0 0 1 1"
    assert drawn(unjudged("pipeline", profile, slow, batch_size=BATCH, microbatches=1)) == "0 0 0 1"


@pytest.mark.parametrize(("channels", "starts"), [((4, 1, 4, 8), (0, 2, 3)), ((1, 4, 4, 8), (0, 1, 3))])
def test_ties_go_to_the_least_transfer_time(channels: tuple[int, ...], starts: tuple[int, ...]) -> None:
    profile = chain([1.0, 1.0, 1.0, 4.0], channels)  # the last layer sets the pace wherever the first cut is
    stages = contiguous_stages(profile, switched([1.0] * 3), microbatch_size=BATCH)
    assert (stages.pace_s, stages.starts) == (4.0, starts)


@given(st.floats(0.01, 9.0), st.floats(0.01, 9.0), st.sampled_from([1, 2]))
def test_sums_that_differ_by_rounding_are_ties(ends_s: float, middle_s: float, narrow: int) -> None:
    """Two stages of three layers, the outer two alike: both cuts have one pace, and the narrow one is taken."""
    profile = chain([ends_s, middle_s, ends_s], [1 if i + 1 == narrow else 8 for i in range(3)])
    cluster = switched([1.0] * 2, bandwidth_bytes_per_s=1e9)
    costs = measured_costs(profile, cluster, BATCH, 1)
    assert contiguous_stages(profile, cluster, microbatch_size=BATCH).starts == (0, narrow)
    assert stages_of_counts(costs, layers=3, counts=[1, 2])[1].starts == (0, narrow)


def test_crossing_bytes_count_a_tensor_once_and_until_its_last_reader() -> None:
    profile = branches()
    stem, left, add, wide, narrow, concat = (x.output_bytes for x in profile.layers[:6])
    crossing = crossing_bytes(profile).tolist()
    assert crossing[:7] == [0, stem, left + stem, add, add + wide, wide + narrow, concat]
    assert crossing[-1] == 0


def test_model_is_one_microbatch_of_the_same_stages() -> None:
    profile = chain([1.0, 5.0, 2.0, 4.0, 3.0, 3.0])
    plan = unjudged("model", profile, switched([1.0] * 3), batch_size=BATCH)
    assert (drawn(plan), plan.microbatches) == ("0 0 1 1 2 2", 1)
    assert run(profile, switched([1.0] * 3, bandwidth_bytes_per_s=1e18), plan).report.step_s == pytest.approx(18.0)


@pytest.mark.parametrize("microbatches", [1, 2, 4, 8])
def test_equal_stages_take_the_promised_step(microbatches: int) -> None:
    profile, cluster = chain([2.0] * 8), switched([1.0] * 4, bandwidth_bytes_per_s=1e18)
    plan = unjudged("pipeline", profile, cluster, batch_size=BATCH, microbatches=microbatches)
    stages = contiguous_stages(profile, cluster, microbatch_size=BATCH // microbatches, microbatches=microbatches)
    assert stages.step_s(microbatches) == pytest.approx(16.0 / 4 * (microbatches + 3) / microbatches, rel=EXACT)
    assert run(profile, cluster, plan).report.step_s == pytest.approx(stages.step_s(microbatches), rel=EXACT)


def test_chooses_microbatches_that_divide_the_batch() -> None:
    profile, cluster = chain([2.0] * 4), switched([1.0] * 2)
    assert unjudged("pipeline", profile, cluster, batch_size=8).microbatches == 8
    assert unjudged("pipeline", profile, cluster, batch_size=30).microbatches == 6  # at most 4 x 2
    assert unjudged("pipeline", profile, switched([1.0]), batch_size=8).microbatches in (1, 2, 4)


def test_replicates_the_stage_that_computes_and_keeps_the_parameters_whole() -> None:
    layers = layer("conv", seconds=6.0), layer("fc", "conv", seconds=2.0, parameter_bytes=10**10)
    profile, cluster = network(*layers), switched([1.0] * 4, bandwidth_bytes_per_s=1e9)
    plan = unjudged("pipeline", profile, cluster, batch_size=6, microbatches=2, replicas=True)
    assert drawn(plan) == "012 3"
    assert plan.placements["conv"].degrees == (3, 1, 1, 1)
    # two micro-batches of 3 samples through two stages of 6 / 8 x 3 / 3 and 2 / 8 x 3 seconds
    assert run(profile, cluster, plan).report.step_s == pytest.approx(3 * 0.75, rel=1e-4)


def test_a_ring_that_hides_behind_compute_costs_nothing() -> None:
    layers = layer("a", seconds=6.0, parameter_bytes=100), layer("b", "a", seconds=6.0, parameter_bytes=100)
    plan = unjudged("pipeline", network(*layers), switched([1.0] * 4), batch_size=BATCH, microbatches=2, replicas=True)
    assert drawn(plan) == "0123 0123"  # one stage: plain data parallelism, without a bubble


def test_more_stages_than_layers() -> None:
    with pytest.raises(InputError, match=r"5 devices need 5 stages, but 'small' has 4 layers .* use at most 4 devices"):
        unjudged("pipeline", chain([1.0] * 4), switched([1.0] * 5), batch_size=BATCH)
    plan = unjudged("pipeline", chain([1.0] * 4), switched([1.0] * 5), batch_size=BATCH, microbatches=1, replicas=True)
    assert plan.devices == (0, 1, 2, 3, 4)


def test_200_layers_on_16_devices_use_every_device() -> None:
    rng = np.random.default_rng(1)
    layers = [layer("0")]
    layers += [layer(str(i), str(i - 1), seconds=float(rng.random()), parameter_bytes=10**6) for i in range(1, 200)]
    stages = contiguous_stages(network(*layers), switched([1.0] * 16), microbatch_size=1, microbatches=8)
    assert stages.replicas == (1,) * 16
    assert stages.pace_s * 16 < 1.2 * sum(x.forward_s + x.backward_s for x in layers) / BATCH


@settings(max_examples=laws.examples(40, 150))
@given(data=st.data(), profile=profiles(), cluster=clusters(max_workers=4), replicas=st.booleans())
def test_stages_are_as_good_as_by_brute_force(
    data: st.DataObject, profile: Profile, cluster: Cluster, replicas: bool
) -> None:
    samples, microbatches = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 4))
    divisions = list(every_division(len(profile.layers), cluster.workers, samples if replicas else 1))
    if not divisions:
        return
    stages = contiguous_stages(profile, cluster, microbatch_size=samples, microbatches=microbatches, replicas=replicas)
    costs = {other: pace_and_transfers(profile, cluster, other, samples, microbatches) for other in divisions}
    step = {other: (microbatches + len(other[0]) - 1) * pace for other, (pace, _) in costs.items()}
    division = (stages.starts, stages.replicas)
    assert step[division] == pytest.approx(min(step.values()), rel=1e-8)
    equals = [c for c in divisions if len(c[0]) == len(stages.starts) and costs[c][0] <= stages.pace_s * (1 + 1e-12)]
    assert costs[division][1] <= min(costs[c][1] for c in equals) * (1 + EXACT)


@settings(max_examples=laws.examples(40, 150))
@given(data=st.data(), profile=profiles(), cluster=clusters(max_workers=6))
def test_stage_values_are_the_same_compiled_and_not(data: st.DataObject, profile: Profile, cluster: Cluster) -> None:
    """Of the least largest cost and, with a limit on each cost, of the least sum; to the same bits."""
    if engine_name() != "compiled":
        pytest.skip("no compiled engine here")
    layers, devices, samples = len(profile.layers), cluster.workers, data.draw(st.integers(1, 6))
    costs = measured_costs(profile, cluster, samples, data.draw(st.integers(1, 4)))
    limit = float(np.median(costs.stage_s(0, 1)[0, 1:])) * data.draw(st.sampled_from([1.0, 2.0, 1e9]))
    most_replicas, stages = data.draw(st.integers(1, min(samples, devices))), data.draw(st.integers(1, devices))
    for kept, join in ((costs, np.maximum), (costs.within(limit), np.add)):
        compiled = stage_values(kept, join, layers, devices, most_replicas, stages)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SHARDSCOPE_ENGINE", "reference")
            plain = stage_values(kept, join, layers, devices, most_replicas, stages)
        assert compiled.shape == (devices + 1, stages + 1, most_replicas + 1, layers + 1)
        assert compiled.tobytes() == plain.tobytes()


def test_pipedreams_vgg16_is_3_1(shared_data: Path) -> None:
    """SOSP 2019, table 1: VGG-16 on 4 V100 is "3-1", the first stage ending with the third pooling layer."""
    profile = read_pipedream(shared_data / "pipedream" / "vgg16.txt", batch_size=128)
    stages = best_stages(pipedream_costs(profile, 1e9), layers=len(profile.layers), devices=4, most_replicas=4)
    first = profile.layers[: stages.starts[1]]
    assert stages.replicas == (3, 1)
    assert [x.kind for x in first].count("conv2d") == 7
    assert [x.kind for x in first].count("maxpool2d") == 3
    assert first[-1].kind == "maxpool2d"


Division = tuple[tuple[int, ...], tuple[int, ...]]
"""First layers and replicas of the stages."""


def every_division(layers: int, devices: int, most_replicas: int) -> Iterator[Division]:
    for stages in range(1, min(layers, devices) + 1):
        for cuts in combinations(range(1, layers), stages - 1):
            for ends in combinations(range(1, devices), stages - 1):
                replicas = tuple(b - a for a, b in zip((0, *ends), (*ends, devices), strict=True))
                if max(replicas) <= most_replicas:
                    yield (0, *cuts), replicas


def pace_and_transfers(
    profile: Profile, cluster: Cluster, division: Division, samples: int, microbatches: int
) -> tuple[float, float]:
    """The module's docstring once more, stage by stage and tensor by tensor."""
    starts, replicas = division
    pace, transfers, device = 0.0, 0.0, 0
    for i, (start, count) in enumerate(zip(starts, replicas, strict=True)):
        layers = profile.layers[start : (*starts, len(profile.layers))[i + 1]]
        group = range(device, device + count)
        slowest = min(cluster.devices[d].speed for d in group)
        pace = max(pace, sum(sum(shard_seconds(profile, x, ceil(samples / count))) for x in layers) / slowest)
        parameters = sum(x.parameter_bytes for x in layers)
        if count > 1 and parameters:
            pairs = [(d, group[(k + 1) % count]) for k, d in enumerate(group)]
            sent = 2 * (count - 1) / count * parameters / min(cluster.bandwidth_bytes_per_s(*pair) for pair in pairs)
            latency = 2 * (count - 1) * max(cluster.latency_s(*pair) for pair in pairs)
            pace = max(pace, (sent + latency) / microbatches)
        if i:
            early = {x.name: x.output_bytes for x in profile.layers[:start]}
            crossing = {name for x in profile.layers[start:] for name in x.inputs} & early.keys()
            size = sum(early[name] for name in crossing) * samples / profile.batch_size / min(replicas[i - 1], count)
            seconds = cluster.transfer_s(device - 1, device, size) + cluster.transfer_s(device, device - 1, size)
            pace, transfers = max(pace, seconds), transfers + seconds
        device += count
    return pace, transfers
