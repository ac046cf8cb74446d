"""The dashboard in a real browser: results that belong to the controls, the partition figure, many devices, a phone."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from dashboard_screens import open_files

from benchmarks.pages.browser import needs_browser, shot, until, violations
from benchmarks.screens.budgets import kept
from dashboard.pages._explore_step import MORE_PATIENCE_S
from dashboard.state.configuration import Configuration
from dashboard.state.desk import GONE_S
from dashboard.state.scenarios import shipped_scenarios
from dashboard.state.store import Store, bundled
from dashboard.state.validations import at_hand
from dashboard.state.workers import Simulation
from simulator.files import library

pytestmark = [
    pytest.mark.screens,
    needs_browser,
    pytest.mark.skipif("resnet50_v100" not in library(), reason="the library has no profile resnet50_v100"),
    pytest.mark.filterwarnings("default"),  # of the browser's driver
]
CUT_OFF = """() => [...document.querySelectorAll(".ag-cell, .plain-table td, .plain-table th, .tile *, button")]
  .filter((each) => each.clientWidth > 0 && each.scrollWidth > each.clientWidth + 1 && each.innerText.trim())
  .map((each) => each.innerText.slice(0, 80))"""
QUICK = "profile=vgg_small&cluster=azure-v100-10g&strategy=data&devices=4&microbatches=&base="
SLOW = "profile=vgg16_v100&strategy=hypergraph&effort=1&devices=8&batch_size=512&base="


@pytest.fixture(scope="module")
def store() -> Store:
    return Store(bundled(), validations=at_hand(), scenarios=shipped_scenarios())


def opened(page: Any, site: str, query: str) -> None:
    page.goto(f"{site}/?{query}")
    ready(page)


def ready(page: Any) -> None:
    """Results are shown and the partition is drawn."""
    until(page, "() => !!document.querySelector('#timeline[data-spans]')")
    until(page, "() => !!document.querySelector('#partition-drawing svg')")
    until(page, "() => !document.querySelector('#results.stale')")


def stale(page: Any) -> bool:
    answer: bool = page.evaluate("() => document.querySelector('#results').classList.contains('stale')")
    return answer


def asked(page: Any) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query, keep_blank_values=True).items()}


def searching(store: Store) -> list[Configuration]:
    return [job.request.configuration for job in store.desk.jobs() if not job.request.light]


def choose(page: Any, control: str, option: str) -> None:
    page.click(f"#{control}")
    page.locator("[role=option]:visible", has_text=option).first.click()


def test_what_is_shown_greys_at_once_and_a_search_can_be_cancelled(page: Any, site: str, store: Store) -> None:
    opened(page, site, f"{QUICK}&effort=1".replace("vgg_small", "vgg16_v100"))
    before = page.inner_text("#kpis")
    choose(page, "c-strategy", "hypergraph")
    still = "b => !!document.querySelector('#results.stale') && document.querySelector('#kpis').innerText === b"
    until(page, still, before, timeout_s=2)
    page.wait_for_selector("#badge >> text=/searching a hypergraph plan/i")
    assert asked(page)["strategy"] == "hypergraph"  # what Copy link takes
    assert "strategy=hypergraph" in page.locator("a[href^='export/plan.json']").get_attribute("href")
    assert len(searching(store)) == 1
    page.click("#cancel")
    until(page, "() => !document.querySelector('#results.stale')")
    until(page, "() => document.querySelector('#cancel').style.display === 'none'")
    assert searching(store) == []


def test_a_search_shows_its_best_plan_so_far_which_cancelling_keeps(page: Any, site: str, store: Store) -> None:
    page.goto(f"{site}/?{SLOW}&seed=3")
    page.wait_for_selector("#chips >> text=so far: the search goes on")
    ready(page)
    assert page.locator("#cancel").is_visible() and "hypergraph (as " in page.inner_text("#why")
    drawn = page.get_attribute("#partition-drawing", "data-drawn")
    until(page, "d => document.querySelector('#partition-drawing').dataset.drawn !== d", drawn)  # a better one
    page.click("#cancel")
    page.wait_for_selector("#chips >> text=/cancelled: this is the best of [0-9]+ plans/")
    until(page, "() => document.querySelector('#cancel').style.display === 'none'")
    ready(page)
    assert searching(store) == [] and asked(page)["strategy"] == "hypergraph"
    assert page.locator("#kpis .kpi-value").count() == 6 and not page.inner_text("#verdict")


def test_a_cancelled_search_without_a_plan_gives_back_what_was_shown(
    page: Any, site: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(page, site, f"{QUICK}&effort=1&seed=9".replace("vgg_small", "vgg16_v100"))
    before = page.inner_text("#kpis")
    monkeypatch.setattr(Simulation, "best", property(lambda job: None, lambda job, best: None))
    choose(page, "c-strategy", "hypergraph")
    page.wait_for_selector("#badge >> text=/searching a hypergraph plan/i")
    assert page.inner_text("#kpis") == before and stale(page)
    page.click("#cancel")
    until(page, "() => !document.querySelector('#results.stale')")
    assert page.input_value("#c-strategy") == "data" and page.inner_text("#kpis") == before
    assert asked(page)["strategy"] == "data"
    page.goto(f"{site}/?{SLOW}&seed=10")
    page.wait_for_selector("#badge >> text=/searching a hypergraph plan/i")
    page.click("#cancel")
    page.wait_for_selector("#verdict >> text=cancelled")
    assert searching(store) == []


def test_a_search_is_cancelled_however_late_the_server_hears_of_it(
    page: Any, site: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later than it answers the request that goes on, which it would drop as a closed tab's where that had hung up."""
    cancel = store.desk.cancel

    def late(*request: Any) -> None:
        time.sleep(MORE_PATIENCE_S + 1.0)
        cancel(*request)

    monkeypatch.setattr(store.desk, "cancel", late)
    page.goto(f"{site}/?{SLOW}&seed=11")
    page.wait_for_selector("#chips >> text=so far: the search goes on")
    page.click("#cancel")
    page.wait_for_selector("#chips >> text=/cancelled: this is the best of [0-9]+ plans/")
    assert searching(store) == []


def test_a_closed_tab_ends_its_search(browser: Any, site: str, store: Store) -> None:
    page = browser.new_page()
    page.goto(f"{site}/?{SLOW}&seed=4")
    page.wait_for_selector("#badge >> text=/searching a hypergraph plan/i")
    assert len(searching(store)) == 1
    page.close(run_before_unload=True)
    ends_s = time.monotonic() + GONE_S + 8.0  # a browser that is short of time kills a tab before it can say so
    while searching(store):
        assert time.monotonic() < ends_s, "the search goes on"
        time.sleep(0.1)


def test_a_tab_that_closes_before_its_request_is_handled_searches_nothing(
    browser: Any, site: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, left, handled = threading.Event(), threading.Event(), threading.Event()
    ask, leave = store.desk.ask, store.desk.leave

    def late(*request: Any, **more: Any) -> Any:
        if more.get("number") is None or request[1].startswith("document"):  # the server asks by itself
            return ask(*request, **more)
        sent.set()
        assert left.wait(30)
        answer = ask(*request, **more)
        handled.set()
        return answer

    def leaving(*request: Any) -> None:
        leave(*request)
        left.set()

    page = browser.new_page()
    page.goto(f"{site}/profiles")
    until(page, "() => !!document.querySelector('.page-title')")
    monkeypatch.setattr(store.desk, "ask", late)
    monkeypatch.setattr(store.desk, "leave", leaving)
    page.goto(f"{site}/?{SLOW}&seed=5")
    while not sent.wait(0.1):
        page.wait_for_timeout(20)  # lets the driver work
    page.close(run_before_unload=True)
    assert handled.wait(30) and searching(store) == []


def test_a_net_and_a_device_light_up_everywhere(page: Any, site: str) -> None:
    opened(page, site, QUICK)
    page.click("#tab-machine")
    page.locator("#nets .pick").first.click()
    page.click("#tab-answer")
    until(
        page, "() => !!document.querySelector('#partition-drawing .has-layers .lit, #partition-drawing svg.has-layers')"
    )
    assert page.locator("#nets tr.lit").count() == 1
    page.locator("#partition-drawing [data-device='2']").first.click()
    until(page, "() => document.querySelector('#partition-drawing').dataset.drawn.includes('device=2')")
    until(page, "() => !!document.querySelector('#partition-drawing svg.has-device')")
    page.wait_for_selector("#detail >> text=computes")
    page.click("[aria-label^='Export Partition']")
    with page.expect_download() as download:
        page.click("text=Save as SVG >> visible=true")
    text = Path(download.value.path()).read_text(encoding="utf-8")
    assert download.value.suggested_filename == "partition.svg" and "split" in text and ".drawn" in text


def test_strategies_fill_in_and_a_click_switches(page: Any, site: str, store: Store) -> None:
    opened(page, site, f"{QUICK}&effort=0.02")
    known = "() => !!document.querySelector('#strategies tr') && !document.querySelector('#strategies').innerText"
    until(page, f"{known}.includes('in the background')", timeout_s=120)
    row = page.locator("#strategies tr", has_text="owt")
    promised = row.locator("td").first.inner_text().split(" ")[0]
    until(page, "() => document.querySelectorAll('#strategies-drawing svg .strong').length > 0")
    page.click("#tab-machine")
    until(page, "() => !!document.querySelector('#candidates-graph .point')")
    page.click("#tab-answer")
    row.locator("button").click()
    until(page, "() => new URLSearchParams(location.search).get('strategy') === 'owt'")
    ready(page)
    assert promised in page.locator("#kpis > div", has_text="Step time").inner_text()


def test_offers_of_the_micro_batch_field_run(page: Any, site: str) -> None:
    opened(page, site, QUICK)
    offers = page.locator(".offer[data-set='c-microbatches']")
    assert offers.count() >= 3
    offers.nth(2).click()
    until(page, "v => new URLSearchParams(location.search).get('microbatches') === v", offers.nth(2).inner_text())
    ready(page)
    assert "fits" in page.inner_text("#badge").lower()


@pytest.mark.parametrize("devices", [4, 64, 1024])
def test_every_figure_at_many_devices(page: Any, site: str, devices: int) -> None:
    query = f"profile=resnet50_v100&cluster=azure-v100-10g&strategy=data&devices={devices}&base="
    opened(page, site, query)
    page.wait_for_timeout(600)
    shot(page, f"explore-{devices}")
    assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")
    page.click("#tab-machine")
    until(page, "() => document.querySelectorAll('#links-graph .main-svg').length > 0")
    until(page, "() => document.querySelectorAll('#topology-graph .main-svg').length > 0")
    until(page, "() => document.querySelectorAll('#candidates-graph .main-svg').length > 0", timeout_s=30)
    page.wait_for_timeout(600)
    shot(page, f"machine-{devices}")
    assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")
    lanes = int(page.evaluate("() => shardscope.timeline('timeline').run.devices.length"))
    assert lanes == {4: 4, 64: 16, 1024: 32}[devices]
    if devices > 16:  # a click on a group opens it
        page.evaluate("() => shardscope.select({ group: 1 })")
        inside = {64: 4, 1024: 8}[devices]
        until(page, "n => document.querySelectorAll('#balance-graph .point').length === n", inside)
        page.click("#tab-answer")
        until(page, "n => shardscope.timeline('timeline').run.devices.length === n", inside)


def test_undo_and_back_step_through_configurations(page: Any, site: str) -> None:
    opened(page, site, QUICK)
    page.wait_for_timeout(1000)  # a change this soon after another is the same step
    page.fill("#c-devices", "2")
    page.press("#c-devices", "Tab")
    until(page, "() => new URLSearchParams(location.search).get('devices') === '2'")
    ready(page)
    page.wait_for_timeout(1000)
    page.click("#undo")
    until(page, "() => document.querySelector('#c-devices').value === '4'")
    ready(page)
    page.go_forward()
    until(page, "() => document.querySelector('#c-devices').value === '2'")
    page.click("text=Recent runs")
    assert page.locator("#history-runs button").count() == 2


def test_a_plan_that_was_exported_is_opened(page: Any, site: str, tmp_path: Path) -> None:
    opened(page, site, QUICK)
    step = page.locator("#kpis > div", has_text="Step time").inner_text()
    page.locator("summary", has_text="Export").click()
    with page.expect_download() as download:
        page.click("text=plan.json")
    download.value.save_as(tmp_path / "mine.json")
    choose(page, "c-strategy", "pipeline")
    until(page, "() => new URLSearchParams(location.search).get('strategy') === 'pipeline'")
    ready(page)
    open_files(page, str(tmp_path / "mine.json"))
    until(page, "() => new URLSearchParams(location.search).get('plan').startsWith('mine@')")
    ready(page)
    assert page.locator("#kpis > div", has_text="Step time").inner_text() == step
    choose(page, "c-profile", "alexnet_v100")  # another model has none of its layers
    until(page, "() => new URLSearchParams(location.search).get('plan') === ''")
    ready(page)
    assert page.inner_text("#badge").startswith("fits")
    open_files(page, {"name": "x.json", "mimeType": "", "buffer": b"[]"})
    page.wait_for_selector("#opened >> text=x.json: it is of no known kind")


def test_on_a_phone_results_come_first(browser: Any, site: str) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    opened(page, site, QUICK)
    assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")
    tops = [page.locator(where).bounding_box()["y"] for where in ("#kpis", "#timeline", ".rail")]
    assert tops == sorted(tops)
    shot(page, "explore-phone")
    page.close()


def test_the_first_screen_answers_for_vgg16_on_8_gpus(browser: Any, site: str, store: Store) -> None:
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    query = replace(store.default(), strategy="data").query()
    assert "profile=vgg16_v100" in query and "devices=8" in query
    opened(page, site, query)
    until(page, "() => !!document.querySelector('#strategies tr.shown td:nth-child(3)')")
    for part in ("#kpis", "#why", "#advice", "#strategies", "#timeline canvas"):
        assert page.locator(part).bounding_box()["y"] < 640, part
    rows = page.locator("#strategies tbody tr")
    assert rows.count() >= 4 and rows.last.bounding_box()["y"] + 20 < 900
    sentence = page.inner_text("#why")
    assert "limited by" in sentence and "between nodes" in sentence
    moved = page.locator("#kpis > div", has_text="Sent per step").locator(".kpi-value").inner_text()
    assert page.locator("#strategies tr.shown td").nth(1).inner_text() == moved and moved in sentence
    assert {cell.split()[1] for cell in page.locator("#strategies td:nth-child(3)").all_inner_texts()} == {"MiB"}
    page.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("path", ["compare", "sweep", "scenario", "validate", "profiles"])
def test_pages_on_a_desk(browser: Any, site: str, path: str, theme: str) -> None:
    """At 1,280 and 1,920 px: nothing wider than the window, no text cut off in tables, nothing for axe."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{site}/{path}?{QUICK}")
    page.wait_for_selector("main")
    page.wait_for_load_state("networkidle")
    if theme == "dark":
        page.click("#theme-button")
        page.wait_for_selector("html[data-mantine-color-scheme=dark]")
    for width in (1280, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(900)  # figures are laid out anew, colours fade
        assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")
        assert page.evaluate(CUT_OFF) == []
        assert violations(page) == []
        shot(page, f"{path}-{theme}-{width}")
    page.close()


@pytest.mark.parametrize("path", ["compare", "sweep", "scenario", "validate", "profiles"])
def test_no_page_is_wider_than_a_phone(browser: Any, site: str, path: str) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto(f"{site}/{path}?{QUICK}")
    page.wait_for_selector("main")
    page.wait_for_load_state("networkidle")
    assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")
    last = page.locator("nav a").last.bounding_box()
    assert last["x"] + last["width"] <= 390
    shot(page, f"{path}-phone")
    page.close()


def test_the_page_does_not_jump_while_it_fills(page: Any, site: str, store: Store) -> None:
    page.add_init_script(
        "window.shift = 0; new PerformanceObserver((list) => { for (const e of list.getEntries()) "
        "if (!e.hadRecentInput) window.shift += e.value; }).observe({ type: 'layout-shift', buffered: true });"
    )
    opened(page, site, replace(store.default(), strategy="data").query())
    page.wait_for_timeout(1500)
    assert page.evaluate("() => window.shift") < 0.1


def test_numbers_come_before_plotly_and_a_bar_selects_its_device(page: Any, site: str) -> None:
    page.add_init_script(
        "new MutationObserver(() => { if (document.querySelector('#kpis .kpi-value')) "
        "window.early ??= !!window.Plotly; }).observe(document, { childList: true, subtree: true })"
    )
    opened(page, site, QUICK)
    assert page.evaluate("() => window.early") is False
    page.click("#tab-machine")
    until(page, "() => document.querySelectorAll('#balance-graph .point').length === 4")
    page.wait_for_load_state("networkidle")
    page.locator("#balance-graph").scroll_into_view_if_needed()
    bar = page.locator("#balance-graph .point").nth(2).bounding_box()
    where = bar["x"] + bar["width"] / 2, bar["y"] + bar["height"] / 2
    page.mouse.move(*where)
    page.wait_for_timeout(300)  # Plotly tells of a click where it has told of the pointer
    page.mouse.click(*where)
    until(page, "() => shardscope.selection?.device === 2")
    page.wait_for_selector("#detail >> text=/computes|device/i")


def test_page_switches_leave_nothing_behind(page: Any, site: str) -> None:
    """Twenty switches more must not add a page's worth of nodes, listeners or memory."""
    opened(page, site, QUICK)
    before, after = kept(page, 10), kept(page, 20)
    assert {name for name in before if after[name] >= 1.25 * before[name]} == set(), (before, after)


def test_scripts_and_styles_are_small(page: Any, site: str) -> None:
    sizes: list[int] = []
    fixed = ("/_dash-component-suites/", "/assets/")

    def count(request: Any) -> None:
        if any(part in request.url for part in fixed):
            sizes.append(request.sizes()["responseBodySize"])

    page.on("requestfinished", count)
    opened(page, site, QUICK)
    assert len(sizes) > 10 and sum(sizes) < 3.0e6
