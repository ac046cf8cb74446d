"""PipeDream's pipeline: no flush, so every stage updates its own weights after each backward pass.

A mini-batch runs its backward pass with the weights of its forward pass, of which a stage stashes one version for
each mini-batch in flight (Narayanan et al., SOSP 2019, section 3.3). Replicas of a stage sum their gradients after
every mini-batch first. A plan's micro-batches are the mini-batches.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulator.cluster import Cluster
from simulator.lowering.graph_builder import GraphBuilder
from simulator.lowering.passes import Passes
from simulator.lowering.sharded_model import ShardedModel
from simulator.taskgraph import Floats, Ints, Kind


def add_updates(builder: GraphBuilder, model: ShardedModel, cluster: Cluster) -> dict[int, int]:
    """Append each device's update after one mini-batch; by device. Replicas of a stage have theirs elsewhere."""
    alone = {device for devices in _stage_devices(model) if len(devices) == 1 for device in devices}
    return {
        device: int(builder.add(Kind.UPDATE, 1, device=device, seconds=seconds / cluster.speeds[device])[0])
        for device, seconds in model.local_update_s.items()
        if device in alone
    }


def add_replica_updates(
    builder: GraphBuilder,
    model: ShardedModel,
    cluster: Cluster,
    passes: Passes,
    starts: Ints,
    delivered: Sequence[Sequence[tuple[int, tuple[int, ...]]]],
) -> None:
    """Append the updates of replicated stages, each after its mini-batch's gradient was summed over the replicas.

    The forward pass that is as many mini-batches later as there are versions waits for it. starts: the first task of
    each mini-batch; delivered: for each, (task that ends a sum, devices that then hold the result).
    """
    for stage, devices in enumerate(_stage_devices(model)):
        if len(devices) == 1:
            continue
        versions = _versions(model, stage)
        forward = np.concatenate([passes.forward(layer) for layer in model.stages[stage]])
        for microbatch, ends in enumerate(delivered):
            for device in devices:
                if device not in model.local_update_s:
                    continue
                seconds = model.local_update_s[device] / cluster.speeds[device]
                update = builder.add(Kind.UPDATE, 1, device=device, seconds=seconds, microbatch=microbatch)
                builder.depend(update, [task for task, holders in ends if device in holders])
                own = forward[passes.device[forward] == device]
                builder.depend(update, passes.last[own] + starts[microbatch])
                if microbatch + versions < len(starts):
                    builder.depend(own + starts[microbatch + versions], update)


def stashed_bytes(model: ShardedModel, cluster: Cluster) -> Floats:
    """Bytes, shape (devices,), of weight versions beyond the current: one for each further mini-batch in flight."""
    held = np.zeros(len(cluster.devices))
    for stage, devices in enumerate(_stage_devices(model)):
        layers = sum(model.layer(layer).parameter_bytes for layer in model.stages[stage])
        held[list(devices)] = (_versions(model, stage) - 1) * layers
    return held


def _stage_devices(model: ShardedModel) -> list[tuple[int, ...]]:
    return [model.placements[layers[0]].device_set for layers in model.stages]


def _versions(model: ShardedModel, stage: int) -> int:
    """How many versions of its weights a stage has: one for each mini-batch in flight."""
    return min(len(model.stages) - stage, model.plan.microbatches)
