"""Bytes that one block keeps from its forward pass to its backward pass, on one device, in closed form: an oracle.

Korthikanti et al., "Reducing activation recomputation in large transformer models" (arXiv 2205.05198), table 2, for
GELU blocks with LayerNorm and dropout; the same count for SwiGLU blocks with RMSNorm, no dropout and an attention that
keeps no scores. Elements have two bytes, dropout masks one. s sequence, b samples, h hidden, a heads, g heads of keys
and values, f channels of the feed-forward layer, t tensor-parallel degree.
"""

from __future__ import annotations

from typing import Literal

Recomputation = Literal["none", "selective", "full"]


def gelu_block_bytes(
    sequence: int,
    samples: int,
    hidden: int,
    heads: int,
    *,
    tensor: int = 1,
    sequence_parallel: bool = False,
    recomputation: Recomputation = "none",
) -> float:
    """Of a block with LayerNorm, GELU, dropout and stored attention scores: table 2 of arXiv 2205.05198.

    sequence_parallel also splits what lies between the tensor-parallel matrices; "selective" recomputes the attention
    core, "full" keeps the block's input alone (whole on every device, as the table has it).
    """
    sbh = sequence * samples * hidden
    if recomputation == "full":
        return 2 * sbh
    scores = 0.0 if recomputation == "selective" else 5 * heads * sequence / hidden
    between = 10 / (tensor if sequence_parallel else 1)
    return sbh * (between + 24 / tensor + scores / tensor)


def swiglu_block_bytes(
    sequence: int,
    samples: int,
    hidden: int,
    heads: int,
    key_heads: int,
    ffn: int,
    *,
    tensor: int = 1,
    sequence_parallel: bool = False,
    fused: bool = True,
    recomputation: Recomputation = "none",
) -> float:
    """Of a block with RMSNorm, rotary positions, SwiGLU and an attention that stores a log-sum-exp per query.

    Kept: the inputs of both norms and of the two column-parallel matrices, q and the attention's output, keys and
    values (whole heads at least), gate, up and their product, 1/rms and log-sum-exp in fp32. Not fused, the activation
    of the gate is kept as well.
    """
    sb = sequence * samples
    share = tensor if sequence_parallel else 1
    if recomputation == "full":
        return 2 * sb * hidden / share
    between = (8 * sb * hidden + 8 * sb) / share
    inside = (4 * sb * hidden + (6 if fused else 8) * sb * ffn + 4 * heads * sb) / tensor
    keys = 4 * sb * max(key_heads / tensor, 1) * hidden / heads
    return between + inside + keys


def embedding_dropout_bytes(sequence: int, samples: int, hidden: int, *, stages: int, tensor: int = 1) -> float:
    """The mask behind the embedding, on the first of `stages` for as many micro-batches, split by sequence."""
    return sequence * samples * hidden * stages / tensor


def head_bytes(sequence: int, samples: int, hidden: int, vocabulary: int, *, tensor: int = 1) -> float:
    """Inputs of the final norm and of the head, and its logits in fp32 (section 4.3), without a pipeline."""
    return 4 * sequence * samples * hidden * (1 + vocabulary / hidden) / tensor
