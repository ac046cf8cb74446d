"""Files that a user opens on any page: known by what they hold, shown where that is shown, or answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

from dashboard.state import recorded, uploads
from dashboard.state.configuration import VERSION, Configuration
from dashboard.state.store import Store
from dashboard.state.validations import Stored
from simulator.errors import InputError
from simulator.network.catalogue import ClusterFile
from traces.imports._imported import ImportOptions
from traces.imports._registry import import_files

OF_MODELS = ("/plans", "/compare", "/sweep", "/profiles")
"""Pages that show any model and cluster; from the others one is shown on Explore."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What came of files: the address of a page that shows them, or what they say."""

    address: str = ""
    title: str = ""
    lines: Sequence[str] = ()


def opened(store: Store, path: str, query: str, sent: Sequence[tuple[str, bytes]]) -> Opened:
    """What these files (names and contents) are on the page of an address. Raises InputError."""
    if len(sent) != 1:
        lines = uploads.together(sent, recorded.of_ranks)
        return Opened(title=f"{len(sent)} files: the ranks of one step", lines=lines)
    ((name, text),) = sent
    now = store.resolved(store.read(query)[0])
    kind = uploads.kind(text, name)
    if kind in ("trace", "log"):
        of = recorded.of_trace if kind == "trace" else recorded.of_log
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
        return replace(now, plan=store.plans.put(name, uploads.plan(text, name))).query(), {"page": "/"}
    if kind == "cluster":
        cluster = uploads.cluster(text, name)
        return replace(now, cluster=store.clusters.put(name, cluster), devices=cluster.workers).query(), {}
    if kind == "measurement":
        return _imported(store, now, name, text), {}
    key = store.put_card(text, name) if kind == "model card" else store.profiles.put(name, uploads.profile(text, name))
    return _of_model(now, key), {}


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
