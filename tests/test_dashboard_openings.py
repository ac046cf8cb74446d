"""Logs and traces beside the step of the controls: by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from small_networks import chain, switched

from dashboard.state.configuration import Configuration
from dashboard.state.opening import _beside, _steps_s, of_log
from dashboard.state.simulating import Counted, Outcome
from dashboard.state.store import Store
from simulator.errors import InputError
from simulator.plan import Plan, Sharding
from simulator.readers._log import RunLog
from simulator.run import run


def on_gpus(batch_size: int = 16, dtype: str = "float16") -> Outcome:
    """A step of 6e12 FLOP forward for 8 samples of 4 tokens, on four V100s."""
    layers = tuple(
        replace(each, flops=flops, kind="attention")
        for each, flops in zip(chain([3.0, 3.0]).layers, (5e12, 1e12), strict=True)
    )
    profile = replace(chain([3.0, 3.0]), layers=layers, device="V100", dtype=dtype)
    store = Store({"net": profile})
    now = Configuration(profile="net", cluster="azure-v100-10g", strategy="data", devices=4, batch_size=batch_size)
    return store.outcome(now)


@pytest.mark.parametrize(
    ("kind", "step_s"),
    [
        ("step_s", 2.0),
        ("steps_per_s", 1 / 2),
        ("samples_per_s", 16 / 2),
        ("tokens_per_s", 16 * 4 / 2),
        ("device_tokens_per_s", 16 * 4 / 4 / 2),
        ("device_tflops", 16 * 3 * 6e12 / 8 / 4 / 1e12 / 2),
        ("mfu", 16 * 3 * 6e12 / 8 / (4 * 125e12) / 2),
    ],
)
def test_a_log_of_any_speed_has_steps_of_seconds(kind: str, step_s: float) -> None:
    """Of 16 samples of 4 tokens, three times 6e12 FLOP for each 8, on four devices of 125 TFLOP/s; a speed of 2."""
    assert _steps_s(RunLog(kind=kind, speeds=(2.0, 4.0)), on_gpus()) == pytest.approx(
        [step_s, step_s * 2 if kind == "step_s" else step_s / 2]
    )


def test_a_log_of_what_is_not_known_here_is_refused() -> None:
    """MFU without a peak, TFLOP/s without FLOP."""
    known, no_peak = on_gpus(), on_gpus(dtype="tf32")
    no_flops = replace(known, profile=chain([3.0, 3.0]))
    for kind, outcome in (("mfu", no_peak), ("mfu", no_flops), ("device_tflops", no_flops)):
        with pytest.raises(InputError, match=f"the log says {kind} alone"):
            _steps_s(RunLog(kind=kind, speeds=(2.0,)), outcome)
    assert _steps_s(RunLog(kind="device_tflops", speeds=(9.0,)), no_peak) == pytest.approx([1.0])
    assert _steps_s(RunLog(kind="tokens_per_s", speeds=(16.0,)), no_flops) == pytest.approx([1.0])


def two_stages() -> Outcome:
    """Passes of 1 and 2 s, then of 2 and 4 s; messages of 1 s:

    device 0  |F|>| . . . . . . |<|B B|
    device 1  |.|>|F F|B B B B  |<| . .|
    """
    profile, cluster = chain([3.0, 6.0]), switched([1.0] * 3, bandwidth_bytes_per_s=4096.0)
    plan = Plan(model="small", batch_size=8, placements={name: Sharding(devices=(i,)) for i, name in enumerate("ab")})
    now = Configuration(profile="net", cluster="mine", strategy="model", devices=3)
    return Outcome(configuration=now, profile=profile, cluster=cluster, run=run(profile, cluster, plan))


@pytest.mark.parametrize(
    ("rank", "step_s", "words"),
    [
        (
            1,
            17.0,
            "forward 4.00x as long, backward 2.50x as long, exposed communication 4.00x as long, waiting 3.00x as long",
        ),
        (
            0,
            17.0,
            "forward 7.00x as long, backward 4.00x as long, exposed communication 4.00x as long, waiting 2.00x as long",
        ),
        (None, 8.0, "backward 0.25x as long"),
        (2, 8.0, "backward 0.25x as long"),
        (0, 8.0, "waiting 0.50x as long"),
        (1, 1.0, ""),
    ],
)
def test_what_alone_would_explain_a_step_of_a_device(rank: int | None, step_s: float, words: str) -> None:
    """Of the one that computes the longest where the rank is not known, or computes nothing."""
    lines = list(_beside([step_s], two_stages(), {}, rank))
    assert lines[2:] == ([f"any of these alone would explain it: {words}"] if words else [])
    assert lines[0].startswith(f"recorded {step_s:.3g}") and "predicted 11.0" in lines[0]


def test_a_trace_says_the_cause_that_is_farthest_off() -> None:
    causes_s = {"forward": 2.5, "backward": 4.0, "update": 0.0, "exposed communication": 2.0, "waiting": 1.5}
    lines = list(_beside([10.0], two_stages(), causes_s, 1))
    assert lines[2] == "farthest off: waiting, -1.50 s (15% of the recorded step)"
    done = two_stages().run
    assert done is not None
    counted = replace(two_stages(), run=None, counted=Counted(plan=done.plan, report=done.report, early=False))
    assert len(list(_beside([10.0], counted, causes_s, 1))) == 2  # without its tasks no cause is known
    with pytest.raises(InputError, match="no step to compare it with: why"):
        list(_beside([10.0], replace(counted, counted=None, reason="why"), causes_s, 1))


def test_a_log_says_which_steps_stand_apart(tmp_path: Path) -> None:
    """Three of warm-up, eight and one that took ten times as long."""
    (tmp_path / "times.txt").write_text("12s 12s 12s 10.3s 10.4s 10.5s 10.7s 10.7s 10.8s 10.9s 11s 99s")
    lines = of_log(tmp_path / "times.txt", two_stages())
    assert lines[0].startswith("recorded 10.7 s; predicted 11.0 s") and lines[2].startswith("any of these alone")
    assert lines[3:] == ["8 steps are steady, 8 of 10 from 10.3 s to 11.0 s; apart: 3 of warm-up, 1 of straggling"]
