"""What a page can name, keeps of uploads and shows first, and which strategies stand beside each other: by hand."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from small_networks import branches, chain

from dashboard.state.alternatives import LANGUAGE_STRATEGIES, STRATEGIES, alternatives, glances_at_hand, in_a_node
from dashboard.state.configuration import Configuration
from dashboard.state.inventory import Inventory, label
from dashboard.state.simulating import compute
from dashboard.state.store import Store, bundled, given_cards, opened_name
from simulator.errors import UnknownNameError
from simulator.files import library
from simulator.language_models.card_files import read_card
from simulator.language_models.modelled_profile import modelled_profile
from simulator.language_models.training_stack import read_stack


def test_an_identity_is_a_name_and_a_hash_of_the_content() -> None:
    kept = Inventory("thing", {"a": 1, "b": 2})
    named = f"a@{hashlib.sha256(b'1').hexdigest()[:10]}"
    assert kept.identity("a", 1) == named and next(iter(kept.everything())) == named and label(named) == "a"
    lengths = Inventory[str]("thing", {}, lambda item: bytes([len(item)]))
    assert lengths.identity("a", "xy") == lengths.identity("a", "zz") != lengths.identity("a", "x")


def test_names_stand_for_items_and_an_unknown_hash_gives_way_to_the_name() -> None:
    kept = Inventory("thing", {"a": 1, "b": 2})
    whole = kept.identity("b", 2)
    assert kept.resolve("b") == kept.resolve(whole) == kept.resolve("b@0123456789") == whole and kept.get("b@0") == 2
    newer = kept.put("b.yaml", 3)
    assert kept.resolve(newer) == newer and kept.resolve("b") == whole  # the first of that name
    with pytest.raises(UnknownNameError, match="unknown thing 'c'"):
        kept.resolve("c")
    assert kept.shown(whole) == whole and kept.shown("b") == kept.shown(None) == kept.identity("a", 1)
    assert Inventory[int]("thing", {}).shown("a") is None
    assert kept.options("of ")[1] == {"value": whole, "label": "of b"}


@pytest.mark.parametrize("uploads", [19, 20, 21, 30])
def test_the_latest_twenty_uploads_stay_beside_what_was_there(uploads: int) -> None:
    kept = Inventory("thing", {"a": -1, "b": -2})
    keys = [kept.put(f"folder/file{number}.json", number) for number in range(uploads)]
    assert [label(key) for key in keys[:2]] == ["file0", "file1"]
    assert list(kept.everything().values()) == [-1, -2, *range(uploads)[-20:]]
    assert label(kept.put("x" * 70 + ".json", 7)) == "x" * 60 and label(kept.put("", 8)) == "upload"


@pytest.mark.parametrize(
    ("device", "cluster", "devices", "strategy", "microbatches"),
    [
        ("Tesla V100-SXM2-16GB", "azure-v100-10g", 8, "hypergraph", None),
        ("NVIDIA A100-SXM4-80GB", "dgx-a100", 8, "hypergraph", None),
        ("NVIDIA H100 80GB HBM3", "dgx-h100", 8, "hypergraph", None),
        ("some processor", "cpu-1g", 4, "pipeline", 8),
    ],
)
def test_a_profile_is_shown_first_on_machines_like_its_own(
    device: str, cluster: str, devices: int, strategy: str, microbatches: int | None
) -> None:
    store = Store({"first": replace(branches(), device=device), "second": chain([1.0])}, cards={})
    now = store.default()
    assert (label(now.profile), now.cluster, now.devices, now.strategy) == ("first", cluster, devices, strategy)
    assert now.microbatches == microbatches
    assert label(Store({"first": branches(), "second": chain([1.0])}, first="second").default().profile) == "second"


def test_a_card_opens_as_a_grid_with_a_tensor_group_of_a_node() -> None:
    store = Store({"first": branches()})
    now = store.read("profile=llama3-8b")[0]
    assert (now.profile, now.cluster, now.strategy, now.devices, now.tensor) == (
        "llama3-8b", "dgx-h100", "megatron", 8, 8,
    )  # fmt: skip
    assert "llama3-8b" in store.profile_names() and store.has_profile("llama3-8b") and not store.has_profile("llama")


def test_strategies_beside_each_other_are_the_shown_one_and_the_others_in_order() -> None:
    now = Configuration(profile="small", cluster="cpu-1g", strategy="pipeline", devices=4, zero_stage=2)
    options = alternatives(now, branches())
    assert options[0] is now and [each.strategy for each in options[1:]] == ["data", "owt", "hypergraph", "layerwise"]
    assert {each.zero_stage for each in options[1:]} == {0} and {each.devices for each in options} == {4}
    planned = replace(now, plan="mine@0")
    assert [each.strategy for each in alternatives(planned, branches())] == ["pipeline", *STRATEGIES]
    assert {each.plan for each in alternatives(planned, branches())[1:]} == {""}


@pytest.mark.parametrize(("devices", "tensor"), [(4, 4), (8, 8), (16, 8), (24, 8), (12, 4), (1, 1)])
def test_a_grid_beside_has_the_largest_tensor_group_of_a_node_that_divides_the_heads(devices: int, tensor: int) -> None:
    """Of the divisors of the devices up to 8, one that divides the 32 heads; degrees that are set stay."""
    profile = modelled_profile(read_card("llama3-8b"), read_stack("megatron-a100"), batch_size=1)
    now = Configuration(profile="llama3-8b", cluster="dgx-h100", strategy="data", devices=devices, batch_size=384)
    options = {each.strategy: each for each in alternatives(now, profile)}
    assert set(options) == set(LANGUAGE_STRATEGIES) and options["megatron"].tensor == tensor
    assert in_a_node(now, profile).tensor <= 8
    if devices == 8:
        set_to = {each.strategy: each for each in alternatives(replace(now, pipeline=2), profile)}
        assert (set_to["megatron"].tensor, set_to["megatron"].pipeline) == (1, 2)
        for degree in ("context", "tensor"):
            kept = {each.strategy: each for each in alternatives(replace(now, **{degree: 2}), profile)}["megatron"]
            assert (kept.tensor, kept.context) == ((1, 2) if degree == "context" else (2, 1))


def test_the_shown_strategy_has_its_figures_from_its_outcome_and_none_without_a_step() -> None:
    store = Store({"small": branches()})
    now = replace(store.default(), profile="small", strategy="data", devices=2)
    shown, desk = compute(store.request(store.resolved(now))), Store({"small": branches()}).desk
    glances = glances_at_hand(desk, shown)
    first = glances.pop(shown.configuration)
    assert first is not None and shown.report is not None and first.step_s == shown.report.step_s
    assert [each.strategy for each in glances] == ["owt", "pipeline", "hypergraph", "layerwise"]
    assert set(glances.values()) == {None}
    assert glances_at_hand(desk, replace(shown, run=None))[shown.configuration] is None


@pytest.mark.skipif("vgg16_v100" not in library(), reason="the library has no profile vgg16_v100")
def test_the_library_opens_with_its_first_profile_behind_what_was_named() -> None:
    names = list(bundled(["resnet50_v100"]))
    assert names[:2] == ["resnet50_v100", "vgg16_v100"] and names[2:] == sorted({*library()} - {*names[:2]})
    assert next(iter(bundled())) == "vgg16_v100"
    assert (opened_name("vgg16_v100"), opened_name("folder/mine.json"), opened_name("llama3-8b")) == (
        "vgg16_v100", "mine", "llama3-8b",
    )  # fmt: skip
    assert given_cards(["vgg16_v100", "llama3-8b"]) == {"llama3-8b": "llama3-8b"}


@pytest.mark.skipif("vgg16_v100" not in library(), reason="the library has no profile vgg16_v100")
def test_the_first_screen_shows_a_hypergraphs_own_plan_on_all_devices() -> None:
    store = Store(bundled())
    run, layerwise = (
        store.outcome(replace(store.default(), strategy=name)).run for name in ("hypergraph", "layerwise")
    )
    assert run is not None and layerwise is not None and store.default().strategy == "hypergraph"
    assert len(run.plan.devices) == 8 and run.report.step_s < layerwise.report.step_s
