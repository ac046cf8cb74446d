"""Live through a training run whose devices join, leave, vanish and slow down: throughput, time lost, cost.

    shardscope scenario examples/spot-cluster.yaml --output day.html

The other policy is lived through too, for comparison. `simulator/elastic/scenario.py` says what a scenario file holds.
"""

from __future__ import annotations

import argparse
from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.cli import _results

if TYPE_CHECKING:
    from simulator.cluster import Cluster
    from simulator.elastic.job_account import Account
    from simulator.elastic.scenario import Scenario
    from simulator.plan import Plan
    from simulator.sweep.chart import Chart
    from simulator.workload import Profile

INTERVALS = 72
CLOSE = ("grid", "imbalance", "seed")
"""Options of a strategy that a cut close to the plan before takes too."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenario", metavar="SCENARIO.yaml", help="what happens when; see examples/spot-cluster.yaml")
    parser.add_argument("--policy", choices=["live", "restart"], help="instead of the file's")
    parser.add_argument(
        "--output", metavar="FILE", action="append", default=[], type=Path,
        help="write throughput over time (.html, .png) or what each event cost (.csv, .parquet); repeatable",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the account as JSON instead")


def run(args: argparse.Namespace) -> int:
    from simulator import files
    from simulator.cli import _printing, _scenario
    from simulator.elastic.job import live_through
    from simulator.elastic.reconfiguration import read_overheads
    from simulator.elastic.scenario import POLICIES, read_scenario

    _results.check_outputs(args.output)
    place = Path(args.scenario).parent
    scenario = read_scenario(args.scenario)
    profile = files.read_profile(_beside(place, scenario.profile))
    cluster = files.read_cluster(_beside(place, scenario.cluster), devices=scenario.devices).with_speed(scenario.speed)
    overheads = read_overheads(place / scenario.overheads)
    plans = Plans(scenario, profile, cluster, place)
    policy = args.policy or scenario.policy
    accounts = {
        name: live_through(scenario, profile, cluster, overheads, plans, name)
        for name in (policy, *(other for other in POLICIES if other != policy))
    }
    picture = _chart(accounts, args.scenario)
    _results.write_outputs(args.output, _scenario.rows(accounts[policy]), picture)
    if args.json:
        others = {name: account.to_dict() for name, account in accounts.items() if name != policy}
        _printing.print_json({**accounts[policy].to_dict(), "other_policies": others}, "")
    else:
        _scenario.print_accounts(scenario, accounts, profile, cluster, picture)
    return 0


class Plans:
    """The plan for the devices that are there: the scenario's file for the first ones, otherwise its strategy's."""

    def __init__(self, scenario: Scenario, profile: Profile, cluster: Cluster, place: Path) -> None:
        from simulator import files

        self._scenario, self._profile = scenario, profile
        self._first = files.read_plan(place / scenario.plan) if scenario.plan else None
        self._names = [cluster.devices[i].name for i in scenario.first_members(cluster)]

    def __call__(self, cluster: Cluster, old: Plan | None) -> Plan:
        names = [device.name for device in cluster.devices[: cluster.workers]]
        if self._first is not None and names == self._names:
            return self._first
        import partitioners
        from partitioners._repartition import repartition

        scenario = self._scenario
        if old is not None:
            return repartition(self._profile, cluster, old, migration=scenario.migration, **_options(scenario, CLOSE))
        batch_size = scenario.batch_size or (self._first or self._profile).batch_size
        partition = partitioners.load(scenario.strategy)
        return partition(self._profile, cluster, batch_size=batch_size, **_options(scenario))


def _options(scenario: Scenario, wanted: Container[str] | None = None) -> dict[str, Any]:
    """The strategy's options (those `wanted`), lists as tuples. Raises UnknownNameError for one it does not take."""
    import partitioners
    from simulator.errors import UnknownNameError

    known = partitioners.options(scenario.strategy)
    for name in scenario.options:
        if name not in known:
            raise UnknownNameError.of(f"option of strategy {scenario.strategy}", name, known)
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in scenario.options.items()
        if wanted is None or name in wanted
    }


def _beside(place: Path, source: str) -> str:
    """A file beside the scenario where there is one; else a name, or a path as it stands."""
    return str(place / source) if (place / source).is_file() else source


def _chart(accounts: dict[str, Account], title: str) -> Chart:
    from simulator.sweep.chart import Chart, Series

    series = []
    for name, account in accounts.items():
        edges_s, rates = account.throughput(INTERVALS)
        hours = edges_s[:-1] / 3600
        series.append(Series(name=name, x=tuple(hours.tolist()), y=tuple(rates.tolist())))
    return Chart(title=title, x="hours", y="samples_per_s", series=tuple(series))
