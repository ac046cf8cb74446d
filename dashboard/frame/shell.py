"""What surrounds every page: header, theme, toasts, help, the shared state, and which page an address shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, dcc, html, set_props

from dashboard.frame import cards
from dashboard.frame.cards import LIVE, aria, marked, menu
from dashboard.frame.panels import add_panel, as_html, effect, failure, in_browser, toast
from dashboard.frame.routes import EXPORTS
from dashboard.state import uploads
from dashboard.state.configuration import VERSION, Configuration
from dashboard.state.opening import Opened, opened
from dashboard.state.store import Store
from simulator.errors import ShardscopeError, UnknownNameError

Page = Callable[[Configuration, Configuration | None, Mapping[str, str]], Any]
"""The content of a page that shows a configuration beside a baseline; the third is what else its address says."""

HELP = (
    ("Timeline", (
        ("W / S or ↑ / ↓", "zoom in, out"), ("A / D or ← / →", "move left, right"), ("F", "fit the whole step"),
        ("M", "sum up the marked range (or the view)"), ("Shift + drag", "mark a range"),
        ("N / P", "next, previous task of a lane"), ("C", "show the critical chain"), ("Esc", "clear the selection"),
        ("wheel", "zoom, once the timeline is focused (or with Ctrl)"),
    )),
    ("Anywhere", (
        ("/", "find a layer"), ("?", "this help"), ("Tab", "next control"),
        ("drop", "opens a file: profile, model card or config.json, cluster, plan, scenario, validation, run (.npz); "
                 "a trace or a log is compared with the step of the controls, a folder of traces rank by rank"),
    )),
)  # fmt: skip


GLOSSARY = (
    ("bubble", "time in which a device that computes has nothing to do, because others are not as far"),
    ("max / mean load", "compute of the busiest device over the mean of all: 1 is balanced"),
    ("exposed", "communication that a device waits for; what is overlapped costs nothing"),
    ("between nodes", "bytes on links from one machine to another, the slower ones"),
    ("λ − 1", "connectivity: on how many devices more than one a tensor is needed, so often it is sent"),
    ("90% sure of", "the actual step lies between these with 90 % certainty: what the model may be off by, not how "
                    "steps vary"),
    ("MFU", "model FLOP per second over the peak of all devices; recomputation does not count"),
    ("ZeRO stage", "replicas share out optimizer state (1), gradients, too (2), parameters, too (3)"),
    ("border", "it fits by less than the prediction of memory is known to be off"),
)  # fmt: skip
"""What the words of the pages mean."""


def layout(pages: Mapping[str, str]) -> Any:
    """The whole document; `pages` maps a path to its name in the header."""
    header = dmc.AppShellHeader(
        dmc.Group(
            [
                dmc.Group(
                    [html.Span("Shardscope", style={"fontWeight": 800, "fontSize": 19}), _navigation(pages)], gap="lg"
                ),
                dmc.Group([html.Div(id="badge", **LIVE), *_buttons()], gap="xs", className="header-right"),
            ],
            justify="space-between",
            h="100%",
            px="md",
            wrap="nowrap",
            className="header-row",
        )
    )
    return dmc.MantineProvider(
        id="mantine",
        theme={"primaryColor": "blue", "primaryShade": {"light": 8, "dark": 8}, "defaultRadius": "sm"},
        forceColorScheme="light",
        children=[
            dcc.Location(id="url", refresh="callback-nav"),
            dcc.Store(id="scheme", storage_type="local"),
            dcc.Store(id="nothing"),
            dmc.NotificationContainer(id="toasts", position="bottom-right", limit=4),
            _help(),
            _dialog("opened", "Opened files", [html.Div(id="opened-words", **LIVE)]),
            dmc.AppShell(
                [header, html.Div(id="page")], header={"height": 52}, padding=0, id="app-shell",
            ),
        ],
    )  # fmt: skip


def add_callbacks(app: Dash, store: Store, pages: Mapping[str, Page]) -> None:
    """Routing, address, theme and help."""

    @app.callback(
        Output("page", "children"),
        Output("toasts", "sendNotifications", allow_duplicate=True),
        Input("url", "pathname"),
        State("url", "search"),
        prevent_initial_call="initial_duplicate",
    )
    def show(path: str, search: str) -> tuple[Any, list[dict[str, Any]]]:
        try:
            now, baseline, problems = read_address(store, search or "")
        except UnknownNameError:
            return unknown_profile(store, search or ""), []
        own = dict(parse_qsl((search or "").removeprefix("?")))
        page = pages.get(path)
        content = _missing(path) if page is None else page(now, baseline, own)
        toasts = [toast("The link was changed", problem, "yellow") for problem in problems]
        address = {"query": now.query(), "base": baseline.query() if baseline else ""}
        return [dcc.Store(id="address", data=address), content], toasts

    links = [Output(f"nav-{i}", "href") for i in range(len(pages))]
    in_browser(app, "address", links, Input("address", "data"), State("nav-paths", "data"))
    theme = [Output("mantine", "forceColorScheme"), Output("scheme", "data")]
    in_browser(app, "theme", theme, Input("theme-button", "n_clicks"), State("scheme", "data"))
    effect(app, "help", Input("help-button", "n_clicks"))
    effect(app, "copyLink", Input("copy-link", "n_clicks"))
    _add_opening(app, store)


def _add_opening(app: Dash, store: Store) -> None:
    """Files that are dropped on any page, or chosen (assets/open.js): one gate, and one answer."""

    def open_files(sent: Mapping[str, Any]) -> dict[str, Any]:
        """sent: path and query of the page; files, each its name and its content as the browser's data URL."""
        try:
            files = [(str(file["name"]), uploads.content(file["content"])) for file in sent["files"]]
            answer = opened(store, str(sent["path"]), str(sent["query"]), files)
        except (ShardscopeError, OSError) as error:
            answer = Opened(title="That cannot be opened", lines=[str(error)])
        lines = html.Ul([html.Li(line) for line in answer.lines])
        words = as_html([html.H2(answer.title, className="card-title"), lines])
        return {"address": answer.address, "html": {"opened-words": words}}

    add_panel(app.server, "open", open_files)


def read_address(store: Store, search: str) -> tuple[Configuration, Configuration | None, list[str]]:
    """Configuration, baseline and problems of an address; without a query the default beside data parallelism."""
    now, problems = store.read(search)
    if not search.removeprefix("?"):
        return now, replace(now, strategy="data", microbatches=None), problems
    base_query = parse_qs(search.removeprefix("?")).get("base", [""])[0]
    if not base_query:
        return now, None, problems
    baseline, more = store.read(base_query)
    return now, baseline, problems + more


def unknown_profile(store: Store, search: str) -> Any:
    """The page of a link whose profile, or whose baseline's, is not here: which ones are, the nearest first."""
    own = parse_qs(search.removeprefix("?"))
    asked = [query["profile"][0] for query in (own, parse_qs(own.get("base", [""])[0])) if "profile" in query]
    known = store.profile_names()
    name = next((name for name in asked if not store.has_profile(name)), "").partition("@")[0]
    ranked = sorted(known, key=lambda other: -SequenceMatcher(None, name.lower(), other.lower()).ratio())
    links = [
        html.A(other, href=f"/?{urlencode({'v': VERSION, 'profile': other})}", className="chip-link")
        for other in ranked
    ]
    spaced = [part for link in links for part in (link, " ")]
    words = "Nothing is shown for it: no profile or model card has that name. Known, nearest first:"
    return cards.page(f"Unknown profile {name[:60]!r}", [html.P(words), html.Div(spaced)])


def report_error(error: Exception) -> None:
    """Show why a callback failed."""
    set_props("toasts", {"sendNotifications": [failure(error)]})


def _missing(path: str) -> Any:
    return cards.page("No such page", [html.P(f"There is no page {path[:60]!r}; those that there are stand above.")])


def _navigation(pages: Mapping[str, str]) -> Any:
    links = [
        dcc.Link(name, id=f"nav-{i}", href=path, className="nav-link") for i, (path, name) in enumerate(pages.items())
    ]
    return html.Nav(dmc.Group([*links, dcc.Store(id="nav-paths", data=list(pages))], gap="md"), **aria("Pages"))


def _buttons() -> list[Any]:
    items = [html.A(name, href="#", className="menu-item", **marked(file=name)) for name in EXPORTS]
    return [
        # Ends the search that the badge tells of; page.js shows it while there is one.
        dmc.Button("Cancel", id="cancel", variant="default", size="xs", style={"display": "none"}),
        dmc.Button(
            "Open",
            id="open-files",
            variant="default",
            size="xs",
            **aria("Open files: a profile, a model, a cluster, a plan, a trace, a log"),
        ),
        dmc.Button("Copy link", id="copy-link", variant="default", size="xs"),
        menu("Export", items, "Export this run"),
        dmc.ActionIcon("?", id="help-button", variant="default", size="md", **aria("Help")),
        dmc.ActionIcon("◐", id="theme-button", variant="default", size="md", **aria("Dark or light")),
    ]


def _help() -> Any:
    parts = []
    for title, keys in HELP:
        rows = [html.Tr([html.Td(dmc.Kbd(key)), html.Td(what, style={"paddingLeft": 12})]) for key, what in keys]
        parts += [html.H2(title, className="card-title"), html.Table(html.Tbody(rows)), dmc.Space(h="md")]
    words = [part for word, meaning in GLOSSARY for part in (html.Dt(html.Strong(word)), html.Dd(meaning))]
    parts += [html.H2("Words", className="card-title"), html.Dl(words, className="glossary")]
    return _dialog("help", "Help", parts)


def _dialog(name: str, title: str, parts: list[Any]) -> Any:
    closing = html.Form(html.Button("Close", className="menu-item"), method="dialog")
    return html.Dialog([closing, *parts], id=name, className="help", role="dialog", **aria(title))
