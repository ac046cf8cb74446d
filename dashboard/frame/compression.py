"""Answers compressed on their way out: scripts and styles once, the rest as it comes."""

from __future__ import annotations

import gzip
import re
import threading
from typing import Any

from flask import Flask, Response, request

from dashboard.frame.security import is_loopback

_TYPES = ("text/", "application/json", "application/javascript", "image/svg+xml", "application/octet-stream")
_FIXED = ("/_dash-component-suites/", "/assets/")
_PLOTLY = "/_dash-component-suites/plotly/package_data/plotly.min.js"
"""The one script that the page does not name, as it comes after the first numbers."""
_LEAST_BYTES, _MOST_KEPT = 1024, 200


def compress(server: Flask) -> None:
    """Send gzip to browsers that take it; files that do not change are compressed once and kept.

    To a browser on this machine everything else goes as it is: packing half a megabyte takes longer than sending it.
    """
    kept: dict[str, bytes] = {}
    lock = threading.Lock()

    @server.after_request
    def smaller(response: Response) -> Response:
        fixed = request.path.startswith(_FIXED)
        if (
            response.status_code != 200
            or (not fixed and is_loopback(request.remote_addr or ""))
            or "gzip" not in request.headers.get("Accept-Encoding", "")
            or response.headers.get("Content-Encoding")
            or not (response.mimetype or "").startswith(_TYPES)
        ):
            return response
        response.direct_passthrough = False
        file: Any = response.response
        key = request.full_path
        with lock:
            packed = kept.get(key) if fixed else None
        if packed is None:
            plain = response.get_data()
            if len(plain) < _LEAST_BYTES:
                return response
            packed = gzip.compress(plain, 6 if fixed else 3)
            if fixed and len(kept) < _MOST_KEPT:
                with lock:
                    kept[key] = packed
        if hasattr(file, "close"):
            file.close()
        response.set_data(packed)
        response.headers["Content-Encoding"] = "gzip"
        response.headers.add("Vary", "Accept-Encoding")
        return response


def pack_ahead(server: Flask, token: str = "") -> None:
    """Ask for a page's scripts as a browser does, so that they are compressed before one waits for them.

    token: as of `secure`.
    """
    browser = server.test_client()
    as_browser: dict[str, Any] = {"base_url": "http://127.0.0.1", "headers": {"Accept-Encoding": "gzip"}}
    page = browser.get("/profiles", query_string={"token": token}, follow_redirects=True, **as_browser)
    for address in (*re.findall(r'(?:src|href)="(/[^"]+)"', page.get_data(as_text=True)), _PLOTLY):
        browser.get(address, **as_browser)
