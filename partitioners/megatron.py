"""Megatron's grid: data x tensor x pipeline x context parallelism with sequence parallelism, and recomputation.

Inside a group of `tensor` devices a linear layer that reads complete values is cut by its output channels, and one that
reads what is cut by channels is cut by its input channels, so that one sum is left behind each pair (Shoeybi et al.,
arXiv 1909.08053); what lies between is cut by sequence or copied (Korthikanti et al., arXiv 2205.05198). Which is which
follows from the network: attention and elementwise layers stay cut by channels where all that they read is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from simulator.cluster import Cluster
from simulator.errors import InputError, require
from simulator.ordered_sum import ordered_sum
from simulator.plan import Partition, Sharding, StepSettings
from simulator.workload import Layer, Profile

STEP_OPTIONS = {"microbatches": None, "schedule": "1f1b"}  # without stages: sequential
RECOMPUTATION = ("none", "selective", "full")
Devices = npt.NDArray[np.int64]


def partition(
    profile: Profile,
    cluster: Cluster,
    step: StepSettings,
    *,
    tensor: int = 1,
    pipeline: int = 1,
    context: int = 1,
    sequence_parallel: bool = True,
    scattered: bool = False,
    recomputation: str = "none",
    seed: int = 0,
) -> Partition:
    """Grids of all workers: neighbours are of one tensor group, then of one context group, replicas and stages.

    What tensor, pipeline and context leave of the workers is data parallelism. Stages hold contiguous blocks, cut where
    one tensor alone crosses, so that the slowest stage is as fast as it can be, embedding and head counted.
    recomputation: "selective" the attention core, "full" every block. scattered: copies of what a stage hands on send a
    part each, which the next stage gathers; with sequence parallelism they are parts already. Raises InputError where
    the degrees do not divide the workers, a micro-batch has fewer samples than replicas, there are more stages than
    blocks, or a device would get a part of a head.
    """
    for name, degree in (("tensor", tensor), ("pipeline", pipeline), ("context", context)):
        require(degree >= 1, name, degree, "it is at least 1")
    group = tensor * pipeline * context
    rule = f"tensor x pipeline x context divides the {cluster.workers} devices"
    require(cluster.workers % group == 0, "tensor x pipeline x context", group, rule)
    require(recomputation in RECOMPUTATION, "recomputation", recomputation, f"it is {', '.join(RECOMPUTATION)}")
    replicas = cluster.workers // group
    if step.microbatch_size < replicas:
        raise InputError(
            f"batch_size {step.batch_size} gives a micro-batch {step.microbatch_size} samples for {replicas} replicas, "
            f"and each needs one; use a larger batch, fewer micro-batches or fewer replicas"
        )
    units = separable_units(profile)
    stages = balanced_stages([unit_seconds(profile, unit) for unit in units], pipeline)
    placements: dict[str, Sharding] = {}
    cut: dict[str, bool] = {}
    for index, stage in enumerate(stages):
        size = replicas * context * tensor
        devices = np.arange(index * size, (index + 1) * size).reshape(replicas, context, tensor)  # replica, part, rank
        for position in (position for unit in units[stage.start : stage.stop] for position in unit):
            layer = profile.layers[position]
            placements[layer.name] = _sharding(profile, layer, devices, cut, sequence_parallel)
    return Partition(
        placements=placements,
        schedule="1f1b" if pipeline > 1 else "sequential",
        recomputed=_segments(profile, units, recomputation),
        exchange="scattered" if scattered else "collectives" if tensor * context > 1 else "messages",
        received_again=_received_again(profile, placements),
    )


def separable_units(profile: Profile) -> list[range]:
    """Runs of layers between which one tensor alone crosses: the finest stages of a pipeline."""
    units, first, furthest = [], 0, 0  # furthest: the last layer that reads one before the current
    for position, readers in enumerate(profile.consumers[:-1]):
        if furthest <= position and readers:
            units.append(range(first, position + 1))
            first = position + 1
        furthest = max(furthest, *readers, 0)
    return [*units, range(first, len(profile.layers))]


def unit_seconds(profile: Profile, unit: range) -> float:
    """Forward and backward seconds of the layers of `unit`."""
    return ordered_sum(profile.layers[i].forward_s + profile.layers[i].backward_s for i in unit)


def balanced_stages(seconds: Sequence[float], stages: int) -> list[range]:
    """Contiguous runs of units, as many as `stages`, the slowest as fast as possible. Raises InputError."""
    count = len(seconds)
    require(stages <= count, "pipeline", stages, f"the network can be cut into at most {count} stages")
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


def _sharding(
    profile: Profile, layer: Layer, devices: Devices, cut: dict[str, bool], sequence_parallel: bool
) -> Sharding:
    """Where `layer` stands on devices of shape (replicas, context, tensor). cut: which layers are cut by channels."""
    replicas, context, tensor = devices.shape
    reads_parts = bool(layer.inputs) and all(cut[name] for name in layer.inputs)
    linear = layer.geometry.mixes_channels and layer.sums_inputs
    cut[layer.name] = False
    if layer.output_shape[1] < context:  # a loss of one number: every part of the sequence has it
        return _placed(devices, (replicas, 1, 1, 1), copy=context * tensor)
    if tensor == 1:
        return _placed(devices[..., None], (replicas, 1, context, 1))
    if linear and (reads_parts or not layer.inputs):
        return _placed(devices, (replicas, 1, context, 1), reduce=tensor)
    if (linear or reads_parts) and layer.channels >= tensor:
        cut[layer.name] = True
        parts = _channel_parts(profile, layer, tensor)
        split = devices.reshape(replicas, context, parts, tensor // parts)
        return _placed(split.transpose(0, 2, 1, 3), (replicas, parts, context, 1), copy=tensor // parts)
    if sequence_parallel and layer.output_shape[1] >= context * tensor:
        return _placed(devices, (replicas, 1, context * tensor, 1))
    return _placed(devices, (replicas, 1, context, 1), copy=tensor)


def _placed(devices: Devices, degrees: tuple[int, int, int, int], reduce: int = 1, copy: int = 1) -> Sharding:
    return Sharding(degrees=degrees, reduce=reduce, copy=copy, devices=tuple(map(int, devices.reshape(-1))))


def _channel_parts(profile: Profile, layer: Layer, tensor: int) -> int:
    """Into how many parts of whole heads a layer is cut: keys and values of fewer heads than devices are copied.

    Raises InputError where a device would get a part of a head, as the runtimes do.
    """
    readers = [profile.layers[i] for i in profile.consumers[profile.index[layer.name]]]
    heads = {
        reader.name: reader.geometry.groups
        for reader in readers
        if reader.geometry.kernel is None
        and reader.geometry.groups > 1
        and layer.name not in reader.geometry.aligned_inputs
    }
    parts = min([tensor, *heads.values()])
    for reader in (reader for reader in readers if reader.name in heads):
        keys = heads[reader.name]
        # queries that are read apart are as wide as keys; in one layer with keys and values they are as many
        queries = reader.channels * keys // layer.channels if reader.geometry.aligned_inputs else keys
        require(queries % tensor == 0, "tensor", tensor, f"it divides the {queries} heads of {reader.name!r}")
        rule = f"it divides the {keys} heads of keys and values of {reader.name!r}, or is a multiple of them"
        require(tensor % parts == 0 and keys % parts == 0, "tensor", tensor, rule)
    return parts


def _received_again(profile: Profile, placements: Mapping[str, Sharding]) -> tuple[str, ...]:
    """Layers cut by sequence of which another device keeps its own part alone: what column-parallel layers read under
    sequence parallelism, and the keys and values of context parallelism."""

    def is_read_whole(position: int) -> bool:
        layer, parts = profile.layers[position], placements[profile.layers[position].name].degrees[2]
        readers = [profile.layers[i] for i in profile.consumers[position]]
        return parts > 1 and any(
            placements[reader.name].degrees[2] < parts
            or (reader.geometry.kernel is None and layer.name not in reader.geometry.aligned_inputs)
            for reader in readers
        )

    return tuple(layer.name for position, layer in enumerate(profile.layers) if is_read_whole(position))


def _segments(profile: Profile, units: Sequence[range], recomputation: str) -> tuple[tuple[str, ...], ...]:
    names: Mapping[int, str] = {i: layer.name for i, layer in enumerate(profile.layers)}
    if recomputation == "full":
        return tuple(tuple(names[i] for i in unit) for unit in units if len(unit) > 1)
    attention = (i for i, layer in enumerate(profile.layers) if _is_attention(layer))
    return tuple((names[i],) for i in attention) if recomputation == "selective" else ()


def _is_attention(layer: Layer) -> bool:
    """Whether a layer needs all positions of other layers' outputs, or of its own heads'."""
    return layer.geometry.kernel is None and (len(layer.inputs) > 1 or layer.geometry.groups > 1)
