"""Model cards, activation bytes and operators of blocks, against closed forms and published counts."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import activation_bytes as activations
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_megatron import CARD, STACK

from partitioners._grids.measured_rows import card_of
from simulator.errors import InputError, UnknownNameError
from simulator.language_models.accelerators import ACCELERATORS, accelerator
from simulator.language_models.block import block_operators, head_operator
from simulator.language_models.card_files import cards, is_card, read_card
from simulator.language_models.model_card import LatentAttention, ModelCard
from simulator.language_models.modelled_profile import modelled_profile
from simulator.language_models.training_stack import read_stack

PUBLISHED = {
    "llama2-7b": 6_738_415_616, "llama2-13b": 13_015_864_320, "llama2-70b": 68_976_648_192,
    "llama3-1b": 1_235_814_400, "llama3-3b": 3_212_749_824, "llama3-8b": 8_030_261_248, "llama3-70b": 70_553_706_496,
    "llama3-405b": 405_853_388_800, "gpt2": 124_439_808, "gpt2-medium": 354_823_168, "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200, "mistral-7b": 7_241_732_096, "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_630_071_296, "qwen2.5-0.5b": 494_032_768, "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688, "qwen2.5-7b": 7_615_616_512, "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352, "qwen2.5-72b": 72_706_203_648, "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976, "qwen3-4b": 4_022_468_096, "qwen3-8b": 8_190_735_360, "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264, "qwen3-30b-a3b": 30_532_122_624, "qwen3-235b-a22b": 235_093_634_560,
    "deepseek-v2-lite": 15_706_484_224, "deepseek-v2": 235_741_434_880, "deepseek-v3": 671_026_419_200,
    "gpt-oss-20b": 20_914_757_184, "gpt-oss-120b": 116_829_156_672, "gemma2-2b": 2_614_341_888,
    "gemma2-9b": 9_241_705_984, "gemma2-27b": 27_227_128_320, "gemma3-1b": 999_885_952, "gemma3-4b": 3_880_263_168,
    "olmo-7b": 6_888_095_744, "olmo2-7b": 7_298_617_344, "olmo2-13b": 13_716_198_400, "olmo2-32b": 32_234_279_936,
    "bloom-560m": 559_214_592, "bloom-1b1": 1_065_314_304, "bloom-1b7": 1_722_408_960, "bloom-3b": 3_002_557_440,
    "bloom-7b1": 7_069_016_064, "bloom-176b": 176_247_271_424, "gpt-neox-20b": 20_554_567_680,
}  # fmt: skip
"""Parameters as the published checkpoints have them (of the tensors that their safetensors index counts; a tied table
once)."""
ROUNDED = {
    "kimi-k2": (1.04e12, 0.02), "nemotron4-15b": (12.5e9 + 3.2e9, 0.01), "nemotron4-340b": (331.6e9 + 9.4e9, 0.001),
    "gemma3-12b": (10.759e9 + 1.012e9, 0.001), "gemma3-27b": (25.600e9 + 1.416e9, 0.001),
    "llama4-scout": (109e9, 0.02), "gpt3-175b": (175e9, 0.01),
}  # fmt: skip
"""Those of which papers have rounded counts: the count, and by how much it may be off."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_of_the_published_checkpoint(name: str) -> None:
    assert read_card(name).parameters == PUBLISHED[name]


@pytest.mark.parametrize("name", ROUNDED)
def test_parameters_are_near_those_that_papers_round(name: str) -> None:
    count, off = ROUNDED[name]
    assert read_card(name).parameters == pytest.approx(count, rel=off)


@pytest.mark.parametrize("name", cards())
def test_every_card_reads_and_its_profile_has_every_parameter(name: str) -> None:
    card = read_card(name)
    assert card.name == name and card.source
    few = replace(card, layers=card.dense_layers + 2)
    layers = modelled_profile(few, read_stack("nanotron-h100")).layers
    assert sum(layer.parameter_bytes for layer in layers) == 2 * few.parameters
    matrices = sum(layer.flops for layer in layers if layer.kind == "linear")
    assert matrices / few.sequence == pytest.approx(2 * few.matrices_per_token, rel=1e-9)


@pytest.mark.parametrize(
    ("written", "card"),
    [
        ("meta-llama/Llama-3.1-8B", "llama3-8b"), ("llama3.1-8b", "llama3-8b"), ("LLAMA-3.2-1B-Instruct", "llama3-1b"),
        ("meta-llama/Meta-Llama-3-70B", "llama3-70b"), ("meta-llama/Llama-2-7b-hf", "llama2-7b"),
        ("Qwen/Qwen2.5-7B", "qwen2.5-7b"), ("Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b"),
        ("openai/gpt-oss-20b", "gpt-oss-20b"),
        ("google/gemma-2-9b", "gemma2-9b"), ("google/gemma-3-27b-pt", "gemma3-27b"), ("bigscience/bloom", "bloom-176b"),
        ("allenai/OLMo-2-1124-7B", "olmo2-7b"), ("deepseek-ai/DeepSeek-V3", "deepseek-v3"),
        ("mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"), ("moonshotai/Kimi-K2-Base", "kimi-k2"),
        ("nvidia/Nemotron-4-340B-Base", "nemotron4-340b"), ("openai-community/gpt2-xl", "gpt2-xl"),
        ("meta-llama/Llama-4-Scout-17B-16E", "llama4-scout"),
    ],
)  # fmt: skip
def test_names_are_found_as_people_write_them(written: str, card: str) -> None:
    assert read_card(written).name == card and is_card(written)


LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 131072,
    "rope_theta": 500000.0, "torch_dtype": "bfloat16", "hidden_act": "silu",
}  # fmt: skip
GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}
PHI2 = {
    "model_type": "phi", "hidden_size": 2560, "num_hidden_layers": 32, "num_attention_heads": 32,
    "intermediate_size": 10240, "vocab_size": 51200, "max_position_embeddings": 2048,
}  # fmt: skip
FALCON = {
    "model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71,
    "vocab_size": 65024, "multi_query": True, "parallel_attn": True, "bias": False,
}  # fmt: skip
MPT = {
    "model_type": "mpt", "d_model": 4096, "n_layers": 32, "n_heads": 32, "expansion_ratio": 4, "max_seq_len": 2048,
    "vocab_size": 50432, "no_bias": True, "attn_config": {"alibi": True},
}  # fmt: skip
QWEN3 = {
    "model_type": "qwen3", "hidden_size": 2560, "num_hidden_layers": 36, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 9728, "vocab_size": 151936, "max_position_embeddings": 40960,
    "tie_word_embeddings": True,
}  # fmt: skip
GEMMA = {
    "model_type": "gemma", "hidden_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,
    "num_key_value_heads": 16, "intermediate_size": 24576, "vocab_size": 256000, "max_position_embeddings": 8192,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (LLAMA, 8_030_261_248), (QWEN3, 4_022_468_096), (GEMMA, 8_537_680_896), (GPT2, 124_439_808),
        (PHI2, 2_779_683_840), (FALCON, 6_921_720_704), (MPT, 6_649_286_656),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else "",
)  # fmt: skip
def test_a_config_of_hugging_face_is_a_card(config: dict[str, Any], parameters: int, tmp_path: Path) -> None:
    path = tmp_path / "some-model" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(config))
    card = read_card(path)
    assert is_card(path) and card.parameters == parameters and card.name == "some-model" and not card.not_counted
    assert card.sequence == min(8192, config.get("max_position_embeddings", card.sequence))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "mamba2"}, "unknown model_type 'mamba2'; known: bloom, "),
        ({"hidden_size": "4096"}, "hidden_size is '4096'"),
        ({"num_hidden_layers": None}, "num_hidden_layers is None"),
        ({"num_attention_heads": 33}, "heads is 33|kv_heads"),
        ({"model_type": 3}, "model_type is missing"),
        ({"num_key_value_heads": -8}, "num_key_value_heads is -8: "),
        ({"head_dim": -128}, "head_dim is -128: "),
    ],
)
def test_what_is_no_configuration_is_refused_in_one_line(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA, **change}))
    with pytest.raises((InputError, UnknownNameError), match=message):
        read_card(path)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("gemma3-4b", {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}),
        (
            "gemma3-12b",
            {
                "hidden_size": 3840, "intermediate_size": 15360, "num_hidden_layers": 48, "num_attention_heads": 16,
                "num_key_value_heads": 8,
            },
        ),
    ],
)  # fmt: skip
def test_what_gemma_3_leaves_out_is_its_class_s(name: str, sizes: dict[str, int], tmp_path: Path) -> None:
    text = {"model_type": "gemma3_text", "sliding_window": 1024, "rope_scaling": {"factor": 8.0}, **sizes}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "gemma3", "text_config": text, "mm_tokens_per_image": 256}))
    card, known = read_card(path), read_card(name)
    assert card.sequence == 8192 and not card.not_counted
    assert replace(card, name=known.name, source=known.source) == known


def test_what_a_configuration_says_that_is_not_counted_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA, "quantization_config": {"bits": 4}, "layer_skips": 3}))
    assert read_card(path).not_counted == ("layer_skips 3", "quantization_config {'bits': 4}")


def test_windows_leave_part_of_the_attention() -> None:
    """Of a window w in s tokens, w s - w^2 / 2 pairs of s^2 / 2; every sixth block has all."""
    card = replace(read_card("gemma3-1b"), sequence=4096, window=512)
    pairs = sum(min(token, 512) for token in range(1, 4097)) / sum(range(1, 4097))
    assert card.attention_share == pytest.approx(1 / 6 + 5 / 6 * pairs, rel=1e-3)
    assert replace(card, window=0).attention_share == replace(card, sequence=512).attention_share == 1


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


@given(card=SHAPES, samples=st.integers(1, 4), fused=st.booleans())
def test_operators_keep_what_the_closed_form_says(card: ModelCard, samples: int, fused: bool) -> None:
    operators = block_operators(card, samples * card.sequence, fused_activation=fused)
    sizes = card.sequence, samples, card.hidden, card.heads, card.key_heads, card.ffn
    counted = activations.swiglu_block_bytes(*sizes, fused=fused)
    assert sum(operator.saved_bytes for operator in operators) == pytest.approx(counted, rel=1e-12)


def test_what_is_not_gated_is_kept_alike_fused_or_not() -> None:
    card, stack = read_card("mpt-1b"), read_stack("fsdp-h100")
    kept = [
        [layer.saved_bytes for layer in modelled_profile(card, replace(stack, fused_activation=fused)).layers]
        for fused in (True, False)
    ]
    assert kept[0] == kept[1] and not card.gated


def test_what_products_of_8_bits_read_is_kept_in_8_bits() -> None:
    """Of each block a byte less of what q, k and v, the feed-forward layer's first and its last matrix read, and a byte
    more of the attention's output, which the attention keeps in 16 bits; torchao casts again, and keeps no more."""
    card, samples = read_card("llama3-8b"), 2
    for name, less in (("megatron-a100", 2 * card.hidden + card.ffn - card.attention_channels), ("nanotron-h100", 0)):
        stack = replace(read_stack(name), accelerator="h100")
        kept = [
            sum(layer.saved_bytes for layer in modelled_profile(card, of, batch_size=samples).layers)
            for of in (stack, stack.with_precision("fp8"))
        ]
        assert kept[0] - kept[1] == card.layers * samples * card.sequence * less


@given(card=SHAPES, tensor=st.sampled_from((2, 4, 8)))
def test_a_tensor_rank_has_its_share_of_the_arithmetic(card: ModelCard, tensor: int) -> None:
    for operator in (*block_operators(card, 128), head_operator(card, 128)):
        assert operator.part(1 / tensor).flops * tensor == pytest.approx(operator.flops, rel=1e-12)


def test_flops_of_a_token_are_six_per_parameter_and_attention() -> None:
    card = read_card("llama2-7b")
    matrices = card.parameters - card.embedding_parameters - (2 * card.layers + 1) * card.hidden
    assert card.flops_per_token == pytest.approx(6 * matrices + 12 * card.layers * card.sequence * card.hidden)


def test_a_further_token_has_a_block_a_join_and_the_head_once_more() -> None:
    """DeepSeek-V3's module has 11.5 billion parameters of its own (README_WEIGHTS.md of its repository)."""
    card = read_card("deepseek-v3")
    further = replace(card, layers=62, next_tokens=1)
    assert further.parameters - card.parameters == pytest.approx(11.5e9, rel=0.01)
    joined = 2 * card.hidden**2 + card.head_parameters
    block = replace(card, layers=62).flops_per_token - card.flops_per_token
    assert further.flops_per_token - card.flops_per_token == pytest.approx(block + 6 * joined)
    small = replace(CARD, next_tokens=1)
    profile = modelled_profile(small, STACK)
    layers = {layer.name: layer for layer in profile.layers}
    assert profile.parameter_bytes == 2 * small.parameters
    assert profile.flops_per_sample / small.sequence == pytest.approx(small.flops_per_token, rel=1e-9)
    for name in ("head", "cross_entropy", "loss"):
        own, again = layers[name], layers[f"next.0.{name}"]
        assert (again.forward_s, again.backward_s) == (own.forward_s, own.backward_s)
    assert layers["next.0.head"].tied_to == ("head",) and layers["next.0.head"].parameter_bytes == 0


def test_wrong_cards_and_names() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'llama3-8b'"):
        read_card("llama-3-9b")
    with pytest.raises(UnknownNameError, match="9b', did you mean 'llama3-"):
        is_card("meta-llama/Llama-3.1-9B")
    with pytest.raises(InputError, match="kv_heads is 3"):
        ModelCard(name="x", layers=1, hidden=64, heads=4, kv_heads=3, ffn=64, vocabulary=8, sequence=8)
    for field in ("kv_heads", "head_width", "shared_ffn", "dense_ffn", "window", "next_tokens"):
        negative: dict[str, Any] = {field: -1}
        with pytest.raises(InputError, match=f"{field} is -1: "):
            replace(read_card("llama3-8b"), **negative)
    with pytest.raises(InputError, match="key_rank is -512: "):
        LatentAttention(key_rank=-512, rotary=64, key_width=128, value_width=128)
    with pytest.raises(InputError, match="experts_per_token is 4"):
        ModelCard(
            name="x", layers=1, hidden=64, heads=4, ffn=64, vocabulary=8, sequence=8, experts=2, experts_per_token=4
        )
    with pytest.raises(UnknownNameError, match="h100"):
        accelerator("h1000")
    assert all(name == each.name and each.source for name, each in ACCELERATORS.items())
