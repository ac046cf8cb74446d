"""Grids of model cards: candidates, bounds, the ranking, and how the best are launched."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partitioners._grids.grid_bounds import GridBounds
from partitioners._grids.grid_plan import grid_plan
from partitioners._grids.ranking import best_of_splits, ranked_grids, split_of
from simulator.cluster import Cluster
from simulator.errors import InputError, UnknownNameError
from simulator.language_models.accelerators import accelerator
from simulator.language_models.grids import candidate_grids
from simulator.language_models.launch_commands import RUNTIMES, launch_command
from simulator.language_models.model_card import ModelCard, read_card
from simulator.language_models.modelled_profile import modelled_profile
from simulator.language_models.training_grid import RECOMPUTATION, TrainingGrid
from simulator.language_models.training_stack import read_stack, stack_for
from simulator.network.catalogue import read_cluster
from simulator.run import step_report

NANOTRON = read_stack("nanotron-h100")
SMALL = ModelCard(name="small", layers=4, hidden=512, heads=8, ffn=2048, vocabulary=1024, sequence=512)
ROUTED = replace(SMALL, experts=4, experts_per_token=2)
PROFILES = {card: modelled_profile(card, NANOTRON, batch_size=2) for card in (SMALL, ROUTED)}


def nodes(devices: int, memory_bytes: int | None = 80 * 2**30) -> Cluster:
    cluster = read_cluster("dgx-h100", devices=devices)
    return replace(cluster, devices=tuple(replace(each, memory_bytes=memory_bytes) for each in cluster.devices))


def test_candidates_reach_every_kind_of_parallelism() -> None:
    kinds = {(grid.strategy, grid.zero_stage) for grid in candidate_grids(read_card("llama3-8b"), 16, 64)}
    assert {("data", 0), ("data", 1), ("fsdp", 2), ("fsdp", 3), ("megatron", 0), ("megatron", 3)} <= kinds
    assert {grid.expert for grid in candidate_grids(read_card("mixtral-8x7b"), 16, 64)} == {1, 2, 4, 8}
    assert all(grid.strategy == "data" for grid in candidate_grids(SMALL, 16, 64, strategies=("data",)))


def test_candidates_split_heads_and_batches() -> None:
    for grid in candidate_grids(read_card("gpt2-xl"), 16, 48):  # 25 heads: no tensor parallelism
        assert grid.tensor == 1 and 48 % grid.data == 0 and grid.devices == 16


GRIDS = {
    card: [
        replace(grid, recomputation=kind)
        for devices in (2, 4, 8, 16)
        for grid in candidate_grids(card, devices, 32)
        for kind in RECOMPUTATION
    ]
    for card in (SMALL, ROUTED)
}


@settings(max_examples=60)
@given(st.sampled_from([(card, grid) for card, grids in GRIDS.items() for grid in grids]))
def test_no_simulation_is_faster_or_smaller_than_its_bound(drawn: tuple[ModelCard, TrainingGrid]) -> None:
    card, grid = drawn
    cluster, profile = nodes(grid.devices), PROFILES[card]
    try:
        plan = grid_plan(grid, profile, cluster, NANOTRON)
    except InputError:
        return
    bound = GridBounds(card, profile, cluster, NANOTRON).bound(grid)
    report = step_report(profile, cluster, plan, runtime=NANOTRON.runtime)
    assert 0 < bound.step_s <= report.step_s
    assert 0 < bound.peak_bytes <= report.peak_memory_bytes


@pytest.mark.parametrize("card", [SMALL, ROUTED])
def test_what_bounds_leave_out_is_not_among_the_best(card: ModelCard) -> None:
    """The best three splits are those of a ranking that simulates every grid."""
    cluster, profile = nodes(8), PROFILES[card]
    some, every = (ranked_grids(card, profile, cluster, NANOTRON, 32, top=top) for top in (3, 1000))
    assert not every.bounded and some.bounded
    assert len(every.simulated) == len(some.simulated) + len(some.bounded)
    first = [(split_of(each.grid), each.report.step_s) for each in best_of_splits(some.runs)][:3]
    assert first == [(split_of(each.grid), each.report.step_s) for each in best_of_splits(every.runs)][:3]
    assert some.bound_s <= min(each.report.step_s for each in every.runs[len(some.runs) :])


def test_a_ranking_without_time_says_that_it_is_not_certain() -> None:
    ranking = ranked_grids(SMALL, PROFILES[SMALL], nodes(8), NANOTRON, 32, top=1000, time_left_s=lambda: 0.0)
    assert not ranking.certain and len(ranking.runs) == 1 and ranking.bounded
    assert ranking.bound_s >= 0


def test_a_ranking_uses_every_device_and_puts_those_that_run_first() -> None:
    cluster, profile = nodes(16, memory_bytes=300 * 2**20), PROFILES[SMALL]
    ranking = ranked_grids(SMALL, profile, cluster, NANOTRON, 64)
    ranked = ranking.simulated
    assert all(each.grid.devices == 16 and each.grid.batch == 64 for each in ranked)
    runs = [each.runs for each in ranked]
    assert runs == sorted(runs, reverse=True) and ranking.runs and ranking.too_large
    assert any(each.grid.recomputation != "none" for each in ranked)  # tried where less does not fit
    seconds = [each.report.step_s for each in ranking.runs]
    assert seconds == sorted(seconds)
    best = ranked[0]
    assert best.interval.low_s < seconds[0] < best.interval.high_s
    peak = 16 * accelerator("h100").flops_per_s
    assert best.mfu == pytest.approx(64 * 512 / seconds[0] * SMALL.flops_per_token / peak)
    with pytest.raises(InputError, match="batch_size is 3"):
        ranked_grids(replace(SMALL, heads=1, layers=1), profile, cluster, NANOTRON, 3)


def test_a_stack_has_the_gpus_of_a_cluster() -> None:
    assert stack_for(nodes(16), NANOTRON) == NANOTRON
    assert stack_for(read_cluster("dgx-a100", devices=16), NANOTRON).accelerator == "a100-40"
    with pytest.raises(InputError, match="a model card needs one kind of"):
        stack_for(read_cluster("cpu-1g"), NANOTRON)


WIDE = TrainingGrid(data=8, context=2, tensor=4, expert=2, zero_stage=1, microbatch=2, accumulation=4)
LAID_OUT = TrainingGrid(
    data=8, pipeline=4, layout="9,8,8,7", zero_stage=1, shard_group=4, recomputation="selective", accumulation=8
)
CHUNKED = TrainingGrid(pipeline=4, chunks=2, layout="", recomputation="core_attn+layernorm", accumulation=8)
SHARED = TrainingGrid(data=32, zero_stage=3, recomputation="full", microbatch=2, accumulation=4)


@pytest.mark.parametrize(
    ("runtime", "grid", "options"),
    [
        ("megatron", WIDE, ("--context-parallel-size 2", "--expert-model-parallel-size 2", "--moe-router-topk 2",
                            "--tensor-model-parallel-size 4", "--use-distributed-optimizer")),
        ("megatron", SHARED, ("--data-parallel-sharding-strategy optim_grads_params", "--recompute-granularity full")),
        ("torchtitan", WIDE, ("context_parallel_degree 2", "expert_parallel_degree 2", "tensor_parallel_degree 4",
                              "data_parallel_replicate_degree 8", "local_batch_size 2")),
        ("torchtitan", SHARED, ("data_parallel_shard_degree 32", "fsdp_reshard_after_forward always", "mode full")),
        ("megatron", LAID_OUT, ('--pipeline-model-parallel-layout "Et*9|t*8|t*8|t*7,L"',
                                "--recompute-modules core_attn", "--num-distributed-optimizer-instances 2")),
        ("megatron", CHUNKED, ("--num-virtual-stages-per-pipeline-rank 2", "--recompute-modules core_attn layernorm")),
        ("torchtitan", replace(CHUNKED, recomputation="op"), ("Interleaved1F1B", "selective_ac_option op")),
        ("torchtitan", replace(SHARED, shard_group=8), ("replicate_degree 4", "shard_degree 8")),
        ("fsdp2", replace(SHARED, shard_group=8), ('init_device_mesh("cuda", (4, 8))',)),
        ("nanotron", WIDE, ("context_parallel_size: 2", "expert_parallel_size: 2", "tp: 4", "zero_stage: 1")),
        ("fsdp2", SHARED, ("(32,)", "reshard_after_forward=True", "checkpoint_wrapper")),
        ("fsdp2", TrainingGrid(data=16, zero_stage=1), ("DistributedDataParallel", "ZeroRedundancyOptimizer")),
    ],
)  # fmt: skip
def test_every_degree_stands_where_the_runtime_reads_it(
    runtime: str, grid: TrainingGrid, options: tuple[str, ...]
) -> None:
    text = launch_command(runtime, read_card("mixtral-8x7b"), grid)
    assert [option for option in options if option not in text] == []


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
    with pytest.raises(InputError, match="nanotron has ZeRO-0 and -1"):
        launch_command("nanotron", SMALL, CHUNKED)
    with pytest.raises(InputError, match="recomputation is op"):
        launch_command("megatron", SMALL, TrainingGrid(recomputation="op"))
    with pytest.raises(InputError, match="recomputation is selective, layout"):
        launch_command("torchtitan", SMALL, TrainingGrid(recomputation="selective"))
    with pytest.raises(InputError, match="wrap whole blocks"):
        launch_command("fsdp2", SMALL, TrainingGrid(data=2, zero_stage=3, recomputation="op"))
    with pytest.raises(InputError, match="shard_group is 3"):
        TrainingGrid(data=4, zero_stage=1, shard_group=3)
    with pytest.raises(InputError, match="shards dense blocks"):
        launch_command("megatron", SMALL, TrainingGrid(data=2, zero_stage=3, expert=2))
