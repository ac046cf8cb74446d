"""A batch larger than the devices hold at once: micro-batches whose gradients add up before one update.

With `workers` logical workers on fewer devices, each micro-batch gives every device the share of one logical worker or
an equal part of it, so that a step has the mathematics of that many devices; a layer that looks at its whole share,
such as batch norm, needs the share undivided (`whole_shares`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from simulator.cluster import Cluster
from simulator.errors import InputError, require
from simulator.plan import Plan
from simulator.plan_rules import MOST_MICROBATCHES
from simulator.run import step_report
from simulator.runtime import IDEAL, Runtime
from simulator.units import format_bytes
from simulator.workload import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A way to run the batch: `microbatches` accumulation steps. whole_shares: one per logical worker and device."""

    plan: Plan
    microbatches: int
    microbatch_size: int
    step_s: float
    samples_per_s: float
    peak_memory_bytes: float
    fits: bool
    whole_shares: bool


def choices(
    profile: Profile,
    cluster: Cluster,
    plan_of: Callable[[int], Plan],
    batch_size: int,
    *,
    workers: int | None = None,
    runtime: Runtime = IDEAL,
) -> list[Choice]:
    """Every equal cut of the batch that gives each device a sample, fewest micro-batches first, simulated.

    plan_of: the plan for a number of micro-batches, at most MOST_MICROBATCHES. workers: logical workers, a multiple of
    the devices; then micro-batches are a multiple of workers / devices. Raises InputError when the batch does not
    divide so.
    """
    rounds = _rounds(cluster.workers, batch_size, workers)
    require(
        batch_size >= cluster.workers, "batch_size", batch_size, f"each of {cluster.workers} devices takes a sample"
    )
    candidates = []
    for count in _counts(batch_size, cluster.workers, rounds):
        plan = plan_of(count)
        report = step_report(profile, cluster, plan, runtime=runtime)
        candidates.append(
            Choice(
                plan=plan,
                microbatches=count,
                microbatch_size=plan.microbatch_size,
                step_s=report.step_s,
                samples_per_s=report.samples_per_s,
                peak_memory_bytes=report.peak_memory_bytes,
                fits=report.fits,
                whole_shares=count == rounds,
            )
        )
    return candidates


def best(candidates: list[Choice]) -> Choice:
    """The fastest that fits. Raises InputError when none does."""
    fitting = [choice for choice in candidates if choice.fits]
    if not fitting:
        least = min(candidates, key=lambda choice: choice.peak_memory_bytes)
        raise InputError(
            f"memory: no number of micro-batches fits; {least.microbatches} of them need the least, "
            f"{format_bytes(least.peak_memory_bytes)} on one device; use more devices or another strategy"
        )
    return min(fitting, key=lambda choice: (choice.step_s, choice.microbatches))


def _rounds(devices: int, batch_size: int, workers: int | None) -> int:
    """How many logical workers each device stands for."""
    logical = devices if workers is None else workers
    rule = f"it is a multiple of the {devices} devices, each of which stands for as many"
    require(logical % devices == 0, "workers", logical, rule)
    if workers is not None:
        rule = f"it divides the batch of {batch_size} into equal shares"
        require(batch_size % logical == 0, "workers", logical, rule)
    return logical // devices


def _counts(batch_size: int, devices: int, rounds: int) -> Iterator[int]:
    for count in range(rounds, min(batch_size // devices, MOST_MICROBATCHES) + 1, rounds):
        if batch_size % count == 0:
            yield count
