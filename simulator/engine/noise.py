"""Stragglers and jitter: seeded changes of how long compute tasks take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from simulator.errors import require
from simulator.taskgraph import TaskGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """jitter: relative standard deviation of every compute task's duration, log-normal with the task's duration as its
    mean; at most 1.

    stragglers: by device, how many times longer its tasks take. Same seed, same durations.
    """

    __pydantic_config__ = {"extra": "forbid"}

    jitter: float = 0.0
    stragglers: Mapping[int, float] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        require(0 <= self.jitter <= 1, "jitter", self.jitter, "it is in [0, 1]: a standard deviation over the mean")
        for device, factor in self.stragglers.items():
            require(0 < factor <= 1e6, f"straggler {device}", factor, "it is positive, and at most 1e6")

    def disturb(self, graph: TaskGraph) -> TaskGraph:
        """`graph` with the durations of its compute tasks changed. Raises InputError for a device without tasks."""
        compute = ~graph.is_transfer
        factors = np.ones(len(graph))
        if self.jitter:
            sigma = np.sqrt(np.log1p(self.jitter**2))
            drawn = np.random.default_rng(self.seed).lognormal(-(sigma**2) / 2, sigma, len(graph))
            factors = np.where(compute, drawn, 1.0)
        for device, factor in self.stragglers.items():
            on_device = compute & (graph.device == device)
            require(bool(on_device.any()), "straggler", device, "it is a device that computes in this plan")
            factors[on_device] *= factor
        return replace(graph, seconds=graph.seconds * factors)
