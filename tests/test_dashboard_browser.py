"""The dashboard in a real browser: what a person sees and does."""

from __future__ import annotations

import csv
import re
import time
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

from benchmarks.browser import needs_browser, settled, shot, until, violations
from benchmarks.screens import sized
from dashboard.state.scenarios import shipped_scenarios
from dashboard.state.store import Store, bundled
from dashboard.state.sweeps import configuration_of
from dashboard.state.validations import at_hand
from simulator.engine import simulate
from simulator.engine.noise import Noise
from simulator.files import library, write_profile
from simulator.network.catalogue import read_preset, write_cluster
from traces.results.executions import Execution, write_execution

pytestmark = [
    pytest.mark.screens,
    needs_browser,
    pytest.mark.skipif("vgg_small" not in library(), reason="the library has no profile vgg_small"),
    pytest.mark.filterwarnings("default"),  # of the browser's driver
]


@pytest.fixture(scope="module")
def store() -> Store:
    profiles = bundled()
    return Store({"vgg_small": profiles["vgg_small"], **profiles}, validations=at_hand(), scenarios=shipped_scenarios())


def opened(page: Any, site: str, query: str = "", path: str = "/") -> None:
    page.goto(f"{site}{path}{'?' + query if query else ''}")
    settled(page)


def state(page: Any) -> dict[str, str]:
    """The controls as the address tells them."""
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query, keep_blank_values=True).items()}


def kpi(page: Any, label: str) -> str:
    text: str = page.locator(".kpis > div", has_text=label).inner_text()
    return text


def choose(page: Any, control: str, option: str) -> None:
    """Take the first option of a select that begins so."""
    page.click(f"#{control}")
    page.locator("[role=option]:visible", has_text=re.compile(f"^{re.escape(option)}")).first.click()


def changed(page: Any, field: str, value: str) -> None:
    until(page, "([f, v]) => new URLSearchParams(location.search).get(f) === v", [field, value])
    settled(page)


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
    page.locator("#tasks .ag-row").first.wait_for()  # before it has rows, its table has no cells
    assert violations(page) == []
    page.click("#theme-button")
    page.wait_for_selector("html[data-mantine-color-scheme=dark]")
    page.wait_for_timeout(600)  # colours fade
    assert violations(page) == []
    page.wait_for_timeout(300)
    shot(page, "explore-dark")


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


def test_a_control_that_does_not_apply_is_disabled_and_says_why(page: Any, site: str) -> None:
    opened(page, site, "effort=0.02")
    assert page.is_disabled("#c-effort") and "not for pipeline" in page.inner_text(".rail")
    choose(page, "c-strategy", "hypergraph")
    changed(page, "strategy", "hypergraph")
    assert page.is_enabled("#c-effort")


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
    page.goto(f"{site}/?v=1&devices=9999&strategy=alchemy&seed=x&profile=gone@1")
    page.locator("text=/out of range|not usable|unknown profile/").first.wait_for()
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
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    until(page, "() => new URLSearchParams(location.search).get('strategy') !== 'pipeline'")
    settled(page)


def test_the_table_is_the_twin_of_the_canvas(page: Any, site: str, store: Store) -> None:
    opened(page, site)
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
    layers = saved("partition")
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
    until(page, "() => document.querySelectorAll('.main-svg').length >= 6")
    assert "measured end to end" in page.inner_text("#provenance")
    page.wait_for_timeout(500)
    shot(page, "profiles")
    assert violations(page) == []
    bad = tmp_path / "bad.json"
    bad.write_text('{"schema": 1,\n "modle": "x"}')
    page.set_input_files("#upload input[type=file]", str(bad))
    page.wait_for_selector("#uploaded >> text=did you mean 'model'")
    shot(page, "profiles-bad-upload", full=False)
    write_profile(replace(store.profiles.get("vgg_small"), model="mine"), tmp_path / "mine.json")
    page.set_input_files("#upload input[type=file]", str(tmp_path / "mine.json"))
    page.wait_for_selector("#uploaded >> text=mine@")
    page.click("#explore-profile[href*='mine@']")
    until(page, "() => new URLSearchParams(location.search).get('profile')?.startsWith('mine@')")
    settled(page)
    assert state(page)["profile"].startswith("mine@")


def rows_of(path: Path, kind: str) -> list[dict[str, Any]]:
    """The rows of a table as values; empty cells are left out."""
    if kind == "parquet":
        table = import_module("pyarrow.parquet").read_table(path).to_pylist()
    else:
        with path.open(encoding="utf-8", newline="") as file:
            table = list(csv.DictReader(file))
    return [{name: value_of(cell) for name, cell in row.items() if cell not in (None, "")} for row in table]


def value_of(cell: Any) -> Any:
    """What a cell of text means."""
    if not isinstance(cell, str):
        return cell
    with suppress(ValueError):
        return int(cell)
    with suppress(ValueError):
        return float(cell)
    return {"True": True, "False": False}.get(cell, cell)


def test_a_sweep_streams_survives_a_reload_and_cancels(page: Any, site: str, store: Store) -> None:
    page.goto(f"{site}/sweep")
    page.fill("#sweep-x-values", "1Gbps..64Gbps by x2")
    page.click("#sweep-start")
    page.wait_for_selector("#sweep-progress >> text=/of 21 points/")
    page.reload()
    page.wait_for_selector("#sweep-progress >> text=/of 21 points/")
    until(page, "() => document.querySelector('#sweep-progress').innerText.endsWith('.')", timeout_s=180)
    page.wait_for_timeout(1000)
    shot(page, "sweep")
    assert violations(page) == []
    tables = {}
    for kind in ("csv", "parquet") if find_spec("pyarrow") else ("csv",):
        with page.expect_download() as download:
            page.click(f"#sweep-files a[href$='.{kind}']")
        assert re.fullmatch(rf"sweep-\d+\.{kind}", download.value.suggested_filename)
        tables[kind] = rows_of(Path(download.value.path()), kind)
    rows = tables["csv"]
    assert [row["number"] for row in rows] == list(range(21)) and list(tables.values()) == [rows] * len(tables)
    for row in rows[::5]:
        again = store.outcome(configuration_of(row, store.default(), store)).run
        assert again is not None and row["step_s"] == pytest.approx(again.report.step_s)
        assert row["communication_bytes"] == pytest.approx(again.report.communication_bytes.total)
    page.locator("#sweep-rows .ag-row[row-index='0'] [col-id=strategy]").click()
    page.wait_for_selector("#sweep-explore a")
    page.locator("#sweep-parallel-graph").scroll_into_view_if_needed()
    plot = page.locator("#sweep-parallel-graph .nsewdrag").bounding_box()
    page.mouse.move(plot["x"] + 2, plot["y"] + plot["height"] * 0.45)  # a box at the first axis, around what is low
    page.mouse.down()
    page.mouse.move(plot["x"] + plot["width"] * 0.1, plot["y"] + plot["height"] - 2, steps=4)
    page.mouse.up()
    until(page, "() => { const n = document.querySelectorAll('#sweep-rows .ag-center-cols-container .ag-row').length;"
          " return n === 14; }")  # two strategies of three, seven bandwidths  # fmt: skip
    page.fill("#sweep-x-values", "1Gbps..64Gbps by x1.05")
    page.click("#sweep-start")
    page.wait_for_selector("#sweep-progress >> text=/of 258 points/")
    page.click("#sweep-cancel")
    page.wait_for_selector("#sweep-progress >> text=Cancelled", timeout=60_000)
    assert page.locator("#sweep-list button").count() == 2
    page.locator("#sweep-list button").first.click()
    page.wait_for_selector("#sweep-progress >> text=/21 of 21 points/")
    page.fill("#sweep-x-values", "nonsense")
    page.click("#sweep-start")
    page.wait_for_selector("#sweep-problem >> text=cannot be swept")


def test_validate_explains_the_run_that_is_chosen(page: Any, site: str) -> None:
    page.goto(f"{site}/validate?by=ranks")
    until(page, "() => document.querySelectorAll('.main-svg').length >= 10")
    worst = page.input_value("#validate-run")
    details = page.inner_text("#validate-details")
    assert worst in details and ("too short" in details or "too long" in details)
    page.wait_for_timeout(300)
    shot(page, "validate")
    assert violations(page) == []
    page.locator("#validate-rows .ag-row[row-index='2'] [col-id=error]").click()
    until(page, "worst => ![null, worst].includes(new URLSearchParams(location.search).get('run'))", worst)
    assert state(page)["by"] == "ranks" and state(page)["run"] == page.input_value("#validate-run")
    page.keyboard.press("/")
    page.keyboard.type("ddp")
    page.keyboard.press("ArrowDown")
    page.wait_for_selector("[role=option][data-combobox-selected] >> text=ddp")
    page.keyboard.press("Enter")
    until(page, "() => document.querySelector('#validate-details').innerText.includes('DistributedDataParallel')")
    page.set_input_files("#validate-upload input", {"name": "x.json", "mimeType": "", "buffer": b"{}"})
    page.wait_for_selector("#validate-problem >> text=schema is missing")


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
    page.set_input_files("#execution-upload input", str(tmp_path / "slow-host1.npz"))
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
    page.set_input_files("#execution-upload input", {"name": "x.npz", "mimeType": "", "buffer": b"PK"})
    page.wait_for_selector("#execution-problem >> text=not a numpy archive")


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
    page.set_input_files("#scenario-upload input", {"name": "x.yaml", "mimeType": "", "buffer": reaching})
    page.wait_for_selector("#scenario-summary >> text=unknown profile")


def test_accuracy_over_simulated_time(page: Any, site: str) -> None:
    page.goto(f"{site}/compare?profile=vgg_digits&strategy=owt&microbatches=&batch_size=256")
    page.wait_for_selector("#accuracy >> text=to 97%")
    until(page, "() => document.querySelectorAll('#accuracy .main-svg').length > 0")
    page.wait_for_timeout(300)
    shot(page, "compare-accuracy")


def test_a_cluster_file_is_explored(page: Any, site: str, tmp_path: Path) -> None:
    opened(page, site)
    before = kpi(page, "Step time")
    slow = read_preset("cpu-1g").build(3).with_tier("inter", bandwidth_bytes_per_s=12.5e6)
    write_cluster(slow, tmp_path / "slow.yaml")
    page.set_input_files("#cluster-upload input", str(tmp_path / "slow.yaml"))
    until(page, "() => new URLSearchParams(location.search).get('cluster').startsWith('slow@')")
    changed(page, "devices", "3")
    assert kpi(page, "Step time") != before and page.input_value("#c-cluster") == "slow"
    page.set_input_files("#cluster-upload input", {"name": "x.yaml", "mimeType": "", "buffer": b"[]"})
    page.locator("text=a cluster file is a mapping").first.wait_for()
