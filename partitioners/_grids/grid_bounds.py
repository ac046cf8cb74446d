"""What no simulation of a grid is faster, or needs less memory, than.

A device runs the passes of its micro-batches one after the other, and in a pass each task waits for what the one
before it made: a stage of n blocks takes n times what a block adds to the pass of a micro-batch that is alone on the
devices (`block_passes`). Of the chunks of the network that go round the devices, device s begins with chunk s when the
first micro-batch has come through those before it, and ends before its last one goes back through them:

    step >= sum over chunks before s of (forward + backward) + micro-batches x (forward + backward of all of s's), all s

and the host launches every task of every micro-batch, and links carry what replicas share (`link_bounds`). What a
device holds from start to end, and the activations of what 1F1B, interleaved or not, keeps in flight, are the least of
its peak. Blocks that differ, as the dense ones of a mixture of experts do, are bounded by kind.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, pairwise
from operator import add

import numpy as np

from partitioners._grids.block_passes import FEW, NO_LAUNCHES, PassSeconds, computed_passes, simulated_passes
from partitioners._grids.grid_plan import grid_plan
from partitioners._grids.link_bounds import least_link_s
from partitioners._grids.repeated_block import block_number, repeated_block
from partitioners._stages.block_layout import is_attention, pipeline_stages, separable_units
from simulator.cluster import Cluster
from simulator.language_models.training_grid import TrainingGrid
from simulator.language_models.training_stack import TrainingStack
from simulator.lowering.schedules import round_length
from simulator.network.topologies import take
from simulator.plan import OPTIMIZERS
from simulator.sweep.bounds import ROUNDING, Bound
from simulator.workload import Layer, Profile


class GridBounds:
    """Bounds of the grids of one card on one cluster. What grids share is worked out once."""

    def __init__(self, profile: Profile, cluster: Cluster, stack: TrainingStack) -> None:
        self._profile, self._cluster, self._stack = profile, cluster, stack
        self._passes: dict[tuple[TrainingGrid, int, bool], PassSeconds] = {}
        self._blocks: dict[tuple[int, str], list[list[int]]] = {}
        self._repeated: dict[int, Profile] = {}

    def bound(self, grid: TrainingGrid, *, simulated: bool = True) -> Bound:
        """Of `grid`. simulated: otherwise a block takes its compute, and holds what that makes, alone, which is known
        sooner. Raises InputError where no plan has it."""
        kinds, chunks = range(len(self._first_of_kind)), self._of_stages(grid)
        passes = [self._of_passes(grid, kind, simulated) for kind in kinds]
        block_bytes, before_bytes, behind_bytes = self._state_bytes(grid)

        def by_chunk(of_kind: Sequence[float]) -> list[float]:
            return [sum(count * each for count, each in zip(counts, of_kind, strict=True)) for counts in chunks]

        def by_device(of_chunk: Sequence[float]) -> list[float]:
            return [sum(of_chunk[device :: grid.pipeline]) for device in range(grid.pipeline)]

        stages_s = by_chunk([each.block_s for each in passes])
        stages_s[0] += passes[0].before_s
        stages_s[-1] += passes[0].behind_s
        before_s = accumulate([0.0, *stages_s[: grid.pipeline - 1]])
        devices_s = by_device(stages_s)
        passes_s = max(fill + grid.accumulation * each_s for fill, each_s in zip(before_s, devices_s, strict=True))
        launches_s = grid.accumulation * max(by_device(by_chunk(self._block_launches_s)))
        saved, held = by_chunk([each.saved_bytes for each in passes]), by_device(by_chunk(block_bytes))
        busy = [*map(any, chunks[:-1]), True]  # the last stage by what follows the blocks
        peaks = [
            held[device] + self._saved_in_flight(grid, busy[device + 1 :], saved[device :: grid.pipeline])
            for device in range(grid.pipeline)
        ]
        recomputed = min(each.recomputed_bytes for each in passes)
        working = [
            recomputed if any(map(sum, chunks[device :: grid.pipeline])) else 0.0 for device in range(len(peaks))
        ]
        working[-1] = behind_bytes + max(working[-1], passes[0].behind_bytes)
        working[0] += before_bytes
        states = self._stack.states(grid.zero_stage)
        links_s = least_link_s(grid, states, self._cluster, self._dense_bytes, self._routed_bytes)
        return Bound(
            step_s=(max(passes_s, launches_s, links_s) + self._stack.runtime.step_overhead_s) * (1 - ROUNDING),
            peak_bytes=max(map(add, peaks, working)) * (1 - ROUNDING) + self._stack.runtime.context_bytes,
        )

    def _saved_in_flight(self, grid: TrainingGrid, behind: Sequence[bool], chunks: Sequence[float]) -> float:
        """Bytes of activations that a device holds as its first backward pass begins; behind: of the stages that follow
        it whether they have layers; chunks: bytes of one micro-batch in each of its chunks."""
        if grid.chunks == 1:
            return chunks[0] * min(grid.accumulation, sum(behind) + 1)
        if not all(behind):  # fewer go round; that of one micro-batch is there
            return max(chunks)
        round_of, devices_behind = round_length(grid.pipeline, grid.accumulation), len(behind) % grid.pipeline
        warm = min((grid.chunks - 1) * round_of + 2 * devices_behind, grid.accumulation * grid.chunks - 1)
        return sum(chunks[count // round_of % grid.chunks] for count in range(warm + 1))

    def _state_bytes(self, grid: TrainingGrid) -> tuple[list[float], float, float]:
        """Of parameters with their gradients and optimizer state on a device that shares all that it can: of a block,
        by kind, of what stands before the blocks and of what stands behind them."""
        stack, owners = self._stack, grid.shard_group or grid.replicas
        states = stack.states(grid.zero_stage)
        copied = stack.runtime.bucket_copies and states.stage < 2

        def held(replicas: int, owners: int) -> float:
            part = [1 / owners if states.stage >= stage else 1.0 for stage in (3, 2, 1)]
            kept = part[0] + part[1] * states.gradient_ratio(self._profile.dtype)
            return kept + part[2] * OPTIMIZERS[stack.optimizer] + (copied and replicas > 1)

        dense, blocks = held(grid.replicas, owners) / grid.tensor, self._first_of_kind
        ranks = grid.expert_ranks
        routed = held(grid.replicas * grid.tensor // ranks, max(1, owners * grid.tensor // ranks)) / ranks
        of_blocks = [dense * (size - experts) + routed * experts for size, experts in map(self._parameters_of, blocks)]
        before, behind = (sum(layer.parameter_bytes for layer in part) for part in self._around_blocks)
        tied = grid.pipeline > 1 and any(layer.tied_to for layer in self._profile.layers)  # users on two stages
        ends = held(grid.replicas, owners * (1 + tied)) / grid.tensor
        return of_blocks, ends * before, ends * behind

    @cached_property
    def _routed_bytes(self) -> int:
        """Of the parameters of all experts."""
        return sum(layer.parameter_bytes for layer in self._profile.layers if layer.routing)

    @cached_property
    def _dense_bytes(self) -> int:
        return self._profile.parameter_bytes - self._routed_bytes

    def _parameters_of(self, block: int) -> tuple[int, int]:
        """Bytes of all parameters of a block, and of its experts."""
        layers = self._layers_of[block]
        return (
            sum(layer.parameter_bytes for layer in layers),
            sum(layer.parameter_bytes for layer in layers if layer.routing),
        )

    @cached_property
    def _layers_of(self) -> Mapping[int, list[Layer]]:
        """By block."""
        layers: dict[int, list[Layer]] = {}
        for layer in self._profile.layers:
            layers.setdefault(block_number(layer.name), []).append(layer)
        return layers

    @cached_property
    def _around_blocks(self) -> tuple[list[Layer], list[Layer]]:
        """Layers before the blocks and behind them."""
        layers, ends = self._profile.layers, self._profile.index["norm"]
        before, behind = (
            [each for each in part if block_number(each.name) < 0] for part in (layers[:ends], layers[ends:])
        )
        return before, behind

    @cached_property
    def _kind_of_blocks(self) -> list[int]:
        """The kind of each block: those whose layers have the same costs are of one."""
        costs: dict[int, list[Hashable]] = {}
        for layer in self._profile.layers:
            if (block := block_number(layer.name)) >= 0:
                seconds = layer.forward_s, layer.backward_s
                sizes = layer.parameter_bytes, layer.output_bytes, layer.saved_bytes, layer.working_bytes
                costs.setdefault(block, []).append((layer.output_shape, seconds, sizes, layer.routing))
        numbers: dict[Hashable, int] = {}
        return [numbers.setdefault(tuple(costs[block]), len(numbers)) for block in sorted(costs)]

    @cached_property
    def _first_of_kind(self) -> list[int]:
        """A block of each kind."""
        kinds = self._kind_of_blocks
        return [kinds.index(kind) for kind in range(max(kinds) + 1)]

    @cached_property
    def _block_launches_s(self) -> list[float]:
        """Of a block and micro-batch, by kind."""
        layer_s = self._stack.runtime.forward_launch_s + self._stack.runtime.backward_launch_s
        return [len(self._layers_of[block]) * layer_s for block in self._first_of_kind]

    def _of_stages(self, grid: TrainingGrid) -> list[list[int]]:
        """How many blocks of each kind each chunk has."""
        stages, layout = grid.pipeline * grid.chunks, grid.layout or self._stack.runtime.stage_layout
        if (stages, layout) not in self._blocks:
            units, kinds = separable_units(self._profile), self._kind_of_blocks
            starts = np.array([any(is_attention(self._profile.layers[i]) for i in unit) for unit in units])
            runs = pipeline_stages(self._profile, units, stages, layout) if stages > 1 else [range(len(units))]
            ends = [0, *accumulate(int(starts[run.start : run.stop].sum()) for run in runs)]
            self._blocks[stages, layout] = [
                [kinds[begin:end].count(kind) for kind in range(max(kinds) + 1)] for begin, end in pairwise(ends)
            ]
        return self._blocks[stages, layout]

    def _of_passes(self, grid: TrainingGrid, kind: int, simulated: bool) -> PassSeconds:
        """By what a pass depends on: how a micro-batch is split, and whether it is computed again."""
        expert = grid.expert if any(layer.routing for layer in self._layers_of[self._first_of_kind[kind]]) else 1
        data = max(1, expert // grid.expert_parts)
        alone = replace(
            grid, pipeline=1, data=data, accumulation=1, zero_stage=0, chunks=1, layout="", shard_group=0, expert=expert
        )
        key = alone, kind, simulated
        if key not in self._passes:
            if kind not in self._repeated:  # one profile for all grids, with which what plans cost is kept
                self._repeated[kind] = repeated_block(self._profile, self._first_of_kind[kind], FEW)
            profile, cluster = self._repeated[kind], take(self._cluster, alone.devices)
            stack = replace(self._stack, runtime=replace(self._stack.runtime, **NO_LAUNCHES))
            plan = grid_plan(alone, profile, cluster, stack)
            self._passes[key] = (
                simulated_passes(self._of_passes(grid, kind, False), profile, cluster, plan, stack.runtime)
                if simulated
                else computed_passes(profile, plan, whole=alone.recomputation == "full")
            )
        return self._passes[key]
