"""Panels that the page fetches by itself: HTML in which nothing is executed, and a sentence for whatever is sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import unescape
from typing import Any

import dash_mantine_components as dmc
import pytest
from dash import html
from flask.testing import FlaskClient
from small_networks import branches

from dashboard.app import create_app
from dashboard.frame.controls import CONTROLS, GONE
from dashboard.frame.panels import as_html
from dashboard.pages._explore_figures import MACHINE
from dashboard.pages._explore_words import kpi_row
from dashboard.state.advice import advise, moves
from dashboard.state.caps import searches
from dashboard.state.configuration import Configuration
from dashboard.state.flows import between_nodes_bytes
from dashboard.state.measures import utilisation
from dashboard.state.store import Store
from dashboard.state.workers import Simulation
from dashboard.words.kpis import idle_words
from dashboard.words.volume import volume_unit
from simulator.units import format_time

LOCALHOST = {"Host": "127.0.0.1:8050"}
PANELS = ("step", "cancel", "answer", "machine", "strategies")


@pytest.fixture(scope="module")
def store() -> Store:
    return Store({"small": branches()})


@pytest.fixture(scope="module")
def client(store: Store) -> Iterator[FlaskClient]:
    with create_app(store).server.test_client() as client:
        yield client


def asked(client: FlaskClient, panel: str, sent: Any) -> dict[str, Any]:
    answer = client.post(f"/panel/{panel}", json=sent, headers=LOCALHOST)
    assert answer.status_code == 200
    content: dict[str, Any] = answer.get_json()
    return content


def values(now: Configuration, **typed: Any) -> list[Any]:
    """What the controls hold, some of it as typed."""
    return [typed.get(control.field, control.shown(getattr(now, control.field))) for control in CONTROLS]


def test_components_become_html_in_which_everything_is_escaped() -> None:
    attributes: dict[str, Any] = {"data-load": '"><script>'}
    row = html.Tr([html.Th("a<b", scope="row"), html.Td(3, colSpan=2)], className="shown")
    assert as_html(row) == '<tr class="shown"><th scope="row">a&lt;b</th><td colspan="2">3</td></tr>'
    assert as_html(html.Button("x", **attributes)) == '<button data-load="&quot;&gt;&lt;script&gt;">x</button>'
    assert (
        as_html(html.Div(style={"width": "3px", "fontWeight": 700})) == '<div style="width:3px;font-weight:700"></div>'
    )
    assert as_html([None, "a & b"]) == "a &amp; b"
    with pytest.raises(TypeError, match="Badge is no HTML element"):
        as_html(dmc.Badge("x"))


def test_a_step_comes_with_its_numbers_and_the_words_of_its_controls(client: FlaskClient, store: Store) -> None:
    now = replace(store.default(), strategy="data")
    answer = asked(client, "step", {"values": values(now), "base": None, "tab": "a"})
    assert answer["ran"] and not answer["pending"] and answer["query"] == store.resolved(now).query()
    assert "Step time" in answer["html"]["kpis"] and "limited by" in answer["html"]["why"]
    assert set(answer["controls"]) == {control.id for control in CONTROLS}
    assert answer["controls"]["c-tensor"] == {"disabled": False, "style": GONE, "description": ""}
    view = {"by": "device", "phase": "all", "scale": "lin", "split": "step"}
    machine = asked(client, "machine", {"query": answer["query"], **view})
    assert set(machine["figures"]) == set(MACHINE)
    tried = asked(client, "strategies", {"query": answer["query"], "tab": "a", "ready": None})
    assert (
        not tried["waiting"]
        and "single changes" in tried["html"]["advice"]
        and "data-load" in tried["html"]["strategies"]
    )


def test_changes_that_search_come_last_and_advice_does_not_wait_for_them(
    client: FlaskClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change of a searched plan is a search again: before its turn every quick change has been told of."""
    now = store.resolved(replace(store.default(), strategy="hypergraph", devices=4, seed=7))
    slowest = store.outcome(replace(now, strategy="shuffle"))
    store.desk.keep(now, replace(slowest, configuration=now), None)  # what a search without luck would come to
    shown = store.outcome(now)
    changes = [move.configuration for move in moves(shown)]
    slow = [change for change in changes if searches(change.strategy)]
    assert slow and slow[0] == changes[0]
    orders = []

    def want(wanted: Sequence[Configuration], tab: str, number: int | None = None) -> list[Configuration]:
        orders.append(list(wanted))
        quick = [each for each in wanted if not searches(each.strategy)]
        return store.desk.__class__.want(store.desk, quick, tab, number) + [each for each in wanted if each in slow]

    monkeypatch.setattr(store.desk, "want", want)
    answer = asked(client, "strategies", {"query": now.query(), "tab": "b", "ready": None})
    searched = [searches(each.strategy) for each in orders[0]]
    assert searched == sorted(searched) and set(changes) <= set(orders[0])
    best = advise(store, shown).offered[0]
    assert answer["waiting"] and best[0].words in unescape(answer["html"]["advice"])
    done = len(changes) - len(slow)
    assert f"Trying single changes: {done} of {len(changes)} simulated …" in answer["html"]["advice"]


def test_numbers_sentence_and_strip_are_of_one_plan(
    client: FlaskClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search goes on: what its best plan comes to arrives whole, and the strip does not change before the numbers."""
    now = store.resolved(replace(store.default(), strategy="hypergraph", devices=4, seed=8))
    plans = [store.outcome(replace(now, strategy=name)) for name in ("data", "model")]
    bests = [replace(plan, configuration=now, took_s=took_s) for plan, took_s in zip(plans, (1.0, 2.0), strict=True)]
    answers = []
    for best in bests:
        job = Simulation(store.request(now), "searches", best=best)
        monkeypatch.setattr(store.desk, "ask", lambda *asked, job=job, **named: job)
        answer = asked(client, "step", {"values": values(now), "base": None, "tab": "c", "again": True})
        answers.append(answer)
        assert best.run is not None
        step, moved = format_time(best.run.report.step_s), best.run.report.communication_bytes.total
        row = answer["html"]["strategies"].partition("</tr></thead>")[2].partition("</tr>")[0]
        assert answer["pending"] and f">{step}<" in answer["html"]["kpis"] and f">{step}<" in row
        assert f" takes {step}" in answer["html"]["why"]
        assert f"It moves {volume_unit(moved).words(moved)} a step" in answer["html"]["why"]
    assert [answer["best"] for answer in answers] == ["1.000", "2.000"]
    monkeypatch.setattr(store, "at_hand", lambda configuration: bests[1])
    monkeypatch.setattr(store.desk, "want", lambda *wanted: [now])
    sent = {"query": now.query(), "tab": "c", "ready": ["data"]}
    assert asked(client, "strategies", {**sent, "best": "1.000"}) == {"waiting": True, "ready": ["data"]}
    assert (
        answers[1]["html"]["strategies"].partition("</tr></thead>")[2].partition("</tr>")[0]
        in asked(client, "strategies", {**sent, "best": "2.000"})["html"]["strategies"]
    )


@pytest.mark.parametrize("panel", PANELS)
@pytest.mark.parametrize(
    "sent", [{}, [], {"values": [1], "tab": []}, {"query": 7, "tab": 3, "values": "x" * 21}], ids=str
)
def test_what_no_page_sends_is_answered_by_a_sentence(client: FlaskClient, panel: str, sent: Any) -> None:
    answer = asked(client, panel, sent)
    assert answer["failed"] and answer["toasts"][0]["message"].endswith(".")
    assert "Traceback" not in str(answer) and "Error" not in str(answer)


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ({"devices": 10**9}, "devices 1e+09 is out of range; using 1024"),
        ({"devices": "many"}, "devices is 'many': it is a whole number; using "),
        ({"seed": 1e308}, "seed 1e+308 is out of range"),
        ({"inter_bandwidth": "nan"}, "inter_bandwidth"),
        ({"strategy": "alchemy"}, "strategy is 'alchemy': it is one of "),
        ({"strategy": ["data"]}, "strategy"),
        ({"batch_size": {"a": 1}}, "batch_size is \"{'a': 1}\": it is a whole number; using auto"),
    ],
)
def test_typed_values_beyond_their_caps_are_told(
    client: FlaskClient, store: Store, typed: dict[str, Any], words: str
) -> None:
    now = replace(store.default(), strategy="data", devices=2)
    answer = asked(client, "step", {"values": values(now, **typed), "base": None, "tab": "a"})
    assert any(words in f"{toast['title'].lower()} {toast['message']}" for toast in answer["toasts"])


def test_1024_devices_that_cannot_run_say_why(client: FlaskClient, store: Store) -> None:
    now = replace(store.default(), strategy="hypergraph", devices=1024)
    answer = asked(client, "step", {"values": values(now), "base": None, "tab": "a"})
    assert not answer["ran"] and "for up to 256 devices" in answer["html"]["verdict"]


def test_numbers_that_would_mislead_alone_have_a_note(store: Store) -> None:
    two_nodes = replace(
        store.default(), cluster="azure-v100-10g", strategy="data", devices=8, batch_size=16, microbatches=1
    )
    outcome = store.outcome(two_nodes)
    assert outcome.run is not None and outcome.cluster is not None and outcome.flows is not None
    assert between_nodes_bytes(outcome.run, outcome.cluster) == pytest.approx(outcome.flows.between_bytes)
    assert "between nodes" in as_html(kpi_row(outcome, None)) and "idle" not in as_html(kpi_row(outcome, None))
    one_idle = store.outcome(replace(two_nodes, strategy="pipeline", devices=3, microbatches=2))
    assert one_idle.run is not None and one_idle.cluster is not None
    devices = [replace(device, compute_s=0.0) if i else device for i, device in enumerate(one_idle.run.report.devices)]
    assert idle_words(replace(one_idle.run.report, devices=tuple(devices)), 3) == "2 of 3 devices idle"


def test_mfu_differs_from_the_baselines_as_the_other_numbers_do(store: Store) -> None:
    now = Configuration(profile="gpt2", cluster="dgx-h100", strategy="data", devices=2, batch_size=64)
    slower, before = store.outcome(replace(now, speed=0.25)), store.outcome(now)
    used = [utilisation(each.profile, each.cluster, each.report) for each in (slower, before)]  # type: ignore[arg-type]
    tile = as_html(kpi_row(slower, before)).partition(">MFU<")[2]
    assert f"▼ {100 * (used[1] - used[0]):.1f} pt" in tile  # type: ignore[operator]
