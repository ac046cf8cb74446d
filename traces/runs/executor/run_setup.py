"""Everything about a run that all ranks agree on beforehand: the plan's tasks, the network, what reads what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_arg

from simulator import collectives
from simulator.cluster import Cluster
from simulator.engine import simulate
from simulator.errors import InputError, require
from simulator.lowering import schedules
from simulator.lowering.exchange.shard_regions import Interval, reads
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower
from simulator.plan import Plan
from simulator.runtime import IDEAL, Runtime
from simulator.taskgraph import Ints, Kind, TaskGraph
from simulator.timeline import Timeline
from simulator.workload import Layer, Profile
from traces.capture.fx_steps import Loss, TracedStep, Trained, trace
from traces.capture.layer_survey import shape_of
from traces.capture.momentum_sgd import LEARNING_RATE, MOMENTUM
from traces.runs.executor.edge_moves import EdgeMoves, Phase, TaskMove, edges_of, task_moves
from traces.zoo.networks import Network
from traces.zoo.own_network import draw

ALL_REDUCE = "ring"
"""The collective that the backend's own all-reduce counts as."""
DATA = "the training data"


def _not_executed(profile: Profile, plan: Plan) -> Iterator[str]:
    """What of a plan is simulated only."""
    if plan.states.gradient_dtype not in ("", profile.dtype):
        yield f"gradients summed in {plan.states.gradient_dtype}"
    if plan.received_again:
        yield f"outputs received again ({', '.join(plan.received_again)})"
    if plan.work:
        yield "samples of unequal work, where it trains samples that are alike"
    stashes = f"schedule {plan.schedule!r}, which stashes weights" * schedules.load(plan.schedule).stashes_weights
    if stashes and (plan.states.stage or plan.synchronisation.collective != ALL_REDUCE):
        yield f"{stashes}, and states that are shared out or on servers"
    for layer in profile.layers:
        if layer.tied_to and stashes:
            yield f"{stashes}, and layer {layer.name!r}, tied to {', '.join(layer.tied_to)}"
        if layer.tied_to and plan.states.stage == 3:
            yield f"states shared out (stage 3) and layer {layer.name!r}, tied to {', '.join(layer.tied_to)}"
        if layer.routing:
            yield f"layer {layer.name!r}, a mixture of experts"


@dataclass(frozen=True, kw_only=True)
class Script:
    """A plan to run for real: `network` of `profile` on `cluster`, updated by SGD with momentum.

    dtype: of parameters and data, as torch names it. steady: batch norm keeps its running statistics and dropout is
    off, so that the result does not depend on how the batch is split; otherwise batch norm takes the statistics of each
    shard, as under DDP. Parameters are drawn from `seed`, alike on all ranks. Raises InputError when the plan cannot
    run for real.
    """

    profile: Profile
    cluster: Cluster
    plan: Plan
    network: Network
    runtime: Runtime = IDEAL
    dtype: str = "float32"
    seed: int = 0
    steady: bool = False
    learning_rate: float = LEARNING_RATE
    momentum: float = MOMENTUM

    def __post_init__(self) -> None:
        settings = self.plan.synchronisation
        served = [name for name in collectives.names() if collectives.load(name).updates_on_server]
        rule = f"one of {', '.join([ALL_REDUCE, *served])} can run"
        require(settings.collective in (ALL_REDUCE, *served), "sync", settings.collective, rule)
        plain = not settings.half_precision and settings.compression_ratio == 1 and not settings.compression_s_per_byte
        require(plain, "synchronisation", "compressed", "only whole gradients are sent for real")
        require(not settings.broadcast_bytes, "broadcast_bytes", settings.broadcast_bytes, "the executor sends none")
        for what in _not_executed(self.profile, self.plan):
            raise InputError(f"plan: it has {what}, which the executor does not run; simulate it, or leave that out")

    @cached_property
    def graph(self) -> TaskGraph:
        """The tasks of one step."""
        return lower(self.sharded, self.cluster, self.runtime)

    @cached_property
    def predicted(self) -> Timeline:
        """When they run according to the simulator."""
        return simulate(self.graph, self.cluster, self.runtime)

    @cached_property
    def sharded(self) -> ShardedModel:
        return ShardedModel(self.profile, self.plan)

    @cached_property
    def weights_apart(self) -> set[int]:
        """The layers whose parameter gradients are tasks of their own."""
        return set(self.graph.layer[self.graph.kind == Kind.WEIGHT].tolist())

    @cached_property
    def needs_gradient(self) -> list[bool]:
        """Whether the gradient of a layer's output is needed: it, or a layer before it, has parameters."""
        needed: dict[str, bool] = {}
        for layer in self.profile.layers:
            needed[layer.name] = layer.parameter_bytes > 0 or any(needed[name] for name in layer.inputs)
        return list(needed.values())

    @cached_property
    def edges(self) -> Mapping[tuple[int, Phase], EdgeMoves]:
        """What moves of every layer's output, and of its gradient."""
        return edges_of(self.sharded)

    @cached_property
    def moves(self) -> Mapping[int, TaskMove]:
        """By task, what every activation and gradient carries."""
        return task_moves(self.graph, self.edges)

    def read(self, position: int, producer: str) -> list[list[Interval]]:
        """For each of the intervals whose product are the layer's shards, what it needs of a producer, or of the data.

        Along channel, what the parts by reduce need stands in turn for each interval; tokens are needed by all.
        """
        layer, reduce = self.profile.layers[position], self.sharded.placements[position].reduce
        parts = 1 if producer == DATA and self.network.vocabulary is not None else reduce
        own = self.sharded.intervals(position)
        sample, channel, *plane = reads(self.profile, layer, self.producer(producer), own, parts)
        if parts < reduce:
            channel = [interval for interval in channel for _ in range(reduce)]
        rule = f"layer {layer.name!r} is split {reduce} ways by reduce, each of which reads a channel"
        require(parts == 1 or all(low < high for low, high in channel), producer, f"{len(channel)} parts", rule)
        return [sample, channel, *plane]

    def producer(self, name: str) -> Layer:
        """A layer by name, or the training data as if a layer had made it."""
        return self._data_layer if name == DATA else self.profile.layers[self.profile.index[name]]

    @cached_property
    def _data_layer(self) -> Layer:
        shape, words = self.network.input_shape, self.network.vocabulary is not None
        if words or len(shape) == 2:  # a sequence: its length is its height
            sides = (1 if words else shape[1], shape[0], 1)
        else:
            channels, height, width = (*shape, 1, 1)[:3]
            sides = (channels, height, width)
        return Layer(
            name=DATA, kind="data", output_shape=sides, forward_s=0.0, backward_s=0.0, output_bytes=4 * prod(shape)
        )

    def build(self) -> TracedLayers:
        """The network with its parameters drawn, step by step. Raises InputError where the profile is another's."""
        trained = Trained(self.network.built(self.seed).to(getattr(torch, self.dtype)))
        steps = trace(trained)
        dimensions = self._dimensions(trained, steps)
        for module in trained.modules():
            if self.steady and isinstance(module, (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)):
                module.eval()
        return TracedLayers(
            by_name={step.name: step for step in steps if step.name in self.profile.index},
            placeholder=steps[0].node.graph.find_nodes(op="placeholder")[0],
            dimensions=dimensions,
            shared_with=_ties(self.profile, steps),
        )

    @torch.no_grad()
    def _dimensions(self, trained: Trained, steps: Sequence[TracedStep]) -> dict[str, int]:
        """How many dimensions each layer's output has, from one sample. Raises InputError where shapes differ from the
        profile's."""
        trained.eval()
        data = draw(self.network, 1, torch.device("cpu"), getattr(torch, self.dtype))
        values: dict[fx.Node, Any] = {steps[0].node.graph.find_nodes(op="placeholder")[0]: data}
        dimensions: dict[str, int] = {}
        for step in steps:
            if isinstance(step.module, Loss):
                dimensions[step.name] = 0
                continue
            args, kwargs = map_arg((step.node.args, step.node.kwargs), values.__getitem__)
            values[step.node] = result = step.call(*args, **kwargs)
            if step.name in self.profile.index:
                if not isinstance(result, Tensor) or result.dim() > 4:
                    made = "volumes" if isinstance(result, Tensor) else "several tensors"
                    raise InputError(f"layer {step.name!r} makes {made}: our executor passes on one sequence or plane")
                shape, expected = shape_of(result), self.producer(step.name).output_shape
                require(shape == expected, f"layer {step.name!r}", shape, f"the profile says {expected}; capture again")
                dimensions[step.name] = result.dim()
        missing = [name for name in self.profile.index if name not in dimensions]
        if missing:
            raise InputError(
                f"profile {self.profile.model!r}: the network has no layer {missing[0]!r}; capture it again"
            )
        trained.train()
        return dimensions


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedLayers:
    """A network's layers ready to be run: steps by name, the graph's node of the data, dimensions of each output.

    shared_with: by (layer, parameter) of a later user, those of the first user of the same parameter.
    """

    by_name: Mapping[str, TracedStep]
    placeholder: fx.Node
    dimensions: Mapping[str, int]
    shared_with: Mapping[tuple[str, str], tuple[str, str]]


def _ties(profile: Profile, steps: Sequence[TracedStep]) -> dict[tuple[str, str], tuple[str, str]]:
    """By (layer, parameter) those of the first user; raises InputError where the profile does not know of it."""
    owner: dict[nn.Parameter, tuple[str, str]] = {}
    ties: dict[tuple[str, str], tuple[str, str]] = {}
    for step in steps:
        for name, parameter in step.module.named_parameters() if step.module is not None else ():
            first = owner.setdefault(parameter, (step.name, name))
            if first[0] == step.name:
                continue
            if first[0] not in profile.layers[profile.index[step.name]].tied_to:
                raise InputError(
                    f"profile {profile.model!r}: layers {first[0]!r} and {step.name!r} share a parameter, which it "
                    "does not say; capture it again"
                )
            ties[step.name, name] = first
    return ties


def in_order(graph: TaskGraph, timeline: Timeline) -> Ints:
    """All tasks, (tasks,), in the order of their starts; among those of no duration, predecessors come first."""
    return np.lexsort((_depths(graph), timeline.end_s, timeline.start_s))


def _depths(graph: TaskGraph) -> Ints:
    """The length of the longest chain of dependencies before each task."""
    depth = np.zeros(len(graph), dtype=np.int64)
    for task, waited in graph.waits_first():
        depth[task] = max((depth[other] + 1 for other in waited), default=0)
    return depth
