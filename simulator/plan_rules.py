"""Rules that a plan keeps to: its step, its recomputed segments, how its layers are cut, the devices that it needs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import prod
from operator import le
from typing import TYPE_CHECKING

import numpy as np

from simulator.errors import (
    InputError,
    nearest,
    require,
    require_bytes,
    require_count,
    require_from_0,
    require_name,
    require_time,
)
from simulator.workload import Layer, Profile

if TYPE_CHECKING:
    from simulator.cluster import Cluster
    from simulator.plan import Plan, Sharding, Synchronisation

BOX_AXES = ("sample", "channel", "height", "width")
"""What cuts a layer's output into disjoint boxes."""

COMBINED = "combined-1f1b"
"""The schedule that hides what experts exchange behind another micro-batch."""

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


def spreads_experts(profile: Profile, plan: Plan) -> bool:
    """Whether experts of one layer are on several devices, which so exchange what they compute."""
    return any(
        layer.routing and plan.placements[layer.name].degrees[BOX_AXES.index("width")] > 1 for layer in profile.layers
    )


def may_hide_experts(profile: Profile, plan: Plan) -> bool:
    """Whether a plan would hide what experts exchange by the schedule COMBINED, as Megatron-LM runs it: with virtual
    stages in a pipeline, and without recomputing whole blocks."""
    if plan.schedule not in ("sequential", "interleaved") or not spreads_experts(profile, plan):
        return False
    routed = {layer.name for layer in profile.layers if layer.kind == "dispatch"}
    return routed.isdisjoint(chain.from_iterable(plan.recomputed))


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


def require_sharding(sharding: Sharding) -> None:
    """Raise InputError unless a layer can be split like this."""
    for axis, degree in sharding.axes.items():
        require(degree >= 1, "degrees" if axis in BOX_AXES else axis, degree, "each is at least 1")
    more = "".join(f", {axis} {degree}" for axis, degree in [*sharding.axes.items()][4:] if degree > 1)
    shards = prod(sharding.shape)
    rule = f"degrees {sharding.degrees}{more} make {shards} shards, one device each"
    require(len(sharding.devices) == shards, "devices", f"{len(sharding.devices)} long", rule)
    require(min(sharding.devices) >= 0, "devices", sharding.devices, "device numbers are at least 0")
    if sharding.copy > 1:
        copies = np.sort(sharding.array, axis=-1)
        rule = "copies of a shard are on different devices"
        require(bool((copies[..., 1:] != copies[..., :-1]).all()), "devices", sharding.devices, rule)
    if sharding.samples:
        parts = sharding.degrees[0]
        rule = f"degrees {sharding.degrees} make {parts} parts by sample, each with at least 1"
        fits = len(sharding.samples) == parts and min(sharding.samples) >= 1
        require(fits, "samples", sharding.samples, rule)


def require_synchronisation(asked: Synchronisation) -> None:
    """Raise InputError unless replicas can agree on gradients like this."""
    require(asked.bucket_bytes >= 0, "bucket_bytes", asked.bucket_bytes, "it is at least 0 (0: one per layer)")
    require_bytes("bucket_bytes", asked.bucket_bytes)
    require_bytes("bucket_bytes_per_device", asked.bucket_bytes_per_device)
    if asked.first_bucket_bytes is not None:
        rule = "it is at least 0 (left out: as much as the others)"
        require(asked.first_bucket_bytes >= 0, "first_bucket_bytes", asked.first_bucket_bytes, rule)
    require(1 <= asked.compression_ratio <= 1e9, "compression_ratio", asked.compression_ratio, "it is at least 1")
    require_time("compression_s_per_byte", asked.compression_s_per_byte)
    require_bytes("broadcast_bytes", asked.broadcast_bytes)
    if asked.serving_workers is not None:
        rule = "it is at least 1 (left out: one per host)"
        require(asked.serving_workers >= 1, "serving_workers", asked.serving_workers, rule)


def require_placed(profile: Profile, plan: Plan) -> None:
    """Raise InputError unless a plan places each layer of the profile, and no others, as it can be cut."""
    for name in plan.placements:
        if name not in profile.index:
            near = nearest(name, profile.index)
            hint = f"; the nearest layer is {near!r}" if near else ""
            raise InputError(f"placements names layer {name!r}, which profile {profile.model!r} lacks{hint}")
    require_segments(profile, plan.recomputed)
    require_layers(profile, "layer received again", plan.received_again)
    require_layers(profile, "layer of the turn", (plan.turn,) if plan.turn else ())
    for layer in profile.layers:
        sharding = plan.placements.get(layer.name)
        if sharding is None:
            raise InputError(f"placements lacks layer {layer.name!r}: every layer of the profile needs one")
        require_cuttable(profile, layer, sharding, plan.microbatch_size)


def require_devices(plan: Plan, cluster: Cluster) -> None:
    """Raise InputError unless the cluster has all devices of a plan."""
    last = {id(sharding): max(sharding.devices) for sharding in plan.distinct_placements}
    for name, sharding in plan.placements.items():
        if last[id(sharding)] >= cluster.workers:
            raise InputError(
                f"placements: layer {name!r} is on device {last[id(sharding)]}, but cluster "
                f"{cluster.name!r} has workers 0 to {cluster.workers - 1}; take more devices or another plan"
            )
