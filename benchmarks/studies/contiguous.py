"""Contiguous stages: PipeDream's VGG-16 split and the published optima of Tarnawski et al."""

from __future__ import annotations

import time
from itertools import combinations

import numpy as np

from benchmarks.pages.published import profile, shared_data, table
from benchmarks.studies import placements
from partitioners._stages.contiguous import best_stages
from partitioners._stages.stage_costs import Costs, crossing_bytes
from simulator.taskgraph import Floats
from simulator.workload import Profile

DEVICES = 4
"""V100 of PipeDream's split."""


def section() -> str:
    layers = profile("vgg16").layers
    stages = best_stages(pipedream_costs(profile("vgg16"), 1e9), layers=len(layers), devices=DEVICES, most_replicas=4)
    last = layers[(*stages.starts[1:], len(layers))[0] - 1]
    shape = "-".join(map(str, stages.replicas))
    return "\n\n".join(
        [
            "## Contiguous stages (PipeDream, SOSP 2019; Tarnawski et al., NeurIPS 2020)",
            f"VGG-16 on 4 V100 and links of 1 GB/s under PipeDream's cost model: published 3-1, the first stage ending "
            f"with the third pooling layer; ours **{shape}**, the first stage ending with `{last.name}`, a "
            f"{last.kind} of {last.output_shape[0]} channels of {last.output_shape[1]} x {last.output_shape[2]}.",
            "Largest load in ms per sample on 6 accelerators and a CPU core, under the authors' cost model:",
            _optima(),
            "gnmt (120.02 ms) is left out: its 17,914 ideals make tables of all pairs too large for this method.",
        ]
    )


def pipedream_costs(profile: Profile, bandwidth_bytes_per_s: float) -> Costs:
    """Seconds per mini-batch as PipeDream counts them (SOSP 2019, section 3.1).

    A stage replicated m times: 1/m x max(compute, 2 (m - 1) |w| / B); between stages 2 a / B.
    """
    layers, crossing = profile.layers, crossing_bytes(profile)

    def stage_s(device: int, replicas: int) -> Floats:
        seconds = np.full((len(layers) + 1, len(layers) + 1), np.inf)
        for i, j in combinations(range(len(layers) + 1), 2):
            compute = sum(layer.forward_s + layer.backward_s for layer in layers[i:j])
            parameters = sum(layer.parameter_bytes for layer in layers[i:j])
            seconds[i, j] = max(compute, 2 * (replicas - 1) * parameters / bandwidth_bytes_per_s) / replicas
        return seconds

    return Costs(stage_s, lambda ways: np.tile(2 * crossing / bandwidth_bytes_per_s, (DEVICES, 1)))


def _optima() -> str:
    rows = []
    for name, published in placements.PUBLISHED_MS.items():
        began = time.perf_counter()
        path = shared_data() / "dnn-partitioning" / f"{name}_training.json"
        ours = placements.optimum_ms(placements.read(path))
        rows.append([name, f"{published:.4f}", f"{ours:.4f}", f"{time.perf_counter() - began:.1f} s"])
    return table(["instance", "published optimum", "ours", "time"], rows)
