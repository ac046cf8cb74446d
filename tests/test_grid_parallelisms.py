"""Grids beyond data, tensor and pipeline: experts, context, ZeRO-2 and -3, recomputation; commands, other clusters."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from test_grid_steps import NANOTRON, PLAIN, SMALL

from simulator.errors import InputError
from simulator.network.catalogue import read_cluster
from simulator.transformers.accelerators import accelerator
from simulator.transformers.block_timeline import block_timeline
from simulator.transformers.gradient_exchange import exchange_seconds, gather_seconds
from simulator.transformers.grid_search import candidate_grids
from simulator.transformers.launch_commands import launch_command
from simulator.transformers.model_card import read_card
from simulator.transformers.pipeline_time import pipeline_ends
from simulator.transformers.stack_on_cluster import devices_per_node, on_cluster
from simulator.transformers.stage_split import StageBlocks
from simulator.transformers.stage_time import block_seconds, expert_exchange_seconds, exposed_context_seconds
from simulator.transformers.step_memory import stage_memories
from simulator.transformers.training_grid import TrainingGrid

GPU = accelerator("h100")
ROUTED = replace(SMALL, experts=8, experts_per_token=2)


def test_experts_are_summed_over_fewer_replicas() -> None:
    """Of 16 replicas each pair shares 8 experts, so that 8 devices sum the gradients of one."""
    stage, grid = StageBlocks(blocks=8), TrainingGrid(data=16, expert=2, node_devices=1)
    experts = stage.expert_parameters(ROUTED, 1, 2)
    assert experts == 8 * 8 * 3 * 512 * 2048 / 2
    dense = stage.parameters(ROUTED, 1, 2) - experts
    constants = replace(PLAIN.constants, network_share=1.0, ring_hop_s=0.0)
    expected = 2 * 4 * (15 / 16 * dense + 7 / 8 * experts) / 50e9
    assert exchange_seconds(stage, ROUTED, grid, constants).total_s == pytest.approx(expected)


def test_an_all_to_all_carries_what_other_devices_experts_take() -> None:
    constants = replace(PLAIN.constants, tensor_hop_s=0.0, tensor_bytes_per_s=1e11)
    grid = TrainingGrid(data=4, expert=4)
    assert expert_exchange_seconds(ROUTED, grid, constants) == pytest.approx(2 * (512 * 2) * 512 * 3 / 4 / 1e11)
    assert expert_exchange_seconds(SMALL, TrainingGrid(data=4), constants) == 0


def test_parts_of_a_sequence_wait_for_keys_and_values_behind_attention() -> None:
    constants = replace(PLAIN.constants, tensor_hop_s=0.0, tensor_bytes_per_s=1e9)
    grid = TrainingGrid(context=4)
    ring_s = 2 * 2 * 128 * 512 * 3 / 1e9  # keys and values of 128 tokens to three others
    assert exposed_context_seconds(SMALL, grid, (0.0, 0.0), constants) == pytest.approx(3 * ring_s)
    assert exposed_context_seconds(SMALL, grid, (ring_s, ring_s), constants) == pytest.approx(ring_s)
    whole = block_seconds(SMALL, TrainingGrid(microbatch=64), GPU, constants)
    parts = block_seconds(SMALL, replace(grid, microbatch=64), GPU, constants)
    assert parts.compute_s < whole.compute_s / 2


def test_shared_parameters_are_gathered_beside_the_block_before() -> None:
    slow, grid, block = replace(PLAIN.constants, network_share=1e-4), TrainingGrid(data=16, zero_stage=3), StageBlocks
    seconds = block_seconds(SMALL, grid, GPU, slow)
    transfers_s = 2 * gather_seconds(block(blocks=1), SMALL, grid, slow)
    transfers_s += exchange_seconds(block(blocks=1), SMALL, grid, slow).total_s
    assert seconds.states_s + seconds.compute_s == pytest.approx(transfers_s)
    fast = replace(slow, network_share=1e9, gather_hop_s=0.0)
    assert block_seconds(SMALL, grid, GPU, fast).states_s == 0


def test_a_steady_pipeline_stalls_once_for_every_micro_batch_of_its_last_stage() -> None:
    ends = pipeline_ends([1.0] * 4, [2.0] * 4, [0.0] * 3, 12, stalls=[0.5] * 4)
    assert float(ends.latest) == pytest.approx(3.0 * (12 + 3) + 0.5 * 12)
    assert pipeline_ends([1.0], [2.0], [], 5, stalls=[0.5]).latest == pytest.approx(15.0)


def test_recomputation_adds_a_forward_pass_and_keeps_inputs() -> None:
    grid = TrainingGrid(microbatch=2, accumulation=2)
    again = replace(grid, recomputation="full")
    plain, longer = (block_seconds(SMALL, each, GPU, PLAIN.constants) for each in (grid, again))
    assert 1.25 < longer.compute_s / plain.compute_s < 1.4
    kept, inputs = (stage_memories(SMALL, each, PLAIN)[0] for each in (grid, again))
    assert inputs.activations == pytest.approx(8 * 2 * 2 * 512 * 512) and inputs.needed < kept.needed


@pytest.mark.parametrize("degrees", [{}, {"tensor": 4}, {"data": 4, "zero_stage": 3}, {"context": 2, "tensor": 2}])
def test_a_blocks_timeline_adds_up_to_its_seconds(degrees: dict[str, Any]) -> None:
    for recomputation in ("none", "full"):
        grid = replace(TrainingGrid(microbatch=2, **degrees), recomputation=recomputation)
        spans = block_timeline(SMALL, grid, NANOTRON)
        block = block_seconds(SMALL, grid, GPU, NANOTRON.constants)
        assert spans[-1].end_s == pytest.approx(float(np.maximum(block.gpu_s, block.host_s)))
        assert all(before.end_s == after.start_s for before, after in pairwise(spans))
        assert {"qkv", "attention", "down"} <= {span.name for span in spans if not span.backward}


def test_candidates_reach_every_kind_of_parallelism() -> None:
    kinds = {(grid.strategy, grid.zero_stage) for grid in candidate_grids(read_card("llama3-8b"), 16, 64)}
    assert {("data", 0), ("data", 1), ("fsdp", 2), ("fsdp", 3), ("megatron", 0), ("megatron", 3)} <= kinds
    assert {grid.expert for grid in candidate_grids(read_card("mixtral-8x7b"), 16, 64)} == {1, 2, 4, 8}
    assert all(grid.strategy == "data" for grid in candidate_grids(SMALL, 16, 64, strategies=("data",)))


def test_a_stack_moves_to_another_cluster() -> None:
    assert on_cluster(NANOTRON, read_cluster("dgx-h100", devices=16)) == NANOTRON
    cluster = read_cluster("dgx-a100", devices=16)
    assert devices_per_node(cluster) == 8
    a100 = on_cluster(NANOTRON, cluster)
    assert a100.accelerator == "a100-40" and a100.constants.border_bytes == NANOTRON.constants.border_bytes / 2
    assert a100.constants.tensor_bytes_per_s == pytest.approx(NANOTRON.constants.tensor_bytes_per_s * 300 / 450)
    assert a100.constants.network_bytes_per_s == pytest.approx(25e9)
    with pytest.raises(InputError, match="a model card needs one kind of"):
        on_cluster(NANOTRON, read_cluster("cpu-1g"))


WIDE = TrainingGrid(data=8, context=2, tensor=4, expert=2, zero_stage=1, microbatch=2, accumulation=4)
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
        ("nanotron", WIDE, ("context_parallel_size: 2", "expert_parallel_size: 2", "tp: 4", "zero_stage: 1")),
        ("fsdp2", SHARED, ("(32,)", "reshard_after_forward=True", "checkpoint_wrapper")),
        ("fsdp2", TrainingGrid(data=16, zero_stage=1), ("DistributedDataParallel", "ZeroRedundancyOptimizer")),
    ],
)  # fmt: skip
def test_every_degree_stands_in_its_place(runtime: str, grid: TrainingGrid, options: tuple[str, ...]) -> None:
    text = launch_command(runtime, read_card("mixtral-8x7b"), grid)
    assert [option for option in options if option not in text] == []
