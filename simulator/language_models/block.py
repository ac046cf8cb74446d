"""The operators of a decoder, each computed whole on one device; `BlockOperator.part` is a device's share of one.

An operator is a matrix product, the attention, or work that memory traffic decides. Traffic counts what runtimes that
do not compile the network read and write in forward and backward, in bytes of bf16 per token, from the operators
themselves: a norm reads and writes its input forward (4 per channel) and reads input and gradient and writes a gradient
backward, where the gradient of the residual is added too; and so on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from simulator.language_models.model_card import ModelCard

NORM_TRAFFIC = 22
"""Bytes per token and hidden channel: forward 4, backward 6, and adding the residual's gradient in fp32 or bf16 12."""
ADD_TRAFFIC = 12
"""Forward reads two and writes one, backward the same."""
SPLIT_TRAFFIC = 12
"""Per query channel: the gradients of q, k and v are joined."""
ROTARY_TRAFFIC, FUSED_ROTARY_TRAFFIC = 58, 16
"""Per query channel: rotary positions of q and k both ways; in one kernel each reads and writes them once."""
LAYOUT_TRAFFIC = 32
"""Per query channel: q, k, v and the output between (sequence, batch) and (batch, sequence) both ways."""
GATED_TRAFFIC, FUSED_GATED_TRAFFIC = 36, 16
"""Per channel of the feed-forward layer: SiLU 4, product 6, their backward 18, joining the halves' gradients 8; in one
kernel three tensors forward and five backward."""
PERMUTED_TRAFFIC = 8
"""Per hidden channel of a token for each expert that it visits, as often as these rows change their place: forward and
backward read and write them once."""
ACTIVATION_TRAFFIC = 10
"""The same where nothing is gated: forward 4, backward 6."""
NORMED_TRAFFIC = 10
"""Per channel of queries and keys that are normed: forward reads and writes, backward reads two and writes one."""
BIAS_TRAFFIC = 2
"""Per output channel of a linear layer with a bias: backward sums the gradient over its tokens."""
SCALED_BIAS_TRAFFIC = 68
"""The same where it is an expert's, scaled for each of its tokens in fp32, expert by expert: forward the product writes
4, the sum reads and writes 10, joining the experts' rows 8, the cast 6; backward casts take 12, a product and a sum for
the bias 12 and for the scales 12, joining 4 (Megatron Core 0.15 to 0.19, `TEGroupedMLP._apply_bias`)."""
ACCUMULATION_TRAFFIC = 12
"""Bytes per parameter and micro-batch: a bf16 gradient written and read, an fp32 sum read and written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductShape:
    """A matrix product of the forward pass, (rows x inputs) by (inputs x outputs); groups: as many, apart."""

    rows: float
    inputs: float
    outputs: float
    groups: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShape:
    """Of some sequences of `length` tokens, over heads of `width` channels."""

    sequences: float
    length: int
    heads: float
    width: float
    """The mean of a query's and a value's."""
    share: float = 1.0
    """Of the scores under a causal mask, what a window leaves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockOperator:
    """One operator of a block for some tokens on one device."""

    name: str
    kind: Literal["norm", "linear", "attention", "add", "activation", "permutation", "embedding", "loss"]
    shape: ProductShape | AttentionShape | None = None
    """What it computes beside its traffic."""
    parameters: int = 0
    traffic_bytes: float = 0.0
    """Of both passes."""
    saved_bytes: float = 0.0
    """What forward keeps for backward."""

    @property
    def flops(self) -> float:
        """Of the forward pass, two per multiply-add; of an attention the scores that a mask hides count, too."""
        if isinstance(self.shape, ProductShape):
            return 2.0 * self.shape.groups * self.shape.rows * self.shape.inputs * self.shape.outputs
        if isinstance(self.shape, AttentionShape):
            scores = self.shape.sequences * self.shape.length**2 * self.shape.heads * self.shape.share
            return 4.0 * scores * self.shape.width
        return 0.0

    def part(self, outputs: float, inputs: float = 1.0, tokens: float = 1.0) -> BlockOperator:
        """What a device has to compute of it that has a share of its output, or input, channels, or of its heads, and
        so many times its tokens."""
        shape = self.shape
        if isinstance(shape, ProductShape):
            rows, wide = shape.rows * tokens, shape.outputs * outputs
            shape = replace(shape, rows=rows, inputs=shape.inputs * inputs, outputs=wide)
        elif isinstance(shape, AttentionShape):
            shape = replace(shape, sequences=shape.sequences * tokens, heads=shape.heads * outputs)
        return replace(self, shape=shape, traffic_bytes=self.traffic_bytes * outputs * tokens, parameters=0)


def block_operators(
    card: ModelCard,
    tokens: float,
    *,
    fused_activation: bool = True,
    fused_experts: bool = False,
    sequence_first: bool = True,
) -> Iterator[BlockOperator]:
    """The operators of one block of `card` for `tokens` of a micro-batch, in order; of a mixture, of a block with
    experts, and behind them those of the feed-forward layer that every token takes.

    Without fused_activation the activation's output is kept as well as its product with the other half, and rotary
    positions take several kernels. fused_experts: see `DeviceModel`. sequence_first: an attention changes layouts.
    """
    h, q, k, v = card.hidden, card.query_channels, card.key_channels, card.value_channels
    made, latents = card.attention_channels, card.latent.channels if card.latent else 0
    norm, normed = norm_operator(card, tokens, card.norms / 2), bool(card.query_key_norm)
    rotary = FUSED_ROTARY_TRAFFIC if fused_activation else ROTARY_TRAFFIC
    moved = SPLIT_TRAFFIC + (0 if card.positions else rotary) + (LAYOUT_TRAFFIC if sequence_first else 0)
    add = BlockOperator(name="add", kind="add", traffic_bytes=ADD_TRAFFIC * tokens * h)
    kept, biased = 2 * tokens * h + 4 * tokens * latents, card.biases or card.qkv_biases
    yield norm
    yield _linear("qkv", tokens, h, card.qkv_matrices / h, saved=kept, bias=biased)
    yield BlockOperator(
        name="attention", kind="attention",
        shape=AttentionShape(
            sequences=tokens / card.sequence, length=card.sequence, heads=card.heads,
            width=(q + made) / 2 / card.heads, share=card.attention_share,
        ),
        traffic_bytes=(moved * q + NORMED_TRAFFIC * normed * (q + k)) * tokens,
        saved_bytes=tokens * (2 * q + 2 * (k + v) + 4 * card.heads),
    )  # fmt: skip
    yield _linear("output", tokens, made, h, saved=2 * tokens * made, bias=card.biases)
    yield add
    yield norm
    active, copies = card.experts_per_token or 1, card.experts or 1
    yield from feed_forward_operators(
        card, tokens, card.ffn, active=active, copies=copies,
        fused_activation=fused_activation, fused_experts=fused_experts,
    )  # fmt: skip
    yield add
    if card.shared_ffn:
        yield from feed_forward_operators(card, tokens, card.shared_ffn, fused_activation=fused_activation, reads=False)


def norm_operator(card: ModelCard, tokens: float, norms: float = 1.0) -> BlockOperator:
    """One norm, or so many of them."""
    h = card.hidden
    return BlockOperator(
        name="norm",
        kind="norm",
        parameters=round(norms * card.norm_vectors * h),
        traffic_bytes=norms * NORM_TRAFFIC * tokens * h,
        saved_bytes=norms * (2 * tokens * h + 4 * tokens),
    )


def feed_forward_operators(
    card: ModelCard,
    tokens: float,
    channels: int,
    *,
    active: int = 1,
    copies: int = 1,
    fused_activation: bool = True,
    fused_experts: bool = False,
    reads: bool = True,
) -> Iterator[BlockOperator]:
    """The matrices of a feed-forward layer of so many channels and what stands between them; of `copies` experts of
    which a token takes `active`. reads: it keeps what it reads, which nobody else does."""
    h, wide, rows = card.hidden, (2 if card.gated else 1) * channels, tokens * active
    gated = FUSED_GATED_TRAFFIC if fused_activation else GATED_TRAFFIC
    yield _linear("gate_up", rows, h, wide, saved=2 * tokens * h * reads, copies=copies, bias=card.biases)
    yield BlockOperator(
        name="activation",
        kind="activation",
        traffic_bytes=(gated if card.gated else ACTIVATION_TRAFFIC) * rows * channels,
        saved_bytes=2 * rows * (wide + (channels if card.gated and not fused_activation else 0)),
    )
    down = _linear("down", rows, channels, h, saved=2 * rows * channels, copies=copies)
    biased = (SCALED_BIAS_TRAFFIC if copies > 1 and not fused_experts else BIAS_TRAFFIC) * card.biases
    yield replace(down, traffic_bytes=biased * rows * h)


def permutation_operator(card: ModelCard, tokens: float, times: int) -> BlockOperator:
    """Tokens copied so many times, once for each expert that they visit: into another order, or between blocks of rows
    that are full and those that are filled up."""
    rows = tokens * card.experts_per_token
    return BlockOperator(
        name="permutation", kind="permutation", traffic_bytes=float(times * PERMUTED_TRAFFIC * rows * card.hidden)
    )


def head_operator(card: ModelCard, tokens: float) -> BlockOperator:
    """The matrix that makes logits; where it is tied to the embedding its table is counted here too."""
    return _linear("head", tokens, card.hidden, card.vocabulary, saved=2 * tokens * card.hidden)


def _linear(
    name: str, tokens: float, inputs: float, outputs: float, *, saved: float, copies: int = 1, bias: bool = False
) -> BlockOperator:
    return BlockOperator(
        name=name,
        kind="linear",
        shape=ProductShape(rows=tokens / copies, inputs=inputs, outputs=outputs, groups=copies),
        parameters=round(inputs * outputs) * copies,
        traffic_bytes=BIAS_TRAFFIC * bias * tokens * outputs,
        saved_bytes=saved,
    )
