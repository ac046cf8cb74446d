"""The operators of a decoder, on one device of a tensor-parallel group with sequence parallelism.

An operator is a matrix product, the attention, or work that memory traffic decides. Traffic counts what runtimes that
do not compile the network read and write in forward and backward, in bytes of bf16 per token, from the operators
themselves: a norm reads and writes its input forward (4 per channel) and reads input and gradient and writes a gradient
backward, where the gradient of the residual is added too; and so on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from simulator.language_models.model_card import ModelCard

ELEMENT_BYTES = 2
NORM_TRAFFIC = 22
"""Bytes per token and hidden channel: forward 4, backward 6, and adding the residual's gradient in fp32 or bf16 12."""
ADD_TRAFFIC = 12
"""Forward reads two and writes one, backward the same."""
ATTENTION_TRAFFIC = 102
"""Per query channel: rotary positions of q and k both ways, the split of q, k, v and its concatenation backward, four
changes of layout between (sequence, batch) and (batch, sequence) both ways."""
NORMED_TRAFFIC = 10
"""Per channel of queries and keys that are normed: forward reads and writes, backward reads two and writes one."""
ACTIVATION_TRAFFIC = 36
"""Per channel of the feed-forward layer: SiLU 4, product 6, their backward 18, joining the halves' gradients 8."""
ACCUMULATION_TRAFFIC = 12
"""Bytes per parameter and micro-batch: a bf16 gradient written and read, an fp32 sum read and written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockOperator:
    """One operator of a block for some tokens on one device.

    flops: of the forward pass, two per multiply-add. backward: how many times that the backward pass takes.
    products: matrix products in forward; each has two in backward. traffic_bytes: of both passes. output_channels: per
    token, before any split by sequence. saved_bytes: what forward keeps for backward.
    """

    name: str
    kind: Literal["norm", "linear", "attention", "add", "activation", "embedding", "loss"]
    flops: float = 0.0
    backward: float = 2.0
    products: float = 0.0
    parameters: int = 0
    traffic_bytes: float = 0.0
    output_channels: int = 0
    saved_bytes: float = 0.0


def block_operators(
    card: ModelCard, tokens: float, tensor: int = 1, *, expert: int = 1, fused_activation: bool = True
) -> Iterator[BlockOperator]:
    """The operators of one block of `card` for `tokens` of a micro-batch on one device, in order; of a mixture, of a
    block with experts, and behind them those of the feed-forward layer that every token takes.

    `expert` devices share the experts, every one with as many tokens. Without fused_activation the activation's output
    is kept as well as its product with the other half.
    """
    h, q, k, v = card.hidden, card.query_channels, card.key_channels, card.value_channels
    made, latents = card.attention_channels, card.latent.channels if card.latent else 0
    keys, values = max(k / tensor, k / card.key_heads), max(v / tensor, v / card.key_heads)
    norm, normed = norm_operator(card, tokens, tensor, card.norms / 2), bool(card.query_key_norm)
    add = BlockOperator(
        name="add", kind="add", output_channels=h, traffic_bytes=ADD_TRAFFIC * tokens * h / tensor
    )  # fmt: skip
    yield norm
    yield _linear(
        "qkv", tokens, h, card.qkv_matrices / h / tensor, output_channels=q + k + v,
        saved=2 * tokens * h / tensor + 4 * tokens * latents,
    )  # fmt: skip
    yield BlockOperator(
        name="attention", kind="attention", output_channels=made, backward=2.5,
        flops=tokens * card.sequence * card.attention_share * (q + made) / tensor,
        traffic_bytes=(ATTENTION_TRAFFIC * q + NORMED_TRAFFIC * normed * (q + k)) * tokens / tensor,
        saved_bytes=tokens * (2 * q / tensor + 2 * (keys + values) + 4 * card.heads / tensor),
    )  # fmt: skip
    yield _linear("output", tokens, made / tensor, h, output_channels=h, saved=2 * tokens * made / tensor)
    yield add
    yield norm
    yield from feed_forward_operators(
        card, tokens, card.ffn, tensor, active=card.experts_per_token or 1, copies=card.experts // expert or 1,
        fused_activation=fused_activation,
    )  # fmt: skip
    yield add
    if card.shared_ffn:
        yield from feed_forward_operators(
            card, tokens, card.shared_ffn, tensor, fused_activation=fused_activation, reads=False
        )


def norm_operator(card: ModelCard, tokens: float, tensor: int = 1, norms: float = 1.0) -> BlockOperator:
    """One norm, or so many of them."""
    h = card.hidden
    return BlockOperator(
        name="norm", kind="norm", parameters=round(norms * card.norm_vectors * h), output_channels=h,
        traffic_bytes=norms * NORM_TRAFFIC * tokens * h / tensor,
        saved_bytes=norms * (2 * tokens * h + 4 * tokens) / tensor,
    )  # fmt: skip


def feed_forward_operators(
    card: ModelCard,
    tokens: float,
    channels: int,
    tensor: int = 1,
    *,
    active: int = 1,
    copies: int = 1,
    fused_activation: bool = True,
    reads: bool = True,
) -> Iterator[BlockOperator]:
    """The matrices of a feed-forward layer of so many channels and what stands between them; of `copies` experts of
    which a token takes `active`. reads: it keeps what it reads, which nobody else does."""
    h, wide = card.hidden, (2 if card.gated else 1) * channels
    yield _linear(
        "gate_up", tokens * active, h, wide / tensor, output_channels=wide, saved=2 * tokens * h / tensor * reads,
        copies=copies,
    )  # fmt: skip
    yield BlockOperator(
        name="activation", kind="activation", output_channels=channels * active,
        traffic_bytes=ACTIVATION_TRAFFIC * tokens * active * channels / tensor,
        saved_bytes=2 * tokens * active * (wide + (0 if fused_activation else channels)) / tensor,
    )  # fmt: skip
    yield _linear(
        "down", tokens * active, channels / tensor, h, output_channels=h, saved=2 * tokens * active * channels / tensor,
        copies=copies,
    )  # fmt: skip


def head_operator(card: ModelCard, tokens: float, tensor: int = 1) -> BlockOperator:
    """The matrix that makes logits; where it is tied to the embedding its table is counted here too."""
    vocabulary = card.vocabulary / tensor
    return _linear(
        "head",
        tokens,
        card.hidden,
        vocabulary,
        output_channels=card.vocabulary,
        saved=2 * tokens * card.hidden / tensor,
    )


def _linear(
    name: str, tokens: float, inputs: float, outputs: float, *, output_channels: int, saved: float, copies: int = 1
) -> BlockOperator:
    return BlockOperator(
        name=name, kind="linear", flops=2.0 * tokens * inputs * outputs, products=1,
        parameters=round(inputs * outputs) * copies, output_channels=output_channels, saved_bytes=saved,
    )  # fmt: skip
