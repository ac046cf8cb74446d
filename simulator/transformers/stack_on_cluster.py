"""A training stack on another cluster or GPU than it was calibrated on: line rates and memory in proportion."""

from __future__ import annotations

from dataclasses import replace
from math import log

from simulator.cluster import Cluster
from simulator.errors import InputError
from simulator.transformers.accelerators import ACCELERATORS, accelerator
from simulator.transformers.training_stack import TrainingStack, read_stack, stacks


def nearest_stack(name: str) -> TrainingStack:
    """Of the stacks that ship, that of the GPU whose peak is nearest to that of `name`, by their ratio.

    What software reaches of a peak differs between generations of GPUs, mostly by their power and memory.
    """
    peak = accelerator(name).flops_per_s
    shipped = [read_stack(known) for known in stacks()]
    return min(shipped, key=lambda stack: abs(log(accelerator(stack.accelerator).flops_per_s / peak)))


def on_accelerator(stack: TrainingStack, name: str) -> TrainingStack:
    """`stack` with GPUs called `name`: shares of the peaks stay, limits of memory follow its size."""
    ratio = accelerator(name).memory_bytes / accelerator(stack.accelerator).memory_bytes
    constants = stack.constants
    scaled = replace(
        constants,
        border_bytes=constants.border_bytes * ratio,
        reclaimed_bytes=constants.reclaimed_bytes * ratio,
    )
    return replace(stack, accelerator=name, constants=scaled)


def on_cluster(stack: TrainingStack, cluster: Cluster) -> TrainingStack:
    """`stack` on the GPUs and links of `cluster`; what it reached of its own line rates it reaches of these.

    Raises InputError where the cluster's devices are no known accelerator, or not all the same.
    """
    stack, constants = on_accelerator(stack, accelerator_of(cluster)), stack.constants
    per_node = devices_per_node(cluster)
    inside = _rate(cluster, 1) / stack.link_bytes_per_s if per_node > 1 else 1.0
    across = _rate(cluster, per_node) / per_node / constants.network_bytes_per_s if cluster.workers > per_node else 1.0
    scaled = replace(
        stack.constants,
        tensor_bytes_per_s=constants.tensor_bytes_per_s * inside,
        tensor_across_bytes_per_s=constants.tensor_across_bytes_per_s * across,
        network_bytes_per_s=constants.network_bytes_per_s * across,
    )
    return replace(stack, constants=scaled)


def accelerator_of(cluster: Cluster) -> str:
    """The accelerator that all workers are: of the sheets whose model their kind names, that of the nearest memory.

    Raises InputError where there is none, or not all are the same.
    """
    workers = cluster.devices[: cluster.workers]
    kinds = sorted({device.kind for device in workers})
    words = set(kinds[0].lower().replace("-", " ").split())
    sheets = [sheet for sheet in ACCELERATORS.values() if len(kinds) == 1 and sheet.name.partition("-")[0] in words]
    if not sheets:
        known = ", ".join(dict.fromkeys(name.partition("-")[0].upper() for name in ACCELERATORS))
        raise InputError(
            f"cluster {cluster.name!r} has devices {', '.join(kinds) or 'of no kind'}: a model card needs one kind "
            f"of {known}"
        )
    memory_bytes = workers[0].memory_bytes or sheets[0].memory_bytes
    return min(sheets, key=lambda sheet: abs(sheet.memory_bytes - memory_bytes)).name


def devices_per_node(cluster: Cluster) -> int:
    """Workers on the first worker's host."""
    return sum(device.host == cluster.devices[0].host for device in cluster.devices[: cluster.workers])


def _rate(cluster: Cluster, other: int) -> float:
    """Line rate of the slowest link from the first worker to another, which carries a node's traffic where it leaves
    the node; what a stack reaches of it is its own constants'."""
    links = [cluster.links[number] for number in cluster.route(0, other)]
    nodes = [link for link in links if not {link.source, link.target} & {device.name for device in cluster.devices}]
    return min(link.line_rate_bytes_per_s or link.bandwidth_bytes_per_s for link in nodes or links)
