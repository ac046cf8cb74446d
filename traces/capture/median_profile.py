"""Several captures of one network as one profile, also those of processes of torchrun that capture at once.

The cores of a machine share caches and memory and need not be equally fast, so ranks that train together take longer
than one that was captured alone: DistributedDataParallel's step is that of the slowest.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch.distributed as dist

from simulator.errors import require
from simulator.workload import Layer, Profile

TIMES = (
    *("forward_s", "backward_s", "update_s", "recompute_s", "accumulate_s"),
    *("forward_spread_s", "backward_spread_s"),
)


def median_profile(captures: Sequence[Profile]) -> Profile:
    """The first of `captures` with the median of all for every time and spread; notes stay the first's.

    Raises InputError when they are not of the same network at the same points.
    """
    first = captures[0]
    for other in captures[1:]:
        alike = _measured_points(other) == _measured_points(first)
        require(alike, "captures", other.model, f"all measure the layers of {first.model!r} at the same points")
    layers = tuple(_median_layer([capture.layers[i] for capture in captures]) for i in range(len(first.layers)))
    doubt = next((capture.doubt for capture in captures if capture.doubt), "")
    return replace(first, layers=layers, doubt=doubt, **medians(captures, "step_s", "step_spread_s", "layers_to_step"))


def medians(measured: Sequence[Any], *names: str) -> dict[str, Any]:
    """By name, the median of this field over all that know it; None where none does."""
    known = {name: [value for each in measured if (value := getattr(each, name)) is not None] for name in names}
    return {name: statistics.median(values) if values else None for name, values in known.items()}


def _median_layer(layers: Sequence[Layer]) -> Layer:
    columns = zip(*(layer.scaling for layer in layers), strict=True)
    times = medians(layers, *TIMES)
    scaling = (replace(points[0], **medians(points, "forward_s", "backward_s")) for points in columns)
    return replace(layers[0], scaling=tuple(scaling), **times)


def _measured_points(profile: Profile) -> object:
    points = [[(point.batch_size, point.channel_fraction) for point in layer.scaling] for layer in profile.layers]
    return profile.batch_size, [layer.name for layer in profile.layers], points


def rank_of_torchrun() -> int:
    """Which of the processes that torchrun started this one is, once all of them are here; 0 without torchrun."""
    if not _by_torchrun():
        return 0
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    dist.barrier()
    return dist.get_rank()


def median_of_ranks(own: Profile) -> Profile:
    """The median of what all processes of torchrun captured, the same in each. own: what this one did."""
    if not _by_torchrun() or dist.get_world_size() == 1:
        return own
    captures: list[Profile] = [own] * dist.get_world_size()
    dist.all_gather_object(captures, own)
    profile = median_profile(captures)
    return replace(profile, notes=f"{profile.notes}; the median of {len(captures)} processes that measured at once")


def _by_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ
