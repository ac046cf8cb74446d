"""The web app: `create_app` puts store, pages, routes and security together; `serve` runs it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence

from dash import Dash
from werkzeug.serving import BaseWSGIServer

from dashboard.frame import shell
from dashboard.frame.compression import compress, pack_ahead
from dashboard.frame.routes import add_routes
from dashboard.frame.security import LOCAL, access, in_address, secure
from dashboard.pages import compare, explore, plans, profiles, scenario, sweep, validate
from dashboard.state.alternatives import alternatives
from dashboard.state.store import Store
from dashboard.state.workers import Workers
from simulator.errors import InputError

ICON = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAABAAAAAQAgMAAABinRfyAAAADFBMVEUAAAAAcrLmnwAAnnPZ8zC+AAAAAXRSTlMAQO"
    "bYZgAAABpJREFUeNpjYAAB0RCtFfgIsBIwYf8HNwECAJUcEg2H0XLuAAAAAElFTkSuQmCC"
)
"""A network in three parts. In the page itself: browsers ask for a file anew whenever the address changes."""
INDEX = f"""<!DOCTYPE html>
<html lang="en">
<head>{{%metas%}}<title>{{%title%}}</title><link rel="icon" href="{ICON}">{{%css%}}</head>
<body>{{%app_entry%}}<footer>{{%config%}}{{%scripts%}}{{%renderer%}}</footer></body>
</html>"""


def create_app(store: Store, *, hosts: Sequence[str] = LOCAL, token: str = "") -> Dash:
    """The app over the profiles of `store`.

    hosts: names under which browsers may reach it ("*": any). token: as of `secure`.
    """
    app = Dash(
        "dashboard",
        title="Shardscope",
        update_title="",
        index_string=INDEX,
        serve_locally=True,
        suppress_callback_exceptions=True,
        on_error=shell.report_error,
    )
    pages = {
        "/": ("Explore", explore.add(app, store)),
        "/plans": ("Plans", plans.add(app, store)),
        "/compare": ("Compare", compare.add(app, store)),
        "/sweep": ("Sweep", sweep.add(app, store)),
        "/scenario": ("Scenario", scenario.add(app, store)),
        "/validate": ("Validate", validate.add(app, store)),
        "/profiles": ("Profiles", profiles.add(app, store)),
    }
    app.layout = shell.layout({path: name for path, (name, _) in pages.items()})
    shell.add_callbacks(app, store, {path: content for path, (_, content) in pages.items()})
    add_routes(app.server, store)
    compress(app.server)
    secure(app.server, hosts, lambda: list(app.csp_hashes()), pages.keys(), token)
    return app


def listen(app: Dash, host: str, port: int, token: str = "") -> BaseWSGIServer:
    """A server with threads, without a debugger and without a line for every request; token: as of `secure`.

    Raises OSError: port taken.
    """
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"  # keeps connections open, which saves each callback a new one and a new thread

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            pass

    threading.Thread(target=pack_ahead, args=(app.server, token), daemon=True).start()
    return make_server(host, port, app.server, threaded=True, request_handler=Quiet)


def require_address(host: str, port: int) -> None:
    """Raise InputError unless a server can listen there: asked before any worker starts."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        raise InputError(
            f"--host {host} --port {port}: {error.strerror}; take an address of this machine, such as 127.0.0.1, and a "
            f"free port, which --port 0 takes"
        ) from None


def serve(store: Store, host: str, port: int, path: str = "/") -> None:
    """Run until it is ended; `host` beyond this machine is answered under its name, all addresses under any.

    Beyond this machine a new token is asked for, which ends the address that is printed.
    """
    require_address(host.strip("[]"), port)
    workers = Workers()
    store.desk.workers = workers
    first = store.default()
    store.desk.want(alternatives(first, store.profile(first)), tab="the first screen")
    hosts, token = access(host)
    server = listen(create_app(store, hosts=hosts, token=token), host.strip("[]"), port, token)
    if token:
        print(f"other machines can reach {host}: whoever has the token below can use this dashboard", flush=True)
        path += f"{'&' if '?' in path else '?'}token={token}"
    print(f"Shardscope is at http://{in_address(host)}:{server.server_port}{path} (Ctrl-C ends it)", flush=True)
    try:
        with server:
            server.serve_forever()
    finally:
        workers.close()
