"""Our contiguous dynamic program on the placement instances of Tarnawski et al. (NeurIPS 2020), under their costs.

There a stage is the difference of two ideals (sets of layers closed under predecessors) of the forward graph, with
the backward nodes of its layers. Its load on an accelerator is its compute plus the transfer of every tensor that
enters or leaves it, each once; on a CPU core, its compute alone. The objective is the largest load.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from partitioners._stages.contiguous import best_stages
from partitioners._stages.stage_costs import Costs
from simulator.taskgraph import Floats

PUBLISHED_MS = {"bert24": 46.6082, "resnet50": 479.038}
"""The authors' optimum. Their gnmt (120.02 ms) has 17,914 ideals, and all pairs of them would take 2.6 GB a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """Layers with both passes' accelerator_ms, cpu_ms and size_bytes; tensors as (layer, readers, cost_ms)."""

    accelerator_ms: Floats
    cpu_ms: Floats
    size_bytes: Floats
    before: tuple[frozenset[int], ...]
    tensors: tuple[tuple[int, frozenset[int], float], ...]
    accelerators: int
    capacity_bytes: float


def read(path: Path) -> Instance:
    """An instance from the authors' JSON (accelerators are called FPGA there); a layer is a colour class."""
    written = json.loads(path.read_text())
    colours = {node["colorClass"]: i for i, node in enumerate(n for n in written["nodes"] if not n["isBackwardNode"])}
    layer = {node["id"]: colours[node["colorClass"]] for node in written["nodes"]}
    forward = {node["id"] for node in written["nodes"] if not node["isBackwardNode"]}
    columns = np.zeros((3, len(colours)))
    for node in written["nodes"]:
        columns[:, layer[node["id"]]] += node["fpgaLatency"], node["cpuLatency"], node["size"]
    before: list[set[int]] = [set() for _ in colours]
    readers: dict[int, set[int]] = {}
    for edge in written["edges"]:
        source, target = edge["sourceId"], edge["destId"]
        readers.setdefault(source, set()).add(layer[target])
        if source in forward and target in forward:
            before[layer[target]].add(layer[source])
    cost = {edge["sourceId"]: edge["cost"] for edge in written["edges"]}
    return Instance(
        accelerator_ms=columns[0],
        cpu_ms=columns[1],
        size_bytes=columns[2],
        before=tuple(map(frozenset, before)),
        tensors=tuple((layer[s], frozenset(r), cost[s]) for s, r in readers.items() if cost[s] > 0),
        accelerators=written["maxFPGAs"],
        capacity_bytes=written["maxSizePerFPGA"],
    )


def optimum_ms(instance: Instance) -> float:
    """The least largest load over the accelerators and one CPU core, wherever in the order of stages that stands."""
    ideals = _ideals(instance)
    accelerator, cpu = _loads(instance, ideals)
    devices = instance.accelerators + 1
    free = np.zeros((devices, len(ideals)))
    paces = []
    for slow in range(devices):
        loads = [cpu if device == slow else accelerator for device in range(devices)]
        costs = Costs(partial(_load, loads), lambda ways: free)
        paces.append(best_stages(costs, layers=len(ideals) - 1, devices=devices).pace_s)
    return min(paces)


def _load(loads: list[Floats], device: int, replicas: int) -> Floats:
    return loads[device]


def _ideals(instance: Instance) -> list[frozenset[int]]:
    """All sets of layers that hold the predecessors of their members, smallest first."""
    ideals = {frozenset[int]()}
    edge = set(ideals)
    while edge:
        grown = {
            ideal | {layer}
            for ideal in edge
            for layer, needs in enumerate(instance.before)
            if layer not in ideal and needs <= ideal
        }
        edge = grown - ideals
        ideals |= edge
    return sorted(ideals, key=lambda ideal: (len(ideal), sorted(ideal)))


def _loads(instance: Instance, ideals: list[frozenset[int]]) -> tuple[Floats, Floats]:
    """(accelerator, CPU) load of the stage between ideals i and j at [i, j]; infinite where i is not inside j."""
    count, layers = len(ideals), len(instance.before)
    member = np.array([[layer in ideal for layer in range(layers)] for ideal in ideals])
    reading = [(s, np.array([i in r for i in range(layers)]), cost) for s, r, cost in instance.tensors]
    accelerator, cpu = np.full((count, count), np.inf), np.full((count, count), np.inf)
    for j in range(count):
        inside = np.flatnonzero(~(member & ~member[j]).any(axis=1))
        stage = member[j] & ~member[inside]
        moved = np.zeros(len(inside))
        for source, readers, cost in reading:
            holds_source = stage[:, source]
            enters, leaves = (
                ~holds_source & (stage & readers).any(axis=1),
                holds_source & (~stage & readers).any(axis=1),
            )
            moved += cost * (enters | leaves)
        cpu[inside, j] = stage @ instance.cpu_ms
        fits = stage @ instance.size_bytes <= instance.capacity_bytes
        accelerator[inside, j] = np.where(fits, stage @ instance.accelerator_ms + moved, np.inf)
    return accelerator, cpu
