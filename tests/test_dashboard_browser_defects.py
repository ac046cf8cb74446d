"""What pages once said wrongly, clipped or refused, each looked for in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from dashboard_screens import SCREENS, open_files, opened, state

from benchmarks.pages.browser import settled, shot, until, violations
from dashboard.state.store import Store, bundled

pytestmark = SCREENS
H100 = "v=1&cluster=dgx-h100"
SMEARED = """() => {
  const boxes = [...document.querySelectorAll("#memory-graph .xtick text")].map((each) => each.getBoundingClientRect());
  return boxes.filter((box, i) => box.width > box.height && i > 0 && box.left < boxes[i - 1].right - 1).length;
}"""
"""Names below bars that lie over the one before."""
HOLES = """() => [...document.querySelectorAll(".rail .mantine-SimpleGrid-root")].filter((row) =>
  row.getClientRects().length && ![...row.children].some((field) => field.getClientRects().length)).length"""
"""Rows of the rail that take room although both of their fields are gone."""
QUICK = "v=1&profile=vgg_small&cluster=azure-v100-10g&strategy=data&devices=4&base="
CARD = (
    '{"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, '
    '"num_key_value_heads": 4, "intermediate_size": 1024, "vocab_size": 2048, "max_position_embeddings": 1024, '
    '"tie_word_embeddings": false}'
)


@pytest.fixture(scope="module")
def store() -> Store:
    profiles = bundled()
    return Store({"vgg_small": profiles["vgg_small"], **profiles})


def fits_window(page: Any) -> bool:
    answer: bool = page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")
    return answer


def test_the_header_stays_one_line_however_long_the_badge(page: Any, site: str) -> None:
    opened(page, site, QUICK)
    long = "searching a hypergraph plan, 59 s, best so far 123.4 ms, and some more of what goes on behind it"
    page.evaluate(f"() => shardscope.fill('badge', '<span class=\"badge yellow\">{long}</span>')")
    for width in (1400, 1280, 1000):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(200)
        boxes = [page.locator(f"#{name}").bounding_box() for name in ("nav-0", "theme-button")]
        assert all(box["y"] >= 0 and box["y"] + box["height"] <= 52 for box in boxes), (width, boxes)
        assert fits_window(page)


def test_tabs_draw_what_is_seen_and_a_selection_is_described_in_both(page: Any, site: str) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
    opened(page, site, QUICK)
    assert "machine" not in asked and page.is_hidden("#machine") and page.is_visible("#partition")
    page.click("#tab-machine")
    settled(page)
    assert "machine" in asked and page.is_hidden("#answer")
    assert page.locator("#balance-graph").bounding_box()["width"] > 200
    page.evaluate("() => shardscope.select({ device: 1 })")
    page.wait_for_selector("#detail >> text=peak memory")
    page.set_viewport_size({"width": 1100, "height": 900})
    page.click("#tab-answer")
    settled(page)
    assert page.locator("#timeline canvas").bounding_box()["width"] > 600
    assert page.is_visible("#detail") and fits_window(page)


def test_the_answer_is_two_screens(page: Any, site: str) -> None:
    opened(page, site, "v=1&profile=resnet50_v100&cluster=azure-v100-10g&strategy=data&devices=8&base=")
    until(page, "() => !document.querySelector('#strategies').innerText.includes('owt simulated')")
    assert page.evaluate("() => document.querySelector('#answer').getBoundingClientRect().bottom") <= 2 * 900


@pytest.mark.parametrize("width", [1400, 390])
def test_recent_runs_are_read_whole(page: Any, site: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    opened(page, site, QUICK)
    page.click("text=Recent runs")
    page.wait_for_selector("#history-runs button")
    menu, rail = (page.locator(name).bounding_box() for name in (".rail .menu-items", ".rail"))
    assert rail["x"] <= menu["x"] and menu["x"] + menu["width"] <= rail["x"] + rail["width"]
    assert page.locator("#history-runs").evaluate("(runs) => runs.scrollWidth <= runs.clientWidth")
    shot(page, f"recent-runs-{width}")


def test_help_explains_the_words(page: Any, site: str) -> None:
    opened(page, site, QUICK)
    page.click("#help-button")
    page.wait_for_selector("[role=dialog] dt >> text=λ − 1")
    assert page.locator("[role=dialog] dd").count() >= 8
    page.wait_for_timeout(500)
    assert violations(page) == []


def test_a_saved_picture_says_what_it_is_of(page: Any, site: str) -> None:
    opened(page, site, QUICK)
    until(page, "() => !!document.querySelector('#partition-drawing svg')")
    for form in ("svg", "png"):
        page.locator("#partition summary[aria-label^='Export ']").click()
        with page.expect_download() as download:
            page.click(f"#partition [data-export={form}]")
        path = Path(download.value.path())
        if form == "svg":
            text = path.read_text(encoding="utf-8")
            assert ">Shardscope</text>" in text and ">vgg_small, data, 4 × azure-v100-10g: " in text
            assert 'width="1200"' in text and " samples/s</text>" in text
        else:
            width = int.from_bytes(path.read_bytes()[16:20], "big")
            assert path.read_bytes()[:4] == b"\x89PNG" and width == 2400


def test_a_link_to_a_sweep_holds_it(page: Any, site: str) -> None:
    page.goto(f"{site}/sweep?{QUICK}")
    page.fill("#sweep-x-values", "2Gbps, 4Gbps")
    until(page, "() => new URLSearchParams(location.search).get('x-values') === '2Gbps, 4Gbps'")
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    until(page, "() => document.querySelector('#sweep-x-values')?.value === '2Gbps, 4Gbps'")
    until(page, "() => new URLSearchParams(location.search).has('x')")
    assert state(page)["x"] == "inter_bandwidth_bytes_per_s" and "hypergraph" in state(page)["strategies"]


def test_a_step_that_is_not_drawn_is_compared(page: Any, site: str) -> None:
    """Of more tasks than are held each: it runs, and its numbers stand beside the other's."""
    base = f"{H100}&profile=llama3-8b&devices=64&strategy=megatron&tensor=8&pipeline=4&recomputation=full"
    now = f"{H100}&profile=llama3-8b&devices=64&strategy=fsdp&base={quote(base)}"
    page.goto(f"{site}/compare?{now}")
    page.wait_for_selector("#results >> text=step time", timeout=100_000)
    until(page, "() => document.querySelectorAll('.timeline[data-spans]').length >= 1")
    assert "cannot run" not in page.inner_text("main")
    assert "too many to draw" in page.inner_text("main")
    page.wait_for_timeout(500)
    shot(page, "compare-counted")
    assert violations(page) == []


def test_a_dropped_configuration_is_a_model(page: Any, site: str, tmp_path: Path) -> None:
    page.goto(f"{site}/profiles?{H100}&profile=vgg_small&devices=8&strategy=data")
    until(page, "() => document.querySelectorAll('.main-svg').length >= 4")
    (tmp_path / "tiny.json").write_text(CARD)
    open_files(page, str(tmp_path / "tiny.json"))
    page.wait_for_selector("#provenance >> text=tiny")
    page.wait_for_selector("#provenance >> text=NVIDIA H100")
    page.click("#explore-profile[href*='tiny@']")
    until(page, "() => new URLSearchParams(location.search).get('profile')?.startsWith('tiny@')")
    settled(page)
    assert "tokens" in page.inner_text("#kpis") and page.is_visible("#c-tensor")
    page.goto(f"{site}/profiles")
    open_files(page, {"name": "x.yaml", "mimeType": "", "buffer": b"layers: many"})
    page.wait_for_selector("#opened >> text=x.yaml: it is of no known kind")
    button, title = (page.locator(f"#opened {part}").bounding_box() for part in ("button", "h2"))
    assert button["y"] + button["height"] + 4 < title["y"]  # the ring of its focus, too


def test_a_card_is_modelled_on_the_machine_of_the_link(page: Any, site: str) -> None:
    page.goto(f"{site}/profiles?{H100}&profile=llama3-8b&devices=8&strategy=fsdp")
    page.wait_for_selector("#provenance >> text=NVIDIA H100")
    until(page, "() => document.querySelector('#scaling-graph')?.innerText.includes('forward, modelled')")


def test_controls_are_one_touch_away_on_a_phone(browser: Any, site: str) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    opened(page, site, QUICK)
    assert page.locator("#to-controls").bounding_box()["y"] < 844
    page.click("#to-controls")
    page.wait_for_timeout(300)
    assert page.locator("#c-profile").bounding_box()["y"] < 844
    page.close()


def test_names_on_a_phone_stay_apart_and_fields_that_are_gone_leave_no_hole(browser: Any, site: str) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    opened(page, site, QUICK.replace("devices=4", "devices=8"))
    page.click("#tab-machine")
    until(page, "() => document.querySelectorAll('#memory-graph .xtick text').length === 8")
    assert page.evaluate(SMEARED) == 0
    until(page, "() => !!document.querySelector('.nets .pick')")
    assert max(row["height"] for row in (each.bounding_box() for each in page.locator(".nets .pick").all())) < 30
    assert page.evaluate(HOLES) == 0 and page.locator("#c-tensor").is_hidden()
    page.close()
