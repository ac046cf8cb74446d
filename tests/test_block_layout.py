"""Layouts of megatron's stages, against the rules of the runtimes that they are named after."""

from __future__ import annotations

import pytest
from test_closed_forms import star
from test_megatron import CARD, PROFILE, STACK, settings

from partitioners import make_plan
from simulator.errors import InputError
from simulator.files import read_profile
from simulator.plan import Plan
from simulator.run import run
from simulator.transformers.model_card import read_card
from simulator.transformers.modelled_profile import modelled_profile
from simulator.transformers.stage_split import StageBlocks, equal_stages, stages_by_parameters
from simulator.workload import Profile


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
    if any(stage.blocks == 0 for stage in expected[:-1]):
        with pytest.raises(InputError, match="leaves a stage without layers"):
            make_plan("megatron", profile, star(stages), settings(1), pipeline=stages, layout=layout)
        return
    plan = make_plan("megatron", profile, star(stages), settings(1), pipeline=stages, layout=layout)
    assert of_stages(profile, plan) == expected


def test_blocks_by_stage_may_be_named() -> None:
    plan = make_plan("megatron", PROFILE, star(4), settings(1), pipeline=4, layout="0,3,1,0")
    assert [stage.blocks for stage in of_stages(PROFILE, plan)] == [0, 3, 1, 0]
    assert run(PROFILE, star(4), plan).report.step_s > 0
    explicit = make_plan("megatron", PROFILE, star(2), settings(1), pipeline=2, layout="2,2")
    assert explicit.placements == make_plan(
        "megatron", PROFILE, star(2), settings(1), pipeline=2, layout="equal"
    ).placements  # fmt: skip


def test_a_network_without_attention_has_a_block_in_every_unit() -> None:
    profile = read_profile("vgg_small")
    plan = make_plan("megatron", profile, star(2), settings(2), pipeline=2, layout="equal")
    on_first = [layer.name for layer in profile.layers if plan.placements[layer.name].devices == (0,)]
    assert on_first == [layer.name for layer in profile.layers[: -(-len(profile.layers) // 2)]]


@pytest.mark.parametrize(
    ("layout", "pipeline", "complaint"),
    [
        ("even", 2, "layout is 'even': it is balanced, equal, parameters, or blocks by stage such as 9,8,8,7"),
        ("3,2", 2, f"layout is 3,2: it has a number of blocks for each of 2 stages, {CARD.layers} in all"),
        ("2,1,1", 2, "layout is 2,1,1: it has a number of blocks for each of 2 stages"),
        ("2,0,1,1", 4, "layout '2,0,1,1' leaves a stage without layers"),
        ("equal", 8, "layout 'equal' leaves a stage without layers"),
        ("-1,5", 2, "layout is -1,5: it has a number of blocks for each of 2 stages"),
    ],
)
def test_wrong_layouts_are_named(layout: str, pipeline: int, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        make_plan("megatron", PROFILE, star(8), settings(8), pipeline=pipeline, layout=layout)
