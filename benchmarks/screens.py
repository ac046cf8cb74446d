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
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.request import Request, urlopen

from benchmarks.browser import chromium, served, settled, until
from dashboard.frame.controls import CONTROLS
from dashboard.state.configuration import Configuration
from dashboard.state.store import Store, bundled
from simulator.units import parse_time

REPEATS = 5
USERS, CLICKS_EACH, THINKING_S = 20, 4, 5.0
SWITCHES = 100
LARGE = "v=1&profile=llama3-70b&cluster=dgx-h100&strategy=megatron&devices=512"
PLANS = "v=1&profile=llama3-8b&cluster=dgx-h100&strategy=megatron&devices=64"
FIRST = """new MutationObserver(() =>
  document.querySelector("#kpis .kpi-value")?.setAttribute("elementtiming", "first")).observe(document,
    { childList: true, subtree: true });
new PerformanceObserver((shown) => (window.first ??= shown.getEntries()[0].renderTime)).observe({ type: "element" });"""
"""Keeps when the first number was on the screen: when it was in the document it need not have been painted."""
WATCH = """() => {
  const seen = (window.seen = {});
  const clear = () => Object.assign(seen, { key: performance.now(), numbers: 0, panels: 0, below: 0 });
  document.addEventListener("keydown", clear, true);
  new MutationObserver(() => (seen.numbers ||= performance.now())).observe(document.querySelector("#kpis"),
    { childList: true, subtree: true, characterData: true });
  const panel = (where) => () => (seen[where] = performance.now());
  document.querySelectorAll(".js-plotly-plot:not(#candidates-graph *)").forEach((graph) => graph.on("plotly_afterplot",
    panel(graph.getBoundingClientRect().top < window.innerHeight ? "panels" : "below")));
  new MutationObserver(panel("below")).observe(document.querySelector("#partition-drawing"), { childList: true });
  new MutationObserver(panel("panels")).observe(document.querySelector("#timeline"),
    { attributeFilter: ["data-paint-ms"] });
}"""


@dataclass(frozen=True, slots=True)
class Budget:
    """A quantity in milliseconds (or kB), measured, and what it may be."""

    name: str
    measured: float
    most: float
    unit: str = "ms"

    def __str__(self) -> str:
        return f"{self.name:<52} {self.measured:>9.0f} {self.unit:<3} {self.most:>7.0f} {self.unit}"


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


def measured(store: Store) -> Iterator[Budget]:
    """Every budget, one after the other."""
    with served(store) as site, chromium() as browser:
        with opened(browser, site, replace(store.default(), strategy="data")) as (page, payloads):
            numbers, panels, below = _changes(page)
            yield Budget("a control -> numbers, without the simulation", numbers, 150)
            yield Budget("a control -> all panels on the screen", panels, 300)
            yield Budget("a control -> all panels, those below it as well", below, 450)
            yield Budget("largest answer of a panel or callback", max(payloads) / 1e3, 200, "kB")
        with opened(browser, site, sized(store, 20_000)) as (page, _):
            count = int(page.get_attribute("#timeline", "data-spans"))
            yield Budget(f"a control -> all panels on the screen, {count:,} spans", _changes(page)[1], 300)
        large = replace(store.default(), strategy="data", devices=256)
        with opened(browser, site, large) as (page, _):
            yield Budget("ResNet-50, 256 devices: a control -> numbers", _changes(page, simulation=True)[0], 1500)
        for spans, most in ((10_000, 100), (200_000, 300)):
            with opened(browser, site, sized(store, spans)) as (page, _):
                count = int(page.get_attribute("#timeline", "data-spans"))
                yield Budget(f"the timeline painted whole, {count:,} spans", _paint(page), most)


@contextmanager
def opened(browser: Any, site: str, configuration: Configuration) -> Iterator[tuple[Any, list[int]]]:
    """A page that shows `configuration`, settled, and the sizes of the answers that callbacks get from then on."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    sizes: list[int] = [0]
    answers = ("/_dash-update", "/panel/")
    page.on("response", lambda each: sizes.append(_size(each)) if any(path in each.url for path in answers) else None)
    page.goto(f"{site}/?{configuration.query()}&base=")
    settled(page)
    until(page, "() => !!document.querySelector('#advice > *')")
    yield page, sizes
    page.close()


def kept(page: Any, switches: int) -> dict[str, float]:
    """What a page holds after it was left for others and come back to, `switches` in all, and after garbage collection.

    Nodes (detached ones, too), listeners and bytes of JavaScript's heap. Waits without a handle of an element, which
    would itself keep its page.
    """
    others = ("Plans", "Compare", "Sweep", "Scenario", "Validate", "Profiles")
    for number in range(switches // 2):
        for name in (others[number % len(others)], "Explore"):
            page.click(f"nav >> text={name}")
            until(page, "name => document.querySelector('nav a[aria-current=page]')?.innerText === name", name)
            drawn = "#timeline[data-spans]" if name == "Explore" else ".page"
            until(page, "drawn => !!document.querySelector(drawn)", drawn)
        until(page, "() => !document.querySelector('#results.stale')")
    protocol = page.context.new_cdp_session(page)
    protocol.send("Performance.enable")
    protocol.send("HeapProfiler.collectGarbage")
    metrics = {each["name"]: each["value"] for each in protocol.send("Performance.getMetrics")["metrics"]}
    protocol.detach()
    return {
        "nodes": metrics["Nodes"],
        "listeners": metrics["JSEventListeners"],
        "JavaScript's heap": metrics["JSHeapUsedSize"],
    }


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


def sized(store: Store, spans: int) -> Configuration:
    """A pipeline of the deepest network with as many micro-batches as make about `spans` spans."""
    profiles = store.profiles.everything()
    deepest = max(profiles, key=lambda key: len(profiles[key].layers))
    plain = replace(store.default(), profile=deepest, strategy="pipeline", devices=8, microbatches=8, batch_size=8)
    run = store.outcome(plain).run
    assert run is not None
    count = max(8, round(8 * spans / run.report.tasks))
    return replace(plain, microbatches=count, batch_size=count)


def _changes(page: Any, *, simulation: bool = False) -> list[float]:
    """Median milliseconds from a key on a slider to new numbers, to the last panel on the screen and to the last one
    below it, with the simulation or without."""
    page.evaluate(WATCH)
    thumb = page.locator("#c-inter-bandwidth [role=slider]")
    thumb.focus()
    rows = []
    for _ in range(REPEATS):
        before = page.evaluate("() => location.search")
        thumb.press("ArrowRight")
        until(page, "(before) => location.search !== before && seen.numbers > 0", before)
        until(page, "() => !!document.querySelector('#advice > *')")
        page.wait_for_timeout(1500)
        seen = page.evaluate("() => seen")
        simulated = 1e3 * parse_time(re.findall(r"simulated in (.+)", page.inner_text("#badge"))[0])
        left_out_ms = 0.0 if simulation else simulated
        rows.append([seen[part] - seen["key"] - left_out_ms for part in ("numbers", "panels", "below")])
    return [sorted(column)[REPEATS // 2] for column in zip(*rows, strict=True)]


def _paint(page: Any) -> float:
    """The median milliseconds of drawing the whole step again."""
    page.focus("#timeline")
    paints = []
    for _ in range(REPEATS):
        page.keyboard.press("f")
        page.wait_for_timeout(300)
        paints.append(float(page.get_attribute("#timeline", "data-paint-ms")))
    return sorted(paints)[REPEATS // 2]


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


def _size(answer: Any) -> int:
    try:
        return len(answer.body())
    except Exception:  # the page moved on before its answer was read
        return 0


if __name__ == "__main__":
    main()
