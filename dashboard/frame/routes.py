"""What the browser fetches beside callbacks: the timeline's spans and the exported files."""

from __future__ import annotations

from flask import Flask, Response, abort, request

from dashboard.figures import span_columns
from dashboard.figures.standalone import Section, standalone
from dashboard.frame.exports import EXPORTS, command
from dashboard.state.store import Outcome, Store
from simulator.cluster import Cluster
from simulator.errors import UnknownNameError
from simulator.run import Run


def add_routes(server: Flask, store: Store) -> None:
    """/spans?<configuration> and /export/<file name>?<configuration>."""

    @server.get("/spans")
    def spans() -> Response:
        _, run, cluster = _asked(store)
        return Response(span_columns.encode(run, cluster), mimetype="application/octet-stream")

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


def _file(name: str, kind: str, text: str) -> Response:
    return Response(text, mimetype=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})


def _asked(store: Store) -> tuple[Outcome, Run, Cluster]:
    """The run of the configuration in the request's query, or the execution it names as `actual`.

    Answers 422 with the reason where there is none.
    """
    configuration = store.read(request.query_string.decode())[0]
    actual = request.args.get("actual", "")
    try:
        outcome = store.actual(configuration, actual)[0] if actual else store.outcome(configuration)
    except UnknownNameError as error:
        abort(404, str(error))
    if outcome.run is None or outcome.cluster is None:
        abort(422, outcome.reason)
    return outcome, outcome.run, outcome.cluster
