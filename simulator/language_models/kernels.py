"""Seconds of a matrix product and of an attention by their sizes: what the processors of a GPU have to do in turn.

A product is cut into tiles, of which every multiprocessor computes one at a time. All tiles of a round take as long as
one, and the last round as long as the others, however few its tiles (wave quantisation); a matrix that is no multiple
of a tile is computed as if it were (tile quantisation). A library tries several tiles and splits of the sum, and the
best is taken. Nothing is faster than its memory traffic, nor than the peak's share that the power limit leaves to long
products.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from math import ceil

from simulator.language_models.accelerators import Accelerator

TILES = ((256, 128), (128, 256), (128, 128), (256, 64), (64, 256), (128, 64), (64, 128), (64, 64))
"""Rows and columns of a tile, as CUTLASS and cuBLAS have them; the first are the largest."""
DEPTH = 64
"""Of the sum, what a tile reads at once: its length is a multiple of it."""
SPLITS = (1, 2, 4, 8)
"""In how many parts a sum may be computed, by as many multiprocessors."""
TILE_SHARE = 0.78
"""Of the peak, what the largest tiles give where power does not limit them: what they sustain on an A100 PCIe."""
HALF_REUSE = 56.0
"""FLOP that a tile does per element it reads at which it reaches half of what an endless one would. Fitted, like
FILL_CLOCKS, to SimuMax's table of an A100 PCIe, and to nothing else."""
FILL_CLOCKS = 5600
"""Of a tile before its first product and after its last one: filling shared memory, writing the result; 4 us on an
A100."""
ADDED_SHARE = 0.4
"""Where a tile is added to a sum in memory, of the seconds that this takes at its processor's part of the bandwidth
what no other processor's products hide. Fitted to the same table, where products add in fp32."""
ELEMENT_BYTES = 2
SUM_BYTES = 4
"""Of an element of a part of a sum."""
EXPERT_CALL_S = 8.7e-6
"""Between the calls by which a host asks for the products of one expert after another: the least of SimuMax's table of
a B200."""
QUERY_BLOCK, KEY_BLOCK = 128, 64
"""Queries that a multiprocessor takes in an attention's forward pass, and keys in its backward pass, at once."""
LAST_BLOCK = 0.7
"""Of the longest block of an attention, how long processors wait for the last ones, on average: between the half that
blocks in random order leave and the whole. SimuMax's A100 and 4 to 64 heads say 0.65 forward and 0.75 backward."""
ATTENTION_BACKWARD = 1.2
"""Seconds per FLOP of an attention's backward pass over those of its forward pass: 1.19 in SimuMax's table of an A100,
1.15 to 1.3 in the papers of FlashAttention-2 and -3 on H100."""
STATED_WIDTHS = (64, 128)
"""Channels of a head for which the shares below hold."""
ATTENTION_SHARES: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "flash-1": {"ampere": (0.37, 0.37), "hopper": (0.2, 0.2)},
    "flash-2": {"ampere": (0.55, 0.62), "hopper": (0.3, 0.34)},
    "fused": {
        "volta": (0.27, 0.3), "ampere": (0.55, 0.62), "hopper": (0.42, 0.62), "blackwell": (0.37, 0.5),
        "cdna2": (0.25, 0.3), "cdna3": (0.3, 0.38),
    },
}  # fmt: skip
"""Of the 16-bit peak, in the forward pass under a causal mask, with more blocks than processors can tell, for heads of
64 and 128 channels. FlashAttention 1 and 2: 2307.08691 on A100 (the first 30 to 50 % forward, 25 to 35 % backward) and
its figures on H100, 0.18 of the first, of which long sequences under MosaicML's FSDP say 0.2. "fused" is the best of a
generation: cuDNN and FlashAttention-3 (2407.08608), for 128 channels SimuMax's tables of A100 and B200; AMD's and the
V100's are assumed. A kernel that a generation lacks is its best."""
SCORE_FORWARD, SCORE_BACKWARD = 8, 11
"""Bytes per score beside the products' own: a softmax under a mask reads half of them and writes all (3), a dropout
reads and writes them and its mask (5); backward the dropout (5) and the softmax, which reads its output too (6)."""


@lru_cache(maxsize=65536)
def product_seconds(
    rows: float,
    inputs: float,
    outputs: float,
    gpu: Accelerator,
    memory_bytes_per_s: float,
    groups: int = 1,
    *,
    element_bytes: int = ELEMENT_BYTES,
    operand_bytes: int = ELEMENT_BYTES,
    call_s: float = 0.0,
) -> float:
    """Seconds of `groups` products of (rows x inputs) by (inputs x outputs), launches apart.

    element_bytes: of the result, read and written, 8 where it is added to a sum in fp32. operand_bytes: of what is
    multiplied. call_s: between the host's calls for one group and the next; 0: it calls once.
    """
    rate = gpu.flops_per_s * max(TILE_SHARE, gpu.sustained_share) / gpu.multiprocessors
    fill_s, written = FILL_CLOCKS / gpu.clock_hz, groups * rows * outputs
    added_s = ADDED_SHARE * (element_bytes - ELEMENT_BYTES) * gpu.multiprocessors / memory_bytes_per_s  # an element
    best_s = float("inf")
    for tall, wide in TILES:
        tiles = groups * ceil(rows / tall) * ceil(outputs / wide)
        per_element_s = 2.0 * tall * wide / (rate * tile_share(tall, wide))
        for parts in SPLITS:
            rounds = ceil(tiles * parts / gpu.multiprocessors)
            tile_s = DEPTH * ceil(inputs / parts / DEPTH) * per_element_s + fill_s + added_s * tall * wide
            sums_s = 2 * parts * SUM_BYTES * written / memory_bytes_per_s if parts > 1 else 0.0
            best_s = min(best_s, rounds * tile_s + sums_s)
    read = groups * (rows + outputs) * inputs
    power_s = 2.0 * written * inputs / gpu.flops_per_s / gpu.sustained_share
    moving_s = (read * operand_bytes + written * element_bytes) / memory_bytes_per_s
    return max(best_s, power_s, moving_s, groups * call_s)


def tile_share(tall: int, wide: int) -> float:
    """Of the rate of the largest tile, that of another: it reads more for each product."""
    reuse, largest = (a * b / (a + b) for a, b in ((tall, wide), TILES[0]))
    return reuse / (reuse + HALF_REUSE) * (largest + HALF_REUSE) / largest


@lru_cache(maxsize=65536)
def attention_seconds(
    sequences: float, length: int, heads: float, width: float, gpu: Accelerator, kernel: str
) -> tuple[float, float]:
    """(forward, backward) seconds of a causal attention that keeps no scores, launches apart.

    A block of queries meets the keys before it: of n blocks the longest meets n, all of them n (n + 1) / 2. A score
    takes so long for its exponential, and so much for each channel: the line through the two widths that are known.
    """
    shares = ATTENTION_SHARES[kernel]
    narrow, wide = shares.get(gpu.architecture, ATTENTION_SHARES["fused"][gpu.architecture])
    low, high = STATED_WIDTHS
    channels = low / narrow + (width - low) * (high / wide - low / narrow) / (high - low)  # at the peak
    score_s = 4.0 * channels * gpu.multiprocessors / gpu.flops_per_s
    seconds = []
    for block, products in ((QUERY_BLOCK, 1.0), (KEY_BLOCK, 2.5 * ATTENTION_BACKWARD)):
        blocks = ceil(length / block)
        shared = sequences * heads * blocks * (blocks + 1) / 2 / gpu.multiprocessors
        seconds.append((shared + LAST_BLOCK * blocks) * block * block * score_s * products)
    return seconds[0], seconds[1]


@lru_cache(maxsize=65536)
def scored_attention_seconds(
    sequences: float, length: int, heads: float, width: float, gpu: Accelerator, memory_bytes_per_s: float
) -> tuple[float, float]:
    """The same of an attention that writes all its scores, masked ones too: products, a softmax and a dropout.

    Rows of an odd width begin at half a word, which matrix units did not read then: BLOOM's search was two fifths
    slower with heads of 225 than of 216 channels.
    """
    groups = ceil(sequences * heads)
    gpu = replace(gpu, flops_per_s=gpu.fp32_flops_per_s) if width % 2 == 1 else gpu
    scores_s, values_s = (
        product_seconds(*order, gpu, memory_bytes_per_s, groups)
        for order in ((length, width, length), (length, length, width))
    )
    byte_s = sequences * heads * length**2 / memory_bytes_per_s
    forward_s = scores_s + values_s + SCORE_FORWARD * byte_s
    return forward_s, 2 * (scores_s + values_s) + SCORE_BACKWARD * byte_s
