"""Layouts of megatron's stages, against the rules of the runtimes that they are named after."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest
from test_closed_forms import star
from test_megatron import CARD, PROFILE, STACK, settings

from partitioners import plan_of as make_plan
from partitioners._stages.block_layout import _written_out, named_blocks
from simulator.errors import InputError
from simulator.files import read_profile
from simulator.language_models.card_files import read_card
from simulator.language_models.model_card import ModelCard
from simulator.language_models.modelled_profile import modelled_profile
from simulator.plan import Plan
from simulator.run import run
from simulator.workload import Profile


class StageBlocks(NamedTuple):
    """How many blocks a stage holds, and whether the embedding or the head."""

    blocks: int
    embedding: bool
    head: bool


def counted(counts: list[int]) -> tuple[StageBlocks, ...]:
    last = len(counts) - 1
    return tuple(StageBlocks(count, stage == 0, stage == last) for stage, count in enumerate(counts))


def equal_stages(card: ModelCard, stages: int) -> tuple[StageBlocks, ...]:
    """Megatron-LM's: as many blocks on each, one more on the first."""
    return counted([len(range(stage, card.layers, stages)) for stage in range(stages)])


def stages_by_parameters(card: ModelCard, stages: int) -> tuple[StageBlocks, ...]:
    """nanotron's: blocks go to a stage until all so far hold its share of the matrices of blocks and head."""
    block = card.block_parameters
    total, counts, held = card.layers * block + card.vocabulary * card.hidden, [0] * stages, 0
    stage = 0
    for _ in range(card.layers):
        counts[stage] += 1
        held += block
        stage += stage < stages - 1 and held * stages >= total * (stage + 1)
    return counted(counts)


@pytest.mark.parametrize(
    ("model", "stages", "blocks"),
    [
        ("llama-8b-ultrascale", 2, "18,14"), ("llama-8b-ultrascale", 4, "9,9,8,6"),
        ("llama-8b-ultrascale", 8, "5,4,4,5,4,4,4,2"), ("llama-1b-ultrascale", 2, "10,6"),
        ("llama-1b-ultrascale", 4, "5,5,5,1"),
    ],
)  # fmt: skip
def test_stages_by_parameters(model: str, stages: int, blocks: str) -> None:
    """Worked by hand: the head weighs 2.2 blocks of the 8B and 4 of the 1B."""
    profile = modelled_profile(read_card(model), STACK)
    by_parameters, by_hand = (
        make_plan("megatron", profile, star(stages), settings(1), pipeline=stages, layout=layout)
        for layout in ("parameters", blocks)
    )
    assert by_parameters.placements == by_hand.placements


def of_stages(profile: Profile, plan: Plan) -> tuple[StageBlocks, ...]:
    """What each stage of a plan of one device a stage holds. A block is counted where all of it stands."""
    names: dict[int, list[str]] = {}
    for layer in profile.layers:
        names.setdefault(plan.placements[layer.name].devices[0], []).append(layer.name)
    return tuple(
        StageBlocks(
            blocks=sum(name.endswith("norm_attention") for name in names[stage]),
            embedding="embedding" in names[stage],
            head={"norm", "head", "loss"} <= {*names[stage]},
        )
        for stage in sorted(names)
        if sum(name.endswith("norm_attention") for name in names[stage])
        == sum(name.endswith("add_ffn") for name in names[stage])
    )


@pytest.mark.parametrize("layout", ["equal", "parameters"])
@pytest.mark.parametrize("name", ["gpt2", "llama3-8b", "mixtral-8x7b"])
@pytest.mark.parametrize("stages", [1, 2, 3, 5, 8])
def test_stages_are_those_of_the_runtime(name: str, stages: int, layout: str) -> None:
    card = read_card(name)
    expected = (equal_stages if layout == "equal" else stages_by_parameters)(card, stages)
    profile = modelled_profile(card, STACK)
    if sum(stage.blocks == 0 for stage in expected[:-1]) > (layout == "parameters"):
        with pytest.raises(InputError, match="leaves a stage without layers"):
            make_plan("megatron", profile, star(stages), settings(1), pipeline=stages, layout=layout)
        return
    plan = make_plan("megatron", profile, star(stages), settings(1), pipeline=stages, layout=layout)
    assert of_stages(profile, plan) == tuple(stage for stage in expected if stage.blocks or stage.head)


def test_nanotron_leaves_a_stage_to_the_loss() -> None:
    """The 8B's 32 blocks end on the 30th of 32 stages; the 1B's 16 on the 13th of 16."""
    profile = modelled_profile(read_card("llama-8b-ultrascale"), STACK)
    plan = make_plan("megatron", profile, star(32), settings(1), pipeline=32, layout="parameters")
    assert 29 in plan.devices and {30, 31} - {*plan.devices} == {30}
    assert plan.placements["head"].devices == (31,)
    small = modelled_profile(read_card("llama-1b-ultrascale"), STACK)
    with pytest.raises(InputError, match="leaves a stage without layers"):
        make_plan("megatron", small, star(16), settings(1), pipeline=16, layout="parameters")


def test_blocks_by_stage_may_be_named() -> None:
    plan = make_plan("megatron", PROFILE, star(4), settings(1), pipeline=4, layout="0,3,1,0")
    assert [stage.blocks for stage in of_stages(PROFILE, plan)] == [0, 3, 1, 0]
    assert run(PROFILE, star(4), plan).report.step_s > 0
    explicit = make_plan("megatron", PROFILE, star(2), settings(1), pipeline=2, layout="2,2")
    assert explicit.placements == make_plan(
        "megatron", PROFILE, star(2), settings(1), pipeline=2, layout="equal"
    ).placements  # fmt: skip


def test_a_stage_without_layers_idles() -> None:
    """The stages around it send to each other."""
    plan = make_plan("megatron", PROFILE, star(4), settings(4, 4), pipeline=4, layout="2,0,1,1")
    assert plan.devices == (0, 2, 3)
    report = run(PROFILE, star(4), plan).report
    assert report.devices[1].compute_s == 0 and report.devices[1].peak_memory_bytes == 0 and report.step_s > 0


@pytest.mark.parametrize(
    ("notation", "blocks"),
    [
        ("Et*2|(tt|)*3,L", [2, 2, 2, 2, 0]),
        ("Et*2|(t*2|)*34,t*2|t,L", [2] * 36 + [1]),
        ("E|(t,)*3|L", [0, 3, 0]),
        ("Ett||ttL", [2, 0, 2]),
        ("9,8,8,7", [9, 8, 8, 7]),
        ("EtL", [1]),
    ],
)
def test_layouts_in_megatrons_notation(notation: str, blocks: list[int]) -> None:
    assert named_blocks(notation) == blocks


@pytest.mark.parametrize(("letters", "end"), [(99_996, "tL"), (99_997, "tL*1")])
def test_a_notation_is_written_out_up_to_a_hundred_thousand_letters(letters: int, end: str) -> None:
    """What is longer by then stays as it is, whatever it would come to."""
    assert _written_out("x" * letters + "t*1,L*1") == "x" * letters + end


def test_a_layout_by_stage_names_the_chunks_of_a_device_too() -> None:
    """Four stages of two devices: all first chunks before the second ones, which go round."""
    plan = make_plan("megatron", PROFILE, star(2), settings(8, 8), pipeline=2, layout="Et|t|t|tL")
    assert plan.schedule == "interleaved"
    blocks = [plan.placements[f"blocks.{number}.q"].devices for number in range(4)]
    assert blocks == [(0,), (1,), (0,), (1,)]
    equal = make_plan("megatron", PROFILE, star(2), settings(8, 8), pipeline=2, chunks=2, layout="equal")
    assert equal.placements == plan.placements


def test_a_network_without_attention_has_a_block_in_every_unit() -> None:
    profile = read_profile("vgg_small")
    plan = make_plan("megatron", profile, star(2), settings(2), pipeline=2, layout="equal")
    on_first = [layer.name for layer in profile.layers if plan.placements[layer.name].devices == (0,)]
    assert on_first == [layer.name for layer in profile.layers[: -(-len(profile.layers) // 2)]]


@pytest.mark.parametrize(
    ("layout", "pipeline", "complaint"),
    [
        ("even", 2, "layout is 'even': it is balanced, equal, parameters, blocks by stage such as 9,8,8,7, or in"),
        ("3,2", 2, f"layout is 3,2: it has a number of blocks for each of 2 stages, {CARD.layers} in all"),
        ("2,1,1", 2, "layout is 2,1,1: it has a number of blocks for each of 2 stages"),
        ("Et|ttL", 2, "layout is Et|ttL: it has a number of blocks for each of 2 stages, 4 in all"),
        ("tt|Ett|L", 2, "layout is 'tt|Ett|L': it is balanced, equal"),
        ("E" + "(" * 9 + "t" + ")*999" * 9 + "|L", 2, "it is balanced, equal"),
        ("equal", 8, "layout 'equal' leaves a stage without layers"),
        ("-1,5", 2, "layout is -1,5: it has a number of blocks for each of 2 stages"),
    ],
)
def test_wrong_layouts_are_named(layout: str, pipeline: int, complaint: str) -> None:
    with pytest.raises(InputError, match=re.escape(complaint)):
        make_plan("megatron", PROFILE, star(8), settings(8), pipeline=pipeline, layout=layout)
