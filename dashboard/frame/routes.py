"""What the browser fetches beside callbacks: the timeline's spans and the exported files."""

from __future__ import annotations

from html import escape

from flask import Flask, Response, abort, request

from dashboard.figures import span_columns
from dashboard.figures.partition import partition
from dashboard.figures.partition import strategies as compared_strategies
from dashboard.frame.exports import EXPORTS
from dashboard.state.alternatives import glances_at_hand
from dashboard.state.columns import columns_of
from dashboard.state.simulating import Outcome
from dashboard.state.store import Store
from simulator.cluster import Cluster
from simulator.errors import UnknownNameError
from simulator.run import Run

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
        outcome, run, cluster = _asked(store)
        if name not in EXPORTS:
            abort(404, f"{name!r} is none of {', '.join(EXPORTS)}")
        kind, make = EXPORTS[name]
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(make(outcome, run, cluster), mimetype=kind, headers=headers)


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
