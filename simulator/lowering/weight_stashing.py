"""PipeDream's pipeline: no flush, so every stage updates its own weights after each backward pass.

A mini-batch runs its backward pass with the weights of its forward pass, of which a stage stashes one version for
each mini-batch in flight (Narayanan et al., SOSP 2019, section 3.3). A plan's micro-batches are the mini-batches.
"""

from __future__ import annotations

import numpy as np

from simulator.cluster import Cluster
from simulator.errors import InputError
from simulator.lowering.gradients import local_updates
from simulator.lowering.graph_builder import GraphBuilder
from simulator.lowering.schedules import stages
from simulator.plan import Plan
from simulator.taskgraph import Floats, Kind
from simulator.workload import Profile


def add_updates(builder: GraphBuilder, profile: Profile, cluster: Cluster, plan: Plan) -> dict[int, int]:
    """Append each device's update after one mini-batch; by device. Raises InputError for a replicated stage."""
    for layer in profile.layers:
        devices = plan.placements[layer.name].device_set
        if len(devices) > 1:
            raise InputError(
                f"schedule {plan.schedule!r} takes stages of one device each, but layer {layer.name!r} is on "
                f"{devices}; use schedule '1f1b'"
            )
    return {
        device: int(builder.add(Kind.UPDATE, 1, device=device, seconds=seconds / cluster.speeds[device])[0])
        for device, seconds in local_updates(profile, plan).items()
    }


def stashed_bytes(profile: Profile, cluster: Cluster, plan: Plan) -> Floats:
    """Per device, the weight versions beyond the current one: one for each further mini-batch in flight."""
    held = np.zeros(len(cluster.devices))
    found = stages(profile, plan)
    for place, layers in enumerate(found):
        device = plan.placements[profile.layers[layers[0]].name].devices[0]
        versions = min(len(found) - place, plan.microbatches)
        held[device] = (versions - 1) * sum(profile.layers[layer].parameter_bytes for layer in layers)
    return held
