"""One block of a card so many times, as a network of its own."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

from simulator.workload import Layer, Profile


def repeated_block(profile: Profile, block: int, count: int) -> Profile:
    """One block of a card's profile so many times, with what stands before and behind all of them; no parameters."""
    layers = profile.layers
    first = next(layer for layer in layers if block_number(layer.name) == 0)
    [last] = layers[profile.index["norm"]].inputs
    *_, end = last.split(".", 2)

    def of(layer: Layer, copy: int) -> Layer:
        """A layer of the block in a copy of it."""
        begins = first.inputs if copy == 0 else (f"blocks.{copy - 1}.{end}",)

        def named(name: str) -> str:
            return name.replace(f".{block}.", f".{copy}.", 1)

        inputs = (begins if block_number(name) != block else (named(name),) for name in layer.inputs)
        aligned = tuple(map(named, layer.geometry.aligned_inputs))
        return replace(
            layer,
            name=named(layer.name),
            inputs=tuple(chain.from_iterable(inputs)),
            geometry=replace(layer.geometry, aligned_inputs=aligned),
        )

    around = [layer for layer in layers if block_number(layer.name) < 0]
    behind = around.index(layers[profile.index["norm"]])
    around[behind] = replace(around[behind], inputs=(f"blocks.{count - 1}.{end}",))
    of_block = [layer for layer in layers if block_number(layer.name) == block]
    copies = [of(layer, copy) for copy in range(count) for layer in of_block]
    kept = (*around[:behind], *copies, *around[behind:])
    return replace(
        profile,
        layers=tuple(replace(layer, parameter_bytes=0, update_s=0.0, accumulate_s=0.0, tied_to=()) for layer in kept),
    )


def block_number(name: str) -> int:
    """Of a card's layer the number of its block, -1 outside of blocks."""
    return int(name.split(".")[1]) if name.startswith("blocks.") else -1
