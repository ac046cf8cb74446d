"""The verdict on a step: fits, border, does not fit, breaks a rule of the runtime; what a runtime holds besides."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_networks import chain, switched

from simulator.cluster import Cluster
from simulator.errors import InputError
from simulator.plan import Plan, Sharding
from simulator.report.memory import BORDER, Fit
from simulator.run import run
from simulator.runtime import TORCH_PIPELINING, Runtime

PROFILE = chain([3.0, 3.0])
PLAN = Plan(
    model="small",
    batch_size=8,
    microbatches=2,
    schedule="1f1b",
    placements={"a": Sharding(devices=(0,)), "b": Sharding(devices=(1,))},
)
PEAK = run(PROFILE, switched([1.0] * 2), PLAN).report.peak_memory_bytes


def of_memory(memory_bytes: float) -> Cluster:
    cluster = switched([1.0] * 2)
    devices = tuple(replace(device, memory_bytes=int(memory_bytes)) for device in cluster.devices)
    return replace(cluster, devices=devices)


@pytest.mark.parametrize(
    ("share", "fit", "words"),
    [
        (0.5, "fits", ""),
        (BORDER + 0.02, "border", "border: d1 needs"),
        (1.2, "does not fit", "does not fit: d1"),
    ],
)
def test_a_verdict_is_sure_only_away_from_the_limit(share: float, fit: Fit, words: str) -> None:
    report = run(PROFILE, of_memory(PEAK / share), PLAN).report
    assert report.fit == fit == report.to_dict()["fit"] and report.verdict.startswith(words)
    assert report.fits == (fit != "does not fit") and bool(report.verdict) == bool(words)


def test_a_runtime_holds_its_context_and_workspace_on_every_device_of_the_plan() -> None:
    """And on no other: the third device has no shard."""
    runtime = Runtime(context_bytes=300.0, workspace_bytes=50.0)
    plain, held = (run(PROFILE, switched([1.0] * 3), PLAN, runtime=r).report for r in (Runtime(), runtime))
    grown = [b.peak_memory_bytes - a.peak_memory_bytes for a, b in zip(plain.devices, held.devices, strict=True)]
    assert grown == [350.0, 350.0, 0.0] and held.step_s == plain.step_s
    assert run(PROFILE, of_memory(PEAK + 300), PLAN, runtime=runtime).report.fit == "does not fit"
    with pytest.raises(InputError, match="context_bytes"):
        Runtime(context_bytes=-1.0)


def test_nanotron_takes_a_micro_batch_fewer_than_stages() -> None:
    runtime = replace(TORCH_PIPELINING, spared_microbatches=1)
    assert [runtime.fewest_microbatches("1f1b", stages) for stages in (1, 2, 3, 8)] == [1, 1, 2, 7]
    assert [TORCH_PIPELINING.fewest_microbatches(name, 4) for name in ("1f1b", "gpipe")] == [4, 1]


@pytest.mark.parametrize(("microbatches", "fit"), [(1, "breaks a rule"), (2, "fits"), (4, "fits")])
def test_torch_refuses_fewer_micro_batches_than_stages(microbatches: int, fit: Fit) -> None:
    """As its Schedule1F1B does when it is made; without such a runtime the plan is simulated and fits."""
    plan = replace(PLAN, microbatches=microbatches)
    report = run(PROFILE, of_memory(1e9), plan, runtime=TORCH_PIPELINING).report
    assert report.fit == fit and report.fits == (fit == "fits")
    assert ("1f1b of 2 stages needs 2 micro-batches" in report.verdict) == (fit != "fits")
    assert run(PROFILE, of_memory(1e9), plan).report.fit == "fits"
