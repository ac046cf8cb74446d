"""The rail for language models: what it offers, which controls are there, and the same numbers as `simulate`."""

from __future__ import annotations

import json
import pickle
import shlex
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from dashboard_advice import advised
from small_networks import branches, chain

from dashboard.app import create_app
from dashboard.frame.controls import CONTROLS, applies, rail
from dashboard.frame.remarks import remarks
from dashboard.frame.routes import command
from dashboard.state import caps, simulating
from dashboard.state.advice import MOST_S, advise, moves
from dashboard.state.configuration import DEGREES, Configuration
from dashboard.state.measures import shares
from dashboard.state.planning import build_plan, degrees, microbatch_counts
from dashboard.state.simulating import Counted, Outcome, compute, glance_of, simulated
from dashboard.state.store import Store, bundled, given_cards
from simulator.cli import main
from simulator.errors import InputError
from simulator.language_models.training_stack import runtime_of
from simulator.network.catalogue import read_cluster

CARD = (
    "schema: 1\nname: {name}\nlayers: 4\nhidden: 1024\nheads: 12\nkv_heads: 4\nhead_width: 128\nffn: 4096\n"
    "vocabulary: 4096\nsequence: 1024\n"
)
MIXTURE = CARD.format(name="mixture") + "experts: 4\nexperts_per_token: 2\n"
SIXFOLD = CARD.replace("kv_heads: 4\n", "").format(name="sixfold") + "experts: 6\nexperts_per_token: 2\n"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("cards")
    (folder / "dense.yaml").write_text(CARD.format(name="dense"))
    (folder / "mixture.yaml").write_text(MIXTURE)
    (folder / "sixfold.yaml").write_text(SIXFOLD)
    cards = given_cards([str(folder / f"{name}.yaml") for name in ("dense", "mixture", "sixfold")])
    return Store({"net": branches()}, cards=cards, first="dense")


def on(card: str, **changes: Any) -> Configuration:
    now = Configuration(profile=card, cluster="dgx-h100", strategy="megatron", devices=16, batch_size=32)
    return replace(now, **changes)


def said(capsys: pytest.CaptureFixture[str], words: list[str]) -> dict[str, Any]:
    assert main([*words, "--json"]) == 0, capsys.readouterr().err
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    return printed


@pytest.mark.parametrize("card", ["dense", "mixture"])
def test_what_is_offered_is_what_the_strategy_takes(store: Store, card: str) -> None:
    """Of every grid of 16 devices the degrees that are offered are those with which there is a plan."""
    cluster = read_cluster("dgx-h100", devices=16)
    profile = store.profile(on(card))
    values = (1, 2, 4, 8, 16)
    for tensor, pipeline, context, expert in product(values, (1, 2, 4), (1, 2, 4), (1, 2, 4)):
        if tensor * pipeline * context > 16 or (expert > 1 and card == "dense" and tensor > 1):
            continue
        now = on(card, tensor=tensor, pipeline=pipeline, context=context, expert=expert)
        offered = degrees(now, profile)
        goes = all(getattr(now, name) in offered[name] for name in DEGREES)
        try:
            build_plan(now, profile, cluster, runtime_of(profile))
        except InputError as error:
            assert not goes, (now, error)
        else:
            assert goes, now


def test_degrees_go_with_batches_micro_batches_and_whole_experts_as_a_plan_has_them(store: Store) -> None:
    """On 24 devices, which heads, keys and experts do not divide alike; parts of a sequence are equal on the page."""
    cluster, draw = read_cluster("dgx-h100", devices=24), Random(3).choice
    axes = {
        "tensor": (1, 1, 2, 3, 4, 6, 12), "pipeline": (1, 1, 2, 3, 4, 8), "context": (1, 1, 2, 4),
        "expert": (1, 1, 2, 3, 4, 6, 8), "expert_tensor": (0, 0, 1, 2), "batch_size": (16, 24, 48, 96),
        "microbatches": (None, 1, 2, 3, 4, 8),
    }  # fmt: skip
    goes = list[bool]()
    for card in ("dense", "mixture", "sixfold") * 500:
        now = on(card, devices=24, **{name: draw(values) for name, values in axes.items()})
        if now.tensor * now.pipeline * now.context > 24:
            continue
        profile = store.profile(now)
        offered = degrees(now, profile)
        goes.append(all(getattr(now, name) in offered[name] for name in DEGREES))
        try:
            build_plan(now, profile, cluster, runtime_of(profile))
        except InputError as error:
            assert not goes[-1], (now, error)
        else:
            assert goes[-1] == (now.context == 1 or 1024 % (now.context * now.tensor) == 0), now
    assert 100 < sum(goes) < len(goes) - 100


def test_without_attention_stages_are_what_one_tensor_leaves() -> None:
    """Six layers in a row make up to six, ten with a residual block and two branches seven."""
    now = Configuration(profile="net", cluster="cpu-1g", strategy="megatron", devices=12, batch_size=840)
    assert degrees(now, chain([1.0] * 6))["pipeline"] == [1, 2, 3, 4, 6]
    assert degrees(replace(now, devices=6), chain([1.0] * 6))["pipeline"] == [1, 2, 3, 6]
    assert degrees(replace(now, devices=70), branches())["pipeline"] == [1, 2, 5, 7]


def test_all_numbers_of_microbatches_are_offered(store: Store) -> None:
    now = on("dense", tensor=2, pipeline=4, batch_size=128)
    profile = store.profile(now)
    assert microbatch_counts(now, profile) == [1, 2, 4, 8, 16, 32, 64]
    cluster = read_cluster("dgx-h100", devices=16)
    counts = {build_plan(replace(now, microbatches=count), profile, cluster).microbatches for count in (1, 8, 64)}
    assert counts == {1, 8, 64} and build_plan(now, profile, cluster).microbatches == 64


def test_controls_that_do_not_apply_are_gone(store: Store) -> None:
    def there(now: Configuration) -> set[str]:
        return {control.field for control in CONTROLS if applies(control.field, now, store.profile(now))}

    language = {"tensor", "pipeline", "context", "zero_stage", "recomputation", "microbatches", "batch_size"}
    dense = there(on("dense"))
    assert language <= dense and not {"expert", "schedule", "imbalance", "effort"} & dense
    assert {"expert", "schedule"} <= there(on("mixture", pipeline=2))
    assert not {*DEGREES} & there(on("dense", strategy="fsdp"))
    measured = there(on("net", strategy="pipeline", cluster="cpu-1g", devices=4))
    assert not (language - {"microbatches", "batch_size"}) & measured and "schedule" in measured
    hidden = {part.id for part in _components(rail(store, on("dense"))) if getattr(part, "style", None)}
    assert {"c-expert", "c-schedule"} <= hidden and "c-tensor" not in hidden


def _components(parts: list[Any]) -> list[Any]:
    from dash import html

    every = html.Div(parts)._traverse()  # type: ignore[no-untyped-call]
    return [part for part in every if str(getattr(part, "id", "")).startswith("c-")]


def test_the_rail_says_what_is_left_open(store: Store) -> None:
    outcome = store.outcome(on("dense", tensor=4, pipeline=2))
    shown = remarks(outcome)
    assert shown["optimizer"].text == "now mixed-adam" and shown["zero_stage"].text.startswith("now 0")
    assert shown["tensor"].offers == (1, 2, 4) and shown["pipeline"].offers == (1, 2, 4)
    assert shown["microbatches"].text == "now 16"


@pytest.mark.parametrize(
    "now",
    [
        on("dense", tensor=4, pipeline=2),
        on("dense", tensor=2, pipeline=2, zero_stage=1, recomputation="full", microbatches=8),
        on("dense", tensor=2, context=2, zero_stage=2),
        on("mixture", tensor=2, expert=4, recomputation="selective"),
        on("mixture", pipeline=4, expert=2, zero_stage=1),
        on("dense", strategy="fsdp", microbatches=2, recomputation="full"),
        on("dense", strategy="data", zero_stage=1),
        on("dense", strategy="data", batch_size=None),
    ],
    ids=lambda now: now.query()[-60:],
)
def test_the_page_and_simulate_say_the_same(
    store: Store, now: Configuration, capsys: pytest.CaptureFixture[str]
) -> None:
    """Through the command that the page exports, of which nothing is left out."""
    outcome = store.outcome(now)
    assert outcome.run is not None, outcome.reason
    printed = said(capsys, _words(store, outcome))
    report, glance = outcome.run.report, glance_of(outcome)
    assert (report.step_s, report.peak_memory_bytes, report.fit) == (
        pytest.approx(printed["step_s"], rel=1e-9), printed["peak_memory_bytes"], printed["fit"]
    )  # fmt: skip
    assert (glance.step_s, glance.fits) == (report.step_s, report.fits)
    assert outcome.interval is not None
    assert outcome.interval.low_s == pytest.approx(printed["interval"]["low_s"], rel=1e-9)


def _words(store: Store, outcome: Outcome) -> list[str]:
    name = outcome.configuration.profile
    words = shlex.split(command(outcome))
    assert words[:3] == ["shardscope", "simulate", f"{name}.yaml"] and Path(store.cards[name]).is_file()
    return ["simulate", store.cards[name], *words[3:]]


def test_the_cap_holds_the_true_count(store: Store) -> None:
    """GPT-2 large in a grid of 64 GPUs, whose bound is over the cap, runs whole."""
    big = Store(bundled(["gpt2_large_h100"]))
    now = on("gpt2_large_h100", devices=64, tensor=4, pipeline=4, microbatches=16, batch_size=None)
    outcome = big.outcome(now)
    assert outcome.run is not None and outcome.plan is not None, outcome.reason
    assert caps._most_tasks(outcome.profile, outcome.plan) > caps.MOST_TASKS
    assert outcome.run.report.tasks == 244_788


def test_a_large_step_has_its_numbers_before_its_tasks(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulating, "EARLY_TASKS", 100)
    shown: list[Outcome] = []
    outcome = compute(store.request(store.resolved(on("dense", tensor=4, batch_size=64))), show=shown.append)
    (early,) = shown
    assert early.run is None and early.counted is not None and "tasks are being simulated" in early.undrawn
    assert outcome.run is not None and outcome.counted is None and outcome.took_s > early.took_s
    assert early.report is not None and early.report.step_s == pytest.approx(outcome.run.report.step_s, rel=1e-9)
    assert early.report.tasks == outcome.run.report.tasks
    monkeypatch.setattr(simulating, "EARLY_TASKS", 10**6)
    compute(store.request(outcome.configuration), show=shown.append)
    assert len(shown) == 1  # what is quick is shown once


def test_a_large_step_behind_the_page_is_counted_until_it_is_shown(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = store.resolved(on("dense", tensor=4, batch_size=128))
    for name in ("MOST_TASKS", "MOST_BEHIND_TASKS"):
        monkeypatch.setattr(simulating, name, 100)
    _, glance = simulated(replace(store.request(now), light=True))
    assert glance is not None and glance.ran and glance.by_layer is None
    monkeypatch.undo()
    store.desk.keep(now, None, glance)
    shown = store.outcome(now)
    again = store.desk.glance(now)
    assert shown.run is not None and again is not None and again.by_layer is not None
    assert again.step_s == pytest.approx(glance.step_s, rel=1e-9)


def test_what_is_too_large_to_draw_is_counted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same step, peak and verdict as of the whole run, and every panel says why there is nothing drawn."""
    now = on("dense", tensor=4, pipeline=2, microbatches=8)
    whole = store.outcome(now)
    assert whole.run is not None
    for module in (caps, simulating):
        monkeypatch.setattr(module, "MOST_TASKS", whole.run.report.tasks - 1)
    counted = Store({"net": branches()}, cards=store.cards)
    outcome = counted.outcome(now)
    assert outcome.run is None and outcome.report is not None and not outcome.reason
    same = ("peak_memory_bytes", "fit", "verdict", "tasks", "microbatches")
    assert [getattr(outcome.report, name) for name in same] == [getattr(whole.run.report, name) for name in same]
    assert outcome.report.step_s == pytest.approx(whole.run.report.step_s, rel=1e-9)
    assert outcome.interval_s == pytest.approx(whole.interval_s, rel=1e-9)
    glance, before = glance_of(outcome), glance_of(whole)
    assert glance.ran and (glance.computing, glance.fits) == (before.computing, before.fits)
    assert glance.total_bytes == pytest.approx(before.total_bytes) and glance.between_bytes is None
    client = create_app(counted).server.test_client()
    sent = {"values": [c.shown(getattr(now, c.field)) for c in CONTROLS], "base": None, "tab": "a"}
    answer = client.post("/panel/step", json=sent).get_json()
    assert "too many to draw" in answer["undrawn"]
    assert answer["ran"] and "Step time" in answer["html"]["kpis"] and "limited by" in answer["html"]["why"]
    views = {"by": "device", "phase": "all", "scale": "lin", "split": "step"}
    for name in ("answer", "machine"):
        panel = client.post(f"/panel/{name}", json={"query": answer["query"], **views}).get_json()
        assert "too many to draw" in json.dumps(panel["figures"])
        assert name == "machine" or "stage 2" in json.dumps(panel["figures"]["stage-memory-graph"])
    tried = client.post("/panel/strategies", json={"query": answer["query"], "tab": "a", "ready": None}).get_json()
    assert "not counted" in tried["html"]["strategies"]
    assert b"too many to draw" in client.get(f"/spans?{answer['query']}").data


def test_a_grid_is_advised_on_however_many_tasks_it_has(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Single changes of its degrees, ZeRO and recomputation, of a step that is counted as of one that is drawn."""
    now = on("dense", tensor=8 // 2, pipeline=4, batch_size=64)
    drawn = store.outcome(now)
    assert drawn.run is not None
    words = [move.words for move in moves(drawn)]
    assert {"tensor 4 → 2", "pipeline 4 → 2", "ZeRO stage 0 → 1", "recomputation none → selective"} <= set(words)
    whole = advised(store, drawn)
    counted = replace(drawn, run=None, counted=Counted(plan=drawn.run.plan, report=drawn.run.report, early=False))
    assert advised(store, counted).offered[0][0] == whole.offered[0][0]
    slow = advise(store, replace(drawn, took_s=MOST_S + 1))
    assert not slow.offered and "takes 6.00 s to simulate" in slow.note


def test_advice_is_the_best_of_table_and_changes_and_ties_go_to_fewer_bytes(store: Store) -> None:
    """A strategy that searches counts once it is known; of steps as long as each other the one that moves less wins."""
    now = store.resolved(Configuration(profile="net", cluster="cpu-1g", strategy="data", devices=4, batch_size=8))
    outcome, searched = store.outcome(now), replace(now, strategy="hypergraph")
    assert outcome.run is not None and not any(move.configuration == searched for move in moves(outcome))
    glance = replace(glance_of(outcome), configuration=searched, step_s=outcome.run.report.step_s / 1000)
    store.desk.keep(searched, None, glance)
    best = advised(store, outcome).offered[0]
    assert best[0].configuration == searched
    near, lean = (replace(now, strategy=name) for name in ("owt", "layerwise"))
    store.desk.keep(near, None, replace(glance, configuration=near, step_s=glance.step_s * 0.9995))
    store.desk.keep(lean, None, replace(glance, configuration=lean, total_bytes=glance.total_bytes / 2))
    assert advised(store, outcome).offered[0][0].configuration == lean


def test_a_large_model_on_512_gpus_is_answered_by_the_shortcuts() -> None:
    store = Store({"net": branches()})
    now = on("llama3-70b", devices=512, tensor=8, pipeline=8, batch_size=None)
    began_s = time.process_time()
    outcome = store.outcome(now)
    assert outcome.counted is not None and outcome.counted.report.tasks > 35_000_000, outcome.reason
    assert glance_of(outcome).ran and len(pickle.dumps(outcome)) < 5 * 10**6
    assert time.process_time() - began_s < 10  # on a busy machine; 2 s alone


def test_shares_tell_launches_from_bubble(store: Store) -> None:
    """Of devices that wait for nothing but their host the bubble is that of the report, and all adds up to the step."""
    outcome = store.outcome(on("dense", tensor=2, pipeline=4, batch_size=64))
    assert outcome.run is not None and outcome.cluster is not None
    split, report = shares(outcome.run, outcome.cluster), outcome.run.report
    parts = {share.name: share.ratio for share in split.total}
    assert parts["bubble"] == pytest.approx(report.bubble_ratio) and parts["host launches"] > 0
    assert sum(parts.values()) == pytest.approx(1.0)


def test_a_mixture_is_advised_to_hide_what_its_experts_exchange(store: Store) -> None:
    """As `simulate` says, which makes the same step of it."""
    outcome = store.outcome(on("mixture", expert=4, batch_size=1024, microbatches=4, zero_stage=1))
    move = next(each for each in moves(outcome) if "combined-1f1b" in each.words)
    hidden = store.outcome(move.configuration)
    assert outcome.report is not None and hidden.report is not None
    assert move.words == "schedule sequential → combined-1f1b (Megatron-LM)"
    assert hidden.report.step_s < outcome.report.step_s and not any("combined" in each.words for each in moves(hidden))
    assert not any("combined" in each.words for each in moves(store.outcome(on("dense", microbatches=2))))
