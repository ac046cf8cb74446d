"""Rounds of a measurement put in by hand, and what layers, points and circumstances are made of them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from simulator.workload import ScalingPoint  # noqa: E402
from traces.capture import device_clocks  # noqa: E402
from traces.capture.device_clocks import Times  # noqa: E402
from traces.capture.measurement_rounds import MeasurementRounds, median, spread  # noqa: E402
from traces.zoo.networks import Network  # noqa: E402

HALF = Fraction(1, 2)


def rounds() -> MeasurementRounds:
    """Of a linear layer, an activation and the loss, at the batch sizes 1, 2 and 4."""
    network = Network(build=lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU()), input_shape=(4,))
    return MeasurementRounds(network, torch.device("cpu"), 4, torch.float32, [HALF])


def equal(seconds: float) -> Times:
    """As long for each layer and pass."""
    return Times(forward_s=dict.fromkeys(range(3), seconds), backward_s=dict.fromkeys(range(3), seconds))


def measured(rounds: MeasurementRounds) -> MeasurementRounds:
    """Three rounds, of which the second takes three times and the third twice as long as the first: 24 s of layers in
    48 s of a step by their medians, of which ordinary passes take 33: three halves of the layers' 22."""
    assert [layer.name for layer in rounds.surveyed][1:] == ["model.1", "loss"] or len(rounds.surveyed) == 3
    rounds.whole_s[:] = [47.0, 50.0, 48.0]
    for times in (1.0, 3.0, 2.0):
        rounds._full.append(
            Times(
                forward_s={0: times, 1: 2 * times, 2: times},
                backward_s={0: 4 * times, 1: 2 * times, 2: times},
                update_s={0: times},
                recompute_s={0: 5 * times, 1: 1.5 * times},
            )
        )
        rounds._sums.append(Times(accumulate_s={0: 0.5 * times}))
        rounds._smaller[1].append(equal(times))
        rounds._smaller[2].append(equal(2 * times))
        rounds._narrow[False, HALF].append(equal(0.5 * times))
        rounds._narrow[True, HALF].append(equal(0.25 * times))
    rounds.pass_s[4][:] = [32.0, 33.0, 34.0]
    rounds.pass_s[1][:] = [35.0, 36.0, 40.0]  # where its layers take 12 s
    rounds.pass_s[2][:] = [24.0, 24.0, 24.0]  # as its layers do
    return rounds


def test_layers_are_medians_scaled_to_the_step() -> None:
    done = measured(rounds())
    assert done.layers_to_step() == 0.5
    linear, relu, loss = done.layers()
    times = [(x.forward_s, x.backward_s, x.update_s) for x in (linear, relu, loss)]
    assert times == [(3, 12, 15), (6, 6, 0), (3, 3, 0)]
    assert [(x.forward_spread_s, x.backward_spread_s) for x in (linear, relu, loss)] == [(1.5, 6), (3, 3), (1.5, 1.5)]
    assert [x.recompute_s for x in (linear, relu, loss)] == [12, 4.5, 0]  # no more than the backward pass
    assert [x.accumulate_s for x in (linear, relu, loss)] == [1, 0, 0]  # sums are not part of the step
    sizes = [
        ScalingPoint(batch_size=size, forward_s=6 if size == 1 else 4, backward_s=6 if size == 1 else 4)
        for size in (1, 2)
    ]
    narrow = ScalingPoint(batch_size=4, channel_fraction=0.5, forward_s=1.5, backward_s=1.5)
    reading = ScalingPoint(batch_size=4, input_channel_fraction=0.5, forward_s=0.75, backward_s=0.75)
    assert linear.scaling == (*sizes, narrow, reading)
    assert relu.scaling == (*sizes, narrow) and loss.scaling == tuple(sizes)
    assert done.points == "3 layers at batch sizes 1, 2, 4 and 1/2 of the channels"
    assert "layers timed one by one took 0.500 of the whole step, and are scaled to it" in done.remarks()


@pytest.mark.parametrize("times_calls", [True, False])
def test_layers_that_a_device_times_are_not_scaled(times_calls: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_clocks.HostClock, "times_calls", times_calls)
    done = measured(rounds())
    linear, *_ = done.layers()
    assert (linear.forward_s, linear.update_s) == ((3.0, 15.0) if times_calls else (2.0, 2.0))
    assert linear.scaling[2].forward_s == (1.5 if times_calls else 1.0)
    known = done.circumstances()
    assert (known.ratio, known.ahead) == (0.5, not times_calls)
    assert any("scaled to it" in remark for remark in done.remarks()) is times_calls


def test_an_update_that_calls_make_seem_short_lengthens_no_pass() -> None:
    """Of a step of 110 s 100 are its update's, which layers one by one do in 40: half the batch takes half its 10 s."""
    done = rounds()
    done._full.append(Times(forward_s={0: 6.0}, backward_s={0: 4.0}, update_s={0: 40.0}))
    done._sums.append(Times())
    done._smaller[2].append(Times(forward_s={0: 3.0}, backward_s={0: 2.0}))
    done.whole_s[:], done.pass_s[4][:], done.pass_s[2][:] = [110.0], [10.0], [5.0]
    del done._smaller[1]
    done._narrow.clear()
    layer = next(done.layers())
    assert (layer.forward_s, layer.backward_s, layer.update_s) == (6, 4, 100)
    assert layer.scaling == (ScalingPoint(batch_size=2, forward_s=3, backward_s=2),)


class Passes:
    """In place of timed passes: what was asked for, of how many samples."""

    def __init__(self, size: int, asked: list[tuple[Any, ...]]) -> None:
        self.size, self.asked = size, asked

    def step(self, data: Tensor) -> Times:
        self.asked.append(("step", self.size, len(data)))
        return Times()

    def accumulated(self, data: Tensor) -> Times:
        self.asked.append(("accumulated", self.size, len(data)))
        return Times()

    def gradients(self, data: Tensor) -> tuple[Times, None]:
        self.asked.append(("gradients", self.size, len(data)))
        return Times(), None

    def narrowed(self, data: Tensor, variants: object) -> Times:
        self.asked.append(("narrowed", self.size, len(data)))
        return Times()


@pytest.mark.parametrize("times_calls", [True, False])
def test_a_round_measures_everything_once_and_sums_where_they_are_shortest(
    times_calls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, asked = rounds(), list[tuple[Any, ...]]()
    monkeypatch.setattr(device_clocks.HostClock, "times_calls", times_calls)
    monkeypatch.setattr(done, "passes", Passes(4, asked))
    monkeypatch.setattr(done, "_smaller_passes", {size: Passes(size, asked) for size in (1, 2)})
    monkeypatch.setattr(done, "whole_step", lambda: asked.append(("whole",)) or (1.0, 0.5))
    monkeypatch.setattr(done, "_whole_pass", lambda data: asked.append(("pass", len(data))) or 1.0)
    done._round()
    whole = {size: [("pass", size)] * times_calls for size in (1, 2)}
    assert asked == [
        ("whole",), ("step", 4, 4), ("accumulated", 1, 1), *whole[1], ("gradients", 1, 1), *whole[2],
        ("gradients", 2, 2), ("narrowed", 4, 4), ("narrowed", 4, 4),
    ]  # fmt: skip
    assert (done.whole_s, done.pass_s[4]) == ([1.5], [1.0])
    assert [len(each) for each in (done.whole_s, done._full, done._sums, *done._narrow.values())] == [1, 1, 1, 1, 1]
    done._forget()
    assert not any((done.whole_s, done._full, done._sums, *done._narrow.values(), *done.pass_s.values()))


def test_medians_and_interquartile_ranges_by_hand() -> None:
    assert (median([3.0, 1.0, 2.0]), median([1.0, 2.0]), median([1.23456789])) == (2.0, 1.5, 1.23457)
    assert (spread([]), spread([7.0]), spread([1.0, 2.0, 3.0, 4.0, 5.0]), spread([0.1] * 9)) == (0.0, 0.0, 2.0, 0.0)
    assert spread([1.0, 2.0]) == 0.5


@pytest.mark.parametrize(
    ("steps_s", "precise"),
    [
        ([99.0, 99.0, 101.0, 101.0], True),
        ([98.9, 98.9, 101.1, 101.1], False),
        ([98.0] * 8 + [102.0] * 8, True),
        ([97.8] * 8 + [102.2] * 8, False),
        ([50.0], True),
    ],
)
def test_a_step_is_known_where_its_median_errs_by_a_hundredth(steps_s: list[float], precise: bool) -> None:
    """0.929 of the interquartile range over the root of their number: of four steps of 2 in 100, of sixteen of 4."""
    done = rounds()
    done.whole_s[:] = steps_s
    assert done._is_precise() is precise
