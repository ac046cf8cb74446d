"""What the server lets in and what browsers may do with what it sends."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import sys
from collections.abc import Callable, Collection, Sequence
from hashlib import sha256
from urllib.parse import urlencode

from flask import Flask, Response, abort, redirect, request
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response as AnyResponse

from dashboard.state.uploads import MOST_UPLOAD_BYTES
from simulator.file_gate import visible

LOCAL = ("127.0.0.1", "localhost", "[::1]")
REFUSALS = (401, 403, 413, 429)
LONGEST_PATH = 200
"""Characters of a path that are logged."""


def secure(
    server: Flask,
    hosts: Sequence[str],
    script_hashes: Callable[[], list[str]],
    pages: Collection[str] = (),
    token: str = "",
) -> None:
    """Answer only requests to one of `hosts` (against DNS rebinding), limit their size, send a strict CSP.

    pages: the paths that there are; the document that any other path gets says 404.

    script_hashes: the hashes of the page's inline scripts, asked for at the first answer, when all callbacks
    are known. A browser's upload is base64 text inside JSON, a third longer than the file.

    token: what the address of a browser's first visit has to end with; empty asks for none. Every request that is
    refused is a line on stderr.
    """
    server.config["MAX_CONTENT_LENGTH"] = MOST_UPLOAD_BYTES * 3 // 2
    policy: list[str] = []

    @server.before_request
    def only_known_hosts() -> None:
        host = request.host.rpartition(":")[0] if request.host.rpartition(":")[2].isdigit() else request.host
        if "*" not in hosts and host not in hosts:
            abort(403, f"host {host!r} is not one that this server answers to; start it with --host to change that")

    if token:
        _ask_for_token(server, token)

    @server.errorhandler(HTTPException)
    def log(error: HTTPException) -> HTTPException:
        if error.code in REFUSALS:
            what = f"{request.method} {request.path[:LONGEST_PATH]} from {request.remote_addr}"
            line = visible(f"shardscope dashboard: refused {what}: {error.code} {error.description}")
            print(" ".join(line.split()), file=sys.stderr, flush=True)
        return error

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


def _ask_for_token(server: Flask, token: str) -> None:
    """Refuse who does not know the token; a browser that shows it once in an address keeps it as a cookie."""
    cookie = f"shardscope-{sha256(token.encode()).hexdigest()[:8]}"  # cookies are of a host, whatever the port

    def is_right(text: str) -> bool:
        return hmac.compare_digest(text.encode(), token.encode())

    @server.before_request
    def only_with_token() -> AnyResponse | None:
        if is_right(request.cookies.get(cookie, "")):
            return None
        if request.method != "GET" or not is_right(request.args.get("token", "")):
            abort(
                401,
                "other machines can reach this dashboard, so it asks for a token: open the address that "
                "`shardscope dashboard` printed, to its end",
            )
        others = [pair for pair in request.args.items(multi=True) if pair[0] != "token"]
        answer = redirect("/" + request.path.lstrip("/") + (f"?{urlencode(others, safe='@')}" if others else ""))
        answer.set_cookie(cookie, token, httponly=True, samesite="Lax")
        return answer


def access(host: str) -> tuple[tuple[str, ...], str]:
    """Under which names a server that listens on `host` is reached ("*": any), and a new token; none on loopback."""
    hosts = ("*",) if host in ("0.0.0.0", "::") else tuple(dict.fromkeys((*LOCAL, in_address(host))))
    return hosts, "" if is_loopback(host) else secrets.token_urlsafe(24)


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine's own."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def in_address(host: str) -> str:
    """A host as it stands in an address: IPv6 in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


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
