"""What a configuration makes of a cluster and a step, and what advice counts as better: by hand."""

from __future__ import annotations

from dataclasses import replace
from math import exp
from types import SimpleNamespace
from typing import Any

import pytest
from small_networks import branches, chain

from dashboard.state.advice import Advice, Move, _helps, _order, largest_loss, too_large
from dashboard.state.configuration import Configuration
from dashboard.state.device_groups import device_groups
from dashboard.state.measures import Share, Shares
from dashboard.state.opening import _steps_s
from dashboard.state.planning import (
    _goes,
    batch_of,
    batch_sizes,
    build_plan,
    changed_cluster,
    degrees,
    microbatch_counts,
    replicas,
    tier_links,
    usual_cluster,
    values_around,
)
from dashboard.state.simulating import Glance, Outcome, compute, glance_of
from dashboard.state.store import Store
from simulator.errors import InputError
from simulator.language_models.card_files import read_card
from simulator.language_models.grids import Divisible
from simulator.language_models.modelled_profile import modelled_profile
from simulator.language_models.training_stack import optimizer_state_of, read_stack
from simulator.lowering.sharded_model import ShardedModel
from simulator.network.catalogue import ClusterFile, read_cluster
from simulator.plan import Plan, Sharding
from simulator.readers._log import RunLog

NOW = Configuration(profile="small@0", cluster="azure-v100-10g", strategy="data", devices=8)


@pytest.mark.parametrize("tier", ["inter", "intra"])
@pytest.mark.parametrize(("bandwidth", "latency"), [(2.0, 1.0), (1.0, 0.25), (0.5, 4.0)])
def test_links_of_one_tier_are_changed_by_their_factors(tier: str, bandwidth: float, latency: float) -> None:
    usual = usual_cluster(NOW, None)
    assert usual == read_cluster("azure-v100-10g", devices=8) and {*tier_links(usual)} == {"inter", "intra"}
    changes = {f"{tier}_bandwidth": bandwidth, f"{tier}_latency": latency}
    changed = changed_cluster(usual, replace(NOW, **changes))  # type: ignore[arg-type]
    first = {name: next(link for link in usual.links if link.tier == name) for name in ("inter", "intra")}
    for before, after in zip(usual.links, changed.links, strict=True):
        if before.tier != tier:
            assert after == before
            continue
        assert after.nominal_bytes_per_s == pytest.approx(first[tier].nominal_bytes_per_s * bandwidth)
        assert after.latency_s == pytest.approx(first[tier].latency_s * latency)
    assert changed.devices == usual.devices


def test_devices_are_as_fast_as_said_and_a_file_has_as_many_as_asked_for() -> None:
    usual = usual_cluster(NOW, None)
    assert changed_cluster(usual, NOW) is usual
    assert {device.speed for device in changed_cluster(usual, replace(NOW, speed=1.5)).devices} == {1.5}
    uploaded = ClusterFile.of(replace(usual, name="mine"))
    few = usual_cluster(replace(NOW, devices=3), uploaded)
    assert len(few.devices) == 3 and few.devices == usual.devices[:3]


def test_replicas_are_what_degrees_leave_of_the_devices() -> None:
    grid = replace(NOW, strategy="megatron", tensor=2, pipeline=2, context=1)
    assert (replicas(NOW), replicas(grid), replicas(replace(grid, devices=24, context=3))) == (8, 2, 2)
    assert replicas(replace(grid, devices=6)) == 0 and replicas(replace(NOW, strategy="pipeline")) == 1


def test_batches_around_the_usual_one_by_hand() -> None:
    """A quarter to four times the usual one, each a multiple of what replicas and micro-batches ask for."""
    profile, now = chain([1.0, 2.0]), replace(NOW, devices=8, strategy="data")
    usual = profile.batch_for(8)
    assert batch_of(now, profile) == usual and batch_of(replace(now, batch_size=24), profile) == 24
    sizes = batch_sizes(now, profile)
    assert sizes == sorted({max(8, -(-usual * factor // 4 // 8) * 8) for factor in (1, 2, 4, 8, 16)})
    assert batch_sizes(replace(now, microbatches=3), profile)[0] % 24 == 0
    assert {type(size) for size in sizes} == {int}
    assert batch_sizes(replace(now, devices=1), replace(profile, batch_size=1)) == [1, 2, 4]
    uneven = replace(now, strategy="megatron", tensor=3)
    assert batch_sizes(uneven, profile) == batch_sizes(replace(now, strategy="pipeline"), profile)
    assert batch_sizes(replace(now, devices=1024, microbatches=65), profile) == []  # more than 65,536 samples
    assert batch_sizes(replace(now, devices=1024, microbatches=64), profile)[0] == 65536


def test_a_sweep_is_offered_values_around_the_machine_that_is_shown() -> None:
    profile, now = chain([1.0, 2.0]), replace(NOW, cluster="dgx-h100", devices=64, strategy="data")
    values = values_around(now, profile, usual_cluster(now, None))
    assert values["devices"] == "16..128 by x2" and values["inter_bandwidth_bytes_per_s"] == "800Gbps..12800Gbps by x2"
    assert values["batch_size"] == ", ".join(map(str, batch_sizes(now, profile))) and values["intra_latency_s"]
    few = values_around(replace(now, devices=1), profile, usual_cluster(replace(now, devices=1), None))
    assert few["devices"] == "1..2 by x2"
    many = values_around(replace(now, devices=1024, microbatches=65), profile, usual_cluster(now, None))
    assert many["devices"] == "256..1024 by x2" and "batch_size" not in many


def test_micro_batches_divide_the_batch_and_leave_replicas_a_sample() -> None:
    profile, now = chain([1.0, 2.0]), replace(NOW, devices=4, batch_size=48)
    assert microbatch_counts(now, profile) == [1, 2, 3, 4, 6, 8, 12]
    assert microbatch_counts(replace(now, strategy="pipeline"), profile)[-2:] == [24, 48]
    assert microbatch_counts(replace(now, strategy="pipeline", batch_size=4096), profile)[-1] == 1024
    assert microbatch_counts(replace(now, strategy="pipeline", batch_size=2050), profile)[-1] == 410
    uneven = replace(now, strategy="megatron", tensor=3)
    assert microbatch_counts(uneven, profile) == microbatch_counts(replace(now, strategy="pipeline"), profile)


def test_a_plan_has_the_settings_that_are_of_use_to_its_strategy() -> None:
    profile, cluster = branches(), usual_cluster(NOW, None)
    set_to = replace(
        NOW, batch_size=32, microbatches=2, schedule="gpipe", collective="tree", overlap=False, optimizer="adam",
        zero_stage=2, shard_group=4,
    )  # fmt: skip
    plan = build_plan(set_to, profile, cluster)
    assert (plan.batch_size, plan.synchronisation.collective, plan.synchronisation.overlap) == (32, "tree", False)
    assert (plan.states.stage, plan.states.group, plan.optimizer_state) == (2, 4, 2.0)
    assert build_plan(replace(set_to, optimizer="own"), profile, cluster).optimizer_state == optimizer_state_of(profile)
    staged = build_plan(replace(set_to, strategy="pipeline"), profile, cluster)
    assert (staged.microbatches, staged.schedule, staged.states.stage) == (2, "gpipe", 0)
    assert build_plan(replace(set_to, strategy="pipeline", schedule="own"), profile, cluster).schedule == "1f1b"
    chunks = replace(set_to, strategy="pipeline", schedule="interleaved", devices=2, chunks=3)
    staged = build_plan(chunks, chain([1.0] * 12), usual_cluster(chunks, None))
    assert len(ShardedModel(chain([1.0] * 12), staged).stages) == 6


def glance(step_s: float, total_bytes: float = 0.0, fit: str = "fits") -> Glance:
    plan = Plan(model="small", batch_size=8, placements={"a": Sharding(devices=(0,))})
    return Glance(configuration=NOW, step_s=step_s, total_bytes=total_bytes, fit=fit, plan=plan)  # type: ignore[arg-type]


def test_steps_within_half_a_percent_are_as_long_as_each_other() -> None:
    """Then fewer bytes are better; what fits comes first."""
    ranked = [glance(exp(0.002), 1.0), glance(1.0, 5.0), glance(exp(0.006), 0.0), glance(0.5, 0.0, "does not fit")]
    assert sorted([ranked[k] for k in (3, 1, 2, 0)], key=_order) == ranked
    assert _order(glance(1.0, 5.0))[1:] == (0, 5.0) and _order(glance(exp(0.0126)))[1] == 3
    assert _order(glance(1.0))[0] is False and _order(glance(1.0, fit="does not fit"))[0] is True


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    store = Store({"small": branches()})
    return compute(store.request(store.resolved(replace(store.default(), profile="small", strategy="data", devices=2))))


def test_what_helps_is_half_a_percent_shorter_or_fits_at_last(outcome: Outcome) -> None:
    assert outcome.report is not None and outcome.report.fits
    step_s = outcome.report.step_s
    assert _helps(glance(step_s * 0.9949), outcome) and not _helps(glance(step_s * 0.9951), outcome)
    assert not _helps(glance(step_s / 2, fit="does not fit"), outcome)
    assert _helps(glance(step_s * 9), replace(outcome, run=None))


def test_the_largest_loss_is_more_than_half_a_percent_of_device_time(outcome: Outcome) -> None:
    def of(*ratios: float) -> float | None:
        total = tuple(Share(name=f"{k}", seconds=1.0, ratio=ratio, lost=k > 0) for k, ratio in enumerate(ratios))
        seen: Any = SimpleNamespace(shares=Shares(total=total, devices=()))
        loss = largest_loss(seen)
        return loss.ratio if loss else None

    assert (of(0.9, 0.04, 0.06), of(0.995, 0.005), of(0.9949, 0.0051), of(1.0)) == (0.06, None, 0.0051, None)
    assert largest_loss(replace(outcome, run=None)) is None


def test_without_a_run_or_a_cluster_nothing_is_made_of_them(outcome: Outcome) -> None:
    assert outcome.flows is not None and outcome.shares is not None and outcome.interval is not None
    for bare in (replace(outcome, run=None), replace(outcome, cluster=None)):
        assert (bare.flows, bare.shares, bare.interval, bare.interval_s) == (None, None, None, None)


def test_a_step_that_takes_five_seconds_is_not_simulated_again_but_for_a_search(outcome: Outcome) -> None:
    searching = replace(outcome, configuration=replace(outcome.configuration, strategy="hypergraph"))
    assert [too_large(replace(outcome, took_s=took_s)) for took_s in (5.0, 5.1)] == [False, True]
    assert not too_large(replace(searching, took_s=60.0)) and not too_large(replace(outcome, took_s=60.0, run=None))


def test_two_settings_are_offered_and_one_change_of_the_hardware() -> None:
    pairs = [
        (Move(words=f"{number}", configuration=NOW, hardware=hardware), glance(1.0))
        for number, hardware in enumerate((True, False, True, False, False))
    ]
    advice = Advice(loss=None, helpful=tuple(pairs), settings=3)
    assert [move.words for move, _ in advice.offered] == ["1", "3", "0"]


@pytest.mark.parametrize("strategy", ["data", "pipeline"])
def test_a_glance_has_the_figures_of_its_outcome(strategy: str) -> None:
    """Of the fullest device its memory, and how many devices compute; without a run the reason alone."""
    store = Store({"small": branches()})
    now = replace(store.default(), profile="small", strategy=strategy, devices=2, cluster="azure-v100-10g")
    seen = compute(store.request(store.resolved(now)))
    assert seen.run is not None and seen.flows is not None
    report, figures = seen.run.report, glance_of(seen)
    peak, memory = max((device.peak_memory_bytes, device.memory_bytes) for device in report.devices)
    assert (figures.peak_memory_bytes, figures.memory_bytes) == (peak, memory)
    assert figures.computing == sum(1 for device in report.devices if device.compute_s)
    assert (figures.step_s, figures.load_balance_ratio) == (report.step_s, report.load_balance_ratio)
    assert (figures.total_bytes, figures.between_bytes) == (report.communication_bytes.total, seen.flows.between_bytes)
    assert (figures.fit, figures.reason, figures.bottleneck) == (report.fit, report.verdict, str(report.bottleneck))
    assert (figures.plan, figures.microbatches, figures.interval_s) == (
        seen.run.plan,
        report.microbatches,
        seen.interval_s,
    )
    assert figures.by_layer is not None and figures.by_layer.shape == (len(seen.profile.layers), 2)
    assert figures.by_layer[:, 0].sum() == pytest.approx(seen.flows.edge_bytes.sum())
    assert figures.by_layer[:, 1].sum() == pytest.approx(seen.flows.gradient_bytes.sum())
    assert figures.ran and figures.fits
    none = glance_of(replace(seen, run=None, reason="why"))
    assert (none.reason, none.ran, none.fits, none.step_s) == ("why", False, False, 0.0)


def test_a_log_is_beside_a_step_only_where_there_is_one(outcome: Outcome) -> None:
    log = RunLog(kind="step_s", speeds=(1.0, 2.0))
    assert _steps_s(log, outcome) == [1.0, 2.0]
    for bare in (replace(outcome, run=None, reason="why"), replace(outcome, cluster=None, reason="why")):
        with pytest.raises(InputError, match="there is no step to compare it with: why"):
            _steps_s(log, bare)


def test_what_fits_at_the_border_fits() -> None:
    assert [glance(1.0, fit=fit).fits for fit in ("fits", "border", "does not fit")] == [True, True, False]
    assert not replace(glance(1.0), plan=None).fits


@pytest.mark.parametrize(
    ("changes", "goes"),
    [
        ({"tensor": 2, "context": 2}, True),
        ({"tensor": 4, "context": 2}, False),
        ({"tensor": 1, "context": 4}, True),
        ({"tensor": 1, "context": 8}, False),
        ({"tensor": 3, "devices": 12}, False),
        ({"tensor": 8}, False),
        ({"pipeline": 4}, True),
        ({"pipeline": 8}, False),
        ({"expert": 2}, True),
        ({"expert": 3, "devices": 12}, False),
        ({"expert": 16, "devices": 16}, False),
        ({"expert": 8}, False),
        ({"devices": 2, "expert": 4}, False),
        ({"devices": 12, "context": 3, "expert": 2}, False),
        ({"devices": 4, "tensor": 2, "expert": 4, "expert_tensor": 1}, True),
        ({"devices": 4, "tensor": 2, "expert": 4}, False),
        ({"devices": 4, "context": 2, "expert": 4}, True),
        ({"tensor": 2, "expert_tensor": 2}, True),
        ({"tensor": 4, "expert_tensor": 2}, False),
        ({"batch_size": 8}, True),
        ({"batch_size": 7}, False),
        ({"batch_size": 16, "microbatches": 2}, True),
        ({"batch_size": 16, "microbatches": 4}, False),
        ({"batch_size": 16, "microbatches": 3}, False),
        ({"devices": 4, "microbatches": 3}, False),
        ({"devices": 6, "tensor": 4}, False),
    ],
)
def test_degrees_go_together_where_they_divide_what_they_cut(changes: dict[str, int], goes: bool) -> None:
    """Of 4 heads, 4 of keys, a sequence of 12 tokens, 4 blocks and 4 experts, on 8 devices with a batch of 16."""
    limits = Divisible(heads=4, key_heads=4, sequence=12, layers=4, experts=4)
    now = replace(NOW, strategy="megatron", devices=8, batch_size=16)
    assert _goes(replace(now, **changes), limits, changes.get("batch_size", 16)) is goes  # type: ignore[arg-type]
    if changes == {"tensor": 2, "context": 2}:
        assert not _goes(replace(now, **changes), replace(limits, sequence=6), 16)  # type: ignore[arg-type]
        assert not _goes(replace(now, **changes), replace(limits, heads=0), 16)  # type: ignore[arg-type]


@pytest.mark.parametrize(("layers", "stages"), [(3, [1, 2]), (4, [1, 2, 4]), (9, [1, 2, 4, 8])])
def test_without_attention_the_layers_alone_limit_the_stages(layers: int, stages: list[int]) -> None:
    now = replace(NOW, strategy="megatron", batch_size=16)
    expected = {"tensor": [1, 2, 4, 8], "pipeline": stages, "context": [1], "expert": [1]}
    assert degrees(now, chain([1.0] * layers)) == expected
    assert degrees(replace(now, devices=6, pipeline=3), chain([1.0] * 9))["tensor"] == [1, 2]
    blocks = modelled_profile(read_card("gpt2"), read_stack("megatron-a100"), batch_size=1)  # twelve of them
    assert degrees(replace(now, devices=16), blocks)["pipeline"] == [1, 2, 4, 8]


@pytest.mark.parametrize(
    ("limit", "degree", "goes"),
    [
        ({"key_heads": 1}, {"tensor": 4}, True),
        ({"key_heads": 2}, {"tensor": 4}, True),
        ({"key_heads": 8}, {"tensor": 4}, True),
        ({"key_heads": 3}, {"tensor": 2}, False),
        ({"key_heads": 6}, {"tensor": 4}, False),
        ({"key_heads": 3}, {"tensor": 4}, False),
        ({"heads": 0, "key_heads": 0}, {"tensor": 8}, True),
        ({"experts": 0}, {"expert": 2}, False),
        ({"experts": 0}, {"expert": 1}, True),
        ({"experts": 3}, {"expert": 3, "devices": 12, "context": 2}, False),
        ({"layers": 2}, {"pipeline": 2}, True),
        ({"layers": 1}, {"pipeline": 2}, False),
    ],
)
def test_heads_of_keys_experts_and_layers_limit_degrees(
    limit: dict[str, int], degree: dict[str, int], goes: bool
) -> None:
    """Keys may be fewer than a tensor group, which then divides into groups with the same ones."""
    limits = replace(Divisible(heads=4, key_heads=4, sequence=12, layers=4, experts=4), **limit)
    now = replace(NOW, strategy="megatron", devices=8, batch_size=48)
    assert _goes(replace(now, **degree), limits, 48) is goes  # type: ignore[arg-type]


def test_the_first_group_of_devices_is_opened_as_any_other() -> None:
    cluster = read_cluster("azure-v100-10g", devices=64)
    groups = device_groups(cluster)
    for opened in (0, 1, len(groups) - 1):
        assert [group.devices for group in device_groups(cluster, opened)] == [(d,) for d in groups[opened].devices]
    assert device_groups(cluster, -1) == device_groups(cluster, len(groups)) == groups
