"""Explore in a real browser: what a person sees and does."""

from __future__ import annotations

import csv
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dashboard_screens import SCREENS, changed, choose, kpi, open_files, opened, state

from benchmarks.pages.browser import settled, shot, until, violations
from benchmarks.screens.budgets import sized
from dashboard.state.scenarios import shipped_scenarios
from dashboard.state.store import Store, bundled
from dashboard.state.validations import at_hand
from simulator.network.catalogue import read_preset, write_cluster

pytestmark = SCREENS


@pytest.fixture(scope="module")
def store() -> Store:
    profiles = bundled()
    return Store({"vgg_small": profiles["vgg_small"], **profiles}, validations=at_hand(), scenarios=shipped_scenarios())


def test_the_first_screen_is_never_blank(page: Any, site: str) -> None:
    opened(page, site)
    assert "fits" in page.inner_text("#badge").lower()
    assert page.locator(".kpis > div").count() == 6
    assert "▼" in kpi(page, "Step time") or "▲" in kpi(page, "Step time")  # against data parallelism
    until(page, "() => document.querySelector('#advice').innerText.includes('Largest loss')")
    shot(page, "explore")


def test_axe_finds_nothing(page: Any, site: str) -> None:
    opened(page, site)
    until(page, "() => !!document.querySelector('#advice .apply')")
    assert violations(page) == []
    page.click("#theme-button")
    page.wait_for_selector("html[data-mantine-color-scheme=dark]")
    page.wait_for_timeout(600)  # colours fade
    assert violations(page) == []
    page.click("#tab-machine")
    page.locator("#tasks .ag-row").first.wait_for()  # before it has rows, its table has no cells
    page.wait_for_timeout(600)
    assert violations(page) == []
    shot(page, "machine-dark")
    page.click("#theme-button")
    page.wait_for_selector("html[data-mantine-color-scheme=light]")
    page.wait_for_timeout(600)
    assert violations(page) == []


def test_every_control_changes_what_it_should(page: Any, site: str) -> None:
    opened(page, site)
    seen = {kpi(page, "Step time")}
    for control, typed, field in (
        ("devices", "2", "devices"), ("microbatches", "4", "microbatches"), ("batch-size", "64", "batch_size"),
        ("seed", "5", "seed"),
    ):  # fmt: skip
        page.fill(f"#c-{control}", typed)
        page.press(f"#c-{control}", "Tab")
        changed(page, field, typed)
        seen.add(kpi(page, "Step time"))
    for control, option, field in (
        ("schedule", "gpipe", "schedule"), ("optimizer", "adam", "optimizer"), ("collective", "tree", "collective"),
        ("strategy", "data", "strategy"), ("cluster", "dgx-h100", "cluster"), ("profile", "resnet_small", "profile"),
    ):  # fmt: skip
        choose(page, f"c-{control}", option)
        until(page, "([f, v]) => new URLSearchParams(location.search).get(f).startsWith(v)", [field, option])
        settled(page)
        seen.add(kpi(page, "Step time"))
    assert len(seen) >= 6


def test_sliders_and_switches(page: Any, site: str) -> None:
    opened(page, site, "strategy=data")
    step_s = "() => shardscope.timeline('timeline').run?.step_s"  # a latency may not show in three digits
    for field in ("inter_bandwidth", "inter_latency", "speed"):
        until(page, f"() => ({step_s})() > 0")  # the timeline comes after the numbers
        before = page.evaluate(step_s)
        thumb = page.locator(f"#c-{field.replace('_', '-')} [role=slider]")
        thumb.focus()
        for _ in range(4):
            thumb.press("ArrowRight")
        changed(page, field, "4")
        until(page, f"before => ({step_s})() > 0 && ({step_s})() !== before", before)
    page.locator("label", has_text="Overlap all-reduce").click()
    changed(page, "overlap", "0")


def test_a_control_that_does_not_apply_is_gone(page: Any, site: str) -> None:
    opened(page, site, "effort=0.02")
    assert page.is_hidden("#c-effort") and page.is_hidden("#c-zero-stage")
    choose(page, "c-strategy", "hypergraph")
    changed(page, "strategy", "hypergraph")
    assert page.is_visible("#c-effort")


def test_a_pinned_baseline_is_compared_with(page: Any, site: str) -> None:
    opened(page, site)
    page.click("#pin")
    until(page, "document.querySelector('.kpis').innerText.includes('= 0%')")
    page.fill("#c-devices", "2")
    changed(page, "devices", "2")
    until(page, "() => !document.querySelector('.kpis').innerText.includes('Step time\\n= 0%')")
    assert "devices=4" in state(page)["base"]
    page.click("#unpin")
    until(page, "() => !new URLSearchParams(location.search).get('base')")
    until(page, "() => !/[▲▼=] /.test(document.querySelector('.kpis').innerText)")


def test_a_link_shows_the_same_again(page: Any, site: str) -> None:
    opened(page, site)
    page.fill("#c-microbatches", "16")
    changed(page, "microbatches", "16")
    numbers, address = page.inner_text(".kpis"), page.url
    page.goto("about:blank")
    page.goto(address)
    settled(page)
    assert page.inner_text(".kpis") == numbers
    assert page.input_value("#c-microbatches") == "16"


def test_a_link_with_bad_values_still_opens(page: Any, site: str) -> None:
    page.goto(f"{site}/?v=1&devices=9999&strategy=alchemy&seed=x")
    page.locator("text=/out of range|it is one of/").first.wait_for()
    settled(page)
    assert page.input_value("#c-strategy") == "pipeline"


def test_advice_is_one_click(page: Any, site: str) -> None:
    opened(page, site)
    page.wait_for_selector("#advice .apply")
    promised = page.locator("#advice .apply").first.inner_text().split(": ")[1].split(" (")[0]
    page.locator("#advice .apply").first.click()
    until(page, "v => document.querySelector('.kpis').innerText.includes(v)", promised)
    settled(page)


def test_an_infeasible_configuration_is_an_answer(page: Any, site: str) -> None:
    opened(page, site, "strategy=data&devices=64&batch_size=8")
    assert "cannot run" in page.inner_text("#verdict")
    assert "cannot run" in page.inner_text("#badge").lower()
    page.wait_for_selector("#advice .apply")
    shot(page, "infeasible", full=False)


def test_one_selection_everywhere(page: Any, site: str) -> None:
    opened(page, site)
    page.click("#find-layer")
    page.locator("[role=option]:visible").nth(3).click()
    page.wait_for_selector("#detail >> text=layer ")
    page.focus("#timeline")
    page.keyboard.press("n")
    page.wait_for_selector("#detail >> text=it waited for")
    page.keyboard.press("Escape")
    until(page, "document.querySelector('#detail').innerText === ''")


def test_the_timeline_by_keyboard(page: Any, site: str) -> None:
    opened(page, site)

    def view() -> list[float]:
        page.wait_for_timeout(100)
        return [float(x) for x in page.get_attribute("#timeline", "data-view").split(",")]

    page.focus("#timeline")
    whole = view()
    page.keyboard.press("w")
    zoomed = view()
    assert zoomed[1] - zoomed[0] == pytest.approx(0.7 * (whole[1] - whole[0]))
    page.keyboard.press("ArrowRight")
    assert view()[0] > zoomed[0]
    page.keyboard.press("m")
    assert "mean" in page.inner_text(".timeline-status")
    page.keyboard.press("f")
    assert view() == whole
    page.keyboard.press("?")
    page.wait_for_selector("[role=dialog] >> text=Timeline")


def test_the_main_path_by_keyboard_alone(page: Any, site: str) -> None:
    opened(page, site)
    names = []
    for _ in range(40):
        page.keyboard.press("Tab")
        names.append(page.evaluate("document.activeElement.id"))
        if names[-1] == "c-strategy":
            break
    assert names[-1] == "c-strategy"
    page.keyboard.press("Enter")
    page.locator("[role=option]:visible").first.wait_for()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    until(page, "() => new URLSearchParams(location.search).get('strategy') !== 'pipeline'")
    settled(page)


def test_the_table_is_the_twin_of_the_canvas(page: Any, site: str, store: Store) -> None:
    opened(page, site)
    page.click("#tab-machine")
    page.locator("#tasks .ag-row").first.wait_for()
    first = page.locator("#tasks .ag-row[row-index='0'] [col-id=takes_ms]")
    before = first.inner_text()
    page.locator("#tasks .ag-header-cell[col-id=takes_ms]").click()
    until(
        page,
        "b => document.querySelector(\"#tasks .ag-row[row-index='0'] [col-id=takes_ms]\")?.innerText !== b",
        before,
    )
    page.locator("#tasks .ag-row[row-index='1'] [col-id=kind]").click()
    page.wait_for_selector("#detail >> text=it waited for")
    for _ in range(2):  # the most bytes first
        page.locator("#tasks .ag-header-cell[col-id=bytes]").click()
    run = store.outcome(store.default()).run
    assert run is not None
    cell = "t => document.querySelector(\"#tasks .ag-row[row-index='0'] [col-id=bytes]\")?.innerText === t"
    until(page, cell, f"{run.graph.bytes.max():,.0f}", timeout_s=20)


def test_every_strategy_of_the_registry_shows(page: Any, site: str, store: Store) -> None:
    import partitioners

    assert {"hypergraph", "layerwise", "spatial"} <= set(partitioners.strategies())
    for name in ("hypergraph", "layerwise", "spatial"):  # the others differ in nothing that the page knows of
        opened(page, site, replace(store.default(), strategy=name, effort=0.02).query())
        assert state(page)["strategy"] == name
        if name in ("hypergraph", "layerwise"):
            shot(page, f"explore-{name}")


def test_exports_and_cards_download(page: Any, site: str) -> None:
    opened(page, site)
    page.click("text=Export")
    with page.expect_download() as download:
        page.click("text=report.html")
    assert download.value.suggested_filename == "report.html"
    opened(page, site, "v=1&strategy=layerwise&devices=64&cluster=cpu-1g")
    page.click("text=Export")
    page.click("text=plan.json")
    page.wait_for_selector("[role=alert] >> text=this page plans layerwise for up to 32 devices")
    assert [page.complaints.pop()[-26:]] == ["422 (UNPROCESSABLE ENTITY)"]  # the browser's own word for that
    with page.expect_download() as download:  # which that names
        page.click("text=Export")
        page.click("text=command.sh")
    assert "--devices 64" in Path(download.value.path()).read_text(encoding="utf-8")


def test_cards_csvs_hold_what_the_report_says(page: Any, site: str, store: Store) -> None:
    opened(page, site)
    outcome = store.outcome(store.default())
    assert outcome.run is not None and outcome.cluster is not None and outcome.flows is not None
    report = outcome.run.report

    def saved(card: str) -> list[dict[str, str]]:
        page.locator(f"#{card} summary[aria-label^='Export ']").click()
        with page.expect_download() as download:
            page.click(f"#{card} [data-export=csv]")
        assert download.value.suggested_filename == f"{card}.csv"
        with open(download.value.path(), encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    layers = saved("partition")
    page.click("#tab-machine")
    settled(page)
    balance = [float(row["compute_s"]) for row in saved("balance")]
    assert balance == [device.compute_s for device in report.devices[: outcome.cluster.workers]]
    names = [device.name for device in outcome.cluster.devices]
    matrix = np.zeros((len(names), len(names)))
    for row in saved("traffic"):
        matrix[names.index(row["from"]), names.index(row["to"])] = float(row["bytes"])
    assert matrix == pytest.approx(np.array(report.communication_bytes.matrix), abs=1)
    memory = saved("memory")
    assert [row["device"] for row in memory] == [device.name for device in report.devices]
    links = {(row["from"], row["to"]) for row in saved("topology")}
    assert links == {(link.source, link.target) for link in outcome.cluster.links}
    assert [row["layer"] for row in layers] == [layer.name for layer in outcome.profile.layers]
    moved = sum(float(value) for row in layers for name, value in row.items() if "_bytes_" in name)
    assert moved == pytest.approx(report.communication_bytes.total)
    assert [float(row["compute_s"]) for row in layers] == pytest.approx(outcome.flows.seconds.sum(axis=1))


def test_200_000_spans_are_moved_and_painted_in_time(page: Any, site: str, store: Store) -> None:
    opened(page, site, sized(store, 200_000).query())
    assert int(page.get_attribute("#timeline", "data-spans")) > 150_000
    page.focus("#timeline")
    started = time.perf_counter()
    for key in "wwwddddaassf":
        page.keyboard.press(key)
    assert time.perf_counter() - started < 12
    assert float(page.get_attribute("#timeline", "data-paint-ms")) < 900  # 3 times the budget


def test_a_cluster_file_is_explored(page: Any, site: str, tmp_path: Path) -> None:
    opened(page, site)
    before = kpi(page, "Step time")
    slow = read_preset("cpu-1g").build(3).with_tier("inter", bandwidth_bytes_per_s=12.5e6)
    write_cluster(slow, tmp_path / "slow.yaml")
    open_files(page, str(tmp_path / "slow.yaml"))
    until(page, "() => new URLSearchParams(location.search).get('cluster').startsWith('slow@')")
    changed(page, "devices", "3")
    assert kpi(page, "Step time") != before and page.input_value("#c-cluster") == "slow"
    dropped = """() => {
      const dataTransfer = new DataTransfer();
      dataTransfer.items.add(new File(["412ms 405ms 409ms"], "times.txt"));
      const like = { dataTransfer, bubbles: true, cancelable: true };
      for (const kind of ["dragover", "drop"]) document.body.dispatchEvent(new DragEvent(kind, like));
    }"""
    page.evaluate(dropped)
    page.wait_for_selector("#opened >> text=error of the prediction")
    assert "3 steps are steady" in page.inner_text("#opened")
    shot(page, "opened-log", full=False)
    assert violations(page) == []
    page.keyboard.press("Escape")
    assert not page.is_visible("#opened")
