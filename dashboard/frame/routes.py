"""What the browser fetches beside callbacks: the timeline's spans and the exported files."""

from __future__ import annotations

from html import escape

from flask import Flask, Response, abort, request

from dashboard.figures import span_columns
from dashboard.figures.partition import partition
from dashboard.figures.partition import strategies as compared_strategies
from dashboard.figures.partition_rows import Strip
from dashboard.figures.standalone import Section, standalone
from dashboard.frame.exports import EXPORTS, command
from dashboard.state.alternatives import glances_at_hand
from dashboard.state.columns import columns_of
from dashboard.state.inventory import label
from dashboard.state.simulating import Glance, Outcome
from dashboard.state.store import Store
from dashboard.words.kpis import seconds_range
from dashboard.words.volume import ByteUnit, shown_unit
from simulator.cluster import Cluster
from simulator.errors import UnknownNameError
from simulator.run import Run
from simulator.units import format_time

NOTHING = '<svg xmlns="http://www.w3.org/2000/svg" width="0" height="0"/>'


def add_routes(server: Flask, store: Store) -> None:
    """/spans, /partition.svg and /strategies.svg?<configuration>, /export/<file name>?<configuration>, and /leave."""

    @server.errorhandler(UnknownNameError)
    def unknown(error: UnknownNameError) -> tuple[str, int]:
        return escape(str(error)), 422

    @server.get("/spans")
    def spans() -> Response:
        _, run, cluster = _asked(store, only_at_hand=True)
        opened = request.args.get("group", type=int)
        return Response(span_columns.encode(run, cluster, opened), mimetype="application/octet-stream")

    @server.get("/partition.svg")
    def split() -> Response:
        outcome, run, cluster = _asked(store, only_at_hand=True)
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
        drawn = list(glances_at_hand(store.desk, outcome).items())
        data = next((g.by_layer for option, g in drawn if g is not None and g.fits and option.strategy == "data"), None)
        columns = columns_of(outcome.profile, run.plan)
        best_s = min((g.step_s for _, g in drawn if g is not None and g.fits), default=0.0)
        unit = shown_unit(glance for _, glance in drawn)
        lines = [
            _strip(f"plan {label(option.plan)}" if option.plan else option.strategy, glance, best_s, unit)
            for option, glance in drawn
        ]
        return Response(compared_strategies(columns, lines, data), mimetype="image/svg+xml")

    @server.post("/leave")
    def leave() -> tuple[str, int]:
        """The tab's name and its number of this request, as of panel/step."""
        tab, _, number = request.get_data(cache=False, as_text=True)[:80].partition(" ")
        store.desk.leave(tab[:64], int(number) if number.isdecimal() else None)
        return "", 204

    @server.get("/export/<name>")
    def export(name: str) -> Response:
        outcome, run, cluster = _asked(store)
        if name == "report.html":
            title = f"{outcome.configuration.strategy} on {outcome.configuration.devices} × {cluster.name}"
            note = command(outcome)
            section = Section(title=title, profile=outcome.profile, cluster=cluster, run=run, note=note)
            return _file(name, "text/html", standalone([section]))
        if name not in EXPORTS:
            abort(404, f"{name!r} is none of {', '.join((*EXPORTS, 'report.html'))}")
        kind, make = EXPORTS[name]
        return _file(name, kind, make(outcome, run, cluster))


def _strip(name: str, glance: Glance | None, best_s: float, unit: ByteUnit) -> Strip:
    if glance is None:
        return Strip(name=name, note="simulated in the background …")
    if not glance.ran:
        return Strip(name=name, note=glance.reason)
    if glance.by_layer is None:
        return Strip(name=name, note=f"{format_time(glance.step_s)}; too many tasks to draw")
    return Strip(
        name=name, bytes=glance.by_layer, total=unit.words(glance.total_bytes), step=format_time(glance.step_s),
        expected=seconds_range(glance.interval_s), load=f"{glance.load_balance_ratio:.2f}",
        best=glance.step_s == best_s,
    )  # fmt: skip


def _file(name: str, kind: str, text: str) -> Response:
    return Response(text, mimetype=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})


def _asked(store: Store, *, only_at_hand: bool = False) -> tuple[Outcome, Run, Cluster]:
    """The run of the configuration in the request's query, or the execution it names as `actual`.

    Answers 422 with the reason where there is none. only_at_hand: begin no simulation that no page waits for, and draw
    what the page shows in place of what is unknown; otherwise that, too, is answered by 422.
    """
    configuration, problems = store.read(request.query_string.decode())
    if problems and not only_at_hand:
        abort(422, "; ".join(problems))
    actual = request.args.get("actual", "")
    try:
        find = store.at_hand if only_at_hand else store.outcome
        outcome = store.actual(configuration, actual)[0] if actual else find(configuration)
    except UnknownNameError as error:
        abort(404, str(error))
    if outcome.run is None or outcome.cluster is None:
        abort(422, outcome.undrawn)
    return outcome, outcome.run, outcome.cluster
