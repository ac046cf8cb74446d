"""When every task of a graph ran, simulated or for real."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.taskgraph import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """One span per task: task i ran from start_s[i] to end_s[i] seconds after the step began.

    engine: which one simulated it, empty where it was measured.
    """

    start_s: Floats
    end_s: Floats
    engine: str = ""

    @property
    def step_s(self) -> float:
        """When the last task ended."""
        return float(self.end_s.max(initial=0.0))
