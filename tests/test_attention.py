"""Transformers of the zoo at tiny sizes: what of them may be split, and that a part computes what the whole does."""

from __future__ import annotations

from fractions import Fraction

import pytest

torch = pytest.importorskip("torch")

from simulator.workload import Geometry, Layer  # noqa: E402
from traces.capture.command import capture  # noqa: E402
from traces.capture.measurement_rounds import MeasurementRounds  # noqa: E402
from traces.zoo.blocks import Attention  # noqa: E402
from traces.zoo.networks import (  # noqa: E402
    Decoder,
    Network,
    vision_transformer,
)

WIDTH, HEADS, POSITIONS, WORDS = 16, 4, 6, 11
VIT = Network(
    build=lambda: vision_transformer(side=8, patch=4, width=WIDTH, depth=2, heads=HEADS, classes=5),
    input_shape=(3, 8, 8),
)
GPT = Network(
    build=lambda: Decoder(vocabulary=WORDS, context=POSITIONS, width=WIDTH, depth=1, heads=HEADS),
    input_shape=(POSITIONS,),
    vocabulary=WORDS,
)


@pytest.fixture(scope="module")
def vit() -> dict[str, Layer]:
    return {layer.name: layer for layer in capture(VIT, 2, repeats=1, warmup=0).layers}


@pytest.fixture(scope="module")
def gpt() -> dict[str, Layer]:
    return {layer.name: layer for layer in capture(GPT, 2, repeats=1, warmup=0).layers}


def test_a_block_is_joined_as_drawn(vit: dict[str, Layer]) -> None:
    inputs = {name.removeprefix("blocks.0."): layer.inputs for name, layer in vit.items() if ".0." in name}
    short = {name: tuple(each.removeprefix("blocks.0.") for each in read) for name, read in inputs.items()}
    assert short == {
        "norm1": ("tokens",),
        "qkv": ("norm1",),
        "attention": ("qkv",),
        "out": ("attention",),
        "add1": ("tokens", "out"),
        "norm2": ("add1",),
        "fc": ("norm2",),
        "gelu": ("fc",),
        "proj": ("gelu",),
        "add2": ("add1", "proj"),
    }
    assert list(vit)[-4:] == ["norm", "first", "head", "loss"]


def test_shapes_are_channels_and_positions(vit: dict[str, Layer], gpt: dict[str, Layer]) -> None:
    assert vit["patches"].output_shape == (WIDTH, 2, 2)
    assert vit["tokens"].output_shape == vit["blocks.1.add2"].output_shape == (WIDTH, 5, 1)
    assert vit["blocks.0.qkv"].output_shape == (3 * WIDTH, 5, 1)
    assert vit["first"].output_shape == (WIDTH, 1, 1)
    assert gpt["head"].output_shape == (WORDS, POSITIONS, 1)


def test_attention_needs_all_positions_of_its_own_heads(vit: dict[str, Layer], gpt: dict[str, Layer]) -> None:
    own_head = Geometry(kernel=None, groups=HEADS, mixes_channels=True)
    assert vit["blocks.0.attention"].geometry == gpt["blocks.0.attention"].geometry == own_head
    assert vit["tokens"].geometry == vit["first"].geometry == Geometry(kernel=None)
    assert gpt["positions"].geometry == gpt["blocks.0.add1"].geometry == Geometry()
    for mixing in ("blocks.0.norm1", "blocks.0.qkv", "blocks.0.out", "norm", "head"):
        assert vit[mixing].geometry == Geometry(mixes_channels=True)


def test_channels_are_split_by_whole_heads(vit: dict[str, Layer]) -> None:
    fractions = {
        name: [point.channel_fraction for point in layer.scaling if point.channel_fraction < 1]
        for name, layer in vit.items()
    }
    assert fractions["blocks.0.attention"] == [0.5, 0.25]
    for name in ("patches", "tokens", "blocks.0.qkv", "blocks.0.gelu", "blocks.0.add1", "first"):
        assert fractions[name] == [0.5, 0.25, 0.125]
    assert fractions["blocks.0.norm1"] == fractions["head"] == []


@pytest.mark.parametrize("causal", [False, True])
def test_some_heads_alone_yield_their_channels_of_the_whole(causal: bool) -> None:
    """So that a shard may read nothing but its own heads."""
    qkv = torch.randn(2, POSITIONS, 3 * WIDTH)
    half = Attention(HEADS // 2, causal)(qkv[..., : 3 * WIDTH // 2])
    torch.testing.assert_close(half, Attention(HEADS, causal)(qkv)[..., : WIDTH // 2])


def test_a_causal_position_does_not_see_those_behind_it() -> None:
    qkv = torch.randn(1, POSITIONS, 3 * WIDTH)
    changed = qkv.clone()
    changed[:, -1] += 1
    before, after = Attention(HEADS, True)(qkv), Attention(HEADS, True)(changed)
    assert torch.equal(before[:, :-1], after[:, :-1]) and not torch.equal(before[:, -1], after[:, -1])


def test_the_tied_output_layer_adds_no_parameters(gpt: dict[str, Layer]) -> None:
    assert (gpt["embedding"].parameter_bytes, gpt["head"].parameter_bytes) == (WORDS * WIDTH * 4, 0)
    assert gpt["positions"].parameter_bytes == POSITIONS * WIDTH * 4


@pytest.mark.parametrize("network", [VIT, GPT])
def test_gradients_layer_by_layer_equal_those_of_the_whole_step(network: Network) -> None:
    torch.manual_seed(0)
    rounds = MeasurementRounds(network, torch.device("cpu"), 3, torch.float32, [Fraction(1, 2)])
    _, gradients = rounds.passes.gradients(rounds.inputs)
    rounds.trained(rounds.inputs).backward()
    for parameter in rounds.trained.parameters():
        torch.testing.assert_close(gradients[parameter], parameter.grad)
