"""Rules that a plan keeps to, apart from any cluster: its step, its recomputed segments, how its layers are cut."""

from __future__ import annotations

from collections.abc import Sequence
from operator import le
from typing import TYPE_CHECKING

from simulator.errors import InputError, require, require_count, require_from_0, require_name
from simulator.workload import Layer, Profile

if TYPE_CHECKING:
    from simulator.plan import Sharding

BOX_AXES = ("sample", "channel", "height", "width")
"""What cuts a layer's output into disjoint boxes."""

MOST_MICROBATCHES = 16_384
"""More make a step of millions of tasks."""

MOST_EFFORT = 1000.0
"""Of a search, over its usual effort of seconds: hours."""


def require_segments(profile: Profile, segments: Sequence[Sequence[str]]) -> None:
    """Raise InputError unless recomputed segments name layers of the profile, each once."""
    named = [name for segment in segments for name in segment]
    require_layers(profile, "recomputed layer", named)
    if len(named) > len(set(named)):
        twice = next(name for name in named if named.count(name) > 1)
        raise InputError(f"recomputed: layer {twice!r} is in two segments; a layer is recomputed once")


def require_layers(profile: Profile, what: str, names: Sequence[str]) -> None:
    """Raise UnknownNameError unless all these are layers of the profile."""
    for name in names:
        require_name(what, name, profile.index)


def require_cuttable(profile: Profile, layer: Layer, sharding: Sharding, samples: int) -> None:
    """Raise InputError where a layer, of a micro-batch of so many samples, has no shards like these."""
    _require_reducible(profile, layer, sharding.reduce)
    if sharding.samples and sum(sharding.samples) != samples:
        raise InputError(
            f"placements: layer {layer.name!r} has parts of {sharding.samples} samples, {sum(sharding.samples)} in "
            f"all, but a micro-batch has {samples}; make the plan anew for this batch"
        )
    extents = samples, *layer.output_shape
    if all(map(le, sharding.degrees, extents)):
        return
    for what, degree, extent in zip(BOX_AXES, sharding.degrees, extents, strict=True):
        if degree > extent:
            raise InputError(
                f"placements: layer {layer.name!r} is split {degree} ways by {what}, but a micro-batch has "
                f"only {extent} there; use a degree of at most {extent}"
                + (" or a larger batch" if what == "sample" else "")
            )


def _require_reducible(profile: Profile, layer: Layer, reduce: int) -> None:
    """Raise InputError where a layer is split by reduce and is no sum over that many input channels."""
    if reduce == 1:
        return
    if not layer.sums_inputs:
        raise InputError(
            f"placements: layer {layer.name!r} of kind {layer.kind!r} is split {reduce} ways by reduce, but "
            f"its output is no sum over input channels; split it by channel or height, or copy it"
        )
    fewest = min((profile.layers[profile.index[name]].channels for name in layer.inputs), default=reduce)
    if reduce > fewest:
        raise InputError(
            f"placements: layer {layer.name!r} is split {reduce} ways by reduce, but reads only {fewest} "
            f"channels; use a degree of at most {fewest}"
        )


def require_effort(effort: float) -> None:
    """Raise InputError unless a search can make so many times its usual effort."""
    require(0 < effort <= MOST_EFFORT, "effort", effort, f"it is above 0 and at most {MOST_EFFORT:g}")


def require_step(batch_size: int, microbatches: int, optimizer_state: float) -> None:
    """Raise InputError unless a step can be like this."""
    require_count("batch_size", batch_size)
    require(microbatches >= 1, "microbatches", microbatches, "it is at least 1")
    rule = f"a step has at most {MOST_MICROBATCHES:,}"
    require(microbatches <= MOST_MICROBATCHES, "microbatches", microbatches, rule)
    if batch_size % microbatches:
        fits = batch_size // microbatches * microbatches or microbatches
        raise InputError(
            f"batch_size {batch_size} does not divide into {microbatches} micro-batches: they are "
            f"equal; use a batch size of {fits} or {fits + microbatches}, or another number of micro-batches"
        )
    require_from_0("optimizer_state", optimizer_state, 1000)
