"""Plans for the devices that a scenario leaves: the strategy's, or one close to the plan before."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import Any

import partitioners
from partitioners._hypergraphs.repartition import repartition
from simulator import files
from simulator.cluster import Cluster
from simulator.elastic.scenario import Scenario
from simulator.language_models.training_stack import optimizer_state_of
from simulator.plan import Plan, split_settings
from simulator.runtime import IDEAL, Runtime
from simulator.workload import Profile

CLOSE = ("grid", "imbalance", "seed")
"""Options of a strategy that a cut close to the plan before takes too."""


class ScenarioPlans:
    """The plan for the devices that are there: the scenario's file for the first ones, otherwise its strategy's."""

    def __init__(
        self, scenario: Scenario, profile: Profile, cluster: Cluster, folder: Path, runtime: Runtime = IDEAL
    ) -> None:
        self._scenario, self._profile, self._runtime = scenario, profile, runtime
        self._first = files.read_plan(folder / scenario.plan) if scenario.plan else None
        self._names = [cluster.devices[i].name for i in scenario.first_members(cluster)]

    def __call__(self, cluster: Cluster, old: Plan | None) -> Plan:
        names = [device.name for device in cluster.devices[: cluster.workers]]
        if self._first is not None and names == self._names:
            return self._first
        scenario = self._scenario
        if old is not None:
            close = _options(scenario, CLOSE)
            return repartition(
                self._profile, cluster, old, migration=scenario.migration, runtime=self._runtime, **close
            )
        usual = self._first.batch_size if self._first else self._profile.batch_for(len(self._names))
        settings = {
            "batch_size": scenario.batch_size or usual,
            "runtime": self._runtime,
            "optimizer_state": optimizer_state_of(self._profile),
        }
        step, own = split_settings({**settings, **_options(scenario)})
        return partitioners.make_plan(scenario.strategy, self._profile, cluster, step, **own)


def _options(scenario: Scenario, wanted: Container[str] | None = None) -> dict[str, Any]:
    """The strategy's options (those `wanted`), lists as tuples. Raises UnknownNameError for one it does not take."""
    partitioners.check_options(scenario.strategy, scenario.options)
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in scenario.options.items()
        if wanted is None or name in wanted
    }
