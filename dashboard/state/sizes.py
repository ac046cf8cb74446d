"""Which batches and numbers of micro-batches a strategy can run: what the two fields offer."""

from __future__ import annotations

from dashboard.state.caps import WHOLE
from dashboard.state.configuration import MOST_MICROBATCHES, MOST_SAMPLES, Configuration
from dashboard.state.simulating import batch_of
from simulator.workload import Profile

_MOST_OFFERED = 7


def microbatch_counts(configuration: Configuration, profile: Profile) -> list[int]:
    """Numbers of micro-batches that divide the batch and leave every device that takes samples at least one."""
    batch = batch_of(configuration, profile)
    least = 1 if configuration.strategy in WHOLE else configuration.devices
    counts = [n for n in range(1, min(batch, MOST_MICROBATCHES) + 1) if batch % n == 0 and batch // n >= least]
    powers = [n for n in counts if n & (n - 1) == 0]
    return (powers if len(powers) >= 3 else counts)[:_MOST_OFFERED]


def batch_sizes(configuration: Configuration, profile: Profile) -> list[int]:
    """Batches around the usual one that divide among the devices and into the micro-batches that are set."""
    devices = 1 if configuration.strategy in WHOLE else configuration.devices
    unit = devices * (configuration.microbatches or 1)
    usual = profile.batch_for(configuration.devices)
    around = (usual * factor // 4 for factor in (1, 2, 4, 8, 16))
    sizes = sorted({max(unit, -(-size // unit) * unit) for size in around})
    return [size for size in sizes if size <= MOST_SAMPLES]
