"""The web app: `create_app` puts store, pages, routes and security together; `serve` runs it."""

from __future__ import annotations

from collections.abc import Sequence

from dash import Dash

from dashboard import shell
from dashboard.pages import explore
from dashboard.routes import add_routes
from dashboard.security import LOCAL, secure
from dashboard.store import Store

INDEX = """<!DOCTYPE html>
<html lang="en">
<head>{%metas%}<title>{%title%}</title>{%favicon%}{%css%}</head>
<body>{%app_entry%}<footer>{%config%}{%scripts%}{%renderer%}</footer></body>
</html>"""


def create_app(store: Store, *, hosts: Sequence[str] = LOCAL) -> Dash:
    """The app over the profiles of `store`. hosts: names under which browsers may reach it ("*": any)."""
    app = Dash(
        "dashboard",
        title="Shardscope",
        update_title="",
        index_string=INDEX,
        serve_locally=True,
        suppress_callback_exceptions=True,
        on_error=shell.report_error,
    )
    pages = {"/": ("Explore", explore.add(app, store))}
    app.layout = shell.layout({path: name for path, (name, _) in pages.items()})
    shell.add_callbacks(app, store, {path: content for path, (_, content) in pages.items()})
    add_routes(app.server, store)
    secure(app.server, hosts, lambda: list(app.csp_hashes()))
    return app


def serve(store: Store, host: str, port: int) -> None:
    """Run until interrupted, with threads and without a debugger. Raises OSError when the port is taken."""
    from werkzeug.serving import make_server

    hosts = LOCAL if host in LOCAL else (*LOCAL, host) if host not in ("0.0.0.0", "::") else ("*",)
    app = create_app(store, hosts=hosts)
    server = make_server(host, port, app.server, threaded=True)
    print(f"Shardscope is at http://{host}:{server.server_port}/ (Ctrl-C ends it)", flush=True)
    server.serve_forever()
