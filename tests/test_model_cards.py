"""Model cards, activation bytes and operators of blocks, against closed forms and published counts."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import activation_bytes as activations
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitioners._grids.measured_rows import card_of
from simulator.errors import InputError, UnknownNameError
from simulator.language_models.accelerators import ACCELERATORS, accelerator
from simulator.language_models.block import block_operators, head_operator
from simulator.language_models.model_card import ModelCard, cards, read_card

PUBLISHED = {
    "llama3-8b": 8_030_261_248, "llama3-70b": 70_553_706_496, "llama2-7b": 6_738_415_616, "gpt2": 124_439_808,
    "mistral-7b": 7_241_732_096, "mixtral-8x7b": 46_702_792_704,
}  # fmt: skip
"""Parameters as the published checkpoints have them."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_of_the_published_checkpoint(name: str) -> None:
    """GPT-2's final norm has a bias, and so have all its linear layers."""
    assert read_card(name).parameters == PUBLISHED[name]


@pytest.mark.parametrize("name", cards())
def test_every_card_reads_and_names_itself(name: str) -> None:
    card = read_card(name)
    assert card.name == name and card.source
    operators = sum(operator.parameters for operator in block_operators(card, card.sequence))
    biases = card.biases * (card.query_channels + 2 * card.key_channels + card.ffn + 2 * card.hidden)
    router = card.hidden * card.experts
    assert operators + biases + router == card.block_parameters


def test_parameters_of_the_benchmark(shared_data: Path) -> None:
    with (shared_data / "ultrascale" / "visible.csv").open() as file:
        rows = {row["model"]: row for row in csv.DictReader(file)}
    assert rows
    for row in rows.values():
        assert card_of(row).parameters == int(row["params"])


CASES = json.loads((Path(__file__).parent / "sharding_cases.json").read_text())["cases"]
ACTIVATIONS = [pytest.param(case, id=case["name"]) for case in CASES if case["group"] == "activations"]


@pytest.mark.parametrize("case", ACTIVATIONS)
def test_activation_bytes_are_those_of_the_cases(case: dict[str, Any]) -> None:
    p, expected = case["parameters"], case["expected"]
    if "SwiGLU" in case["name"]:
        shape = (p["s"], p["b"], p["h"], p["a"], p["g"], p["f"])
        kinds: dict[str, dict[str, Any]] = {
            "tensor": {}, "tensor_sequence": {"sequence_parallel": True},
            "tensor_sequence_unfused_swiglu": {"sequence_parallel": True, "fused": False},
            "full": {"recomputation": "full"}, "full_sequence": {"recomputation": "full", "sequence_parallel": True},
        }  # fmt: skip
        counted = {kind: activations.swiglu_block_bytes(*shape, tensor=p["t"], **kinds[kind]) for kind in expected}
    elif "outside" in case["name"]:
        counted = {
            "embedding_dropout_bytes": activations.embedding_dropout_bytes(
                p["s"], p["b"], p["h"], stages=p["p"], tensor=p["t"]
            ),
            "head_bytes_without_pipeline": activations.head_bytes(p["s"], p["b"], p["h"], p["v"], tensor=p["t"]),
        }
    else:
        kinds = {
            "none": {"tensor": 1}, "tensor": {}, "tensor_sequence": {"sequence_parallel": True},
            "tensor_selective": {"recomputation": "selective"}, "full": {"recomputation": "full"},
            "tensor_sequence_selective": {"recomputation": "selective", "sequence_parallel": True},
        }  # fmt: skip
        shape = (p["s"], p["b"], p["h"], p["a"])
        counted = {kind: activations.gelu_block_bytes(*shape, **{"tensor": p["t"], **kinds[kind]}) for kind in expected}
    assert counted == pytest.approx(expected, rel=1e-12)


SHAPES = st.builds(
    lambda heads, groups, width, ffn: ModelCard(
        name="drawn", layers=2, hidden=heads * groups * width, heads=heads * groups, kv_heads=groups, ffn=ffn * 8,
        vocabulary=512, sequence=64,
    ),
    st.integers(1, 4), st.sampled_from((8, 16)), st.sampled_from((16, 32)), st.integers(8, 64),
)  # fmt: skip


@given(card=SHAPES, tensor=st.sampled_from((1, 2, 4, 8)), samples=st.integers(1, 4), fused=st.booleans())
def test_operators_keep_what_the_closed_form_says(card: ModelCard, tensor: int, samples: int, fused: bool) -> None:
    tokens = samples * card.sequence
    operators = block_operators(card, tokens, tensor, fused_activation=fused)
    counted = activations.swiglu_block_bytes(
        card.sequence, samples, card.hidden, card.heads, card.key_heads, card.ffn,
        tensor=tensor, sequence_parallel=True, fused=fused,
    )  # fmt: skip
    assert sum(operator.saved_bytes for operator in operators) == pytest.approx(counted, rel=1e-12)


@given(card=SHAPES, tensor=st.sampled_from((2, 4, 8)))
def test_a_tensor_rank_has_its_share_of_the_arithmetic(card: ModelCard, tensor: int) -> None:
    whole, part = (sum(o.flops for o in block_operators(card, 128, degree)) for degree in (1, tensor))
    assert part * tensor == pytest.approx(whole, rel=1e-12)
    assert head_operator(card, 128, tensor).flops * tensor == pytest.approx(head_operator(card, 128).flops)


def test_flops_of_a_token_are_six_per_parameter_and_attention() -> None:
    card = read_card("llama2-7b")
    matrices = card.parameters - card.embedding_parameters - (2 * card.layers + 1) * card.hidden
    assert card.flops_per_token == pytest.approx(6 * matrices + 12 * card.layers * card.sequence * card.hidden)


def test_wrong_cards_and_names() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'llama3-8b'"):
        read_card("llama-3-8b")
    with pytest.raises(InputError, match="kv_heads is 3"):
        ModelCard(name="x", layers=1, hidden=64, heads=4, kv_heads=3, ffn=64, vocabulary=8, sequence=8)
    with pytest.raises(InputError, match="experts_per_token is 4"):
        ModelCard(
            name="x", layers=1, hidden=64, heads=4, ffn=64, vocabulary=8, sequence=8, experts=2, experts_per_token=4
        )
    with pytest.raises(UnknownNameError, match="h100"):
        accelerator("h1000")
    assert all(name == each.name and each.source for name, each in ACCELERATORS.items())
