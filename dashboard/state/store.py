"""The inputs that pages can name, and configurations of them, each simulated once. No Dash here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from urllib.parse import parse_qsl
from weakref import finalize

from dashboard.state import uploads
from dashboard.state.alternatives import in_a_node
from dashboard.state.configuration import Configuration, from_query
from dashboard.state.desk import Desk
from dashboard.state.inventory import Inventory, label
from dashboard.state.planning import usual_cluster
from dashboard.state.simulating import Outcome, Request
from dashboard.state.validations import Stored
from simulator import files
from simulator.cluster import Cluster
from simulator.elastic.scenario import Scenario
from simulator.errors import InputError, UnknownNameError, require
from simulator.kept import Kept
from simulator.language_models.card_files import card_name, is_card
from simulator.language_models.card_files import cards as shipped_cards
from simulator.lowering.sharded_model import ShardedModel
from simulator.network import catalogue
from simulator.network.catalogue import ClusterFile
from simulator.owned_files import folder_prefix
from simulator.plan import Plan
from simulator.report.metrics import measure
from simulator.run import Run
from simulator.runtime import IDEAL, Runtime
from simulator.workload import Profile
from traces.results.executions import Execution
from traces.results.timeline_comparison import Comparison, compare

_CLUSTERS = {"V100": "azure-v100-10g", "A100": "dgx-a100", "H100": "dgx-h100"}
"""The preset that the first screen shows a profile on, by what the name of its device holds."""
FIRST = "vgg16_v100"
"""The profile of the library that is shown first: on eight GPUs of its preset all work, by a plan that no other has."""
_MODELLED = 64
"""Profiles of cards that are kept, by card and cluster."""


class Store:
    """An inventory of each kind of input, and the latest outcomes. Safe to use from several threads."""

    def __init__(
        self,
        profiles: Mapping[str, Profile],
        *,
        validations: Mapping[str, Stored] | None = None,
        scenarios: Mapping[str, Scenario] | None = None,
        cards: Mapping[str, str] | None = None,
        first: str = "",
    ) -> None:
        """By name; of each kind the first one is shown first. Raises InputError when there is no profile.

        cards: where model cards beside those that ship are read from. first: the profile or card shown first instead.
        """
        require(len(profiles) > 0, "profiles", "{}", "the dashboard needs at least one profile")
        self.profiles = Inventory("profile", profiles)
        self.validations = Inventory("validation", validations or {})
        self.scenarios = Inventory("scenario", scenarios or {})
        self.plans: Inventory[Plan] = Inventory("plan", {})
        self.clusters: Inventory[ClusterFile] = Inventory("cluster", {})
        self.executions: Inventory[Execution] = Inventory(
            "execution", {}, lambda execution: execution.timeline.end_s.tobytes()
        )
        self.cards = dict(cards or {}) | {name: name for name in shipped_cards()}
        self._first = first
        self._folder = ""
        """Of uploaded cards, made for the first."""
        self._modelled = Kept(_MODELLED)
        self.desk = Desk(self.request)

    def default(self) -> Configuration:
        """What the first screen shows: the hypergraph's plan on GPUs like the first profile's, else a pipeline.

        Of a card a grid with a node's GPUs in a tensor group.
        """
        first = self.identity(self._first) if self._first else next(iter(self.profiles.everything()))
        if first in self.cards:
            return self._of_card(first)
        profile = self.profiles.get(first)
        for kind, cluster in _CLUSTERS.items():
            if kind in profile.device:
                return Configuration(profile=first, cluster=cluster, strategy="hypergraph", devices=8)
        return Configuration(profile=first, cluster="cpu-1g", strategy="pipeline", devices=4, microbatches=8)

    def _of_card(self, card: str) -> Configuration:
        now = Configuration(profile=card, cluster="dgx-h100", strategy="megatron", devices=8)
        return in_a_node(now, self.profile(now))

    def read(self, query: str) -> tuple[Configuration, list[str]]:
        """The configuration of a URL query, of a known profile and cluster, and what had to be changed about it.

        What a link to a card leaves out is as a card opens. Raises UnknownNameError for a profile that is not there:
        no other one's numbers stand in for its own.
        """
        named = dict(parse_qsl(query.removeprefix("?"))).get("profile", "")
        card = self.identity(named) if named else ""
        configuration, problems = from_query(query, self._of_card(card) if card in self.cards else self.default())
        profile = self.identity(configuration.profile)
        if profile != configuration.profile and "@" in configuration.profile:
            problems.append(f"the profile of the link is not kept here; using {profile}")
        if configuration.cluster not in catalogue.presets() and configuration.cluster not in self.clusters.everything():
            problems.append(f"the cluster {configuration.cluster} is not kept here: drop its file again")
            configuration = replace(configuration, cluster=self.default().cluster)
        if configuration.plan and configuration.plan not in self.plans.everything():
            problems.append(f"the plan {configuration.plan[:60]} is not kept here: drop its file again")
            configuration = replace(configuration, plan="")
        return replace(configuration, profile=profile), problems

    def put_card(self, text: bytes, filename: str) -> str:
        """Keep an uploaded model card, in a file as the others; its identity. Raises InputError."""
        uploads.card(text, filename)
        name = Path(filename).stem[:60]
        key = f"{name}@{sha256(text).hexdigest()[:10]}"
        if not self._folder:
            self._folder = mkdtemp(prefix=folder_prefix())
            finalize(self, rmtree, self._folder, ignore_errors=True)
        path = Path(self._folder) / key.partition("@")[2] / f"{name}{Path(filename).suffix[:8]}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text)
        self.cards[key] = str(path)
        return key

    def outcome(self, configuration: Configuration) -> Outcome:
        """The outcome, computed at most once even when several threads ask. Raises UnknownNameError."""
        return self.desk.outcome(self.resolved(configuration))

    def at_hand(self, configuration: Configuration) -> Outcome:
        """The outcome of what was simulated before, or of the best plan so far of what is searched.

        Of anything else an outcome without a run, and nothing begins.
        """
        resolved = self.resolved(configuration)
        if self.desk.workers is None or self.desk.known(resolved) or self.desk.glance(resolved):
            return self.desk.outcome(resolved)
        if (so_far := self.desk.so_far(resolved)) is not None:
            return so_far
        profile = self.profile(resolved)
        return Outcome(configuration=resolved, profile=profile, reason="this was not simulated")

    def resolved(self, configuration: Configuration) -> Configuration:
        """The configuration with the profile's whole identity. Raises UnknownNameError."""
        return replace(configuration, profile=self.identity(configuration.profile))

    def identity(self, name: str) -> str:
        """What a profile or card of that name is called everywhere. Raises UnknownNameError."""
        card = name if name in self.cards else card_name(name) or ""
        if card in self.cards and not any(label(key) == name for key in self.profiles.everything()):
            return card
        try:
            return self.profiles.resolve(name)
        except UnknownNameError:
            raise UnknownNameError.of("profile or model card", label(name)[:60], self.profile_names()) from None

    def has_profile(self, name: str) -> bool:
        """Whether `identity` knows the name."""
        with suppress(UnknownNameError):
            return bool(self.identity(name))
        return False

    def profile_names(self) -> list[str]:
        """Every profile and card by the name that a link may have."""
        return [*map(label, self.profiles.everything()), *self.cards]

    def profile(self, configuration: Configuration) -> Profile:
        """The configuration's profile; of a card, the one modelled on the GPUs of its cluster.

        Raises UnknownNameError, and of a card what its reader does.
        """
        from simulator.language_models.modelled_profile import read_profile_or_card  # takes a while to load

        name = self.identity(configuration.profile)
        if name not in self.cards:
            return self.profiles.get(name)

        def modelled() -> Profile:
            uploaded = self._uploaded(configuration)
            cluster = uploaded.cluster if uploaded else catalogue.read_cluster(configuration.cluster)
            return read_profile_or_card(self.cards[name], cluster)

        return self._modelled.get((name, configuration.cluster), modelled)

    def suits(self, plan: Plan, configuration: Configuration) -> bool:
        """Whether a plan is of the model of a configuration, with its layers. Raises as `profile` does."""
        profile = self.profile(configuration)
        return plan.model == profile.model and plan.placements.keys() == {layer.name for layer in profile.layers}

    def usual_cluster(self, configuration: Configuration) -> Cluster:
        """As many devices as asked of the preset, or the uploaded file, that the configuration names.

        Raises InputError where there are not so many, UnknownNameError.
        """
        return usual_cluster(configuration, self._uploaded(configuration))

    def runtime(self, configuration: Configuration) -> Runtime:
        """The runtime in the uploaded file that the configuration names, the ideal one for a preset."""
        uploaded = self._uploaded(configuration)
        return uploaded.runtime if uploaded else IDEAL

    def _uploaded(self, configuration: Configuration) -> ClusterFile | None:
        preset = configuration.cluster in catalogue.presets()
        return None if preset else self.clusters.get(configuration.cluster)

    def request(self, configuration: Configuration) -> Request:
        """What simulating a resolved configuration needs. Raises UnknownNameError."""
        return Request(
            configuration=configuration,
            profile=self.profile(configuration),
            uploaded=self._uploaded(configuration),
            card=self.cards.get(configuration.profile, ""),
            plan=self.plans.get(configuration.plan) if configuration.plan else None,
        )

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


def bundled(paths: Sequence[str] = ()) -> dict[str, Profile]:
    """Profiles to open a store with: those in the files `paths`, then the library's, FIRST before the others.

    Cards among `paths` are left to `given_cards`. Raises as the readers do.
    """
    opened = {opened_name(path): files.read_profile(path) for path in paths if not is_card(path)}
    library = sorted(files.library(), key=lambda name: (name != FIRST, name))
    return opened | {name: files.read_profile(name) for name in library if name not in opened}


def given_cards(paths: Sequence[str]) -> dict[str, str]:
    """The model cards among `paths` by name: a file's, or that of a card that ships. Raises UnknownNameError."""
    return {opened_name(path): card_name(path) or path for path in paths if is_card(path)}


def opened_name(path: str) -> str:
    """What a profile or card that was named at the start is called: a file by its name alone."""
    return card_name(path) or (path if path in files.library() else Path(path).stem)
