"""What a capture's command takes by default, when a series is measured again, and from when on a ratio is doubted."""

from __future__ import annotations

import inspect
import os
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from simulator.errors import InputError  # noqa: E402
from traces.capture import command, doubts  # noqa: E402
from traces.capture.doubts import Circumstances, doubt, drift  # noqa: E402
from traces.zoo.networks import Network  # noqa: E402

QUIET = Circumstances(ratio=1.0, queued=0.0, stolen=0.0, drift=1.0, ahead=False)
DISTURBED = replace(QUIET, ratio=0.5, stolen=0.5)


def test_the_command_takes_what_the_function_takes_by_default() -> None:
    parsed = vars(command.parser().parse_args(["vgg16", "--batch-size", "8", "--output", "x.json"]))
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(command.capture).parameters.items()
        if parameter.default is not inspect.Parameter.empty and name in parsed
    }
    assert defaults and {name: parsed[name] or default for name, default in defaults.items()} == defaults
    assert {"threads": 1, "repeats": 30, "warmup": 2, "seed": 0, "device": "cpu", "dtype": "float32"}.items() <= (
        defaults.items()
    )
    help_text = " ".join(command.parser().format_help().split())
    for words in ("rounds of measurement (default 30)", "do not count (default 2)", "CPU threads (default 1)"):
        assert words in help_text


class Rounds:
    """In place of rounds of measurement: each series lasts so long, under circumstances of its own."""

    points, inputs, whole_s = "a layer", range(8), [3.0, 1.0, 2.0, 4.0, 5.0]

    def __init__(self, lasts_s: float, seen: list[Circumstances]) -> None:
        self.now_s, self.lasts_s, self.seen, self.asked = 50.0, lasts_s, iter(seen), list[tuple[Any, ...]]()

    def monotonic(self) -> float:
        return self.now_s

    def measure(self, repeats: int, warmup: int, progress: object, ends_s: float) -> None:
        self.asked.append((repeats, warmup, progress, ends_s))
        self.now_s += self.lasts_s

    def circumstances(self) -> Circumstances:
        return next(self.seen)

    def remarks(self) -> list[str]:
        return ["one", "two"]

    def layers(self) -> list[Any]:
        return []


@pytest.mark.parametrize(
    ("lasts_s", "budget_s", "seen", "series"),
    [
        (10.0, 1e9, [DISTURBED] * 9, 3),
        (10.0, 1e9, [DISTURBED, QUIET], 2),
        (10.0, 1e9, [replace(DISTURBED, ratio=1.0)], 1),
        (10.0, 1e9, [replace(DISTURBED, stolen=0.0)], 1),
        (150.0, 1e9, [DISTURBED] * 9, 3),
        (150.1, 1e9, [DISTURBED] * 9, 2),
        (301.0, 1e9, [DISTURBED], 1),
        (10.0, 15.0, [DISTURBED] * 9, 2),
    ],
)
def test_a_disturbed_series_is_measured_again_within_five_minutes_and_the_budget(
    lasts_s: float, budget_s: float, seen: list[Circumstances], series: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three times at most, and only where layers and step differ and something disturbed them."""
    rounds: Any = Rounds(lasts_s, seen)
    monkeypatch.setattr(command, "time", SimpleNamespace(monotonic=rounds.monotonic))
    monkeypatch.setattr(command, "Profile", lambda **fields: SimpleNamespace(**fields))
    made = list(command._series(rounds, 7, 2, budget_s, None))
    assert len(made) == series and rounds.asked == [(7, 2, None, 50.0 + budget_s)] * series
    profile, count = made[0]
    assert (profile.batch_size, profile.step_s, profile.step_spread_s, count) == (8, 3.0, 2.0, 5)
    assert (profile.layers_to_step, profile.notes) == (seen[0].ratio, "; one; two")
    assert profile.doubt == doubt(seen[0])


@pytest.mark.parametrize(("ratios", "best"), [((0.5, 1.5, 4.0), 1.5), ((0.8, 1.3, 0.1), 0.8), ((None, 0.9), None)])
def test_the_series_whose_layers_add_up_best_is_kept(
    ratios: tuple[float | None, ...], best: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Network(build=lambda: torch.nn.Linear(8, 8), input_shape=(8,))
    kept = command.capture(network, 2, repeats=1, warmup=0, fractions=())
    series = [(replace(kept, layers_to_step=ratio, notes="; why"), 5) for ratio in ratios]
    monkeypatch.setattr(command, "_series", lambda *_: series)
    profile = command.capture(network, 2, repeats=1, warmup=0, fractions=())
    assert profile.layers_to_step == best
    assert f"of 5 rounds after 0 of warm-up; the best of {len(ratios)} series; random inputs" in profile.notes
    assert profile.notes.endswith("; why")


def test_no_more_threads_than_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(build=lambda: torch.nn.Linear(8, 8), input_shape=(8,))
    for known, most in ((None, 1), (3, 3)):
        monkeypatch.setattr(os, "cpu_count", lambda known=known: known)
        with pytest.raises(InputError, match=f"threads is {most + 1}: it is at most {most}, the processors"):
            command.capture(network, 2, threads=most + 1)
    with pytest.raises(InputError, match="warmup is -1: it is at least 0"):
        command.capture(network, 2, warmup=-1)


@pytest.mark.parametrize(("ratio", "off"), [(0.849, True), (0.851, False), (1.149, False), (1.151, True)])
def test_layers_are_doubted_from_fifteen_hundredths_on(ratio: float, off: bool) -> None:
    assert replace(QUIET, ratio=ratio).off is off and bool(doubt(replace(QUIET, ratio=ratio))) is off


@pytest.mark.parametrize("name", ["queued", "stolen"])
def test_disturbances_are_named_from_fifteen_hundredths_on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doubts, "os", SimpleNamespace(getloadavg=lambda: (2.5, 9.0, 9.0), cpu_count=lambda: None))
    for share, disturbed in ((0.149, False), (0.151, True)):
        seen = replace(QUIET, ratio=0.5, **{name: share})
        assert seen.disturbed is disturbed
        if name == "queued" and disturbed:
            assert "others had the core for 15% of the time (load 2.5 on 1 cores)" in doubt(seen)
    for change, disturbed in ((1.149, False), (1.151, True), (1 / 1.149, False), (1 / 1.151, True)):
        assert replace(QUIET, drift=change).disturbed is disturbed


def test_a_drift_is_of_thirds_of_two_steps_at_least() -> None:
    assert drift([1.0, 1.0, 9.0, 9.0, 9.0, 3.0, 3.0]) == 3.0
    assert drift([1.0, 2.0, 3.0, 4.0, 5.0]) == 1.0 and drift([]) == 1.0
    assert drift([1.0, 3.0, 5.0, 5.0, 6.0, 8.0]) == 3.5
