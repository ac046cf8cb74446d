"""Rounds of measurement over one network, and the layers that their medians make.

One round runs, one after another: the ordinary whole step; the same step timed layer by layer; forward and
backward timed at every smaller batch size; and forward and backward with narrowed layers, for every
fraction of channels. So a drift of the machine hits all of them alike.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Iterator, Sequence
from fractions import Fraction

import torch
from torch import Tensor

from simulator.workload import Layer, ScalingPoint
from traces.capture.channel_fractions import Narrowed
from traces.capture.device_clocks import clock_of
from traces.capture.fx_steps import Trained, trace
from traces.capture.layer_survey import survey
from traces.capture.momentum_sgd import optimizer
from traces.capture.timed_passes import TimedPasses, Times
from traces.zoo.networks import Network


class MeasurementRounds:
    """A network on a device with data of `batch_size` samples, ready to be measured.

    inputs: (batch_size, *input shape). surveyed: the layers without times. whole_s: seconds of the whole steps so far.
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
        self._clock = clock_of(torch_device)
        self.inputs = draw(network, batch_size, torch_device, dtype)
        self._sizes = [1 << exponent for exponent in range((batch_size - 1).bit_length())]
        steps = trace(self.trained)
        persistent = [*self.trained.parameters(), *self.trained.buffers()]
        self.surveyed, layer_of = survey(steps, self.inputs, persistent, fractions)
        self.passes = TimedPasses(steps, layer_of, self._clock)
        self._optimizer = optimizer(self.trained.parameters())
        self.whole_s: list[float] = []
        self._full: list[Times] = []
        self._smaller: dict[int, list[Times]] = {size: [] for size in self._sizes}
        self._narrow: dict[Fraction, list[Times]] = {fraction: [] for fraction in fractions}

    def measure(self, repeats: int, warmup: int) -> None:
        """Run `warmup` rounds that do not count and `repeats` that do."""
        for count in range(warmup + repeats):
            if count == warmup:
                self._forget()
            self._round()
            gc.collect()

    def layers(self) -> Iterator[Layer]:
        """The layers with the medians of all rounds."""
        for i, surveyed in enumerate(self.surveyed):
            forward, backward, update = _column(self._full, i)
            yield Layer(
                name=surveyed.name,
                kind=surveyed.kind,
                inputs=surveyed.inputs,
                output_shape=surveyed.output_shape,
                forward_s=median(forward),
                backward_s=median(backward),
                update_s=median(update),
                forward_spread_s=spread(forward),
                backward_spread_s=spread(backward),
                parameter_bytes=surveyed.parameter_bytes,
                output_bytes=surveyed.output_bytes,
                saved_bytes=surveyed.saved_bytes,
                flops=surveyed.flops,
                geometry=surveyed.geometry,
                scaling=(*self._batch_points(i), *self._channel_points(i)),
            )

    def variants(self, fraction: Fraction) -> dict[int, Narrowed]:
        """The narrow form of every layer that has one at `fraction` of its channels, by position."""
        return {
            i: surveyed.narrowed[fraction] for i, surveyed in enumerate(self.surveyed) if fraction in surveyed.narrowed
        }

    def _batch_points(self, layer: int) -> Iterator[ScalingPoint]:
        for size, times in self._smaller.items():
            forward, backward, _ = _column(times, layer)
            yield ScalingPoint(batch_size=size, forward_s=median(forward), backward_s=median(backward))

    def _channel_points(self, layer: int) -> Iterator[ScalingPoint]:
        for fraction, times in self._narrow.items():
            if fraction in self.surveyed[layer].narrowed:
                forward, backward, _ = _column(times, layer)
                yield ScalingPoint(
                    batch_size=len(self.inputs),
                    channel_fraction=float(fraction),
                    forward_s=median(forward),
                    backward_s=median(backward),
                )

    def _round(self) -> None:
        self.whole_s.append(self._whole_step())
        self._full.append(self.passes.step(self.inputs))
        for size, times in self._smaller.items():
            times.append(self.passes.gradients(self.inputs[:size])[0])
        for fraction, times in self._narrow.items():
            times.append(self.passes.narrowed(self.inputs, self.variants(fraction)))

    def _whole_step(self) -> float:
        """Seconds of an ordinary training step among others: from the end of a step to the end of the next."""
        self._clock.settle()
        for _ in range(self._clock.fill_steps):
            self._train()
        start = self._clock.mark()
        self._train()
        end = self._clock.mark()
        self._clock.settle()
        return self._clock.seconds(start, end)

    def _train(self) -> None:
        self.trained(self.inputs).backward()
        self._optimizer.step()
        self._optimizer.zero_grad()

    def remark(self) -> str:
        """How well the host kept ahead of the device, for a profile's notes."""
        return self._clock.remark()

    def _forget(self) -> None:
        self._clock.forget()
        self.whole_s.clear()
        for times in (self._full, *self._smaller.values(), *self._narrow.values()):
            times.clear()


def median(seconds: Sequence[float]) -> float:
    """The median in seconds, to six significant digits."""
    return float(f"{statistics.median(seconds):.6g}")


def spread(seconds: Sequence[float]) -> float:
    """The interquartile range in seconds, to six significant digits; 0 for a single measurement."""
    if len(seconds) < 2:
        return 0.0
    lower, _, upper = statistics.quantiles(seconds, n=4, method="inclusive")
    return float(f"{upper - lower:.6g}")


def _column(times: Sequence[Times], layer: int) -> tuple[list[float], list[float], list[float]]:
    """Forward, backward and update seconds of a layer in every round; 0 for what it does not have."""
    forward = [each.forward_s.get(layer, 0.0) for each in times]
    backward = [each.backward_s.get(layer, 0.0) for each in times]
    return forward, backward, [each.update_s.get(layer, 0.0) for each in times]


def trained_on(network: Network, torch_device: torch.device, dtype: torch.dtype) -> Trained:
    """A network with its loss, ready for training; its parameters are drawn on the device, which a GPU does at once."""
    with torch_device:
        model = network.build()
    return Trained(model.to(torch_device, dtype).train())


def draw(network: Network, batch_size: int, torch_device: torch.device, dtype: torch.dtype) -> Tensor:
    """Random data of shape (batch_size, *input shape), as zeros may be faster than real data."""
    shape = (batch_size, *network.input_shape)
    if network.vocabulary is not None:
        return torch.randint(network.vocabulary, shape, device=torch_device)
    return torch.randn(shape, device=torch_device, dtype=dtype)
