"""Seconds of a network's layers in one pass, from instants marked on a clock while it ran."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

from traces.capture.device_clocks import Clock


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of each timed layer, by position; a layer that was not timed is absent.

    empty_call_s: what asking autograd for no work cost just before each layer's backward pass was asked for.
    """

    forward_s: dict[int, float] = field(default_factory=dict)
    backward_s: dict[int, float] = field(default_factory=dict)
    update_s: dict[int, float] = field(default_factory=dict)
    accumulate_s: dict[int, float] = field(default_factory=dict)
    recompute_s: dict[int, float] = field(default_factory=dict)
    empty_call_s: dict[int, float] = field(default_factory=dict)

    @property
    def phases(self) -> tuple[dict[int, float], ...]:
        """What adds up to a step: seconds forward, backward and of the update."""
        return self.forward_s, self.backward_s, self.update_s


class Marks:
    """Instants marked during a pass, read together after it."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._noted: list[tuple[str, dict[int, int], Any, Any]] = []

    def note(self, phase: str, layer: int, start: Any) -> None:
        """The time since `start` is this layer's."""
        self.share(phase, {layer: 1}, start)

    def share(self, phase: str, weights: dict[int, int], start: Any) -> None:
        """The time since `start` is that of several layers, in proportion to their weights."""
        self.add(phase, weights, start, self.clock.mark())

    def add(self, phase: str, weights: dict[int, int], start: Any, end: Any) -> None:
        """The time between two marks is that of several layers, in proportion to their weights."""
        self._noted.append((phase, weights, start, end))

    def read(self) -> Times:
        """The layers' times; what an empty call costs, the median of the pass, is taken off each backward time."""
        self.clock.settle()
        times = Times()
        for phase, weights, start, end in self._noted:
            seconds, total = self.clock.seconds(start, end), sum(weights.values())
            noted = getattr(times, phase)
            for layer, weight in weights.items():
                noted[layer] = noted.get(layer, 0.0) + seconds * weight / total
        if times.empty_call_s:
            empty_s = statistics.median(times.empty_call_s.values())
            for layer in times.empty_call_s:
                times.backward_s[layer] = max(times.backward_s[layer] - empty_s, 0.0)
        return times
