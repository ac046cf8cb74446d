"""PipeDream's pipeline: no flush, so every stage updates its own weights after each backward pass.

A mini-batch runs its backward pass with the weights of its forward pass, of which a stage stashes one version for
each mini-batch in flight (Narayanan et al., SOSP 2019, section 3.3). A plan's micro-batches are the mini-batches.
"""

from __future__ import annotations

import numpy as np

from simulator.cluster import Cluster
from simulator.errors import InputError
from simulator.lowering.graph_builder import GraphBuilder
from simulator.lowering.sharded_model import ShardedModel
from simulator.taskgraph import Floats, Kind


def add_updates(builder: GraphBuilder, model: ShardedModel, cluster: Cluster) -> dict[int, int]:
    """Append each device's update after one mini-batch; by device. Raises InputError for a replicated stage."""
    for layer, placement in zip(model.profile.layers, model.placements, strict=True):
        devices = placement.device_set
        if len(devices) > 1:
            raise InputError(
                f"schedule {model.schedule.name!r} takes stages of one device each, but layer {layer.name!r} is on "
                f"{devices}; use schedule '1f1b'"
            )
    return {
        device: int(builder.add(Kind.UPDATE, 1, device=device, seconds=seconds / cluster.speeds[device])[0])
        for device, seconds in model.local_update_s.items()
    }


def stashed_bytes(model: ShardedModel, cluster: Cluster) -> Floats:
    """Bytes, shape (devices,), of weight versions beyond the current: one for each further mini-batch in flight."""
    held = np.zeros(len(cluster.devices))
    for stage, layers in enumerate(model.stages):
        device = model.placements[layers[0]].devices[0]
        versions = min(len(model.stages) - stage, model.plan.microbatches)
        held[device] = (versions - 1) * sum(model.layer(layer).parameter_bytes for layer in layers)
    return held
