"""What no simulation of a grid is faster, or needs less memory, than.

A device runs the passes of its micro-batches one after the other, and in a pass each task waits for what the one
before it made: a stage of n blocks takes n times what a block adds to the pass of a micro-batch that is alone on the
devices, which a network of two blocks and one of a single block tell apart, without parameters, so that nothing is
summed or updated. Of the chunks of the network that go round the devices, device s begins with chunk s when the first
micro-batch has come through those before it, and ends before its last one goes back through them:

    step >= sum over chunks before s of (forward + backward) + micro-batches x (forward + backward of all of s's), all s

and the host launches every task of every micro-batch. What a device holds from start to end, and the activations of
what 1F1B, interleaved or not, keeps in flight, are the least of its peak.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np

from partitioners._grids.grid_plan import grid_plan
from partitioners._stages.block_layout import is_attention, pipeline_stages, separable_units
from simulator.cluster import Cluster
from simulator.language_models.model_card import ModelCard
from simulator.language_models.training_grid import TrainingGrid
from simulator.language_models.training_stack import TrainingStack
from simulator.lowering.schedules import round_length
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.tasks.passes import pass_columns
from simulator.network.topologies import take
from simulator.ordered_sum import ordered_sum
from simulator.plan import OPTIMIZERS, Plan
from simulator.run import step_report
from simulator.sweep.bounds import ROUNDING, Bound
from simulator.workload import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class PassSeconds:
    """Of one micro-batch on one device, forward and backward: seconds that a block adds, of what stands before the
    blocks and of what stands behind them; bytes that a block keeps from one to the other, and what stands behind the
    blocks keeps and works in as the loss goes back."""

    block_s: float
    before_s: float
    behind_s: float
    saved_bytes: float
    behind_bytes: float


class GridBounds:
    """Bounds of the grids of one card on one cluster. What grids share is worked out once."""

    def __init__(self, card: ModelCard, profile: Profile, cluster: Cluster, stack: TrainingStack) -> None:
        self._card, self._profile, self._cluster, self._stack = card, profile, cluster, stack
        self._passes: dict[tuple[TrainingGrid, bool], PassSeconds] = {}
        self._blocks: dict[tuple[int, str], list[int]] = {}

    def bound(self, grid: TrainingGrid, *, simulated: bool = True) -> Bound:
        """Of `grid`. simulated: otherwise a block adds its compute alone, which is known sooner and bounds no memory
        otherwise. Raises InputError where no plan has it."""
        passes, blocks = self._of_passes(grid, simulated), self._of_stages(grid)
        last = len(blocks) - 1
        stages_s = [
            count * passes.block_s + passes.before_s * (stage == 0) + passes.behind_s * (stage == last)
            for stage, count in enumerate(blocks)
        ]
        devices_s = [sum(stages_s[device :: grid.pipeline]) for device in range(grid.pipeline)]
        before_s = accumulate([0.0, *stages_s[: grid.pipeline - 1]])
        passes_s = max(fill + grid.accumulation * each_s for fill, each_s in zip(before_s, devices_s, strict=True))
        counts = [sum(blocks[device :: grid.pipeline]) for device in range(grid.pipeline)]
        launches_s = grid.accumulation * max(counts) * self._block_launches_s
        block_bytes, before_bytes, behind_bytes = self._state_bytes(grid)
        peaks = (
            count * block_bytes
            + passes.saved_bytes * self._blocks_in_flight(grid, device, blocks[device :: grid.pipeline])
            + before_bytes * (device == 0)
            + (behind_bytes + passes.behind_bytes) * (device == grid.pipeline - 1)
            for device, count in enumerate(counts)
        )
        return Bound(
            step_s=(max(passes_s, launches_s) + self._stack.runtime.step_overhead_s) * (1 - ROUNDING),
            peak_bytes=max(peaks) * (1 - ROUNDING) + self._stack.runtime.context_bytes,
        )

    def _blocks_in_flight(self, grid: TrainingGrid, device: int, chunks: Sequence[int]) -> int:
        """Blocks, counted by micro-batch, whose activations a device holds as its first backward pass begins."""
        behind = grid.pipeline - 1 - device
        if grid.chunks == 1:
            return chunks[0] * min(grid.accumulation, behind + 1)
        round_of = round_length(grid.pipeline, grid.accumulation)
        warm = min((grid.chunks - 1) * round_of + 2 * behind, grid.accumulation * grid.chunks - 1)
        return sum(chunks[count // round_of % grid.chunks] for count in range(warm + 1))

    def _state_bytes(self, grid: TrainingGrid) -> tuple[float, float, float]:
        """Of parameters with their gradients and optimizer state on a device that shares all that it can: of a block,
        of what stands before the blocks and of what stands behind them."""
        stack, owners = self._stack, grid.shard_group or grid.replicas
        states = stack.states(grid.zero_stage)
        part = [1 / owners if states.stage >= stage else 1.0 for stage in (3, 2, 1)]
        held = part[0] + part[1] * states.gradient_ratio(self._profile.dtype) + part[2] * OPTIMIZERS[stack.optimizer]
        copied = stack.runtime.bucket_copies and states.stage < 2
        dense, routed, before, behind = (size / grid.tensor for size in self._parameter_bytes)
        replicated = held + (copied and grid.replicas > 1)
        routed *= held + (copied and grid.replicas > grid.expert)
        return dense * replicated + routed / grid.expert, before * replicated, behind * replicated

    @cached_property
    def _parameter_bytes(self) -> tuple[float, float, float, float]:
        """Bytes of parameters: of a block all but the experts, and these, and what stands before and behind blocks."""
        layers, ends = self._profile.layers, self._profile.index["norm"]
        block = [layer for layer in layers if layer.name.startswith("blocks.0.")]
        routed = sum(layer.parameter_bytes for layer in block if layer.routing)
        around = [[layer for layer in part if block_number(layer.name) < 0] for part in (layers[:ends], layers[ends:])]
        before, behind = (sum(layer.parameter_bytes for layer in part) for part in around)
        return sum(layer.parameter_bytes for layer in block) - routed, routed, before, behind

    @cached_property
    def _block_launches_s(self) -> float:
        runtime = self._stack.runtime
        layers = sum(layer.name.startswith("blocks.0.") for layer in self._profile.layers)
        return layers * (runtime.forward_launch_s + runtime.backward_launch_s)

    def _of_stages(self, grid: TrainingGrid) -> list[int]:
        """How many blocks each chunk has."""
        stages, layout = grid.pipeline * grid.chunks, grid.layout or self._stack.runtime.stage_layout
        if (stages, layout) not in self._blocks:
            units = separable_units(self._profile)
            starts = np.array([any(is_attention(self._profile.layers[i]) for i in unit) for unit in units])
            runs = pipeline_stages(self._profile, units, stages, layout) if stages > 1 else [range(len(units))]
            self._blocks[stages, layout] = [int(starts[run.start : run.stop].sum()) for run in runs]
        return self._blocks[stages, layout]

    def _of_passes(self, grid: TrainingGrid, simulated: bool) -> PassSeconds:
        """By what a pass depends on: how a micro-batch is split, and whether it is computed again."""
        data = max(1, grid.expert // grid.context)
        alone = replace(grid, pipeline=1, data=data, accumulation=1, zero_stage=0, chunks=1, layout="", shard_group=0)
        key = alone, simulated
        if key not in self._passes:
            made = self._simulated_passes(alone) if simulated else self._computed_passes(alone)
            self._passes[key] = made
        return self._passes[key]

    def _simulated_passes(self, alone: TrainingGrid) -> PassSeconds:
        """With what two blocks take more than one."""
        cluster = take(self._cluster, alone.devices)
        steps_s = [
            step_report(profile, cluster, plan, runtime=stack.runtime).step_s
            for profile, plan, stack in (self._of_blocks(alone, layers) for layers in (1, 2))
        ]
        return replace(self._of_passes(alone, False), block_s=steps_s[1] - steps_s[0])

    def _of_blocks(self, alone: TrainingGrid, layers: int) -> tuple[Profile, Plan, TrainingStack]:
        """The first blocks as a network of their own, their plan, and the stack without launches."""
        stack = replace(self._stack, runtime=replace(self._stack.runtime, **_NO_LAUNCHES))
        profile = _of_blocks(self._profile, layers)
        return profile, grid_plan(alone, profile, take(self._cluster, alone.devices), stack), stack

    def _computed_passes(self, alone: TrainingGrid) -> PassSeconds:
        """With the seconds that a device computes in a block."""
        profile, plan, _ = self._of_blocks(alone, 1)
        model = ShardedModel(profile, plan)
        columns, ends = pass_columns(model), profile.index["norm"]
        first = np.cumsum([0, *(len(devices) for devices in model.devices)])
        again = {name for segment in plan.recomputed for name in segment}
        block = [i for i, layer in enumerate(profile.layers) if block_number(layer.name) == 0]
        kept = [i for i in block if profile.layers[i].name not in again]

        def total(column: int, positions: Iterable[int]) -> float:
            return ordered_sum(float(columns[column, first[i]]) for i in positions)

        before, behind = (
            [i for i in part if i not in block] for part in (range(ends), range(ends, len(profile.layers)))
        )
        saved = total(2, kept)
        if alone.recomputation == "full":  # a block's input stays, which is the output of the one before
            saved = total(3, [profile.index["blocks.0.add_ffn"]])
        return PassSeconds(
            block_s=2 * total(0, block) - total(0, kept) + total(1, block),
            before_s=total(0, before) + total(1, before),
            behind_s=total(0, behind) + total(1, behind),
            saved_bytes=saved,
            behind_bytes=total(2, behind) + total(4, [profile.index["cross_entropy"]]),
        )


_NO_LAUNCHES: dict[str, Any] = {
    "forward_launch_s": 0.0, "backward_launch_s": 0.0, "collective_check_s": 0.0, "update_launch_s": 0.0,
    "step_overhead_s": 0.0,
}  # fmt: skip


def _of_blocks(profile: Profile, count: int) -> Profile:
    """The first `count` blocks of a card's profile, with what stands before and behind all of them; no parameters."""
    kept = [layer for layer in profile.layers if block_number(layer.name) < count]
    last = profile.layers[profile.index["norm"]].inputs[0].replace(f".{_blocks(profile) - 1}.", f".{count - 1}.")
    layers = tuple(
        replace(
            layer, parameter_bytes=0, update_s=0.0, accumulate_s=0.0, tied_to=(),
            inputs=(last,) if layer.name == "norm" else layer.inputs,
        )
        for layer in kept
    )  # fmt: skip
    return replace(profile, layers=layers)


def _blocks(profile: Profile) -> int:
    return 1 + max(block_number(layer.name) for layer in profile.layers)


def block_number(name: str) -> int:
    """Of a card's layer the number of its block, -1 outside of blocks."""
    return int(name.split(".")[1]) if name.startswith("blocks.") else -1
