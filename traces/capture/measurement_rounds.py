"""Rounds of measurement over one network, and the layers that their medians make.

One round runs, one after another: the ordinary whole step; the same step timed layer by layer; the sums of gradients
over micro-batches; forward and backward at every smaller batch size, both ordinary and timed layer by layer; and
forward and backward with narrowed layers, for every fraction of output and of input channels. So a drift of the machine
hits all of them alike.

On a CPU a layer that is timed by itself also takes what timing it costs, and finds colder caches; and between layers
there is work that is no layer's. In a small micro-batch that is a fifth of the whole and more. So the passes of
layers are scaled to take as long together as the ordinary pass of their batch size, of the full batch those of the
step, and updates to what the step takes besides. Layers are timed by the processor, and ordinary steps and passes by
the clock on the wall less the time in which other programs had the core: what disturbs the machine is in neither. How
far the layers were from the step before they were scaled says how much they can be trusted.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from math import inf, sqrt
from typing import Any

import torch
from torch import Tensor

from simulator.errors import InputError
from simulator.units import format_bytes
from simulator.workload import Layer, ScalingPoint
from traces.capture.device_clocks import Times, clock_of, step_clock_of
from traces.capture.doubts import Circumstances, drift
from traces.capture.fx_steps import Trained
from traces.capture.layer_survey import Survey, survey
from traces.capture.machine_settings import StolenTime, stolen_words
from traces.capture.momentum_sgd import optimizer
from traces.capture.recorded_steps import RECORDED, StepSource
from traces.capture.timed_passes import TimedPasses
from traces.zoo.networks import Network
from traces.zoo.own_network import Data, draw

FEWEST_ROUNDS, PRECISION = 5, 0.01
"""A budget ends no earlier than after so many rounds that count, and when the median step is known this well."""
PASSES, UPDATE, STEP = slice(2), slice(2, 3), slice(3)  # of Times.phases
MEDIAN_ERROR = 1.2533 / 1.3490
"""A median's standard error is the first times that of the mean, and quartiles lie twice 0.6745 standard deviations
apart, the second (of a normal distribution)."""


class MeasurementRounds:
    """A network on a device with data of `batch_size` samples, ready to be measured.

    inputs: (batch_size, *input shape). surveyed: the layers without times. narrowed: as in Survey. whole_s: seconds of
    the whole steps so far, pass_s: of ordinary passes by their batch size, the full batch's in those steps.
    recorded: whether its layers were recorded from a run, not traced. skipped: smaller batch sizes that are left out
    because the network calls other layers there.
    """

    def __init__(
        self,
        network: Network,
        torch_device: torch.device,
        batch_size: int,
        dtype: torch.dtype,
        fractions: Sequence[Fraction],
    ) -> None:
        self.trained = trained_on(network, torch_device, dtype)
        self._clock, self._step_clock, self._stolen = clock_of(torch_device), step_clock_of(torch_device), StolenTime()
        self.inputs = draw(network, batch_size, torch_device, dtype)
        source = StepSource(self.trained, self.inputs)
        self.recorded, self.skipped = source.recorded, list[int]()
        steps = source.steps(self.inputs)
        self._persistent: list[Tensor] = [*self.trained.parameters(), *self.trained.buffers()]
        surveyed = survey(steps, self.inputs, self._persistent, fractions)
        self.passes, self.narrowed = TimedPasses(steps, surveyed.layer_of, self._clock), surveyed.narrowed
        working = self.passes.working_bytes(self.inputs)
        self.surveyed = [replace(x, working_bytes=working.get(i, 0)) for i, x in enumerate(surveyed.layers)]
        self._smaller_passes = dict(self._passes_at_smaller_sizes(source))
        self._optimizer = optimizer(self.trained.parameters())
        self.whole_s: list[float] = []
        self._full: list[Times] = []
        self._sums: list[Times] = []
        self._smaller: dict[int, list[Times]] = {size: [] for size in self._smaller_passes}
        self.pass_s: dict[int, list[float]] = {size: [] for size in (*self._smaller_passes, batch_size)}
        self._narrow: dict[tuple[bool, Fraction], list[Times]] = {form: [] for form in self.narrowed}

    @property
    def points(self) -> str:
        """What is measured, in a few words."""
        sizes = ", ".join(map(str, (*self._smaller, len(self.inputs))))
        fractions = dict.fromkeys(fraction for _, fraction in self._narrow)
        shares = f" and {', '.join(map(str, fractions))} of the channels" if fractions else ""
        return f"{len(self.surveyed)} layers at batch sizes {sizes}{shares}"

    def _passes_at_smaller_sizes(self, source: StepSource) -> Iterator[tuple[int, TimedPasses]]:
        """Passes for the powers of two below the batch size."""
        names = [layer.name for layer in self.surveyed]
        for exponent in range((len(self.inputs) - 1).bit_length()):
            size = 1 << exponent
            if not source.recorded:
                yield size, self.passes
                continue
            surveyed: Survey | None = None
            with suppress(InputError, RuntimeError, ValueError):
                steps = source.steps(self.inputs[:size])
                surveyed = survey(steps, self.inputs[:size], self._persistent, ())
            if surveyed and [layer.name for layer in surveyed.layers] == names:
                yield size, TimedPasses(steps, surveyed.layer_of, self._clock)
            else:
                self.skipped.append(size)

    def measure(
        self, repeats: int, warmup: int, progress: Callable[[int, int], None] | None = None, ends_s: float = inf
    ) -> None:
        """Run `warmup` rounds that do not count and `repeats` that do; `progress` hears (rounds done, in all).

        ends_s: by time.monotonic; FEWEST_ROUNDS or more are enough then, or once the median step is known to PRECISION.
        """
        for count in range(warmup + repeats):
            if count in (0, warmup):
                self._forget()
            self._round()
            gc.collect()
            if progress:
                progress(count + 1, warmup + repeats)
            enough = count + 1 >= warmup + FEWEST_ROUNDS
            if enough and ends_s < inf and (time.monotonic() > ends_s or self._is_precise()):
                return

    def _is_precise(self) -> bool:
        """Whether the standard error of the median step is at most PRECISION of it (of normally distributed steps)."""
        error_s = MEDIAN_ERROR * spread(self.whole_s) / sqrt(len(self.whole_s))
        return error_s <= PRECISION * statistics.median(self.whole_s)

    def layers_to_step(self) -> float:
        """Seconds of all layers timed one by one over those of the whole step, of medians, before any scaling."""
        return _sum_s(self._full) / statistics.median(self.whole_s)

    def circumstances(self) -> Circumstances:
        """What else is known of these rounds."""
        return Circumstances(
            ratio=self.layers_to_step(),
            queued=getattr(self._step_clock, "queued", 0.0),
            stolen=self._stolen.share() or 0.0,
            drift=drift(self.whole_s),
            ahead=not self._clock.times_calls,
        )

    def layers(self) -> Iterator[Layer]:
        """The layers with the medians of all rounds, scaled to what they take together."""
        passes_s = statistics.median(self.pass_s[len(self.inputs)])
        besides_s = statistics.median(self.whole_s) - passes_s
        scale, of_update = self._scale(self._full, [passes_s]), self._scale(self._full, [besides_s], UPDATE)
        for i, surveyed in enumerate(self.surveyed):
            factors = zip((scale, scale, of_update), _column(self._full, i), strict=True)
            forward, backward, update = ([factor * s for s in part] for factor, part in factors)
            sums = [times.accumulate_s.get(i, 0.0) for times in self._sums]
            again = [scale * times.recompute_s.get(i, 0.0) for times in self._full]
            yield replace(
                surveyed,
                forward_s=median(forward),
                backward_s=median(backward),
                update_s=median(update),
                forward_spread_s=spread(forward),
                backward_spread_s=spread(backward),
                recompute_s=min(median(again), median(backward)),
                accumulate_s=median(sums),
                scaling=(*self._batch_points(i), *self._channel_points(i, scale)),
            )

    def _scale(self, times: Sequence[Times], ordinary_s: Sequence[float], phases: slice = PASSES) -> float:
        """The median of ordinary seconds over those of all layers; 1 where times hold no calls, or layers none."""
        together_s = _sum_s(times, phases) if self._clock.times_calls else 0.0
        return statistics.median(ordinary_s) / together_s if together_s else 1.0

    def _batch_points(self, layer: int) -> Iterator[ScalingPoint]:
        for size, times in self._smaller.items():
            scale = self._scale(times, self.pass_s[size])
            forward, backward = ([scale * s for s in part] for part in _column(times, layer)[:2])
            yield ScalingPoint(batch_size=size, forward_s=median(forward), backward_s=median(backward))

    def _channel_points(self, layer: int, scale: float) -> Iterator[ScalingPoint]:
        for (reading, fraction), times in self._narrow.items():
            if layer in self.narrowed[reading, fraction]:
                forward, backward = ([scale * s for s in part] for part in _column(times, layer)[:2])
                yield ScalingPoint(
                    batch_size=len(self.inputs),
                    channel_fraction=1.0 if reading else float(fraction),
                    input_channel_fraction=float(fraction) if reading else 1.0,
                    forward_s=median(forward),
                    backward_s=median(backward),
                )

    def _round(self) -> None:
        passes_s, update_s = self.whole_step()
        self.whole_s.append(passes_s + update_s)
        self.pass_s[len(self.inputs)].append(passes_s)
        self._full.append(self.passes.step(self.inputs))
        smallest = min(self._smaller, default=len(self.inputs))
        passes = self._smaller_passes.get(smallest, self.passes)  # sums of gradients are as large at every batch size
        self._sums.append(passes.accumulated(self.inputs[:smallest]))
        for size, times in self._smaller.items():
            if self._clock.times_calls:
                self.pass_s[size].append(self._whole_pass(self.inputs[:size]))
            times.append(self._smaller_passes[size].gradients(self.inputs[:size])[0])
        for form, times in self._narrow.items():
            times.append(self.passes.narrowed(self.inputs, self.narrowed[form]))

    def whole_step(self) -> tuple[float, float]:
        """Seconds of the passes and of the update of an ordinary step among others, since the end of the one before."""
        self._step_clock.settle()
        for _ in range(self._step_clock.fill_steps):
            self.train()
        start = self._step_clock.mark()
        between = self.train()
        end = self._step_clock.mark()
        self._step_clock.settle()
        return self._step_clock.seconds(start, between), self._step_clock.seconds(between, end)

    def _whole_pass(self, data: Data) -> float:
        """Seconds of an ordinary forward and backward pass: the mean of as many as make a step, one after another.

        What disturbs a core comes in pieces of milliseconds; most short passes have none, but a step of many has some.
        """
        seconds = []
        for _ in range(1 + len(self.inputs) // len(data)):
            start = self._step_clock.mark()
            self.trained(data).backward()
            seconds.append(self._step_clock.seconds(start, self._step_clock.mark()))
            self._optimizer.zero_grad()
        return statistics.fmean(seconds[1:])

    def train(self) -> Any:
        """An ordinary training step; returns the clock's mark between its passes and its update."""
        self.trained(self.inputs).backward()
        between = self._step_clock.mark()
        self._optimizer.step()
        self._optimizer.zero_grad()
        return between

    def remarks(self) -> Iterator[str]:
        """What a profile's notes say: how layers were obtained, how well the host kept ahead, what others disturbed."""
        if self.recorded:
            yield RECORDED
        if frozen := sum(p.nbytes for p in self.trained.parameters() if not p.requires_grad):
            yield f"{format_bytes(frozen)} of parameters are not trained, and are in no prediction of memory"
        if self.skipped:
            yield f"at batch sizes {', '.join(map(str, self.skipped))} it calls other layers, so these are left out"
        if self._clock.times_calls:
            yield f"layers timed one by one took {self.layers_to_step():.3f} of the whole step, and are scaled to it"
        for clock in dict.fromkeys((self._clock, self._step_clock)):
            if remark := clock.remark():
                yield remark
        if remark := stolen_words(self._stolen.share()):
            yield remark

    def _forget(self) -> None:
        self._clock.forget()
        self._step_clock.forget()
        self._stolen = StolenTime()
        for times in (self._full, self._sums, *self._smaller.values(), *self._narrow.values()):
            times.clear()
        for seconds in (self.whole_s, *self.pass_s.values()):
            seconds.clear()


def median(seconds: Sequence[float]) -> float:
    """The median in seconds, to six significant digits."""
    return rounded(statistics.median(seconds))


def spread(seconds: Sequence[float]) -> float:
    """The interquartile range in seconds, to six significant digits; 0 for a single measurement."""
    if len(seconds) < 2:
        return 0.0
    lower, _, upper = statistics.quantiles(seconds, n=4, method="inclusive")
    return rounded(max(upper - lower, 0.0))  # of equal numbers it may come out below 0


def rounded(value: float) -> float:
    """To six significant digits."""
    return float(f"{value:.6g}")


def _sum_s(times: Sequence[Times], phases: slice = STEP) -> float:
    """Seconds of all layers together, of each the medians. phases: which of `Times.phases`."""
    layers = {layer for each in times for part in each.phases for layer in part}
    return sum(statistics.median(part) for layer in sorted(layers) for part in _column(times, layer)[phases])


def _column(times: Sequence[Times], layer: int) -> tuple[list[float], ...]:
    """Forward, backward and update seconds of a layer in every round; 0 for what it does not have."""
    phases = zip(*(each.phases for each in times), strict=True)
    return tuple([seconds.get(layer, 0.0) for seconds in phase] for phase in phases)


def trained_on(network: Network, torch_device: torch.device, dtype: torch.dtype) -> Trained:
    """A network with its loss, ready for training; its parameters are drawn on the device, which a GPU does at once."""
    with torch_device:
        model = network.build()
    return Trained(model.to(torch_device, dtype).train())
