"""PipeDream's pipeline: no flush, so every stage updates its own weights after each backward pass.

A mini-batch runs its backward pass with the weights of its forward pass, of which a stage stashes one version for
each mini-batch in flight (Narayanan et al., SOSP 2019, section 3.3). Replicas of a stage sum their gradients after
every mini-batch first. A plan's micro-batches are the mini-batches; of PipeDream-2BW (ICML 2021) as many of them as
there are stages, and of its weights a stage has two versions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulator.cluster import Cluster
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.tasks.graph_builder import GraphBuilder
from simulator.lowering.tasks.passes import Passes
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
    """Append the updates of replicated stages, and all of PipeDream-2BW, each after its mini-batch's gradient is there.

    The forward pass that is as many mini-batches later as there are versions waits for it. starts: the first task of
    each micro-batch; delivered: for each, (task that ends a sum, devices that then hold the result).
    """
    each = len(starts) // len(delivered)
    for stage, devices in enumerate(_stage_devices(model)):
        if len(devices) == 1 and not model.schedule.double_buffered:
            continue
        versions = weight_versions(model, stage)
        forward = np.concatenate([passes.forward(layer) for layer in model.stages[stage]])
        for minibatch, ends in enumerate(delivered):
            microbatches = slice(minibatch * each, (minibatch + 1) * each)
            waiting = (minibatch + versions) * each
            for device in devices:
                if device not in model.local_update_s:
                    continue
                seconds = model.local_update_s[device] / cluster.speeds[device]
                last = microbatches.stop - 1
                update = builder.add(Kind.UPDATE, 1, device=device, seconds=seconds, microbatch=last)
                builder.depend(update, [task for task, holders in ends if device in holders])
                own = forward[passes.device[forward] == device]
                builder.depend(update, np.add.outer(starts[microbatches], passes.last[own]).ravel())
                if waiting < len(starts):
                    builder.depend(own + starts[waiting], update)


def stashed_bytes(model: ShardedModel, cluster: Cluster) -> Floats:
    """Bytes, shape (devices,), of weight versions beyond the current: one for each further mini-batch in flight."""
    held = np.zeros(len(cluster.devices))
    for stage, devices in enumerate(_stage_devices(model)):
        layers = sum(model.layer(layer).parameter_bytes for layer in model.stages[stage])
        held[list(devices)] = (weight_versions(model, stage) - 1) * layers
    return held


def _stage_devices(model: ShardedModel) -> list[tuple[int, ...]]:
    return [model.placements[layers[0]].device_set for layers in model.stages]


def weight_versions(model: ShardedModel, stage: int) -> int:
    """How many versions of its weights a stage has: one for each mini-batch in flight, two in PipeDream-2BW."""
    if model.schedule.double_buffered:
        return min(2, model.sums_per_step)
    return min(len(model.stages) - stage, model.plan.microbatches)
