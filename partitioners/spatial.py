"""Spatial parallelism: every image cut into bands and tiles, for few samples of large extent."""

from __future__ import annotations

from dataclasses import replace

from simulator.cluster import Cluster
from simulator.plan import Degrees, Placement, Plan, Synchronisation
from simulator.workload import Layer, Profile


def partition(
    profile: Profile,
    cluster: Cluster,
    *,
    batch_size: int,
    microbatches: int = 1,
    synchronisation: Synchronisation = Synchronisation(),
    optimizer_state: float = 1.0,
    seed: int = 0,
) -> Plan:
    """By height and then width over as many workers as the plane allows; a layer without a plane by sample.

    A layer that cannot use all workers leaves the last ones idle.
    """
    plan = Plan(
        model=profile.model,
        batch_size=batch_size,
        microbatches=microbatches,
        placements={},
        synchronisation=synchronisation,
        optimizer_state=optimizer_state,
        strategy="spatial",
    )
    samples, workers = plan.microbatch_size, cluster.workers
    return replace(plan, placements={layer.name: _placement(layer, samples, workers) for layer in profile.layers})


def _placement(layer: Layer, samples: int, workers: int) -> Placement:
    _, height, width = layer.output_shape
    rows, columns = max(_tilings(height, width, workers), key=lambda tiling: (tiling[0] * tiling[1], tiling[0]))
    degrees: Degrees = (1, 1, rows, columns) if height * width > 1 else (min(workers, samples), 1, 1, 1)
    return Placement(degrees=degrees, devices=tuple(range(max(rows * columns, degrees[0]))))


def _tilings(height: int, width: int, workers: int) -> list[tuple[int, int]]:
    """(rows, columns) with at most one tile per worker, the columns as many as the rows leave."""
    return [(rows, min(width, workers // rows)) for rows in range(1, min(height, workers) + 1)]
