"""The example scenarios, and the accounts of scenarios, each simulated once. No Dash here."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from dashboard.state.caps import require_size, searches
from dashboard.state.store import Store
from partitioners._scenario_plans import ScenarioPlans
from simulator.cluster import Cluster
from simulator.elastic.job import simulate_job
from simulator.elastic.job_account import Account
from simulator.elastic.reconfiguration import Overheads, read_overheads
from simulator.elastic.scenario import POLICIES, Scenario, read_scenario
from simulator.errors import InputError, UnknownNameError, require
from simulator.language_models.training_stack import runtime_of
from simulator.network import catalogue
from simulator.plan import Plan
from simulator.workload import Profile

_DASHBOARD = Path(__file__).resolve().parent.parent
EXAMPLES = _DASHBOARD / "examples" if (_DASHBOARD / "examples").exists() else _DASHBOARD.parent / "examples"
"""In an installed package inside `dashboard/`, in the repository beside it."""
MOST_EVENTS = 100
MOST_CHECKPOINTS = 5000
MOST_DEVICES = 64
_KEPT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedScenario:
    """A scenario and, by policy, the account of its job on `cluster`: all devices that the job may ever use."""

    scenario: Scenario
    profile: Profile
    cluster: Cluster
    accounts: Mapping[str, Account]


class ScenarioResults:
    """The latest scenarios asked for, simulated. Safe to use from several threads; one is simulated at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._overheads = shipped_overheads()
        self._simulated = lru_cache(_KEPT)(self._simulate)
        self._lock = threading.Lock()

    def get(self, name: str) -> SimulatedScenario:
        """The scenario kept under `name`, simulated at most once.

        Raises UnknownNameError, and InputError where it may not be simulated here (see `check`).
        """
        key = self._store.scenarios.resolve(name)
        with self._lock:
            return self._simulated(key)

    def _simulate(self, key: str) -> SimulatedScenario:
        """Names alone are looked up: a scenario that somebody sends must not open files."""
        scenario = self._store.scenarios.get(key)
        check(scenario)
        profile = self._store.profiles.get(scenario.profile)
        cluster = self._cluster(scenario).with_speed(scenario.speed)
        if scenario.overheads not in self._overheads:
            raise UnknownNameError.of("file of overheads", scenario.overheads, self._overheads)
        runtime = runtime_of(profile)
        plans = ScenarioPlans(scenario, profile, cluster, EXAMPLES, runtime)

        def plan_of(cluster: Cluster, before: Plan | None) -> Plan:
            plan = plans(cluster, before)
            require_size(profile, plan, cluster, runtime)
            return plan

        overheads = self._overheads[scenario.overheads]
        accounts = {
            name: simulate_job(scenario, profile, cluster, overheads, plan_of, name, runtime) for name in POLICIES
        }
        return SimulatedScenario(scenario=scenario, profile=profile, cluster=cluster, accounts=accounts)

    def _cluster(self, scenario: Scenario) -> Cluster:
        if scenario.cluster not in catalogue.presets():
            raise UnknownNameError.of("cluster (a preset is wanted here)", scenario.cluster, catalogue.presets())
        return catalogue.read_preset(scenario.cluster).build(scenario.devices)


def check(scenario: Scenario) -> None:
    """Raise InputError where simulating `scenario` would open a file or keep the server busy; UnknownNameError."""
    more = "; `shardscope scenario` takes more"
    require(len(scenario.events) <= MOST_EVENTS, "events", len(scenario.events), f"at most {MOST_EVENTS} here{more}")
    saved = scenario.duration_s / scenario.checkpoint_every_s
    require(saved <= MOST_CHECKPOINTS, "checkpoints", f"{saved:,.0f}", f"at most {MOST_CHECKPOINTS:,} here{more}")
    few = scenario.devices is None or 1 <= scenario.devices <= MOST_DEVICES
    require(few, "devices", scenario.devices, f"1 to {MOST_DEVICES} here{more}")
    require(not scenario.plan, "plan", scenario.plan, "a scenario has no plan of its own here; name a strategy")
    require(not searches(scenario.strategy), "strategy", scenario.strategy, f"it searches, which takes long{more}")
    for name, value in scenario.options.items():
        small = not isinstance(value, int) or 0 <= value <= 1024
        require(small, f"option {name}", value, f"0 to 1024 here{more}")


def shipped_scenarios() -> dict[str, Scenario]:
    """The example scenarios, where they are beside the packages."""
    scenarios = {}
    for path in sorted(EXAMPLES.glob("*.yaml")):
        try:
            scenario = read_scenario(path)
        except InputError:  # an example of something else
            continue
        scenarios[path.stem] = replace(scenario, overheads=Path(scenario.overheads).name)
    return scenarios


def shipped_overheads() -> dict[str, Overheads]:
    """What reconfigurations cost, by file name, as the example scenarios call them."""
    names = {scenario.overheads for scenario in shipped_scenarios().values()}
    return {name: read_overheads(EXAMPLES / name) for name in sorted(names)}
