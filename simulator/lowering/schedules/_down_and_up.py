"""Building blocks of schedules whose stages go down the devices and up again.

A device has the passes of a micro-batch at fixed units of time, a sixth of a period each (two chunks, each forward,
input gradients and weight gradients), and those of the next one a period later: Qi et al., "Pipeline Parallelism with
Controllable Memory" (NeurIPS 2024, section 3). A chunk's activations live from its forward to its weight gradients, so
that the distances between neighbouring devices decide how much memory a device needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import count, product

from simulator.lowering.schedules._schedule import Instruction
from simulator.taskgraph import Kind

PERIOD = 6
Distances = tuple[int, int, int, int]
"""Units from device to device: of the first chunks' forward passes going down, of the second ones' going up, of their
input gradients going down again and of the first chunks' going up."""
Units = tuple[int, int, int, int]
"""When a device begins these passes of micro-batch 0."""


def building_block(devices: int, device: int, microbatches: int, distances: Distances) -> Iterator[Instruction]:
    """The passes of a device in the order of their units."""
    begin = _units(devices, distances)[device]
    passes = [(begin[0], Kind.FORWARD, 0), (begin[1], Kind.FORWARD, 1), (begin[2], Kind.BACKWARD, 1)]
    passes.append((begin[3], Kind.BACKWARD, 0))
    taken = {unit % PERIOD for unit in begin}
    for unit, chunk in sorted([(begin[2], 1), (begin[3], 0)]):
        free = next(later for later in count(unit + 1) if later % PERIOD not in taken)
        passes.append((free, Kind.WEIGHT, chunk))
        taken.add(free % PERIOD)
    every = ((unit + PERIOD * m, kind, m, chunk) for unit, kind, chunk in passes for m in range(microbatches))
    for _, kind, microbatch, chunk in sorted(every):
        yield Instruction(kind, microbatch, chunk)


@lru_cache(maxsize=64)
def _units(devices: int, distances: Distances) -> tuple[Units, ...]:
    """By device; turns wait as short as lets no device have two passes at once."""
    for waits in sorted(product(range(1, PERIOD + 1), repeat=3), key=sum):
        units = tuple(_begin(devices, device, distances, waits) for device in range(devices))
        if all(len({unit % PERIOD for unit in begin}) == len(begin) for begin in units):
            return units
    raise AssertionError(f"no waits at the turns of {devices} devices with distances {distances}")


def _begin(devices: int, device: int, distances: Distances, waits: tuple[int, ...]) -> Units:
    last = devices - 1
    down, up, back, home = distances
    first = down * device
    second = down * last + waits[0] + up * (last - device)
    turned = down * last + waits[0] + up * last + waits[1] + back * device
    return first, second, turned, turned + back * (last - device) + waits[2] + home * (last - device)
