"""How noisy gradients are, and what that says of larger batches.

The gradient of a batch of B samples is the true one, G, plus noise of variance tr(S)/B. The noise scale
phi = tr(S) / |G|^2 is the batch size at which both weigh the same: to the same progress, training takes

    samples = E_min (1 + B / phi)        updates = S_min (1 + phi / B)        E_min = phi S_min

(McCandlish et al., arXiv 1812.06162, section 2). Pollux (Qiao et al., OSDI 2021) calls
(phi + B0) / (phi + B) the efficiency of batch size B beside B0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, inf

import numpy as np

from simulator.errors import require


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientNoise:
    """Estimates at one moment of a training: |G|^2 and tr(S), after `samples` samples. Either may come out negative."""

    samples: int
    squared_norm: float
    variance: float


def efficiency(batch_size: float, reference: float, noise_scale: float) -> float:
    """Progress per sample at `batch_size` over that at `reference`, at most 1 for a larger batch."""
    if noise_scale == inf:
        return 1.0
    return (noise_scale + reference) / (noise_scale + batch_size)


def estimated(
    local_sizes: Sequence[int], local_squared_norms: Sequence[float], global_squared_norm: float
) -> tuple[float, float]:
    """|G|^2 and tr(S), both without bias, from the squared norms of local gradients and of their weighted mean.

    The two-batch estimator (McCandlish, appendix A.1). E|g_i|^2 = |G|^2 + tr(S) / b_i, so that the mean over local
    batches of uneven sizes b_i is that of batches of their harmonic mean; the mean of all samples has B = sum(b_i).
    Raises InputError for fewer than two local batches.
    """
    require(len(local_sizes) >= 2, "local_sizes", len(local_sizes), "noise shows between at least 2 local batches")
    count = len(local_sizes)
    small, big = count / fsum(1 / size for size in local_sizes), float(sum(local_sizes))
    local = fsum(local_squared_norms) / count
    squared_norm = (big * global_squared_norm - small * local) / (big - small)
    variance = (local - global_squared_norm) / (1 / small - 1 / big)
    return squared_norm, variance


def over_training(noises: Sequence[GradientNoise]) -> float:
    """The one noise scale that stands for those of a whole training, moments being equal parts of its progress.

    Samples are sum over moments of 1 + B / phi_t: what counts is the mean of 1 / phi_t. Infinite where no noise was.
    """
    require(len(noises) > 0, "noises", "[]", "at least one moment was measured")
    inverse = fsum(noise.squared_norm / noise.variance for noise in noises) / len(noises)
    return 1 / inverse if inverse > 0 else inf


def fitted(batch_sizes: Sequence[float], samples: Sequence[float]) -> tuple[float, float]:
    """E_min and phi of the curve samples = E_min (1 + B / phi) with the least sum of squared relative errors.

    Two points are met exactly. Where samples do not grow with the batch, phi is infinite; where they grow faster than
    in proportion, which the model cannot, phi is 0+ and E_min / phi the slope. Raises InputError for fewer than two.
    """
    require(len(set(batch_sizes)) >= 2, "batch_sizes", tuple(batch_sizes), "a curve needs at least 2 different ones")
    sizes, counts = np.asarray(batch_sizes, dtype=float), np.asarray(samples, dtype=float)
    columns = np.stack([1 / counts, sizes / counts], axis=1)  # (points, 2)
    least, slope = np.linalg.lstsq(columns, np.ones(len(sizes)), rcond=None)[0]
    if slope <= 0:
        return float(1 / np.mean(1 / counts)), inf
    if least <= 0:
        slope = float(1 / np.mean(sizes / counts))
        return slope * _TINY, _TINY
    return float(least), float(least / slope)


_TINY = 1e-9
"""Samples; a noise scale so far below every batch size that samples are in proportion to it."""
