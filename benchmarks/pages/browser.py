"""A real browser for tests and benchmarks: the system's Chromium under Playwright, the dashboard on a free port."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks import ROOT

CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
SHOTS = ROOT / "out" / "screenshots"


def why_not() -> str:
    """Why there is no browser, empty where there is one."""
    if not CHROMIUM.exists():
        return f"no browser at {CHROMIUM}: apt-get install chromium, or set CHROMIUM"
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "no playwright: make test installs it"
    return ""


needs_browser = pytest.mark.skipif(bool(why_not()), reason=why_not() or "there is a browser")


@contextmanager
def served(store: Any) -> Iterator[str]:
    """The address of a dashboard over `store`."""
    from dashboard.app import create_app, listen
    from dashboard.state.workers import Workers

    workers = Workers()
    store.desk.workers = workers
    server = listen(create_app(store), "127.0.0.1", 0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        store.desk.workers = None
        workers.close()


@contextmanager
def chromium() -> Iterator[Any]:
    """A started browser with a profile of its own."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


def shot(page: Any, name: str, *, full: bool = True) -> None:
    """Keep a picture of the page for people to look at."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.evaluate("() => window.scrollTo(0, 0)")  # the header stands where the page was scrolled to
    page.screenshot(path=str(SHOTS / f"{name}.png"), full_page=full)


def until(page: Any, expression: str, argument: Any = None, timeout_s: float = 60.0) -> None:
    """Wait for a JavaScript function to return true. Polled from here: the page's policy forbids eval."""
    end = time.monotonic() + timeout_s
    while not page.evaluate(expression, argument):
        if time.monotonic() > end:
            raise AssertionError(f"not within {timeout_s} s: {expression} {argument or ''}")
        page.wait_for_timeout(40)


def settled(page: Any) -> None:
    """Wait until the controls are answered, nothing is searched, timeline (or verdict) and the open tab are drawn."""
    until(page, "() => !document.querySelector('#results:is(.stale, [aria-busy=true])')", timeout_s=100)
    until(page, "() => !!document.querySelector('#timeline[data-spans], #verdict > *')")
    until(page, "() => !!document.querySelector('#results')?.dataset.drawn")
    page.wait_for_load_state("networkidle")


def violations(page: Any) -> list[str]:
    """What axe finds, minor things as well."""
    from axe_playwright_python.sync_playwright import Axe

    broken_rules = Axe().run(page).response["violations"]
    return [f"{rule['id']} ({rule['impact']}): {rule['nodes'][0]['html'][:160]}" for rule in broken_rules]
