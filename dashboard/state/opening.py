"""Files that a user opens on any page: known by what they hold, shown where that is shown, or answered in one verdict:
a trace or a log beside the step of the controls, ranks beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median_low
from typing import Any
from urllib.parse import parse_qs, urlencode

from dashboard.state import uploads
from dashboard.state.configuration import VERSION, Configuration
from dashboard.state.measures import sequence_length, utilisation
from dashboard.state.simulating import Outcome
from dashboard.state.store import Store
from dashboard.state.validations import Stored
from simulator.errors import InputError
from simulator.network.catalogue import ClusterFile, presets
from simulator.plan import Plan
from simulator.readers._log import RunLog, read_log, steady
from simulator.report.step_causes import NOT_ENOUGH, alone, beside, farthest_off, step_causes
from traces.imports._aligned_ranks import align_ranks, answer, changed
from traces.imports._imported import ImportOptions
from traces.imports._ranks import read_ranks
from traces.imports._recorded_phases import read_phases
from traces.imports._registry import import_files

OF_MODELS = ("/plans", "/compare", "/sweep", "/profiles")
"""Pages that show any model and cluster; from the others one is shown on Explore."""
_CHANGING = frozenset({
    "--bandwidth", "--latency", "--efficiency", "--speed", "--memory", "--servers", "--sequence", "--stack",
    "--precision", "--launch", "--config",
})  # fmt: skip
"""Options of a plan's command without which its model or machine is another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What came of files: the address of a page that shows them, or what they say."""

    address: str = ""
    title: str = ""
    lines: Sequence[str] = ()


def opened(store: Store, path: str, query: str, sent: Sequence[tuple[str, bytes]]) -> Opened:
    """What these files (names and contents) are on the page of an address. Raises InputError."""
    if len(sent) != 1:
        lines = uploads.together(sent, of_ranks)
        return Opened(title=f"{len(sent)} files: the ranks of one step", lines=lines)
    ((name, text),) = sent
    now = store.resolved(store.read(query)[0])
    kind = uploads.kind(text, name)
    if kind in ("trace", "log"):
        of = of_trace if kind == "trace" else of_log
        title = f"{Path(name).name[:80]}: a {kind}, beside the step of the controls"
        return Opened(title=title, lines=uploads.read(text, name, lambda file: of(file, store.outcome(now))))
    shown, own = _kept(store, now, kind, name.removesuffix(".gz"), text)
    page = own.pop("page", path if path in OF_MODELS else "/")
    base = parse_qs(query.removeprefix("?")).get("base", [])
    return Opened(address=f"{page}?{shown}&{urlencode({**({'base': base[0]} if base else {}), **own}, safe='@')}")


def _kept(store: Store, now: Configuration, kind: str, name: str, text: bytes) -> tuple[str, dict[str, str]]:
    """Keeps a file's content; the query that shows it, and what else its page is told."""
    if kind == "execution":
        return now.query(), {"page": "/compare", "against": store.executions.put(name, uploads.execution(text, name))}
    if kind == "scenario":
        return now.query(), {"page": "/scenario", "scenario": store.scenarios.put(name, uploads.scenario(text, name))}
    if kind == "validation":
        stored = Stored(validation=uploads.validation(text, name))
        return now.query(), {"page": "/validate", "validation": store.validations.put(name, stored)}
    if kind == "plan":
        plan = uploads.plan(text, name)
        return replace(_made_for(store, now, plan), plan=store.plans.put(name, plan)).query(), {"page": "/"}
    if kind == "cluster":
        cluster = uploads.cluster(text, name)
        return replace(now, cluster=store.clusters.put(name, cluster), devices=cluster.workers).query(), {}
    if kind == "measurement":
        return _imported(store, now, name, text), {}
    key = store.put_card(text, name) if kind == "model card" else store.profiles.put(name, uploads.profile(text, name))
    return _of_model(now, key), {}


def _made_for(store: Store, now: Configuration, plan: Plan) -> Configuration:
    """What a plan is opened on: what is shown where that is of its model, else the model and machine of its command."""
    if store.suits(plan, now):
        return now
    words = [part for word in plan.command.split() for part in word.split("=", 1)]
    model = Path("".join(words[2:3])).name.removesuffix(".json").removesuffix(".yaml")
    said = {"--profile": model} | dict(pairwise(words))
    named = {name: said.get(f"--{name}", "") for name in ("profile", "cluster", "devices", "strategy")}
    known = store.has_profile(named["profile"]) and named["cluster"] in presets() and named["devices"].isdecimal()
    return store.read(urlencode(named))[0] if known and _CHANGING.isdisjoint(words) else now


def _of_model(now: Configuration, profile: str) -> str:
    """Another model on the same machine, split as it opens."""
    machine: Mapping[str, Any] = {"cluster": now.cluster, "devices": now.devices}
    return urlencode({"v": VERSION, "profile": profile, **machine}, safe="@")


def _imported(store: Store, now: Configuration, name: str, text: bytes) -> str:
    """A profile of layers that others measured, or the shown cluster with curves of its collectives."""
    imported = uploads.read(text, name, lambda path: import_files([path], ImportOptions()))
    if imported.profile is not None:
        return _of_model(now, store.profiles.put(name, imported.profile))
    if not imported.collectives:
        raise InputError(f"{Path(name).name[:80]}: it holds no collective at two sizes, so no curve")
    cluster = store.usual_cluster(now)
    measured = replace(cluster, collectives={**cluster.collectives, **imported.collectives})
    return replace(now, cluster=store.clusters.put(name, ClusterFile.of(measured, store.runtime(now)))).query()


def of_ranks(folder: Path) -> list[str]:
    """What the traces in a folder say, one per rank of a step. Raises InputError."""
    aligned = align_ranks(read_ranks(folder))
    return [*answer(aligned), *changed(aligned)]


def of_trace(path: Path, outcome: Outcome) -> list[str]:
    """A trace of one rank beside the predicted step of its device. Raises InputError."""
    recorded = read_phases(path)
    return list(_beside(recorded.steps_s, outcome, recorded.causes_s, recorded.rank))


def of_log(path: Path, outcome: Outcome) -> list[str]:
    """The steady steps of a log, or times alone, beside the predicted step. Raises InputError."""
    log = read_log(path)
    steps = steady(_steps_s(log, outcome), log.marks)
    return [*_beside([steps.step_s], outcome, {}), steps.words]


def _steps_s(log: RunLog, outcome: Outcome) -> list[float]:
    """Seconds of each step, whatever the log says of its speed: by the FLOP of the profile and its devices' peak."""
    report, cluster, profile = outcome.report, outcome.cluster, outcome.profile
    if report is None or cluster is None:
        raise InputError(f"there is no step to compare it with: {outcome.reason}")
    sequence = sequence_length(profile) or 1
    flops_per_token = profile.flops_per_sample / sequence
    tokens, busy = report.batch_size * sequence, utilisation(profile, cluster, report)
    if (log.kind == "mfu" and not busy) or (log.kind == "device_tflops" and not flops_per_token):
        raise InputError(f"the log says {log.kind} alone, which this model on these devices has not: give step times")
    peak = flops_per_token * tokens / report.step_s / busy if busy else 1.0
    return log.steps_s(tokens, sequence, outcome.configuration.devices, flops_per_token, peak)


def _beside(
    steps_s: Sequence[float], outcome: Outcome, causes_s: Mapping[str, float], rank: int | None = None
) -> Iterator[str]:
    """The recorded steps beside the step of the controls: whether it is as predicted, and what explains it else."""
    if outcome.interval is None:
        raise InputError(f"there is no step to compare it with: {outcome.reason}")
    yield from beside(steps_s, outcome.interval)
    if outcome.run is None:
        return
    run, uses = outcome.run, outcome.run.report.devices
    device = rank if rank in run.plan.devices else max(run.plan.devices, key=lambda number: uses[number].compute_s)
    predicted_s = step_causes(run.graph, run.timeline, device, uses[device])
    if causes_s:
        yield from farthest_off(causes_s, predicted_s)
        return
    longer = alone(predicted_s, median_low(steps_s) - run.report.step_s)
    enough = [f"{cause} {words}" for cause, words in longer.items() if words != NOT_ENOUGH]
    if enough:
        yield f"any of these alone would explain it: {', '.join(enough)}"
