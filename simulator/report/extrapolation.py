"""What a step of more rounds adds up to, from two steps whose rounds all add the same: one rule for each figure.

A round is the micro-batches after which the state of a step repeats (`simulator.report.steady_state`, which proves it).
Ratios are no figures of StepTotals: a Report makes them of the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, TypeVar

import numpy as np

from simulator.report.deferred_rows import DeferredRows
from simulator.report.layer_use import LayerUse
from simulator.report.step_totals import Shares, StepTotals
from simulator.report.traffic import Communication
from simulator.taskgraph import Floats

SAME = 1e-12
"""Relative: peaks that differ by less do so by rounding."""
Figures = TypeVar("Figures")
Rule = Callable[[Any, Any, int], Any]
"""(of the longer step, of one with a round less, how many rounds more) -> of the longest."""


class DifferenceError(Exception):
    """Two steps differ in what no number of rounds changes; never seen by users, for whom the whole is simulated."""


def extrapolated(latest: Figures, before: Figures, rounds: int) -> Figures:
    """The figures of a step of `rounds` more than `latest`, which has one more than `before`.

    Raises DifferenceError where the two differ in what rounds do not change.
    """
    rules = RULES[type(latest)]
    values = {
        field.name: rules[field.name](getattr(latest, field.name), getattr(before, field.name), rounds)
        for field in fields(latest)  # type: ignore[arg-type]
    }
    return type(latest)(**values)


def _added(latest: Any, before: Any, rounds: int) -> Any:
    return latest + rounds * (latest - before)


def _same(latest: Any, before: Any, rounds: int) -> Any:
    if isinstance(latest, np.ndarray):
        alike = latest.shape == before.shape and bool((abs(latest - before) <= SAME * abs(latest)).all())
    else:
        alike = latest == before
    if not alike:
        raise DifferenceError
    return latest


def _row_by_row(latest: Sequence[Any], before: Sequence[Any], rounds: int) -> Sequence[Any]:
    def rows() -> tuple[Any, ...]:
        return tuple(extrapolated(*pair, rounds) for pair in zip(latest, before, strict=True))

    return DeferredRows(len(latest), rows)


def _shares(
    latest: Callable[[Floats], Shares], before: Callable[[Floats], Shares], rounds: int, work: Floats
) -> Shares:
    longer, shorter = latest(work), before(work)
    added = {resource: _added(seconds, shorter.get(resource, 0.0), rounds) for resource, seconds in longer.items()}
    return dict(sorted(added.items(), key=lambda share: -share[1]))


RULES: Mapping[type, Mapping[str, Rule]] = {
    StepTotals: {
        "step_s": _added,
        "compute_s": _added,
        "busy_s": _added,
        "launch_s": _added,
        "exposed_s": _added,
        "peak_bytes": _same,
        "static_bytes": _same,
        "communication": extrapolated,
        "carried_bytes": _added,
        "link_work": _added,
        "slow_links_s": _added,
        "shares": lambda latest, before, rounds: partial(_shares, latest, before, rounds),
        "critical_path_s": _added,
        "tasks": _added,
        "layers": _row_by_row,
        "engine": _same,
    },
    Communication: {
        "total": _added,
        "forward": _added,
        "backward": _added,
        "synchronisation": _added,
        "parameters": _added,
        "devices": _same,
        "source": _same,
        "target": _same,
        "size_bytes": _added,
    },
    LayerUse: {
        "name": _same,
        "compute_s": _added,
        "forward_bytes": _added,
        "backward_bytes": _added,
        "synchronisation_bytes": _added,
    },
}
"""By type of figures and field: whether each round adds as much, or none changes it."""
