"""The inputs that pages can name, and configurations of them, each simulated once. No Dash here."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import partitioners
from dashboard.state.configuration import OWN, Configuration, from_query
from dashboard.state.inventory import Inventory
from dashboard.state.validations import Stored
from simulator import collectives, files
from simulator.cluster import Cluster
from simulator.elastic.scenario import Scenario
from simulator.errors import InputError, ShardscopeError, UnknownNameError, require
from simulator.lowering.sharded_model import ShardedModel
from simulator.network import catalogue, topologies
from simulator.network.catalogue import ClusterFile
from simulator.plan import OPTIMIZERS, Plan, StepSettings, Synchronisation
from simulator.report.metrics import measure
from simulator.run import Run, run
from simulator.runtime import IDEAL, Runtime
from simulator.workload import Profile
from traces.results.executions import Execution
from traces.results.timeline_comparison import Comparison, compare

MOST_TASKS = 300_000
_OUTCOMES = 64
_REMEMBERED_TASKS = 2_000_000


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The simulation of a configuration: a run, or the reason why there is none.

    usual: the cluster before its links and speed were changed. took_s: wall-clock seconds of the simulation.
    """

    configuration: Configuration
    profile: Profile
    usual: Cluster | None = None
    cluster: Cluster | None = None
    run: Run | None = None
    reason: str = ""
    took_s: float = 0.0


class Store:
    """An inventory of each kind of input, and the latest outcomes. Safe to use from several threads."""

    def __init__(
        self,
        profiles: Mapping[str, Profile],
        *,
        validations: Mapping[str, Stored] | None = None,
        scenarios: Mapping[str, Scenario] | None = None,
    ) -> None:
        """By name; of each kind the first one is shown first. Raises InputError when there is no profile."""
        require(len(profiles) > 0, "profiles", "{}", "the dashboard needs at least one profile")
        self.profiles = Inventory("profile", profiles)
        self.validations = Inventory("validation", validations or {})
        self.scenarios = Inventory("scenario", scenarios or {})
        self.clusters: Inventory[ClusterFile] = Inventory("cluster", {})
        self.executions: Inventory[Execution] = Inventory(
            "execution", {}, lambda execution: execution.timeline.end_s.tobytes()
        )
        self._outcomes: OrderedDict[Configuration, Outcome] = OrderedDict()
        self._running: dict[Configuration, threading.Lock] = {}
        self._lock = threading.Lock()

    def default(self) -> Configuration:
        """What the first screen shows: a pipeline of the first profile."""
        first = next(iter(self.profiles.everything()))
        return Configuration(profile=first, cluster="cpu-1g", strategy="pipeline", devices=4, microbatches=8)

    def read(self, query: str) -> tuple[Configuration, list[str]]:
        """The configuration of a URL query, of a known profile and cluster, and what had to be changed about it."""
        configuration, problems = from_query(query, self.default())
        try:
            profile = self.profiles.resolve(configuration.profile)
        except UnknownNameError as error:
            return replace(configuration, profile=self.default().profile), [*problems, str(error)]
        if profile != configuration.profile and "@" in configuration.profile:
            problems.append(f"the profile of the link is not kept here; using {profile}")
        if configuration.cluster not in catalogue.presets() and configuration.cluster not in self.clusters.everything():
            problems.append(f"the cluster {configuration.cluster} is not kept here: drop its file again")
            configuration = replace(configuration, cluster=self.default().cluster)
        return replace(configuration, profile=profile), problems

    def outcome(self, configuration: Configuration) -> Outcome:
        """The outcome, computed at most once even when several threads ask. Raises UnknownNameError."""
        configuration = replace(configuration, profile=self.profiles.resolve(configuration.profile))
        with self._lock:
            running = self._running.setdefault(configuration, threading.Lock())
        with running:
            with self._lock:
                if configuration in self._outcomes:
                    self._outcomes.move_to_end(configuration)
                    return self._outcomes[configuration]
            outcome = _compute(
                configuration, self.profiles.get(configuration.profile), self.usual_cluster, self.runtime(configuration)
            )
            with self._lock:
                self._outcomes[configuration] = outcome
                self._forget()
                self._running.pop(configuration, None)
        return outcome

    def usual_cluster(self, configuration: Configuration) -> Cluster:
        """As many devices as asked of the preset, or the uploaded file, that the configuration names.

        Raises InputError where there are not so many, UnknownNameError.
        """
        if configuration.cluster in catalogue.presets():
            needed = collectives.load(configuration.collective).needs_server
            return catalogue.read_cluster(configuration.cluster, devices=configuration.devices, needs_server=needed)
        return topologies.take(self.clusters.get(configuration.cluster).cluster, configuration.devices)

    def runtime(self, configuration: Configuration) -> Runtime:
        """The runtime in the uploaded file that the configuration names, the ideal one for a preset."""
        known = self.clusters.everything()
        return known[configuration.cluster].runtime if configuration.cluster in known else IDEAL

    def actual(self, configuration: Configuration, name: str) -> tuple[Outcome, Comparison | None]:
        """The outcome of an execution of the configuration's plan in place of its simulation, and the two compared.

        Without a comparison, the outcome has the reason. Raises UnknownNameError.
        """
        predicted, execution = self.outcome(configuration), self.executions.get(name)
        if predicted.run is None or predicted.cluster is None:
            return predicted, None
        try:
            compared = compare(predicted.run.graph, predicted.run.timeline, execution.timeline)
        except InputError as error:
            reason = f"{error}; choose on Explore the profile, machine and strategy that the run was made with"
            return replace(predicted, run=None, reason=reason), None
        plan, graph, timeline = predicted.run.plan, predicted.run.graph, execution.timeline
        report = measure(ShardedModel(predicted.profile, plan), predicted.cluster, graph, timeline)
        return replace(predicted, run=Run(plan=plan, graph=graph, timeline=timeline, report=report)), compared

    def _forget(self) -> None:
        """Drop the outcomes that were not asked for the longest until the rest is small enough."""
        sizes = [outcome.run.report.tasks if outcome.run else 0 for outcome in self._outcomes.values()]
        while len(sizes) > 1 and (len(sizes) > _OUTCOMES or sum(sizes) > _REMEMBERED_TASKS):
            self._outcomes.popitem(last=False)
            sizes.pop(0)


def bundled(paths: Sequence[str] = ()) -> dict[str, Profile]:
    """Profiles to open a store with: those in the files `paths`, then the library's, vgg16 before the others."""
    opened = {Path(path).stem if path not in files.library() else path: files.read_profile(path) for path in paths}
    library = sorted(files.library(), key=lambda name: (name != "vgg16", name))
    return opened | {name: files.read_profile(name) for name in library if name not in opened}


def changed_cluster(usual: Cluster, configuration: Configuration) -> Cluster:
    """`usual` with its links and speed changed as the configuration says."""
    cluster = usual
    for tier in usual.tiers:
        bandwidth, latency = configuration.link_factors(tier)
        link = next(link for link in usual.links if link.tier == tier)
        if bandwidth != 1 or latency != 1:
            cluster = cluster.with_tier(
                tier,
                bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * bandwidth,
                latency_s=link.latency_s * latency,
            )
    return cluster if configuration.speed == 1 else cluster.with_speed(configuration.speed)


def build_plan(configuration: Configuration, profile: Profile, cluster: Cluster, runtime: Runtime = IDEAL) -> Plan:
    """The strategy's plan; controls that are of no use to it are left alone."""
    used = partitioners.applicable(
        configuration.strategy,
        microbatches=configuration.microbatches,
        seed=configuration.seed,
        effort=configuration.effort,
        imbalance=configuration.imbalance,
    )
    step = StepSettings(
        batch_size=configuration.batch_size or profile.batch_size,
        microbatches=used.pop("microbatches", None),
        schedule=None if configuration.schedule == OWN else configuration.schedule,
        synchronisation=Synchronisation(collective=configuration.collective, overlap=configuration.overlap),
        optimizer_state=OPTIMIZERS[configuration.optimizer],
        runtime=runtime,
    )
    return partitioners.make_plan(configuration.strategy, profile, cluster, step, **used)


def _compute(
    configuration: Configuration, profile: Profile, build: Callable[[Configuration], Cluster], runtime: Runtime
) -> Outcome:
    """build: makes the configuration's cluster as it usually is."""
    started, usual, cluster = time.perf_counter(), None, None
    try:
        usual = build(configuration)
        cluster = changed_cluster(usual, configuration)
        plan = build_plan(configuration, profile, cluster, runtime)
        plan.check(profile, cluster)
        require_size(profile, plan)
        result = run(profile, cluster, plan, runtime=runtime)
    except ShardscopeError as error:
        return Outcome(
            configuration=configuration, profile=profile, usual=usual, cluster=cluster, reason=str(error),
            took_s=time.perf_counter() - started,
        )  # fmt: skip
    took_s = time.perf_counter() - started
    return Outcome(
        configuration=configuration, profile=profile, usual=usual, cluster=cluster, run=result, took_s=took_s
    )


def require_size(profile: Profile, plan: Plan) -> None:
    """Raise InputError when lowering `plan` could make more tasks than a page should wait for.

    Counts every shard's two passes and, where producer and consumer are placed unlike each other, a message each
    way from every shard to every device of the consumer: an upper bound but for the gradients.
    """
    tasks = 0
    for position, layer in enumerate(profile.layers):
        placement = plan.placements[layer.name]
        shards = prod(placement.degrees)
        targets = {plan.placements[profile.layers[i].name] for i in profile.consumers[position]} - {placement}
        reached = len({device for target in targets for device in target.devices})
        tasks += 2 * shards * (1 + reached) * plan.microbatches
    if tasks > MOST_TASKS:
        raise InputError(
            f"the step may have {tasks:,} tasks: this page simulates up to {MOST_TASKS:,}; use fewer micro-batches or "
            "devices, or run it with the command under Export"
        )
