"""The layers that a decoder's profile has: what each is, which part of which operator, and what it keeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from simulator.expert_routing import Routing
from simulator.language_models.block import (
    BlockOperator,
    ProductShape,
    block_operators,
    head_operator,
    norm_operator,
    permutation_operator,
)
from simulator.language_models.model_card import NEXT_NORMS, ModelCard
from simulator.language_models.training_stack import TrainingStack
from simulator.workload import Geometry

ELEMENTWISE, MIXING = Geometry(), Geometry(mixes_channels=True)
ELEMENT_BYTES = 2
SCORE_GRADIENTS = 2
"""Tensors as large as the scores in which their backward pass works: gradients of the softmax and of its input."""
EMBEDDING_TRAFFIC = 20
"""Bytes per token and hidden channel: rows read and written forward, gradients read, sorted and added backward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """One layer of the profile: what it is, and which part of which operator of `block`.

    share: of the operator's flops and traffic, where it is cut into several layers (q, k and v; gate and up).
    kept_output: how much of the output is among saved_bytes.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    channels: int
    operator: BlockOperator
    geometry: Geometry = ELEMENTWISE
    share: float = 1.0
    parameters: int = 0
    saved_bytes: float = 0.0
    kept_output: float = 0.0
    working_bytes: float = 0.0
    element_bytes: int = ELEMENT_BYTES
    tied_to: tuple[str, ...] = ()
    routing: Routing | None = None


def layer_shapes(card: ModelCard, samples: int, stack: TrainingStack) -> Iterator[LayerShape]:
    """Every layer of the network for a batch of `samples` sequences."""
    tokens, h = samples * card.sequence, card.hidden
    table = BlockOperator(name="embedding", kind="embedding", traffic_bytes=float(EMBEDDING_TRAFFIC * tokens * h))
    yield LayerShape(
        name="embedding", kind="embedding", inputs=(), channels=h, operator=table, geometry=MIXING,
        parameters=card.embedding_parameters, saved_bytes=float(card.dropout * tokens * h),
    )  # fmt: skip
    stream = "embedding"
    for number in range(card.layers):
        of = card.dense_block if number < card.dense_layers else card
        yield from _block(of, f"blocks.{number}.", stream, tokens, stack)
        stream = f"blocks.{number}.add_ffn"
    tied = ("embedding",) if card.tied_embeddings else ()
    yield from _prediction(card, "", stream, tokens, stack, tied)
    for number in range(card.next_tokens):
        prefix, rows = f"next.{number}.", ProductShape(rows=tokens, inputs=2 * h, outputs=h)
        join = BlockOperator(name="join", kind="linear", shape=rows, parameters=2 * h * h, saved_bytes=4.0 * tokens * h)
        yield LayerShape(
            name=prefix + "join", kind="linear", inputs=("norm",), channels=h, operator=join, geometry=MIXING,
            parameters=join.parameters, saved_bytes=join.saved_bytes,
        )  # fmt: skip
        yield from _prediction(card, prefix, prefix + "join", tokens, stack, ("head",))


def _prediction(
    card: ModelCard, prefix: str, stream: str, tokens: int, stack: TrainingStack, tied_to: tuple[str, ...]
) -> Iterator[LayerShape]:
    """The norm behind `stream`, the head, whose table that of `tied_to` is, and the loss."""
    norms = NEXT_NORMS if prefix else 1
    norm, head = norm_operator(card, tokens, norms), head_operator(card, tokens)
    yield LayerShape(
        name=prefix + "norm", kind="norm", inputs=(stream,), channels=card.hidden, operator=norm, geometry=MIXING,
        parameters=norm.parameters, saved_bytes=norm.saved_bytes + head.saved_bytes,
    )  # fmt: skip
    own = 0 if tied_to else card.head_parameters
    yield LayerShape(
        name=prefix + "head", kind="linear", inputs=(prefix + "norm",), channels=card.vocabulary, operator=head,
        geometry=MIXING, parameters=own + card.vocabulary * card.head_bias * (not prefix), tied_to=tied_to,
    )  # fmt: skip
    logits = tokens * card.vocabulary
    loss = BlockOperator(
        name="loss", kind="loss",
        traffic_bytes=logits * stack.device.loss_bytes_per_logit / stack.device.traffic_factor,
    )  # fmt: skip
    yield LayerShape(
        name=prefix + "cross_entropy", kind="cross_entropy", inputs=(prefix + "head",), channels=3, operator=loss,
        geometry=MIXING, saved_bytes=4.0 * logits, working_bytes=(stack.logit_bytes - 4.0) * logits, element_bytes=4,
    )  # fmt: skip
    yield LayerShape(
        name=prefix + "loss", kind="add", inputs=(prefix + "cross_entropy",), channels=3, element_bytes=4,
        operator=BlockOperator(name="loss", kind="add"),
    )  # fmt: skip


def _block(card: ModelCard, prefix: str, stream: str, tokens: int, stack: TrainingStack) -> Iterator[LayerShape]:
    """One block, which reads `stream`: its operators, q, k, v and the halves of the feed-forward layer apart.

    What is saved stands with the layer that makes it, and what a norm reads, or the output matrix, with these. Latents
    are part of what is made of them.
    """
    norm, qkv, attention, output, add, _, wide, activation, down, _, *shared = block_operators(
        card, tokens, fused_activation=stack.fused_activation, fused_experts=stack.device.fused_experts,
        sequence_first=stack.device.sequence_first,
    )  # fmt: skip
    h, f = card.hidden, card.ffn
    read = 0.5 if stack.keeps_8_bits and stack.device.precision != "bf16" else 1.0  # kept of what products read
    heads = Geometry(kernel=None, groups=card.key_heads, mixes_channels=True, aligned_inputs=(prefix + "q",))
    biases, copies = (1 if card.biases else 0), card.experts or 1

    def shape(
        name: str, kind: str, inputs: tuple[str, ...], channels: int, of: BlockOperator, **rest: object
    ) -> LayerShape:
        named = tuple(prefix + name if name else stream for name in inputs)
        fields = {"parameters": of.parameters, "saved_bytes": of.saved_bytes, **rest}
        return LayerShape(name=prefix + name, kind=kind, inputs=named, channels=channels, operator=of, **fields)  # type: ignore[arg-type]

    def feed_forward(
        before: str, reads: str, of: tuple[BlockOperator, ...], channels: int, **routed: object
    ) -> Iterator[LayerShape]:
        wide, activation, down = of
        halves, columns = (("gate", "up") if card.gated else ("up",)), copies if routed else 1
        wide_bytes = float(ELEMENT_BYTES * tokens * channels * ((card.experts_per_token or 1) if routed else 1))
        for name in halves:
            yield shape(
                before + name, "linear", (reads,), channels, wide, geometry=MIXING, share=1 / len(halves),
                saved_bytes=wide_bytes, kept_output=1.0, parameters=(h + biases) * channels * columns, **routed,
            )  # fmt: skip
        made, kept = (
            tuple(before + name for name in halves),
            (read + (card.gated and not stack.fused_activation)) * wide_bytes,
        )
        yield shape(
            before + "activation", "activation", made, channels, activation, saved_bytes=kept, kept_output=read,
            working_bytes=len(halves) * wide_bytes, **routed,
        )  # fmt: skip
        yield shape(
            before + "down", "linear", (before + "activation",), h, down, geometry=MIXING, saved_bytes=0.0,
            parameters=down.parameters + biases * h * columns, **routed,
        )  # fmt: skip

    saved = norm.saved_bytes + read * qkv.saved_bytes
    yield shape("norm_attention", "norm", ("",), h, norm, geometry=MIXING, saved_bytes=saved, kept_output=read)
    for name, channels, matrices, vectors in card.projections:
        yield shape(
            name, "linear", ("norm_attention",), channels, qkv, geometry=MIXING, share=matrices / card.qkv_matrices,
            saved_bytes=float(ELEMENT_BYTES * tokens * channels), kept_output=1.0, parameters=matrices + vectors,
        )  # fmt: skip
    made, scores = card.attention_channels, float(stack.device.keeps_scores * tokens * card.sequence * card.heads)
    per_score = ELEMENT_BYTES + card.dropout * (1 + ELEMENT_BYTES)
    saved = scores * per_score if scores else 4 * tokens * card.heads  # log-sum-exp of each query
    saved += stack.attention_copies * ELEMENT_BYTES * tokens * made
    yield shape(
        "attention", "attention", ("q", "k", "v"), made, attention, geometry=heads, saved_bytes=saved,
        working_bytes=SCORE_GRADIENTS * ELEMENT_BYTES * scores,
    )  # fmt: skip
    yield shape(
        "output", "linear", ("attention",), h, output, geometry=MIXING, parameters=output.parameters + biases * h,
        saved_bytes=output.saved_bytes * (1.0 if read == 1 else 1 + read),  # the attention keeps it in 16 bits, too
    )  # fmt: skip
    masks = float(card.dropout * tokens * h)
    yield shape("add_attention", "add", ("output", ""), h, add, saved_bytes=masks)
    saved = norm.saved_bytes + read * wide.saved_bytes
    yield shape("norm_ffn", "norm", ("add_attention",), h, norm, geometry=MIXING, saved_bytes=saved, kept_output=read)
    if not card.routing:
        yield from feed_forward("", "norm_ffn", (wide, activation, down), f)
        yield shape("add_ffn", "add", ("down", "add_attention"), h, add, saved_bytes=masks)
        return
    routing = replace(card.routing, once_per_host=stack.once_per_host, once_per_device=stack.once_per_host)
    gates = ProductShape(rows=tokens, inputs=h, outputs=card.experts)
    router = BlockOperator(name="router", kind="linear", shape=gates, parameters=card.router_parameters)
    # of its logits a token takes to each expert that it visits its weight there alone
    yield shape("router", "linear", ("norm_ffn",), 1, router, geometry=MIXING)
    # an all-to-all takes rows in the order of devices, and they are sorted by expert on both sides of it; what sends a
    # token once to a node reads it where it is; rows of each expert are filled up to blocks of 8-bit products, and what
    # filled them is taken out again
    filled = read < 1 and not stack.device.fused_experts
    moves = permutation_operator(card, tokens, times=(1 if stack.once_per_host else 2) + filled)
    yield shape("dispatch", "dispatch", ("norm_ffn", "router"), h, moves, routing=routing)
    yield from feed_forward("", "dispatch", (wide, activation, down), f, routing=routing)
    yield shape("combine", "combine", ("down",), h, moves, routing=routing)
    if shared:
        yield from feed_forward("shared_", "norm_ffn", tuple(shared), card.shared_ffn)
    added = ("combine", *(("shared_down",) if shared else ()), "add_attention")
    yield shape("add_ffn", "add", added, h, add, saved_bytes=masks)
