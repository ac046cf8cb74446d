"""What a capture says of itself: its ratio can be off, and then it says why; a busy machine does not inflate it."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; make test installs it")

from command_line import shardscope  # noqa: E402

from simulator import files  # noqa: E402
from traces.capture import command, device_clocks  # noqa: E402
from traces.capture.device_clocks import Moment  # noqa: E402
from traces.capture.doubts import Circumstances, doubt, drift  # noqa: E402
from traces.zoo.networks import Network  # noqa: E402

QUIET = Circumstances(ratio=1.0, queued=0.0, stolen=0.0, drift=1.0, ahead=False)


class Loops(torch.nn.Module):
    """Two small layers, and Python between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(32, 32), torch.nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count = 0
        for number in range(100_000):
            count += number
        x = self.first(x)
        return self.second(x) if x.sum() < count else x  # looks at a value, so that it is recorded, not traced


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ({"ratio": 0.5, "queued": 0.6}, "others had the core for 60% of the time (load"),
        ({"ratio": 0.5, "stolen": 0.3}, "its host took 30% of the machine's core time"),
        ({"ratio": 1.3, "drift": 1.4}, "steps took 1.40 times as long in the end"),
        ({"ratio": 1.3}, "small layers, whose timing counts"),
        ({"ratio": 0.6}, "loops, Python or operators that are in no layer"),
        ({"ratio": 0.6, "ahead": True}, "the host launches slower than the device computes"),
    ],
)
def test_each_cause_has_words_and_a_remedy(seen: dict[str, float], words: str) -> None:
    text = doubt(replace(QUIET, **seen))
    assert words in text and ", so " in text and len(text) < 300
    assert replace(QUIET, **seen).disturbed == bool({"queued", "stolen", "drift"} & set(seen))


def test_layers_that_add_up_are_not_doubted() -> None:
    assert doubt(QUIET) == "" == doubt(replace(QUIET, ratio=0.86, queued=0.9, stolen=0.9, drift=2.0))


def test_the_drift_is_of_the_last_third_over_the_first() -> None:
    assert drift([1.0, 1.0, 5.0, 5.0, 2.0, 2.0]) == 2.0 and drift([1.0, 9.0]) == 1.0


def test_a_capture_whose_layers_miss_its_step_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The ratio is of what was measured, although the layers are scaled to the step; commands repeat the doubt."""
    monkeypatch.setattr(command, "MOST_SERIES", 1)
    profile = command.capture(Network(build=Loops, input_shape=(32,)), 4, repeats=3, fractions=())
    assert profile.layers_to_step is not None and profile.layers_to_step < 0.85
    assert profile.layers_s == pytest.approx(profile.step_s, rel=1e-4)
    assert "loops, Python or operators that are in no layer" in profile.doubt
    assert command.summary(profile).splitlines()[2] == f"doubtful: {profile.doubt}"
    path = tmp_path / "loops.json"
    files.write_profile(profile, path)
    for words in (("simulate", path, "--strategy"), ("compare", path, "--strategies")):
        assert shardscope(*words[:2], "--cluster", "cpu-1g", "--devices", 2, *words[2:], "data") == 0
        assert f"note: the profile is doubtful: {profile.doubt}" in capsys.readouterr().out


def test_a_disturbed_series_is_measured_again_and_the_best_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = iter([replace(QUIET, ratio=0.4, queued=0.7), replace(QUIET, ratio=0.9), replace(QUIET, ratio=1.0)])
    monkeypatch.setattr(command.MeasurementRounds, "circumstances", lambda _: next(seen))
    network = Network(build=lambda: torch.nn.Linear(8, 8), input_shape=(8,))
    profile = command.capture(network, 2, repeats=1, warmup=0, fractions=())
    assert profile.layers_to_step == 0.9 and "the best of 2 series" in profile.notes and profile.doubt == ""
    assert next(seen).ratio == 1.0


@pytest.mark.skipif(not device_clocks.queued_s(), reason="the kernel does not say how long a thread was queued")
def test_what_other_programs_take_is_not_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a program that spins on the same core, the wall's clock runs on and this one does not."""
    os = pytest.importorskip("os")
    cores = os.sched_getaffinity(0)
    core = min(cores)
    spin = [sys.executable, "-c", f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"]
    spinner = subprocess.Popen(spin)
    try:
        os.sched_setaffinity(0, {core})
        time.sleep(0.5)
        clock = device_clocks.UndisturbedClock()
        start, wall_s, own_s = clock.mark(), time.perf_counter(), time.thread_time()
        while time.thread_time() - own_s < 0.3:
            pass
        end, wall_s, own_s = clock.mark(), time.perf_counter() - wall_s, time.thread_time() - own_s
    finally:
        os.sched_setaffinity(0, cores)
        spinner.kill()
        spinner.wait()
    assert wall_s > 1.4 * own_s
    assert clock.seconds(start, end) == pytest.approx(own_s, rel=0.1)
    assert clock.queued == pytest.approx(1 - own_s / wall_s, abs=0.1)


def test_an_undisturbed_clock_leaves_out_what_others_had_of_its_core_and_says_their_share() -> None:
    """Of 10 s on the wall others had 4, then none of 6; nobody has more of a core than what is left of its use."""
    clock = device_clocks.UndisturbedClock()

    def moments(wall_s: float, used_s: float, queued_s: float) -> tuple[Moment, float, Moment]:
        return (wall_s, used_s), queued_s, (wall_s, used_s)

    assert clock.queued == 0
    assert clock.seconds(moments(100, 50, 7), moments(110, 55, 11)) == 6 and clock.queued == 0.4
    assert clock.seconds(moments(110, 55, 11), moments(116, 58, 11)) == 6 and clock.queued == 0.25
    assert "for 25% of the steps' time" in clock.remark()
    clock.forget()
    assert clock.queued == 0
    assert clock.seconds(moments(0, 0, 0), moments(10, 9, 25)) == 9 and clock.queued == 0.1
