"""Between which seconds a step is to be expected: what calibrated steps missed, and how the network scatters."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from simulator.transformers.model_card import ModelCard
from simulator.transformers.step_time import step_seconds
from simulator.transformers.training_grid import TrainingGrid
from simulator.transformers.training_stack import StackConstants, TrainingStack


def grid_interval(
    card: ModelCard, grid: TrainingGrid, stack: TrainingStack, retried: tuple[bool, ...] = ()
) -> tuple[float, float]:
    """(low, high) seconds between which 80 % of such steps are to be expected; retried as in `step_seconds`.

    The network is taken at the ends of its band for as many nodes, and the quantiles of measured over predicted that
    the calibration left come on top.
    """
    low, high = network_band(stack.network_band, grid.nodes)
    fast = step_seconds(card, grid, stack, constants=_with_network(stack.constants, high), retried=retried)
    slow = step_seconds(card, grid, stack, constants=_with_network(stack.constants, low), retried=retried)
    best, worst = residual_band(stack.residual_quantiles, grid.nodes)
    return float(fast.step_s) * best, float(slow.step_s) * worst


def residual_band(quantiles: Mapping[int, tuple[float, float]], nodes: int) -> tuple[float, float]:
    """(10, 90 %) of measured over predicted on `nodes` nodes, between known numbers by their logarithms.

    On more nodes than were measured steps scatter more with every doubling, as much as they did on average before.
    """
    if not quantiles:
        return 1.0, 1.0
    known = np.log2(sorted(quantiles))
    beyond = max(0.0, float(np.log2(nodes) - known[-1]))
    band = []
    for end in (0, 1):
        logs = np.log([quantiles[count][end] for count in sorted(quantiles)])
        slope = np.polyfit(known, logs, 1)[0] if len(known) > 1 else 0.0
        band.append(float(np.exp(np.interp(np.log2(nodes), known, logs) + slope * beyond)))
    return min(1.0, band[0]), max(1.0, band[1])


def network_band(band: Mapping[int, tuple[float, float]], nodes: int) -> tuple[float, float]:
    """(low, high) bandwidth over the usual one on `nodes` nodes; between measured numbers by their logarithms."""
    if not band or nodes <= 1:
        return 1.0, 1.0
    known = sorted(band)
    position = bisect_left(known, nodes)
    if position == len(known) or known[position] == nodes:
        return band[known[min(position, len(known) - 1)]]
    logs = np.log2(known)
    low, high = (float(np.interp(np.log2(nodes), logs, [band[count][end] for count in known])) for end in (0, 1))
    return low, high


def _with_network(constants: StackConstants, factor: float) -> StackConstants:
    return replace(constants, network_bytes_per_s=constants.network_bytes_per_s * factor)
