"""Data parallelism: every device holds the whole network and a share of the batch, larger where it is faster."""

from __future__ import annotations

from collections.abc import Iterator

from partitioners import StrategyChoice
from partitioners._grid_choices import grid_choices, unequal_choices
from partitioners._stages.block_layout import sequence_microbatches
from simulator.cluster import Cluster
from simulator.errors import InputError
from simulator.lowering.costs.sample_shares import balanced_shares
from simulator.plan import Partition, Sharding, StepSettings
from simulator.workload import Profile

STEP_OPTIONS = {"microbatches": None}
"""Left open, micro-batches are as `sequence_microbatches` has them."""


def partition(
    profile: Profile,
    cluster: Cluster,
    step: StepSettings,
    *,
    balance: bool = True,
    seed: int = 0,
) -> Partition:
    """Every layer by sample over all workers; several micro-batches accumulate their gradients.

    With `balance`, devices of unequal speed get the shares that let the slowest end first. Without it, and on equal
    devices, samples are shared out as evenly as whole samples allow.
    Raises InputError when a micro-batch has fewer samples than there are workers.
    """
    workers = cluster.workers
    microbatches = step.microbatches or sequence_microbatches(profile, step.batch_size, workers)
    samples = step.batch_size // microbatches
    if samples < workers:
        raise InputError(
            f"batch_size {step.batch_size} in {microbatches} micro-batch(es) gives {samples} samples to "
            f"{workers} devices, and each needs one; use a batch size of at least {workers * microbatches}, fewer "
            f"micro-batches or fewer devices"
        )
    shares = balanced_shares(profile, cluster, samples) if balance else ()
    sharding = Sharding(degrees=(workers, 1, 1, 1), devices=tuple(range(workers)), samples=shares)
    placements = {layer.name: sharding for layer in profile.layers}
    return Partition(placements=placements, microbatches=microbatches)


def choices(profile: Profile, cluster: Cluster, step: StepSettings) -> Iterator[StrategyChoice]:
    """By micro-batches, with optimizer states shared and not; where devices do not divide the batch, unequal shares."""
    grids = list(grid_choices("data", profile, cluster, step))
    yield from grids or unequal_choices("data", cluster, step)
