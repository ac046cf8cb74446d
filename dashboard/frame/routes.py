"""What the browser fetches beside callbacks: the timeline's spans, drawings, and a run in other forms: its exports."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from html import escape

from flask import Flask, Response, abort, request
from werkzeug.exceptions import HTTPException

import partitioners
from dashboard.figures import span_columns
from dashboard.figures.partition import partition
from dashboard.figures.partition import strategies as compared_strategies
from dashboard.figures.standalone import Section, standalone
from dashboard.state.alternatives import glances_at_hand
from dashboard.state.columns import columns_of, effective_split
from dashboard.state.configuration import OWN, SHARES_STATES, Configuration
from dashboard.state.flows import BETWEEN, INSIDE
from dashboard.state.inventory import label
from dashboard.state.planning import batch_of, tier_links
from dashboard.state.simulating import Outcome
from dashboard.state.store import Store
from simulator import collectives, files
from simulator.cluster import Cluster
from simulator.errors import UnknownNameError
from simulator.language_models.card_files import card_name
from simulator.report import chrome_trace
from simulator.run import Run, step_report
from simulator.sweep.export import csv_text

NOTHING = '<svg xmlns="http://www.w3.org/2000/svg" width="0" height="0"/>'


def add_routes(server: Flask, store: Store) -> None:
    """/spans, /partition.svg and /strategies.svg?<configuration>, /export/<file name>?<configuration>, and /leave."""

    @server.errorhandler(UnknownNameError)
    def unknown(error: UnknownNameError) -> tuple[str, int]:
        return escape(str(error)), 422

    @server.errorhandler(422)
    def refused(error: HTTPException) -> Response:
        return Response(error.description, 422, mimetype="text/plain")

    @server.get("/spans")
    def spans() -> Response:
        _, run, cluster = _asked(store)
        opened = request.args.get("group", type=int)
        return Response(span_columns.encode(run, cluster, opened), mimetype="application/octet-stream")

    @server.get("/partition.svg")
    def split() -> Response:
        outcome, run, cluster = _asked(store)
        assert outcome.flows is not None
        device = request.args.get("device", type=int)
        columns = columns_of(outcome.profile, run.plan)
        return Response(partition(columns, outcome.flows, cluster, device), mimetype="image/svg+xml")

    @server.get("/strategies.svg")
    def strategies() -> Response:
        """Of a configuration that cannot run, whose strip is fetched all the same, an empty drawing."""
        outcome = store.at_hand(store.read(request.query_string.decode())[0])
        run = outcome.run
        if run is None:
            return Response(NOTHING, mimetype="image/svg+xml")
        drawn = compared_strategies(columns_of(outcome.profile, run.plan), glances_at_hand(store.desk, outcome))
        return Response(drawn, mimetype="image/svg+xml")

    @server.post("/leave")
    def leave() -> tuple[str, int]:
        """The tab's name and its number of this request, as of panel/step."""
        tab, _, number = request.get_data(cache=False, as_text=True)[:80].partition(" ")
        store.desk.leave(tab[:64], int(number) if number.isdecimal() else None)
        return "", 204

    @server.get("/export/<name>")
    def export(name: str) -> Response:
        configuration, problems = store.read(request.query_string.decode())
        if problems:
            abort(422, "; ".join(problems))
        if name not in EXPORTS:
            abort(404, f"{name!r} is none of {', '.join(EXPORTS)}")
        outcome, (kind, needs, make) = _outcome(store, configuration, store.outcome), EXPORTS[name]
        if needs and getattr(outcome, needs) is None:
            abort(422, outcome.undrawn)
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(make(outcome), mimetype=kind, headers=headers)


def _asked(store: Store) -> tuple[Outcome, Run, Cluster]:
    """The run of the configuration in the request's query.

    Begins no simulation that no page waits for; what is unknown is as the page shows it. Answers 422 with the reason
    where there is none.
    """
    outcome = _outcome(store, store.read(request.query_string.decode())[0], store.at_hand)
    if outcome.run is None or outcome.cluster is None:
        abort(422, outcome.undrawn)
    return outcome, outcome.run, outcome.cluster


def _outcome(store: Store, configuration: Configuration, find: Callable[[Configuration], Outcome]) -> Outcome:
    """What is found of a configuration, or the execution that the request names as `actual`; 404 where it is gone."""
    actual = request.args.get("actual", "")
    try:
        return store.actual(configuration, actual)[0] if actual else find(configuration)
    except UnknownNameError as error:
        abort(404, str(error))


def command(outcome: Outcome) -> str:
    """The `shardscope simulate` that repeats a configuration, quoted for a shell."""
    now = outcome.configuration
    words = ["shardscope", "simulate", profile_argument(outcome), "--cluster", cluster_argument(outcome)]
    words += ["--devices", str(now.devices), *_link_words(outcome)]
    if now.plan:
        return shlex.join([*words, "--plan", f"{label(now.plan)}.json"])
    words += ["--strategy", now.strategy]
    words += ["--batch-size", str(batch_of(now, outcome.profile))]
    words += ["--microbatches", str(now.microbatches)] if now.microbatches and _takes(now, "microbatches") else []
    words += ["--schedule", now.schedule] if now.schedule != OWN else []
    words += ["--sync", now.collective] if now.collective != "ring" else []
    words += [] if now.overlap else ["--no-overlap"]
    words += ["--optimizer", now.optimizer] if now.optimizer != OWN else []
    words += ["--zero", str(now.zero_stage)] if now.zero_stage and now.strategy in SHARES_STATES else []
    words += ["--shard-group", str(now.shard_group)] if now.shard_group and now.strategy in SHARES_STATES else []
    words += ["--seed", str(now.seed)]
    words += ["--effort", f"{now.effort:g}"] if _takes(now, "effort") else []
    words += ["--set", f"imbalance={now.imbalance:g}"] if now.imbalance and _takes(now, "imbalance") else []
    for name in ("tensor", "pipeline", "context", "expert", "expert_tensor", "chunks", "recomputation"):
        value, usual = getattr(now, name), (0, "none") if name == "expert_tensor" else (0, 1, "none")
        words += ["--set", f"{name}={value}"] if value not in usual and _takes(now, name) else []
    return shlex.join(words)


def snippet(outcome: Outcome) -> str:
    """A Python script that repeats a run from its exported plan."""
    now = outcome.configuration
    lines = [f"cluster = read_cluster({cluster_argument(outcome)!r}, devices={now.devices}{_servers(now)})"]
    for option, tier, value in _changed_links(outcome):
        lines.append(f"cluster = cluster.with_tier({tier!r}, {option}={value!r})")
    lines += [f"cluster = cluster.with_speed({now.speed!r})"] if now.speed != 1 else []
    return "\n".join((
        "from simulator.files import read_plan",
        "from simulator.language_models.modelled_profile import read_profile_or_card",
        "from simulator.language_models.training_stack import runtime_of",
        "from simulator.network.catalogue import read_cluster, read_runtime",
        "from simulator.run import run",
        "",
        *lines,
        f"profile = read_profile_or_card({profile_argument(outcome)!r}, cluster)",
        'plan = read_plan("plan.json")  # Export > Plan',
        f"runtime = runtime_of(profile, read_runtime({cluster_argument(outcome)!r}))",
        "print(run(profile, cluster, plan, runtime=runtime).report)",
        "",
    ))  # fmt: skip


def profile_argument(outcome: Outcome) -> str:
    """The library's name of the profile, the card's, or the file that it was uploaded or opened from."""
    name, _, content = outcome.configuration.profile.partition("@")
    if name in files.library() or (card_name(name) and not content):
        return name
    return f"{name}.json" if content else f"{name}.yaml"


def cluster_argument(outcome: Outcome) -> str:
    """The preset's name, or the file that the cluster was uploaded from."""
    name = outcome.configuration.cluster
    return f"{label(name)}.yaml" if "@" in name else name


def partition_csv(outcome: Outcome) -> str:
    """Every layer: its split, what it computes on the most loaded device, and the bytes that it moves and repeats."""
    assert outcome.run is not None and outcome.flows is not None
    flows, rows = outcome.flows, []
    activations = flows.activation_bytes
    for i, layer in enumerate(outcome.profile.layers):
        sharding, seconds = outcome.run.plan.placements[layer.name], flows.seconds[i]
        rows.append({
            "layer": layer.name, "split": effective_split(sharding).words, "devices": len(sharding.device_set),
            "compute_s": float(seconds.sum()), "most_loaded_s": float(seconds.max()),
            "activation_bytes_inside_nodes": float(activations[i, INSIDE]),
            "activation_bytes_between_nodes": float(activations[i, BETWEEN]),
            "gradient_bytes_inside_nodes": float(flows.gradient_bytes[i, INSIDE]),
            "gradient_bytes_between_nodes": float(flows.gradient_bytes[i, BETWEEN]),
            "gathered_bytes_inside_nodes": float(flows.gathered_bytes[i, INSIDE]),
            "gathered_bytes_between_nodes": float(flows.gathered_bytes[i, BETWEEN]),
            "replicated_bytes": float(flows.replicated_bytes[i]),
        })  # fmt: skip
    return csv_text(rows)


def _report_html(outcome: Outcome) -> str:
    """The report that stands alone."""
    now, run, cluster = outcome.configuration, outcome.run, outcome.cluster
    assert run is not None and cluster is not None
    title = f"{now.planner} on {now.devices} × {cluster.name}"
    section = Section(title=title, profile=outcome.profile, cluster=cluster, run=run, note=command(outcome))
    return standalone([section])


def _report_json(outcome: Outcome) -> str:
    """That of a step that is counted alone is made again, with its layers."""
    report, counted, cluster = outcome.report, outcome.counted, outcome.cluster
    if counted is not None and cluster is not None:
        report = step_report(outcome.profile, cluster, counted.plan, runtime=counted.runtime)
    assert report is not None
    return json.dumps(report.to_dict(), indent=1)


def _plan_json(outcome: Outcome) -> str:
    """With the command that makes it, as commands write theirs."""
    assert outcome.plan is not None
    return files.to_json(replace(outcome.plan, command=command(outcome)))


def _trace_json(outcome: Outcome) -> str:
    run, cluster = outcome.run, outcome.cluster
    assert run is not None and cluster is not None
    return json.dumps(chrome_trace.trace(run.graph, cluster, run.timeline), allow_nan=False)


def _tasks_csv(outcome: Outcome) -> str:
    run, cluster = outcome.run, outcome.cluster
    assert run is not None and cluster is not None
    return csv_text(span_columns.table_rows(run, cluster, 0, len(run.graph), "start_ms", descending=False))


EXPORTS: Mapping[str, tuple[str, str, Callable[[Outcome], str]]] = {
    "report.json": ("application/json", "report", _report_json),
    "plan.json": ("application/json", "plan", _plan_json),
    "trace.json": ("application/json", "run", _trace_json),
    "tasks.csv": ("text/csv", "run", _tasks_csv),
    "partition.csv": ("text/csv", "run", partition_csv),
    "command.sh": ("text/plain", "", lambda outcome: command(outcome) + "\n"),
    "repeat.py": ("text/plain", "plan", snippet),
    "report.html": ("text/html", "run", _report_html),
    "profile.json": ("application/json", "", lambda outcome: files.to_json(outcome.profile)),
}
"""File name -> (media type, what of an outcome it is made of beside the configuration, what makes it)."""


def _takes(now: Configuration, option: str) -> bool:
    return option in partitioners.options(now.strategy)


def _servers(now: Configuration) -> str:
    needed = collectives.load(now.collective).needs_server and "@" not in now.cluster
    return ", servers=1" if needed else ""


def _link_words(outcome: Outcome) -> list[str]:
    names = {"bandwidth_bytes_per_s": ("--bandwidth", "B/s"), "latency_s": ("--latency", "s")}
    words = []
    for option, tier, value in _changed_links(outcome):
        flag, unit = names[option]
        words += [flag, f"{tier}={value:.12g}{unit}"]
    speed = outcome.configuration.speed
    return words + (["--speed", f"{speed:g}"] if speed != 1 else [])


def _changed_links(outcome: Outcome) -> list[tuple[str, str, float]]:
    """(option of with_tier, tier, value) of what the configuration changes about the cluster's links."""
    before, after = outcome.usual, outcome.cluster
    changed: list[tuple[str, str, float]] = []
    if before is None or after is None:
        return changed
    for tier in after.tiers:
        old, new = (tier_links(cluster)[tier] for cluster in (before, after))
        for option, value in (("bandwidth_bytes_per_s", "nominal_bytes_per_s"), ("latency_s", "latency_s")):
            if getattr(old, value) != getattr(new, value):
                changed.append((option, tier, getattr(new, value)))
    return changed
