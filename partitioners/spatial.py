"""Spatial parallelism: every image cut into bands and tiles, for few samples of large extent."""

from __future__ import annotations

from simulator.cluster import Cluster
from simulator.plan import Degrees, Partition, Sharding, StepSettings
from simulator.workload import Layer, Profile


def partition(profile: Profile, cluster: Cluster, step: StepSettings, *, seed: int = 0) -> Partition:
    """By height and then width over as many workers as the plane allows; a layer without a plane by sample.

    A layer that cannot use all workers leaves the last ones idle.
    """
    samples, workers = step.microbatch_size, cluster.workers
    return Partition(placements={layer.name: _sharding(layer, samples, workers) for layer in profile.layers})


def _sharding(layer: Layer, samples: int, workers: int) -> Sharding:
    _, height, width = layer.output_shape
    # at most one tile per worker, the columns as many as the rows leave
    tilings = [(rows, min(width, workers // rows)) for rows in range(1, min(height, workers) + 1)]
    rows, columns = max(tilings, key=lambda tiling: (tiling[0] * tiling[1], tiling[0]))
    degrees: Degrees = (1, 1, rows, columns) if height * width > 1 else (min(workers, samples), 1, 1, 1)
    return Sharding(degrees=degrees, devices=tuple(range(max(rows * columns, degrees[0]))))
