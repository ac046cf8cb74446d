"""The dashboard's pictures in the documentation, taken in Chromium.

Usage: python -m benchmarks.pages.pictures [NAME ...]

Each is of a link that anybody can open, once everything on the page has been simulated and drawn.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.pages.browser import chromium, served, until

DOCS = ROOT / "docs"
V100 = "cluster=azure-v100-10g"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A link, the window that shows it, in pixels, and whether the window takes in the page.

    element: a selector of what is kept of it; empty: all.
    """

    query: str
    path: str = "/"
    width: int = 1400
    height: int = 900
    whole: bool = False
    element: str = ""


PICTURES: Mapping[str, Picture] = {
    "partition": Picture(
        query=f"profile=vgg16_v100&{V100}&strategy=hypergraph&devices=8&base=",
        width=1300,
        whole=True,
        element=".partition-scroll",
    ),
    "dashboard-vgg16": Picture(query=f"profile=vgg16_v100&{V100}&strategy=hypergraph&devices=8&base=", whole=True),
    "dashboard-plans": Picture(path="/plans", query="profile=llama3-8b&cluster=dgx-h100&devices=64", whole=True),
    "dashboard-1024": Picture(query=f"profile=resnet50_v100&{V100}&strategy=data&devices=1024&base=", whole=True),
}
"""By the file's name in docs/."""
READY: Mapping[str, Sequence[str]] = {
    "/": (
        "!!document.querySelector('.timeline[data-spans]')",
        "!!document.querySelector('#advice > .advice:not(.figure-note)')",
        "!document.querySelector('#strategies').innerText.includes('background')",
        "!document.body.innerText.includes('Trying single changes')",
    ),
    "/plans": ("document.querySelector('#plans-words')?.innerText.startsWith('Best: ')",),
}
"""What is true of a page once nothing more is simulated for it."""


def main() -> None:
    from dashboard.state.scenarios import shipped_scenarios
    from dashboard.state.store import Store, bundled
    from dashboard.state.validations import at_hand

    parser = argparse.ArgumentParser(description="Take the documentation's pictures of the dashboard.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(PICTURES)} (default: all)")
    parser.add_argument("--output", type=Path, default=DOCS, metavar="FOLDER", help="where to (default: docs)")
    args = parser.parse_args()
    unknown = set(args.names) - set(PICTURES)
    if unknown:
        parser.error(f"no picture is called {', '.join(sorted(unknown))}: they are {', '.join(PICTURES)}")
    store = Store(bundled(), validations=at_hand(), scenarios=shipped_scenarios())
    with served(store) as site, chromium() as browser:
        for name in args.names or PICTURES:
            path = args.output / f"{name}.png"
            take(browser, site, PICTURES[name], path)
            print(f"wrote {path}", flush=True)


def take(browser: Any, site: str, picture: Picture, path: Path) -> None:
    """Open the link, wait until nothing more is simulated for it, and keep what is seen."""
    page = browser.new_page(viewport={"width": picture.width, "height": picture.height})
    page.goto(f"{site}{picture.path}?{picture.query}")
    for expression in READY[picture.path]:
        until(page, f"() => {expression}", timeout_s=240)
    if picture.whole:  # in a window of its size: a table is drawn as far as it can be seen
        page.set_viewport_size(
            {"width": picture.width, "height": page.evaluate("() => document.documentElement.scrollHeight")}
        )
    page.wait_for_timeout(1500)
    (page.locator(picture.element) if picture.element else page).screenshot(path=str(path))
    page.close()


if __name__ == "__main__":
    main()
