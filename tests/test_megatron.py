"""The strategies megatron and fsdp: placements of a block, stages, recomputation."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from activation_bytes import gelu_block_bytes, swiglu_block_bytes
from counted_volume import communication_volume
from hypothesis import given
from hypothesis import strategies as st
from test_closed_forms import star

from partitioners import plan_of
from partitioners._stages.block_layout import balanced_stages, separable_units
from partitioners._stages.recomputed_layers import KINDS
from simulator.errors import InputError
from simulator.files import read_profile
from simulator.language_models.device_model import DeviceModel
from simulator.language_models.model_card import LatentAttention, ModelCard
from simulator.language_models.modelled_profile import modelled_profile
from simulator.language_models.training_stack import TrainingStack
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower
from simulator.parameter_states import ParameterStates
from simulator.plan import Plan, StepSettings
from simulator.run import run
from simulator.runtime import Runtime
from simulator.taskgraph import Floats
from simulator.workload import Profile

CARD = ModelCard(name="small", layers=4, hidden=256, heads=8, kv_heads=2, ffn=1024, vocabulary=512, sequence=256)
STACK = TrainingStack(name="plain", accelerator="h100", device=DeviceModel(), runtime=Runtime())
PROFILE = modelled_profile(CARD, STACK, batch_size=2)
WAYS = ("forward", "backward")


def settings(batch_size: int, microbatches: int = 1, stage: int = 0) -> StepSettings:
    states = ParameterStates(stage=stage)
    return StepSettings(batch_size=batch_size, microbatches=microbatches, states=states, optimizer_state=6.0)


def test_a_profile_has_the_cards_parameters_and_says_that_it_is_modelled() -> None:
    assert PROFILE.parameter_bytes == 2 * CARD.parameters
    assert "modelled, not measured" in PROFILE.notes and PROFILE.step_s is None
    tied = modelled_profile(replace(CARD, tied_embeddings=True), STACK)
    assert tied.parameter_bytes == 2 * replace(CARD, tied_embeddings=True).parameters


def test_a_block_under_tensor_parallelism_is_megatrons() -> None:
    plan = plan_of("megatron", PROFILE, star(8), settings(4), tensor=4)
    shapes = {
        name.removeprefix("blocks.1."): sharding for name, sharding in plan.placements.items() if "blocks.1." in name
    }
    assert shapes["norm_attention"].degrees == (2, 1, 4, 1)  # by sequence
    assert shapes["q"].degrees == (2, 4, 1, 1)
    assert (shapes["k"].degrees, shapes["k"].copy) == ((2, 2, 1, 1), 2)  # two heads of keys on four devices
    assert shapes["attention"].degrees == (2, 4, 1, 1)
    assert (shapes["output"].degrees, shapes["output"].reduce) == ((2, 1, 1, 1), 4)
    assert shapes["add_attention"].degrees == (2, 1, 4, 1)
    assert shapes["gate"].degrees == shapes["activation"].degrees == (2, 4, 1, 1)
    assert shapes["down"].reduce == 4
    assert plan.placements["embedding"].reduce == plan.placements["cross_entropy"].reduce == 4
    assert plan.exchange == "collectives"
    copied = plan_of("megatron", PROFILE, star(8), settings(4), tensor=4, sequence_parallel=False)
    assert copied.placements["blocks.1.norm_attention"].copy == 4


@pytest.mark.parametrize(
    ("heads", "kv_heads", "tensor", "complaint"),
    [
        (12, None, 8, "tensor is 8: it divides the 12 heads of 'blocks.0.attention'"),
        (4, None, 8, "tensor is 8: it divides the 4 heads of 'blocks.0.attention'"),
        (12, 4, 8, "tensor is 8: it divides the 12 heads of 'blocks.0.attention'"),
        (24, 6, 4, "tensor is 4: it divides the 6 heads of keys and values of 'blocks.0.attention', or is a multiple"),
    ],
)
def test_no_device_gets_a_part_of_a_head(heads: int, kv_heads: int | None, tensor: int, complaint: str) -> None:
    profile = modelled_profile(replace(CARD, heads=heads, kv_heads=kv_heads, hidden=384), STACK, batch_size=2)
    with pytest.raises(InputError) as refused:
        plan_of("megatron", profile, star(8), settings(8), tensor=tensor)
    assert complaint in str(refused.value)
    plan_of("megatron", profile, star(8), settings(8), tensor=2)


def test_heads_of_a_layer_that_makes_queries_keys_and_values_are_whole_too() -> None:
    profile = read_profile("gpt2_large_h100")  # 20 heads
    with pytest.raises(InputError, match=r"tensor is 8: it divides the 20 heads of 'transformer\.h\.0\.attn\.matmul'"):
        plan_of("megatron", profile, star(8), settings(8), tensor=8)
    plan_of("megatron", profile, star(8), settings(8), tensor=4)


def test_stages_are_cut_where_one_tensor_crosses() -> None:
    units = separable_units(PROFILE)
    assert [PROFILE.layers[unit.stop - 1].name for unit in units[:4]] == [
        "embedding", "blocks.0.add_attention", "blocks.0.add_ffn", "blocks.1.add_attention",
    ]  # fmt: skip
    assert sum(len(unit) for unit in units) == len(PROFILE.layers)


@given(seconds=st.lists(st.floats(0.1, 5), min_size=1, max_size=9), data=st.data())
def test_balanced_stages_are_the_best(seconds: list[float], data: st.DataObject) -> None:
    stages = data.draw(st.integers(1, len(seconds)))
    cuts = ((0, *middle, len(seconds)) for middle in combinations(range(1, len(seconds)), stages - 1))
    best = min(max(sum(seconds[a:b]) for a, b in pairwise(c)) for c in cuts)
    split = balanced_stages(seconds, stages)
    assert [stage.start for stage in split[1:]] == [stage.stop for stage in split[:-1]] and len(split) == stages
    assert max(sum(seconds[i] for i in stage) for stage in split) == pytest.approx(best)


def test_recomputation_takes_segments_and_time() -> None:
    cluster, step = star(4), settings(8, 2)
    kinds = ("none", "selective", "full")
    plans = {kind: plan_of("megatron", PROFILE, cluster, step, tensor=2, recomputation=kind) for kind in kinds}
    assert plans["none"].recomputed == () and len(plans["selective"].recomputed) == CARD.layers
    reports = {kind: run(PROFILE, cluster, plan).report for kind, plan in plans.items()}
    assert reports["none"].step_s < reports["selective"].step_s < reports["full"].step_s
    assert reports["full"].peak_memory_bytes < reports["none"].peak_memory_bytes


@pytest.mark.parametrize("kv_heads", [8, 2, 1])
@pytest.mark.parametrize("tensor", [1, 2, 4, 8])
@pytest.mark.parametrize("sequence_parallel", [True, False])
@pytest.mark.parametrize("fused", [True, False])
def test_a_device_saves_what_the_closed_form_says(
    kv_heads: int, tensor: int, sequence_parallel: bool, fused: bool
) -> None:
    """Of one block: norms, attention with fewer heads of keys than devices, and row-parallel layers."""
    card = replace(CARD, kv_heads=kv_heads)
    profile = modelled_profile(card, replace(STACK, fused_activation=fused), batch_size=2)
    plan = plan_of(
        "megatron", profile, star(2 * tensor), settings(8, 2), tensor=tensor, sequence_parallel=sequence_parallel
    )
    closed = swiglu_block_bytes(
        card.sequence, 2, card.hidden, card.heads, card.key_heads, card.ffn,
        tensor=tensor, sequence_parallel=sequence_parallel, fused=fused,
    )  # fmt: skip
    assert saved_by_a_block(profile, plan) == pytest.approx(np.full(2 * tensor, closed), rel=1e-6)


def saved_by_a_block(profile: Profile, plan: Plan) -> Floats:
    """Bytes by device."""
    model, saved = ShardedModel(profile, plan), np.zeros(len(plan.devices))
    for position in range(len(profile.layers)):
        if profile.layers[position].name.startswith("blocks.1."):
            np.add.at(saved, model.devices[position], model.pass_bytes(position)[0])
    return saved


GELU = replace(CARD, kv_heads=None, ffn=4 * CARD.hidden, gated=False, norm_vectors=2, biases=True, dropout=True)


@pytest.mark.parametrize("tensor", [1, 2, 4, 8])
@pytest.mark.parametrize("sequence_parallel", [True, False])
def test_a_block_with_stored_scores_and_dropout_saves_what_korthikantis_table_says(
    tensor: int, sequence_parallel: bool
) -> None:
    """And statistics of its two norms, 4 bytes a token each, which the table leaves out."""
    scored = replace(STACK, device=replace(STACK.device, attention_kernel="scores"))
    profile = modelled_profile(GELU, scored, batch_size=2)
    plan = plan_of(
        "megatron", profile, star(2 * tensor), settings(8, 2), tensor=tensor, sequence_parallel=sequence_parallel
    )
    closed = gelu_block_bytes(
        GELU.sequence, 2, GELU.hidden, GELU.heads, tensor=tensor, sequence_parallel=sequence_parallel
    )
    statistics = 2 * 4 * 2 * GELU.sequence / (tensor if sequence_parallel else 1)
    assert saved_by_a_block(profile, plan) == pytest.approx(np.full(2 * tensor, closed + statistics), rel=1e-6)


@pytest.mark.parametrize("sequence_parallel", [True, False])
@pytest.mark.parametrize("tensor", [1, 2, 4])
def test_full_recomputation_keeps_the_input_of_every_block(tensor: int, sequence_parallel: bool) -> None:
    """A block more is one input more, as the closed form has it; the head is not computed again."""
    peaks = []
    for layers in (4, 7):
        profile, cluster = modelled_profile(replace(CARD, layers=layers), STACK, batch_size=2), star(2 * tensor)
        plan = plan_of(
            "megatron", profile, cluster, settings(4),
            tensor=tensor, sequence_parallel=sequence_parallel, recomputation="full",
        )  # fmt: skip
        assert [names[-1] for names in plan.recomputed] == [f"blocks.{number}.add_ffn" for number in range(layers)]
        graph = lower(ShardedModel(profile, plan), cluster)
        assert graph.allocated_bytes.sum() == pytest.approx(graph.freed_bytes.sum())
        report = run(profile, cluster, plan).report
        peaks.append(report.peak_memory_bytes - report.devices[0].static_bytes)
    closed = swiglu_block_bytes(
        CARD.sequence, 2, CARD.hidden, CARD.heads, CARD.key_heads, CARD.ffn,
        tensor=tensor, sequence_parallel=sequence_parallel, recomputation="full",
    )  # fmt: skip
    assert peaks[1] - peaks[0] == pytest.approx(3 * closed)


def test_inputs_of_column_parallel_layers_may_be_gathered_again() -> None:
    """A block then holds the closed form and its slices of two sums, received for their additions, and nothing that was
    gathered, which costs one gather more of every norm's output."""
    profiles = [modelled_profile(replace(CARD, layers=layers), STACK, batch_size=2) for layers in (4, 7)]
    cluster, peaks, volumes = star(4), [], []
    for profile, again in ((profiles[0], True), (profiles[1], True), (profiles[1], False)):
        plan = plan_of("megatron", profile, cluster, settings(2), tensor=4, gather_again=again)
        norms = tuple(layer.name for layer in profile.layers if layer.kind == "norm")
        assert plan.received_again == (norms if again else ())
        report = run(profile, cluster, plan).report
        peaks.append(report.peak_memory_bytes - report.devices[0].static_bytes)
        volumes.append(report.communication_bytes.total)
    gathered = 3 * 2 * CARD.sequence * CARD.hidden * 2  # by the other three of four devices
    assert volumes[1] - volumes[2] == pytest.approx((2 * 7 + 1) * gathered)
    closed = swiglu_block_bytes(
        CARD.sequence, 2, CARD.hidden, CARD.heads, CARD.key_heads, CARD.ffn, tensor=4, sequence_parallel=True
    )
    slices = 2 * 2 * (2 * CARD.sequence) * CARD.hidden / 4
    assert peaks[1] - peaks[0] == pytest.approx(3 * (closed + slices))
    assert peaks[1] < peaks[2]
    copied = plan_of(
        "megatron", profiles[0], cluster, settings(2), tensor=4, gather_again=True, sequence_parallel=False
    )
    assert copied.received_again == ()


@pytest.mark.parametrize("pipeline", range(2, 7))
def test_balanced_stages_keep_blocks_and_the_head_with_its_loss_whole(pipeline: int) -> None:
    """Exhaustively the best of all cuts between embedding, blocks and head, by the slowest stage."""
    plan = plan_of("megatron", PROFILE, star(pipeline), settings(1), pipeline=pipeline)
    wholes = [f"blocks.{number}." for number in range(CARD.layers)]
    parts = [[layer for layer in PROFILE.layers if layer.name.startswith(whole)] for whole in wholes]
    first, last = (PROFILE.layers.index(part[at]) for part, at in ((parts[0], 0), (parts[-1], -1)))
    parts = [list(PROFILE.layers[:first]), *parts, list(PROFILE.layers[last + 1 :])]
    homes = [{plan.placements[layer.name].devices for layer in part} for part in parts]
    assert all(len(home) == 1 for home in homes)
    seconds = [sum(layer.forward_s + layer.backward_s for layer in part) for part in parts]
    slowest = max(sum(each for each, home in zip(seconds, homes, strict=True) if home == stage) for stage in homes)
    cuts = combinations(range(1, len(parts)), pipeline - 1)
    best = min(max(sum(seconds[a:b]) for a, b in pairwise((0, *cut, len(parts)))) for cut in cuts)
    assert slowest == pytest.approx(best)


@pytest.mark.parametrize(
    ("name", "batch_size", "degrees", "asked", "expected"),
    [
        ("modelled", 32, {"pipeline": 2, "tensor": 2}, None, 16),  # two replicas
        ("modelled", 32, {"pipeline": 2, "tensor": 2}, 4, 4),
        ("modelled", 10, {"pipeline": 2}, None, 2),  # of four replicas two have two sequences
        ("modelled", 32, {"tensor": 2}, None, 8),
        ("gpt2_large_h100", 32, {"tensor": 2}, None, 1),
        ("gpt2_large_h100", 32, {"pipeline": 4}, None, 16),
        ("vgg_digits", 32, {"pipeline": 2}, None, 1),
    ],
)
def test_a_pipeline_of_sequences_takes_one_at_a_time(
    name: str, batch_size: int, degrees: dict[str, int], asked: int | None, expected: int
) -> None:
    profile = PROFILE if name == "modelled" else read_profile(name)
    plan = plan_of("megatron", profile, star(8), StepSettings(batch_size=batch_size, microbatches=asked), **degrees)
    assert plan.microbatches == expected


def test_context_parallelism_splits_the_sequence() -> None:
    plan = plan_of("megatron", PROFILE, star(4), settings(2), tensor=2, context=2)
    assert plan.placements["blocks.0.q"].degrees == (1, 2, 2, 1)
    assert plan.placements["blocks.0.norm_ffn"].degrees == (1, 1, 4, 1)
    assert run(PROFILE, star(4), plan).report.step_s > 0


def test_keys_and_values_of_other_parts_may_be_gathered_again() -> None:
    runtime = Runtime(overlaps_weight_gradients=True)
    again = plan_of("megatron", PROFILE, star(2), replace(settings(2), runtime=runtime), context=2)
    assert {name for name in again.received_again if "blocks.0." in name} == {"blocks.0.k", "blocks.0.v"}
    in_groups = plan_of("megatron", PROFILE, star(4), replace(settings(2), runtime=runtime), context=2, tensor=2)
    assert {f"blocks.0.{name}" for name in "kv"} < {*in_groups.received_again}
    for degrees, step in (({"context": 2}, settings(2)), ({}, replace(settings(2), runtime=runtime))):
        assert plan_of("megatron", PROFILE, star(2), step, **degrees).received_again == ()


def test_weight_gradients_hide_what_is_gathered_and_scattered() -> None:
    """Of a block's 10 collectives of hidden states 4 are hidden, as in Megatron-LM, and 2 more of the head."""
    cluster = star(2, bandwidth=1e12, latency_s=0.0)
    plan = plan_of("megatron", PROFILE, cluster, settings(2), tensor=2, gather_again=True)
    hidden_bytes = 2 * CARD.sequence * CARD.hidden * 2 / 2  # half of them crosses
    exposed = []
    for overlaps in (False, True):
        done = run(PROFILE, cluster, plan, runtime=Runtime(overlaps_weight_gradients=overlaps))
        exposed.append(done.report.devices[0].exposed_communication_s)
    hidden = (4 * CARD.layers + 2) * hidden_bytes / 1e12
    assert exposed[0] - exposed[1] == pytest.approx(hidden, rel=1e-6)


def test_fsdp_shares_states_and_recomputes_blocks() -> None:
    cluster = star(4)
    plain = run(PROFILE, cluster, plan_of("fsdp", PROFILE, cluster, settings(8)))
    shared = run(PROFILE, cluster, plan_of("fsdp", PROFILE, cluster, settings(8, stage=3), recomputation="full"))
    assert shared.report.peak_memory_bytes < plain.report.peak_memory_bytes
    assert shared.plan.recomputed and not plain.plan.recomputed


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        ("data", {}), ("pipeline", {"judged": False}),
        *(("fsdp", {"recomputation": kind}) for kind in KINDS),
        *(("megatron", {"pipeline": 2, "recomputation": kind}) for kind in KINDS),
        ("megatron", {"pipeline": 2, "tensor": 2}), ("megatron", {"pipeline": 2, "tensor": 2, "context": 2}),
        ("megatron", {"pipeline": 2, "tensor": 2, "sequence_parallel": False}),
    ],
)  # fmt: skip
def test_every_zero_stage_runs_with_tied_tables(stage: int, strategy: str, options: dict[str, object]) -> None:
    """Both stages of a pipeline use the table; the bytes that are simulated are those of the plan."""
    profile, cluster = modelled_profile(replace(CARD, tied_embeddings=True), STACK, batch_size=2), star(8)
    plan = plan_of(strategy, profile, cluster, settings(32, 4, stage), **options)
    report = run(profile, cluster, plan).report
    volume = communication_volume(ShardedModel(profile, plan), cluster)
    assert report.communication_bytes.total == pytest.approx(volume.total)
    assert (volume.parameters > 0) == (stage > 0 or strategy == "fsdp")


def test_fsdp_recomputes_the_attention_core() -> None:
    plan = plan_of("fsdp", PROFILE, star(4), settings(8), recomputation="selective")
    assert plan.recomputed == tuple((f"blocks.{number}.attention",) for number in range(CARD.layers))
    with pytest.raises(InputError, match="recomputation is 'some': it is none, selective, op, full"):
        plan_of("fsdp", PROFILE, star(4), settings(8), recomputation="some")


def kept_by_block(recomputation: str, card: ModelCard = CARD, tensor: int = 1, stack: TrainingStack = STACK) -> float:
    """Bytes by which a peak grows with a block, on one of `tensor` devices."""
    peaks = []
    for layers in (4, 7):
        profile = modelled_profile(replace(card, layers=layers), stack, batch_size=2)
        cluster, options = star(tensor), {"tensor": tensor, "gather_again": True, "recomputation": recomputation}
        plan = plan_of("megatron", profile, cluster, settings(2), **options)
        graph = lower(ShardedModel(profile, plan), cluster)
        taken = graph.allocated_bytes.sum() + graph.allocation_bytes.sum()
        assert taken == pytest.approx(graph.freed_bytes.sum())
        report = run(profile, cluster, plan).report
        peaks.append(report.peak_memory_bytes - report.devices[0].static_bytes)
    return (peaks[1] - peaks[0]) / 3


TOKENS = 2 * CARD.sequence
KEPT_BY_OPERATOR = 2 * TOKENS * (4 * CARD.hidden + CARD.key_channels + CARD.ffn) + 4 * TOKENS * CARD.heads
"""torchtitan's policy: the block's input, of seven products the outputs of query, value, gate and down, and attention's
output with its log-sum-exp."""


def test_each_other_product_and_the_attention_are_kept_by_operator() -> None:
    assert kept_by_block("op") == pytest.approx(KEPT_BY_OPERATOR)


@pytest.mark.parametrize(
    ("modules", "dropped"),
    [
        ("core_attn", 4 * TOKENS * CARD.heads),
        ("layernorm", 2 * 2 * TOKENS * CARD.hidden),
        ("mlp", 3 * 2 * TOKENS * CARD.ffn),
        ("core_attn+layernorm", 4 * TOKENS * (CARD.heads + CARD.hidden)),
        ("core_attn+mlp", 4 * TOKENS * CARD.heads + 6 * TOKENS * CARD.ffn),
    ],
)
def test_modules_drop_what_they_make(modules: str, dropped: float) -> None:
    """Of attention its log-sum-exp, of norms their outputs, of a feed-forward layer both halves and their product. The
    statistics of norms go with them."""
    statistics = 2 * 4 * TOKENS if "layernorm" in modules else 0
    assert kept_by_block("none") - kept_by_block(modules) == pytest.approx(dropped + statistics)
    assert kept_by_block("full") < kept_by_block(modules)


LATENT = replace(CARD, kv_heads=None, latent=LatentAttention(key_rank=32, rotary=16, key_width=32, value_width=24))


def test_what_attention_reads_of_latents_is_made_again() -> None:
    """Queries, keys and values, in 2 bytes each."""
    dropped = 2 * TOKENS * (LATENT.query_channels + LATENT.key_channels + LATENT.value_channels)
    assert kept_by_block("none", LATENT) - kept_by_block("mla_up_proj", LATENT) == pytest.approx(dropped)


@pytest.mark.parametrize("strategy", ["megatron", "fsdp"])
def test_without_latents_their_recomputation_is_refused(strategy: str) -> None:
    complaint = "recomputation is 'mlp+mla_up_proj': 'small' has no multi-head latent attention; leave mla_up_proj out"
    with pytest.raises(InputError, match=re.escape(complaint)):
        plan_of(strategy, PROFILE, star(4), settings(8), recomputation="mlp+mla_up_proj")
    profile = modelled_profile(LATENT, STACK, batch_size=2)
    plan = plan_of(strategy, profile, star(4), settings(8), recomputation="mla_up_proj")
    assert plan.recomputed == tuple(tuple(f"blocks.{n}.{name}" for name in "qkv") for n in range(LATENT.layers))


def test_stored_scores_are_dropped_by_selective_recomputation() -> None:
    """5as/h of Korthikanti's table 2, with one device and with four."""
    stack = replace(STACK, device=replace(STACK.device, attention_kernel="scores"))
    for tensor in (1, 4):
        none, selective = (kept_by_block(kind, GELU, tensor, stack) for kind in ("none", "selective"))
        assert none - selective == pytest.approx(5 * GELU.heads * GELU.sequence * TOKENS / tensor)


@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_interleaving_shrinks_the_bubble_by_the_chunks(chunks: int) -> None:
    """(p - 1) / (m v) of the passes of equal stages (Narayanan et al., SC 2021, section 2.2), links being free."""
    card, stages, microbatches = replace(CARD, layers=16, vocabulary=1), 4, 8
    profile = modelled_profile(card, STACK, batch_size=1)
    free = {"update_s": 0.0, "accumulate_s": 0.0}
    around = {**free, "forward_s": 0.0, "backward_s": 0.0, "scaling": ()}
    passes = tuple(replace(layer, **(free if "blocks" in layer.name else around)) for layer in profile.layers)
    profile, step = replace(profile, layers=passes), settings(microbatches, microbatches)
    cluster = star(stages, bandwidth=1e18, latency_s=0.0)
    plan = plan_of("megatron", profile, cluster, step, pipeline=stages, chunks=chunks, layout="equal")
    report = run(profile, cluster, plan).report
    block_s = sum(layer.forward_s + layer.backward_s for layer in profile.layers if layer.name.startswith("blocks.1."))
    passes_s = microbatches * card.layers / stages * block_s
    assert report.step_s == pytest.approx(passes_s * (1 + (stages - 1) / (microbatches * chunks)))
    assert plan.schedule == ("interleaved" if chunks > 1 else "1f1b")


@pytest.mark.parametrize(("context", "tensor"), [(2, 1), (4, 1), (2, 2), (2, 4)])
def test_context_parallelism_pays_for_keys_and_values(context: int, tensor: int) -> None:
    """Beside its twin of as many tokens a device: every part gets the others' keys and values, forward and once more
    for the backward pass, and sends gradients back; the step is longer by that."""
    cluster, sequences, options = star(4 * tensor), 8, {"tensor": tensor, "gather_again": True}
    twin = plan_of("megatron", PROFILE, cluster, settings(sequences, 2), **options)
    plan = plan_of("megatron", PROFILE, cluster, settings(sequences, 2 * context), context=context, **options)
    plain, parted = (run(PROFILE, cluster, each).report for each in (twin, plan))
    pair = 2 * 2 * CARD.sequence * CARD.key_channels * max(1, tensor // CARD.key_heads)  # bytes of a sequence's
    others = sequences * CARD.layers * pair * (context - 1)
    assert tensor > 1 or plain.communication_bytes.forward == plain.communication_bytes.backward == 0
    more = [getattr(parted.communication_bytes, way) - getattr(plain.communication_bytes, way) for way in WAYS]
    assert more == pytest.approx((2 * others, others), rel=0.01)
    assert parted.step_s > plain.step_s


def test_chunks_need_a_schedule_that_has_them() -> None:
    for schedule, chunks, complaint in (("1f1b", 2, "interleaved or zero-bubble"), ("zb-v", 1, "it is 2; the step")):
        step = replace(settings(8, 8), schedule=schedule)
        with pytest.raises(InputError, match=complaint):
            plan_of("megatron", PROFILE, star(2), step, pipeline=2, chunks=chunks)
    turned = plan_of("megatron", PROFILE, star(2), replace(settings(8, 8), schedule="zb-v"), pipeline=2, tensor=1)
    assert turned.turn == "blocks.2.norm_attention"
    assert [turned.placements[f"blocks.{i}.q"].devices for i in range(4)] == [(0,), (1,), (1,), (0,)]
    assert run(PROFILE, star(2), turned).report.step_s > 0


def test_without_degrees_both_are_data_parallelism() -> None:
    profile, cluster = read_profile("vgg_digits"), star(4)
    data = plan_of("data", profile, cluster, settings(16))
    for name in ("megatron", "fsdp"):
        assert plan_of(name, profile, cluster, settings(16)).placements == data.placements


def test_wrong_degrees_are_named() -> None:
    with pytest.raises(InputError, match="divides the 8 devices"):
        plan_of("megatron", PROFILE, star(8), settings(8), tensor=3)
    with pytest.raises(InputError, match="8 replicas"):
        plan_of("megatron", PROFILE, star(8), settings(4))
    with pytest.raises(InputError, match="recomputation is 'some'"):
        plan_of("megatron", PROFILE, star(8), settings(8), recomputation="some")
    with pytest.raises(InputError, match="at most"):
        plan_of("megatron", PROFILE, star(32), settings(32), pipeline=32)
