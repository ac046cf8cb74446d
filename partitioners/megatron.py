"""Megatron's grid: data x tensor x pipeline x context x expert parallelism with sequence parallelism, recomputation.

Inside a group of `tensor` devices a linear layer that reads complete values is cut by its output channels, and one that
reads what is cut by channels is cut by its input channels, so that one sum is left behind each pair (Shoeybi et al.,
arXiv 1909.08053); what lies between is cut by sequence or copied (Korthikanti et al., arXiv 2205.05198). Which is which
follows from the network: attention and elementwise layers stay cut by channels where all that they read is. Experts
are shared out among replicas: their tokens travel by an all-to-all to the devices of the same tensor rank, are gathered
in the tensor group there, and the other way round; or whole experts also among the devices of a tensor group, each of
which has its own part of the tokens (Liu et al., arXiv 2504.14960, "parallel folding").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from partitioners import StrategyChoice
from partitioners._grid_choices import grid_choices
from partitioners._stages.block_layout import (
    LAYOUTS,
    is_attention,
    named_blocks,
    pipeline_stages,
    query_heads,
    separable_units,
    sequence_microbatches,
)
from partitioners._stages.recomputed_layers import recomputed_segments
from simulator.cluster import Cluster
from simulator.errors import InputError, require
from simulator.lowering.schedules import load
from simulator.plan import Partition, Sharding, StepSettings
from simulator.workload import Layer, Profile

STEP_OPTIONS = {"microbatches": None, "schedule": "1f1b"}
"""Left open, micro-batches are as `sequence_microbatches` has them. Without stages they are sequential."""
Devices = npt.NDArray[np.int64]


def partition(
    profile: Profile,
    cluster: Cluster,
    step: StepSettings,
    *,
    tensor: int = 1,
    pipeline: int = 1,
    context: int = 1,
    expert: int = 1,
    expert_tensor: int = 0,
    sequence_parallel: bool = True,
    scattered: bool | None = None,
    gather_again: bool | None = None,
    recomputation: str = "none",
    chunks: int = 0,
    layout: str = "",
    seed: int = 0,
) -> Partition:
    """Grids of all workers: neighbours are of one tensor group, then of one context group, replicas and stages.

    What tensor, pipeline and context leave of the workers is data parallelism. Of data x context devices of one tensor
    rank `expert` neighbours share the experts. expert_tensor: devices of a tensor group that share each expert, all (0)
    or 1: then `expert` neighbours of all tensor ranks share them. Stages are cut where one tensor alone crosses.
    chunks: virtual stages of a device, which go round the devices, interleaved (0: as many as a layout by stage names,
    else one), or two that go down the devices and up again, where the step's schedule has it so. layout: "balanced", so
    that the slowest stage is as fast as it can be, embedding and head counted; "equal" as many blocks on each, the
    first having more; "parameters" as many of those of blocks and head; or blocks by stage, such as "9,8,8,7" or in
    Megatron-LM's notation "Et*2|(tt|)*3,L", all first chunks before the second ones. recomputation: see
    `_stages.recomputed_layers`. scattered: copies of what a stage hands on send a part each, which the next stage
    gathers; left open, where the step's runtime does so; with sequence parallelism they are parts already.
    gather_again: with that a device keeps its own part of what column-parallel layers read, and of keys and values, and
    gathers the others' again for the backward pass, as Megatron-LM and nanotron do; left open, where the step's runtime
    overlaps that with weight gradients, or where torch recomputes all but what products made ("op"). Our executor does
    not. Raises InputError where the degrees do not divide the workers, the experts or the heads, a micro-batch has
    fewer samples than replicas, or there are more stages than blocks.
    """
    for name, degree in (("tensor", tensor), ("pipeline", pipeline), ("context", context), ("expert", expert)):
        require(degree >= 1, name, degree, "it is at least 1")
    require(0 <= chunks <= len(profile.layers), "chunks", chunks, f"it is from 0 to {len(profile.layers)}, the layers")
    group = tensor * pipeline * context
    rule = f"tensor x pipeline x context divides the {cluster.workers} devices"
    require(cluster.workers % group == 0, "tensor x pipeline x context", group, rule)
    replicas = cluster.workers // group
    whole = _whole_experts(expert_tensor, tensor, sequence_parallel)
    _require_experts(profile, expert, replicas, context * tensor if whole else context)
    microbatches = step.microbatches or sequence_microbatches(profile, step.batch_size, replicas, pipeline)
    samples = step.batch_size // microbatches
    if samples < replicas:
        raise InputError(
            f"batch_size {step.batch_size} gives a micro-batch {samples} samples for {replicas} replicas, "
            f"and each needs one; use a larger batch, fewer micro-batches or fewer replicas"
        )
    in_parts = step.runtime.scatters_stages and tensor > 1 and not sequence_parallel if scattered is None else scattered
    habit = step.runtime.overlaps_weight_gradients or recomputation == "op"
    gathers_again = habit if gather_again is None else gather_again
    units = separable_units(profile)
    layout = layout or step.runtime.stage_layout
    schedule = load(step.schedule) if step.schedule else None
    turns = schedule is not None and schedule.turns
    chunks = chunks or (2 if turns else _named_chunks(layout, pipeline))
    if schedule and (schedule.turns != (chunks == 2) if turns else chunks > 1 and not schedule.several_stages):
        rule = "it is 2" if turns else "several need the schedule interleaved or zero-bubble"
        require(False, "chunks", chunks, f"{rule}; the step has {schedule.name}")
    stages = pipeline_stages(profile, units, pipeline * chunks, layout)
    segments = recomputed_segments(profile, units, recomputation)
    placements: dict[str, Sharding] = {}
    cut: dict[str, bool] = {}
    for index, stage in enumerate(stages):
        size, home = replicas * context * tensor, index % pipeline
        home = pipeline - 1 - home if turns and index >= pipeline else home
        devices = np.arange(home * size, (home + 1) * size).reshape(replicas, context, tensor)  # replica, part, rank
        of_experts = devices.reshape(replicas, context * tensor, 1) if whole else devices  # replica, part, rank
        grids = {False: _Grid(devices, 1), True: _Grid(of_experts, expert)}
        for position in (position for unit in units[stage.start : stage.stop] for position in unit):
            layer = profile.layers[position]
            grid = grids[layer.routing is not None]
            placements[layer.name] = _sharding(profile, layer, grid, cut, sequence_parallel)
    return Partition(
        placements=placements,
        microbatches=microbatches,
        schedule="sequential" if pipeline == 1 else "interleaved" if chunks > 1 else "1f1b",
        recomputed=segments,
        exchange="scattered" if in_parts else "collectives" if tensor * context * expert > 1 else "messages",
        received_again=_gathered(profile, placements, cut) if gathers_again else (),
        turn=profile.layers[units[stages[pipeline].start][0]].name if turns else "",
    )


def _gathered(profile: Profile, placements: Mapping[str, Sharding], cut: Mapping[str, bool]) -> tuple[str, ...]:
    """The layers cut by sequence that column-parallel layers, or an attention as keys and values, read whole.

    Tokens at experts stay gathered, as in Megatron-LM.
    """
    layers = profile.layers

    def is_read_whole(layer: Layer, reader: Layer) -> bool:
        if is_attention(reader):
            return layer.name not in reader.geometry.aligned_inputs
        own = not cut[layer.name] and placements[layer.name].copy == 1
        return own and cut[reader.name] and reader.sums_inputs

    return tuple(
        layer.name
        for layer, readers in zip(layers, profile.consumers, strict=True)
        if not layer.routing
        and placements[layer.name].degrees[2] > 1
        and any(is_read_whole(layer, layers[reader]) for reader in readers)
    )


def _named_chunks(layout: str, pipeline: int) -> int:
    """How many stages a layout gives each device of a pipeline. Raises InputError where they are not equally many."""
    if layout in LAYOUTS:
        return 1
    stages = len(named_blocks(layout))
    return stages // pipeline if stages % pipeline == 0 else 1


def _whole_experts(expert_tensor: int, tensor: int, sequence_parallel: bool) -> bool:
    """Whether devices of a tensor group have experts of their own. Raises InputError where they cannot."""
    rule = f"it is 1, or the tensor degree, {tensor}"
    require(expert_tensor in (0, 1, tensor), "expert_tensor", expert_tensor, rule)
    whole = expert_tensor == 1 < tensor
    rule = "it is true where devices of a tensor group have experts of their own, and so tokens of their own"
    require(sequence_parallel or not whole, "sequence_parallel", sequence_parallel, rule)
    return whole


def _require_experts(profile: Profile, expert: int, replicas: int, parts: int) -> None:
    """Raise InputError where so many devices cannot share the experts of the profile's layers; parts: of a sequence."""
    if expert == 1:
        return
    rule = f"it divides replicas x parts of a sequence, {replicas} x {parts}"
    require(replicas * parts % expert == 0, "expert", expert, rule)
    rule = (
        f"it divides the {parts} parts of a sequence or is a multiple of them, for groups of whole sequences or parts"
    )
    require(parts % expert == 0 or expert % parts == 0, "expert", expert, rule)
    counts = {layer.routing.experts for layer in profile.layers if layer.routing}
    require(len(counts) > 0, "expert", expert, f"{profile.model!r} has no experts; leave it out")
    for count in counts:
        require(count % expert == 0, "expert", expert, f"it divides the {count} experts")


class _Grid:
    """The devices of a stage, of shape (replicas, context, tensor), of which `expert` in a row share experts.

    Layers that are cut alike have the same object, so that what follows from it is worked out once.
    """

    def __init__(self, devices: Devices, expert: int) -> None:
        self.replicas, self.context, self.tensor = devices.shape
        groups = max(1, self.context // expert)  # of a replica's parts of the sequence
        members = devices.reshape(-1, groups, expert, self.tensor)  # (replicas, parts, member, rank) of groups
        self._members, self._parts = members.transpose(0, 1, 3, 2), self.context // groups
        self._made: dict[tuple[object, ...], Sharding] = {}

    def placed(self, channel: int = 1, reduce: int = 1, copy: int = 1) -> Sharding:
        """A layer cut inside the tensor group, of all that its group of experts has of the sequence."""
        replicas, parts, _, experts = self._members.shape
        split = self._members.reshape(replicas, parts, channel, reduce, copy, experts)
        devices = split.transpose(0, 2, 1, 5, 3, 4)
        return self._sharding("placed", (replicas, channel, parts, experts), devices, reduce, copy)

    def cut_by_sequence(self) -> Sharding:
        """A layer of which each device has its own part of the sequence, and of its tensor rank's tokens of others."""
        replicas, parts, tensor, experts = self._members.shape
        devices = np.repeat(self._members, self._parts, axis=1)
        return self._sharding("cut", (replicas, 1, parts * self._parts * tensor, experts), devices)

    def everywhere(self) -> Sharding:
        """A layer that every device of a replica computes."""
        return self._sharding("everywhere", (self.replicas, 1, 1, 1), self._members, copy=self.context * self.tensor)

    def copied(self) -> Sharding:
        """A layer which every rank of the tensor group computes, in parts like `cut_by_sequence`."""
        replicas, parts, tensor, experts = self._members.shape
        devices = np.repeat(self._members, self._parts, axis=1).transpose(0, 1, 3, 2)
        return self._sharding("copied", (replicas, 1, parts * self._parts, experts), devices, copy=tensor)

    def _sharding(
        self, way: str, degrees: tuple[int, int, int, int], devices: Devices, reduce: int = 1, copy: int = 1
    ) -> Sharding:
        key = way, degrees, reduce, copy
        if key not in self._made:
            numbers = tuple(devices.ravel().tolist())
            self._made[key] = Sharding(degrees=degrees, reduce=reduce, copy=copy, devices=numbers)
        return self._made[key]


def _sharding(profile: Profile, layer: Layer, grid: _Grid, cut: dict[str, bool], sequence_parallel: bool) -> Sharding:
    """Where `layer` stands on the devices of a grid. cut: which layers are cut by channels."""
    context, tensor = grid.context, grid.tensor
    reads_parts = bool(layer.inputs) and all(cut[name] for name in layer.inputs)
    linear = layer.geometry.mixes_channels and layer.sums_inputs and not _is_router(profile, layer)
    cut[layer.name] = False
    if layer.output_shape[1] < context:  # a loss of one number: every part of the sequence has it
        return grid.everywhere()
    if tensor == 1:
        return grid.placed()
    if linear and (reads_parts or not layer.inputs):
        return grid.placed(reduce=tensor)
    if (linear or reads_parts) and layer.channels >= tensor:
        cut[layer.name] = True
        parts = _channel_parts(profile, layer, tensor)
        return grid.placed(channel=parts, copy=tensor // parts)
    if sequence_parallel and layer.output_shape[1] >= context * tensor:
        return grid.cut_by_sequence()
    return grid.copied()


def _is_router(profile: Profile, layer: Layer) -> bool:
    """Whether a layer says which experts tokens go to, which every device does for its own tokens."""
    readers = profile.consumers[profile.index[layer.name]]
    return not layer.routing and any(profile.layers[reader].routing for reader in readers)


def _channel_parts(profile: Profile, layer: Layer, tensor: int) -> int:
    """Into how many parts of whole heads a layer is cut: keys and values of fewer heads than devices are copied.

    Raises InputError where a device would get a part of a head, as the runtimes do.
    """
    readers = [profile.layers[i] for i in profile.consumers[profile.index[layer.name]]]
    heads = {
        reader.name: reader.geometry.groups
        for reader in readers
        if reader.geometry.kernel is None
        and (reader.geometry.groups > 1 or reader.geometry.aligned_inputs)  # several heads of queries, one of keys
        and layer.name not in reader.geometry.aligned_inputs
    }
    parts = min([tensor, *heads.values()])
    for reader in (reader for reader in readers if reader.name in heads):
        keys, queries = heads[reader.name], query_heads(profile, reader)
        require(queries % tensor == 0, "tensor", tensor, f"it divides the {queries} heads of {reader.name!r}")
        rule = f"it divides the {keys} heads of keys and values of {reader.name!r}, or is a multiple of them"
        require(tensor % parts == 0 and keys % parts == 0, "tensor", tensor, rule)
    return parts


def choices(profile: Profile, cluster: Cluster, step: StepSettings) -> Iterator[StrategyChoice]:
    """Every grid, with all that replicas may share."""
    yield from grid_choices("megatron", profile, cluster, step)
