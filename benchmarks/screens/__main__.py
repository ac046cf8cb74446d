"""What the dashboard's screens take in a real browser, beside their budgets. Usage: python -m benchmarks.screens

From the key press that changes a control, in the page's own clock and without the simulation: until the numbers on
top have changed, until the last panel on the screen is drawn, until the last one below it is (but for the figure of
plans tried, which fills as they are simulated in the background, and is not begun before the others are drawn). The
timeline's paint is what its drawing takes. The opening page is timed in a browser that has cached nothing. What page
switches leave behind is counted after garbage collection. Clicks of many users are timed at the server's door, with a
search beside them. Nothing is asserted here; the test asserts three times the budgets of one user.
"""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from urllib.request import Request, urlopen

from benchmarks.pages.browser import chromium, served, until
from benchmarks.screens.budgets import Budget, kept, measured, opened
from dashboard.frame.controls import CONTROLS
from dashboard.state.configuration import Configuration
from dashboard.state.store import Store, bundled

USERS, CLICKS_EACH, THINKING_S = 20, 4, 5.0
SWITCHES = 100
LARGE = "v=1&profile=llama3-70b&cluster=dgx-h100&strategy=megatron&devices=512"
PLANS = "v=1&profile=llama3-8b&cluster=dgx-h100&strategy=megatron&devices=64"
FIRST = """new MutationObserver(() =>
  document.querySelector("#kpis .kpi-value")?.setAttribute("elementtiming", "first")).observe(document,
    { childList: true, subtree: true });
new PerformanceObserver((shown) => (window.first ??= shown.getEntries()[0].renderTime)).observe({ type: "element" });"""
"""Keeps when the first number was on the screen: when it was in the document it need not have been painted."""


def main() -> None:
    print(f"{'what':<52} {'measured':>12} {'budget':>11}   (load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores)")
    store = Store(bundled())
    print(Budget("the opening page, cold: first numbers", _first_numbers(), 2000), flush=True)
    print(Budget("Llama 3 70B on 512 H100, cold: first numbers", _first_numbers(f"/?{LARGE}"), 2000), flush=True)
    print(Budget("Plans of Llama 3 8B on 64 H100: ranked", _ranked(), 3000), flush=True)
    for budget in measured(store):
        print(budget, flush=True)
    for name, ratio in _left_behind(store).items():
        print(Budget(f"{name} after {SWITCHES} page switches, of those after 10", 100 * ratio, 125, "%"), flush=True)
    with served(store) as site:
        most_ms = _clicks_beside_a_search(store, site)
        print(Budget(f"{USERS} users beside a search: 95 % of clicks within", most_ms, 300))


def _left_behind(store: Store) -> dict[str, float]:
    """What SWITCHES page switches leave, over what the first ten of them do, which load every page's scripts."""
    shown = replace(store.default(), strategy="data")
    with served(store) as site, chromium() as browser, opened(browser, site, shown) as (page, _):
        before, after = kept(page, 10), kept(page, SWITCHES - 10)
        return {name: after[name] / before[name] for name in before}


def _first_numbers(path: str = "/") -> float:
    """Median milliseconds from the request of a page, by default the opening one, to its first numbers: every time a
    browser that has just started and a server that nobody has asked for this page, whose processes have started."""
    waits = []
    for _ in range(3):
        store = Store(bundled())
        with chromium() as browser, served(store) as site:
            for strategy in ("data", "hypergraph"):
                store.outcome(replace(store.default(), strategy=strategy, devices=2, effort=0.02))
            page = browser.new_page(viewport={"width": 1400, "height": 900})
            page.add_init_script(FIRST)
            page.goto(site + path)
            until(page, "() => window.first > 0")
            waits.append(float(page.evaluate("() => window.first")))
    return sorted(waits)[1]


def _ranked() -> float:
    """Median milliseconds from the request of Plans until all are ranked: every time by a server of its own."""
    waits = []
    for _ in range(3):
        with chromium() as browser, served(Store(bundled())) as site:
            page = browser.new_page(viewport={"width": 1400, "height": 900})
            page.goto(f"{site}/profiles")
            began_s = time.perf_counter()
            page.goto(f"{site}/plans?{PLANS}")
            until(page, "() => document.querySelector('#plans-words')?.innerText.startsWith('Best: ')")
            waits.append(1e3 * (time.perf_counter() - began_s))
    return sorted(waits)[1]


def _clicks_beside_a_search(store: Store, site: str) -> float:
    """The 95th percentile of the milliseconds from a user's click to the numbers, with the simulation.

    Every user changes the bandwidth of a step on 4 devices every THINKING_S; another one searches a hypergraph plan.
    """
    base = replace(store.default(), strategy="data", devices=4)

    def click(user: int, number: int) -> float:
        now = replace(base, inter_bandwidth=1 + 0.01 * (1 + USERS * number + user))
        started = time.perf_counter()
        while not _post(site, _asking(now, f"user {user}")):
            pass
        return 1e3 * (time.perf_counter() - started)

    def use(user: int) -> list[float]:
        time.sleep(THINKING_S * user / USERS)
        waits = []
        for number in range(CLICKS_EACH):
            waits.append(click(user, number))
            time.sleep(max(0.0, THINKING_S - waits[-1] / 1e3))
        return waits

    click(0, -1)  # somebody has opened the page before: its processes have started
    searching = replace(store.default(), devices=16, effort=1.0)
    _post(site, _asking(searching, "the one who searches"))
    with ThreadPoolExecutor(USERS) as users:
        waits = sorted(wait for each in users.map(use, range(USERS)) for wait in each)
    store.desk.leave("the one who searches")
    return waits[int(0.95 * len(waits))]


def _asking(now: Configuration, tab: str) -> bytes:
    """What a page sends when its controls show `now`."""
    values = [control.shown(getattr(now, control.field)) for control in CONTROLS]
    return json.dumps({"values": values, "base": None, "tab": tab, "profile": now.profile}).encode()


def _post(site: str, body: bytes) -> bool:
    """Whether the answer holds numbers, and is not that it takes longer."""
    answer = urlopen(Request(f"{site}/panel/step", body, {"Content-Type": "application/json"})).read()
    return not json.loads(answer)["pending"]


if __name__ == "__main__":
    main()
