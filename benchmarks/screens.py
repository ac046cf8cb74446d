"""What the dashboard's screens take in a real browser, beside their budgets. Usage: python -m benchmarks.screens

From the key press that changes a control, in the page's own clock and without the simulation: until the numbers on
top have changed, until the last panel on the screen is drawn, until the last one below it is. The timeline's paint is
what its drawing takes. Nothing is asserted here; the test asserts three times the budgets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.browser import chromium, served, settled, until
from dashboard.state.configuration import Configuration
from dashboard.state.store import Store, bundled

REPEATS = 5
WATCH = """() => {
  const seen = (window.seen = {});
  const clear = () => Object.assign(seen, { key: performance.now(), numbers: 0, panels: 0, below: 0 });
  document.addEventListener("keydown", clear, true);
  new MutationObserver(() => (seen.numbers ||= performance.now())).observe(document.querySelector("#kpis"),
    { childList: true, subtree: true, characterData: true });
  const panel = (where) => () => (seen[where] = performance.now());
  document.querySelectorAll(".js-plotly-plot").forEach((graph) => graph.on("plotly_afterplot",
    panel(graph.getBoundingClientRect().top < window.innerHeight ? "panels" : "below")));
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
    print(f"{'what':<52} {'measured':>12} {'budget':>11}")
    for budget in measured(Store(bundled())):
        print(budget)


def measured(store: Store) -> Iterator[Budget]:
    """Every budget, one after the other."""
    with served(store) as site, chromium() as browser:
        with opened(browser, site, replace(store.default(), strategy="data")) as (page, payloads):
            numbers, panels, below = _changes(page)
            yield Budget("a control -> numbers, without the simulation", numbers, 150)
            yield Budget("a control -> all panels on the screen", panels, 300)
            yield Budget("a control -> all panels, those below it as well", below, 450)
            yield Budget("largest answer of a callback", max(payloads) / 1e3, 200, "kB")
        large = replace(store.default(), strategy="data", devices=256)
        yield Budget("ResNet-50 on 256 devices, plan and simulation", 1e3 * store.outcome(large).took_s, 1500)
        for spans, most in ((10_000, 100), (200_000, 300)):
            with opened(browser, site, sized(store, spans)) as (page, _):
                count = int(page.get_attribute("#timeline", "data-spans"))
                yield Budget(f"the timeline painted whole, {count:,} spans", _paint(page), most)


@contextmanager
def opened(browser: Any, site: str, configuration: Configuration) -> Iterator[tuple[Any, list[int]]]:
    """A page that shows `configuration`, settled, and the sizes of the answers that callbacks get from then on."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    sizes: list[int] = [0]
    page.on("response", lambda answer: sizes.append(_size(answer)) if "_dash-update" in answer.url else None)
    page.goto(f"{site}/?{configuration.query()}&base=")
    settled(page)
    until(page, "() => !!document.querySelector('#advice > *')")
    yield page, sizes
    page.close()


def sized(store: Store, spans: int) -> Configuration:
    """A pipeline of the deepest network with as many micro-batches as make about `spans` spans."""
    profiles = store.profiles.everything()
    deepest = max(profiles, key=lambda key: len(profiles[key].layers))
    plain = replace(store.default(), profile=deepest, strategy="pipeline", devices=8, microbatches=8, batch_size=8)
    run = store.outcome(plain).run
    assert run is not None
    count = max(8, round(8 * spans / run.report.tasks))
    return replace(plain, microbatches=count, batch_size=count)


def _changes(page: Any) -> list[float]:
    """Median milliseconds from a key on a slider to new numbers, to the last panel on the screen and to the last one
    below it, the simulation taken off."""
    page.evaluate(WATCH)
    thumb = page.locator("#c-inter-bandwidth [role=slider]")
    thumb.focus()
    found = []
    for _ in range(REPEATS):
        before = page.evaluate("() => location.search")
        thumb.press("ArrowRight")
        until(page, "(before) => location.search !== before && seen.numbers > 0", before)
        until(page, "() => !!document.querySelector('#advice > *')")
        page.wait_for_timeout(1500)
        seen = page.evaluate("() => seen")
        simulated = float(re.findall(r"([\d,]+) ms", page.inner_text("#badge").lower())[0].replace(",", ""))
        found.append([seen[part] - seen["key"] - simulated for part in ("numbers", "panels", "below")])
    return [sorted(column)[REPEATS // 2] for column in zip(*found, strict=True)]


def _paint(page: Any) -> float:
    """The median milliseconds of drawing the whole step again."""
    page.focus("#timeline")
    found = []
    for _ in range(REPEATS):
        page.keyboard.press("f")
        page.wait_for_timeout(300)
        found.append(float(page.get_attribute("#timeline", "data-paint-ms")))
    return sorted(found)[REPEATS // 2]


def _size(answer: Any) -> int:
    try:
        return len(answer.body())
    except Exception:  # the page moved on before its answer was read
        return 0


if __name__ == "__main__":
    main()
