"""Which units of a network stand on which stage, counted in blocks: what begins where an attention does.

A network without attention has a block in every unit. No layout cuts a block, what comes before the first or what comes
after the last, as no runtime does: a head apart from its loss would hand on logits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

from simulator.errors import InputError, require
from simulator.ordered_sum import ordered_sum
from simulator.plan_rules import MOST_MICROBATCHES
from simulator.workload import DTYPE_BYTES, Layer, Profile

LAYOUTS = ("balanced", "equal", "parameters")
BEHIND_HEAD = 1
"""Stages behind the head's that nanotron runs, for the loss: of the Ultra-Scale Playbook's plans with one, those that
fit ran; of 37 with two, one did."""
MOST_NOTATION = 100_000
"""Letters that a layout is written out to; a pipeline has fewer."""


def separable_units(profile: Profile) -> list[range]:
    """Runs of layers between which one tensor alone crosses: the finest stages of a pipeline."""
    units, first, furthest = [], 0, 0  # furthest: the last layer that reads one before the current
    for position, readers in enumerate(profile.consumers[:-1]):
        if furthest <= position and readers:
            units.append(range(first, position + 1))
            first = position + 1
        furthest = max(furthest, *readers, 0)
    return [*units, range(first, len(profile.layers))]


def pipeline_stages(profile: Profile, units: Sequence[range], stages: int, layout: str) -> list[range]:
    """Runs of units, as many as `stages`, by a layout as the strategy megatron has it. Raises InputError."""
    if layout != "balanced":
        return laid_out_stages(profile, units, stages, layout)
    passes_s = [layer.forward_s + layer.backward_s for layer in profile.layers]
    edges = sorted({0, *block_starts(profile, units), len(units)})
    wholes = [range(units[first].start, units[last - 1].stop) for first, last in pairwise(edges)]
    runs = balanced_stages([ordered_sum(passes_s[whole.start : whole.stop]) for whole in wholes], stages)
    return [range(edges[run.start], edges[run.stop]) for run in runs]


def laid_out_stages(profile: Profile, units: Sequence[range], stages: int, layout: str) -> list[range]:
    """Runs of units, as many as `stages`, by a layout that is not "balanced". Raises InputError.

    equal: as equally many blocks on every stage as integers allow, the first having more, as Megatron-LM has it; it
    refuses stages without layers. parameters: blocks go to a stage until it and those before hold their share of the
    parameters of blocks and head, as nanotron does, which gives the loss a stage of its own where there is one more:
    one before the head's is empty here. Otherwise how many blocks each stage has, see `named_blocks`. The devices of
    an empty stage idle.
    """
    starts = block_starts(profile, units)
    blocks = len(starts) - 1
    if layout == "equal":
        less, rest = divmod(blocks, stages)
        counts = [less + (stage < rest) for stage in range(stages)]
    elif layout == "parameters":
        counts = _by_parameters(profile, units, starts, stages)
    else:
        counts = named_blocks(layout)
        fits = len(counts) == stages and sum(counts) == blocks and min(counts) >= 0
        rule = f"it has a number of blocks for each of {stages} stages, {blocks} in all"
        require(fits, "layout", layout, rule)
    ends = [starts[count] for count in accumulate(counts)]
    runs = [range(first, last) for first, last in pairwise([0, *ends[:-1], len(units)])]
    empty, most_empty = sum(not run for run in runs), {"equal": 0, "parameters": BEHIND_HEAD}.get(layout, stages)
    rule = f"layout {layout!r} leaves a stage without layers; use fewer"
    require(empty <= most_empty, "stages", f"{stages} (pipeline x chunks)", rule)
    return runs


def is_attention(layer: Layer) -> bool:
    """Whether a layer needs all positions of other layers' outputs, or of its own heads'."""
    return layer.geometry.kernel is None and (len(layer.inputs) > 1 or layer.geometry.groups > 1)


def query_heads(profile: Profile, attention: Layer) -> int:
    """An attention's heads of queries: as wide as those of its keys, where it reads them apart, else as many.

    Heads of values may have another width, as with latents.
    """
    aligned, inputs = attention.geometry.aligned_inputs, attention.inputs
    queries, keys = ([name for name in inputs if (name in aligned) == own] for own in (True, False))
    if not (queries and keys):
        return attention.geometry.groups
    width, of_keys = (profile.layers[profile.index[names[0]]].channels for names in (queries, keys))
    return width * attention.geometry.groups // of_keys


def sequence_microbatches(profile: Profile, batch_size: int, replicas: int, stages: int = 1) -> int:
    """The micro-batches of a step that leaves them open, where `replicas` share each.

    A network of sequences on stages, or of a model card, has micro-batches of one sequence for each replica, or as few
    fewer as divide the batch; any other network has one.
    """
    if not any(map(is_attention, profile.layers)) or (stages == 1 and "stack" not in profile.software):
        return 1
    most = min(max(batch_size // replicas, 1), MOST_MICROBATCHES)
    return next(count for count in range(most, 0, -1) if batch_size % count == 0)


def block_starts(profile: Profile, units: Sequence[range]) -> list[int]:
    """The unit in which each block begins, and the one after the last block."""
    starts = [i for i, unit in enumerate(units) if any(is_attention(profile.layers[at]) for at in unit)]
    if not starts:
        return list(range(len(units) + 1))
    of_last = starts[-1] - starts[-2] if len(starts) > 1 else 1
    return [*starts, min(starts[-1] + of_last, len(units))]


def _by_parameters(profile: Profile, units: Sequence[range], starts: Sequence[int], stages: int) -> list[int]:
    """How many blocks each stage has, so that it and those before hold their share of blocks and head."""
    sizes = [sum(profile.layers[at].parameter_bytes for unit in units[a:b] for at in unit) for a, b in pairwise(starts)]
    after = [profile.layers[at] for unit in units[starts[-1] :] for at in unit]
    total = sum(sizes) + sum(_table_bytes(profile, layer) for layer in after if layer.sums_inputs)
    counts, stage = [0] * stages, 0
    for held in accumulate(sizes):
        counts[stage] += 1
        # whole numbers, so that no rounding decides whether a stage has met its share
        if stage < stages - 1 and held * stages >= total * (stage + 1):
            stage += 1
    return counts


def _table_bytes(profile: Profile, layer: Layer) -> int:
    """Of a layer's parameters, also where they are part of an earlier one's."""
    if not layer.tied_to:
        return layer.parameter_bytes
    inputs = sum(profile.layers[profile.index[name]].channels for name in layer.inputs)
    return inputs * layer.channels * DTYPE_BYTES[profile.dtype]


def named_blocks(layout: str) -> list[int]:
    """How many blocks each stage has: of numbers such as "9,8,8,7", or of the notation of Megatron-LM's
    `--pipeline-model-parallel-layout`, such as "Et*2|(tt|)*3,L".

    E is the embedding, t a block, L the head, | ends a stage, * repeats a letter or what stands in parentheses, commas
    are for the eye. Raises InputError.
    """
    if re.fullmatch(r"-?\d+(,-?\d+)*", layout):
        return [int(count) for count in layout.split(",")]
    stages = _written_out(layout).split("|")
    plain = "".join(stages)
    if not re.fullmatch(r"Et*L", plain) or stages[0][:1] != "E" or stages[-1][-1:] != "L":
        raise InputError(
            f"layout is {layout!r}: it is {', '.join(LAYOUTS)}, blocks by stage such as 9,8,8,7, or in Megatron-LM's "
            f"notation such as Et*2|(tt|)*3,L, with E on the first stage and L on the last"
        )
    return [stage.count("t") for stage in stages]


def _written_out(layout: str) -> str:
    """Megatron-LM's notation without repetitions and commas."""
    text, repeated = layout.replace(",", ""), re.compile(r"\(([^()]*)\)(?:\*(\d{1,4}))?|([A-Za-z|])\*(\d{1,4})")
    while match := repeated.search(text):
        part = match[1] if match[3] is None else match[3]
        text = text[: match.start()] + part * int(match[2] or match[4] or 1) + text[match.end() :]
        if len(text) > MOST_NOTATION:
            break
    return text


def balanced_stages(seconds: Sequence[float], stages: int) -> list[range]:
    """Contiguous runs of units, as many as `stages`, the slowest as fast as possible. Raises InputError."""
    count = len(seconds)
    require(stages <= count, "stages", f"{stages} (pipeline x chunks)", f"the network can be cut into at most {count}")
    sums = np.concatenate([[0.0], np.cumsum(seconds)])
    best = np.full((stages + 1, count + 1), np.inf)
    best[0, 0], before = 0.0, np.zeros((stages + 1, count + 1), dtype=np.int64)
    for stage in range(1, stages + 1):
        for end in range(stage, count - (stages - stage) + 1):
            slowest = np.maximum(best[stage - 1, :end], sums[end] - sums[:end])
            before[stage, end] = int(slowest.argmin())
            best[stage, end] = slowest[before[stage, end]]
    ends = [count]
    for stage in range(stages, 0, -1):
        ends.append(int(before[stage, ends[-1]]))
    return [range(first, last) for last, first in pairwise(ends)][::-1]
