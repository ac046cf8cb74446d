"""Stragglers and jitter: seeded changes of how long compute tasks take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from simulator.errors import require, require_time
from simulator.taskgraph import Floats, TaskGraph

PIECE = 4.0
"""A piece of work has half of itself as its standard deviation. Where variance_s is 0.5 to 1 ms (docs/validation.md) it
lasts 2 to 4 ms; what disturbs a rank there lasts 2 to 6."""
MOST_PIECES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """jitter: relative standard deviation of every compute task's duration, at most 1.

    variance_s: of a device's work, however it is cut into tasks: d seconds of it have a variance of variance_s * d, in
    square seconds, and say nothing of those that follow. The work is drawn in pieces of PIECE * variance_s, log-normal
    as well. mirrored: where the seed made pieces longer they become shorter; the work of both together is as before.
    stragglers: by device, how many times longer its tasks take. Same seed, same durations.
    """

    jitter: float = 0.0
    variance_s: float = 0.0
    stragglers: Mapping[int, float] = field(default_factory=dict)
    seed: int = 0
    mirrored: bool = False

    def __post_init__(self) -> None:
        require(0 <= self.jitter <= 1, "jitter", self.jitter, "it is in [0, 1]: a standard deviation over the mean")
        require_time("variance_s", self.variance_s)
        for device, factor in self.stragglers.items():
            require(0 < factor <= 1e6, f"straggler {device}", factor, "it is positive, and at most 1e6")

    def disturb(self, graph: TaskGraph) -> TaskGraph:
        """`graph` with the durations of its compute tasks changed. Raises InputError for a device without tasks."""
        compute = ~graph.is_transfer
        factors = np.ones(len(graph))
        draw = np.random.default_rng(self.seed)
        if self.jitter:
            sigma = np.sqrt(np.log1p(self.jitter**2))
            factors = np.where(compute, draw.lognormal(-(sigma**2) / 2, sigma, len(graph)), 1.0)
        seconds = graph.seconds.copy()
        if self.variance_s and graph.seconds[compute].any():
            by_device = np.flatnonzero(compute)[np.argsort(graph.device[compute], kind="stable")]
            seconds[by_device] = self._in_pieces(draw, seconds[by_device])
        for device, factor in self.stragglers.items():
            on_device = compute & (graph.device == device)
            require(bool(on_device.any()), "straggler", device, "it is a device that computes in this plan")
            factors[on_device] *= factor
        return replace(graph, seconds=seconds * factors)

    def _in_pieces(self, draw: np.random.Generator, seconds: Floats) -> Floats:
        """New durations (tasks,) of tasks that follow one another."""
        ends_s = np.cumsum(seconds)
        count = int(np.clip(np.ceil(ends_s[-1] / (PIECE * self.variance_s)), 1, MOST_PIECES))
        piece_s = ends_s[-1] / count
        up = np.exp(np.sqrt(np.log1p(self.variance_s / piece_s)) * draw.standard_normal(count))
        drawn = (1 / up if self.mirrored else up) / np.mean((up + 1 / up) / 2)  # with their mirror images of mean 1
        passed_s = piece_s * np.append(0.0, np.cumsum(drawn))  # (pieces + 1,)
        return np.diff(np.interp(ends_s, piece_s * np.arange(count + 1), passed_s), prepend=0.0)
