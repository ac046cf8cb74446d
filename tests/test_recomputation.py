"""Recomputed segments: closed forms of time, memory and bytes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from counted_volume import communication_volume
from hypothesis import given
from hypothesis import strategies as st
from test_closed_forms import chain, star

import partitioners
from partitioners._grids.grid_plan import grid_plan
from simulator.errors import InputError, UnknownNameError
from simulator.language_models.card_files import read_card
from simulator.language_models.modelled_profile import modelled_profile
from simulator.language_models.training_grid import TrainingGrid
from simulator.language_models.training_stack import read_stack
from simulator.lowering.sharded_model import ShardedModel
from simulator.network.catalogue import read_preset
from simulator.plan import EXCHANGES, Plan, Sharding, StepSettings
from simulator.recompute_segments import STAGES, recompute_segments, stopped_early
from simulator.run import run
from simulator.runtime import Runtime
from simulator.taskgraph import Kind
from simulator.workload import Geometry, Profile


def saving_chain(count: int, batch: int = 4, saved_bytes: int = 1000) -> Profile:
    """Equal layers without parameters, 10 + 20 ms, each keeping saved_bytes."""
    profile = chain(count, parameter_bytes=0, batch=batch)
    layers = tuple(replace(layer, saved_bytes=saved_bytes, update_s=0.0) for layer in profile.layers)
    return replace(profile, layers=layers)


def on_one_device(profile: Profile, *segments: tuple[str, ...], **fields: object) -> Plan:
    placements = {layer.name: Sharding(devices=(0,)) for layer in profile.layers}
    plan = Plan(model="chain", batch_size=profile.batch_size, placements=placements, recomputed=segments)
    return replace(plan, **fields)  # type: ignore[arg-type]


def test_a_recomputed_segment_runs_forward_again() -> None:
    """Four layers of 10 + 20 ms, two of them again: 140 ms instead of 120."""
    profile = saving_chain(4)
    done = run(profile, star(1), on_one_device(profile, ("l1", "l2")))
    assert done.report.step_s == pytest.approx(4 * 30e-3 + 2 * 10e-3, rel=1e-12)
    kinds = [Kind(kind).name for kind in done.graph.kind[np.argsort(done.timeline.start_s, kind="stable")]]
    again = ["RECOMPUTE"] * 2
    assert [kind for kind in kinds if kind != "UPDATE"] == ["FORWARD"] * 4 + ["BACKWARD", *again] + ["BACKWARD"] * 3


def test_memory_of_equal_segments() -> None:
    """Chen et al., arXiv 1604.06174, section 4: of k segments one is held at a time, and of the others what they read.

    Eight layers that keep 1,000 bytes each and pass on 32 x 4 bytes; segments of two.
    """
    profile = saving_chain(8)
    segments = [(f"l{i}", f"l{i + 1}") for i in range(0, 8, 2)]
    held = [
        run(profile, star(1), on_one_device(profile, *chosen_segments)).report.peak_memory_bytes
        for chosen_segments in ([], segments)
    ]
    gradient = profile.layers[0].output_bytes
    read = profile.layers[0].output_bytes  # by the second and the third; what the last reads is among its 2,000
    assert held == [8 * 1000 + gradient, 2 * 1000 + 2 * read + gradient]


@pytest.mark.parametrize(
    ("own", "reading"),
    [((0,), (0,)), ((0, 1), (0, 1)), ((0, 1), (1, 0)), ((0, 1, 2, 3), (3, 1, 4, 0)), ((0, 4), (1, 0))],
)
def test_a_kept_output_goes_with_its_readers_backward_pass(own: tuple[int, ...], reading: tuple[int, ...]) -> None:
    """48 of the 1,000 bytes that the first layer keeps are its output, which the second's backward pass reads where
    the device has one."""
    plain = saving_chain(2)
    keeping = replace(plain, layers=(replace(plain.layers[0], saved_output_bytes=48), plain.layers[1]))
    cut = [Sharding(degrees=(len(devices), 1, 1, 1), devices=devices) for devices in (own, reading)]
    plan = on_one_device(plain, placements=dict(zip(("l0", "l1"), cut, strict=True)))
    before, after = (run(profile, star(5), plan).graph for profile in (plain, keeping))
    freed = after.freed_bytes - before.freed_bytes
    later = 48 / len(own) * len({*own} & {*reading})
    assert np.bincount(after.layer, weights=freed).tolist() == [-later, later]
    computes = after.device >= 0
    assert not np.bincount(after.device[computes], weights=freed[computes]).any()


def test_segments_are_checked() -> None:
    profile = saving_chain(2)
    with pytest.raises(UnknownNameError, match="l9"):
        run(profile, star(1), on_one_device(profile, ("l9",)))
    with pytest.raises(InputError, match="'l0' is in two segments"):
        run(profile, star(1), on_one_device(profile, ("l0",), ("l0", "l1")))


def tensor_parallel(profile: Profile, degree: int) -> dict[str, Sharding]:
    """Column-parallel and row-parallel layers in turn."""
    devices = tuple(range(degree))
    split = [Sharding(degrees=(1, degree, 1, 1), devices=devices), Sharding(reduce=degree, devices=devices)]
    return {layer.name: split[i % 2] for i, layer in enumerate(profile.layers)}


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("microbatches", [1, 3])
def test_what_moves_inside_a_segment_moves_again(exchange: str, microbatches: int) -> None:
    """Layers column, row, column, row on 4 devices, the last three recomputed.

    Between row (l1) and column (l2) the sum of B bytes is needed everywhere: 2 (t - 1) B forward, once more as l1 and
    l2 are in one segment, and 2 (t - 1) B backward; between column and row nothing moves.
    """
    mixing = Geometry(mixes_channels=True)
    profile = saving_chain(4)
    profile = replace(profile, layers=tuple(replace(layer, geometry=mixing) for layer in profile.layers))
    plan = on_one_device(profile, ("l1", "l2", "l3"))
    plan = replace(
        plan,
        placements=tensor_parallel(profile, 4),
        exchange=exchange,
        microbatches=microbatches,
        batch_size=4 * microbatches,
    )
    moved = 2 * 3 * profile.layers[1].output_bytes * microbatches
    volume = communication_volume(ShardedModel(profile, plan), star(4))
    assert (volume.forward, volume.backward) == pytest.approx((2 * moved, moved))
    report = run(profile, star(4), plan).report.communication_bytes
    assert (report.forward, report.backward) == pytest.approx((2 * moved, moved))


@given(st.integers(2, 8), st.integers(1, 3), st.sampled_from(["dataflow", "gpipe", "1f1b"]), st.data())
def test_recomputation_adds_its_time_and_gives_back_its_memory(
    count: int, microbatches: int, schedule: str, data: st.DataObject
) -> None:
    """On one device any segment adds its forward passes, and all bytes that are taken are given back."""
    profile = saving_chain(count, batch=microbatches)
    segment = tuple(f"l{i}" for i in sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1))))
    plan = on_one_device(profile, segment, microbatches=microbatches, batch_size=microbatches, schedule=schedule)
    done = run(profile, star(1), plan)
    plain = run(profile, star(1), replace(plan, recomputed=()))
    assert done.report.step_s == pytest.approx(plain.report.step_s + len(segment) * 10e-3, rel=1e-9)
    assert done.graph.allocated_bytes.sum() == pytest.approx(done.graph.freed_bytes.sum())
    assert done.report.peak_memory_bytes <= plain.report.peak_memory_bytes + 1e-6


def test_segments_by_stages_and_by_number() -> None:
    """Six equal layers on two devices: a segment for each stage, or four of about equal bytes, cut between devices."""
    profile = saving_chain(6)
    device_sets = {f"l{i}": (i // 3,) for i in range(6)}
    halves = (("l0", "l1", "l2"), ("l3", "l4", "l5"))
    assert recompute_segments(profile, device_sets, "") == ()
    assert recompute_segments(profile, device_sets, STAGES) == halves
    assert recompute_segments(profile, device_sets, "3") == (("l0", "l1"), ("l2",), ("l3",), ("l4", "l5"))
    for wrong in ("0", "stage", "-1"):
        with pytest.raises(InputError, match="it is 'stages' or a number of segments"):
            recompute_segments(profile, device_sets, wrong)


def test_a_step_asks_for_recomputation() -> None:
    """GPipe with recomputed stages: forward passes twice, as torchgpipe runs it."""
    profile = saving_chain(4)
    step = StepSettings(batch_size=4, microbatches=2, schedule="gpipe", recompute=STAGES)
    plan = partitioners.make_plan("pipeline", profile, star(2), step, judged=False)
    assert plan.recomputed == (("l0", "l1"), ("l2", "l3"))
    plain = replace(plan, recomputed=())
    assert run(profile, star(2), plan).report.step_s > run(profile, star(2), plain).report.step_s


def test_recomputation_stops_with_what_a_backward_pass_reads() -> None:
    """Four layers of 10 + 20 ms, the last of which keeps nothing: three run again, as torch's early stop has it."""
    profile = saving_chain(4)
    profile = replace(profile, layers=(*profile.layers[:-1], replace(profile.layers[-1], saved_bytes=0)))
    step = StepSettings(batch_size=4, microbatches=1, recompute=STAGES)
    steps_s = {}
    for runtime in (Runtime(), Runtime(stops_recomputation=True)):
        plan = partitioners.make_plan("data", profile, star(1), replace(step, runtime=runtime))
        steps_s[runtime.stops_recomputation] = run(profile, star(1), plan).report.step_s
    assert steps_s == {False: pytest.approx(4 * 40e-3), True: pytest.approx(4 * 30e-3 + 3 * 10e-3)}


def test_only_the_end_of_a_segment_is_left_out() -> None:
    """Layers 1, 4 and 5 of six keep nothing; a segment of which nothing is kept goes as a whole."""
    profile = saving_chain(6)
    kept = (True, False, True, True, False, False)
    layers = zip(profile.layers, kept, strict=True)
    profile = replace(profile, layers=tuple(replace(layer, saved_bytes=1000 * own) for layer, own in layers))
    segments = (("l0", "l1", "l2"), ("l3", "l4"), ("l5",))
    assert stopped_early(profile, segments) == (("l0", "l1", "l2"), ("l3",))


def test_a_block_is_recomputed_but_for_its_last_product() -> None:
    """A block's down projection and the sum behind it, of plain torch since 2.1; Megatron-LM computes all of it."""
    card = read_card("llama3-8b")
    for name, left_out in (("fsdp-h100", {"down", "add_ffn"}), ("megatron-a100", set())):
        stack = read_stack(name)
        profile = modelled_profile(card, stack)
        grid = TrainingGrid(data=8, zero_stage=3, recomputation="full")
        plan = grid_plan(grid, profile, read_preset("dgx-h100").build(8), stack)
        block = {layer.name for layer in profile.layers if layer.name.startswith("blocks.1.")}
        again = {name for segment in plan.recomputed for name in segment}
        assert {name.removeprefix("blocks.1.") for name in block - again} == left_out


@pytest.mark.parametrize("recomputation", ["none", "op"])
def test_torch_gathers_again_what_products_that_it_keeps_read(recomputation: str) -> None:
    """Its recomputation of all but products keeps what these made; plain torch keeps what a tensor group gathered."""
    stack, cluster = read_stack("fsdp-h100"), read_preset("dgx-h100").build(8)
    profile = modelled_profile(replace(read_card("llama3-8b"), layers=1), stack)
    plan = grid_plan(TrainingGrid(tensor=8, recomputation=recomputation), profile, cluster, stack)
    assert plan.received_again == (
        ("blocks.0.norm_attention", "blocks.0.norm_ffn", "norm") if recomputation == "op" else ()
    )
