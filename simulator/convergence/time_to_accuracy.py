"""When a plan reaches a target accuracy, and what that costs: the simulated step times the samples it takes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import inf
from typing import Any

from simulator.cluster import Cluster
from simulator.convergence.curves import Curves, Interval, Method, Regime, Samples
from simulator.errors import require
from simulator.lowering.sharded_model import ShardedModel
from simulator.ordered_sum import ordered_sum
from simulator.workload import Profile


def regime_of(model: ShardedModel) -> Regime:
    """The regime in which a plan trains: synchronous, unless its schedule stashes weights and has several stages.

    Raises InputError as `ShardedModel.sums_per_step` does.
    """
    plan = model.plan
    if model.schedule.double_buffered:  # every gradient is one update old (ICML 2021, section 3.1)
        minibatch = plan.batch_size // model.sums_per_step
        return Regime(batch_size=minibatch, method="asynchronous", staleness=1)
    if model.schedule.stashes_weights:
        behind = len(model.stages) - 1
        method: Method = "stashing" if behind else "synchronous"
        return Regime(batch_size=plan.microbatch_size, method=method, staleness=behind)
    return Regime(batch_size=plan.batch_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostToAccuracy:
    """When a plan reaches a target accuracy, and what that costs.

    samples: trained until then. seconds, dollars, joules: over the trials; dollars None without prices, joules None
    without stated power.
    """

    target: float
    regime: Regime
    samples: Samples
    seconds: Interval
    dollars: Interval | None
    joules: Interval | None

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries, numbers and strings, ready for JSON; what is never reached is None."""
        return {key: _finite(value) for key, value in asdict(self).items()}


def cost_to_accuracy(
    curves: Curves, target: float, regime: Regime, cluster: Cluster, samples_per_s: float
) -> CostToAccuracy:
    """The cost of a plan of `regime` with throughput `samples_per_s` on `cluster`.

    Raises InputError as `Curves.samples_to` does.
    """
    samples = curves.samples_to(target, regime)
    seconds = samples.interval.scaled(1 / samples_per_s)
    prices = [device.dollars_per_hour for device in cluster.devices if device.dollars_per_hour is not None]
    powers = [device.watts for device in cluster.devices if device.watts is not None]
    return CostToAccuracy(
        target=target,
        regime=regime,
        samples=samples,
        seconds=seconds,
        dollars=seconds.scaled(ordered_sum(prices) / 3600) if prices else None,
        joules=seconds.scaled(ordered_sum(powers)) if powers else None,
    )


def check_curves(curves: Curves, profile: Profile) -> None:
    """Raise InputError where the curves are of another network than the profile; of which device does not matter."""
    rule = f"the profile is of {profile.model!r}; measure that network's own: shardscope converge"
    require(curves.model == profile.model, "model of the curves", repr(curves.model), rule)


def _finite(value: Any) -> Any:
    """`value` with None for the infinite, which JSON lacks."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    return None if value == inf else value
