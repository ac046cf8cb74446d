"""Samples of unequal work: closed forms of flow shops, laws, and what is drawn, written and refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import fmean, pstdev

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_closed_forms import chain, replicated, staged, star

from simulator.engine.noise import Noise
from simulator.errors import InputError
from simulator.files import read_plan, read_profile, write_plan, write_profile
from simulator.plan import Partition, Plan, Sharding, StepSettings
from simulator.run import run, step_report
from simulator.sample_work import drawn_work, mean_work
from simulator.workload import Profile

WORK = (0.5, 2.0, 1.0, 0.25, 1.5, 0.75)


def staged_profile(count: int = 4, **fields: float) -> Profile:
    """Equal layers that send next to nothing, without parameters."""
    profile = chain(count, parameter_bytes=0)
    return replace(
        profile, layers=tuple(replace(layer, output_bytes=1, saved_bytes=0, **fields) for layer in profile.layers)
    )


def step_s(profile: Profile, plan: Plan, devices: int, **noise: object) -> float:
    cluster = star(devices, bandwidth=1e18, latency_s=0.0)
    return run(profile, cluster, plan, noise=Noise(**noise) if noise else None).report.step_s  # type: ignore[arg-type]


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_a_pipeline_is_a_proportionate_flow_shop(stages: int) -> None:
    """Jobs that take as long on every machine: all of them, and the longest once more for each further machine
    (Pinedo, Scheduling, section 6.1); GPipe's backward passes are another such shop."""
    profile = staged_profile()
    plan = replace(staged(profile, stages, len(WORK), "gpipe"), work=WORK)
    each = sum(layer.forward_s + layer.backward_s for layer in profile.layers) / stages / len(WORK)
    assert step_s(profile, plan, stages) == pytest.approx(each * (sum(WORK) + (stages - 1) * max(WORK)), rel=1e-9)


def test_a_slow_micro_batch_is_no_slow_device() -> None:
    """Four micro-batches on two stages: three times the work of one adds 2 of 4 + 1 twice, a device three times as slow
    makes all of its own so."""
    profile = staged_profile(2)
    plan = staged(profile, 2, 4, "gpipe")
    each = (profile.layers[0].forward_s + profile.layers[0].backward_s) / 4
    assert step_s(profile, plan, 2) == pytest.approx(5 * each)
    assert step_s(profile, replace(plan, work=(1, 3, 1, 1)), 2) == pytest.approx((6 + 3) * each)
    assert step_s(profile, plan, 2, stragglers={1: 3.0}) == pytest.approx((1 + 4 * 3) * each)


def test_replicas_wait_for_the_one_with_most_work() -> None:
    """Parts of a sample's size: two replicas have half of each micro-batch, in turn light and heavy."""
    profile = staged_profile(2)
    plan = replicated(profile, 2, microbatches=2, work=(1.0, 2.0, 5.0, 3.0))
    each = sum(layer.forward_s + layer.backward_s for layer in profile.layers) / 4
    assert step_s(profile, plan, 2) == pytest.approx(each * max(1 + 5, 2 + 3))
    assert step_report(profile, star(2, bandwidth=1e18, latency_s=0.0), plan).step_s == step_s(profile, plan, 2)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zero-bubble", "dataflow"])
@pytest.mark.parametrize("recomputed", [False, True])
def test_twice_the_work_takes_twice_as_long(schedule: str, recomputed: bool) -> None:
    profile = staged_profile()
    segments = (("l0", "l1"), ("l2", "l3")) if recomputed else ()
    plan = replace(staged(profile, 2, 4, schedule), recomputed=segments)
    assert step_s(profile, replace(plan, work=(2.0,)), 2) == pytest.approx(2 * step_s(profile, plan, 2), rel=1e-12)


def test_a_layer_takes_the_varying_share_of_it() -> None:
    profile, alike = staged_profile(1, varying_share=0.25), staged_profile(1)
    plan = replace(staged(profile, 1, 2, "gpipe"), work=(3.0, 1.0))
    assert step_s(profile, plan, 1) == pytest.approx(step_s(alike, plan, 1) * (1 + 0.25) / 2)
    still = staged_profile(1, varying_share=0.0)
    assert step_s(still, plan, 1) == step_s(still, replace(plan, work=()), 1)


def test_one_device_is_as_fast_as_itself() -> None:
    """The speed-up counts the work that there is."""
    profile = staged_profile(varying_share=0.5)
    report = run(profile, star(1), replace(staged(profile, 1, 2, "gpipe"), work=(3.0, 1.0))).report
    assert report.speedup == pytest.approx(1)


@settings(max_examples=30)
@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=6), st.integers(1, 4), st.integers(1, 6))
def test_the_mean_over_parts(work: list[float], finer: int, samples: int) -> None:
    """Of whole parts their mean; cut finer, they say the same; all samples together have the mean of all parts."""
    size = samples * len(work) * finer
    edges = np.arange(len(work) + 1) * (size // len(work))
    assert mean_work(work, size, edges[:-1], edges[1:]) == pytest.approx(np.array(work))
    repeated = np.repeat(work, finer).tolist()
    first = np.arange(size)
    assert mean_work(repeated, size, first, first + 1) == pytest.approx(mean_work(work, size, first, first + 1))
    assert mean_work(work, size, np.array([0]), np.array([size]))[0] == pytest.approx(fmean(work))


def test_what_is_drawn_has_mean_one_and_the_deviation() -> None:
    drawn = drawn_work(20_000, 0.4, seed=3)
    assert (fmean(drawn), pstdev(drawn)) == pytest.approx((1, 0.4), rel=0.03)
    assert drawn == drawn_work(20_000, 0.4, seed=3) != drawn_work(20_000, 0.4, seed=4)
    assert drawn_work(20, 0.0) == ()
    with pytest.raises(InputError, match="work is drawn for up to 65,536"):
        drawn_work(65_537, 0.1)


def test_plans_draw_what_the_profile_says(tmp_path: Path) -> None:
    """Profiles and plans keep it in their files."""
    profile = replace(staged_profile(2, varying_share=0.5), work_deviation=0.3)
    write_profile(profile, tmp_path / "profile.json")
    assert read_profile(tmp_path / "profile.json") == profile
    partition = Partition(placements={layer.name: Sharding(devices=(0,)) for layer in profile.layers})
    plan = StepSettings(batch_size=6).plan(profile, partition)
    assert plan.work == drawn_work(6, 0.3)
    assert StepSettings(batch_size=6, work=(1.0, 2.0)).plan(profile, partition).work == (1.0, 2.0)
    write_plan(plan, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == plan


@pytest.mark.parametrize(
    ("work", "message"),
    [
        ((1.0,) * 5, "work is 5 numbers: equal parts of the batch, of which 48 samples make no such number"),
        ((1.0, 0.0), "work is 0.0: each part's is above 0"),
        ((1.0, float("nan")), "work is nan"),
        ((1.0,) * 65_537, "a batch has at most 65,536"),
    ],
)
def test_wrong_work_is_refused(work: tuple[float, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(staged(staged_profile(), 2, 4, "gpipe"), work=work)


def test_the_command_line_draws_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import json

    from simulator.cli import main

    written = tmp_path / "plan.json"
    step = ["vgg16", "--cluster", "p3-8xlarge", "--batch-size", "64"]
    wanted = ["--strategy", "pipeline", "--microbatches", "8", "--work-deviation", "0.5", "--json"]
    assert main(["simulate", *step, *wanted, "--seed", "2", "--plan-out", str(written)]) == 0
    varied = json.loads(capsys.readouterr().out)
    assert read_plan(written).work == drawn_work(64, 0.5, seed=2)
    assert main(["simulate", *step, "--plan", str(written), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["step_s"] == varied["step_s"]
    assert main(["simulate", *step, "--plan", str(written), "--work-deviation", "0.5", "--seed", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["step_s"] != varied["step_s"]
