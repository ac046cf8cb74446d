"""Grids of model cards: candidates, bounds, the ranking, and how the best are launched."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile

import laws
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from partitioners._grid_choices import divisible
from partitioners._grids.grid_bounds import GridBounds
from partitioners._grids.grid_plan import grid_plan
from partitioners._grids.ranking import best_of_splits, ranked_grids, split_of
from simulator.cli._grid_words import MAY_GO, table
from simulator.cli._tables import print_table
from simulator.cluster import Cluster
from simulator.errors import InputError
from simulator.language_models.accelerators import accelerator
from simulator.language_models.card_files import read_card
from simulator.language_models.grids import candidate_grids, default_batch
from simulator.language_models.model_card import ModelCard
from simulator.language_models.modelled_profile import modelled_profile
from simulator.language_models.training_grid import RECOMPUTATION, TrainingGrid
from simulator.language_models.training_stack import read_stack, stack_for
from simulator.lowering.schedules import SCHEDULES
from simulator.network.catalogue import read_cluster
from simulator.run import step_report
from simulator.taskgraph import Kind

NANOTRON = read_stack("nanotron-h100")
SMALL = ModelCard(name="small", layers=4, hidden=512, heads=8, ffn=2048, vocabulary=1024, sequence=512)
ROUTED = replace(SMALL, experts=4, experts_per_token=2)
DENSE_FIRST = replace(ROUTED, dense_layers=1, dense_ffn=1024)
TIED = replace(SMALL, tied_embeddings=True, vocabulary=32_768, sequence=8192)  # long enough to be split
CARDS = (SMALL, ROUTED, DENSE_FIRST, TIED)
PROFILES = {card: modelled_profile(card, NANOTRON, batch_size=2) for card in CARDS}


def nodes(devices: int, memory_bytes: int | None = 80 * 2**30) -> Cluster:
    cluster = read_cluster("dgx-h100", devices=devices)
    return replace(cluster, devices=tuple(replace(each, memory_bytes=memory_bytes) for each in cluster.devices))


def test_candidates_reach_every_kind_of_parallelism() -> None:
    kinds = {(grid.strategy, grid.zero_stage) for grid in candidate_grids(read_card("llama3-8b"), 16, 64)}
    assert {("data", 0), ("data", 1), ("fsdp", 2), ("fsdp", 3), ("megatron", 0), ("megatron", 3)} <= kinds
    assert {grid.expert for grid in candidate_grids(read_card("mixtral-8x7b"), 16, 64)} == {1, 2, 4, 8}
    assert all(grid.strategy == "data" for grid in candidate_grids(SMALL, 16, 64, strategies=("data",)))


def test_a_step_has_no_more_tokens_than_anybody_trains_with() -> None:
    assert default_batch(read_card("llama3-8b"), 64) == 256
    assert default_batch(read_card("llama3-405b"), 1024) * 8192 == 2**24
    assert default_batch(read_card("llama3-405b"), 13) == 52


def test_candidates_split_heads_and_batches() -> None:
    for grid in candidate_grids(read_card("gpt2-xl"), 16, 48):  # 25 heads: no tensor parallelism
        assert grid.tensor == 1 and 48 % grid.data == 0 and grid.devices == 16


WHOLE_EXPERTS = [
    TrainingGrid(data=data, tensor=2, context=context, expert=expert, expert_tensor=1, zero_stage=stage, accumulation=2)
    for data, context, expert, stage in ((2, 1, 4, 0), (4, 1, 2, 1), (4, 2, 4, 3), (2, 2, 2, 2))
]
GRIDS = {
    card: [
        replace(grid, recomputation=kind)
        for devices in (2, 4, 8, 16, 32)
        for grid in (*candidate_grids(card, devices, 32), *WHOLE_EXPERTS)
        if grid.devices == devices and (card.experts or grid.expert == 1)
        for kind in RECOMPUTATION
    ]
    for card in CARDS
}


@settings(max_examples=laws.examples(30, 90))
@given(st.sampled_from([(card, grid) for card, grids in GRIDS.items() for grid in grids]), st.booleans())
@example((SMALL, TrainingGrid(pipeline=2, chunks=2, accumulation=4)), False)  # chunks of 2, 1, 1 blocks and none
@example((TIED, TrainingGrid(pipeline=2, chunks=2, accumulation=8, microbatch=2)), False)  # of 2, 2, none and the head
@example((ROUTED, TrainingGrid(data=2, tensor=2, expert=4, expert_tensor=1, accumulation=2)), False)
@example((SMALL, TrainingGrid(tensor=4, pipeline=2, accumulation=4)), True)
def test_no_simulation_is_faster_or_smaller_than_its_bound(
    drawn: tuple[ModelCard, TrainingGrid], overlaps: bool
) -> None:
    card, grid = drawn
    cluster, profile = nodes(grid.devices), PROFILES[card]
    stack = replace(NANOTRON, runtime=replace(NANOTRON.runtime, overlaps_products=overlaps))
    try:
        plan = grid_plan(grid, profile, cluster, stack)
    except InputError:
        return
    bounds = GridBounds(profile, cluster, stack)
    computed, bound = bounds.bound(grid, simulated=False), bounds.bound(grid)
    report = step_report(profile, cluster, plan, runtime=stack.runtime)
    assert 0 < computed.step_s <= bound.step_s * (1 + 1e-9) and computed.peak_bytes <= bound.peak_bytes
    assert 0 < bound.step_s <= report.step_s
    assert 0 < bound.peak_bytes <= report.peak_memory_bytes


@pytest.mark.parametrize(
    ("name", "cluster", "grid"),
    [
        ("llama3-8b", "p3-16xlarge", TrainingGrid(context=2, tensor=8, microbatch=16, accumulation=4)),
        ("gpt2", "dgx-h100", TrainingGrid(pipeline=8, microbatch=4, accumulation=8)),
    ],
    ids=["sequences split between nodes", "a stage without layers"],
)
def test_bounds_hold_where_links_decide_and_where_stages_are_empty(name: str, cluster: str, grid: TrainingGrid) -> None:
    """Links that decide a step carry keys and values alone; a stage without layers keeps no micro-batch in flight."""
    card, machines = replace(read_card(name), layers=12), read_cluster(cluster, devices=grid.devices)
    profile = modelled_profile(card, NANOTRON, batch_size=1)
    bound = GridBounds(profile, machines, NANOTRON).bound(grid)
    report = step_report(profile, machines, grid_plan(grid, profile, machines, NANOTRON), runtime=NANOTRON.runtime)
    assert bound.step_s <= report.step_s
    assert bound.peak_bytes <= report.peak_memory_bytes


LARGER = replace(SMALL, layers=8, hidden=2048, heads=16, ffn=8192, vocabulary=32_000, sequence=2048)
SILENT = {"forward_launch_s": 0.0, "backward_launch_s": 0.0, "update_launch_s": 0.0, "step_overhead_s": 0.043}


@pytest.mark.parametrize(
    ("grid", "step", "peak"),
    [
        (TrainingGrid(), 0.88, 0.99),
        (TrainingGrid(accumulation=4), 0.88, 0.99),
        (TrainingGrid(microbatch=4), 0.93, 0.99),
        (TrainingGrid(recomputation="full"), 0.89, 0.99),
        (TrainingGrid(recomputation="selective"), 0.89, 0.99),
        (TrainingGrid(pipeline=2, accumulation=4), 0.86, 0.98),
        (TrainingGrid(pipeline=4, accumulation=8), 0.83, 0.98),
        (TrainingGrid(pipeline=4, accumulation=2), 0.9, 0.98),
        (TrainingGrid(tensor=2, accumulation=2), 0.91, 0.93),
        (TrainingGrid(data=2, zero_stage=1), 0.92, 0.99),
        (TrainingGrid(data=2, zero_stage=2), 0.91, 0.93),
        (TrainingGrid(data=2, zero_stage=3, accumulation=2), 0.91, 0.97),
    ],
    ids=str,
)
def test_where_nothing_is_waited_for_a_bound_is_near_what_it_bounds(
    grid: TrainingGrid, step: float, peak: float
) -> None:
    """Links and launches that take no time leave compute, which a bound holds but for updates and what stands alone."""
    cluster = nodes(grid.devices)
    links = tuple(replace(link.times(1e4), latency_s=0.0, curve=None) for link in cluster.links)
    cluster, stack = (
        replace(cluster, links=links, collectives={}),
        replace(NANOTRON, runtime=replace(NANOTRON.runtime, **SILENT)),
    )
    profile = modelled_profile(LARGER, stack, batch_size=1)
    bound = GridBounds(profile, cluster, stack).bound(grid)
    report = step_report(profile, cluster, grid_plan(grid, profile, cluster, stack), runtime=stack.runtime)
    assert step <= bound.step_s / report.step_s <= 1
    assert peak <= bound.peak_bytes / report.peak_memory_bytes <= 1


@pytest.mark.parametrize(
    ("pipeline", "chunks", "accumulation"),
    [
        (2, 1, 1),
        (2, 1, 8),
        (4, 1, 2),
        (4, 1, 8),
        (2, 2, 2),
        (2, 2, 4),
        (2, 4, 8),
        (3, 2, 6),
        (4, 2, 8),
        (4, 3, 4),
        (2, 3, 3),
    ],
)
def test_what_is_in_flight_is_what_a_schedule_has_done_before_its_first_backward_pass(
    pipeline: int, chunks: int, accumulation: int
) -> None:
    """Micro-batches of 1, 10 and 100 bytes in a device's chunks; where stages behind are empty one of them at least."""
    grid = TrainingGrid(pipeline=pipeline, chunks=chunks, accumulation=accumulation)
    bounds, sizes = GridBounds(PROFILES[SMALL], nodes(1), NANOTRON), [10.0**chunk for chunk in range(chunks)]
    order = SCHEDULES["interleaved" if chunks > 1 else "1f1b"].order
    assert order is not None
    for device in range(pipeline):
        passes = order(pipeline, device, accumulation, chunks)
        done = takewhile(lambda each: each[0] == Kind.FORWARD, passes)
        behind = [True] * (pipeline * chunks - device - 1)
        assert bounds._saved_in_flight(grid, behind, sizes) == sum(sizes[chunk] for _, _, chunk in done)
        if chunks > 1:
            assert bounds._saved_in_flight(grid, [*behind[:-1], False], sizes) == max(sizes)


@pytest.mark.parametrize("kind", RECOMPUTATION)
@pytest.mark.parametrize("card", [SMALL, ROUTED, TIED], ids=["small", "routed", "tied"])
def test_of_one_device_a_bound_is_all_that_its_micro_batches_compute(card: ModelCard, kind: str) -> None:
    """What three micro-batches more take, which neither update nor launch anything, is three times a micro-batch."""
    stack = replace(NANOTRON, runtime=replace(NANOTRON.runtime, **SILENT))
    layers = tuple(replace(layer, accumulate_s=0.0) for layer in PROFILES[card].layers)
    profile, steps_s = replace(PROFILES[card], layers=layers), []
    bounds = GridBounds(profile, nodes(1), stack)
    for accumulation in (1, 4):
        grid = TrainingGrid(accumulation=accumulation, recomputation=kind)
        plan = grid_plan(grid, profile, nodes(1), stack)
        steps_s.append(step_report(profile, nodes(1), plan, runtime=stack.runtime).step_s)
    microbatch_s = (steps_s[1] - steps_s[0]) / 3
    for accumulation in (1, 4):
        bound = bounds.bound(TrainingGrid(accumulation=accumulation, recomputation=kind))
        assert bound.step_s == pytest.approx(0.043 + accumulation * microbatch_s, rel=1e-6)


@pytest.mark.parametrize("accumulation", [1, 4])
def test_where_launches_decide_a_bound_is_their_seconds(accumulation: int) -> None:
    """Ten times as long as they are: all launches of the blocks, and what a step costs besides."""
    runtime = replace(NANOTRON.runtime, forward_launch_s=1e-3, backward_launch_s=2e-3)
    stack, grid = replace(NANOTRON, runtime=runtime), TrainingGrid(accumulation=accumulation)
    layers = sum(layer.name.startswith("blocks.") for layer in PROFILES[SMALL].layers)
    bound = GridBounds(PROFILES[SMALL], nodes(1), stack).bound(grid)
    assert bound.step_s == pytest.approx(accumulation * layers * 3e-3 + runtime.step_overhead_s, rel=1e-6)


@pytest.mark.parametrize(
    ("grid", "least"),
    [
        (TrainingGrid(data=2, expert=2), 0.999),
        (TrainingGrid(data=4, expert=4, zero_stage=1, microbatch=8), 0.997),
        (TrainingGrid(data=4, expert=4, pipeline=2, accumulation=4, zero_stage=1, microbatch=8), 0.95),
    ],
    ids=str,
)
def test_what_a_mixture_holds_is_bounded_with_all_its_experts(grid: TrainingGrid, least: float) -> None:
    """Also where the first block has none; the tokens that experts receive are there, and stay."""
    cluster, profile = nodes(grid.devices), PROFILES[DENSE_FIRST]
    report = step_report(profile, cluster, grid_plan(grid, profile, cluster, NANOTRON), runtime=NANOTRON.runtime)
    bound = GridBounds(profile, cluster, NANOTRON).bound(grid)
    assert least <= bound.peak_bytes / report.peak_memory_bytes <= 1


def test_experts_of_a_network_that_begins_dense_are_shared_out() -> None:
    ranking = ranked_grids(DENSE_FIRST, PROFILES[DENSE_FIRST], nodes(4), NANOTRON, 4, top=1000)
    assert {each.grid.expert for each in ranking.runs} == {1, 2, 4}
    assert not any("experts" in reason for _, reason in ranking.refused)


@pytest.mark.parametrize("card", laws.some(CARDS, 2, 3))
def test_what_bounds_leave_out_is_not_among_the_best(card: ModelCard) -> None:
    """The best three splits are those of a ranking that simulates every grid."""
    cluster, profile = nodes(4), PROFILES[card]
    some, every = (ranked_grids(card, profile, cluster, NANOTRON, 8, top=top) for top in (3, 1000))
    assert not every.bounded and some.bounded
    assert len(every.simulated) == len(some.simulated) + len(some.bounded)
    first = [(split_of(each.grid), each.report.step_s) for each in best_of_splits(some.runs)][:3]
    assert first == [(split_of(each.grid), each.report.step_s) for each in best_of_splits(every.runs)][:3]
    assert some.bound_s <= min(each.report.step_s for each in every.runs[len(some.runs) :])


def test_a_ranking_without_time_says_that_it_is_not_certain() -> None:
    ranking = ranked_grids(SMALL, PROFILES[SMALL], nodes(8), NANOTRON, 32, top=1000, time_left_s=lambda: 0.0)
    assert not ranking.certain and len(ranking.runs) == 1 and ranking.bounded
    assert ranking.bound_s >= 0
    step_s = ranking.runs[0].report.step_s
    may_be = [replace(ranking, bound_s=factor * step_s).may_be_best for factor in (0.9, 1.1)]
    assert may_be == [True, False] and not replace(ranking, bound_s=0.0, certain=True).may_be_best


def test_a_table_of_the_widest_grids_fits_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("simulator.cli._tables.PLAIN_WIDTH", 80)
    some = ranked_grids(SMALL, PROFILES[SMALL], nodes(8), NANOTRON, 32, time_left_s=lambda: 0.0).runs[0]
    grid = TrainingGrid(data=1024, context=16, tensor=8, pipeline=16, expert=64, expert_tensor=1, zero_stage=1,
                        shard_group=128, recomputation="selective", accumulation=1024, chunks=4)  # fmt: skip
    print_table(table([replace(some, grid=grid, report=replace(some.report, step_s=123.456))]), MAY_GO)
    *lines, note = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80 and "GiB, data, strategy, fits;" in note


def test_a_ranking_uses_every_device_and_puts_those_that_run_first() -> None:
    cluster, profile = nodes(8, memory_bytes=300 * 2**20), PROFILES[SMALL]
    ranking = ranked_grids(SMALL, profile, cluster, NANOTRON, 32)
    ranked = ranking.simulated
    assert all(each.grid.devices == 8 and each.grid.batch == 32 for each in ranked)
    runs = [each.runs for each in ranked]
    assert runs == sorted(runs, reverse=True) and ranking.runs and ranking.too_large
    assert any(each.grid.recomputation != "none" for each in ranked)  # tried where less does not fit
    seconds = [each.report.step_s for each in ranking.runs]
    assert seconds == sorted(seconds)
    best = ranked[0]
    assert best.interval.low_s < seconds[0] < best.interval.high_s
    peak = 8 * accelerator("h100").flops_per_s
    assert best.mfu == pytest.approx(32 * 512 / seconds[0] * SMALL.flops_per_token / peak)
    with pytest.raises(InputError, match="batch_size is 3"):
        ranked_grids(SMALL, profile, nodes(64), NANOTRON, 3)


def test_a_stack_has_the_gpus_of_a_cluster() -> None:
    assert stack_for(nodes(16), NANOTRON) == NANOTRON
    assert stack_for(read_cluster("dgx-a100", devices=16), NANOTRON).accelerator == "a100-40"
    with pytest.raises(InputError, match="a model card needs one kind of"):
        stack_for(read_cluster("cpu-1g"), NANOTRON)


@pytest.mark.parametrize("name", ["llama3-8b", "gemma2-9b", "gemma3-1b", "deepseek-v2-lite", "deepseek-v3"])
def test_heads_are_told_from_the_layers_of_a_card(name: str) -> None:
    """Of latents values are narrower than keys; of one head of keys and values there are several of queries."""
    card = read_card(name)
    cut = divisible(modelled_profile(card, read_stack("megatron-a100")))
    assert (cut.heads, cut.key_heads, cut.layers) == (card.heads, card.key_heads, card.layers)


def test_latents_are_cut_into_tensor_groups() -> None:
    """Into 4: 16 heads of queries are 10 by the width of values."""
    stack = read_stack("megatron-a100")
    profile, cluster = modelled_profile(read_card("deepseek-v2-lite"), stack), read_cluster("dgx-h100", devices=4)
    plan = grid_plan(TrainingGrid(data=1, tensor=4), profile, cluster, stack)
    assert plan.placements["blocks.1.attention"].degrees == (1, 4, 1, 1)
