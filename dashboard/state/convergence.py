"""Accuracy over simulated time: what each strategy's step makes of the measured curves of a network. No Dash here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import isfinite

import partitioners
from dashboard.state.configuration import OWN, Configuration
from dashboard.state.simulating import Outcome
from dashboard.state.store import Store
from simulator.convergence.curve_files import measured, read_curves
from simulator.convergence.curves import Curves
from simulator.convergence.time_to_accuracy import CostToAccuracy, plan_cost_to_accuracy, regime_of
from simulator.errors import InputError
from simulator.lowering.sharded_model import ShardedModel

LEVELS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyCurve:
    """A strategy's accuracy over seconds of training: levels with the median, least and most seconds of each.

    reached: when it reaches the target; None where its regime was not measured far enough.
    """

    strategy: str
    accuracy: tuple[float, ...]
    median_s: tuple[float, ...]
    low_s: tuple[float, ...]
    high_s: tuple[float, ...]
    reached: CostToAccuracy | None


def has_curves(outcome: Outcome) -> bool:
    """Whether the network's convergence was measured."""
    return outcome.profile.model in measured()


def accuracy_curves(store: Store, now: Configuration) -> list[AccuracyCurve]:
    """Of every strategy that does not search, and the present one, on the same devices; the fastest first.

    Strategies that cannot run, and regimes that the curves say nothing of, are left out.
    """
    quick = [name for name in partitioners.strategies() if "effort" not in partitioners.options(name)]
    curves = []
    for name in dict.fromkeys((now.strategy, *quick)):
        other = replace(now, strategy=name, schedule=OWN, microbatches=None)
        outcome = store.outcome(now if name == now.strategy else other)
        curve = _accuracy_curve(outcome, _curves(outcome.profile.model))
        curves += [curve] if curve is not None else []
    return sorted(curves, key=lambda curve: curve.reached.seconds.median if curve.reached else float("inf"))


@cache
def _curves(model: str) -> Curves:
    return read_curves(model)


def _accuracy_curve(outcome: Outcome, curves: Curves) -> AccuracyCurve | None:
    if outcome.run is None or outcome.cluster is None:
        return None
    plan, report = outcome.run.plan, outcome.run.report
    regime = regime_of(ShardedModel(outcome.profile, plan))
    rows = []
    for level in _levels(curves):
        try:
            seconds = curves.samples_to(level, regime).interval.scaled(1 / report.samples_per_s)
        except InputError:  # the regime is beyond what was measured
            return None
        if isfinite(seconds.high):
            rows.append((level, seconds.median, seconds.low, seconds.high))
    if not rows:
        return None
    accuracy, median_s, low_s, high_s = zip(*rows, strict=True)
    when = plan_cost_to_accuracy(curves, curves.target, outcome.profile, outcome.cluster, plan, report)
    return AccuracyCurve(
        strategy=outcome.configuration.strategy, accuracy=accuracy, median_s=median_s, low_s=low_s, high_s=high_s,
        reached=when if isfinite(when.seconds.median) else None,
    )  # fmt: skip


def _levels(curves: Curves) -> Sequence[float]:
    """Accuracies from just above that of an untrained network to the best that a trial had, the target among them."""
    low = max(trial.points[0][1] for trial in curves.trials)
    high = max(trial.best for trial in curves.trials)
    return sorted({*(low + (high - low) * (i + 1) / LEVELS for i in range(LEVELS)), curves.target})
