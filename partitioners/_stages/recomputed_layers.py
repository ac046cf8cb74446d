"""Which layers of a network of blocks are computed again before their backward passes, by the names of runtimes.

none        nothing
selective   the attention core alone, as Megatron-LM where nobody names modules
op          of every block all but each other matrix product, from the first on, and the attention: torchtitan's
            "selective" with the option "op"
full        every block as a whole
core_attn+layernorm   modules as Megatron-LM's `--recompute-modules` names them, one or more of MODULES
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from partitioners._stages.block_layout import block_starts, is_attention
from simulator.errors import require
from simulator.workload import DTYPE_BYTES, Layer, Profile

KINDS = ("none", "selective", "op", "full")
MODULES = ("core_attn", "layernorm", "mlp", "moe", "moe_act", "mla_up_proj")
"""mlp and moe: from the first matrix product of a feed-forward layer to the last, without and with experts. moe_act:
the experts' activation. mla_up_proj: what the attention reads, made of latents, with the products that make these."""
Segments = tuple[tuple[str, ...], ...]


def recomputed_segments(profile: Profile, units: Sequence[range], recomputation: str) -> Segments:
    """The segments of `Plan.recomputed`; no stage of a network of blocks cuts one. Raises InputError."""
    if recomputation == "none":
        return ()
    if recomputation in ("op", "full"):
        blocks = _blocks(profile, units)
        kept = [_kept(profile, block) if recomputation == "op" else set() for block in blocks]
        segments = ([i for i in block if i not in own] for block, own in zip(blocks, kept, strict=True))
        return _named(profile, (segment for segment in segments if len(segment) > 1))
    modules = ("core_attn",) if recomputation == "selective" else tuple(recomputation.split("+"))
    rule = f"it is {', '.join(KINDS)}, or some of {', '.join(MODULES)} joined by +"
    require({*modules} <= {*MODULES}, "recomputation", repr(recomputation), rule)
    rule = f"{profile.model!r} has no multi-head latent attention; leave mla_up_proj out"
    require("mla_up_proj" not in modules or _has_latents(profile), "recomputation", repr(recomputation), rule)
    return _named(profile, (segment for unit in units for segment in _of_modules(profile, unit, modules)))


def _has_latents(profile: Profile) -> bool:
    """Whether an attention reads a product of low rank, of fewer parameters than its inputs times its outputs."""

    def producers(layer: Layer) -> Iterator[Layer]:
        return (profile.layers[profile.index[name]] for name in layer.inputs)

    products = (made for layer in profile.layers if is_attention(layer) for made in producers(layer))
    return any(
        made.parameter_bytes < DTYPE_BYTES[profile.dtype] * made.channels * sum(of.channels for of in producers(made))
        for made in products
        if made.sums_inputs
    )


def _named(profile: Profile, segments: Iterator[Sequence[int]]) -> Segments:
    return tuple(tuple(profile.layers[i].name for i in segment) for segment in segments)


def _blocks(profile: Profile, units: Sequence[range]) -> list[list[int]]:
    """The layers of each block, and of each unit around the blocks."""
    starts = block_starts(profile, units)
    around = (*range(starts[0]), *range(starts[-1], len(units)))
    edges = sorted({*around, *starts, len(units)})
    return [[i for unit in units[a:b] for i in unit] for a, b in pairwise(edges)]


def _kept(profile: Profile, block: Sequence[int]) -> set[int]:
    """Of a block its attentions and, of its matrix products, the first and every other one after it."""
    products = [i for i in block if profile.layers[i].sums_inputs and profile.layers[i].inputs]
    return {*products[::2], *(i for i in block if is_attention(profile.layers[i]))}


def _of_modules(profile: Profile, unit: range, modules: Sequence[str]) -> Iterator[Sequence[int]]:
    """The segments of one unit, a half of a block."""
    attends = [i for i in unit if is_attention(profile.layers[i])]
    if "layernorm" in modules:
        yield from ([i] for i in unit if "norm" in profile.layers[i].kind.lower())
    if "core_attn" in modules:
        yield from ([i] for i in attends)
    if "mla_up_proj" in modules:
        yield from ([profile.index[name] for name in profile.layers[i].inputs] for i in attends)
    if "moe_act" in modules:
        yield from ([i] for i in unit if profile.layers[i].kind == "activation" and profile.layers[i].routing)
    name = "moe" if any(profile.layers[i].routing for i in unit) else "mlp"
    products = [i for i in unit if profile.layers[i].sums_inputs and profile.layers[i].inputs]
    if name in modules and len(products) > 1 and not attends:
        yield range(products[0], products[-1] + 1)
