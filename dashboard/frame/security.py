"""What the server lets in and what browsers may do with what it sends."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from flask import Flask, Response, abort, request

from dashboard.state.uploads import MOST_UPLOAD_BYTES

LOCAL = ("127.0.0.1", "localhost", "[::1]")


def secure(
    server: Flask, hosts: Sequence[str], script_hashes: Callable[[], list[str]], pages: Collection[str] = ()
) -> None:
    """Answer only requests to one of `hosts` (against DNS rebinding), limit their size, send a strict CSP.

    pages: the paths that there are; the document that any other path gets says 404.

    script_hashes: the hashes of the page's inline scripts, asked for at the first answer, when all callbacks
    are known. A browser's upload is base64 text inside JSON, a third longer than the file.
    """
    server.config["MAX_CONTENT_LENGTH"] = MOST_UPLOAD_BYTES * 3 // 2
    policy: list[str] = []

    @server.before_request
    def only_known_hosts() -> None:
        host = request.host.rpartition(":")[0] if request.host.rpartition(":")[2].isdigit() else request.host
        if "*" not in hosts and host not in hosts:
            abort(403, f"host {host!r} is not one that this server answers to; start it with --host to change that")

    @server.after_request
    def headers(response: Response) -> Response:
        if not policy:
            policy.append(content_policy(script_hashes()))
        response.headers["Content-Security-Policy"] = policy[0]
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["X-Frame-Options"] = "DENY"
        document = request.method == "GET" and response.mimetype == "text/html" and response.status_code == 200
        if document and pages and request.path not in pages and not request.path.startswith("/export/"):
            response.status_code = 404
        return response


def content_policy(script_hashes: Sequence[str]) -> str:
    """Everything from this server alone; styles may be inline, because Plotly and Mantine write them."""
    return "; ".join((
        "default-src 'self'",
        "script-src 'self' " + " ".join(script_hashes),
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ))  # fmt: skip
