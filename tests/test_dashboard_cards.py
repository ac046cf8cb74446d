"""Model cards are profiles everywhere: menu, command, links, Compare, Sweep; an unknown one is an error. No browser."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from small_networks import branches

from dashboard.app import create_app
from dashboard.frame.controls import profile_options
from dashboard.pages import _explore_words
from dashboard.pages.compare import Side
from dashboard.state.configuration import Configuration
from dashboard.state.store import Store, bundled, given_cards, opened_name
from dashboard.state.sweeps import RUNNING, Sweeps
from simulator.errors import UnknownNameError

CARD = "schema: 1\nname: small\nlayers: 2\nhidden: 1024\nheads: 8\nffn: 4096\nvocabulary: 4096\nsequence: 1024\n"


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("cards") / "small.yaml"
    path.write_text(CARD)
    return str(path)


@pytest.fixture(scope="module")
def store(card: str) -> Store:
    measured = replace(branches(), device="Tesla V100")
    return Store({"net": measured, "slow": branches()}, cards=given_cards([card]), first=opened_name(card))


def page(app_store: Store, search: str) -> str:
    """What the server sends for an address."""
    client = create_app(app_store).server.test_client()
    outputs = "..page.children...toasts.sendNotifications@"
    name = next(key for key in json.loads(client.get("/_dash-dependencies").data) if key["output"].startswith(outputs))
    sent = {
        "output": name["output"], "outputs": [{"id": "page", "property": "children"},
        {"id": "toasts", "property": name["output"].rpartition(".toasts.")[2].rstrip(".")}],
        "inputs": [{"id": "url", "property": "pathname", "value": "/"}],
        "state": [{"id": "url", "property": "search", "value": search}], "changedPropIds": ["url.pathname"],
    }  # fmt: skip
    answer = client.post("/_dash-update-component", json=sent)
    assert answer.status_code == 200, answer.data
    return answer.get_data(as_text=True)


def test_the_menu_groups_cards_and_what_was_measured(store: Store) -> None:
    groups = {option["group"]: [item["value"] for item in option["items"]] for option in profile_options(store)}
    assert list(groups) == ["Language models", "Measured on GPUs", "Measured on CPUs"]
    assert {"small", "llama3-8b", "gpt2-large"} <= {*groups["Language models"]}
    assert [value.partition("@")[0] for value in groups["Measured on GPUs"]] == ["net"]


def test_a_card_that_the_command_names_opens(store: Store, card: str) -> None:
    assert store.default().profile == "small" and store.outcome(store.default()).run is not None
    for name in ("gpt2-xl", "llama3-8b"):  # of 25 and 32 heads
        shown = Store({"net": branches()}, first=opened_name(name))
        assert shown.outcome(shown.default()).report is not None
    assert (opened_name("llama3-8b"), opened_name("meta-llama/Llama-3.1-8B")) == ("llama3-8b", "llama3-8b")
    assert bundled([card, "llama3-8b"]).keys() == bundled().keys()


def test_a_link_to_a_card_shows_its_own_numbers(store: Store) -> None:
    now, problems = store.read("?v=1&profile=meta-llama/Llama-3.1-8B&strategy=fsdp&cluster=dgx-a100&devices=8")
    assert not problems and now.profile == "llama3-8b"
    profile = store.profile(now)
    assert len(profile.layers) > 300 and "A100" in profile.device
    assert "H100" in store.profile(replace(now, cluster="dgx-h100")).device
    bare, problems = Store({"slow": branches()}).read("?v=1&profile=llama3-8b")
    assert (bare.strategy, bare.cluster, bare.tensor, bare.microbatches) == ("megatron", "dgx-h100", 8, None)
    assert not problems
    assert '"badge' not in page(store, "") and "Explore" in page(store, "?v=1&profile=llama3-8b")


def test_an_unknown_profile_is_an_error_page_with_the_nearest_first(store: Store) -> None:
    for search in ("?v=1&profile=llama3-8x", "?v=1&profile=llama3-8b&base=v%3D1%26profile%3Dllama3-8x"):
        with pytest.raises(UnknownNameError, match=r"'llama3-8x'.* did you mean 'llama3-8b'"):
            store.read("?v=1&profile=llama3-8x")
        shown = page(store, search)
        assert "Unknown profile 'llama3-8x'" in shown and "verdict" not in shown and "kpis" not in shown
        assert shown.index("profile=llama3-8b") < shown.index("profile=net") > 0
    answer = create_app(store).server.test_client().get("/spans?v=1&profile=llama3-8x")
    assert answer.status_code == 422 and b"did you mean" in answer.data


def test_a_link_never_names_a_file_of_this_machine(store: Store, card: str) -> None:
    for name in (card, "/etc/passwd", str(Path(card).with_suffix(".json"))):
        with pytest.raises(UnknownNameError):
            store.read(f"?v=1&profile={name}")


def test_compare_and_sweep_take_cards(store: Store) -> None:
    now = Configuration(profile="small", cluster="dgx-h100", strategy="data", devices=4, batch_size=8)
    assert Side(name="Now", outcome=store.outcome(now)).outcome.run is not None
    sweeps = Sweeps(store)
    number = sweeps.start(now, ["data", "megatron"], {"devices": "4"})
    sweep = sweeps.get(number)
    assert sweep is not None
    for _ in range(600):
        if sweep.state != RUNNING:
            break
        time.sleep(0.1)
        sweeps.get(number)
    outcome = store.outcome(now)
    row = next(row for row in sweep.rows if row["strategy"] == "data")
    assert row["status"] == "done" and outcome.run is not None and row["step_s"] == outcome.run.report.step_s
    assert _explore_words.badge(outcome) is not None
