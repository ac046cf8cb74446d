"""Steps and memory of grids: stages, pipelines as the engine has them, exchanges, verdicts, intervals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_closed_forms import star

from simulator.errors import InputError, UnknownNameError
from simulator.plan import Plan, Sharding
from simulator.run import run
from simulator.transformers.accelerators import GIB, accelerator
from simulator.transformers.gradient_exchange import (
    BUCKET_PARAMETERS,
    exchange_seconds,
    exposed_seconds,
    gather_seconds,
)
from simulator.transformers.grid_interval import grid_interval, network_band, residual_band
from simulator.transformers.grid_search import candidate_grids, ranked_grids
from simulator.transformers.launch_commands import RUNTIMES, launch_command
from simulator.transformers.model_card import ModelCard, read_card
from simulator.transformers.pipeline_time import pipeline_ends
from simulator.transformers.stage_split import StageBlocks, equal_stages, stages_by_parameters
from simulator.transformers.stage_time import block_seconds, collective_seconds
from simulator.transformers.step_memory import stage_memories, verdict
from simulator.transformers.step_time import step_seconds
from simulator.transformers.training_grid import TrainingGrid
from simulator.transformers.training_stack import StackConstants, TrainingStack, read_stack
from simulator.workload import Layer, Profile

NANOTRON = read_stack("nanotron-h100")
PLAIN = TrainingStack(
    name="plain", accelerator="h100", bounds={}, expected={},
    constants=StackConstants(
        launch_floor_s=0.0, update_layer_s=0.0, step_overhead_s=0.0, saved_factor=1.0, gathered_factor=0.0,
        gathered_waiting_factor=0.0, gradient_bytes=0.0, bucket_bytes=0.0, base_bytes=0.0, working_hidden_bytes=0.0,
        working_ffn_bytes=0.0, logit_bytes=0.0,
    ),
)  # fmt: skip
"""Nothing of the host, nothing of memory but what is counted."""
SMALL = ModelCard(name="small", layers=8, hidden=512, heads=8, ffn=2048, vocabulary=1024, sequence=512)


@pytest.mark.parametrize(
    ("model", "stages", "blocks"),
    [
        ("llama-8b-ultrascale", 2, (18, 14)), ("llama-8b-ultrascale", 4, (9, 9, 8, 6)),
        ("llama-8b-ultrascale", 8, (5, 4, 4, 5, 4, 4, 4, 2)), ("llama-1b-ultrascale", 2, (10, 6)),
        ("llama-1b-ultrascale", 4, (5, 5, 5, 1)), ("llama-1b-ultrascale", 8, (3, 2, 3, 2, 3, 2, 1, 0)),
    ],
)  # fmt: skip
def test_stages_by_parameters(model: str, stages: int, blocks: tuple[int, ...]) -> None:
    """Worked by hand: the head weighs 2.2 blocks of the 8B and 4 of the 1B."""
    split = stages_by_parameters(read_card(model), stages)
    assert tuple(stage.blocks for stage in split) == blocks
    assert split[0].embedding and split[-1].head and sum(stage.head + stage.embedding for stage in split) == 2


@given(stages=st.integers(1, 32), tensor=st.sampled_from((1, 2, 4)), model=st.sampled_from(("llama3-8b", "gpt2-xl")))
def test_stages_hold_every_parameter_once_but_a_tied_table(stages: int, tensor: int, model: str) -> None:
    card = read_card(model)
    norms = (2 * card.layers + 1) * card.norm_vectors * card.hidden
    twice = card.head_parameters if card.tied_embeddings and stages > 1 else 0
    for split in (stages_by_parameters, equal_stages):
        held = sum(stage.parameters(card, tensor) for stage in split(card, stages))
        assert held == pytest.approx((card.parameters + twice - norms) / tensor + norms)


SECONDS = st.floats(0.1, 2.0)


@given(data=st.data(), stages=st.integers(1, 5), microbatches=st.one_of(st.integers(1, 9), st.just(60)))
def test_a_pipeline_is_the_engines(data: st.DataObject, stages: int, microbatches: int) -> None:
    """The same 1F1B over stages of any forward and backward times and transfers of one latency."""
    forward = data.draw(st.lists(SECONDS, min_size=stages, max_size=stages))
    backward = data.draw(st.lists(SECONDS, min_size=stages, max_size=stages))
    latency_s = data.draw(st.floats(0.0, 0.5))
    layers = tuple(
        Layer(
            name=f"l{i}", kind="linear", inputs=(f"l{i - 1}",) if i else (), output_shape=(1, 1, 1), output_bytes=4,
            forward_s=forward[i], backward_s=backward[i],
        )
        for i in range(stages)
    )  # fmt: skip
    profile = Profile(model="stages", device="none", batch_size=1, layers=layers)
    plan = Plan(
        model="stages", batch_size=microbatches, microbatches=microbatches, schedule="1f1b",
        placements={f"l{i}": Sharding(devices=(i,)) for i in range(stages)},
    )  # fmt: skip
    cluster = star(max(stages, 2), bandwidth=1e30, latency_s=latency_s)
    measured = run(profile, cluster, plan).report.step_s
    ends = pipeline_ends(forward, backward, [latency_s] * (stages - 1), microbatches)
    assert float(ends.latest) == pytest.approx(measured, rel=1e-9)


def test_pipelines_of_arrays_are_independent() -> None:
    forward, backward = np.array([[1.0, 3.0], [2.0, 1.0]]), np.array([[2.0, 1.0], [1.0, 4.0]])
    together = pipeline_ends(forward, backward, [np.array([0.1, 0.2])], 5).latest
    apart = [pipeline_ends(forward[:, i], backward[:, i], [(0.1, 0.2)[i]], 5).latest for i in range(2)]
    assert together == pytest.approx(apart)


def test_equal_stages_have_the_bubble_of_the_formula() -> None:
    """(p - 1) / (m + p - 1) of the passes (Narayanan et al., SC 2021)."""
    ends = pipeline_ends([1.0] * 4, [2.0] * 4, [0.0] * 3, 12)
    assert float(ends.latest) == pytest.approx(3.0 * (12 + 3))
    many = pipeline_ends([0.1] * 64, [0.2] * 64, [0.0] * 63, 16_384)
    assert float(many.latest) == pytest.approx(0.3 * (16_384 + 63), rel=1e-12)


def test_one_device_takes_the_sum_of_its_parts() -> None:
    step = step_seconds(SMALL, TrainingGrid(microbatch=2, accumulation=4), PLAIN)
    assert step.exposed_s == step.gather_s == step.other_s == 0
    assert float(step.step_s) == pytest.approx(float(step.passes_s) + float(step.update_s))
    half = step_seconds(SMALL, TrainingGrid(microbatch=2, accumulation=2), PLAIN)
    assert float(step.passes_s) == pytest.approx(2 * float(half.passes_s))


def test_the_host_holds_a_block_up_where_it_launches_slowly() -> None:
    slow = replace(PLAIN, constants=replace(PLAIN.constants, launch_floor_s=1.0))
    step = step_seconds(SMALL, TrainingGrid(accumulation=3), slow)
    assert float(step.passes_s) == pytest.approx(3 * (SMALL.layers + 1), rel=0.01)  # blocks and head


def test_an_exchange_is_a_ring_and_zero_gathers_after_it() -> None:
    constants = replace(PLAIN.constants, network_share=1.0, ring_hop_s=0.0)
    grid = TrainingGrid(data=4, tensor=8)
    stage = StageBlocks(blocks=8)
    size = stage.parameters(SMALL, 8)
    all_reduce = exchange_seconds(stage, SMALL, grid, constants)
    assert all_reduce.total_s == pytest.approx(2 * 3 / 4 * 4 * size / 50e9)  # each device has a network card of its own
    zero = replace(grid, zero_stage=1)
    scatter = exchange_seconds(stage, SMALL, zero, constants)
    assert scatter.transfer_s == pytest.approx(all_reduce.total_s / 2)
    hops_s = 3 * size / BUCKET_PARAMETERS * constants.gather_hop_s
    assert scatter.hops_s == pytest.approx(hops_s)
    assert gather_seconds(stage, SMALL, zero, constants) == pytest.approx(3 / 4 * 2 * size / 50e9 + hops_s)
    ring = exchange_seconds(stage, SMALL, TrainingGrid(data=32), constants)
    assert ring.total_s == pytest.approx(2 * 31 / 32 * 4 * stage.parameters(SMALL) / (8 * 50e9))  # 8 share 8 cards
    assert gather_seconds(stage, SMALL, grid, constants) == 0
    assert exposed_seconds(scatter, 1e9, constants) == pytest.approx(hops_s)  # a backward pass hides bytes, no hops


def test_collectives_of_a_tensor_group_cost_steps_of_a_ring_and_bytes() -> None:
    constants = replace(PLAIN.constants, tensor_hop_s=1e-5, tensor_bytes_per_s=1e11)
    size = 2 * 512 * 512 * 2 * 3 / 4
    grid = TrainingGrid(tensor=4, microbatch=2)
    assert float(collective_seconds(SMALL, grid, constants)) == pytest.approx(size / 1e11 + 3e-5)
    assert collective_seconds(SMALL, TrainingGrid(), constants) == 0


@pytest.mark.parametrize(("zero_stage", "per_parameter"), [(0, 18), (1, 6 + 12 / 4), (2, 2 + 16 / 4), (3, 18 / 4)])
def test_states_take_the_published_bytes(zero_stage: int, per_parameter: float) -> None:
    """bf16 weight, fp32 sum of gradients and Adam's 12 bytes, shared from stage 3, 2 and 1 on (arXiv 1910.02054).

    From stage 2 on, two blocks stand whole beside them.
    """
    memories = stage_memories(SMALL, TrainingGrid(data=4, zero_stage=zero_stage), PLAIN)
    whole = 2 * 6 * SMALL.block_parameters if zero_stage >= 2 else 0
    assert float(memories[0].parameters) == pytest.approx(SMALL.parameters * per_parameter + whole)


def test_activations_in_flight_are_those_of_1f1b() -> None:
    stages = stage_memories(SMALL, TrainingGrid(pipeline=4, accumulation=8), replace(PLAIN, splits="equal"))
    kept = [float(memory.activations) for memory in stages]
    assert kept == pytest.approx([kept[3] * count for count in (4, 3, 2, 1)])


def test_verdicts_name_the_reason() -> None:
    card = read_card("llama3-70b")
    huge = TrainingGrid(data=8, accumulation=8)
    opinion = verdict(card, huge, NANOTRON, stage_memories(card, huge, NANOTRON))
    assert opinion.fit == "does not fit" and opinion.reason.startswith("stage 1 of 1 needs ")
    bare = TrainingGrid(data=2, pipeline=16, accumulation=32)  # 16 blocks and a head as heavy as 4
    card_1b = read_card("llama-1b-ultrascale")
    opinion = verdict(card_1b, bare, NANOTRON, stage_memories(card_1b, bare, NANOTRON))
    assert opinion.fit == "breaks a rule" and "without parameters" in opinion.reason
    few = TrainingGrid(tensor=8, pipeline=8, accumulation=4)
    opinion = verdict(card, few, NANOTRON, stage_memories(card, few, NANOTRON))
    assert opinion.fit == "breaks a rule" and "at least 7 micro-batches" in opinion.reason


def test_ranked_grids_use_every_device_and_put_those_that_run_first() -> None:
    card = replace(read_card("llama3-8b"), sequence=4096)
    ranked = ranked_grids(card, 32, 64, NANOTRON)
    assert all(each.grid.devices == 32 and each.grid.batch == 64 for each in ranked)
    runs = [each.runs for each in ranked]
    assert runs == sorted(runs, reverse=True) and True in runs and False in runs
    seconds = [float(each.step.step_s) for each in ranked if each.runs]
    assert seconds == sorted(seconds)
    best = ranked[0]
    low_s, high_s = best.interval_s
    assert low_s < seconds[0] < high_s and 0.2 < best.mfu < 0.6
    needed = [each.most_bytes for each in ranked if not each.runs]
    assert needed == sorted(needed)
    peak = 32 * accelerator("h100").flops_per_s
    assert best.mfu == pytest.approx(64 * 4096 / seconds[0] * card.flops_per_token / peak)
    with pytest.raises(InputError, match="batch_size is 3"):
        ranked_grids(replace(card, heads=1, kv_heads=None, layers=1), 32, 3, NANOTRON)


def test_candidates_split_heads_and_batches() -> None:
    for grid in candidate_grids(read_card("gpt2-xl"), 16, 48):  # 25 heads: no tensor parallelism
        assert grid.tensor == 1 and 48 % grid.data == 0 and grid.devices == 16


def test_an_interval_widens_with_the_band_of_the_network() -> None:
    card = read_card("llama-8b-ultrascale")
    low, high = grid_interval(card, TrainingGrid(data=64, tensor=8, accumulation=4), NANOTRON)
    near, far = grid_interval(card, TrainingGrid(tensor=8, accumulation=256), NANOTRON)
    assert high / low > far / near
    widening = {nodes: (2**-0.1, 2 ** (0.1 * nodes)) for nodes in (1, 2)}
    assert residual_band(widening, 8) == pytest.approx((2**-0.1, 2**0.4))  # 0.1 more with every doubling
    assert residual_band({}, 8) == (1.0, 1.0) and residual_band({4: (0.9, 1.2)}, 8) == pytest.approx((0.9, 1.2))
    assert network_band({2: (0.5, 1.5), 8: (0.1, 3.0)}, 4) == pytest.approx((0.3, 2.25))
    assert network_band({2: (0.5, 1.5)}, 1) == (1.0, 1.0) and network_band({2: (0.5, 1.5)}, 64) == (0.5, 1.5)


def test_the_usual_network_falls_between_known_numbers_of_nodes() -> None:
    assert [NANOTRON.usual_network(nodes) for nodes in (1, 32, 64, 128)] == pytest.approx([1, 1, 0.75, 0.75])
    assert PLAIN.usual_network(64) == 1.0
    grid = TrainingGrid(data=64, tensor=8, zero_stage=1, accumulation=4)
    steady = replace(NANOTRON, network_usual={})
    slower, step = (step_seconds(SMALL, grid, stack) for stack in (NANOTRON, steady))
    assert float(slower.gather_s) > float(step.gather_s)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_launch_command_has_every_degree(runtime: str) -> None:
    grid = TrainingGrid(data=32, microbatch=2, accumulation=4) if runtime == "fsdp2" else TrainingGrid(
        data=3, tensor=4, pipeline=16, zero_stage=1, microbatch=2, accumulation=20
    )  # fmt: skip
    text = launch_command(runtime, read_card("llama3-8b"), grid)
    degrees = (grid.data, grid.tensor, grid.pipeline) if runtime == "nanotron" else (grid.tensor, grid.pipeline)
    assert all(str(degree) in text for degree in (degrees if runtime != "fsdp2" else (grid.data,)))
    assert f"--nnodes {grid.nodes} --nproc-per-node 8" in text


def test_runtimes_refuse_what_they_cannot_run() -> None:
    with pytest.raises(InputError, match="plain FSDP2"):
        launch_command("fsdp2", SMALL, TrainingGrid(tensor=2))
    with pytest.raises(UnknownNameError, match="megatron"):
        launch_command("megatrom", SMALL, TrainingGrid())
    with pytest.raises(InputError, match="zero_stage is 4"):
        TrainingGrid(zero_stage=4)
    with pytest.raises(InputError, match="expert is 3"):
        TrainingGrid(data=4, expert=3)
    with pytest.raises(InputError, match="nanotron has ZeRO-0 and -1"):
        launch_command("nanotron", SMALL, TrainingGrid(data=2, zero_stage=3))
    with pytest.raises(InputError, match="shards dense blocks"):
        launch_command("megatron", SMALL, TrainingGrid(data=2, zero_stage=3, expert=2))
    with pytest.raises(UnknownNameError, match="launch_floor_s"):
        TrainingStack(name="x", accelerator="h100", bounds={"launch_flor_s": (0, 1)}, expected={})


def test_a_larger_tensor_group_is_faster_on_the_gpu_alone() -> None:
    gpu, constants = accelerator("h100"), replace(PLAIN.constants, tensor_hop_s=0.0, tensor_bytes_per_s=1e30)
    times = [float(block_seconds(SMALL, TrainingGrid(tensor=t), gpu, constants).gpu_s) for t in (1, 2, 4)]
    assert times == sorted(times, reverse=True)
    assert NANOTRON.constants.border_bytes < 80 * GIB
