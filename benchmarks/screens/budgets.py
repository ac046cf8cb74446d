"""Budgets of the dashboard's screens, measured in a real browser on one open page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.pages.browser import chromium, served, settled, until
from dashboard.state.configuration import Configuration
from dashboard.state.store import Store
from simulator.units import parse_time

REPEATS = 5
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


def _size(answer: Any) -> int:
    try:
        return len(answer.body())
    except Exception:  # the page moved on before its answer was read
        return 0
