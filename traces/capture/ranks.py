"""A capture by several processes at once, started by torchrun: what they measured as one profile.

The cores of a machine share caches and memory and need not be equally fast, so ranks that train together take longer
than one that was captured alone: DistributedDataParallel's step is that of the slowest.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import torch.distributed as dist

from simulator.workload import Profile
from traces.capture.median_profile import median_profile


@dataclass(frozen=True, slots=True)
class Ranks:
    """How many processes capture together, and which of them this is."""

    count: int = 1
    number: int = 0

    @classmethod
    def of_torchrun(cls) -> Ranks:
        """The processes that torchrun started, once all of them are here; this one alone without torchrun."""
        if "TORCHELASTIC_RUN_ID" not in os.environ:
            return cls()
        if not dist.is_initialized():
            dist.init_process_group("gloo")
        dist.barrier()
        return cls(dist.get_world_size(), dist.get_rank())

    @property
    def first(self) -> bool:
        """Whether this process speaks for all."""
        return self.number == 0

    def median(self, own: Profile) -> Profile:
        """The median of what all processes captured, the same in each. own: what this one did."""
        if self.count == 1:
            return own
        captures: list[Profile] = [own] * self.count
        dist.all_gather_object(captures, own)
        profile = median_profile(captures)
        return replace(profile, notes=f"{profile.notes}; the median of {self.count} processes that measured at once")
