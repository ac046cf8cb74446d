"""Rules that a profile keeps to: its layers, what they say of each other, and their order."""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from math import isclose, prod
from typing import TYPE_CHECKING

from simulator.errors import MOST_COUNT, InputError, nearest, require, require_bytes, require_from_0, require_time

if TYPE_CHECKING:
    from simulator.workload import Geometry, Layer

MOST_LAYERS = 20_000
"""Of a profile: more make steps of millions of tasks."""
MOST_FLOPS = 1e30


def require_geometry(geometry: Geometry) -> None:
    """Raise InputError unless an output can depend on its input like this."""
    sides = (*(geometry.kernel or ()), *geometry.stride, *geometry.padding, *geometry.dilation, geometry.groups)
    require(max(sides) <= MOST_COUNT, "geometry", max(sides), f"sides and groups are at most {MOST_COUNT:,}")
    if geometry.kernel is not None:
        require(min(geometry.kernel) >= 1, "kernel", geometry.kernel, "each side is at least 1")
    require(min(geometry.stride) >= 1, "stride", geometry.stride, "each side is at least 1")
    require(min(geometry.padding) >= 0, "padding", geometry.padding, "each side is at least 0")
    require(min(geometry.dilation) >= 1, "dilation", geometry.dilation, "each side is at least 1")
    require(geometry.groups >= 1, "groups", geometry.groups, "it is at least 1")


def require_layer(layer: Layer) -> None:
    """Raise InputError unless a layer can be like this."""
    where = f"layer {layer.name!r}: "
    for name in ("forward_s", "backward_s", "update_s", "forward_spread_s", "backward_spread_s"):
        require_time(where + name, getattr(layer, name))
    require_from_0(where + "flops", layer.flops, MOST_FLOPS)
    rule = f"it is at most backward_s, {layer.backward_s}"
    require_time(where + "recompute_s", layer.recompute_s)
    require(layer.recompute_s <= layer.backward_s, where + "recompute_s", layer.recompute_s, rule)
    if layer.accumulate_s is not None:
        require_time(where + "accumulate_s", layer.accumulate_s)
    require_from_0(where + "varying_share", layer.varying_share, 1)
    for name in ("parameter_bytes", "output_bytes", "saved_bytes", "saved_output_bytes", "working_bytes"):
        require_bytes(where + name, getattr(layer, name))
    rule = f"it is at most saved_bytes, {layer.saved_bytes}, and output_bytes, {layer.output_bytes}"
    kept = layer.saved_output_bytes <= min(layer.saved_bytes, layer.output_bytes)
    require(kept, where + "saved_output_bytes", layer.saved_output_bytes, rule)
    require(layer.output_bytes > 0, where + "output_bytes", layer.output_bytes, "an output has at least 1 byte")
    require(min(layer.output_shape) >= 1, where + "output_shape", layer.output_shape, "each side is at least 1")
    require_bytes(where + "elements of output_shape", prod(layer.output_shape))
    if layer.routing:
        rule = f"it is {layer.routing.experts}, the number of experts"
        require(layer.output_shape[2] == layer.routing.experts, where + "width", layer.output_shape[2], rule)
    sizes = [(p.batch_size, p.channel_fraction, p.input_channel_fraction) for p in layer.scaling]
    twice = next((size for i, size in enumerate(sizes) if size in sizes[:i]), None)
    rule = "each size (batch, fraction of channels, of input channels) was measured once; keep one"
    require(twice is None, where + "scaling", f"at {twice} twice", rule)


def require_layers(layers: Sequence[Layer], batch_size: int) -> None:
    """Raise InputError unless a profile of batch_size samples can have these layers."""
    require(len(layers) > 0, "layers", "[]", "a profile has at least one layer")
    rule = f"a profile has at most {MOST_LAYERS:,}; join layers that stay together"
    require(len(layers) <= MOST_LAYERS, "layers", f"{len(layers):,}", rule)
    for layer in layers:
        _require_agreeing(layer, batch_size)


def _require_agreeing(layer: Layer, batch_size: int) -> None:
    """Raise InputError where a scaling point at the size of the layer itself, of batch_size samples, says otherwise."""
    for point in layer.scaling:
        whole = point.channel_fraction == point.input_channel_fraction == 1 and point.batch_size == batch_size
        for name in ("forward_s", "backward_s") if whole else ():
            own, other = getattr(layer, name), getattr(point, name)
            rule = f"at the same size the layer itself has {own}; leave one of them out"
            require(isclose(own, other, rel_tol=0.01), f"layer {layer.name!r}: scaling: {name}", other, rule)


def in_order(layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """`layers` in topological order; those that already are come back unchanged."""
    by_name: dict[str, Layer] = {}
    for layer in layers:
        require(layer.name not in by_name, "layers", layer.name, "names are unique; rename one of the two")
        by_name[layer.name] = layer
    for layer in layers:
        require(layer.name not in layer.tied_to, f"layer {layer.name!r}: tied_to", layer.name, "it is another layer")
        for field_name, names in (("inputs", layer.inputs), ("tied_to", layer.tied_to)):
            for name in names:
                if name not in by_name:
                    near = nearest(name, by_name)
                    hint = f" (nearest: {near!r})" if near else ""
                    raise InputError(f"layer {layer.name!r}: {field_name} names {name!r}, which is no layer{hint}")
    position = {layer.name: i for i, layer in enumerate(layers)}
    if all(position[name] < i for i, layer in enumerate(layers) for name in layer.inputs):
        return layers
    try:
        order = TopologicalSorter({layer.name: layer.inputs for layer in layers}).static_order()
        return tuple(by_name[name] for name in order)
    except CycleError as error:
        cycle = " -> ".join(error.args[1])
        raise InputError(f"layers: the graph has a cycle, {cycle}; a network's layers form a DAG") from None
