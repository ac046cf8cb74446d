"""Compare, Profiles, Validate and Scenario in a real browser: what a person sees and does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dashboard_screens import SCREENS, choose, open_files, state

from benchmarks.pages.browser import settled, shot, until, violations
from dashboard.state.scenarios import shipped_scenarios
from dashboard.state.store import Store, bundled
from dashboard.state.validations import at_hand
from simulator.engine import simulate
from simulator.engine.noise import Noise
from simulator.files import write_profile
from traces.results.executions import Execution, write_execution

pytestmark = SCREENS


@pytest.fixture(scope="module")
def store() -> Store:
    profiles = bundled()
    return Store({"vgg_small": profiles["vgg_small"], **profiles}, validations=at_hand(), scenarios=shipped_scenarios())


def test_a_page_has_a_title_and_one_that_is_not_there_is_seen_to_be_missing(page: Any, site: str) -> None:
    page.goto(f"{site}/profiles?v=1&profile=gpt2")
    until(page, "() => document.title === 'Profiles · gpt2 · Shardscope'")
    page.goto(f"{site}/nothing")
    page.wait_for_selector("text=There is no page '/nothing'")
    bottom = page.locator("header").bounding_box()
    assert page.locator("text=No such page").bounding_box()["y"] >= bottom["y"] + bottom["height"]
    assert violations(page) == [] and page.complaints.pop()[-15:] == "404 (NOT FOUND)"  # the browser's word for it


def test_compare_shares_one_axis(page: Any, site: str) -> None:
    page.goto(f"{site}/compare")
    boxes = [page.locator(f"#{name}").bounding_box() for name in ("results", "pair-card")]
    assert boxes[0]["y"] + boxes[0]["height"] <= min(page.viewport_size["height"], boxes[1]["y"])  # numbers come first
    until(page, "() => document.querySelectorAll('.timeline[data-spans]').length === 2")
    until(page, "() => [0, 1].every((i) => document.querySelector(`#partition-${i} .drawn [data-layers]`))")
    page.focus("#timeline-0")
    page.keyboard.press("w")
    page.wait_for_timeout(200)
    assert page.get_attribute("#timeline-0", "data-view") == page.get_attribute("#timeline-1", "data-view")
    assert "step time" in page.inner_text("#results")
    page.keyboard.press("f")
    page.wait_for_timeout(300)
    shot(page, "compare")
    assert violations(page) == []


def test_a_column_has_one_number_of_decimals(page: Any, site: str, store: Store) -> None:
    page.goto(f"{site}/profiles?profile=resnet50_v100")
    cells = "() => [...document.querySelectorAll('#layers .ag-cell[col-id=parameters_mib]')].map((c) => c.innerText)"
    until(page, f"() => ({cells})().length > 5")
    sizes = [layer.parameter_bytes / 2**20 for layer in store.profiles.get("resnet50_v100").layers]
    shown = ["<0.001" if 0 < s < 0.0005 else f"{s:,.3f}" for s in (size + 1e-9 if size else 0.0 for size in sizes)]
    texts = page.evaluate(cells)
    assert texts == shown[: len(texts)] and {"<0.001", "0.000"} < set(texts)


def test_profiles_and_upload(page: Any, site: str, store: Store, tmp_path: Path) -> None:
    page.goto(f"{site}/profiles")
    until(page, "() => document.querySelectorAll('.main-svg').length >= 4")
    assert "measured end to end" in page.inner_text("#provenance")
    page.wait_for_timeout(500)
    shot(page, "profiles")
    assert violations(page) == []
    open_files(page, {"name": "bad.json", "mimeType": "", "buffer": b'{"schema": 1,\n "modle": "x"}'})
    page.wait_for_selector("#opened >> text=bad.json: it is of no known kind")
    assert violations(page) == []
    shot(page, "profiles-bad-upload", full=False)
    write_profile(replace(store.profiles.get("vgg_small"), model="mine"), tmp_path / "mine.json")
    open_files(page, str(tmp_path / "mine.json"))
    page.click("#explore-profile[href*='mine@']")
    until(page, "() => new URLSearchParams(location.search).get('profile')?.startsWith('mine@')")
    settled(page)
    assert state(page)["profile"].startswith("mine@")


def test_validate_explains_the_run_that_is_chosen(page: Any, site: str) -> None:
    page.goto(f"{site}/validate?by=ranks")
    until(page, "() => document.querySelectorAll('.main-svg').length >= 10")
    worst = page.input_value("#validate-run")
    until(page, "worst => document.querySelector('#validate-details').innerText.includes(worst)", worst)
    details = page.inner_text("#validate-details")
    assert worst in details and ("too short" in details or "too long" in details)
    page.wait_for_timeout(300)
    shot(page, "validate")
    assert violations(page) == []
    page.locator("#validate-rows .ag-row[row-index='2'] [col-id=error]").click()
    until(page, "worst => ![null, worst].includes(new URLSearchParams(location.search).get('run'))", worst)
    clicked = page.input_value("#validate-run")
    assert state(page)["by"] == "ranks" and state(page)["run"] == clicked
    until(page, "name => document.querySelector('#validate-details').innerText.includes(name)", clicked)
    page.keyboard.press("/")
    page.keyboard.type("ddp")
    listed = page.locator(f"[id='{page.locator('#validate-run').get_attribute('aria-controls')}'] [role=option]")
    listed.filter(has_not_text="ddp").first.wait_for(state="detached")  # the list is what was typed
    page.keyboard.press("ArrowDown")
    page.wait_for_selector("[role=option][data-combobox-selected] >> text=ddp")
    page.keyboard.press("Enter")
    until(page, "() => document.querySelector('#validate-details').innerText.includes('DistributedDataParallel')")
    open_files(page, {"name": "x.json", "mimeType": "", "buffer": b'{"machine": "m", "outcomes": []}'})
    page.wait_for_selector("#opened >> text=schema is missing")


def test_an_actual_run_beside_its_prediction(page: Any, site: str, store: Store, tmp_path: Path) -> None:
    configuration = store.default()
    simulated = store.outcome(configuration)
    assert simulated.run is not None and simulated.cluster is not None
    timeline = simulate(Noise(jitter=0.15, stragglers={1: 1.4}, seed=3).disturb(simulated.run.graph), simulated.cluster)
    sent = simulated.run.graph.bytes.astype(float)
    write_execution(
        Execution(steps_s=(timeline.step_s,) * 5, losses=(1.0,) * 5, sent_bytes=sent, timeline=timeline),
        tmp_path / "slow-host1.npz",
    )
    page.goto(f"{site}/compare")
    open_files(page, str(tmp_path / "slow-host1.npz"))
    page.wait_for_selector("#compared >> text=longest over prediction")
    until(page, "() => document.querySelectorAll('.timeline[data-spans]').length === 2")
    until(page, "() => new URLSearchParams(location.search).get('against').startsWith('slow-host1@')")
    views = [[float(t) for t in page.get_attribute(f"#timeline-{i}", "data-view").split(",")] for i in (0, 1)]
    assert views == [[0, pytest.approx(timeline.step_s)]] * 2  # the longer of both
    page.wait_for_timeout(500)
    shot(page, "compare-actual")
    assert violations(page) == []
    page.reload()
    page.wait_for_selector("#compared >> text=longest over prediction")
    choose(page, "against", "the baseline")
    page.wait_for_selector("#compared >> text=Changed controls")
    open_files(page, {"name": "x.npz", "mimeType": "", "buffer": b"PK"})
    page.wait_for_selector("#opened >> text=not a numpy archive")


def test_a_scenario_over_time(page: Any, site: str) -> None:
    page.goto(f"{site}/scenario?incident=6")
    page.wait_for_selector("#incident-summary >> text=inter links")
    lost = page.inner_text("#scenario-kpis")
    page.locator("#incidents .ag-row[row-index='5'] [col-id=event]").click()
    page.wait_for_selector("#incident-summary >> text=vanish")
    until(page, "() => new URLSearchParams(location.search).get('incident') === '5'")
    page.wait_for_timeout(400)
    shot(page, "scenario")
    assert violations(page) == []
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    page.wait_for_selector("#incident-summary >> text=inter links")
    page.click("#policy >> text=restart")
    until(page, "lost => document.querySelector('#scenario-kpis').innerText !== lost", lost)
    assert state(page)["policy"] == "restart"
    reaching = b"schema: 1\nprofile: /etc/passwd\ncluster: t4-g4dn\noverheads: x\nduration: 1h\n"
    open_files(page, {"name": "x.yaml", "mimeType": "", "buffer": reaching})
    page.wait_for_selector("#scenario-summary >> text=unknown profile")


def test_a_language_model_and_an_unknown_one(page: Any, site: str) -> None:
    """A card's numbers, a grid too large to draw without an error in the console, and the page of an unknown name."""
    page.goto(f"{site}/?v=1&profile=llama3-1b&cluster=dgx-h100&strategy=megatron&devices=64&tensor=2&pipeline=2")
    page.wait_for_selector("#badge >> text=/^fits · /")
    assert page.is_visible("#c-context") and page.is_hidden("#c-expert")
    large = "cluster=dgx-h100&strategy=megatron&devices=512&tensor=8&pipeline=8&microbatches="
    page.goto(f"{site}/?v=1&profile=llama3-70b&{large}")
    page.wait_for_selector("#kpis >> text=Step time")
    page.wait_for_selector("#timeline-card", state="hidden")
    page.goto(f"{site}/?v=1&profile=llama3-8x")
    assert page.locator("a.chip-link").first.inner_text() == "llama3-8b"
    assert page.is_visible("text=Unknown profile 'llama3-8x'") and page.locator("#kpis").count() == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_plans_are_ranked_and_one_opens_with_its_step(page: Any, site: str, theme: str) -> None:
    page.emulate_media(color_scheme=theme)
    page.goto(f"{site}/plans?v=1&profile=gpt2-xl&cluster=dgx-h100&devices=8&batch_size=32")
    until(page, "() => document.querySelector('#plans-words')?.innerText.startsWith('Best: ')", timeout_s=120)
    until(page, "() => document.querySelectorAll('#plans-rows .ag-row').length > 3")
    until(page, "() => document.querySelectorAll('.js-plotly-plot .main-svg').length >= 6")
    page.wait_for_timeout(900)
    assert violations(page) == []
    shot(page, f"plans-{theme}")
    assert "90% sure of" in page.inner_text("#plans-words") and "torchrun" in page.inner_text("#plans-picked pre")
    page.locator("#plans-rows .ag-row[row-index='2'] [col-id=title]").click()
    page.wait_for_selector("#plans-picked >> text=Explore plan 3")
    step_ms = float(page.inner_text("#plans-rows .ag-row[row-index='2'] [col-id=step_s]").replace(",", ""))
    page.click("#plans-picked a")
    settled(page)
    value, unit = page.locator("#kpis .kpi-value").first.inner_text().split()
    assert float(value) * {"s": 1e3, "ms": 1.0}[unit] == pytest.approx(step_ms, rel=6e-3)


def test_plans_are_filtered_on_a_phone(browser: Any, site: str) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto(f"{site}/plans?v=1&profile=gpt2-xl&cluster=dgx-h100&devices=8&batch_size=32")
    until(page, "() => document.querySelector('#plans-words')?.innerText.startsWith('Best: ')", timeout_s=120)
    page.click("#plans-zero")
    page.locator("[role=option]:visible", has_text="3").click()
    until(page, "() => [...document.querySelectorAll('#plans-rows .ag-row [col-id=title]')].every("
          "(each) => each.innerText.includes('ZeRO-3'))")  # fmt: skip
    assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")
    shot(page, "plans-phone")
    page.close()
